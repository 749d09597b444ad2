/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.c - scalars as a TensorBoard event file.
 *
 * A file of records: the length (8 bytes, little endian), a checksum of these
 * bytes, the record, a checksum of it. The checksum is CRC-32C, rotated
 * by 15 bits, plus a constant. A record is an Event in protobuf's encoding:
 *
 *   Event    1: wall_time (double)   2: step (varint)   3: file_version
 *            5: summary              7: session_log
 *   Summary  1: value (repeated)     Value  1: tag   2: simple_value (float)
 *   SessionLog  1: status, START is 1: later steps of older files are ignored
 */
#include "train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct events {
    FILE *file;
};

/* ---- records ----------------------------------------------------------- */

/* Bit by bit: the records are short. */
static uint32_t crc32c(const unsigned char *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *bytes, size_t count)
{
    uint32_t crc = crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static void put_little(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static bool record_write(FILE *file, const unsigned char *bytes, size_t count)
{
    unsigned char head[12], tail[4];
    put_little(head, count, 8);
    put_little(head + 8, masked(head, 8), 4);
    put_little(tail, masked(bytes, count), 4);
    return fwrite(head, 1, sizeof(head), file) == sizeof(head) &&
           fwrite(bytes, 1, count, file) == count &&
           fwrite(tail, 1, sizeof(tail), file) == sizeof(tail) &&
           fflush(file) == 0;
}

/* ---- protobuf ---------------------------------------------------------- */

/* An event has a few scalars with short tags, so it fits. */
typedef struct message {
    unsigned char bytes[1024];
    size_t size;
} message;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(message *m, uint64_t value)
{
    for (; value > 127; value >>= 7)
        m->bytes[m->size++] = (unsigned char)(value | 128);
    m->bytes[m->size++] = (unsigned char)value;
}

static void put_key(message *m, unsigned number, unsigned type)
{
    put_varint(m, number << 3 | type);
}

static void put_bytes(message *m, unsigned number, const void *bytes,
                      size_t size)
{
    put_key(m, number, BYTES);
    put_varint(m, size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static message event_begin(size_t step)
{
    message m = { .size = 0 };
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    put_key(&m, 1, FIXED64);
    put_little(m.bytes + m.size, bits, 8);
    m.size += 8;
    put_key(&m, 2, VARINT);
    put_varint(&m, step);
    return m;
}

static void put_scalar(message *summary, const event_scalar *s)
{
    message value = { .size = 0 };
    float number = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    put_bytes(&value, 1, s->tag, strlen(s->tag));
    put_key(&value, 2, FIXED32);
    put_little(value.bytes + value.size, bits, 4);
    value.size += 4;
    put_bytes(summary, 1, value.bytes, value.size);
}

/* ---- the file ---------------------------------------------------------- */

static bool version_write(events *e)
{
    static const char version[] = "brain.Event:2";
    message m = event_begin(0);
    put_bytes(&m, 3, version, sizeof(version) - 1);
    return record_write(e->file, m.bytes, m.size);
}

static bool start_write(events *e, size_t step)
{
    static const unsigned char status[] = { 1 << 3 | VARINT, 1 };
    message m = event_begin(step + 1);
    put_bytes(&m, 7, status, sizeof(status));
    return record_write(e->file, m.bytes, m.size);
}

/* TensorBoard sorts files by name. The number changes only if the name is
 * taken.
 */
static FILE *file_create(const run_folder *f)
{
    enum { ATTEMPTS = 1000 };
    char name[128];
    FILE *file = NULL;
    for (int i = 0; !file && i < ATTEMPTS; i++) {
        snprintf(name, sizeof(name), "events.out.tfevents.%lld.bauta.%ld.%d",
                 (long long)time(NULL), (long)getpid(), i);
        file = folder_create(f, name);
        if (!file && errno != EEXIST)
            break;
    }
    return file;
}

events *events_open(const run_folder *f, size_t step)
{
    events *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->file = file_create(f);
    if (e->file && version_write(e) && (step == 0 || start_write(e, step)))
        return e;
    int code = errno;
    if (e->file)
        fclose(e->file);
    free(e);
    errno = code;
    return NULL;
}

bool events_write(events *e, size_t step, const event_scalar *scalars,
                  size_t count)
{
    message m = event_begin(step), summary = { .size = 0 };
    for (size_t i = 0; i < count; i++)
        put_scalar(&summary, &scalars[i]);
    put_bytes(&m, 5, summary.bytes, summary.size);
    return record_write(e->file, m.bytes, m.size);
}

bool events_close(events *e)
{
    bool closed = !e || fclose(e->file) == 0;
    free(e);
    return closed;
}

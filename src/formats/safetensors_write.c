/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writing tensors; see safetensors.h.
 *
 * The header is formatted as by the format's own library, including escapes and
 * padding, so that equal tensors give equal files. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

/* Output text; the first pass only counts its length. */
typedef struct text {
    char *to; /* NULL while counting */
    size_t length;
} text;

static void put(text *t, const char *from, size_t length)
{
    if (t->to)
        memcpy(t->to + t->length, from, length);
    t->length = bt_size_add(t->length, length);
}

static void put_text(text *t, const char *from)
{
    put(t, from, strlen(from));
}

static void put_number(text *t, size_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(t, digits + at, sizeof(digits) - at);
}

/* The escape of a character, up to six bytes; 0 if it needs none. */
static size_t escape(char to[6], char c)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; // char and letter
    for (const char *n = named; *n; n += 2)
        if (*n == c) {
            to[0] = '\\';
            to[1] = n[1];
            return 2;
        }
    if ((unsigned char)c >= 0x20)
        return 0;
    memcpy(to, "\\u00", 4);
    to[4] = (char)('0' + (c >> 4));
    to[5] = "0123456789abcdef"[c & 15];
    return 6;
}

static void put_string(text *t, const char *from)
{
    char escaped[6];
    put(t, "\"", 1);
    for (; *from; from++) {
        size_t length = escape(escaped, *from);
        put(t, length ? escaped : from, length ? length : 1);
    }
    put(t, "\"", 1);
}

static void put_metadata(text *t, const bt_metadata *metadata, size_t count)
{
    put_text(t, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        put_text(t, i ? "," : "");
        put_string(t, metadata[i].key);
        put_text(t, ":");
        put_string(t, metadata[i].value);
    }
    put_text(t, "}");
}

static void put_tensor(text *t, const bt_stored_tensor *tensor, size_t begin)
{
    put_string(t, tensor->name);
    put_text(t, ":{\"dtype\":\"");
    put_text(t, bt_dtype_name(tensor->dtype));
    put_text(t, "\",\"shape\":[");
    for (unsigned i = 0; i < tensor->rank; i++) {
        put_text(t, i ? "," : "");
        put_number(t, tensor->shape[i]);
    }
    put_text(t, "],\"data_offsets\":[");
    put_number(t, begin);
    put_text(t, ",");
    put_number(t, bt_size_add(begin, tensor->bytes));
    put_text(t, "]}");
}

typedef struct contents {
    const bt_stored_tensor **order;
    size_t count;
    const bt_metadata *metadata;
    size_t metadata_count;
} contents;

static void put_header(text *t, const contents *c)
{
    size_t begin = 0;
    put_text(t, "{");
    if (c->metadata_count)
        put_metadata(t, c->metadata, c->metadata_count);
    for (size_t i = 0; i < c->count; i++) {
        put_text(t, i || c->metadata_count ? "," : "");
        put_tensor(t, c->order[i], begin);
        begin = bt_size_add(begin, c->order[i]->bytes);
    }
    put_text(t, "}");
    while (t->length % 8)
        put_text(t, " "); // aligns the data to eight bytes
}

/* The widest types first, so that every tensor is aligned to its type. */
static int by_type_and_name(const void *a, const void *b)
{
    const bt_stored_tensor *x = *(const bt_stored_tensor *const *)a;
    const bt_stored_tensor *y = *(const bt_stored_tensor *const *)b;
    if (x->dtype != y->dtype)
        return bt_dtype_order(x->dtype) > bt_dtype_order(y->dtype) ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Check what is not visible in the header; header_check() does the rest. */
static bauta_status tensors_check(const char *path, const contents *c,
                                  bauta_error *err)
{
    for (size_t i = 0; i < c->count; i++) {
        const bt_stored_tensor *t = c->order[i];
        if (!t->name)
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s: a tensor has no name",
                           bt_path_tail(path));
        if ((unsigned)t->dtype >= BT_DTYPE_COUNT || t->rank > BT_RANK_MAX ||
            (!t->data && t->bytes))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: tensor \"%s\" has dtype %d, rank %u%s",
                           bt_path_tail(path), bt_quote(t->name).text,
                           (int)t->dtype, t->rank,
                           t->data ? "" : " and no data");
    }
    return BAUTA_OK;
}

static bauta_status header_check(const char *path, const unsigned char *bytes,
                                 size_t size, const contents *c,
                                 bauta_error *err)
{
    size_t data_size = 0;
    for (size_t i = 0; i < c->count; i++)
        data_size = bt_size_add(data_size, c->order[i]->bytes);
    bauta_status status =
        bt_safetensors_check(path, bytes, size, data_size, err);
    if (status != BAUTA_ERR_FORMAT)
        return status;
    if (err)
        err->status = BAUTA_ERR_ARGUMENT; // the arguments are wrong, not a file
    return BAUTA_ERR_ARGUMENT;
}

bauta_status bt_safetensors_header(unsigned char **out, size_t *size,
                                   const char *path,
                                   const bt_stored_tensor **order, size_t count,
                                   const bt_metadata *metadata,
                                   size_t metadata_count, bauta_error *err)
{
    static const bt_metadata usual = { "format", "pt" };
    contents c = { order, count, metadata ? metadata : &usual,
                   metadata ? metadata_count : 1 };
    text t = { NULL, 0 };
    *out = NULL;
    *size = 0;
    bauta_status status = tensors_check(path, &c, err);
    if (status)
        return status;
    if (count > 1)
        qsort(order, count, sizeof(const bt_stored_tensor *), by_type_and_name);
    put_header(&t, &c);
    unsigned char *bytes = bt_alloc(bt_size_add(t.length, 8));
    if (!bytes)
        return bt_fail_memory(err, "the header of a file", t.length);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)t.length >> 8 * i);
    t = (text){ (char *)bytes + 8, 0 };
    put_header(&t, &c);
    status = header_check(path, bytes, t.length + 8, &c, err);
    if (status) {
        bt_free(bytes);
        return status;
    }
    *out = bytes;
    *size = t.length + 8;
    return BAUTA_OK;
}

static bauta_status draft_fill(bt_atomic_file *draft,
                               const unsigned char *header, size_t size,
                               const bt_stored_tensor **order, size_t count,
                               bauta_error *err)
{
    bauta_status status = bt_atomic_file_write(draft, header, size, err);
    for (size_t i = 0; i < count && !status; i++)
        status =
            bt_atomic_file_write(draft, order[i]->data, order[i]->bytes, err);
    return status ? status : bt_atomic_file_commit(draft, err);
}

/* Write into a folder that is being created, or to a path. */
static bauta_status file_write(const bt_atomic_directory *to, const char *path,
                               const bt_stored_tensor *tensors, size_t count,
                               const bt_metadata *metadata,
                               size_t metadata_count, bauta_error *err)
{
    bt_atomic_file *draft = NULL;
    unsigned char *header = NULL;
    size_t size = 0;
    const bt_stored_tensor **order = bt_alloc_zero(count, sizeof(*order));
    if (!order)
        return bt_fail_memory(err, "the order of tensors", count);
    for (size_t i = 0; i < count; i++)
        order[i] = tensors + i;
    bauta_status status = bt_safetensors_header(
        &header, &size, path, order, count, metadata, metadata_count, err);
    if (!status)
        status = to ? bt_atomic_directory_file(to, &draft, path, err)
                    : bt_atomic_file_create(&draft, path, err);
    if (!status)
        status = draft_fill(draft, header, size, order, count, err);
    bt_atomic_file_free(draft);
    bt_free(header);
    bt_free(order);
    return status;
}

bauta_status bt_safetensors_write(const char *path,
                                  const bt_stored_tensor *tensors, size_t count,
                                  const bt_metadata *metadata,
                                  size_t metadata_count, bauta_error *err)
{
    return file_write(NULL, path, tensors, count, metadata, metadata_count,
                      err);
}

bauta_status bt_safetensors_write_in(const bt_atomic_directory *to,
                                     const char *name,
                                     const bt_stored_tensor *tensors,
                                     size_t count, bauta_error *err)
{
    return file_write(to, name, tensors, count, NULL, 0, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* spill_buffer.c - heap first, then a mapped file; see spill_buffer.h. */
#include "base/spill_buffer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAPACITY_MIN = 4096, DIRTY_MAX = 16 << 20 };

static const char *temporary_folder(void)
{
    const char *name = getenv("TMPDIR");
    return name && *name ? name : "/var/tmp";
}

static bauta_status fail_file(const char *what, int code, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s: cannot make a temporary file for %s: %s; TMPDIR may "
                   "name another folder",
                   bt_path_tail(temporary_folder()), what, strerror(code));
}

/* ---- the heap ------------------------------------------------------------ */

static bauta_status heap_grow(bt_spill_buffer *s, size_t capacity,
                              const char *what, bauta_error *err)
{
    void *bytes = bt_alloc(capacity);
    if (!bytes)
        return bt_fail_memory(err, what, capacity);
    if (s->size)
        memcpy(bytes, s->bytes, s->size);
    bt_free(s->bytes);
    s->bytes = bytes;
    s->capacity = capacity;
    return BAUTA_OK;
}

/* ---- a file -------------------------------------------------------------- */

/* An unlinked file: nobody else can open it, and closing removes it. */
static bauta_status file_open(int *file, const char *what, bauta_error *err)
{
    char *path = bt_path_join(temporary_folder(), "bauta-XXXXXX");
    if (!path)
        return bt_fail_memory(err, what, strlen(temporary_folder()));
    *file = mkstemp(path);
    int code = errno;
    if (*file >= 0) {
        unlink(path);
        fcntl(*file, F_SETFD, FD_CLOEXEC);
    }
    bt_free(path);
    return *file < 0 ? fail_file(what, code, err) : BAUTA_OK;
}

/* Map the first `capacity` bytes of a file that has `have` of them allocated.
 */
static bauta_status file_map(void **bytes, int file, size_t have,
                             size_t capacity, const char *what,
                             bauta_error *err)
{
    int code;
    if (capacity > PTRDIFF_MAX)
        return fail_file(what, EFBIG, err);
    do
        code = posix_fallocate(file, (off_t)have, (off_t)(capacity - have));
    while (code == EINTR);
    if (code)
        return fail_file(what, code, err);
    *bytes = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return *bytes == MAP_FAILED ? fail_file(what, errno, err) : BAUTA_OK;
}

static bauta_status file_grow(bt_spill_buffer *s, size_t capacity,
                              const char *what, bauta_error *err)
{
    void *bytes = NULL;
    bauta_status status =
        file_map(&bytes, s->file, s->capacity, capacity, what, err);
    if (status)
        return status;
    munmap(s->bytes, s->capacity);
    s->bytes = bytes;
    s->capacity = capacity;
    bt_spill_buffer_unload(s);
    return BAUTA_OK;
}

/* Move the bytes from the heap to a file. */
static bauta_status spill(bt_spill_buffer *s, size_t capacity, const char *what,
                          bauta_error *err)
{
    void *bytes = NULL;
    int file = -1;
    bauta_status status = file_open(&file, what, err);
    if (!status)
        status = file_map(&bytes, file, 0, capacity, what, err);
    if (status) {
        if (file >= 0)
            close(file);
        return status;
    }
    if (s->size)
        memcpy(bytes, s->bytes, s->size);
    bt_free(s->bytes);
    *s = (bt_spill_buffer){ bytes, s->size, capacity, s->size, file, true };
    return BAUTA_OK;
}

/* ---- both ---------------------------------------------------------------- */

bauta_status bt_spill_buffer_reserve(bt_spill_buffer *s, size_t more,
                                     size_t limit, const char *what,
                                     bauta_error *err)
{
    size_t need = bt_size_add(s->size, more);
    if (s->mapped && s->size - s->unloaded > DIRTY_MAX) {
        bt_spill_buffer_unload(s);
        s->unloaded = s->size;
    }
    if (need <= s->capacity)
        return BAUTA_OK;
    size_t capacity =
        bt_size_max(need, bt_size_add(s->capacity, s->capacity / 2));
    capacity = bt_size_max(capacity, CAPACITY_MIN);
    if (s->mapped)
        return file_grow(s, capacity, what, err);
    if (need > limit)
        return spill(s, capacity, what, err);
    return heap_grow(s, bt_size_min(capacity, limit), what, err);
}

void bt_spill_buffer_unload(const bt_spill_buffer *s)
{
    if (s->mapped)
        madvise(s->bytes, s->capacity, MADV_DONTNEED);
}

void bt_spill_buffer_release(bt_spill_buffer *s)
{
    if (s->mapped) {
        munmap(s->bytes, s->capacity);
        close(s->file);
    } else {
        bt_free(s->bytes);
    }
    *s = (bt_spill_buffer){ 0 };
}

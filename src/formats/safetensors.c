/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - reading tensors; see safetensors.h.
 *
 * A file has one block of memory, whose size follows from the length of its
 * header before anything is parsed:
 *
 *     | entries -->                    <-- names |
 *
 * A tensor takes at least ENTRY_TEXT bytes of header beside its name. So for a
 * header of H bytes, entries and names never meet in a block of H bytes plus
 * (sizeof(entry) + 1 - ENTRY_TEXT) for each tensor that the header can hold. */
#include "formats/safetensors.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/file_kind.h"
#include "formats/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

typedef struct entry {
    bt_stored_tensor tensor;
    size_t begin; /* of its bytes in the data */
} entry;

struct bt_safetensors {
    bt_file_map map; /* empty when the bytes are the caller's */
    unsigned char *block;
    entry *entries; /* at the start of the block */
    char *names;    /* grow down from the end of the block */
    size_t count, capacity;
    json_t *metadata; /* NULL when there is none */
};

/* The state while a header is read. */
typedef struct header_reader {
    bt_safetensors *file;
    const char *path;
    size_t data_size;
    bauta_error *err;
} header_reader;

size_t bt_stored_tensor_bytes(bauta_dtype dtype, unsigned rank,
                              const size_t *shape)
{
    size_t bytes = bt_dtype_size(dtype);
    // Overflow sticks, even if a later dimension is 0.
    for (unsigned i = 0; i < rank && bytes != SIZE_MAX; i++)
        bytes = bt_size_mul(bytes, shape[i]);
    return bytes;
}

/* ---- The block ----------------------------------------------------------- */

/* The shortest description of a tensor, without its name. */
#define ENTRY_TEXT \
    (sizeof("\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}") - 1)

static bauta_status block_create(header_reader *r, size_t header)
{
    bt_safetensors *file = r->file;
    file->capacity = bt_size_min(header / ENTRY_TEXT, BT_TENSORS_MAX);
    size_t size = bt_size_round(
        header + file->capacity * (sizeof(entry) + 1 - ENTRY_TEXT), BT_ALIGN);
    file->block = bt_alloc(size);
    if (!file->block)
        return bt_fail_memory(r->err, "the names of tensors", size);
    file->entries = (entry *)(void *)file->block;
    file->names = (char *)file->block + size;
    return BAUTA_OK;
}

/* Only for a complete entry, since ENTRY_TEXT does not hold otherwise. */
static void entry_add(bt_safetensors *file, const entry *from)
{
    size_t size = strlen(from->tensor.name) + 1;
    entry *e = file->entries + file->count++;
    file->names -= size;
    assert((char *)(e + 1) <= file->names);
    memcpy(file->names, from->tensor.name, size);
    *e = *from;
    e->tensor.name = file->names;
}

/* ---- One tensor ---------------------------------------------------------- */

/* An error about a tensor: "file: tensor "name" ...". */
#define FAIL_TENSOR(r, name, format, ...)                            \
    bt_fail((r)->err, BAUTA_ERR_FORMAT, "%s: tensor \"%s\" " format, \
            bt_path_tail((r)->path), bt_quote(name).text, ##__VA_ARGS__)

static bool size_read(size_t *out, const json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 ||
        (uintmax_t)number > PTRDIFF_MAX)
        return false;
    *out = (size_t)number;
    return true;
}

static bauta_status dtype_read(header_reader *r, bt_stored_tensor *t,
                               const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name)
        return FAIL_TENSOR(r, t->name, "has no dtype");
    if (!bt_dtype_find(&t->dtype, name))
        return FAIL_TENSOR(r, t->name, "has the unknown dtype \"%s\"",
                           bt_quote(name).text);
    return BAUTA_OK;
}

static bauta_status shape_read(header_reader *r, bt_stored_tensor *t,
                               const json_t *value)
{
    size_t rank = json_array_size(value);
    if (!json_is_array(value))
        return FAIL_TENSOR(r, t->name, "has no shape");
    if (rank > BT_RANK_MAX)
        return FAIL_TENSOR(r, t->name, "has rank %zu; at most %d is supported",
                           rank, BT_RANK_MAX);
    for (size_t i = 0; i < rank; i++)
        if (!size_read(&t->shape[i], json_array_get(value, i)))
            return FAIL_TENSOR(r, t->name, "has no size at dimension %zu", i);
    t->rank = (unsigned)rank;
    return BAUTA_OK;
}

static bauta_status offsets_read(header_reader *r, entry *e,
                                 const json_t *value)
{
    bt_stored_tensor *t = &e->tensor;
    size_t end, needed = bt_stored_tensor_bytes(t->dtype, t->rank, t->shape);
    if (json_array_size(value) != 2 ||
        !size_read(&e->begin, json_array_get(value, 0)) ||
        !size_read(&end, json_array_get(value, 1)))
        return FAIL_TENSOR(r, t->name, "has no pair of data_offsets");
    if (e->begin > end || end > r->data_size)
        return FAIL_TENSOR(r, t->name,
                           "has bytes %zu to %zu of %zu bytes of data",
                           e->begin, end, r->data_size);
    t->bytes = end - e->begin;
    if (needed == SIZE_MAX)
        return FAIL_TENSOR(r, t->name, "has a shape too large to count");
    if (needed != t->bytes)
        return FAIL_TENSOR(r, t->name, "needs %zu bytes and has %zu", needed,
                           t->bytes);
    return BAUTA_OK;
}

static bauta_status tensor_read(header_reader *r, const char *name,
                                const json_t *value)
{
    if (!json_is_object(value))
        return FAIL_TENSOR(r, name, "is not described by an object");
    entry e = { .tensor.name = name };
    bauta_status status =
        dtype_read(r, &e.tensor, json_object_get(value, "dtype"));
    if (!status)
        status = shape_read(r, &e.tensor, json_object_get(value, "shape"));
    if (!status)
        status = offsets_read(r, &e, json_object_get(value, "data_offsets"));
    if (!status && json_object_size(value) != 3)
        status = FAIL_TENSOR(r, name, "has more than dtype, shape, offsets");
    if (!status && r->file->count == r->file->capacity)
        status = FAIL_TENSOR(r, name, "is one more than %d", BT_TENSORS_MAX);
    if (!status)
        entry_add(r->file, &e);
    return status;
}

/* ---- The header ---------------------------------------------------------- */

/* Takes ownership of the value. */
static bauta_status metadata_read(header_reader *r, json_t *value)
{
    const char *key;
    json_t *text;
    if (r->file->metadata) {
        json_decref(value);
        return bt_fail(r->err, BAUTA_ERR_FORMAT, "%s: there are two " METADATA,
                       bt_path_tail(r->path));
    }
    r->file->metadata = value;
    if (!json_is_object(value))
        return bt_fail(r->err, BAUTA_ERR_FORMAT,
                       "%s: " METADATA " is not an object",
                       bt_path_tail(r->path));
    json_object_foreach(value, key, text) if (
        !json_is_string(text)) return bt_fail(r->err, BAUTA_ERR_FORMAT,
                                              "%s: " METADATA
                                              ": \"%s\" is not a string",
                                              bt_path_tail(r->path),
                                              bt_quote(key).text);
    return BAUTA_OK;
}

static bauta_status member_read(header_reader *r, bt_json_reader *json,
                                const char *name)
{
    json_t *value;
    const char *text = json->text + json->offset;
    bauta_status status = bt_json_read_value(json, &value, r->err);
    if (status)
        return status;
    if (!strcmp(name, METADATA))
        return metadata_read(r, value);
    status = tensor_read(r, name, value);
    json_decref(value);
    // jansson reads -0 as 0. No other valid value has a minus sign.
    if (!status &&
        memchr(text, '-', (size_t)(json->text + json->offset - text)))
        status = FAIL_TENSOR(r, name, "has a minus sign before a size");
    return status;
}

static bauta_status members_read(header_reader *r, const char *text,
                                 size_t size)
{
    bt_json_reader json = bt_json_reader_init(r->path, text, size);
    json_t *key = NULL;
    bauta_status status = bt_json_enter_object(&json, r->err);
    while (!status) {
        status = bt_json_next_key(&json, &key, r->err);
        if (status || !key)
            break;
        status = member_read(r, &json, json_string_value(key));
        json_decref(key);
    }
    return status ? status : bt_json_expect_end(&json, r->err);
}

/* ---- All tensors --------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->tensor.bytes > y->tensor.bytes) -
           (x->tensor.bytes < y->tensor.bytes);
}

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* The tensors must fill the data: no holes, no overlaps, nothing after them. */
static bauta_status offsets_check(header_reader *r)
{
    entry *entries = r->file->entries;
    size_t end = 0;
    qsort(entries, r->file->count, sizeof(*entries), by_offset);
    for (size_t i = 0; i < r->file->count; i++) {
        const entry *e = entries + i;
        if (e->begin != end)
            return FAIL_TENSOR(r, e->tensor.name,
                               "begins at byte %zu of the data, the one before "
                               "it ends at %zu",
                               e->begin, end);
        end += e->tensor.bytes;
    }
    if (end != r->data_size)
        return bt_fail(r->err, BAUTA_ERR_FORMAT,
                       "%s: has %zu bytes of data, its tensors only %zu",
                       bt_path_tail(r->path), r->data_size, end);
    return BAUTA_OK;
}

static bauta_status names_check(header_reader *r)
{
    entry *entries = r->file->entries;
    qsort(entries, r->file->count, sizeof(*entries), by_name);
    for (size_t i = 1; i < r->file->count; i++)
        if (!by_name(entries + i - 1, entries + i))
            return FAIL_TENSOR(r, entries[i].tensor.name, "is there twice");
    return BAUTA_OK;
}

static bauta_status header_read(header_reader *r, const char *text, size_t size)
{
    if (size == 0 || text[0] != '{')
        return bt_fail(
            r->err, BAUTA_ERR_FORMAT,
            "%s: is not a safetensors file: its header does not begin with '{'",
            bt_path_tail(r->path));
    bauta_status status = block_create(r, size);
    if (!status)
        status = members_read(r, text, size);
    if (!status)
        status = offsets_check(r);
    return status ? status : names_check(r);
}

/* Read the length of the header, which must be within the file. */
static bauta_status length_read(size_t *header, const char *path,
                                const unsigned char *bytes, size_t size,
                                bauta_error *err)
{
    uint64_t length = 0;
    if (size < 8)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: is not a safetensors file: it has %zu bytes",
                       bt_path_tail(path), size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > BT_HEADER_MAX || length > size - 8)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: is truncated or not a safetensors file: a header "
                       "of %llu bytes in a file of %zu",
                       bt_path_tail(path), (unsigned long long)length, size);
    *header = (size_t)length;
    return BAUTA_OK;
}

/* ---- The file ------------------------------------------------------------ */

/* Create a file from its header; data_size bytes of data follow. */
static bauta_status file_create(bt_safetensors **out, const char *path,
                                const char *header, size_t size,
                                size_t data_size, bauta_error *err)
{
    bt_safetensors *file = bt_alloc_zero(1, sizeof(*file));
    *out = NULL;
    if (!file)
        return bt_fail_memory(err, "a file of tensors", sizeof(*file));
    header_reader r = { file, path, data_size, err };
    bauta_status status = header_read(&r, header, size);
    if (status)
        bt_safetensors_free(file);
    else
        *out = file;
    return status;
}

bauta_status bt_safetensors_parse(bt_safetensors **out, const char *path,
                                  const void *bytes, size_t size,
                                  bauta_error *err)
{
    const unsigned char *from = bytes;
    size_t header = 0;
    *out = NULL;
    bauta_status status = length_read(&header, path, from, size, err);
    if (!status)
        status = file_create(out, path, (const char *)from + 8, header,
                             size - 8 - header, err);
    if (status)
        return status;
    for (size_t i = 0; i < (*out)->count; i++) {
        entry *e = (*out)->entries + i;
        e->tensor.data = from + 8 + header + e->begin;
    }
    return BAUTA_OK;
}

bauta_status bt_safetensors_check(const char *path, const void *bytes,
                                  size_t size, size_t data_size,
                                  bauta_error *err)
{
    bt_safetensors *file = NULL;
    size_t header = 0;
    bauta_status status = length_read(&header, path, bytes, size, err);
    if (!status)
        status = file_create(&file, path, (const char *)bytes + 8, header,
                             data_size, err);
    bt_safetensors_free(file);
    return status;
}

bauta_status bt_safetensors_open(bt_safetensors **out, const char *path,
                                 bauta_error *err)
{
    bt_file_map map;
    *out = NULL;
    bauta_status status = bt_file_map_init(&map, path, err);
    if (status)
        return status;
    status = bt_file_kind_explain(
        bt_safetensors_parse(out, path, map.bytes, map.size, err), path, err);
    if (status)
        bt_file_map_release(&map);
    else
        (*out)->map = map;
    return status;
}

void bt_safetensors_free(bt_safetensors *file)
{
    if (!file)
        return;
    json_decref(file->metadata);
    bt_free(file->block);
    bt_file_map_release(&file->map);
    bt_free(file);
}

size_t bt_safetensors_count(const bt_safetensors *file)
{
    return file->count;
}

const bt_stored_tensor *bt_safetensors_at(const bt_safetensors *file,
                                          size_t index)
{
    return &file->entries[index].tensor;
}

const bt_stored_tensor *bt_safetensors_find(const bt_safetensors *file,
                                            const char *name)
{
    entry key = { .tensor.name = name };
    const entry *e = file->count ? bsearch(&key, file->entries, file->count,
                                           sizeof(key), by_name)
                                 : NULL;
    return e ? &e->tensor : NULL;
}

const char *bt_safetensors_metadata(const bt_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}

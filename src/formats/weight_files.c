/* SPDX-License-Identifier: Apache-2.0 */
/* weight_files.c - see weight_files.h. */
#include "formats/weight_files.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/file_kind.h"
#include "formats/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define PICKLED "pytorch_model.bin"

typedef struct shard {
    char *name, *path;
    bt_safetensors *file;
} shard;

struct bt_weight_files {
    shard *shards; /* sorted by name */
    size_t shard_count, shard_capacity;
    const bt_stored_tensor **tensors; /* sorted by name */
    size_t count;
};

/* ---- Tensors of all shards ----------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const bt_stored_tensor *x = *(const bt_stored_tensor *const *)a;
    const bt_stored_tensor *y = *(const bt_stored_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static bauta_status table_create(bt_weight_files *w, size_t capacity,
                                 bauta_error *err)
{
    w->tensors = bt_alloc_zero(capacity, sizeof(*w->tensors));
    return w->tensors
               ? BAUTA_OK
               : bt_fail_memory(err, "a table of tensors",
                                bt_size_mul(capacity, sizeof(*w->tensors)));
}

const bt_stored_tensor *bt_weight_files_find(const bt_weight_files *weights,
                                             const char *name)
{
    bt_stored_tensor key = { .name = name };
    const bt_stored_tensor *pointer = &key, **found = NULL;
    if (weights->count)
        found = bsearch(&pointer, weights->tensors, weights->count,
                        sizeof(*weights->tensors), by_name);
    return found ? *found : NULL;
}

/* ---- Shards -------------------------------------------------------------- */

/* The index of the shard with this name, or where to insert it. */
static size_t shard_index(const bt_weight_files *w, const char *name)
{
    size_t low = 0, high = w->shard_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(w->shards[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void shard_release(shard *s)
{
    bt_safetensors_free(s->file);
    bt_free(s->path);
    bt_free(s->name);
}

static bauta_status shard_init(shard *s, const char *folder, const char *name,
                               bauta_error *err)
{
    size_t size = strlen(name) + 1;
    *s = (shard){ .name = bt_alloc(size), .path = bt_path_join(folder, name) };
    bauta_status status = BAUTA_OK;
    if (!s->name || !s->path)
        status = bt_fail_memory(err, "the name of a file", size);
    else
        status = bt_safetensors_open(&s->file, s->path, err);
    if (status)
        shard_release(s);
    else
        memcpy(s->name, name, size);
    return status;
}

/* Reserve memory for one more shard. */
static bauta_status shards_grow(bt_weight_files *w, const char *folder,
                                bauta_error *err)
{
    if (w->shard_count < w->shard_capacity)
        return BAUTA_OK;
    if (w->shard_count >= BT_SHARDS_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the weights are in more than %d files",
                       bt_path_tail(folder), BT_SHARDS_MAX);
    size_t capacity = w->shard_capacity ? 2 * w->shard_capacity : 8;
    shard *shards = bt_alloc_zero(capacity, sizeof(*shards));
    if (!shards)
        return bt_fail_memory(err, "a table of files",
                              capacity * sizeof(*shards));
    if (w->shard_count)
        memcpy(shards, w->shards, w->shard_count * sizeof(*shards));
    bt_free(w->shards);
    w->shards = shards;
    w->shard_capacity = capacity;
    return BAUTA_OK;
}

/* The shard with this name, opened if it is new. */
static bauta_status shard_get(const shard **out, bt_weight_files *w,
                              const char *folder, const char *name,
                              bauta_error *err)
{
    size_t at = shard_index(w, name);
    shard new;
    if (at == w->shard_count || strcmp(w->shards[at].name, name)) {
        bauta_status status = shards_grow(w, folder, err);
        if (!status)
            status = shard_init(&new, folder, name, err);
        if (status)
            return status;
        memmove(w->shards + at + 1, w->shards + at,
                (w->shard_count - at) * sizeof(new));
        w->shards[at] = new;
        w->shard_count++;
    }
    *out = w->shards + at;
    return BAUTA_OK;
}

/* ---- The index ----------------------------------------------------------- */

/* The state while an index is read. */
typedef struct index_reader {
    bt_weight_files *weights;
    const char *folder, *path; /* of the index */
    bauta_error *err;
} index_reader;

#define FAIL_INDEX(r, format, ...)                     \
    bt_fail((r)->err, BAUTA_ERR_FORMAT, "%s: " format, \
            bt_path_tail((r)->path), ##__VA_ARGS__)

/* Whether a name is that of a file in the folder. An index must not name files
 * elsewhere, nor put control characters into error messages. */
static bool is_plain_name(const char *name)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    return *name && !strchr(name, '/') && strcmp(name, ".") &&
           strcmp(name, "..");
}

static bauta_status listed_read(index_reader *r, const char *name,
                                const json_t *value)
{
    bt_weight_files *w = r->weights;
    const char *file = json_string_value(value);
    const shard *s;
    if (!file || !is_plain_name(file))
        return FAIL_INDEX(r, "tensor \"%s\" has \"%s\" for a file name",
                          bt_quote(name).text,
                          bt_quote(file ? file : "(no text)").text);
    bauta_status status = shard_get(&s, w, r->folder, file, r->err);
    if (status)
        return status;
    const bt_stored_tensor *t = bt_safetensors_find(s->file, name);
    if (!t)
        return FAIL_INDEX(r, "tensor \"%s\" is not in its file %s",
                          bt_quote(name).text, bt_quote(file).text);
    w->tensors[w->count++] = t;
    return BAUTA_OK;
}

static bauta_status map_read(index_reader *r, bt_json_reader *json)
{
    json_t *key = NULL, *value = NULL;
    bauta_status status = bt_json_enter_object(json, r->err);
    while (!status) {
        status = bt_json_next_key(json, &key, r->err);
        if (status || !key)
            break;
        status = bt_json_read_value(json, &value, r->err);
        if (!status)
            status = listed_read(r, json_string_value(key), value);
        json_decref(value);
        json_decref(key);
    }
    return status;
}

/* Members other than weight_map, such as sizes, are read and ignored. */
static bauta_status member_read(index_reader *r, bt_json_reader *json,
                                const char *name, bool *found)
{
    json_t *value;
    if (strcmp(name, "weight_map")) {
        bauta_status status = bt_json_read_value(json, &value, r->err);
        json_decref(value);
        return status;
    }
    if (*found)
        return FAIL_INDEX(r, "there are two weight_map");
    *found = true;
    return map_read(r, json);
}

static bauta_status members_read(index_reader *r, const char *text, size_t size)
{
    bt_json_reader json = bt_json_reader_init(r->path, text, size);
    json_t *key = NULL;
    bool found = false;
    bauta_status status = bt_json_enter_object(&json, r->err);
    while (!status) {
        status = bt_json_next_key(&json, &key, r->err);
        if (status || !key)
            break;
        status = member_read(r, &json, json_string_value(key), &found);
        json_decref(key);
    }
    if (!status)
        status = bt_json_expect_end(&json, r->err);
    if (!status && !found)
        status = FAIL_INDEX(r, "there is no weight_map");
    return status;
}

static bauta_status duplicates_check(index_reader *r)
{
    bt_weight_files *w = r->weights;
    qsort(w->tensors, w->count, sizeof(*w->tensors), by_name);
    for (size_t i = 1; i < w->count; i++)
        if (!by_name(w->tensors + i - 1, w->tensors + i))
            return FAIL_INDEX(r, "tensor \"%s\" is there twice",
                              bt_quote(w->tensors[i]->name).text);
    return BAUTA_OK;
}

/* Every tensor of the shards must be in the index. */
static bauta_status leftovers_check(index_reader *r)
{
    const bt_weight_files *w = r->weights;
    for (size_t i = 0; i < w->shard_count; i++) {
        const shard *s = w->shards + i;
        for (size_t k = 0; k < bt_safetensors_count(s->file); k++) {
            const bt_stored_tensor *t = bt_safetensors_at(s->file, k);
            if (bt_weight_files_find(w, t->name) != t)
                return FAIL_INDEX(r, "does not list tensor \"%s\" of %s",
                                  bt_quote(t->name).text,
                                  bt_quote(s->name).text);
        }
    }
    return BAUTA_OK;
}

static bauta_status index_open(bt_weight_files *w, const char *folder,
                               const char *path, bauta_error *err)
{
    index_reader r = { w, folder, path, err };
    char *text;
    size_t size;
    bauta_status status = bt_file_read(&text, &size, path, BT_INDEX_MAX, err);
    if (!status) // the shortest member of a map is "":"x",
        status = table_create(w, size / 7 + 1, err);
    if (!status)
        status = bt_file_kind_explain(members_read(&r, text, size), path, err);
    bt_free(text);
    if (!status)
        status = duplicates_check(&r);
    return status ? status : leftovers_check(&r);
}

/* ---- The folder ---------------------------------------------------------- */

static bauta_status single_open(bt_weight_files *w, const char *folder,
                                bauta_error *err)
{
    const shard *s;
    bauta_status status = shard_get(&s, w, folder, SINGLE, err);
    if (status)
        return status;
    size_t count = bt_safetensors_count(s->file);
    status = table_create(w, count, err);
    if (status)
        return status;
    for (w->count = 0; w->count < count; w->count++)
        w->tensors[w->count] = bt_safetensors_at(s->file, w->count);
    return BAUTA_OK;
}

/* The error for a folder without readable weights. */
static bauta_status fail_no_weights(const char *folder, const char *pickled,
                                    const char *pickled_index, bauta_error *err)
{
    if (!bt_file_exists(folder))
        return bt_fail(err, BAUTA_ERR_IO, "%s: %s", bt_path_tail(folder),
                       strerror(errno));
    if (!bt_file_exists(pickled))
        pickled = bt_file_exists(pickled_index) ? pickled_index : NULL;
    if (pickled)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s is pickled and not read; convert it in Python: "
                       "AutoModelForCausalLM.from_pretrained(dir)"
                       ".save_pretrained(dir2, safe_serialization=True)",
                       bt_path_tail(pickled));
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s: there is neither " SINGLE " nor " INDEX ", but %s",
                   bt_path_tail(folder), bt_file_kind_list_folder(folder).text);
}

static bauta_status folder_open(bt_weight_files *w, const char *folder,
                                bauta_error *err)
{
    enum { FILES = 4 };
    static const char *const names[FILES] = { SINGLE, INDEX, PICKLED,
                                              PICKLED ".index.json" };
    char *paths[FILES] = { NULL };
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < FILES && !status; i++) {
        paths[i] = bt_path_join(folder, names[i]);
        if (!paths[i])
            status = bt_fail_memory(err, "the name of a file", strlen(folder));
    }
    if (!status) {
        if (bt_file_exists(paths[0]))
            status = single_open(w, folder, err);
        else if (bt_file_exists(paths[1]))
            status = index_open(w, folder, paths[1], err);
        else
            status = fail_no_weights(folder, paths[2], paths[3], err);
    }
    for (size_t i = 0; i < FILES; i++)
        bt_free(paths[i]);
    return status;
}

bauta_status bt_weight_files_open(bt_weight_files **out, const char *folder,
                                  bauta_error *err)
{
    *out = NULL;
    bt_weight_files *w = bt_alloc_zero(1, sizeof(*w));
    if (!w)
        return bt_fail_memory(err, "weights", sizeof(*w));
    bauta_status status = folder_open(w, folder, err);
    if (status)
        bt_weight_files_free(w);
    else
        *out = w;
    return status;
}

void bt_weight_files_free(bt_weight_files *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->shard_count; i++)
        shard_release(weights->shards + i);
    bt_free(weights->shards);
    bt_free(weights->tensors);
    bt_free(weights);
}

size_t bt_weight_files_count(const bt_weight_files *weights)
{
    return weights->count;
}

const bt_stored_tensor *bt_weight_files_at(const bt_weight_files *weights,
                                           size_t index)
{
    return weights->tensors[index];
}

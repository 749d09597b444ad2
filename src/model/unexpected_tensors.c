/* SPDX-License-Identifier: Apache-2.0 */
/* unexpected_tensors.c - see unexpected_tensors.h. */
#include "model/unexpected_tensors.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/string_writer.h"
#include "formats/weight_files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- names ------------------------------------------------------------- */

enum { NAME_BYTES = 192 };

typedef struct search {
    const bt_tensor *tensor;
    char name[NAME_BYTES];
} search;

static void search_name(void *user, const char *name, bt_tensor *tensor,
                        int rank)
{
    search *s = user;
    (void)rank;
    if (tensor == s->tensor)
        snprintf(s->name, sizeof(s->name), "%s", name);
}

/* The stored tensor of a parameter, or NULL. */
static const bt_stored_tensor *stored_of(bt_model_store *store,
                                         const bt_tensor *tensor)
{
    search s = { .tensor = tensor };
    bt_model_store_visit(store, &(bt_tensor_visitor){ search_name, &s });
    return s.name[0] ? bt_model_store_find(store, s.name) : NULL;
}

/* ---- contents ---------------------------------------------------------- */

/* Read elements [first, first + count) as float32; false for types that cannot
 * be converted. */
static bool read_floats(float *to, const bt_stored_tensor *from, size_t first,
                        size_t count)
{
    const char *data = from->data;
    return bt_convert_f32(to, data + first * bt_dtype_size(from->dtype),
                          from->dtype, count);
}

static size_t elements(const bt_stored_tensor *stored)
{
    return stored->bytes / bt_dtype_size(stored->dtype);
}

/* Whether two tensors are equal, bit for bit as float32. */
static bool same(const bt_stored_tensor *a, const bt_stored_tensor *b)
{
    enum { CHUNK = 1024 };
    float x[CHUNK], y[CHUNK];
    size_t count = elements(a);
    if (a->rank != b->rank ||
        memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) != 0)
        return false;
    if (a->dtype == b->dtype)
        return memcmp(a->data, b->data, a->bytes) == 0;
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t part = bt_size_min(CHUNK, count - i);
        if (!read_floats(x, a, i, part) || !read_floats(y, b, i, part) ||
            memcmp(x, y, part * sizeof(*x)) != 0)
            return false;
    }
    return true;
}

/* Position ids: 0, 1, 2, ... in every row. */
static bool is_position_ids(const bt_model *model,
                            const bt_stored_tensor *stored)
{
    const char *data = stored->data;
    (void)model;
    if (stored->dtype != BAUTA_INT64 || stored->rank == 0)
        return false;
    for (size_t i = 0; i < elements(stored); i++) {
        int64_t value;
        memcpy(&value, data + i * sizeof(value), sizeof(value));
        if (value != (int64_t)(i % stored->shape[stored->rank - 1]))
            return false;
    }
    return true;
}

/* A causal mask: ones up to the diagonal and zeros after it. */
static bool is_causal(const bt_model *model, const bt_stored_tensor *stored)
{
    size_t size = bt_dtype_size(stored->dtype), n;
    const unsigned char *data = stored->data;
    bool bytes = stored->dtype == BAUTA_UINT8 || stored->dtype == BAUTA_BOOL;
    (void)model;
    if ((!bytes && stored->dtype != BAUTA_FLOAT32) || stored->rank < 2)
        return false;
    n = stored->shape[stored->rank - 1];
    if (n == 0 || elements(stored) != bt_size_mul(n, n))
        return false;
    for (size_t i = 0; i < n * n; i++) {
        bool visible = i % n <= i / n;
        float one = 0;
        if (!bytes)
            memcpy(&one, data + i * size, size);
        if (bytes ? data[i] != visible : one != (float)visible)
            return false;
    }
    return true;
}

/* The rotary frequencies of the config; files store them with few bits. */
static bool is_frequencies(const bt_model *model,
                           const bt_stored_tensor *stored)
{
    for (size_t i = 0; i < elements(stored); i++) {
        float value;
        if (!model->frequencies || i >= model->config.head_dim / 2 ||
            !read_floats(&value, stored, i, 1) ||
            !(fabsf(value - model->frequencies[i]) <=
              0.01f * model->frequencies[i]))
            return false;
    }
    return true;
}

/* The score that old versions stored for masked keys. */
static bool is_number(const bt_model *model, const bt_stored_tensor *stored)
{
    (void)model;
    return elements(stored) == 1;
}

/* ---- tensors that are used --------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void warn(bt_model_store *store,
                                                       const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    size_t used = strlen(store->warnings);
    snprintf(store->warnings + used, sizeof(store->warnings) - used, "%s%s",
             used ? "\n" : "", sentence);
}

/* Use the file's sinusoidal positions instead of the computed ones. */
static void positions_adopt(bt_model_store *store, bt_stack *stack)
{
    if (!stack->config)
        return;
    stack->positions_stored = true;
    if (stored_of(store, &stack->positions)) {
        stack->sinusoids.backend->free(&stack->sinusoids);
        stack->positions.buffer = NULL;
    } else {
        stack->positions_stored = false;
    }
}

/* The head has a name only while the model is not tied, so it is untied for the
 * lookup. */
static void head_adopt(bt_model_store *store, const char *path)
{
    bt_model *model = store->model;
    model->config.tied = false;
    model->head.w = model->tokens;
    const bt_stored_tensor *head = stored_of(store, &model->head.w);
    const bt_stored_tensor *tokens = stored_of(store, &model->tokens);
    if (head && tokens && !same(head, tokens)) {
        warn(store,
             "%s: %s differs from %s although tie_word_embeddings is true; "
             "the stored head is used",
             path, bt_quote(head->name).text, bt_quote(tokens->name).text);
        return;
    }
    model->config.tied = true;
    model->head.w = (bt_tensor){ .rows = 0 };
}

void bt_unexpected_tensors_adopt(bt_model_store *store, const char *path)
{
    bt_model *model = store->model;
    if (model->config.position_kind == BT_POSITIONS_SINUSOIDAL) {
        positions_adopt(store, &model->encoder);
        positions_adopt(store, &model->decoder);
    }
    if (model->config.tied)
        head_adopt(store, path);
}

/* ---- all others -------------------------------------------------------- */

typedef enum tensor_class { UNKNOWN, BAD_COPY, REDUNDANT, UNUSED } tensor_class;

static tensor_class classify_copy(bt_model_store *store,
                                  const bt_stored_tensor *stored,
                                  const bt_stored_tensor **of)
{
    bt_model *model = store->model;
    const struct {
        const char *end;
        const bt_tensor *of;
    } copies[] = {
        { "lm_head.weight", &model->tokens },
        { "lm_head.decoder.weight", &model->tokens },
        { "cls.predictions.decoder.weight", &model->tokens },
        { "embed_tokens.weight", &model->tokens },
        { "lm_head.decoder.bias", &model->head.bias },
        { "cls.predictions.decoder.bias", &model->head.bias },
    };
    for (size_t i = 0; i < BT_LEN(copies); i++) {
        if (!bt_ends_with(stored->name, copies[i].end))
            continue;
        *of = stored_of(store, copies[i].of);
        if (*of)
            return same(stored, *of) ? REDUNDANT : BAD_COPY;
    }
    return UNKNOWN;
}

static tensor_class classify(bt_model_store *store,
                             const bt_stored_tensor *stored,
                             const bt_stored_tensor **of)
{
    static const struct {
        const char *end;
        bool (*holds)(const bt_model *model, const bt_stored_tensor *stored);
    } buffers[] = {
        { ".attn.bias", is_causal },
        { ".attn.masked_bias", is_number },
        { ".position_ids", is_position_ids },
        { ".inv_freq", is_frequencies },
    };
    static const char *const unused[] = {
        "pooler.dense.weight",
        "pooler.dense.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    };
    for (size_t i = 0; i < BT_LEN(unused); i++)
        if (bt_ends_with(stored->name, unused[i]))
            return UNUSED;
    for (size_t i = 0; i < BT_LEN(buffers); i++)
        if (bt_ends_with(stored->name, buffers[i].end))
            return buffers[i].holds(store->model, stored) ? REDUNDANT : UNUSED;
    return classify_copy(store, stored, of);
}

enum { NAMED_MAX = 4 }; /* most unused tensors listed in a warning */

static void unused_add(bt_string_writer *w, size_t unused, const char *name)
{
    if (unused < NAMED_MAX)
        bt_put(w, "%s%s", unused ? ", " : "", bt_quote(name).text);
}

static void unused_warn(bt_model_store *store, bt_string_writer *names,
                        size_t unused, const char *path)
{
    if (unused == 0)
        return;
    if (unused > NAMED_MAX)
        bt_put(names, " and %zu more", unused - NAMED_MAX);
    bt_put_end(names);
    warn(store, "%s: %zu tensor%s of the file %s not used: %s", path, unused,
         unused == 1 ? "" : "s", unused == 1 ? "is" : "are", names->text);
}

bauta_status bt_unexpected_tensors_check(bt_model_store *store,
                                         const bool *bound, const char *path,
                                         bauta_error *err)
{
    const bt_weight_files *weights = store->files;
    char text[NAMED_MAX * sizeof(bt_quoted) + 64];
    bt_string_writer names = { text, sizeof(text), 0 };
    size_t unused = 0;
    for (size_t i = 0; i < bt_weight_files_count(weights); i++) {
        const bt_stored_tensor *stored = bt_weight_files_at(weights, i),
                               *of = NULL;
        tensor_class v = bound[i] ? REDUNDANT : classify(store, stored, &of);
        if (v == BAD_COPY)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: tensor %s differs from %s, of which it should "
                           "be a copy",
                           path, bt_quote(stored->name).text,
                           bt_quote(of->name).text);
        if (v == UNKNOWN)
            return bt_fail(
                err, BAUTA_ERR_UNSUPPORTED,
                "%s: tensor %s is not expected in a model of type %s", path,
                bt_quote(stored->name).text, store->family->model_type);
        if (v == UNUSED)
            unused_add(&names, unused++, stored->name);
    }
    unused_warn(store, &names, unused, path);
    return BAUTA_OK;
}

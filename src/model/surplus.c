/* SPDX-License-Identifier: Apache-2.0 */
/* surplus.c - see surplus.h. */
#include "model/surplus.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/string_writer.h"
#include "formats/weights.h"

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
static const bt_stored *stored_of(bt_folder *folder, const bt_tensor *tensor)
{
    search s = { .tensor = tensor };
    bt_folder_names(folder, &(bt_names){ search_name, &s });
    return s.name[0] ? bt_folder_stored(folder, s.name) : NULL;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* ---- contents ---------------------------------------------------------- */

/* Elements [first, first + count) as float32; false for other types. */
static bool read_floats(float *to, const bt_stored *from, size_t first,
                        size_t count)
{
    const char *data = from->data;
    return bt_convert_f32(to, data + first * bt_dtype_size(from->dtype),
                          from->dtype, count);
}

static size_t elements(const bt_stored *stored)
{
    return stored->bytes / bt_dtype_size(stored->dtype);
}

/* Whether two tensors hold the same numbers, bit for bit as float32. */
static bool same(const bt_stored *a, const bt_stored *b)
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

/* 0, 1, 2, ... in every row. */
static bool counts_up(const bt_model *model, const bt_stored *stored)
{
    const char *data = stored->data;
    (void)model;
    if (stored->dtype != BT_I64 || stored->rank == 0)
        return false;
    for (size_t i = 0; i < elements(stored); i++) {
        int64_t value;
        memcpy(&value, data + i * sizeof(value), sizeof(value));
        if (value != (int64_t)(i % stored->shape[stored->rank - 1]))
            return false;
    }
    return true;
}

/* Ones up to the diagonal and zeros beyond it. */
static bool is_causal(const bt_model *model, const bt_stored *stored)
{
    size_t size = bt_dtype_size(stored->dtype), n;
    const unsigned char *data = stored->data;
    bool bytes = stored->dtype == BT_U8 || stored->dtype == BT_BOOL;
    (void)model;
    if ((!bytes && stored->dtype != BT_F32) || stored->rank < 2)
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

/* The rotary frequencies of the config; files hold them in few bits. */
static bool is_frequencies(const bt_model *model, const bt_stored *stored)
{
    for (size_t i = 0; i < elements(stored); i++) {
        float value;
        if (!model->frequencies || i >= model->print.head_dim / 2 ||
            !read_floats(&value, stored, i, 1) ||
            !(fabsf(value - model->frequencies[i]) <=
              0.01f * model->frequencies[i]))
            return false;
    }
    return true;
}

/* The number that old versions wrote where the mask hides. */
static bool is_number(const bt_model *model, const bt_stored *stored)
{
    (void)model;
    return elements(stored) == 1;
}

/* ---- used -------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void warn(bt_folder *folder,
                                                       const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    size_t used = strlen(folder->warnings);
    snprintf(folder->warnings + used, sizeof(folder->warnings) - used, "%s%s",
             used ? "\n" : "", sentence);
}

/* Sinusoidal positions are computed, unless the file has them. */
static void positions_adopt(bt_folder *folder, bt_stack *stack)
{
    if (!stack->print)
        return;
    stack->positions_stored = true;
    if (stored_of(folder, &stack->positions)) {
        bt_free(stack->positions.data);
        stack->positions.data = NULL;
    } else {
        stack->positions_stored = false;
    }
}

/* The head of a tied model has a name only while it counts as its own. */
static void head_adopt(bt_folder *folder, const char *path)
{
    bt_model *model = folder->model;
    model->print.tied = false;
    model->head.w = model->tokens;
    const bt_stored *head = stored_of(folder, &model->head.w);
    const bt_stored *tokens = stored_of(folder, &model->tokens);
    if (head && tokens && !same(head, tokens)) {
        warn(folder,
             "%s: %s differs from %s although tie_word_embeddings is true; "
             "the stored head is used",
             path, bt_quote(head->name).text, bt_quote(tokens->name).text);
        return;
    }
    model->print.tied = true;
    model->head.w = (bt_tensor){ .rows = 0 };
}

void bt_surplus_adopt(bt_folder *folder, const char *path)
{
    bt_model *model = folder->model;
    if (model->print.positions == BT_POSITIONS_SINUSOIDAL) {
        positions_adopt(folder, &model->encoder);
        positions_adopt(folder, &model->decoder);
    }
    if (model->print.tied)
        head_adopt(folder, path);
}

/* ---- the rest ---------------------------------------------------------- */

typedef enum verdict { REFUSED, DIFFERS, FINE, UNUSED } verdict;

static verdict copy_judge(bt_folder *folder, const bt_stored *stored,
                          const bt_stored **of)
{
    bt_model *model = folder->model;
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
        if (!ends_with(stored->name, copies[i].end))
            continue;
        *of = stored_of(folder, copies[i].of);
        if (*of)
            return same(stored, *of) ? FINE : DIFFERS;
    }
    return REFUSED;
}

static verdict judge(bt_folder *folder, const bt_stored *stored,
                     const bt_stored **of)
{
    static const struct {
        const char *end;
        bool (*holds)(const bt_model *model, const bt_stored *stored);
    } buffers[] = {
        { ".attn.bias", is_causal },
        { ".attn.masked_bias", is_number },
        { ".position_ids", counts_up },
        { ".inv_freq", is_frequencies },
    };
    static const char *const parts[] = {
        "pooler.dense.weight",
        "pooler.dense.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    };
    for (size_t i = 0; i < BT_LEN(parts); i++)
        if (ends_with(stored->name, parts[i]))
            return UNUSED;
    for (size_t i = 0; i < BT_LEN(buffers); i++)
        if (ends_with(stored->name, buffers[i].end))
            return buffers[i].holds(folder->model, stored) ? FINE : UNUSED;
    return copy_judge(folder, stored, of);
}

enum { NAMED_MAX = 4 }; /* unused tensors that a warning names */

static void unused_add(bt_string_writer *w, size_t unused, const char *name)
{
    if (unused < NAMED_MAX)
        bt_put(w, "%s%s", unused ? ", " : "", bt_quote(name).text);
}

static void unused_warn(bt_folder *folder, bt_string_writer *names,
                        size_t unused, const char *path)
{
    if (unused == 0)
        return;
    if (unused > NAMED_MAX)
        bt_put(names, " and %zu more", unused - NAMED_MAX);
    bt_put_end(names);
    warn(folder, "%s: %zu tensor%s of the file %s not used: %s", path, unused,
         unused == 1 ? "" : "s", unused == 1 ? "is" : "are", names->text);
}

bauta_status bt_surplus_check(bt_folder *folder, const bool *bound,
                              const char *path, bauta_error *err)
{
    const bt_weights *weights = folder->weights;
    char text[NAMED_MAX * sizeof(bt_quoted) + 64];
    bt_string_writer names = { text, sizeof(text), 0 };
    size_t unused = 0;
    for (size_t i = 0; i < bt_weights_count(weights); i++) {
        const bt_stored *stored = bt_weights_at(weights, i), *of = NULL;
        verdict v = bound[i] ? FINE : judge(folder, stored, &of);
        if (v == DIFFERS)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: tensor %s differs from %s, of which it should "
                           "be a copy",
                           path, bt_quote(stored->name).text,
                           bt_quote(of->name).text);
        if (v == REFUSED)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%s: tensor %s has no place in a model of type %s",
                           path, bt_quote(stored->name).text,
                           folder->family->model_type);
        if (v == UNUSED)
            unused_add(&names, unused++, stored->name);
    }
    unused_warn(folder, &names, unused, path);
    return BAUTA_OK;
}

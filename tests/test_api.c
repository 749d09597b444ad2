/* SPDX-License-Identifier: Apache-2.0 */
/* test_api.c - models through bauta.h alone, of every family: what comes out
 * does not depend on how sequences lie, equals what the parts inside give, and
 * survives being saved. The folders are written by the test; those of the data
 * folder, where there are any, are run as well. */
#include "bauta.h"
#include "data.h"
#include "faults.h"
#include "model/transformer.h"
#include "tiny.h"

#include <math.h>

enum { SEQUENCES = 4, VOCAB_MAX = 512 };

/* Lengths on both sides of a block of 64 keys, and one empty sequence. */
static const size_t lengths[SEQUENCES] = { 3, 70, 0, 9 };
static const size_t short_lengths[SEQUENCES] = { 3, 30, 0, 9 };

/* A model with a batch of its own and all that comes of it. */
typedef struct subject {
    scratch scratch;
    char path[512];
    bauta_model *model;
    bauta_context *context;
    test_random r;
    const size_t *lengths;
    size_t rows;
    uint32_t *source_ids, *target_ids, *types, *labels;
    float *logits;
} subject;

static bauta_model *load(const char *path, bool trainable)
{
    bauta_model *model = NULL;
    bauta_error err;
    if (bauta_model_load(&model, path, trainable, &err))
        fail_msg("%s", err.message);
    return model;
}

static uint32_t *ids_create(test_random *r, size_t count, size_t below)
{
    uint32_t *ids = malloc(count * sizeof(*ids) + 1);
    assert_non_null(ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)test_below(r, below);
    return ids;
}

static float *floats_create(size_t count)
{
    float *x = malloc(count * sizeof(float) + 1);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = NAN; // whatever is not written will be seen
    return x;
}

static bool has_source(const subject *s)
{
    return bauta_model_encoder_layers(s->model) > 0;
}

static bool has_target(const subject *s)
{
    return bauta_model_decoder_layers(s->model) > 0;
}

static bool has_types(const subject *s)
{
    char text[2048];
    bauta_model_describe(s->model, text, sizeof(text));
    return strstr(text, "\"token_types\":2");
}

static void subject_load(subject *s, const char *path, bool trainable)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 2;
    s->model = load(path, trainable);
    assert_int_equal(bauta_context_create(&s->context, &options, NULL), 0);
    size_t vocab = bauta_model_vocabulary(s->model);
    s->lengths = bauta_model_positions(s->model) < 70 ? short_lengths : lengths;
    s->r = test_random_from(11);
    s->rows = 0;
    for (size_t i = 0; i < SEQUENCES; i++)
        s->rows += s->lengths[i];
    s->source_ids = ids_create(&s->r, s->rows, vocab);
    s->target_ids = ids_create(&s->r, s->rows, vocab);
    s->types = has_types(s) ? ids_create(&s->r, s->rows, 2) : NULL;
    s->labels = ids_create(&s->r, s->rows, vocab);
    for (size_t i = 0; i < s->rows; i += 5)
        s->labels[i] = BAUTA_IGNORE;
    s->logits = floats_create(s->rows * vocab);
}

static void subject_unload(subject *s)
{
    bauta_model_free(s->model);
    bauta_context_free(s->context);
    free(s->source_ids);
    free(s->target_ids);
    free(s->types);
    free(s->labels);
    free(s->logits);
}

/* The batch of source or target, packed. */
static bauta_batch packed(const subject *s, bool target)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = SEQUENCES;
    batch.lengths = s->lengths;
    batch.ids = target ? s->target_ids : s->source_ids;
    batch.types = target ? NULL : s->types;
    return batch;
}

static void forward(subject *s, const bauta_batch *source,
                    const bauta_batch *target, bauta_outputs *outputs)
{
    bauta_error err;
    if (bauta_model_forward(s->context, s->model, has_source(s) ? source : NULL,
                            has_target(s) ? target : NULL, outputs, &err))
        fail_msg("%s: %s", s->path, err.message);
}

static void forward_packed(subject *s, float *logits)
{
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = logits;
    forward(s, &source, &target, &outputs);
}

static void assert_bits(const char *what, const float *want, const float *got,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)))
            fail_msg("%s[%zu]: want %a, got %a", what, i, (double)want[i],
                     (double)got[i]);
}

/* Run a test with a folder of every family, and with those of the data folder.
 */
static void each_folder(void (*test)(subject *s), bool trainable)
{
    static const char *const data[] = {
        "hf-tiny-random/gpt2",
        "hf-tiny-random/llama-gqa",
        "hf-tiny-random/llama-gqa-bf16",
        "hf-tiny-random/llama-gqa-sharded",
        "hf-tiny-random/llama3-rope-tied",
        "hf-tiny-random/mistral-sliding-window4",
        "hf-tiny-random/bert-mlm",
        "hf-tiny-random/marian",
    };
    for (size_t i = 0; i < BT_LEN(tinies) + BT_LEN(data); i++) {
        subject s = { .scratch = scratch_create() };
        bool there = true;
        if (i < BT_LEN(tinies))
            tiny_write(&s.scratch, &tinies[i], s.path);
        else
            there = test_data_path(s.path, sizeof(s.path),
                                   data[i - BT_LEN(tinies)]) != NULL;
        if (there) {
            subject_load(&s, s.path, trainable);
            test(&s);
            subject_unload(&s);
        } else {
            printf("%s is not there and was skipped\n",
                   data[i - BT_LEN(tinies)]);
        }
        scratch_free(&s.scratch);
    }
}

/* ---- the same bits, however sequences lie -------------------------------- */

/* Sequence s alone; its logits go to where they lie in `logits`. */
static void forward_alone(subject *s, size_t sequence, size_t start,
                          float *logits)
{
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_batch *both[] = { &source, &target };
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    for (size_t i = 0; i < 2; i++) {
        both[i]->count = 1;
        both[i]->lengths += sequence;
        both[i]->ids += start;
        if (both[i]->types)
            both[i]->types += start;
    }
    outputs.logits = logits + start * bauta_model_vocabulary(s->model);
    forward(s, &source, &target, &outputs);
}

static void alone_equals_packed(subject *s)
{
    size_t vocab = bauta_model_vocabulary(s->model), start = 0;
    float *alone = floats_create(s->rows * vocab);
    forward_packed(s, s->logits);
    for (size_t i = 0; i < SEQUENCES; i++) {
        forward_alone(s, i, start, alone);
        start += s->lengths[i];
    }
    assert_bits("alone", s->logits, alone, s->rows * vocab);
    free(alone);
}

/* Values of the packed rows, each sequence at a multiple of the stride; what
 * lies between is out of range of everything. */
static uint32_t *pad(const subject *s, const uint32_t *from, size_t stride)
{
    size_t at = 0;
    if (!from)
        return NULL;
    uint32_t *to = malloc(SEQUENCES * stride * sizeof(*to));
    assert_non_null(to);
    memset(to, 0xfe, SEQUENCES * stride * sizeof(*to));
    for (size_t i = 0; i < SEQUENCES; i++) {
        memcpy(to + i * stride, from + at, s->lengths[i] * sizeof(*to));
        at += s->lengths[i];
    }
    return to;
}

static void assert_padded(const subject *s, const char *what,
                          const float *packed_rows, const float *got,
                          size_t stride, size_t columns)
{
    size_t at = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        const float *rows = got + i * stride * columns;
        assert_bits(what, packed_rows + at * columns, rows,
                    s->lengths[i] * columns);
        for (size_t k = s->lengths[i] * columns; k < stride * columns; k++)
            if (rows[k] != 0.0f)
                fail_msg("%s: padding of sequence %zu is %g", what, i,
                         (double)rows[k]);
        at += s->lengths[i];
    }
}

static void padded_equals_packed(subject *s)
{
    size_t vocab = bauta_model_vocabulary(s->model);
    size_t stride = s->lengths[1] + 2;
    bauta_batch source = packed(s, false), target = packed(s, true);
    uint32_t *source_ids = pad(s, s->source_ids, stride);
    uint32_t *target_ids = pad(s, s->target_ids, stride);
    uint32_t *types = pad(s, s->types, stride);
    float *logits = floats_create(SEQUENCES * stride * vocab);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    source.stride = target.stride = stride;
    source.ids = source_ids;
    source.types = types;
    target.ids = target_ids;
    outputs.logits = logits;
    forward_packed(s, s->logits);
    forward(s, &source, &target, &outputs);
    assert_padded(s, "padded", s->logits, logits, stride, vocab);
    free(source_ids);
    free(target_ids);
    free(types);
    free(logits);
}

static void packed_padded_and_alone_give_the_same_bits(void **state)
{
    (void)state;
    each_folder(alone_equals_packed, false);
    each_folder(padded_equals_packed, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_padded_and_alone_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_embed.c - embeddings and most likely tokens, against the hidden states
 * and logits of bauta_model_forward(). */
#include "allocation_faults.h"
#include "bauta.h"
#include "tiny_models.h"

#include <math.h>

enum { COUNT = 3, STRIDE = 7, WIDTH = 16, VOCABULARY = 40, TOP = 6 };
static const size_t lengths[COUNT] = { 5, 7, 1 };

static bauta_context *context_of(int threads)
{
    bauta_context *context = NULL;
    bauta_options how = BAUTA_OPTIONS_INIT;
    how.threads = threads;
    assert_int_equal(bauta_context_create(&context, &how, NULL), 0);
    return context;
}

static bauta_model *model_of(const char *name)
{
    bauta_model *model = NULL;
    bauta_error err;
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, name) == 0 &&
            bauta_model_create(&model, tinies[i].config, 11, &err))
            fail_msg("%s", err.message);
    assert_non_null(model);
    return model;
}

/* The three sequences, padded to STRIDE or packed. */
typedef struct rows {
    bauta_batch batch;
    uint32_t ids[COUNT * STRIDE];
} rows;

static void rows_init(rows *r, bool padded, size_t first, size_t count)
{
    size_t at = 0;
    r->batch = (bauta_batch)BAUTA_BATCH_INIT;
    r->batch.count = count;
    r->batch.lengths = lengths + first;
    r->batch.stride = padded ? STRIDE : 0;
    r->batch.ids = r->ids;
    for (size_t s = first; s < first + count; s++) {
        for (size_t i = 0; i < lengths[s]; i++)
            r->ids[at + i] = (uint32_t)(2 + (s * 17 + i * 5) % 37);
        at += padded ? STRIDE : lengths[s];
    }
}

/* The batch where the model reads it, and a second one for a decoder that
 * reads two. */
typedef struct inputs {
    bauta_batch start;
    const bauta_batch *source, *target;
} inputs;

static void inputs_init(inputs *in, const bauta_model *model, const rows *r)
{
    static const uint32_t ids[COUNT] = { 39, 39, 39 };
    bauta_model_kind kind = bauta_model_kind_of(model);
    in->start = (bauta_batch)BAUTA_BATCH_INIT;
    in->start.count = r->batch.count;
    in->start.stride = 1;
    in->start.ids = ids;
    in->source = kind == BAUTA_DECODER_ONLY ? NULL : &r->batch;
    in->target = kind == BAUTA_DECODER_ONLY      ? &r->batch
                 : kind == BAUTA_ENCODER_DECODER ? &in->start
                                                 : NULL;
}

/* ---- embeddings -------------------------------------------------------- */

static void last_states(bauta_context *context, const bauta_model *model,
                        const rows *r, float *to)
{
    bool decoder = bauta_model_kind_of(model) == BAUTA_DECODER_ONLY;
    size_t layers = decoder ? bauta_model_decoder_layers(model)
                            : bauta_model_encoder_layers(model);
    size_t count = bauta_batch_rows(&r->batch) * WIDTH;
    float *all = calloc((layers + 1) * count, sizeof(*all));
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    inputs in;
    inputs_init(&in, model, r);
    assert_non_null(all);
    if (decoder)
        outputs.decoder_states = all;
    else
        outputs.encoder_states = all;
    if (bauta_model_forward(context, model, in.source, in.target, &outputs,
                            &err))
        fail_msg("%s", err.message);
    memcpy(to, all + layers * count, count * sizeof(*to));
    free(all);
}

static void vector_expect(float *vector, const float *states, size_t length,
                          const bauta_embed_options *o)
{
    size_t first = o->pooling == BAUTA_POOLING_LAST ? length - 1 : 0;
    size_t end = o->pooling == BAUTA_POOLING_CLS ? 1 : length;
    double square = 0.0;
    for (size_t d = 0; d < WIDTH; d++) {
        double sum = 0.0;
        for (size_t i = first; i < end; i++)
            sum += (double)states[i * WIDTH + d];
        sum /= (double)(end - first);
        vector[d] = (float)sum;
        square += sum * sum;
    }
    for (size_t d = 0; o->normalize && d < WIDTH; d++)
        vector[d] = (float)((double)vector[d] * (1.0 / sqrt(square)));
}

static void family_embed(bauta_context *context, const bauta_model *model,
                         bool padded, const bauta_embed_options *o)
{
    rows r;
    float states[COUNT * STRIDE * WIDTH], expect[WIDTH];
    float vectors[COUNT * WIDTH], alone[WIDTH];
    bauta_error err;
    size_t start = 0;
    rows_init(&r, padded, 0, COUNT);
    last_states(context, model, &r, states);
    if (bauta_model_embed(context, model, &r.batch, o, vectors, &err))
        fail_msg("%s", err.message);
    for (size_t s = 0; s < COUNT; s++) {
        vector_expect(expect, states + start * WIDTH, lengths[s], o);
        assert_memory_equal(vectors + s * WIDTH, expect, sizeof(expect));
        rows_init(&r, false, s, 1);
        assert_int_equal(
            bauta_model_embed(context, model, &r.batch, o, alone, NULL), 0);
        assert_memory_equal(alone, expect, sizeof(expect));
        start += padded ? STRIDE : lengths[s];
    }
}

static void embeddings_are_pooled_states(void **state)
{
    (void)state;
    bauta_context *context = context_of(2);
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *model = model_of(tinies[i].name);
        for (int pooling = 0; pooling < 3; pooling++) {
            bauta_embed_options o = BAUTA_EMBED_OPTIONS_INIT;
            o.pooling = (bauta_pooling)pooling;
            family_embed(context, model, false, &o);
            o.normalize = true;
            family_embed(context, model, true, &o);
        }
        bauta_model_free(model);
    }
    bauta_context_free(context);
}

static void embeddings_default_to_the_mean(void **state)
{
    (void)state;
    bauta_context *context = context_of(1);
    bauta_model *model = model_of("bert");
    bauta_embed_options o = BAUTA_EMBED_OPTIONS_INIT;
    float a[COUNT * WIDTH], b[COUNT * WIDTH];
    rows r;
    rows_init(&r, false, 0, COUNT);
    assert_int_equal(bauta_model_embed(context, model, &r.batch, NULL, a, NULL),
                     0);
    assert_int_equal(bauta_model_embed(context, model, &r.batch, &o, b, NULL),
                     0);
    assert_memory_equal(a, b, sizeof(a));
    bauta_model_free(model);
    bauta_context_free(context);
}

/* ---- most likely tokens ------------------------------------------------ */

/* Every candidate that is not returned is less likely than every one that is,
 * and the probabilities are the softmax of the logits. */
static void row_check(const float *z, size_t candidates, const uint32_t *ids,
                      const double *probabilities)
{
    bool chosen[VOCABULARY] = { false };
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < VOCABULARY; i++)
        max = fmax(max, (double)z[i]);
    for (size_t i = 0; i < VOCABULARY; i++)
        sum += exp((double)z[i] - max);
    for (size_t k = 0; k < TOP; k++) {
        assert_true(ids[k] < candidates && !chosen[ids[k]]);
        chosen[ids[k]] = true;
        assert_true(probabilities[k] == exp((double)z[ids[k]] - max) / sum);
        assert_true(k == 0 || probabilities[k] <= probabilities[k - 1]);
    }
    for (size_t i = 0; i < candidates; i++)
        assert_true(chosen[i] || z[i] <= z[ids[TOP - 1]]);
}

static void family_top(bauta_context *context, const bauta_model *model,
                       bool padded, size_t candidates)
{
    bool decoder_rows = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
    static const size_t some[] = { 4, 0, 2, 2 };
    size_t asked[4], count = 4;
    uint32_t ids[4 * TOP];
    double probabilities[4 * TOP];
    float *logits = calloc(COUNT * STRIDE * VOCABULARY, sizeof(*logits));
    bauta_top_tokens_options o = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    rows r;
    inputs in;
    assert_non_null(logits);
    rows_init(&r, padded, 0, COUNT);
    inputs_init(&in, model, &r);
    outputs.logits = logits;
    o.top_k = TOP;
    o.vocab_size = candidates;
    for (size_t i = 0; i < count; i++)
        asked[i] = some[i] + (i == 3 && padded ? STRIDE : 0);
    if (decoder_rows) // one row for each sequence
        asked[0] = 1, asked[3] = 0;
    if (bauta_model_forward(context, model, in.source, in.target, &outputs,
                            &err) ||
        bauta_model_top_tokens(context, model, in.source, in.target, asked,
                               count, &o, ids, probabilities, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < count; i++)
        row_check(logits + asked[i] * VOCABULARY,
                  candidates ? candidates : VOCABULARY, ids + i * TOP,
                  probabilities + i * TOP);
    free(logits);
}

static void top_tokens_are_those_of_the_logits(void **state)
{
    (void)state;
    bauta_context *context = context_of(2);
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *model = model_of(tinies[i].name);
        family_top(context, model, false, 0);
        family_top(context, model, true, 23);
        bauta_model_free(model);
    }
    bauta_context_free(context);
}

/* More rows than are computed at once. */
static void top_tokens_of_many_rows(void **state)
{
    (void)state;
    enum { MANY = 150 };
    bauta_context *context = context_of(2);
    bauta_model *model = model_of("gpt2");
    size_t asked[MANY];
    uint32_t ids[MANY * TOP], one[TOP];
    double probabilities[MANY * TOP], likely[TOP];
    bauta_top_tokens_options o = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    rows r;
    rows_init(&r, false, 0, COUNT);
    o.top_k = TOP;
    for (size_t i = 0; i < MANY; i++)
        asked[i] = i * 7 % bauta_batch_rows(&r.batch);
    assert_int_equal(bauta_model_top_tokens(context, model, NULL, &r.batch,
                                            asked, MANY, &o, ids, probabilities,
                                            NULL),
                     0);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(bauta_model_top_tokens(context, model, NULL, &r.batch,
                                                asked + i, 1, &o, one, likely,
                                                NULL),
                         0);
        assert_memory_equal(ids + i * TOP, one, sizeof(one));
        assert_memory_equal(probabilities + i * TOP, likely, sizeof(likely));
    }
    bauta_model_free(model);
    bauta_context_free(context);
}

/* ---- errors ------------------------------------------------------------ */

static void message(bauta_status status, bauta_status expected,
                    const bauta_error *err, const char *text)
{
    assert_int_equal(status, expected);
    if (!strstr(err->message, text))
        fail_msg("\"%s\" does not say \"%s\"", err->message, text);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    bauta_context *context = context_of(1);
    bauta_model *model = model_of("bert");
    bauta_embed_options o = BAUTA_EMBED_OPTIONS_INIT;
    bauta_top_tokens_options t = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    float vectors[COUNT * WIDTH];
    uint32_t ids[VOCABULARY];
    double p[VOCABULARY];
    size_t empty = 0, row = 0;
    bauta_error e;
    rows r;
    rows_init(&r, true, 0, COUNT);
    const bauta_batch *b = &r.batch;
#define EMBED(...) message(bauta_model_embed(__VA_ARGS__, &e), 1, &e
    EMBED(NULL, model, b, &o, vectors), "context");
    EMBED(context, NULL, b, &o, vectors), "model");
    EMBED(context, model, NULL, &o, vectors), "batch");
    EMBED(context, model, b, &o, NULL), "embeddings");
    o.pooling = (bauta_pooling)3;
    EMBED(context, model, b, &o, vectors), "there is no pooling 3");
    o.pooling = BAUTA_POOLING_MEAN;
    o.size = 1;
    EMBED(context, model, b, &o, vectors), "size");
    r.batch.lengths = &empty;
    r.batch.count = 1;
    EMBED(context, model, b, NULL, vectors), "sequence 0 has no tokens");
    rows_init(&r, true, 0, COUNT);
#define TOP_TOKENS(...) message(bauta_model_top_tokens(__VA_ARGS__, &e), 1, &e
    TOP_TOKENS(NULL, model, b, NULL, &row, 1, &t, ids, p), "context");
    TOP_TOKENS(context, NULL, b, NULL, &row, 1, &t, ids, p), "model");
    TOP_TOKENS(context, model, NULL, NULL, &row, 1, &t, ids, p), "source");
    TOP_TOKENS(context, model, b, NULL, NULL, 1, &t, ids, p), "rows");
    TOP_TOKENS(context, model, b, NULL, &row, SIZE_MAX, &t, ids, p), "rows");
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, NULL, p), "ids");
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, NULL), "probab");
    row = lengths[0];
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "padding");
    row = COUNT * STRIDE;
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "has 21 rows");
    row = 0;
    t.top_k = 0;
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "top_k is 0");
    t.top_k = 8;
    t.vocab_size = 7;
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "from 1 to 7");
    t.vocab_size = VOCABULARY + 1;
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "has 40 tokens");
    t.size = 1;
    TOP_TOKENS(context, model, b, NULL, &row, 1, &t, ids, p), "size");
    bauta_model_free(model);
    bauta_context_free(context);
}

/* The first number of the tensor becomes NaN. */
static void spoil(bauta_model *model, const char *name)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        assert_int_equal(bauta_model_tensor(model, i, &t, NULL), 0);
        if (strcmp(t.name, name) == 0) {
            t.writable[0] = NAN;
            return;
        }
    }
    fail_msg("no tensor %s", name);
}

static void nan_is_reported_with_its_layer(void **state)
{
    (void)state;
    static const struct {
        const char *family, *tensor, *message;
    } cases[] = {
        { "gpt2", "transformer.h.1.mlp.c_fc.weight", "decoder layer 1 gives" },
        { "bert", "bert.encoder.layer.0.output.dense.bias", "encoder layer 0" },
        { "marian", "model.encoder.layers.1.fc1.bias", "encoder layer 1" },
    };
    bauta_context *context = context_of(1);
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bauta_model *model = model_of(cases[i].family);
        float vectors[COUNT * WIDTH];
        uint32_t ids[TOP];
        double probabilities[TOP];
        size_t row = 0;
        bauta_error err;
        rows r;
        inputs in;
        rows_init(&r, false, 0, COUNT);
        inputs_init(&in, model, &r);
        spoil(model, cases[i].tensor);
        message(
            bauta_model_embed(context, model, &r.batch, NULL, vectors, &err),
            BAUTA_ERR_NOT_FINITE, &err, cases[i].message);
        message(bauta_model_top_tokens(context, model, in.source, in.target,
                                       &row, 1, NULL, ids, probabilities, &err),
                BAUTA_ERR_NOT_FINITE, &err, cases[i].message);
        bauta_model_free(model);
    }
    bauta_context_free(context);
}

static void memory_that_runs_out_is_a_status(void **state)
{
    (void)state;
    size_t failures = 0;
    faults_begin();
    bauta_model *model = model_of("bert");
    rows r;
    rows_init(&r, false, 0, COUNT);
    for (size_t k = 0;; k++) {
        float vectors[COUNT * WIDTH];
        uint32_t ids[5];
        double probabilities[5];
        size_t row = 1;
        bauta_error err = { 0 };
        bauta_context *context = context_of(1); // nothing is cached yet
        faults_arm(k);
        bauta_status status =
            bauta_model_embed(context, model, &r.batch, NULL, vectors, &err);
        if (!status)
            status =
                bauta_model_top_tokens(context, model, &r.batch, NULL, &row, 1,
                                       NULL, ids, probabilities, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_true(!failed || err.message[0]);
        bauta_context_free(context);
        if (!failed)
            break;
        failures++;
    }
    assert_true(failures > 3);
    bauta_model_free(model);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_pooled_states),
        cmocka_unit_test(embeddings_default_to_the_mean),
        cmocka_unit_test(top_tokens_are_those_of_the_logits),
        cmocka_unit_test(top_tokens_of_many_rows),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(nan_is_reported_with_its_layer),
        cmocka_unit_test(memory_that_runs_out_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_weights.c - the weights of bauta_model_attention_weights(),
 * for every family.
 *
 * The reference takes queries and keys from the tape, decides pair by pair from
 * the definitions in bauta.h what is visible, and computes a plain softmax. The
 * comparison with transformers' weights shows that those queries and keys are
 * the right ones (rotary positions, norms, groups of heads). */
#include "allocation_faults.h"
#include "bauta.h"
#include "data.h"
#include "data/attention_weights.h"
#include "host_tensors.h"
#include "model/model_call.h"
#include "tiny_models.h"

#include <math.h>

enum { SEQUENCES = 4, LONGEST = 80 };

/* One side of a batch, and the pairs that a given mask allows. */
typedef struct side {
    bauta_batch batch;
    size_t lengths[SEQUENCES], prefixes[SEQUENCES];
    size_t rows;
    size_t sequence[SEQUENCES * LONGEST], time[SEQUENCES * LONGEST];
    bool real[SEQUENCES * LONGEST];
    uint32_t ids[SEQUENCES * LONGEST];
    unsigned char *mask, *cross; /* or NULL: no additional mask */
    bauta_mask *given, *given_cross;
} side;

typedef struct subject {
    temp_folder temp_folder;
    bauta_model *model;
    bauta_context *context;
    bool encoder, decoder;
    side source, target;
    test_random r;
} subject;

static uint64_t seed;

/* ---- random batches ------------------------------------------------------ */

static void side_lay(side *x, test_random *r, bool padded, size_t vocab)
{
    size_t longest = 1;
    x->batch = (bauta_batch)BAUTA_BATCH_INIT;
    for (size_t s = 0; s < SEQUENCES; s++) {
        x->lengths[s] = test_below(r, test_below(r, 3) ? 8 : LONGEST - 1);
        x->prefixes[s] = test_below(r, x->lengths[s] + 1);
        longest = x->lengths[s] > longest ? x->lengths[s] : longest;
    }
    x->batch.count = SEQUENCES;
    x->batch.lengths = x->lengths;
    x->batch.stride = padded ? longest + test_below(r, 2) : 0;
    x->batch.ids = x->ids;
    x->rows = 0;
    for (size_t s = 0; s < SEQUENCES; s++)
        for (size_t t = 0; t < (padded ? x->batch.stride : x->lengths[s]);
             t++) {
            x->sequence[x->rows] = s;
            x->time[x->rows] = t;
            x->real[x->rows] = t < x->lengths[s];
            x->ids[x->rows++] = (uint32_t)test_below(r, vocab);
        }
    x->mask = x->cross = NULL;
    x->given = x->given_cross = NULL;
}

static unsigned char *mask_draw(test_random *r, bauta_mask **out,
                                size_t queries, size_t keys)
{
    unsigned char *seen = malloc(queries * keys + 1);
    assert_non_null(seen);
    size_t share = test_below(r, 11);
    for (size_t i = 0; i < queries * keys; i++)
        seen[i] = test_below(r, 10) < share;
    for (size_t j = 0; queries && j < keys; j++)
        seen[queries / 2 * keys + j] = 0; // a row that sees nothing
    assert_int_equal(bauta_mask_dense(out, queries, keys, seen, NULL), 0);
    return seen;
}

static void subject_batch(subject *s, bool padded, bool masked)
{
    size_t vocab = bauta_model_vocab_size(s->model);
    side *a = &s->source, *b = &s->target;
    side_lay(a, &s->r, padded, vocab);
    side_lay(b, &s->r, padded, vocab);
    if (!masked)
        return;
    a->mask = mask_draw(&s->r, &a->given, a->rows, a->rows);
    b->mask = mask_draw(&s->r, &b->given, b->rows, b->rows);
    a->batch.mask = a->given;
    b->batch.mask = b->given;
    b->batch.prefix_lengths = b->prefixes;
    if (!s->encoder || !s->decoder)
        return;
    b->cross = mask_draw(&s->r, &b->given_cross, b->rows, a->rows);
    b->batch.cross_mask = b->given_cross;
}

static void side_release(side *x)
{
    free(x->mask);
    free(x->cross);
    bauta_mask_free(x->given);
    bauta_mask_free(x->given_cross);
}

static void batch_release(subject *s)
{
    side_release(&s->source);
    side_release(&s->target);
}

static void subject_create(subject *s, const tiny *t)
{
    char path[512];
    bauta_error err;
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 2;
    s->temp_folder = temp_folder_create();
    tiny_write(&s->temp_folder, t, path);
    if (bauta_model_load(&s->model, path, false, &err) ||
        bauta_context_create(&s->context, &options, &err))
        fail_msg("%s", err.message);
    s->encoder = bauta_model_encoder_layers(s->model) > 0;
    s->decoder = bauta_model_decoder_layers(s->model) > 0;
    s->r = test_random_from(seed);
}

static void subject_free(subject *s)
{
    bauta_model_free(s->model);
    bauta_context_free(s->context);
    temp_folder_free(&s->temp_folder);
}

static const bauta_batch *source_of(const subject *s)
{
    return s->encoder ? &s->source.batch : NULL;
}

static const bauta_batch *target_of(const subject *s)
{
    return s->decoder ? &s->target.batch : NULL;
}

/* ---- the reference ------------------------------------------------------- */

static size_t layers_of(const subject *s, bauta_attention_kind at)
{
    if (!bauta_model_heads(s->model, at))
        return 0;
    return at == BAUTA_ATTENTION_ENCODER ? bauta_model_encoder_layers(s->model)
                                         : bauta_model_decoder_layers(s->model);
}

static const side *queries_of(const subject *s, bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_ENCODER ? &s->source : &s->target;
}

static const side *keys_of(const subject *s, bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_DECODER ? &s->target : &s->source;
}

static bool sees(const subject *s, bauta_attention_kind at, size_t layer,
                 size_t i, size_t j)
{
    const side *q = queries_of(s, at), *k = keys_of(s, at);
    const unsigned char *given =
        at == BAUTA_ATTENTION_CROSS ? q->cross : q->mask;
    if (!q->real[i] || !k->real[j] || q->sequence[i] != k->sequence[j] ||
        (given && !given[i * k->rows + j]))
        return false;
    if (at != BAUTA_ATTENTION_DECODER)
        return true;
    size_t window = bauta_model_sliding_window(s->model, layer);
    size_t prefix = q->batch.prefix_lengths ? q->prefixes[q->sequence[i]] : 0;
    if (q->time[i] < prefix && k->time[j] < prefix)
        return true; // whatever the window
    return k->time[j] <= q->time[i] &&
           (!window || k->time[j] + window > q->time[i]);
}

/* Queries and keys of the forward pass, valid until the next call. */
static void kept_read(subject *s, bt_model_call *call, bt_saved_qk *kept[3])
{
    static bt_saved_qk room[3][8];
    bauta_outputs none = BAUTA_OUTPUTS_INIT;
    assert_int_equal(bt_model_call_check(call, s->context, s->model,
                                         source_of(s), target_of(s), NULL),
                     0);
    assert_int_equal(bt_model_call_prepare(call, false, NULL), 0);
    for (size_t at = 0; at < 3; at++)
        kept[at] = room[at];
    call->encoder.saved_qk = room[BAUTA_ATTENTION_ENCODER];
    call->decoder.saved_qk = room[BAUTA_ATTENTION_DECODER];
    call->decoder.saved_cross_qk = room[BAUTA_ATTENTION_CROSS];
    assert_int_equal(bt_model_call_run(call, &none, NULL), 0);
}

/* The packed row of each row of a side. */
static size_t packed_row(const side *x, size_t row)
{
    size_t packed = 0;
    for (size_t i = 0; i < row; i++)
        packed += x->real[i];
    return packed;
}

/* `self`: of a decoder's self-attention. */
static double score(const bt_model *model, const bt_stack_config *stack,
                    const bt_saved_qk *kept, bool self, size_t head, size_t i,
                    size_t j)
{
    const bt_model_config *config = &model->config;
    size_t dim = config->head_dim, group = stack->heads / stack->kv_heads;
    const float *q = tensor_data(kept->q) + i * kept->q->stride + head * dim;
    const float *k =
        tensor_data(kept->k) + j * kept->k->stride + head / group * dim;
    double sum = 0;
    for (size_t d = 0; d < dim; d++)
        sum += (double)q[d] * (double)k[d];
    sum *= config->attention_scale != 0.0f ? (double)config->attention_scale
                                           : 1 / sqrt((double)dim);
    if (self && config->attention_softcap != 0.0f)
        sum = (double)config->attention_softcap *
              tanh(sum / (double)config->attention_softcap);
    if (self && model->slopes)
        sum += (double)model->slopes[head] * ((double)j - (double)i);
    if (kept->relative) { // T5's distances begin with -relative_max_distance
        ptrdiff_t row = (ptrdiff_t)j - (ptrdiff_t)i +
                        (ptrdiff_t)config->relative_max_distance;
        ptrdiff_t last = (ptrdiff_t)kept->relative->rows - 1;
        row = row < 0 ? 0 : row > last ? last : row;
        sum += (double)tensor_data(
            kept->relative)[(size_t)row * stack->heads + head];
    }
    return sum;
}

static void row_compare(const subject *s, const bauta_attention_weights *view,
                        const bt_saved_qk *kept, size_t i, const float *got)
{
    const bt_model_config *config = &s->model->store->model->config;
    const bt_stack_config *stack = view->attention == BAUTA_ATTENTION_ENCODER
                                       ? &config->encoder
                                       : &config->decoder;
    const side *q = queries_of(s, view->attention),
               *k = keys_of(s, view->attention);
    double want[SEQUENCES * LONGEST] = { 0 }, sum = 0, total = 0;
    size_t query = packed_row(q, i), key = 0;
    for (size_t j = 0; j < k->rows; j++) {
        if (sees(s, view->attention, view->layer, i, j))
            sum += want[j] =
                exp(score(s->model->store->model, stack, kept,
                          view->attention == BAUTA_ATTENTION_DECODER,
                          view->head, query, key));
        key += k->real[j];
    }
    for (size_t j = 0; j < k->rows; j++) {
        double weight = sum > 0 ? want[j] / sum : 0;
        total += (double)got[j];
        if ((want[j] > 0) != (got[j] > 0) ||
            !(fabs(weight - (double)got[j]) <= 1e-6))
            fail_msg("at %d, layer %zu, head %zu, row %zu, key %zu: %g, not %g",
                     (int)view->attention, view->layer, view->head, i, j,
                     (double)got[j], weight);
    }
    assert_true(fabs(total - (sum > 0)) <= 1e-6);
}

/* ---- against the reference ----------------------------------------------- */

static float *weights_create(size_t count)
{
    float *weights = malloc(count * sizeof(float) + 1);
    assert_non_null(weights);
    for (size_t i = 0; i < count; i++)
        weights[i] = NAN;
    return weights;
}

static void view(subject *s, const bauta_outputs *outputs,
                 const bauta_attention_weights *views, size_t count)
{
    bauta_error err;
    if (bauta_model_attention_weights(s->context, s->model, source_of(s),
                                      target_of(s), outputs, views, count,
                                      &err))
        fail_msg("%s", err.message);
}

/* Every head of every layer, in one call. */
enum { LOOKS = 64 };

static size_t views_fill(const subject *s, bauta_attention_weights *views)
{
    size_t count = 0;
    for (bauta_attention_kind at = BAUTA_ATTENTION_ENCODER;
         at <= BAUTA_ATTENTION_CROSS; at++)
        for (size_t l = 0; l < layers_of(s, at); l++)
            for (size_t h = 0; h < bauta_model_heads(s->model, at); h++) {
                bauta_attention_weights *x = &views[count++];
                *x = (bauta_attention_weights)BAUTA_ATTENTION_WEIGHTS_INIT;
                x->attention = at;
                x->layer = l;
                x->head = h;
                x->rows = queries_of(s, at)->rows;
                x->weights = weights_create(x->rows * keys_of(s, at)->rows);
            }
    assert_true(count <= LOOKS);
    return count;
}

static void views_release(bauta_attention_weights *views, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(views[i].weights);
}

static void all_compare(subject *s)
{
    bauta_attention_weights views[LOOKS];
    bt_model_call call;
    bt_saved_qk *kept[3];
    size_t count = views_fill(s, views);
    view(s, NULL, views, count);
    kept_read(s, &call, kept);
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < views[n].rows; i++)
            row_compare(
                s, &views[n], &kept[views[n].attention][views[n].layer], i,
                views[n].weights + i * keys_of(s, views[n].attention)->rows);
    views_release(views, count);
}

static void each_tiny(void (*run)(subject *s))
{
    for (size_t t = 0; t < BT_LEN(tinies); t++) {
        subject s;
        subject_create(&s, &tinies[t]);
        printf("%s\n", tinies[t].name);
        for (int way = 0; way < 4; way++) {
            subject_batch(&s, way & 1, way & 2);
            run(&s);
            batch_release(&s);
        }
        subject_free(&s);
    }
}

static void weights_are_the_softmax_over_visible_keys(void **state)
{
    (void)state;
    each_tiny(all_compare);
}

/* ---- against the forward pass -------------------------------------------- */

static void bits_compare(subject *s)
{
    const bauta_batch *top = s->decoder ? target_of(s) : source_of(s);
    size_t count = bauta_batch_rows(top) * bauta_model_vocab_size(s->model);
    bauta_attention_weights views[LOOKS];
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    float *plain = weights_create(count), *beside = weights_create(count);
    outputs.logits = plain;
    assert_int_equal(bauta_model_forward(s->context, s->model, source_of(s),
                                         target_of(s), &outputs, NULL),
                     0);
    outputs.logits = beside;
    size_t n = views_fill(s, views);
    view(s, &outputs, views, n);
    assert_memory_equal(plain, beside, count * sizeof(float));
    views_release(views, n);
    free(plain);
    free(beside);
}

static void reading_weights_does_not_change_the_outputs(void **state)
{
    (void)state;
    each_tiny(bits_compare);
}

/* A range of rows of a head equals those rows of the whole, and nothing outside
 * of the range is written. */
static void part_compare(subject *s)
{
    bauta_attention_weights all = BAUTA_ATTENTION_WEIGHTS_INIT, part;
    all.attention =
        s->decoder ? BAUTA_ATTENTION_DECODER : BAUTA_ATTENTION_ENCODER;
    all.head = 1;
    all.layer = 1;
    all.rows = queries_of(s, all.attention)->rows;
    all.weights = weights_create(all.rows * all.rows);
    part = all;
    part.first = test_below(&s->r, all.rows + 1);
    part.rows = test_below(&s->r, all.rows - part.first + 1);
    part.weights = weights_create((part.rows + 1) * all.rows);
    view(s, NULL, &all, 1);
    view(s, NULL, &part, 1);
    assert_memory_equal(part.weights, all.weights + part.first * all.rows,
                        part.rows * all.rows * sizeof(float));
    for (size_t j = 0; j < all.rows; j++)
        assert_true(isnan(part.weights[part.rows * all.rows + j]));
    free(all.weights);
    free(part.weights);
}

static void only_the_requested_rows_are_written(void **state)
{
    (void)state;
    each_tiny(part_compare);
}

/* ---- against transformers ------------------------------------------------ */

static void weights_agree_with_transformers(void **state)
{
    static const uint32_t text[] = { 3, 4, 5, 6, 7, 8 };
    static const uint32_t more[] = { 9, 10, 11, 12, 13 };
    (void)state;
    for (size_t i = 0; i < BT_LEN(known_rows); i++) {
        char path[512];
        float got[6] = { 0 };
        bauta_model *model = NULL;
        bauta_context *context = NULL;
        bauta_error err;
        test_tree_path(path, sizeof(path), known_rows[i].folder);
        if (bauta_model_load(&model, path, false, &err) ||
            bauta_context_create(&context, NULL, &err))
            fail_msg("%s", err.message);
        bool both = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
        bool encoder = bauta_model_encoder_layers(model) > 0;
        bauta_batch source = BAUTA_BATCH_INIT, target;
        bauta_attention_weights x = BAUTA_ATTENTION_WEIGHTS_INIT;
        source.count = 1;
        source.stride = BT_LEN(text);
        source.ids = text;
        target = source;
        target.stride = both ? BT_LEN(more) : BT_LEN(text);
        target.ids = both ? more : text;
        x.attention = known_rows[i].at;
        x.layer = known_rows[i].layer;
        x.head = known_rows[i].head;
        x.first = known_rows[i].row;
        x.rows = 1;
        x.weights = got;
        if (bauta_model_attention_weights(
                context, model, encoder ? &source : NULL,
                both || !encoder ? &target : NULL, NULL, &x, 1, &err))
            fail_msg("%s", err.message);
        for (size_t j = 0; j < 6; j++)
            if (!(fabsf(got[j] - known_rows[i].want[j]) <= 2e-6f))
                fail_msg("%s, case %zu, key %zu: %.8g, not %.8g",
                         known_rows[i].folder, i, j, (double)got[j],
                         (double)known_rows[i].want[j]);
        bauta_model_free(model);
        bauta_context_free(context);
    }
}

/* ---- malformed input ----------------------------------------------------- */

static void refused(subject *s, const bauta_attention_weights *x,
                    const char *part)
{
    bauta_error err;
    assert_int_equal(bauta_model_attention_weights(s->context, s->model,
                                                   source_of(s), target_of(s),
                                                   NULL, x, x ? 1 : 0, &err),
                     BAUTA_ERR_ARGUMENT);
    if (!strstr(err.message, part))
        fail_msg("%s, not: %s", err.message, part);
}

static void bad_arguments_are_errors(void **state)
{
    subject s;
    float room[16];
    (void)state;
    subject_create(&s, &tinies[1]); // llama
    subject_batch(&s, false, false);
    bauta_attention_weights good = BAUTA_ATTENTION_WEIGHTS_INIT, x;
    good.weights = room;
    refused(&s, NULL, "no requests are given");
    x = good, x.size = 3;
    refused(&s, &x, "requests[0].size is 3");
    x = good, x.attention = BAUTA_ATTENTION_CROSS;
    refused(&s, &x, "request 0: the model has no cross attention");
    x = good, x.attention = (bauta_attention_kind)7;
    refused(&s, &x, "request 0: attention is 7");
    x = good, x.layer = 3;
    refused(&s, &x, "request 0: layer 3 of a stack of 3");
    x = good, x.head = 4;
    refused(&s, &x, "request 0: head 4 of a layer of 4");
    x = good, x.first = SIZE_MAX;
    refused(&s, &x, "request 0: 0 rows from row");
    x = good, x.rows = SIZE_MAX;
    refused(&s, &x, "rows from row 0 on");
    x = good, x.rows = 1, x.weights = NULL;
    refused(&s, &x, "request 0: weights is NULL");
    assert_int_equal(bauta_model_attention_weights(s.context, s.model, NULL,
                                                   target_of(&s), NULL, NULL, 1,
                                                   NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_heads(NULL, BAUTA_ATTENTION_ENCODER), 0);
    assert_int_equal(bauta_model_heads(s.model, BAUTA_ATTENTION_ENCODER), 0);
    assert_int_equal(bauta_model_heads(s.model, BAUTA_ATTENTION_DECODER), 4);
    batch_release(&s);
    subject_free(&s);
}

/* The tape keeps its blocks when a call fails, so the number of live blocks may
 * grow; a leak would show at the end. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t t = 0; t < BT_LEN(tinies); t++) {
        subject s;
        bauta_attention_weights views[LOOKS];
        size_t k = 0;
        faults_begin();
        subject_create(&s, &tinies[t]);
        subject_batch(&s, true, true);
        size_t count = views_fill(&s, views);
        for (;; k++) {
            bauta_status status;
            bauta_context_free(s.context);
            assert_int_equal(bauta_context_create(&s.context, NULL, NULL), 0);
            faults_arm(k);
            status = bauta_model_attention_weights(s.context, s.model,
                                                   source_of(&s), target_of(&s),
                                                   NULL, views, count, NULL);
            if (!faults_disarm())
                break;
            assert_int_equal(status, BAUTA_ERR_NOMEM);
        }
        assert_true(k > 3);
        views_release(views, count);
        batch_release(&s);
        subject_free(&s);
        assert_int_equal(faults_end(), 0);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_softmax_over_visible_keys),
        cmocka_unit_test(reading_weights_does_not_change_the_outputs),
        cmocka_unit_test(only_the_requested_rows_are_written),
        cmocka_unit_test(weights_agree_with_transformers),
        cmocka_unit_test(bad_arguments_are_errors),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("attention_weights", tests, NULL, NULL);
}

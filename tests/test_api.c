/* SPDX-License-Identifier: Apache-2.0 */
/* test_api.c - models of every family through bauta.h alone. The results do not
 * depend on the layout of the batch, equal those of the internal functions, and
 * survive saving. The test writes the folders; those of the data folder are run
 * as well if present. */
#include "allocation_faults.h"
#include "bauta.h"
#include "data.h"
#include "host_tensors.h"
#include "model/transformer.h"
#include "tiny_models.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>

enum { SEQUENCES = 4, VOCAB_MAX = 512 };

/* Lengths on both sides of a block of 64 keys, and one empty sequence. */
static const size_t lengths[SEQUENCES] = { 3, 70, 0, 9 };
static const size_t short_lengths[SEQUENCES] = { 3, 30, 0, 9 };

/* A model, a batch for it and all results. */
typedef struct fixture {
    temp_folder temp_folder;
    char path[512];
    bauta_model *model;
    bauta_context *context;
    test_random r;
    const size_t *lengths;
    size_t rows;
    uint32_t *source_ids, *target_ids, *types, *labels;
    float *logits;
} fixture;

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
        x[i] = NAN; // anything that is not written shows up
    return x;
}

static bool has_source(const fixture *s)
{
    return bauta_model_encoder_layers(s->model) > 0;
}

static bool has_target(const fixture *s)
{
    return bauta_model_decoder_layers(s->model) > 0;
}

static bool has_types(const fixture *s)
{
    char text[2048];
    bauta_model_describe(s->model, text, sizeof(text));
    return strstr(text, "\"token_types\":2");
}

static void subject_load(fixture *s, const char *path, bool trainable)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 2;
    s->model = load(path, trainable);
    assert_int_equal(bauta_context_create(&s->context, &options, NULL), 0);
    size_t vocab = bauta_model_vocab_size(s->model);
    s->lengths =
        bauta_model_max_positions(s->model) < 70 ? short_lengths : lengths;
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

static void subject_unload(fixture *s)
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
static bauta_batch packed(const fixture *s, bool target)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = SEQUENCES;
    batch.lengths = s->lengths;
    batch.ids = target ? s->target_ids : s->source_ids;
    batch.token_types = target ? NULL : s->types;
    return batch;
}

static void forward(fixture *s, const bauta_batch *source,
                    const bauta_batch *target, bauta_outputs *outputs)
{
    bauta_error err;
    if (bauta_model_forward(s->context, s->model, has_source(s) ? source : NULL,
                            has_target(s) ? target : NULL, outputs, &err))
        fail_msg("%s: %s", s->path, err.message);
}

static void forward_packed(fixture *s, float *logits)
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
static void each_folder(void (*test)(fixture *s), bool trainable)
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
        fixture s = { .temp_folder = temp_folder_create() };
        bool there = true;
        if (i < BT_LEN(tinies))
            tiny_write(&s.temp_folder, &tinies[i], s.path);
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
        temp_folder_free(&s.temp_folder);
    }
}

/* ---- the same bits in every layout --------------------------------------- */

/* Sequence s alone; its logits go to their rows of `logits`. */
static void forward_alone(fixture *s, size_t sequence, size_t start,
                          float *logits)
{
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_batch *both[] = { &source, &target };
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    for (size_t i = 0; i < 2; i++) {
        both[i]->count = 1;
        both[i]->lengths += sequence;
        both[i]->ids += start;
        if (both[i]->token_types)
            both[i]->token_types += start;
    }
    outputs.logits = logits + start * bauta_model_vocab_size(s->model);
    forward(s, &source, &target, &outputs);
}

static void alone_equals_packed(fixture *s)
{
    size_t vocab = bauta_model_vocab_size(s->model), start = 0;
    float *alone = floats_create(s->rows * vocab);
    forward_packed(s, s->logits);
    for (size_t i = 0; i < SEQUENCES; i++) {
        forward_alone(s, i, start, alone);
        start += s->lengths[i];
    }
    assert_bits("alone", s->logits, alone, s->rows * vocab);
    free(alone);
}

/* Copy the packed rows to their padded positions; the ids of padding are out of
 * range of every table. */
static uint32_t *pad(const fixture *s, const uint32_t *from, size_t stride)
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

static void assert_padded(const fixture *s, const char *what,
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

static void padded_equals_packed(fixture *s)
{
    size_t vocab = bauta_model_vocab_size(s->model);
    size_t stride = s->lengths[1] + 2;
    bauta_batch source = packed(s, false), target = packed(s, true);
    uint32_t *source_ids = pad(s, s->source_ids, stride);
    uint32_t *target_ids = pad(s, s->target_ids, stride);
    uint32_t *types = pad(s, s->types, stride);
    float *logits = floats_create(SEQUENCES * stride * vocab);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    source.stride = target.stride = stride;
    source.ids = source_ids;
    source.token_types = types;
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

/* ---- equal to the internal functions ------------------------------------- */

static bt_attention_plan *plan_of(bauta_mask *a, bauta_mask *b)
{
    bauta_mask *both = NULL;
    if (!b)
        return test_plan(a);
    assert_int_equal(bauta_mask_and(&both, a, b, NULL), 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return test_plan(both);
}

static bauta_mask *documents(const fixture *s)
{
    bauta_mask *mask = NULL;
    assert_int_equal(
        bauta_mask_documents(&mask, SEQUENCES, s->lengths, NULL, NULL), 0);
    return mask;
}

static bauta_mask *causal(const fixture *s, size_t window)
{
    bauta_mask *mask = NULL;
    assert_int_equal(
        window ? bauta_mask_window(&mask, s->rows, s->rows, window, NULL)
               : bauta_mask_causal(&mask, s->rows, s->rows, NULL),
        0);
    return mask;
}

/* The same computation composed from internal functions. */
typedef struct internal_run {
    bt_model_store *folder;
    bt_tape *tape;
    uint32_t *positions;
    bt_attention_plan *all, *causal, *window;
    bt_tensor *encoder_states[8], *decoder_states[8];
    bt_forward_input encoder, decoder;
} internal_run;

static void internal_run_init(internal_run *in, const fixture *s,
                              bt_load_mode how)
{
    size_t at = 0;
    *in = (internal_run){ .positions = malloc(s->rows * sizeof(uint32_t)) };
    assert_non_null(in->positions);
    assert_int_equal(bt_model_store_load(&in->folder, s->path, how, NULL), 0);
    in->tape = test_tape(NULL, 1, false);
    for (size_t i = 0; i < SEQUENCES; i++)
        for (size_t t = 0; t < s->lengths[i]; t++)
            in->positions[at++] = (uint32_t)t;
    size_t window = in->folder->model->config.window;
    in->all = plan_of(documents(s), NULL);
    in->causal = plan_of(documents(s), causal(s, 0));
    if (window)
        in->window = plan_of(documents(s), causal(s, window));
    in->encoder = (bt_forward_input){ .tokens = s->rows,
                                      .ids = s->source_ids,
                                      .positions = in->positions,
                                      .token_types = s->types,
                                      .plans = { [BT_SLOT_ENCODER] = in->all },
                                      .hidden_states = in->encoder_states };
    in->decoder = (bt_forward_input){ .tokens = s->rows,
                                      .ids = s->target_ids,
                                      .positions = in->positions,
                                      .plans = { [BT_SLOT_DECODER] = in->causal,
                                                 [BT_SLOT_WINDOW] = in->window,
                                                 [BT_SLOT_CROSS] = in->all },
                                      .hidden_states = in->decoder_states };
}

static void internal_run_release(internal_run *in)
{
    bt_model_store_free(in->folder);
    test_tape_free(in->tape);
    bt_cpu_plan_free(in->all);
    bt_cpu_plan_free(in->causal);
    bt_cpu_plan_free(in->window);
    free(in->positions);
}

static bt_tensor *internal_run_forward(internal_run *in, const fixture *s,
                                       bool recording)
{
    bt_tensor *x = NULL;
    bt_tape_rewind(in->tape, recording);
    if (has_source(s))
        x = bt_transformer_encode(in->tape, in->folder->model, &in->encoder);
    if (has_target(s))
        x = bt_transformer_decode(in->tape, in->folder->model, &in->decoder, x);
    return x;
}

static void states_equal(const char *what, bt_tensor *const *want,
                         const float *got, size_t layers)
{
    for (size_t l = 0; got && l <= layers; l++) {
        size_t count = want[l]->rows * want[l]->columns;
        assert_bits(what, tensor_data(want[l]), got + l * count, count);
    }
}

static void forward_equals_internal(fixture *s)
{
    internal_run in;
    internal_run_init(&in, s, BT_LOAD_MAPPED);
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t encoder = bauta_model_encoder_layers(s->model);
    size_t decoder = bauta_model_decoder_layers(s->model);
    size_t count = s->rows * bauta_model_hidden_size(s->model);
    outputs.logits = s->logits;
    if (encoder)
        outputs.encoder_states = floats_create((encoder + 1) * count);
    if (decoder)
        outputs.decoder_states = floats_create((decoder + 1) * count);
    forward(s, &source, &target, &outputs);
    bt_tensor *want = bt_transformer_logits(
        in.tape, in.folder->model, internal_run_forward(&in, s, false));
    assert_non_null(want);
    assert_bits("logits", tensor_data(want), s->logits,
                want->rows * want->columns);
    states_equal("encoder states", in.encoder_states, outputs.encoder_states,
                 encoder);
    states_equal("decoder states", in.decoder_states, outputs.decoder_states,
                 decoder);
    // States alone, without logits, are the same.
    float *again = floats_create((encoder + decoder + 1) * count);
    bauta_outputs only = BAUTA_OUTPUTS_INIT;
    only.encoder_states = decoder ? NULL : again;
    only.decoder_states = decoder ? again : NULL;
    forward(s, &source, &target, &only);
    states_equal("states alone",
                 decoder ? in.decoder_states : in.encoder_states, again,
                 decoder ? decoder : encoder);
    free(again);
    free(outputs.encoder_states);
    free(outputs.decoder_states);
    internal_run_release(&in);
}

static void forward_equals_the_internal_functions(void **state)
{
    (void)state;
    each_folder(forward_equals_internal, false);
}

/* ---- loss and gradients -------------------------------------------------- */

static double loss_packed(fixture *s, const bauta_loss_options *options,
                          size_t *counted)
{
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_error err;
    double loss = NAN;
    if (bauta_model_loss(s->context, s->model, has_source(s) ? &source : NULL,
                         has_target(s) ? &target : NULL, s->labels, options,
                         &loss, counted, &err))
        fail_msg("%s: %s", s->path, err.message);
    return loss;
}

static bauta_tensor tensor_at(const bauta_model *model, size_t index)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_tensor(model, index, &t, NULL), 0);
    return t;
}

typedef struct matching {
    const bauta_model *model;
    size_t index;
} matching;

/* Names come in the same order there and here. */
static void gradient_equal(void *user, const char *name, bt_tensor *t, int rank)
{
    matching *m = user;
    bauta_tensor got = tensor_at(m->model, m->index++);
    assert_string_equal(name, got.name);
    assert_int_equal(rank, got.rank);
    assert_int_equal(t->rows * t->columns, got.count);
    assert_ptr_equal(got.data, got.writable);
    assert_int_equal(t->grad != NULL, got.gradient != NULL);
    if (t->grad)
        assert_bits(name, tensor_gradient(t), got.gradient, got.count);
}

static size_t labels_counted(const fixture *s)
{
    size_t counted = 0;
    for (size_t i = 0; i < s->rows; i++)
        counted += s->labels[i] != BAUTA_IGNORE;
    return counted;
}

static void loss_equals_internal(fixture *s)
{
    internal_run in;
    size_t counted = 0;
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    options.label_smoothing = 0.1f;
    options.weight = 0.5;
    internal_run_init(&in, s, BT_LOAD_TRAINABLE);
    bt_model *model = in.folder->model;
    bt_loss want = bt_op_cross_entropy(
        in.tape,
        bt_transformer_head_transform(in.tape, model,
                                      internal_run_forward(&in, s, true)),
        bt_transformer_head_weight(model), false,
        bt_transformer_head_bias(model), model->config.head_softcap, s->labels,
        NULL, options.label_smoothing, options.weight);
    assert_int_equal(bt_tape_backward(in.tape, NULL), 0);
    double got = loss_packed(s, &options, &counted);
    assert_true(got == bt_loss_read(in.tape, &want));
    assert_int_equal(counted, labels_counted(s));
    matching m = { .model = s->model };
    bt_model_store_visit(in.folder, &(bt_tensor_visitor){ gradient_equal, &m });
    assert_int_equal(m.index, bauta_model_tensor_count(s->model));
    internal_run_release(&in);
}

static void loss_and_gradients_equal_the_internal_functions(void **state)
{
    (void)state;
    each_folder(loss_equals_internal, true);
}

static double gradient_length(const bauta_model *model)
{
    double sum = 0;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; t.gradient && k < t.count; k++)
            sum += (double)t.gradient[k] * (double)t.gradient[k];
    }
    return sqrt(sum);
}

/* A gradient is a sum of at most some thousand terms; doubling it by adding
 * the same terms again, one by one, is off by less than 1e-3 of it. */
static void gradients_add_up(fixture *s)
{
    double first = loss_packed(s, NULL, NULL);
    double once = gradient_length(s->model);
    assert_true(once > 0);
    assert_true(loss_packed(s, NULL, NULL) == first);
    double twice = gradient_length(s->model);
    assert_true(fabs(twice - 2 * once) < 1e-3 * once);
    assert_int_equal(bauta_model_zero_gradients(s->model, NULL), 0);
    assert_true(gradient_length(s->model) == 0);
    assert_true(loss_packed(s, NULL, NULL) == first);
    assert_true(gradient_length(s->model) == once);
}

static void gradients_are_added_until_zeroed(void **state)
{
    (void)state;
    each_folder(gradients_add_up, true);
}

static void loss_same_read_only(fixture *s)
{
    bauta_model *trainable = load(s->path, true), *own = s->model;
    double want = loss_packed(s, NULL, NULL);
    s->model = trainable;
    double got = loss_packed(s, NULL, NULL);
    s->model = own;
    bauta_model_free(trainable);
    assert_true(got == want);
    for (size_t i = 0; i < s->rows; i++)
        s->labels[i] = BAUTA_IGNORE;
    size_t counted = 1;
    assert_true(loss_packed(s, NULL, &counted) == 0.0);
    assert_int_equal(counted, 0);
    bauta_tensor t = tensor_at(s->model, 0);
    assert_null(t.gradient);
    assert_null(t.writable);
}

static void read_only_models_have_a_loss_and_no_gradients(void **state)
{
    (void)state;
    each_folder(loss_same_read_only, false);
}

/* ---- masks of the batch -------------------------------------------------- */

static bauta_mask *random_dense(test_random *r, size_t queries, size_t keys)
{
    bauta_mask *mask = NULL;
    unsigned char *visible = malloc(queries * keys);
    assert_non_null(visible);
    for (size_t i = 0; i < queries * keys; i++)
        visible[i] = test_below(r, 4) != 0;
    assert_int_equal(bauta_mask_dense(&mask, queries, keys, visible, NULL), 0);
    free(visible);
    return mask;
}

/* The packed row of a padded row; padding has none. */
static bool packed_row(const fixture *s, size_t stride, size_t row, size_t *to)
{
    size_t sequence = row / stride, start = 0;
    for (size_t i = 0; i < sequence; i++)
        start += s->lengths[i];
    *to = start + row % stride;
    return row % stride < s->lengths[sequence];
}

/* The same mask over padded rows, with arbitrary entries for the padding. */
static bauta_mask *pad_mask(fixture *s, const bauta_mask *mask, size_t stride)
{
    size_t n = SEQUENCES * stride, query, key;
    bauta_mask *out = NULL;
    unsigned char *visible = malloc(n * n);
    assert_non_null(visible);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            bool real = packed_row(s, stride, i, &query) &&
                        packed_row(s, stride, j, &key);
            visible[i * n + j] = real ? bauta_mask_visible(mask, query, key)
                                      : (unsigned char)test_below(&s->r, 2);
        }
    assert_int_equal(bauta_mask_dense(&out, n, n, visible, NULL), 0);
    free(visible);
    return out;
}

static void batch_masks_padded(fixture *s, const bauta_mask *mask,
                               const bauta_mask *cross)
{
    size_t vocab = bauta_model_vocab_size(s->model);
    size_t stride = s->lengths[1] + 1;
    bauta_batch source = packed(s, false), target = packed(s, true);
    uint32_t *source_ids = pad(s, s->source_ids, stride);
    uint32_t *target_ids = pad(s, s->target_ids, stride);
    uint32_t *types = pad(s, s->types, stride);
    float *logits = floats_create(SEQUENCES * stride * vocab);
    bauta_mask *padded = pad_mask(s, mask, stride);
    bauta_mask *padded_cross = cross ? pad_mask(s, cross, stride) : NULL;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = logits;
    source.stride = target.stride = stride;
    source.ids = source_ids;
    source.token_types = types;
    target.ids = target_ids;
    source.mask = target.mask = padded;
    target.cross_mask = padded_cross;
    forward(s, &source, &target, &outputs);
    assert_padded(s, "masked and padded", s->logits, logits, stride, vocab);
    bauta_mask_free(padded);
    bauta_mask_free(padded_cross);
    free(source_ids);
    free(target_ids);
    free(types);
    free(logits);
}

/* A random mask equals the AND of the model's mask and this one, made by
 * hand. */
static void batch_masks_and(fixture *s)
{
    internal_run in;
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bool both = has_source(s) && has_target(s);
    bauta_mask *mask = random_dense(&s->r, s->rows, s->rows);
    bauta_mask *cross = both ? random_dense(&s->r, s->rows, s->rows) : NULL;
    source.mask = target.mask = mask;
    target.cross_mask = cross;
    outputs.logits = s->logits;
    forward(s, &source, &target, &outputs);

    internal_run_init(&in, s, BT_LOAD_MAPPED);
    size_t window = in.folder->model->config.window;
    bauta_mask *own[4] = { documents(s), documents(s), documents(s),
                           documents(s) };
    const bauta_mask *more[4] = { mask, mask, mask, cross };
    bt_attention_plan *plans[4] = { NULL };
    for (size_t i = 0; i < 4; i++) {
        bauta_mask *joined = NULL;
        if (!more[i]) {
            bauta_mask_free(own[i]);
            continue;
        }
        assert_int_equal(bauta_mask_and(&joined, own[i], more[i], NULL), 0);
        bauta_mask_free(own[i]);
        plans[i] = plan_of(joined, i == 1   ? causal(s, 0)
                                   : i == 2 ? causal(s, window ? window : 1)
                                            : NULL);
    }
    in.encoder.plans[BT_SLOT_ENCODER] = plans[0];
    in.decoder.plans[BT_SLOT_DECODER] = plans[1];
    in.decoder.plans[BT_SLOT_WINDOW] = plans[2];
    in.decoder.plans[BT_SLOT_CROSS] = plans[3];
    bt_tensor *want = bt_transformer_logits(
        in.tape, in.folder->model, internal_run_forward(&in, s, false));
    assert_non_null(want);
    assert_bits("masked", tensor_data(want), s->logits,
                want->rows * want->columns);
    batch_masks_padded(s, mask, cross);
    for (size_t i = 0; i < 4; i++)
        bt_cpu_plan_free(plans[i]);
    internal_run_release(&in);
    bauta_mask_free(mask);
    bauta_mask_free(cross);
}

/* A mask that hides nothing changes nothing and leaves no trace in the next
 * call. A mask that hides everything still gives finite numbers. */
static void batch_masks_extremes(fixture *s)
{
    bauta_batch source = packed(s, false), target = packed(s, true);
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_mask *all = NULL, *none = NULL;
    size_t count = s->rows * bauta_model_vocab_size(s->model);
    float *logits = floats_create(count);
    assert_int_equal(bauta_mask_all(&all, s->rows, s->rows, NULL), 0);
    assert_int_equal(bauta_mask_not(&none, all, NULL), 0);
    forward_packed(s, s->logits);
    outputs.logits = logits;
    source.mask = target.mask = all;
    forward(s, &source, &target, &outputs);
    assert_bits("hides nothing", s->logits, logits, count);
    source.mask = target.mask = none;
    forward(s, &source, &target, &outputs);
    for (size_t i = 0; i < count; i++)
        assert_true(isfinite(logits[i]));
    assert_true(memcmp(logits, s->logits, count * sizeof(float)) != 0);
    forward_packed(s, logits);
    assert_bits("after a mask", s->logits, logits, count);
    bauta_mask_free(all);
    bauta_mask_free(none);
    free(logits);
}

static void a_batch_mask_is_combined_with_the_models(void **state)
{
    (void)state;
    each_folder(batch_masks_and, false);
    each_folder(batch_masks_extremes, false);
}

/* ---- saving -------------------------------------------------------------- */

static void tensors_equal(const bauta_model *a, const bauta_model *b)
{
    assert_int_equal(bauta_model_tensor_count(a), bauta_model_tensor_count(b));
    assert_true(bauta_model_parameter_count(a) ==
                bauta_model_parameter_count(b));
    for (size_t i = 0; i < bauta_model_tensor_count(a); i++) {
        bauta_tensor want = tensor_at(a, i), got = tensor_at(b, i);
        assert_string_equal(want.name, got.name);
        assert_int_equal(want.rank, got.rank);
        assert_memory_equal(want.shape, got.shape, sizeof(want.shape));
        assert_bits(want.name, want.data, got.data, want.count);
    }
}

static char *file_text(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The config is preserved byte for byte where nothing changes. */
static void texts_compare(const char *from, const char *to)
{
    char *before = file_text(from, "config.json");
    char *after = file_text(to, "config.json");
    assert_true(before && after);
    bool changed =
        strstr(before, "bfloat16") || !strstr(before, "\"architectures\"");
    assert_int_equal(strcmp(before, after) != 0, changed);
    assert_non_null(strstr(after, "\"architectures\""));
    assert_null(strstr(after, "bfloat16"));
    assert_null(strstr(after, "00000000"));
    free(before);
    free(after);
    before = file_text(from, "generation_config.json");
    after = file_text(to, "generation_config.json");
    assert_int_equal(before != NULL, after != NULL);
    if (before)
        assert_string_equal(before, after);
    free(before);
    free(after);
}

static void save_and_load(fixture *s)
{
    char path[512], again[512];
    bauta_error err;
    size_t count = s->rows * bauta_model_vocab_size(s->model);
    float *logits = floats_create(count);
    snprintf(path, sizeof(path), "%s",
             temp_folder_path(&s->temp_folder, "saved/"));
    snprintf(again, sizeof(again), "%s",
             temp_folder_path(&s->temp_folder, "again"));
    forward_packed(s, s->logits);
    if (bauta_model_save(s->model, path, &err))
        fail_msg("%s", err.message);
    texts_compare(s->path, path);
    bauta_model *own = s->model;
    for (int trainable = 0; trainable < 2; trainable++) {
        s->model = load(path, trainable);
        tensors_equal(own, s->model);
        forward_packed(s, logits);
        assert_bits("saved", s->logits, logits, count);
        if (trainable)
            assert_int_equal(bauta_model_save(s->model, again, NULL), 0);
        bauta_model_free(s->model);
    }
    s->model = own;
    // Saving again gives the same bytes.
    char *one = file_text(path, "model.safetensors");
    char *two = file_text(again, "model.safetensors");
    assert_memory_equal(one, two, 1 << 16);
    free(one);
    free(two);
    free(logits);
}

static void a_saved_model_is_the_same(void **state)
{
    (void)state;
    each_folder(save_and_load, false);
}

static void trained_weights_are_saved(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512], saved[512];
    tiny_write(&s, &tinies[0], path);
    tiny_file(path, "generation_config.json", "{}", 2);
    snprintf(saved, sizeof(saved), "%s", temp_folder_path(&s, "saved"));
    bauta_model *model = load(path, true);
    bauta_tensor t = tensor_at(model, 3);
    t.writable[1] = 42.5f;
    // The source folder may have been removed by then.
    temp_folder_remove(path);
    assert_int_equal(bauta_model_save(model, saved, NULL), 0);
    bauta_model *again = load(saved, false);
    assert_true(tensor_at(again, 3).data[1] == 42.5f);
    char *generation = file_text(saved, "generation_config.json");
    assert_string_equal(generation, "{}");
    free(generation);
    bauta_model_free(model);
    bauta_model_free(again);
    temp_folder_free(&s);
}

static void saving_never_overwrites(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    char path[512], target[512], internal_path[600];
    tiny_write(&s, &tinies[1], path);
    bauta_model *model = load(path, false);
    snprintf(target, sizeof(target), "%s", temp_folder_path(&s, "target"));
    assert_int_equal(mkdir(target, 0777), 0);
    assert_int_equal(bauta_model_save(model, target, &err), 0); // it is empty
    assert_int_equal(bauta_model_save(model, target, &err), BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "exists and is not empty"));
    assert_int_equal(bauta_model_save(model, path, &err), BAUTA_ERR_IO);
    snprintf(internal_path, sizeof(internal_path), "%s/config.json", path);
    assert_int_equal(bauta_model_save(model, internal_path, &err),
                     BAUTA_ERR_IO);
    snprintf(internal_path, sizeof(internal_path), "%s/no/folder", path);
    assert_int_equal(bauta_model_save(model, internal_path, &err),
                     BAUTA_ERR_IO);
    assert_int_equal(bauta_model_save(model, "", &err), BAUTA_ERR_ARGUMENT);
    assert_int_equal(temp_folder_count(&s), 2); // and nothing else was left
    bauta_model_free(model);
    temp_folder_free(&s);
}

/* ---- memory and threads -------------------------------------------------- */

static void second_call_allocates_nothing(fixture *s)
{
    for (int i = 0; i < 2; i++) {
        faults_arm(0); // the second time every allocation fails
        if (i == 0)
            faults_disarm();
        forward_packed(s, s->logits);
        loss_packed(s, NULL, NULL);
        assert_false(faults_disarm());
    }
}

static void a_repeated_call_allocates_nothing(void **state)
{
    (void)state;
    faults_begin();
    each_folder(second_call_allocates_nothing, true);
    assert_int_equal(faults_end(), 0);
}

enum { THREADS = 3 };

static void *forward_main(void *argument)
{
    fixture *s = argument;
    forward_packed(s, s->logits);
    return NULL;
}

static void threads_share(fixture *s)
{
    fixture each[THREADS];
    pthread_t threads[THREADS];
    size_t count = s->rows * bauta_model_vocab_size(s->model);
    forward_packed(s, s->logits);
    for (size_t i = 0; i < THREADS; i++) {
        each[i] = *s;
        each[i].logits = floats_create(count);
        assert_int_equal(bauta_context_create(&each[i].context, NULL, NULL), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, forward_main, &each[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_bits("shared", s->logits, each[i].logits, count);
        bauta_context_free(each[i].context);
        free(each[i].logits);
    }
}

static void threads_may_share_a_read_only_model(void **state)
{
    (void)state;
    each_folder(threads_share, false);
}

/* ---- getters ------------------------------------------------------------- */

static void describe_and_count(fixture *s)
{
    char text[2048], cut[16];
    size_t length = bauta_model_describe(s->model, NULL, 0);
    assert_int_equal(bauta_model_describe(s->model, text, sizeof(text)),
                     length);
    assert_int_equal(strlen(text), length);
    assert_int_equal(bauta_model_describe(s->model, cut, sizeof(cut)), length);
    assert_memory_equal(cut, text, 15);
    assert_int_equal(cut[15], 0);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "kind")),
                        bauta_model_kind_text(bauta_model_kind_of(s->model)));
    assert_int_equal(json_integer_value(json_object_get(root, "vocabulary")),
                     bauta_model_vocab_size(s->model));
    json_decref(root);
    uint64_t sum = 0;
    for (size_t i = 0; i < bauta_model_tensor_count(s->model); i++) {
        bauta_tensor t = tensor_at(s->model, i);
        bauta_tensor named = BAUTA_TENSOR_INIT;
        assert_int_equal(t.count, t.shape[0] * t.shape[1]);
        sum += t.count;
        assert_int_equal(
            bauta_model_find_tensor(s->model, t.name, &named, NULL), 0);
        assert_memory_equal(&named, &t, sizeof(t));
    }
    assert_true(sum == bauta_model_parameter_count(s->model));
}

static void model_getters_return_the_config(void **state)
{
    (void)state;
    each_folder(describe_and_count, false);
    temp_folder s = temp_folder_create();
    char path[512];
    tiny_write(&s, &tinies[3], path); // qwen2: a window from layer 1 on
    bauta_model *model = load(path, false);
    assert_int_equal(bauta_model_kind_of(model), BAUTA_DECODER_ONLY);
    assert_int_equal(bauta_model_encoder_layers(model), 0);
    assert_int_equal(bauta_model_decoder_layers(model), 3);
    assert_int_equal(bauta_model_sliding_window(model, 0), 0);
    assert_int_equal(bauta_model_sliding_window(model, 2), 3);
    assert_int_equal(bauta_model_max_positions(model), 96);
    assert_int_equal(bauta_model_hidden_size(model), 16);
    assert_false(bauta_model_trainable(model));
    assert_string_equal(bauta_model_kind_text((bauta_model_kind)7),
                        "unknown kind");
    bauta_model_free(model);
    bauta_model_free(NULL);
    temp_folder_free(&s);
}

static void nothing_in_nothing_out(fixture *s)
{
    bauta_batch none = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    double loss = 1;
    size_t counted = 1;
    outputs.logits = s->logits;
    forward(s, &none, &none, &outputs);
    assert_int_equal(bauta_model_loss(s->context, s->model,
                                      has_source(s) ? &none : NULL,
                                      has_target(s) ? &none : NULL, NULL, NULL,
                                      &loss, &counted, NULL),
                     0);
    assert_true(loss == 0.0);
    assert_int_equal(counted, 0);
}

static void a_batch_may_be_empty(void **state)
{
    (void)state;
    each_folder(nothing_in_nothing_out, true);
}

/* ---- against transformers ------------------------------------------------ */

/* The unit and the bound are derived in test_model.c. */
enum { BOUND = 160 };

static uint32_t *golden_ids(const tensors *file, const char *name, size_t *rows,
                            size_t *time)
{
    tensor t;
    if (!tensor_read(&t, file, name))
        return NULL;
    uint32_t *ids = malloc(t.count * sizeof(*ids));
    assert_non_null(ids);
    for (size_t i = 0; i < t.count; i++)
        ids[i] = (uint32_t)((const int64_t *)t.data)[i];
    *rows = t.dims[0];
    *time = t.dims[1];
    tensor_release(&t);
    return ids;
}

/* Ones in the attention mask; all where there is none. */
static void golden_lengths(const tensors *file, size_t *out, size_t rows,
                           size_t time)
{
    tensor t;
    bool given = tensor_read(&t, file, "attention_mask");
    for (size_t b = 0; b < rows; b++) {
        out[b] = 0;
        for (size_t i = 0; i < time; i++)
            out[b] += !given || ((const int64_t *)t.data)[b * time + i] != 0;
    }
    if (given)
        tensor_release(&t);
}

static void golden_compare(const tensors *file, const float *got,
                           const bauta_batch *batch)
{
    tensor want;
    double size = 0, error = 0;
    assert_true(tensor_read(&want, file, "logits"));
    const float *w = want.data;
    size_t columns = want.dims[2];
    for (size_t i = 0; i < want.count; i++) {
        size_t row = i / columns, sequence = row / batch->stride;
        size_t length =
            batch->lengths ? batch->lengths[sequence] : batch->stride;
        if (row % batch->stride >= length)
            continue;
        size = fmax(size, fabs((double)w[i]));
        error = fmax(error, fabs((double)w[i] - (double)got[i]));
    }
    if (!(error <= BOUND * 0x1p-24 * size))
        fail_msg("logits: error %g of %g", error, size);
    printf("error %.1f units\n", error / (size * 0x1p-24));
    tensor_release(&want);
}

static void golden_run(fixture *s)
{
    enum { ROWS = 16 };
    char path[600];
    size_t rows = 0, time = 0, source_lengths[ROWS];
    snprintf(path, sizeof(path), "%s/golden.safetensors", s->path);
    tensors *file = tensors_load(path);
    if (!file)
        return;
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_batch *first = has_source(s) ? &source : &target;
    uint32_t *ids = golden_ids(file, "input_ids", &rows, &time);
    assert_true(ids && rows <= ROWS);
    golden_lengths(file, source_lengths, rows, time);
    first->ids = ids;
    first->count = rows;
    first->stride = time;
    first->lengths = source_lengths;
    uint32_t *types = golden_ids(file, "token_type_ids", &rows, &time);
    first->token_types = types;
    uint32_t *more = NULL;
    if (has_source(s) && has_target(s)) {
        more = golden_ids(file, "decoder_input_ids", &rows, &time);
        target.ids = more;
        target.count = rows;
        target.stride = time; // all tokens are real
    }
    float *logits =
        floats_create(rows * time * bauta_model_vocab_size(s->model));
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = logits;
    forward(s, &source, &target, &outputs);
    golden_compare(file, logits, has_target(s) ? &target : &source);
    free(logits);
    free(ids);
    free(types);
    free(more);
    tensors_free(file);
}

static void logits_agree_with_transformers(void **state)
{
    (void)state;
    each_folder(golden_run, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_padded_and_alone_give_the_same_bits),
        cmocka_unit_test(forward_equals_the_internal_functions),
        cmocka_unit_test(loss_and_gradients_equal_the_internal_functions),
        cmocka_unit_test(gradients_are_added_until_zeroed),
        cmocka_unit_test(read_only_models_have_a_loss_and_no_gradients),
        cmocka_unit_test(a_batch_mask_is_combined_with_the_models),
        cmocka_unit_test(a_saved_model_is_the_same),
        cmocka_unit_test(trained_weights_are_saved),
        cmocka_unit_test(saving_never_overwrites),
        cmocka_unit_test(a_repeated_call_allocates_nothing),
        cmocka_unit_test(threads_may_share_a_read_only_model),
        cmocka_unit_test(model_getters_return_the_config),
        cmocka_unit_test(a_batch_may_be_empty),
        cmocka_unit_test(logits_agree_with_transformers),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}

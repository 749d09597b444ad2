/* SPDX-License-Identifier: Apache-2.0 */
/* test_model.c - model folders against the results of transformers: hidden
 * states, logits, loss, gradients, and five steps of AdamW.
 *
 * The unit of error is u = 2^-24 times the largest number of the tensor: the
 * effect of one rounding. A number passes through chains of `width` to `ffn`
 * terms in each of the three parts of each layer, in both implementations. The
 * roundings of a chain of n terms add up to n units at worst and to about
 * sqrt(n) where their signs are independent; with P parts and two independent
 * computations the root-mean-square error is about sqrt(2 P n) units, and the
 * largest of some thousand numbers four times that: 157 for 2 layers and chains
 * of 128 terms.
 *
 * Weights in bfloat16 are another unit, 2^-9. There each term of a chain is
 * rounded once and independently, which moves the sum by about one unit
 * whatever its length, so n is 1. */
#include "attention_problem.h"
#include "data.h"
#include "host_tensors.h"
#include "model/model_store.h"
#include "model/transformer.h"
#include "model_folders.h"

enum { NAME = 256 };

/* Folders whose goldens are another's, since the weights are. */
static const struct {
    const char *path, *golden;
    bool rounded; /* to bfloat16 */
} copies[] = {
    { "hf-tiny-random/llama-gqa-sharded", "hf-tiny-random/llama-gqa", false },
    { "hf-tiny-random/llama-gqa-bf16", "hf-tiny-random/llama-gqa", true },
};

static double unit = 0x1p-24, bound; /* see above */
static double worst; /* error in units, of all that was compared */

/* One golden file with its padded batch. */
typedef struct golden {
    tensors *file;
    size_t batch, time;
    uint32_t *ids, *positions, *types, *labels;
    size_t *lengths;
} golden;

static tensor golden_need(const golden *g, const char *name)
{
    tensor t;
    if (!tensor_read(&t, g->file, name))
        fail_msg("no tensor %s", name);
    return t;
}

static uint32_t *golden_numbers(const golden *g, const char *name,
                                size_t *batch, size_t *time)
{
    tensor t = golden_need(g, name);
    const int64_t *from = t.data;
    uint32_t *numbers = calloc(t.count, sizeof(*numbers));
    assert_non_null(numbers);
    for (size_t i = 0; i < t.count; i++)
        numbers[i] = from[i] < 0 ? BT_IGNORE_INDEX : (uint32_t)from[i];
    *batch = t.rank > 1 ? t.dims[0] : 1;
    *time = t.dims[t.rank - 1];
    tensor_release(&t);
    return numbers;
}

/* The real tokens of each sequence, from a mask of ones and zeros. */
static size_t *golden_lengths(const golden *g, size_t batch, size_t time)
{
    tensor t;
    size_t *lengths = calloc(batch, sizeof(*lengths));
    assert_non_null(lengths);
    bool given = tensor_read(&t, g->file, "attention_mask");
    for (size_t b = 0; b < batch; b++)
        for (size_t i = 0; i < time; i++)
            lengths[b] += !given || ((int64_t *)t.data)[b * time + i] != 0;
    if (given)
        tensor_release(&t);
    return lengths;
}

/* Errors are relative to the largest number, or to `size` if that is larger. */
static void compare(const char *what, const tensor *want, const float *got,
                    size_t time, const size_t *lengths, double size)
{
    const float *w = want->data;
    size_t columns = want->dims[want->rank - 1];
    double error = 0;
    for (size_t i = 0; i < want->count; i++) {
        size_t row = i / columns;
        if (lengths && row % time >= lengths[row / time])
            continue;
        size = fmax(size, fabs((double)w[i]));
        error = fmax(error, fabs((double)w[i] - (double)got[i]));
        if (isnan(got[i]))
            fail_msg("%s[%zu] is NaN", what, i);
    }
    double units = size > 0 ? error / (size * unit) : error;
    worst = fmax(worst, units);
    if (units > bound)
        fail_msg("%s: %.1f units, error %g of %g", what, units, error, size);
}

/* ---- a batch ------------------------------------------------------------- */

typedef struct batch {
    golden g;
    const char *prefix; /* of the names of the hidden states */
    bt_attention_plan *plan, *window, *cross;
    bt_forward_input input;
    bt_tensor *states[16];
} batch;

static bauta_mask *both(bauta_mask *a, bauta_mask *b)
{
    bauta_mask *out = NULL;
    assert_int_equal(bauta_mask_and(&out, a, b, NULL), 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return out;
}

static bauta_mask *padding(const golden *g)
{
    bauta_mask *mask = NULL;
    assert_int_equal(bauta_mask_lengths(&mask, g->batch, g->time, g->time, NULL,
                                        g->lengths, NULL),
                     0);
    return mask;
}

static bauta_mask *causal(const golden *g, size_t window)
{
    bauta_mask *mask = NULL;
    size_t n = g->batch * g->time;
    assert_int_equal(window ? bauta_mask_window(&mask, n, n, window, NULL)
                            : bauta_mask_causal(&mask, n, n, NULL),
                     0);
    return mask;
}

/* Read the ids called `ids`; all tokens are real unless `padded`. */
static void batch_init(batch *b, tensors *file, const char *ids, bool padded,
                       bool is_causal, const bt_model_config *config)
{
    golden *g = &b->g;
    *b = (batch){ .g = { .file = file } };
    g->ids = golden_numbers(g, ids, &g->batch, &g->time);
    g->lengths = golden_lengths(g, g->batch, g->time);
    size_t n = g->batch * g->time, unused;
    g->positions = calloc(n, sizeof(*g->positions));
    assert_non_null(g->positions);
    for (size_t i = 0; i < n; i++)
        g->positions[i] = (uint32_t)(i % g->time);
    for (size_t s = 0; s < g->batch && !padded; s++)
        g->lengths[s] = g->time;
    tensor types;
    if (tensor_read(&types, file, "token_type_ids")) {
        tensor_release(&types);
        g->types = golden_numbers(g, "token_type_ids", &unused, &unused);
    }
    b->plan =
        test_plan(is_causal ? both(padding(g), causal(g, 0)) : padding(g));
    if (config->window)
        b->window = test_plan(both(padding(g), causal(g, config->window)));
    b->input = (bt_forward_input){ .tokens = n,
                                   .ids = g->ids,
                                   .positions = g->positions,
                                   .token_types = g->types,
                                   .plans = { [BT_SLOT_ENCODER] = b->plan,
                                              [BT_SLOT_DECODER] = b->plan,
                                              [BT_SLOT_WINDOW] = b->window },
                                   .hidden_states = b->states };
}

static void batch_release(batch *b)
{
    bt_cpu_plan_free(b->plan);
    bt_cpu_plan_free(b->window);
    bt_cpu_plan_free(b->cross);
    free(b->g.ids);
    free(b->g.positions);
    free(b->g.types);
    free(b->g.lengths);
}

/* ---- a model on its golden batch ----------------------------------------- */

typedef struct subject {
    bt_model_store *folder;
    tensors *file;
    bt_tape *tape;
    batch encoder,
        decoder;      /* the tokens of both sides, if the model has them */
    uint32_t *labels; /* shifted where the model predicts the next */
} subject;

static bt_stacks stacks_of(const subject *s)
{
    return s->folder->model->config.stacks;
}

static batch *top_batch(subject *s)
{
    return stacks_of(s) == BT_ENCODER_ONLY ? &s->encoder : &s->decoder;
}

/* Each position's label is the next token's for a decoder alone. */
static void labels_read(subject *s)
{
    size_t rows, time;
    batch *b = top_batch(s);
    if (!tensors_have(s->file, "labels"))
        return;
    s->labels = golden_numbers(&b->g, "labels", &rows, &time);
    if (stacks_of(s) != BT_DECODER_ONLY)
        return;
    for (size_t i = 0; i < rows * time; i++)
        s->labels[i] = i % time + 1 < time ? s->labels[i + 1] : BT_IGNORE_INDEX;
}

static void subject_cross(subject *s)
{
    bauta_mask *mask = NULL;
    const golden *e = &s->encoder.g, *d = &s->decoder.g;
    assert_int_equal(bauta_mask_lengths(&mask, d->batch, d->time, e->time,
                                        d->lengths, e->lengths, NULL),
                     0);
    s->decoder.cross = test_plan(mask);
    s->decoder.input.plans[BT_SLOT_CROSS] = s->decoder.cross;
}

static tensors *file_need(const char *path, const char *file)
{
    char name[NAME + 40];
    snprintf(name, sizeof(name), "%s/%s", path, file);
    tensors *found = tensors_load(name);
    if (!found)
        fail_msg("%s cannot be read", name);
    return found;
}

/* The bound of errors in units; see the top. */
static double bound_of(const bt_model_config *config, bool rounded)
{
    const bt_stack_config *e = &config->encoder, *d = &config->decoder;
    double parts = 3.0 * (double)(e->layers + d->layers);
    size_t chain = e->ffn_dim > d->ffn_dim ? e->ffn_dim : d->ffn_dim;
    if (config->width > chain)
        chain = config->width;
    return 4 * sqrt(2 * parts * (rounded ? 1.0 : (double)chain));
}

static void subject_init(subject *s, const char *path, const char *golden_path,
                         bt_load_mode load)
{
    bauta_error err;
    *s = (subject){ 0 };
    if (bt_model_store_load(&s->folder, path, load, &err))
        fail_msg("%s", err.message);
    const bt_model_config *config = &s->folder->model->config;
    bound = bound_of(config, unit > 0x1p-24);
    s->file = file_need(golden_path, "golden.safetensors");
    s->tape = test_tape(NULL, 2, false);
    if (config->stacks == BT_DECODER_ONLY) {
        batch_init(&s->decoder, s->file, "input_ids", true, true, config);
        s->decoder.prefix = "hidden_states";
    } else {
        batch_init(&s->encoder, s->file, "input_ids", true, false, config);
        s->encoder.prefix = "hidden_states";
    }
    if (config->stacks == BT_ENCODER_DECODER) {
        batch_init(&s->decoder, s->file, "decoder_input_ids", false, true,
                   config);
        s->encoder.prefix = "encoder_hidden_states";
        s->decoder.prefix = "decoder_hidden_states";
        subject_cross(s);
    }
    labels_read(s);
}

static void subject_release(subject *s)
{
    bt_model_store_free(s->folder);
    tensors_free(s->file);
    test_tape_free(s->tape);
    batch_release(&s->encoder);
    batch_release(&s->decoder);
    free(s->labels);
}

/* The output of the last stack. */
static bt_tensor *run(subject *s, bool recording)
{
    bt_model *model = s->folder->model;
    bt_tensor *x = NULL;
    bt_tape_rewind(s->tape, recording);
    if (stacks_of(s) != BT_DECODER_ONLY)
        x = bt_transformer_encode(s->tape, model, &s->encoder.input);
    if (stacks_of(s) != BT_ENCODER_ONLY)
        x = bt_transformer_decode(s->tape, model, &s->decoder.input, x);
    return x;
}

static bt_loss loss_of(subject *s, bt_tensor *x)
{
    bt_model *model = s->folder->model;
    bauta_error err;
    bt_loss loss = bt_op_cross_entropy(
        s->tape, bt_transformer_head_transform(s->tape, model, x),
        bt_transformer_head_weight(model), false,
        bt_transformer_head_bias(model), model->config.head_softcap, s->labels,
        NULL, 0, 1);
    bt_loss_read(s->tape, &loss);
    if (bt_tape_status(s->tape, &err))
        fail_msg("%s", err.message);
    return loss;
}

static void states_compare(const batch *b, size_t layers)
{
    for (size_t l = 0; l <= layers; l++) {
        char name[64];
        snprintf(name, sizeof(name), "%s.%zu", b->prefix, l);
        if (!tensors_have(b->g.file, name))
            continue;
        tensor want = golden_need(&b->g, name);
        compare(name, &want, tensor_data(b->states[l]), b->g.time, b->g.lengths,
                0);
        tensor_release(&want);
    }
}

static void forward_compare(subject *s)
{
    const bt_model_config *config = &s->folder->model->config;
    bauta_error err;
    bt_tensor *logits =
        bt_transformer_logits(s->tape, s->folder->model, run(s, false));
    if (bt_tape_status(s->tape, &err))
        fail_msg("%s", err.message);
    if (stacks_of(s) != BT_DECODER_ONLY)
        states_compare(&s->encoder, config->encoder.layers);
    if (stacks_of(s) != BT_ENCODER_ONLY)
        states_compare(&s->decoder, config->decoder.layers);
    const golden *g = &top_batch(s)->g;
    tensor want = golden_need(g, "logits");
    compare("logits", &want, tensor_data(logits), g->time, g->lengths, 0);
    tensor_release(&want);
}

static void loss_compare(const subject *s, const char *name, size_t index,
                         double loss)
{
    tensor want;
    assert_true(tensor_read(&want, s->file, name));
    double expected = (double)((float *)want.data)[index];
    double units = fabs(loss - expected) / (expected * unit);
    worst = fmax(worst, units);
    if (units > bound)
        fail_msg("%s[%zu]: %.9f, not %.9f", name, index, loss, expected);
    tensor_release(&want);
}

typedef struct parameter_names {
    tensors *file, *grads;
    double size;
} parameter_names;

/* The gradient of a key's bias is 0 by symmetry: it shifts all scores of a row
 * equally, which the softmax ignores. The computed value is only rounding of
 * terms as large as the gradients of other vectors, so that is its measure. */
static void name_measure(void *user, const char *name, bt_tensor *t, int rank)
{
    parameter_names *n = user;
    tensor want;
    (void)t;
    if (rank != 1 || !tensor_read(&want, n->file, name))
        return;
    for (size_t i = 0; i < want.count; i++)
        n->size = fmax(n->size, fabs((double)((float *)want.data)[i]));
    tensor_release(&want);
}

/* Where a key's bias is in the parameter of this name: [first, end). */
static bool key_bias(const char *name, size_t count, size_t *first, size_t *end)
{
    bool fused = strstr(name, ".c_attn.bias");
    *first = fused ? count / 3 : 0;
    *end = fused ? 2 * count / 3 : count;
    return fused || strstr(name, ".key.bias") || strstr(name, ".k_proj.bias");
}

static void name_compare(void *user, const char *name, bt_tensor *t, int rank)
{
    parameter_names *n = user;
    tensor want;
    size_t first, end;
    (void)rank;
    if (!t->requires_grad)
        return;
    assert_true(tensor_read(&want, n->file, name));
    bool key = key_bias(name, want.count, &first, &end);
    compare(name, &want, tensor_gradient(t), 1, NULL, key ? n->size : 0);
    tensor_release(&want);
}

static void gradients_compare(subject *s, const char *path)
{
    bauta_error err;
    bt_loss loss = loss_of(s, run(s, true));
    loss_compare(s, "loss", 0, loss.loss);
    assert_int_equal(bt_tape_backward(s->tape, &err), 0);
    parameter_names n = { .file = file_need(path, "grads.safetensors") };
    bt_model_store_visit(s->folder, &(bt_tensor_visitor){ name_measure, &n });
    bt_model_store_visit(s->folder, &(bt_tensor_visitor){ name_compare, &n });
    tensors_free(n.file);
}

/* ---- five steps ---------------------------------------------------------- */

/* Adam divides a gradient by the root of its mean square, so that the step has
 * the length of the learning rate whatever the gradient's size. An error dg of
 * a gradient g moves the step by about rate * dg / |g|, and at most by twice
 * its length, in each of the five steps. dg is `bound` units, a unit being u
 * times the largest gradient of the tensor. So weights whose gradient is only
 * rounding, as of a key's bias, may go anywhere within the steps. */
static void name_stepped(void *user, const char *name, bt_tensor *t, int rank)
{
    parameter_names *n = user;
    tensor want, grad;
    double size = 0;
    size_t first, end;
    (void)rank;
    if (!t->requires_grad)
        return;
    assert_true(tensor_read(&want, n->file, name));
    assert_true(tensor_read(&grad, n->grads, name));
    const float *w = want.data, *g = grad.data;
    for (size_t i = 0; i < grad.count; i++)
        size = fmax(size, fabs((double)g[i]));
    if (key_bias(name, want.count, &first, &end))
        size = INFINITY;
    for (size_t i = 0; i < want.count; i++) {
        double stray = bound * unit * size / fabs((double)g[i]);
        double most = 5e-3 * fmin(2, stray) + bound * unit * fabs((double)w[i]);
        double error = fabs((double)w[i] - (double)tensor_data(t)[i]);
        if (!(error <= most))
            fail_msg("%s[%zu]: %.9g, not %.9g, bound %.3g", name, i,
                     (double)tensor_data(t)[i], (double)w[i], most);
    }
    tensor_release(&want);
    tensor_release(&grad);
}

static void steps_compare(subject *s, const char *path)
{
    bauta_error err;
    trained l = { .count = 0 };
    bt_optimizer *optimizer = NULL;
    bt_optimizer_options options = BT_OPTIMIZER_OPTIONS_INIT;
    trained_collect(&l, s->folder);
    assert_int_equal(bt_optimizer_create(&optimizer, bt_tape_stream(s->tape),
                                         l.all, l.count, &options, &err),
                     0);
    for (size_t step = 0; step < 5; step++) {
        double norm;
        assert_int_equal(bt_optimizer_zero(optimizer, &err), 0);
        loss_compare(s, "adamw_losses", step, loss_of(s, run(s, true)).loss);
        assert_int_equal(bt_tape_backward(s->tape, &err), 0);
        assert_int_equal(bt_optimizer_step(optimizer, 1e-3, &norm, &err), 0);
    }
    bt_optimizer_free(optimizer);
    parameter_names n = { .file = file_need(path, "after-adamw5.safetensors"),
                          .grads = file_need(path, "grads.safetensors") };
    bt_model_store_visit(s->folder, &(bt_tensor_visitor){ name_stepped, &n });
    tensors_free(n.file);
    tensors_free(n.grads);
}

static void forward_agrees(const char *path, const char *golden_path)
{
    subject s;
    subject_init(&s, path, golden_path, BT_LOAD_MAPPED);
    forward_compare(&s);
    subject_release(&s);
}

static void training_agrees(const char *path)
{
    subject s;
    subject_init(&s, path, path, BT_LOAD_TRAINABLE);
    if (s.labels)
        gradients_compare(&s, path);
    subject_release(&s);
    subject_init(&s, path, path, BT_LOAD_TRAINABLE);
    if (s.labels)
        steps_compare(&s, path);
    subject_release(&s);
}

static void report_error(const char *name)
{
    printf("%-40s worst error %.1f units of %.0f\n", name, worst, bound);
    worst = 0;
}

static void folders_agree(void **state)
{
    (void)state;
    size_t missing = 0;
    for (size_t i = 0; i < BT_LEN(test_folders); i++) {
        char path[NAME];
        if (!test_folder_path(path, sizeof(path), i)) {
            missing++;
            continue;
        }
        forward_agrees(path, path);
        training_agrees(path);
        report_error(test_folders[i].path);
    }
    if (missing)
        printf("%zu folders are not there and were skipped\n", missing);
}

static void other_weight_formats_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(copies); i++) {
        char path[NAME], golden_path[NAME];
        if (!test_data_path(path, sizeof(path), copies[i].path) ||
            !test_data_path(golden_path, sizeof(golden_path), copies[i].golden))
            skip();
        unit = copies[i].rounded ? 0x1p-9 : 0x1p-24;
        forward_agrees(path, golden_path);
        report_error(copies[i].path);
        unit = 0x1p-24;
    }
}

static void unsupported_configs_are_refused(void **state)
{
    static const struct {
        const char *path, *message;
    } cases[] = {
        { "hf-tiny-random/gpt2-pytorch-bin", "from_pretrained" },
    };
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        char path[NAME];
        bauta_error err = { BAUTA_OK, "" };
        bt_model_store *folder = NULL;
        if (!test_data_path(path, sizeof(path), cases[i].path))
            skip();
        assert_int_not_equal(
            bt_model_store_load(&folder, path, BT_LOAD_MAPPED, &err), BAUTA_OK);
        assert_null(folder);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].path, err.message);
    }
}

/* The config of a folder in the tree with one word changed, alone in a folder
 * of its own; loading it gives this error. */
static void changed_config_load(bauta_error *err, const char *from,
                                const char *word, const char *other)
{
    char path[NAME], text[4096] = "", folder[] = "/tmp/bauta-config-XXXXXX";
    bt_model_store *loaded = NULL;
    FILE *file = fopen(test_tree_path(path, sizeof(path), from), "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) < sizeof(text) - 1);
    fclose(file);
    char *at = strstr(text, word);
    assert_non_null(at);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, other, at + strlen(word));
    fclose(file);
    assert_int_not_equal(
        bt_model_store_load(&loaded, folder, BT_LOAD_MAPPED, err), BAUTA_OK);
    remove(path);
    remove(folder);
}

static void layer_types_that_differ_are_refused(void **state)
{
    bauta_error err = { BAUTA_OK, "" };
    (void)state;
    changed_config_load(&err, "models/qwen2-window3/config.json",
                        "full_attention", "sliding_attention");
    assert_int_equal(err.status, BAUTA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "layer_types"));
    // The list is refused, not the missing weights.
    changed_config_load(&err, "models/qwen2-window3/config.json",
                        "\"layer_types\"", "\"other\"");
    assert_null(strstr(err.message, "layer_types"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_agree),
        cmocka_unit_test(other_weight_formats_agree),
        cmocka_unit_test(unsupported_configs_are_refused),
        cmocka_unit_test(layer_types_that_differ_are_refused),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}

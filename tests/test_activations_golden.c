/* SPDX-License-Identifier: Apache-2.0 */
/* test_activations_golden.c - all intermediate activations of a small GPT.
 *
 * minGPT's model that sorts digits comes with all intermediate activations of
 * its first block for a batch of three: norms, queries, keys, values, softmax,
 * activations. The test runs the block op by op, and the model as a whole, and
 * compares both with them. The JSON has each as base64 of float32.
 *
 * Bound: see test_model.c; here one layer, chains of at most 192 terms. */
#include "attention_problem.h"
#include "data.h"
#include "host_tensors.h"
#include "model/model_store.h"
#include "model/transformer.h"

#include <jansson.h>

enum { BATCH = 3, TIME = 11, ROWS = BATCH * TIME, LAYERS = 3, BOUND = 136 };

static double worst;

/* ---- the file ------------------------------------------------------------ */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Decode `count` floats, little endian as this machine is. */
static float *floats_decode(const char *text, size_t count)
{
    unsigned char *bytes = malloc(count * sizeof(float) + 3);
    uint32_t bits = 0;
    size_t filled = 0, have = 0;
    assert_non_null(bytes);
    for (; *text && base64_digit(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)base64_digit(*text);
        have += 6;
        if (have >= 8 && filled < count * sizeof(float)) {
            have -= 8;
            bytes[filled++] = (unsigned char)(bits >> have);
        }
    }
    assert_int_equal(filled, count * sizeof(float));
    return (float *)bytes;
}

/* One activation as a matrix with one row a token. Activations stored per head,
 * (batch, heads, time, columns), are transposed. */
static float *partial_read(const json_t *root, const char *name, size_t columns)
{
    const json_t *entry = json_object_get(root, name);
    const json_t *shape = json_object_get(entry, "shape");
    size_t rank = json_array_size(shape);
    float *x = floats_decode(json_string_value(json_object_get(entry, "data")),
                             ROWS * columns);
    if (rank < 4)
        return x;
    size_t heads = (size_t)json_integer_value(json_array_get(shape, 1));
    size_t dim = columns / heads;
    float *turned = malloc(ROWS * columns * sizeof(float));
    assert_non_null(turned);
    for (size_t i = 0; i < ROWS * columns; i++) {
        size_t row = i / columns, h = i % columns / dim, c = i % dim;
        size_t b = row / TIME, t = row % TIME;
        turned[i] = x[((b * heads + h) * TIME + t) * dim + c];
    }
    free(x);
    return turned;
}

static void compare(const json_t *root, const char *name, const bt_tensor *got)
{
    double error = 0, size = 0;
    assert_non_null(got);
    const float *have = tensor_data(got);
    float *want = partial_read(root, name, got->columns);
    for (size_t i = 0; i < ROWS * got->columns; i++) {
        if (isnan(have[i]))
            fail_msg("%s[%zu] is NaN", name, i);
        error = fmax(error, fabs((double)want[i] - (double)have[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    free(want);
    double units = error / (size * 0x1p-24);
    worst = fmax(worst, units);
    if (units > BOUND)
        fail_msg("%s: %.1f units", name, units);
}

/* ---- the model ----------------------------------------------------------- */

typedef struct golden_model {
    json_t *root;
    bt_model_store *folder;
    bt_tape *tape;
    bt_attention_plan *plan;
    uint32_t ids[ROWS], positions[ROWS];
} golden_model;

static bt_attention_plan *batch_plan(void)
{
    bauta_mask *one = NULL, *all = NULL;
    assert_int_equal(bauta_mask_causal(&one, TIME, TIME, NULL), 0);
    const bauta_mask *masks[BATCH] = { one, one, one };
    assert_int_equal(bauta_mask_pack(&all, BATCH, masks, NULL), 0);
    bauta_mask_free(one);
    return test_plan(all);
}

static bool golden_model_init(golden_model *n)
{
    char path[256], partials[256];
    bauta_error err;
    *n = (golden_model){ .root = NULL };
    if (!test_data_path(path, sizeof(path), "gpt-nano-sort-hf") ||
        !test_data_path(partials, sizeof(partials),
                        "gpt-nano-sort/partials.json"))
        return false;
    n->root = json_load_file(partials, 0, NULL);
    assert_non_null(n->root);
    if (bt_model_store_load(&n->folder, path, BT_LOAD_MAPPED, &err))
        fail_msg("%s", err.message);
    n->tape = test_tape(NULL, 2, false);
    n->plan = batch_plan();
    float *ids = partial_read(n->root, "idx", 1);
    for (size_t i = 0; i < ROWS; i++) {
        n->ids[i] = (uint32_t)ids[i];
        n->positions[i] = (uint32_t)(i % TIME);
    }
    free(ids);
    return true;
}

static void golden_model_release(golden_model *n)
{
    json_decref(n->root);
    bt_model_store_free(n->folder);
    test_tape_free(n->tape);
    bt_cpu_plan_free(n->plan);
}

static void stack_agrees(void **state)
{
    golden_model n;
    bt_tensor *states[LAYERS + 1];
    (void)state;
    if (!golden_model_init(&n))
        skip();
    bt_forward_input input = { .tokens = ROWS,
                               .ids = n.ids,
                               .positions = n.positions,
                               .plans = { [BT_SLOT_DECODER] = n.plan },
                               .hidden_states = states };
    bt_model *model = n.folder->model;
    bt_tensor *x = bt_transformer_decode(n.tape, model, &input, NULL);
    compare(n.root, "x", states[0]);
    compare(n.root, "block0", states[1]);
    compare(n.root, "block1", states[2]);
    compare(n.root, "ln_f", x); // the output of the last block is normalised
    compare(n.root, "lm_head", bt_transformer_logits(n.tape, model, x));
    printf("worst error %.1f units\n", worst);
    golden_model_release(&n);
}

/* ---- one block, op by op ------------------------------------------------- */

static bt_tensor *norm(golden_model *n, bt_tensor *x, bt_norm_params *s)
{
    return bt_op_norm(n->tape, x, &s->gain, &s->bias, BT_NORM_LAYER,
                      n->folder->model->config.epsilon, 1);
}

static bt_tensor *dense(golden_model *n, bt_tensor *x, bt_linear_params *d)
{
    return bt_op_linear(n->tape, x, &d->w, true, &d->bias);
}

/* If the value of key t is the unit vector t, the output of attention is the
 * softmax itself. */
static bt_tensor *softmax(golden_model *n, bt_tensor *q, bt_tensor *k,
                          size_t heads)
{
    bt_tensor *v = bt_tape_output(n->tape, ROWS, heads * TIME, false);
    assert_non_null(v);
    for (size_t i = 0; i < ROWS * heads * TIME; i++)
        tensor_data(v)[i] = i / (heads * TIME) % TIME == i % TIME ? 1.0f : 0.0f;
    return bt_op_attention(n->tape, q, k, v, n->plan, heads, heads, 0, NULL);
}

static bt_tensor *attention(golden_model *n, bt_tensor *x, bt_layer *layer)
{
    size_t heads = n->folder->model->config.decoder.heads;
    bt_tensor *ln1 = norm(n, x, &layer->self_norm);
    bt_tensor *q = dense(n, ln1, &layer->self.q);
    bt_tensor *k = dense(n, ln1, &layer->self.k);
    bt_tensor *v = dense(n, ln1, &layer->self.v);
    bt_tensor *y =
        bt_op_attention(n->tape, q, k, v, n->plan, heads, heads, 0, NULL);
    bt_tensor *projected = dense(n, y, &layer->self.out);
    compare(n->root, "ln1", ln1);
    compare(n->root, "q", q);
    compare(n->root, "k", k);
    compare(n->root, "v", v);
    compare(n->root, "attSm", softmax(n, q, k, heads));
    compare(n->root, "y", y);
    compare(n->root, "yProj", projected);
    return bt_op_add(n->tape, x, projected);
}

static bt_tensor *feed_forward(golden_model *n, bt_tensor *x, bt_layer *layer)
{
    bt_tensor *ln2 = norm(n, x, &layer->ffn_norm);
    bt_tensor *up = dense(n, ln2, &layer->up);
    bt_tensor *gelu = bt_op_act(n->tape, up, BT_ACT_GELU_TANH);
    bt_tensor *mlp = dense(n, gelu, &layer->down);
    compare(n->root, "ln2", ln2);
    compare(n->root, "fc", up);
    compare(n->root, "gelu", gelu);
    compare(n->root, "mlp", mlp);
    return bt_op_add(n->tape, x, mlp);
}

static void every_op_of_the_first_block_agrees(void **state)
{
    golden_model n;
    (void)state;
    if (!golden_model_init(&n))
        skip();
    bt_model *model = n.folder->model;
    bt_layer *layer = &model->decoder.layers[0];
    bt_tensor *token = bt_op_embedding(n.tape, &model->tokens, n.ids, ROWS,
                                       1.0f, BT_IGNORE_INDEX);
    bt_tensor *place =
        bt_op_embedding(n.tape, &model->decoder.positions, n.positions, ROWS,
                        1.0f, BT_IGNORE_INDEX);
    bt_tensor *x = attention(&n, bt_op_add(n.tape, token, place), layer);
    compare(n.root, "tok_emb", token);
    compare(n.root, "attnResid", x);
    compare(n.root, "mlpResid", feed_forward(&n, x, layer));
    printf("worst error %.1f units\n", worst);
    golden_model_release(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stack_agrees),
        cmocka_unit_test(every_op_of_the_first_block_agrees),
    };
    return cmocka_run_group_tests_name("activations_golden", tests, NULL, NULL);
}

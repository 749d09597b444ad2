/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_finite.c - bauta_model_check_finite() names the first layer that
 * gives NaN or infinity. */
#include "bauta.h"
#include "tiny_models.h"

#include <math.h>

typedef struct bad_weight {
    const char *model;
    const char *tensor; /* NULL: none */
    float number;
    const char *message; /* NULL: all is finite */
} bad_weight;

static const bad_weight bad_weights[] = {
    { "gpt2", NULL, 0, NULL },
    { "gpt2", "transformer.wpe.weight", NAN,
      "the embeddings of the decoder give NaN at token 0 of sequence 0; tensor "
      "transformer.wpe.weight holds NaN" },
    { "gpt2", "transformer.h.1.mlp.c_fc.bias", INFINITY,
      "decoder layer 1 gives NaN at token 0 of sequence 0; tensor "
      "transformer.h.1.mlp.c_fc.bias holds infinity" },
    { "llama", "model.layers.0.self_attn.v_proj.weight", NAN,
      "decoder layer 0 gives NaN" },
    { "llama", "model.layers.2.mlp.down_proj.weight", NAN,
      "decoder layer 2 gives NaN" },
    { "llama", "lm_head.weight", NAN,
      "the head gives NaN for id 0 at token 0" },
    // It overflows, although every weight is finite.
    { "llama", "model.layers.1.input_layernorm.weight", 3e38f,
      "decoder layer 1 gives " },
    { "bert", "bert.encoder.layer.1.output.dense.bias", NAN,
      "encoder layer 1 gives NaN" },
    { "bert", "cls.predictions.transform.dense.bias", NAN,
      "the head gives NaN for id 0 at token 0 of sequence 0; tensor "
      "cls.predictions.transform.dense.bias holds NaN" },
    { "bert", "cls.predictions.bias", -INFINITY, NULL },
    { "marian", "model.encoder.layers.1.fc1.bias", NAN,
      "encoder layer 1 gives NaN" },
    { "bart", "model.decoder.layers.2.encoder_attn.v_proj.bias", NAN,
      "decoder layer 2 gives NaN" },
};

static void folder_write(temp_folder *s, const bad_weight *p, char path[512])
{
    static tiny_weights w;
    char file[600];
    size_t t = 0, found = 0;
    while (strcmp(tinies[t].name, p->model) != 0)
        t++;
    snprintf(path, 512, "%s", temp_folder_path(s, p->model));
    assert_int_equal(mkdir(path, 0777), 0);
    tiny_file(path, "config.json", tinies[t].config, strlen(tinies[t].config));
    tiny_weights_init(&w, path);
    for (size_t i = 0; p->tensor && i < w.count; i++)
        if (strcmp(w.names[i], p->tensor) == 0) {
            float *data = (float *)(uintptr_t)w.tensors[i].data;
            for (size_t k = 0; k < w.tensors[i].bytes / sizeof(float); k++)
                data[k] = p->number;
            found++;
        }
    assert_int_equal(found, p->tensor != NULL);
    int length = snprintf(file, sizeof(file), "%s/model.safetensors", path);
    assert_true(length > 0 && (size_t)length < sizeof(file));
    assert_int_equal(
        bt_safetensors_write(file, w.tensors, w.count, NULL, 0, NULL), 0);
    tiny_weights_release(&w);
}

static void the_first_layer_is_named(void **state)
{
    static const uint32_t ids[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    static const size_t lengths[] = { 3, 5 };
    bauta_context *context;
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    (void)state;
    batch.count = 2;
    batch.lengths = lengths;
    batch.ids = ids;
    assert_int_equal(bauta_context_create(&context, NULL, NULL), 0);
    for (size_t i = 0; i < BT_LEN(bad_weights); i++) {
        temp_folder s = temp_folder_create();
        const bad_weight *p = &bad_weights[i];
        bauta_model *model;
        char path[512];
        folder_write(&s, p, path);
        assert_int_equal(bauta_model_load(&model, path, false, NULL), 0);
        bauta_model_kind kind = bauta_model_kind_of(model);
        bauta_status status = bauta_model_check_finite(
            context, model, kind == BAUTA_DECODER_ONLY ? NULL : &batch,
            kind == BAUTA_ENCODER_ONLY ? NULL : &batch, &err);
        if (status != (p->message ? BAUTA_ERR_NOT_FINITE : BAUTA_OK) ||
            (p->message && !strstr(err.message, p->message)))
            fail_msg("%s, %s: status %d, %s", p->model,
                     p->tensor ? p->tensor : "none", status,
                     status ? err.message : "");
        bool blame = p->message && !isfinite(p->number);
        assert_int_equal(p->message && strstr(err.message, "all weights are"),
                         p->message && !blame);
        bauta_model_free(model);
        temp_folder_free(&s);
    }
    bauta_context_free(context);
}

/* The token with NaN is found in the second sequence, after padding. */
static void tokens_are_counted_in_their_sequence(void **state)
{
    uint32_t ids[10] = { 3, 1, 4, 0, 0, 1, 5, 39, 2, 6 };
    static const size_t lengths[] = { 3, 5 };
    bauta_context *context;
    bauta_model *model;
    bauta_error err;
    bauta_tensor tokens = BAUTA_TENSOR_INIT;
    bauta_batch batch = BAUTA_BATCH_INIT;
    (void)state;
    batch.count = 2;
    batch.lengths = lengths;
    batch.stride = 5;
    batch.ids = ids;
    assert_int_equal(bauta_context_create(&context, NULL, NULL), 0);
    assert_int_equal(bauta_model_create(&model, tinies[1].config, 1, NULL), 0);
    assert_int_equal(bauta_model_tensor(model, 0, &tokens, NULL), 0);
    tokens.writable[39 * 16 + 7] = NAN;
    assert_int_equal(
        bauta_model_check_finite(context, model, NULL, &batch, &err),
        BAUTA_ERR_NOT_FINITE);
    assert_non_null(strstr(err.message, "at token 2 of sequence 1"));
    ids[7] = 38;
    assert_int_equal(
        bauta_model_check_finite(context, model, NULL, &batch, &err), 0);
    bauta_model_free(model);
    bauta_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_layer_is_named),
        cmocka_unit_test(tokens_are_counted_in_their_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

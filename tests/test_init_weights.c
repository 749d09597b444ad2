/* SPDX-License-Identifier: Apache-2.0 */
/* test_init_weights.c - the random weights of a new model. */
#include "tiny_training.h"

static bauta_model *model_of(const char *type, size_t vocab)
{
    char config[512];
    bauta_model *model;
    bauta_error err;
    snprintf(config, sizeof(config),
             "{\"model_type\": \"%s\", \"vocab_size\": %zu, "
             "\"n_embd\": 96, \"n_head\": 2, \"n_layer\": 1, "
             "\"n_positions\": 64, \"d_model\": 96, \"encoder_layers\": 1, "
             "\"decoder_layers\": 1, \"encoder_attention_heads\": 2, "
             "\"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 200, "
             "\"decoder_ffn_dim\": 200, \"max_position_embeddings\": 64}",
             type, vocab);
    must(bauta_model_create(&model, config, 7, &err), &err);
    return model;
}

/* A value is a function of the seed, its tensor and its index there. The larger
 * model has enough parameters for threads, the smaller one does not. */
static void threads_change_no_value(void **state)
{
    static const char *const types[] = { "gpt2", "bart" };
    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        bauta_model *small = model_of(types[i], 50);
        bauta_model *large = model_of(types[i], 50001);
        size_t count = bauta_model_tensor_count(small);
        assert_int_equal(bauta_model_tensor_count(large), count);
        for (size_t t = 0; t < count; t++) {
            bauta_tensor a = BAUTA_TENSOR_INIT, b = BAUTA_TENSOR_INIT;
            assert_int_equal(bauta_model_tensor(small, t, &a, NULL), 0);
            assert_int_equal(bauta_model_tensor(large, t, &b, NULL), 0);
            assert_true(b.count >= a.count);
            assert_memory_equal(a.data, b.data, a.count * sizeof(float));
        }
        bauta_model_free(large);
        bauta_model_free(small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

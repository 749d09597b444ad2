/* SPDX-License-Identifier: Apache-2.0 */
/* test_layer_mask.c - the mask of a layer follows from the config, and a
 * decoding step sees the same keys as the parallel pass. */
#include "model/layer_mask.h"

#include "base/error.h"
#include "testing.h"

enum { LAYERS = 4, SEQUENCES = 3, TOKENS = 40 };

static uint64_t seed;

/* A decoder, or an encoder and a decoder, of LAYERS layers. */
static bt_model_config config_of(size_t window, size_t window_from)
{
    return (bt_model_config){ .stacks = BT_ENCODER_DECODER,
                              .encoder = { .layers = LAYERS + 1 },
                              .decoder = { .layers = LAYERS },
                              .window = window,
                              .window_first_layer = window_from };
}

static void layer_windows_equal_the_config(void **state)
{
    static const struct {
        size_t window, from, want[LAYERS];
    } configs[] = {
        { 0, 0, { 0, 0, 0, 0 } }, // GPT-2
        { 5, 0, { 5, 5, 5, 5 } }, // Mistral
        { 5, 3, { 0, 0, 0, 5 } }, // Qwen2
        { 5, LAYERS, { 0, 0, 0, 0 } }, { 0, 2, { 0, 0, 0, 0 } },
    };
    (void)state;
    for (size_t i = 0; i < BT_LEN(configs); i++) {
        bt_model_config config = config_of(configs[i].window, configs[i].from);
        bt_batch_mask none = { .extra = NULL };
        for (size_t l = 0; l < LAYERS; l++) {
            size_t want = configs[i].want[l];
            bt_batch_mask mask =
                bt_layer_mask(&config, BAUTA_ATTENTION_DECODER, l, &none);
            assert_true(mask.causal);
            assert_int_equal(mask.window, want);
            assert_int_equal(bt_layer_window(&config, l), want);
            assert_int_equal(bt_layer_slot(&config, BAUTA_ATTENTION_DECODER, l),
                             want ? BT_SLOT_WINDOW : BT_SLOT_DECODER);
        }
    }
}

static void encoder_and_cross_attention_see_every_key(void **state)
{
    static const struct {
        bauta_attention_kind at;
        bt_attention_slot place;
        size_t layers;
    } kinds[] = {
        { BAUTA_ATTENTION_ENCODER, BT_SLOT_ENCODER, LAYERS + 1 },
        { BAUTA_ATTENTION_CROSS, BT_SLOT_CROSS, LAYERS },
    };
    const size_t rows = 3, keys = 7, prefix = 2, window = 1;
    const bt_batch_mask batch = { .queries = { 1, &rows, 0 },
                                  .keys = { 1, &keys, 0 },
                                  .prefixes = &prefix,
                                  .windows = &window };
    bt_model_config config = config_of(2, 0);
    (void)state;
    for (size_t i = 0; i < BT_LEN(kinds); i++) {
        bauta_attention_kind at = kinds[i].at;
        bt_batch_mask mask = bt_layer_mask(&config, at, 1, &batch);
        assert_int_equal(bt_layer_slot(&config, at, 1), kinds[i].place);
        assert_int_equal(bt_attention_layer_count(&config, at),
                         kinds[i].layers);
        bt_row_visibility rule = bt_row_visibility_of(&mask, 0);
        for (size_t r = 0; r < rows; r++) {
            bauta_span span = bt_row_span(&rule, r);
            assert_int_equal(span.lo, 0);
            assert_int_equal(span.hi, keys);
        }
    }
}

/* Every row of a step, against its row in the mask of the whole sequences. */
static void step_compare(const bauta_mask *whole, const bt_batch_mask *step)
{
    size_t first = 0; // row, and key, of the sequence in the whole mask
    for (size_t s = 0; s < step->keys.count; s++) {
        size_t rows = step->queries.lengths[s], keys = step->keys.lengths[s];
        bt_row_visibility rule = bt_row_visibility_of(step, s);
        for (size_t r = 0; r < rows; r++) {
            bauta_span got = bt_row_span(&rule, r);
            bt_spans want = bt_mask_spans(whole, first + keys - rows + r);
            assert_int_equal(want.count, 1);
            assert_int_equal(want.at[0].lo, first + got.lo);
            assert_int_equal(want.at[0].hi, first + got.hi);
        }
        first += keys;
    }
}

static void a_decoding_step_sees_the_keys_of_the_parallel_pass(void **state)
{
    (void)state;
    test_random random = test_random_from(seed);
    for (size_t round = 0; round < 500; round++) {
        size_t rows[SEQUENCES], keys[SEQUENCES], windows[SEQUENCES];
        size_t window = test_below(&random, 12);
        bt_model_config config =
            config_of(window, test_below(&random, LAYERS + 1));
        for (size_t s = 0; s < SEQUENCES; s++) {
            keys[s] = 1 + test_below(&random, TOKENS);
            rows[s] = 1 + test_below(&random, keys[s]);
            windows[s] = test_below(&random, 12);
        }
        bt_batch_mask batch = { .queries = { SEQUENCES, keys, 0 },
                                .keys = { SEQUENCES, keys, 0 },
                                .windows = windows };
        bt_batch_mask last = batch;
        last.queries.lengths = rows;
        for (size_t l = 0; l < LAYERS; l++) {
            bauta_mask *whole = NULL;
            bt_batch_mask how =
                bt_layer_mask(&config, BAUTA_ATTENTION_DECODER, l, &batch);
            bt_batch_mask step =
                bt_layer_mask(&config, BAUTA_ATTENTION_DECODER, l, &last);
            assert_int_equal(bt_batch_mask_create(&whole, &how, NULL), 0);
            step_compare(whole, &step);
            bauta_mask_free(whole);
        }
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_windows_equal_the_config),
        cmocka_unit_test(encoder_and_cross_attention_see_every_key),
        cmocka_unit_test(a_decoding_step_sees_the_keys_of_the_parallel_pass),
    };
    return cmocka_run_group_tests_name("layer_mask", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_page.c - HTML pages of pictures: the file holds the given data, and no
 * input can break out of it. */
#include "base/error.h"
#include "html_page.h"
#include "picture_fixtures.h"
#include "temp_folder.h"
#include "tiny_models.h"

/* A weight w is kept as its root in steps of 1 / levels: half a step off at
 * most, and a rounding of float32. */
static void assert_weights(const float *got, const bauta_picture *p,
                           double levels)
{
    for (size_t i = 0; i < p->rows * p->columns; i++) {
        bool visible = p->mask ? bauta_mask_visible(p->mask, i / p->columns,
                                                    i % p->columns)
                               : p->weights[i] != 0.0f;
        if (!visible) {
            assert_true(got[i] == -1.0f);
            continue;
        }
        double off = fabs(sqrt((double)got[i]) - sqrt((double)p->weights[i]));
        if (off > 0.5 / levels + 1e-6)
            fail_msg("pair %zu: want %g, got %g", i, (double)p->weights[i],
                     (double)got[i]);
    }
}

/* ---- Pages --------------------------------------------------------------- */

static void a_page_holds_the_weights_of_visible_pairs(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    static const char *const masks[] = { "causal", "all", "none",
                                         "causal & window(3) | sinks(1)",
                                         "!causal" };
    temp_folder s = temp_folder_create();
    for (size_t i = 0; i < 40; i++) {
        size_t rows = 1 + test_below(&r, 12), columns = 1 + test_below(&r, 12);
        bauta_mask *mask = mask_of(masks[i % BT_LEN(masks)], rows, columns);
        float *w = weights_draw(&r, mask);
        bauta_picture p[2] = { picture_of(mask, w), picture_of(mask, w) };
        p[1].mask = NULL; // 0 means hidden
        p[1].head = 1;
        save(temp_folder_path(&s, "a.html"), p, 2);
        json_t *data = page_load(s.path);
        assert_int_equal(page_number(data, "bytes"), 2);
        for (size_t k = 0; k < 2; k++) {
            float *got = page_weights(data, k);
            assert_weights(got, &p[k], 65534.0);
            free(got);
        }
        json_decref(data);
        free(w);
        bauta_mask_free(mask);
    }
    temp_folder_free(&s);
}

static const char *page_label(const json_t *data, const char *axis, size_t i)
{
    const json_t *p = json_array_get(json_object_get(data, "pictures"), 0);
    return json_string_value(
        json_array_get(json_array_get(json_object_get(data, "axes"),
                                      (size_t)page_number(p, axis)),
                       i));
}

static void labels_and_titles_cannot_break_a_page(void **state)
{
    (void)state;
    static const char *const want[] = { "The",     "\u2423cat", "\u21b5",
                                        "\u2205",  "\ufffd",    "\"<&",
                                        "</script" };
    temp_folder s = temp_folder_create();
    bauta_mask *mask = mask_of("causal", 7, 7);
    bauta_picture p = picture_of(mask, NULL);
    bauta_picture_options o = BAUTA_PICTURE_OPTIONS_INIT;
    o.title = "</script><script>alert(1)</script>\x01\xff\u2028";
    p.title = "<!--";
    p.row_labels = p.column_labels = tokens;
    assert_int_equal(
        bauta_picture_save(temp_folder_path(&s, "a.HTML"), &p, 1, &o, NULL), 0);
    json_t *data = page_load(s.path);
    assert_string_equal(json_string_value(json_object_get(data, "title")),
                        "</script><script>alert(1)</script>\x01\ufffd\u2028");
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(page_label(data, "y", i), want[i]);
    assert_string_equal(page_label(data, "x", 6), want[6]);
    assert_int_equal(json_array_size(json_object_get(data, "axes")), 1);
    json_decref(data);
    size_t size;
    char *text = page_text(s.path, &size);
    assert_null(strstr(text, "alert(1)</script"));
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "@DATA@"));
    free(text);
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

static void large_pages_store_a_byte_a_weight(void **state)
{
    (void)state;
    enum { COUNT = 160, SIDE = 200 }; // 3.2 million of them
    test_random r = test_random_from(test_seed());
    temp_folder s = temp_folder_create();
    bauta_mask *mask = mask_of("causal", SIDE, SIDE);
    float *w = weights_draw(&r, mask);
    bauta_picture *p = calloc(COUNT, sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < COUNT; i++) {
        p[i] = picture_of(mask, w);
        p[i].layer = i;
    }
    save(temp_folder_path(&s, "a.html"), p, COUNT);
    json_t *data = page_load(s.path);
    assert_int_equal(page_number(data, "bytes"), 1);
    assert_int_equal(json_array_size(json_object_get(data, "masks")), 1);
    float *got = page_weights(data, COUNT - 1);
    assert_weights(got, &p[0], 254.0);
    free(got);
    json_decref(data);
    free(p);
    free(w);
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

/* ---- From a model to a page ---------------------------------------------- */

typedef struct weights_fixture {
    bauta_picture pictures[16];
    size_t count;
} weights_fixture;

static void weights_of_all(weights_fixture *l, const bauta_model *model,
                           size_t n, const bauta_mask *mask)
{
    static const uint32_t ids[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    bauta_context *context;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_attention_weights looks[16];
    batch.count = 1;
    batch.stride = n;
    batch.ids = ids;
    size_t heads = bauta_model_heads(model, BAUTA_ATTENTION_DECODER);
    l->count = heads * bauta_model_decoder_layers(model);
    for (size_t i = 0; i < l->count; i++) {
        float *w = calloc(n * n, sizeof(*w));
        assert_non_null(w);
        looks[i] = (bauta_attention_weights)BAUTA_ATTENTION_WEIGHTS_INIT;
        looks[i].layer = i / heads;
        looks[i].head = i % heads;
        looks[i].rows = n;
        looks[i].weights = w;
        l->pictures[i] = picture_of(mask, w);
        l->pictures[i].layer = i / heads;
        l->pictures[i].head = i % heads;
    }
    assert_int_equal(bauta_context_create(&context, NULL, NULL), 0);
    assert_int_equal(bauta_model_attention_weights(context, model, NULL, &batch,
                                                   NULL, looks, l->count, NULL),
                     0);
    bauta_context_free(context);
}

static void a_models_weights_round_trip_through_the_page(void **state)
{
    (void)state;
    enum { N = 8 };
    temp_folder s = temp_folder_create();
    bauta_model *model;
    bauta_mask *mask = mask_of("causal", N, N);
    static weights_fixture l;
    assert_int_equal(bauta_model_create(&model, tinies[0].config, 5, NULL), 0);
    weights_of_all(&l, model, N, mask);
    save(temp_folder_path(&s, "gpt2.html"), l.pictures, l.count);
    json_t *data = page_load(s.path);
    for (size_t i = 0; i < l.count; i++) {
        float *got = page_weights(data, i);
        const json_t *p = json_array_get(json_object_get(data, "pictures"), i);
        assert_int_equal(page_number(p, "layer"), l.pictures[i].layer);
        assert_int_equal(page_number(p, "head"), l.pictures[i].head);
        assert_weights(got, &l.pictures[i], 65534.0);
        for (size_t row = 0; row < N; row++) {
            double sum = 0.0;
            for (size_t j = 0; j < N; j++)
                sum += j <= row ? (double)got[row * N + j] : 0.0;
            assert_true(fabs(sum - 1.0) < N * 2.0 / 65534.0);
        }
        free(got);
        free((void *)(uintptr_t)l.pictures[i].weights);
    }
    json_decref(data);
    bauta_model_free(model);
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_the_weights_of_visible_pairs),
        cmocka_unit_test(labels_and_titles_cannot_break_a_page),
        cmocka_unit_test(large_pages_store_a_byte_a_weight),
        cmocka_unit_test(a_models_weights_round_trip_through_the_page),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_picture.c - pictures of attention: sheets, colours, labels. Hidden pairs
 * look like no weight, and pictures that cannot be drawn give an error. */
#include "allocation_faults.h"
#include "base/error.h"
#include "draw/label.h"
#include "draw/raster.h"
#include "html_page.h"
#include "picture_fixtures.h"
#include "temp_folder.h"

/* ---- Sheets -------------------------------------------------------------- */

/* Whether the library has cairo; if not, every call must say so. */
static bool can_draw(temp_folder *s, const bauta_picture *p)
{
    bauta_error err = { 0, "" };
    bauta_status status =
        bauta_picture_save(temp_folder_path(s, "try.png"), p, 1, NULL, &err);
    if (!status)
        return true;
    assert_int_equal(status, BAUTA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "without cairo"));
    assert_int_equal(temp_folder_count(s), 0);
    printf("skipped: this library draws no PNG, SVG and PDF\n");
    return false;
}

static uint32_t big_endian(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 |
           b[3];
}

static void a_png_has_the_size_of_its_contents(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    size_t size;
    bool drawn = false;
    static const size_t sides[] = { 1, 7, 60, 700, 3000 };
    for (size_t i = 0; i < BT_LEN(sides); i++) {
        bauta_mask *mask = mask_of("causal", sides[i], sides[i]);
        bauta_picture p = picture_of(mask, NULL);
        if (i || can_draw(&s, &p)) {
            save(temp_folder_path(&s, "a.png"), &p, 1);
            char *text = page_text(s.path, &size);
            assert_memory_equal(text, "\x89PNG\r\n\x1a\n", 8);
            assert_memory_equal(text + 12, "IHDR", 4);
            assert_memory_equal(text + size - 8, "IEND", 4);
            size_t width = big_endian(text + 16);
            assert_true(width >= 400 && width <= 2000);
            assert_true(big_endian(text + 20) <= 2000);
            drawn = true;
            free(text);
        }
        bauta_mask_free(mask);
        if (!drawn)
            break;
    }
    temp_folder_free(&s);
}

static void svg_and_pdf_are_well_formed(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    temp_folder s = temp_folder_create();
    size_t size;
    bauta_mask *mask = mask_of("causal & window(4) | sinks(1)", 7, 7);
    float *w = weights_draw(&r, mask);
    bauta_picture p[6];
    for (size_t i = 0; i < BT_LEN(p); i++) {
        p[i] = picture_of(mask, w);
        p[i].layer = i / 3;
        p[i].head = i % 3;
        p[i].row_labels = p[i].column_labels = tokens;
    }
    if (can_draw(&s, p)) {
        save(temp_folder_path(&s, "a.svg"), p, BT_LEN(p));
        char *text = page_text(s.path, &size);
        assert_memory_equal(text, "<?xml", 5);
        assert_non_null(strstr(text, "</svg>"));
        free(text);
        save(temp_folder_path(&s, "a.pdf"), p, BT_LEN(p));
        text = page_text(s.path, &size);
        assert_memory_equal(text, "%PDF-", 5);
        save(temp_folder_path(&s, "b.pdf"), p, BT_LEN(p));
        size_t again;
        char *other = page_text(s.path, &again);
        assert_int_equal(size, again); // deterministic: no date, no random ids
        assert_memory_equal(text, other, size);
        free(text);
        free(other);
    }
    free(w);
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

/* ---- Dots, colours, labels ----------------------------------------------- */

/* Luminance of a byte, as sRGB defines it. */
static double light(uint8_t byte)
{
    double v = byte / 255.0;
    return v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

static double luminance(bt_colour c)
{
    return 0.2126 * light(c.r) + 0.7152 * light(c.g) + 0.0722 * light(c.b);
}

static int colourful(bt_colour c)
{
    int most = c.r > c.g ? c.r : c.g, least = c.r < c.g ? c.r : c.g;
    return (most > c.b ? most : c.b) - (least < c.b ? least : c.b);
}

static void larger_weights_are_darker_and_none_looks_hidden(void **state)
{
    (void)state;
    for (int dark = 0; dark < 2; dark++) {
        bt_palette p;
        bt_palette_init(&p, dark);
        for (size_t i = 1; i < BT_COLOURS; i++) {
            double step = luminance(p.weight[i]) - luminance(p.weight[i - 1]);
            // A byte is rounded, which may be a step of 1 / 255 the wrong way.
            assert_true(dark ? step > -1e-3 : step < 1e-3);
        }
        assert_true(fabs(luminance(p.weight[0]) -
                         luminance(p.weight[BT_COLOURS - 1])) > 0.6);
        assert_true(colourful(p.hidden) < 8 && colourful(p.hatch) < 12);
        for (size_t i = 0; i < BT_COLOURS; i++) {
            int off = abs(p.weight[i].r - p.hidden.r) +
                      abs(p.weight[i].g - p.hidden.g) +
                      abs(p.weight[i].b - p.hidden.b);
            assert_true(off > 20);
        }
    }
}

static uint32_t dot(bt_colour c)
{
    return 0xff000000u | (uint32_t)c.r << 16 | (uint32_t)c.g << 8 | c.b;
}

static void a_dot_is_the_largest_weight_that_it_covers(void **state)
{
    (void)state;
    enum { N = 12 };
    test_random r = test_random_from(test_seed());
    bt_palette palette;
    bauta_mask *mask = mask_of("causal", N, N);
    float *w = weights_draw(&r, mask);
    bauta_picture of = picture_of(mask, w);
    bt_picture p = { .input = of, .mask = mask };
    bt_palette_init(&palette, false);
    for (size_t side = 1; side <= 3 * N; side++) {
        uint32_t dots[9 * N * N];
        if (N % side && side % N)
            continue;
        assert_int_equal(
            bt_raster_draw(dots, side, side, side, 4, &p, &palette, NULL), 0);
        for (size_t d = 0; d < side * side; d++) {
            float best = -1.0f;
            for (size_t i = 0; i < N * N; i++)
                if (i / N * side / N <= d / side &&
                    d / side <= ((i / N + 1) * side - 1) / N &&
                    i % N * side / N <= d % side &&
                    d % side <= ((i % N + 1) * side - 1) / N && i % N <= i / N)
                    best = w[i] > best ? w[i] : best;
            if (best >= 0.0f)
                assert_int_equal(dots[d],
                                 dot(palette.weight[bt_colour_index(best)]));
            else
                assert_true(dots[d] == dot(palette.hidden) ||
                            dots[d] == dot(palette.hatch));
        }
    }
    free(w);
    bauta_mask_free(mask);
}

static void blanks_in_labels_are_visible(void **state)
{
    (void)state;
    char out[BT_LABEL_MAX], text[1000];
    bt_label(out, " a\tb\n", 0, 100);
    assert_string_equal(out, "\u2423a\u21e5b\u21b5");
    bt_label(out, NULL, 42, 100);
    assert_string_equal(out, "42");
    bt_label(out, "abcdef", 0, 4);
    assert_string_equal(out, "abc\u2026");
    bt_label(out, "abcd", 0, 4);
    assert_string_equal(out, "abcd");
    bt_label(out, "\x1b[31m\x7f\xc2\x85", 0, 100);
    assert_string_equal(out, "\ufffd[31m\ufffd\ufffd");
    bt_title(out, "a b\nc", 100);
    assert_string_equal(out, "a b c");
    bt_title(out, "", 100);
    assert_string_equal(out, "");
    memset(text, 0xE2, sizeof(text) - 1); // each becomes three bytes
    text[sizeof(text) - 1] = '\0';
    bt_label(out, text, 0, SIZE_MAX);
    assert_true(strlen(out) < BT_LABEL_MAX);
}

/* ---- Pictures that cannot be drawn --------------------------------------- */

static void refused(const char *path, const bauta_picture *p, size_t count,
                    const bauta_picture_options *o, const char *message)
{
    bauta_error err = { 0, "" };
    bauta_status status = bauta_picture_save(path, p, count, o, &err);
    if (status != BAUTA_ERR_ARGUMENT || !strstr(err.message, message))
        fail_msg("want '%s', got %d, '%s'", message, status, err.message);
}

static void malformed_pictures_are_errors(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const char *html = temp_folder_path(&s, "a.html");
    bauta_mask *mask = mask_of("causal", 2, 2), *wide = mask_of("all", 2, 3);
    bauta_mask *large = mask_of("none", 5000, 2);
    float w[4] = { 1.0f, 0.0f, 0.25f, 0.75f };
    const char *holes[2] = { "a", NULL };
    bauta_picture good = picture_of(mask, w), p;
    bauta_picture_options o = BAUTA_PICTURE_OPTIONS_INIT;
#define BAD(change, text)                 \
    do {                                  \
        p = good;                         \
        change;                           \
        refused(html, &p, 1, NULL, text); \
    } while (0)
    BAD(p.size = 0, "start from BAUTA_PICTURE_INIT");
    BAD(p.rows = 0, "has 0 rows and 2 columns");
    BAD(p.columns = 20000, "more than 16384");
    BAD((p.weights = NULL, p.mask = NULL), "neither weights nor a mask");
    BAD(p.mask = wide, "its mask 2 queries and 3 keys");
    BAD(p.attention = (bauta_attention_kind)7, "is of 7");
    BAD(p.row_labels = holes, "the label of row 1 is NULL");
    BAD(p.column_labels = holes, "the label of column 1 is NULL");
    BAD((p.rows = 5000, p.weights = NULL, p.mask = large), "at most 4096");
    w[1] = 0.5f;
    BAD((void)0, "the mask hides column 1 from row 0, but the weight is 0.5");
    w[1] = 0.0f;
    w[2] = NAN;
    BAD((void)0, "the weight of row 1, column 0 is nan");
    w[2] = -0.5f;
    BAD((void)0, "is -0.5, not from 0 to 1");
    w[2] = 1.5f;
    BAD((void)0, "is 1.5, not from 0 to 1");
    w[2] = 0.25f;
    refused(html, &good, 0, NULL, "0 pictures");
    refused(html, &good, 5000, NULL, "at most 4096");
    refused(html, NULL, 1, NULL, "pictures is NULL");
    refused(NULL, &good, 1, NULL, "path is NULL");
    refused("a.gif", &good, 1, NULL, "a.gif: the name does not end in");
    refused(".html", &good, 1, NULL, "does not end in");
    refused("", &good, 1, NULL, "does not end in");
    o.size = 1;
    refused(html, &good, 1, &o, "start from BAUTA_PICTURE_OPTIONS_INIT");
    assert_int_equal(temp_folder_count(&s), 0);
    bauta_error err;
    assert_int_equal(bauta_picture_save(temp_folder_path(&s, "no/where.html"),
                                        &good, 1, NULL, &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "no/where.html"));
    bauta_mask_free(mask);
    bauta_mask_free(wide);
    bauta_mask_free(large);
    temp_folder_free(&s);
}

/* Pages of a PDF; 0 if they are in a compressed stream, as of cairo 1.18. */
static size_t pdf_pages(const char *path)
{
    size_t size, pages = 0;
    char *text = page_text(path, &size);
    for (size_t i = 0; i + 12 < size; i++)
        pages +=
            memcmp(text + i, "/Type /Page", 11) == 0 && text[i + 11] != 's';
    free(text);
    return pages;
}

static void a_pdf_has_a_page_for_each_layer(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_mask *mask = mask_of("causal", 8, 8);
    bauta_picture p[6];
    for (size_t i = 0; i < BT_LEN(p); i++) {
        p[i] = picture_of(mask, NULL);
        p[i].attention =
            i < 4 ? BAUTA_ATTENTION_ENCODER : BAUTA_ATTENTION_DECODER;
        p[i].layer = i < 4 ? i / 2 : 1;
        p[i].head = i % 2;
    }
    if (can_draw(&s, p)) {
        save(temp_folder_path(&s, "six.pdf"), p, 6);
        size_t pages = pdf_pages(s.path);
        assert_true(pages == 3 || pages == 0);
        save(temp_folder_path(&s, "two.pdf"), p, 2);
        assert_true(pdf_pages(s.path) == 1 || pages == 0);
    }
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

static void a_sheet_that_is_too_long_is_refused(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    temp_folder s = temp_folder_create();
    bauta_mask *mask = mask_of("causal", 8, 8);
    bauta_picture p[COUNT];
    bauta_picture_options o = BAUTA_PICTURE_OPTIONS_INIT;
    for (size_t i = 0; i < COUNT; i++)
        p[i] = picture_of(mask, NULL);
    o.across = 1;
    if (can_draw(&s, p))
        refused(temp_folder_path(&s, "a.png"), p, COUNT, &o,
                "1000 pictures, 1 side by side");
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

static void fail_each(temp_folder *s, const char *name, const bauta_picture *p)
{
    size_t count = temp_folder_count(s), size;
    faults_begin();
    for (size_t k = 0;; k++) {
        bauta_error err = { 0, "" };
        faults_arm(k);
        bauta_status status =
            bauta_picture_save(temp_folder_path(s, name), p, 2, NULL, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            assert_true(k > 3);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
        assert_int_equal(faults_live(), 0);
        assert_int_equal(temp_folder_count(s), count);
        char *old = page_text(s->path, &size); // and the old file is whole
        assert_string_equal(old, "old");
        free(old);
    }
    assert_int_equal(faults_end(), 0);
}

static void each_failing_allocation_leaves_the_old_file(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    temp_folder s = temp_folder_create();
    bauta_mask *mask = mask_of("causal & window(2) | sinks(1)", 7, 7);
    float *w = weights_draw(&r, mask);
    bauta_picture p[2] = { picture_of(mask, w), picture_of(mask, w) };
    p[1].mask = NULL;
    bool drawn = can_draw(&s, p);
    temp_folder_write(&s, "a.html", "old", 3);
    temp_folder_write(&s, "a.png", "old", 3);
    temp_folder_write(&s, "a.svg", "old", 3);
    fail_each(&s, "a.html", p);
    if (drawn) {
        fail_each(&s, "a.png", p);
        fail_each(&s, "a.svg", p);
    }
    free(w);
    bauta_mask_free(mask);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_png_has_the_size_of_its_contents),
        cmocka_unit_test(svg_and_pdf_are_well_formed),
        cmocka_unit_test(larger_weights_are_darker_and_none_looks_hidden),
        cmocka_unit_test(a_dot_is_the_largest_weight_that_it_covers),
        cmocka_unit_test(blanks_in_labels_are_visible),
        cmocka_unit_test(malformed_pictures_are_errors),
        cmocka_unit_test(a_pdf_has_a_page_for_each_layer),
        cmocka_unit_test(a_sheet_that_is_too_long_is_refused),
        cmocka_unit_test(each_failing_allocation_leaves_the_old_file),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}

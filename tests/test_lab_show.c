/* SPDX-License-Identifier: Apache-2.0 */
/* test_lab_show.c - the reports of bauta lab in the terminal, as JSON and as a
 * page; plots of arbitrary numbers. */
#include "report_fixtures.h"

static void assert_prints(const report *r, const char *want)
{
    char *text = printed(r, false);
    assert_string_equal(text, want);
    free(text);
}

static inline char *file_read(const char *path)
{
    enum { SIZE = 1 << 20 };
    char *text = calloc(SIZE, 1);
    FILE *from = fopen(path, "r");
    assert_non_null(text);
    assert_non_null(from);
    assert_true(fread(text, 1, SIZE - 1, from) < SIZE - 1);
    fclose(from);
    return text;
}

/* ---- the terminal ------------------------------------------------------- */

static void a_table_is_aligned_and_words_are_wrapped(void **state)
{
    (void)state;
    report *r = report_create("lab", "one two three four five six seven eight "
                                     "nine ten eleven twelve thirteen "
                                     "fourteen");
    report_table(r, "A table", "größe\tcount\tshare\tnote");
    report_row(r, "a\t1\t10.5 %%\tx");
    report_row(r, "bbbbbbb\t12345\t-\t");
    report_row(r, "c\t-3\t1e-06\tx y");
    report_conclude(r, "Done.");
    assert_prints(r, "lab\n\n"
                     "one two three four five six seven eight nine ten eleven "
                     "twelve thirteen\nfourteen\n"
                     "\n"
                     "A table\n\n"
                     "  größe    count   share  note\n"
                     "  ────────────────────────────\n"
                     "  a            1  10.5 %  x\n"
                     "  bbbbbbb  12345       -\n"
                     "  c           -3   1e-06  x y\n"
                     "\n"
                     "Done.\n");
    report_free(r);
}

static void a_failed_claim_is_shown(void **state)
{
    (void)state;
    report *r = report_create("lab", "why?");
    report_claim(r, true, "water is %s", "wet");
    assert_true(report_passed(r));
    report_claim(r, false, "two is %d", 3);
    report_claim(r, true, "fire is hot");
    assert_false(report_passed(r));
    assert_prints(r, "lab\n\nwhy?\n\nThis does not hold:\n  two is 3\n");
    report_free(r);
}

static void masks_are_printed_side_by_side_with_leaks_marked(void **state)
{
    (void)state;
    bauta_mask *all, *causal, *cross;
    assert_int_equal(bauta_mask_all(&all, 3, 3, NULL), BAUTA_OK);
    assert_int_equal(bauta_mask_causal(&causal, 3, 3, NULL), BAUTA_OK);
    assert_int_equal(bauta_mask_all(&cross, 1, 4, NULL), BAUTA_OK);
    report *r = report_create("lab", "why?");
    report_mask(r, "causal", causal, NULL);
    report_mask(r, "x", cross, NULL);
    report_mask(r, "all", all, causal);
    assert_prints(r, "lab\n\nwhy?\n\n"
                     "  causal   x      all\n"
                     "  #..      ####   #!!\n"
                     "  ##.             ##!\n"
                     "  ###             ###\n");
    char *text = printed(r, true);
    assert_in(text, "\033[48;2;200;30;45m"); // red
    free(text);
    bauta_mask_free(all);
    bauta_mask_free(causal);
    bauta_mask_free(cross);
    report_free(r);
}

static void attention_is_printed_and_drawn(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    report *r = report_create("lab", "why?");
    const float weights[] = { 1.0f, 0.0f, 0.25f, 0.75f };
    report_attention(r, "weights", 2, 2, (const char *[]){ "a", "<b" },
                     (const char *[]){ "x", "yy" }, weights);
    assert_prints(r, "lab\n\nwhy?\n\nweights\n\n"
                     "      x yy\n"
                     "   a  #  .\n"
                     "  <b  2  7\n"
                     "  rows read columns, weights in tenths\n");
    assert_int_equal(report_page((const report *const *)&r, 1,
                                 temp_folder_path(&s, "page.html")),
                     CLI_OK);
    char *text = file_read(s.path);
    assert_in(text, "<figcaption>weights</figcaption>");
    assert_in(text, "fill-opacity=\"0.500\"><title>&lt;b reads x: 25.0 %");
    free(text);
    assert_int_equal(report_files(r, s.folder), CLI_OK);
    if (temp_folder_count(&s) == 2) { // built with cairo
        text = file_read(temp_folder_path(&s, "lab.svg"));
        assert_in(text, "</svg>");
        free(text);
        assert_int_equal(report_files(r, "no/where"), CLI_FAILED);
    }
    temp_folder_free(&s);
    report_free(r);
}

static void a_large_mask_is_drawn_small_with_every_leak(void **state)
{
    (void)state;
    bauta_mask *seen, *allowed;
    assert_int_equal(bauta_mask_parse(&seen, "documents(130, 1, 69) | causal",
                                      200, 200, NULL),
                     BAUTA_OK);
    assert_int_equal(bauta_mask_parse(&allowed, "documents(1, 199) | causal",
                                      200, 200, NULL),
                     BAUTA_OK);
    report *r = report_create("lab", "why?");
    report_mask(r, "m", seen, allowed); // the first row leaks: 1 to 129
    char *text = printed(r, false);
    assert_in(text, "\n  !!!!!");
    assert_true(strlen(text) < 64 * 70);
    free(text);
    bauta_mask_free(seen);
    bauta_mask_free(allowed);
    report_free(r);
}

static void model_output_contains_no_terminal_escapes(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    report *r = report_create("lab", "why?");
    report_quote(r, "<i>", "\033[31m</blockquote><script>\na & \"b\"\xff");
    char *text = printed(r, false);
    assert_not_in(text, "\033");
    assert_in(text, "  > a & \"b\"");
    free(text);
    assert_int_equal(report_page((const report *const *)&r, 1,
                                 temp_folder_path(&s, "page.html")),
                     CLI_OK);
    text = file_read(s.path);
    assert_not_in(text, "</blockquote><script>");
    assert_not_in(text, "<i>");
    assert_not_in(text, "\033");
    assert_in(text, "&lt;/blockquote&gt;&lt;script&gt;\na &amp; "
                    "&quot;b&quot;\xEF\xBF\xBD</blockquote>");
    free(text);
    report_free(r);
    temp_folder_free(&s);
}

/* ---- plots -------------------------------------------------------------- */

static void a_plot_has_marks_at_its_points(void **state)
{
    (void)state;
    report *r = report_create("lab", "why?");
    report_plot(r, &(plot_options){ "t", "size", "time", true, false });
    report_curve(r, "up");
    report_point(r, 10, 0);
    report_point(r, 0, 5); // not on a logarithmic axis
    report_point(r, 1000, 10);
    report_point(r, INFINITY, 1);
    char *text = printed(r, false);
    assert_in(text, "  time\n  10 ┤   ");
    assert_in(text, "·o\n");   // top right
    assert_in(text, " 0 ┤o·"); // bottom left
    assert_in(text, "      10   ");
    assert_in(text, "1000\n");
    assert_in(text, "size\n");
    assert_in(text, "o up\n");
    free(text);
    report_free(r);
}

static double number_draw(test_random *random)
{
    static const double odd[] = { 0,         1,      -1,     NAN,
                                  INFINITY,  1e308,  -1e308, 5e-324,
                                  -INFINITY, 1e-300, 1e5,    123456789 };
    size_t which = test_below(random, 24);
    if (which < sizeof(odd) / sizeof(odd[0]))
        return odd[which];
    double value = (double)test_float(random);
    return which < 18 ? value : value * pow(10, (double)test_below(random, 40));
}

/* For arbitrary numbers, points stay within the axes and lines within the
 * terminal. */
static void axes_fit_any_numbers(void **state)
{
    (void)state;
    test_random random = test_random_from(test_seed());
    for (int round = 0; round < 2000; round++) {
        report *r = report_create("lab", "why?");
        plot_options o = { "t", "x", "y", test_below(&random, 2) == 1,
                           test_below(&random, 2) == 1 };
        report_plot(r, &o);
        size_t curves = test_below(&random, 9);
        for (size_t c = 0; c < curves; c++) {
            report_curve(r, "c");
            for (size_t i = test_below(&random, 12); i > 0; i--)
                report_point(r, number_draw(&random), number_draw(&random));
        }
        const plot *p = &r->item[0].of.plot;
        axis x, y;
        bool any = plot_axes(p, 6, 5, &x, &y);
        for (size_t c = 0; any && c < p->count; c++)
            for (size_t i = 0; i < p->curves[c].count; i++) {
                point at = p->curves[c].points[i];
                if (!plot_shows(p, at))
                    continue;
                assert_true(axis_at(&x, at.x) >= -1e-6);
                assert_true(axis_at(&x, at.x) <= 1 + 1e-6);
                assert_true(axis_at(&y, at.y) >= -1e-6);
                assert_true(axis_at(&y, at.y) <= 1 + 1e-6);
            }
        for (size_t i = 1; any && i < y.ticks; i++)
            assert_true(y.tick[i] > y.tick[i - 1]);
        char *text = printed(r, false);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
            size_t width = 0;
            for (size_t i = 0; line[i] && line[i] != '\n'; i++)
                width += ((unsigned char)line[i] & 0xC0) != 0x80;
            assert_true(width <= 90);
        }
        free(text);
        report_free(r);
    }
}

/* ---- the page and JSON -------------------------------------------------- */

static void the_page_is_self_contained(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    report *r = report_create("lab", "why?"), *other = report_create("b", "?");
    fill(r);
    report_claim(other, false, "this & that");
    const report *both[] = { r, other };
    assert_int_equal(report_page(both, 2, temp_folder_path(&s, "index.html")),
                     CLI_OK);
    assert_int_equal(temp_folder_count(&s), 1);
    char *text = file_read(s.path);
    for (size_t i = 0; i < 4; i++)
        assert_not_in(text, ((const char *[]){
                                "http:", "https:", "src=", "@import" })[i]);
    for (const char *at = text; (at = strstr(at, "url(")); at++)
        assert_int_equal(at[4], '#');
    assert_in(text, "<div class=\"experiment\" id=\"lab-lab\">");
    assert_in(text, "<td class=\"n\">2</td>");
    assert_in(text, "<path class=\"leak\" d=\"M10 0h20v10h-20zM20 10h10v10h");
    assert_in(text, "<b>holds</b> ");
    assert_in(text, "<li class=\"fails\"><b>does not hold</b> this &amp; that");
    assert_in(text, "<code>bauta lab leak</code> has not run yet");
    assert_in(text, "</html>\n");
    free(text);
    report_free(r);
    report_free(other);
    temp_folder_free(&s);
}

static void a_page_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    report *r = report_create("lab", "why?");
    const report *one[] = { r };
    assert_int_equal(report_page(one, 1, temp_folder_path(&s, "no/index.html")),
                     CLI_FAILED);
    assert_in(message, "no/index.html: cannot write it: No such file");
    assert_int_equal(mkdir(temp_folder_path(&s, "folder"), 0700), 0);
    assert_int_equal(report_page(one, 1, s.path), CLI_FAILED);
    assert_in(message, "folder: cannot write it: Is a directory");
    assert_int_equal(temp_folder_count(&s), 1);
    report_free(r);
    temp_folder_free(&s);
}

static void json_contains_everything(void **state)
{
    (void)state;
    report *r = report_create("lab", "why?");
    int status;
    fill(r);
    json_t *got = json_of(r, &status);
    assert_int_equal(status, CLI_OK);
    json_t *found = json_object_get(got, "found");
    assert_int_equal(json_array_size(found), 7);
    json_t *rows = json_object_get(json_array_get(found, 1), "rows");
    assert_string_equal(
        json_string_value(json_array_get(json_array_get(rows, 1), 0)), "two");
    json_t *leak = json_array_get(found, 4);
    assert_int_equal(json_integer_value(json_object_get(leak, "leaks")), 3);
    json_t *attention = json_array_get(found, 5);
    assert_int_equal(json_array_size(json_object_get(attention, "weights")), 6);
    assert_int_equal(json_array_size(json_object_get(got, "conclusion")), 2);
    assert_true(json_is_true(json_object_get(got, "holds")));
    json_decref(got);
    report_free(r);
}

/* ---- reports read back -------------------------------------------------- */

static void a_report_read_back_is_the_same(void **state)
{
    (void)state;
    report *r = report_create("lab", "why?");
    fill(r);
    report_claim(r, false, "50 %% of \t%s", "it");
    report_toy(r, json_pack("{s:[i, i]}", "</script>", 1, 2));
    json_t *from = report_to_json(r);
    report *again = report_from_json(from);
    assert_non_null(again);
    json_t *back = report_to_json(again);
    assert_true(json_equal(from, back));
    char *want = printed(r, true), *got = printed(again, true);
    assert_string_equal(got, want);
    free(want);
    free(got);
    json_decref(from);
    json_decref(back);
    report_free(r);
    report_free(again);
}

/* Replace or remove a random member or element somewhere in a JSON value. */
static void json_disturb(test_random *random, json_t *at)
{
    static const char *const odd[] = { "null", "7",   "-1",       "\"x\"",
                                       "[]",   "{}",  "true",     "[[9, 1]]",
                                       "1e99", "[1]", "\"table\"" };
    json_t *other =
        json_loads(odd[test_below(random, sizeof(odd) / sizeof(odd[0]))],
                   JSON_DECODE_ANY, NULL);
    size_t size =
        json_is_object(at) ? json_object_size(at) : json_array_size(at);
    size_t which = size ? test_below(random, size) : 0;
    void *member = json_object_iter(at);
    for (size_t i = 0; member && i < which; i++)
        member = json_object_iter_next(at, member);
    json_t *child =
        member ? json_object_iter_value(member) : json_array_get(at, which);
    if (child && json_is_object(child) + json_is_array(child) &&
        test_below(random, 4)) {
        json_disturb(random, child);
        json_decref(other);
    } else if (member)
        json_object_iter_set_new(at, member, other);
    else if (!child || json_array_set_new(at, which, other))
        json_decref(other);
}

static void a_damaged_report_is_refused_or_whole(void **state)
{
    (void)state;
    test_random random = test_random_from(test_seed());
    report *r = report_create("lab", "why?");
    size_t refused = 0;
    fill(r);
    json_t *whole = report_to_json(r);
    for (int round = 0; round < 3000; round++) {
        json_t *damaged = json_deep_copy(whole);
        json_disturb(&random, damaged);
        report *got = report_from_json(damaged);
        refused += !got;
        if (got) {
            assert_true(report_valid(got));
            free(printed(got, false));
        }
        report_free(got);
        json_decref(damaged);
    }
    assert_true(refused > 0);
    assert_null(report_from_json(NULL));
    json_decref(whole);
    report_free(r);
}

static void a_kept_report_is_for_its_seed_and_size(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "lab.json");
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    lab l = { .seed = UINT64_MAX, .fast = true };
    report *r = report_create("lab", "why?");
    fill(r);
    assert_null(lab_kept_load(&l, folder, "lab"));
    assert_int_equal(lab_kept_save(&l, folder, r), CLI_OK);
    report *got = lab_kept_load(&l, folder, "lab");
    assert_non_null(got);
    report_free(got);
    l.seed--;
    assert_null(lab_kept_load(&l, folder, "lab"));
    l.seed++;
    l.fast = false;
    assert_null(lab_kept_load(&l, folder, "lab"));
    assert_int_equal(lab_kept_save(&l, "no/where", r), CLI_FAILED);
    assert_in(message, "no/where/lab.json: cannot write it: No such file");
    report_free(r);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_aligned_and_words_are_wrapped),
        cmocka_unit_test(a_failed_claim_is_shown),
        cmocka_unit_test(masks_are_printed_side_by_side_with_leaks_marked),
        cmocka_unit_test(attention_is_printed_and_drawn),
        cmocka_unit_test(a_large_mask_is_drawn_small_with_every_leak),
        cmocka_unit_test(model_output_contains_no_terminal_escapes),
        cmocka_unit_test(a_plot_has_marks_at_its_points),
        cmocka_unit_test(axes_fit_any_numbers),
        cmocka_unit_test(the_page_is_self_contained),
        cmocka_unit_test(a_page_that_cannot_be_written_leaves_nothing),
        cmocka_unit_test(json_contains_everything),
        cmocka_unit_test(a_report_read_back_is_the_same),
        cmocka_unit_test(a_damaged_report_is_refused_or_whole),
        cmocka_unit_test(a_kept_report_is_for_its_seed_and_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

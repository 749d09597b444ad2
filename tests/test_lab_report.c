/* SPDX-License-Identifier: Apache-2.0 */
/* test_lab_report.c - the reports of bauta lab: their contents, and failing
 * allocations. */
#include "allocation_faults.h"
#include "report_fixtures.h"

/* ---- contents of the report --------------------------------------------- */

static void a_report_holds_its_elements(void **state)
{
    (void)state;
    report *r = report_create("name", "question?");
    fill(r);
    assert_true(report_valid(r));
    assert_true(report_passed(r));
    assert_int_equal(r->items, 7);
    assert_int_equal(r->item[1].of.table.rows, 2);
    assert_string_equal(r->item[1].of.table.cells[2], "one");
    assert_true(r->item[1].of.table.numbers[1]);
    assert_false(r->item[1].of.table.numbers[0]);
    assert_int_equal(r->item[2].of.plot.count, 2);
    assert_int_equal(r->item[2].of.plot.curves[0].count, 5);
    assert_int_equal(mask_view_leaks(&r->item[3].of.mask), 0);
    assert_int_equal(mask_view_leaks(&r->item[4].of.mask), 3);
    assert_string_equal(r->item[5].of.attention.labels[3], "liebe");
    assert_true(r->item[5].of.attention.weights[4] == 0.7f);
    assert_string_equal(r->sentence[1], "And so.");
    report_free(r);
    report_free(NULL);
}

static void misplaced_elements_are_dropped(void **state)
{
    (void)state;
    report *r = report_create("name", "question?");
    report_row(r, "no table");
    report_curve(r, "no plot");
    report_point(r, 1, 1);
    report_plot(r, &(plot_options){ .title = NULL });
    report_point(r, 1, 1);
    report_row(r, "a plot is no table");
    report_table(r, "t", "a\tb");
    report_row(r, "only one");
    report_row(r, "1\t2\t3");
    assert_int_equal(r->items, 2);
    assert_int_equal(r->item[0].of.plot.count, 0);
    assert_int_equal(r->item[1].of.table.rows, 2);
    assert_string_equal(r->item[1].of.table.cells[3], "");
    assert_string_equal(r->item[1].of.table.cells[5], "2");
    report_free(r);
}

static void a_void_report_ignores_everything(void **state)
{
    (void)state;
    fill(NULL);
    assert_false(report_valid(NULL));
    assert_false(report_passed(NULL));
    char *text = printed(NULL, false);
    assert_string_equal(text, "");
    free(text);
}

/* ---- memory ------------------------------------------------------------- */

/* The linker redirects the allocations of the program's files to these. */
static size_t to_fail; /* allocations up to and with the one that fails */
static bool failed;

static bool must_fail(void)
{
    failed = failed || to_fail == 1;
    to_fail -= to_fail > 0;
    return to_fail == 0 && failed;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);

void *__wrap_malloc(size_t size)
{
    bool fails = to_fail && must_fail();
    return fails ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    bool fails = to_fail && must_fail();
    return fails ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    bool fails = to_fail && must_fail();
    return fails ? NULL : __real_realloc(memory, size);
}

static void a_report_that_ran_out_of_memory_is_void(void **state)
{
    (void)state;
    for (size_t k = 1;; k++) {
        failed = false;
        to_fail = k;
        report *r = report_create("name", "question?");
        fill(r);
        to_fail = 0;
        assert_int_equal(report_valid(r), !failed);
        char *text = printed(r, false);
        assert_int_equal(*text == '\0', failed);
        free(text);
        report_free(r);
        if (!failed)
            break;
        assert_true(k < 1000);
    }
}

static void a_mask_that_ran_out_of_memory_makes_the_report_void(void **state)
{
    (void)state;
    bauta_mask *all, *causal;
    faults_begin();
    assert_int_equal(bauta_mask_all(&all, 3, 3, NULL), BAUTA_OK);
    assert_int_equal(bauta_mask_causal(&causal, 3, 3, NULL), BAUTA_OK);
    for (size_t k = 0;; k++) {
        report *r = report_create("name", "question?");
        faults_arm(k);
        report_mask(r, "leak", all, causal);
        bool lacked = faults_disarm();
        assert_int_equal(report_valid(r), !lacked);
        report_free(r);
        assert_int_equal(faults_live() > 0, true);
        if (!lacked)
            break;
    }
    bauta_mask_free(all);
    bauta_mask_free(causal);
    assert_int_equal(faults_end(), 0);
}

static void allocation_failure_of_a_page_is_an_error(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    report *r = report_create("lab", "why?");
    const report *one[] = { r };
    failed = false;
    to_fail = 1;
    int status = report_page(one, 1, temp_folder_path(&s, "index.html"));
    to_fail = 0;
    assert_int_equal(status, CLI_FAILED);
    assert_string_equal(message, "lab: out of memory");
    assert_int_equal(temp_folder_count(&s), 0);
    report_free(r);
    temp_folder_free(&s);
}

/* jansson's allocations. */
static size_t json_live, json_to_fail;
static bool json_failed;

static void *json_alloc(size_t size)
{
    if (json_to_fail && --json_to_fail == 0) {
        json_failed = true;
        return NULL;
    }
    json_live++;
    return malloc(size);
}

static void json_release(void *memory)
{
    json_live -= memory != NULL;
    free(memory);
}

static void allocation_failure_of_json_is_an_error(void **state)
{
    (void)state;
    report *r = report_create("lab", "why?");
    fill(r);
    json_set_alloc_funcs(json_alloc, json_release);
    for (size_t k = 1;; k++) {
        int status;
        json_failed = false;
        json_live = 0;
        json_to_fail = k;
        message[0] = '\0';
        json_t *got = json_of(r, &status);
        json_to_fail = 0;
        bool whole = !json_failed;
        json_decref(got);
        assert_int_equal(json_live, 0);
        // Failing allocations in the code that writes or reads it again do not
        // count.
        if (status == CLI_OK)
            break;
        assert_false(whole);
        assert_string_equal(message, "lab: out of memory");
        assert_true(k < 1000);
    }
    json_set_alloc_funcs(malloc, free);
    report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_holds_its_elements),
        cmocka_unit_test(misplaced_elements_are_dropped),
        cmocka_unit_test(a_void_report_ignores_everything),
        cmocka_unit_test(a_report_that_ran_out_of_memory_is_void),
        cmocka_unit_test(a_mask_that_ran_out_of_memory_makes_the_report_void),
        cmocka_unit_test(allocation_failure_of_a_page_is_an_error),
        cmocka_unit_test(allocation_failure_of_json_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

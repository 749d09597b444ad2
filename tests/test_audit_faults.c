/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit_faults.c - known bugs, turned on one by one.
 *
 * Each occurs in real software: masks that are dropped together with dropout,
 * windows that are off by one in decoding, positions that do not restart at
 * documents, beams that write into each other's cache. The audit must find
 * every one of them, by the check that is meant for it, and name the layer. */
#include "audit_faults.h"
#include "tiny_models.h"

/* ---- an audit ------------------------------------------------------------ */

static bauta_audit *audit_of(const injected_fault *b, const bauta_model *model)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    options.threads = 1;
    options.isa = b->isa;
    assert_int_equal(bauta_context_create(&context, &options, NULL), 0);
    bauta_audit *audit = audit_run(b, context, model, 0);
    bauta_context_free(context);
    return audit;
}

static bauta_model *model_of(temp_folder *s, const char *family)
{
    bauta_model *model = NULL;
    char path[512];
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, family) == 0)
            tiny_write(s, &tinies[i], path);
    assert_int_equal(bauta_model_load(&model, path, false, NULL), 0);
    return model;
}

/* ---- every bug ------------------------------------------------------------
 */

static void every_injected_fault_is_located(void **state)
{
    const char *only = getenv("BAUTA_INJECT");
    size_t missed = 0;
    (void)state;
    for (size_t i = 0; i < BT_LEN(injected_faults); i++) {
        const injected_fault *b = &injected_faults[i];
        if (only && strcmp(only, b->name) != 0)
            continue;
        temp_folder s = temp_folder_create();
        bauta_model *model = model_of(&s, b->family);
        fault_inject(b->name, b->layer == ANY ? 0 : (size_t)b->layer);
        bauta_audit *audit = audit_of(b, model);
        fault_inject(NULL, 0);
        missed += !fault_found(b, audit);
        bauta_audit_free(audit);
        bauta_model_free(model);
        temp_folder_free(&s);
    }
    assert_int_equal(missed, 0);
}

/* The same models and batches without a fault: no check fails. */
static void correct_models_have_no_findings(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(injected_faults); i++) {
        if (seen_before(i))
            continue;
        temp_folder s = temp_folder_create();
        bauta_model *model = model_of(&s, injected_faults[i].family);
        bauta_audit *audit = audit_of(&injected_faults[i], model);
        if (!bauta_audit_passed(audit))
            for (size_t k = 0; k < bauta_audit_findings(audit); k++)
                printf("%s\n", bauta_audit_finding(audit, k)->message);
        assert_true(bauta_audit_passed(audit));
        bauta_audit_free(audit);
        bauta_model_free(model);
        temp_folder_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_injected_fault_is_located),
        cmocka_unit_test(correct_models_have_no_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

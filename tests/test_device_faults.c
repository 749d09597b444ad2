/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_faults.c - the faults of test_audit_faults.c on a device: the
 * audit finds every one that a device can have, and names the layer.
 *
 * The faults are in the table of the device's backend (device_faults.h), and in
 * the parts of the library above it. The device is the reference backend; with
 * BT_TEST_CUDA this is the program check_device_faults, and the device a GPU,
 * in float32 and in bfloat16. BAUTA_INJECT selects a fault by its name. */
#include "audit_faults.h"
#include "device_faults.h"
#include "runtime/context.h"

#ifdef BT_TEST_CUDA
#include "cuda/tiny_models.h"
static const char device[] = "cuda";
static const bauta_dtype dtypes[] = { BAUTA_FLOAT32, BAUTA_BFLOAT16 };

static void device_register(void)
{
}

static const char *config_of(const char *family)
{
    for (size_t i = 0; i < BT_LEN(tiny_models); i++)
        if (strcmp(tiny_models[i].family, family) == 0)
            return tiny_models[i].config;
    return NULL;
}
#else
#include "reference_backend.h"
#include "tiny_models.h"
static const char device[] = "reference";
static const bauta_dtype dtypes[] = { BAUTA_FLOAT32 };

static void device_register(void)
{
    bt_device_register(&bt_reference_driver);
}

static const char *config_of(const char *family)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, family) == 0)
            return tinies[i].config;
    return NULL;
}
#endif

/* Whether a device can have the fault: it has neither threads nor instruction
 * sets. */
static bool applies(const injected_fault *b)
{
    return b->found_by != BAUTA_CHECK_THREADS && b->found_by != BAUTA_CHECK_ISA;
}

static bool selected(const injected_fault *b)
{
    const char *only = getenv("BAUTA_INJECT");
    return applies(b) && (!only || strcmp(only, b->name) == 0);
}

/* An audit of a new model with the fault's checks, or all of those that its
 * model and batch have. The faulty table is there even if no fault is on. */
static bauta_audit *audit_on(const injected_fault *b, bauta_dtype dtype,
                             bool faulty, uint32_t checks)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    bauta_model *model = NULL;
    bauta_error err;
    options.device = device;
    options.dtype = dtype;
    if (bauta_context_create(&context, &options, &err) ||
        bauta_model_create(&model, config_of(b->family), 5, &err) ||
        bauta_model_to(model, context, &err))
        fail_msg("%s on %s: %s", b->family, device, err.message);
    device_faults_install(context->stream);
    if (faulty)
        fault_inject(b->name, b->layer == ANY ? 0 : (size_t)b->layer);
    bauta_audit *audit = audit_run(b, context, model, checks);
    fault_inject(NULL, 0);
    bauta_model_free(model);
    device_faults_release();
    bauta_context_free(context);
    return audit;
}

static void every_injected_fault_is_located(void **state)
{
    size_t missed = 0, count = 0;
    (void)state;
    for (size_t d = 0; d < BT_LEN(dtypes); d++)
        for (size_t i = 0; i < BT_LEN(injected_faults); i++) {
            const injected_fault *b = &injected_faults[i];
            if (!selected(b))
                continue;
            bauta_audit *audit =
                audit_on(b, dtypes[d], true, UINT32_C(1) << b->found_by);
            missed += !fault_found(b, audit);
            bauta_audit_free(audit);
            count++;
        }
    printf("%zu faults on %s, %zu missed\n", count, device, missed);
    assert_int_equal(missed, 0);
}

/* The checks that find a fault of this model and batch. */
static uint32_t checks_like(const injected_fault *b)
{
    uint32_t checks = 0;
    for (size_t i = 0; i < BT_LEN(injected_faults); i++)
        if (applies(&injected_faults[i]) && same_batch(&injected_faults[i], b))
            checks |= UINT32_C(1) << injected_faults[i].found_by;
    return checks;
}

static void correct_models_have_no_findings(void **state)
{
    (void)state;
    for (size_t d = 0; d < BT_LEN(dtypes); d++)
        for (size_t i = 0; i < BT_LEN(injected_faults); i++) {
            const injected_fault *b = &injected_faults[i];
            if (seen_before(i) || !selected(b))
                continue;
            bauta_audit *audit = audit_on(b, dtypes[d], false, checks_like(b));
            if (!bauta_audit_passed(audit))
                for (size_t k = 0; k < bauta_audit_findings(audit); k++)
                    printf("%s: %s\n", b->family,
                           bauta_audit_finding(audit, k)->message);
            assert_true(bauta_audit_passed(audit));
            bauta_audit_free(audit);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_injected_fault_is_located),
        cmocka_unit_test(correct_models_have_no_findings),
    };
    device_register();
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

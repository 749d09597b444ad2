/* SPDX-License-Identifier: Apache-2.0 */
/* test_average.c - the mean of several models, and the moving average of
 * one. */
#include "allocation_faults.h"
#include "training_fixtures.h"

static void the_mean_of_models_is_a_model(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    char paths[3][512];
    const char *folders[3];
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err;
    training_case_init(&l, &training_cases[0], NULL);
    size_t floats = l.model->store->floats;
    double *sums = calloc(floats, sizeof(*sums));
    assert_non_null(sums);
    for (size_t i = 0; i < 3; i++) {
        training_run_steps(&l, 2);
        snprintf(paths[i], sizeof(paths[i]), "%s/step-%zu", s.folder,
                 2 * i + 2);
        save(&l, paths[i]);
        folders[i] = paths[i];
        for (size_t j = 0; j < floats; j++)
            sums[j] += (double)store_weights(l.model->store)[j];
    }
    const char *out = temp_folder_path(&s, "mean");
    must(bauta_model_average(out, folders, 3, &err), &err);
    must(bauta_model_load(&model, out, true, &err), &err);
    must(bauta_tokenizer_load(&tokenizer, out, &err), &err);
    for (size_t j = 0; j < floats; j++)
        assert_true(store_weights(model->store)[j] == (float)(sums[j] / 3.0));
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    // The mean of one model, or of three copies, is that model.
    folders[0] = folders[1] = folders[2];
    for (size_t count = 1; count <= 3; count += 2) {
        char name[16];
        snprintf(name, sizeof(name), "same-%zu", count);
        must(bauta_model_average(temp_folder_path(&s, name), folders, count,
                                 &err),
             &err);
        must(bauta_model_load(&model, s.path, true, &err), &err);
        assert_memory_equal(store_weights(model->store),
                            store_weights(l.model->store),
                            floats * sizeof(float));
        bauta_model_free(model);
    }
    free(sums);
    training_run_release(&l);
    temp_folder_free(&s);
}

static void a_mean_of_different_models_is_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char gpt2[512], llama[512], wide[512];
    bauta_error err;
    training_run l;
    bauta_model *model;
    training_case_init(&l, &training_cases[0], NULL);
    snprintf(gpt2, sizeof(gpt2), "%s", temp_folder_path(&s, "gpt2"));
    snprintf(llama, sizeof(llama), "%s", temp_folder_path(&s, "llama"));
    snprintf(wide, sizeof(wide), "%s", temp_folder_path(&s, "wide"));
    save(&l, gpt2);
    training_run_release(&l);
    training_case_init(&l, &training_cases[3], NULL);
    save(&l, llama);
    training_run_release(&l);
    must(bauta_model_create(&model,
                            "{\"model_type\": \"gpt2\", \"n_embd\": 16, "
                            "\"n_head\": 2, \"n_layer\": 2, \"vocab_size\": "
                            "41, \"n_positions\": 96}",
                            1, &err),
         &err);
    must(bauta_model_save(model, wide, &err), &err);
    bauta_model_free(model);
    const char *out = temp_folder_path(&s, "out");
    const char *mixed[] = { gpt2, llama }, *shapes[] = { gpt2, wide };
    const char *nowhere[] = { gpt2, "/nowhere" };
    assert_int_equal(bauta_model_average(out, mixed, 2, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "of another kind"));
    assert_int_equal(bauta_model_average(out, shapes, 2, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "wte.weight differs"));
    assert_int_equal(bauta_model_average(out, nowhere, 2, &err), BAUTA_ERR_IO);
    assert_int_equal(bauta_model_average(out, mixed, 0, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_average(gpt2, mixed, 1, &err), BAUTA_ERR_IO);
    assert_int_equal(temp_folder_count(&s), 3);

    bool failed = true;
    faults_begin();
    for (size_t k = 0; failed; k++) {
        faults_arm(k);
        bauta_status status = bauta_model_average(out, mixed, 1, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(temp_folder_count(&s), failed ? 3 : 4);
    }
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

/* The exported weights are those that were evaluated. */
static void an_export_has_the_averaged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) { // with an average and without
        temp_folder s = temp_folder_create();
        training_run l;
        bauta_model *model;
        bauta_tokenizer *tokenizer;
        bauta_error err;
        training_case_init(&l, &training_cases[i], NULL);
        training_run_steps(&l, 5);
        const char *folder = temp_folder_path(&s, "out");
        must(bauta_trainer_export(l.trainer, folder, &err), &err);
        must(bauta_model_load(&model, folder, true, &err), &err);
        must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
        assert_memory_equal(store_weights(model->store),
                            i ? store_weights(l.model->store)
                              : trainer_ema(l.trainer),
                            model->store->floats * sizeof(float));
        assert_int_equal(bauta_trainer_export(l.trainer, folder, &err),
                         BAUTA_ERR_IO);
        bauta_tokenizer_free(tokenizer);
        bauta_model_free(model);
        training_run_release(&l);
        temp_folder_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_of_models_is_a_model),
        cmocka_unit_test(an_export_has_the_averaged_weights),
        cmocka_unit_test(a_mean_of_different_models_is_refused),
    };
    // Thousands of files are synced, which is faster in memory.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

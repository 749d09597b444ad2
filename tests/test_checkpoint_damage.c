/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_damage.c - checkpoints that are damaged, forged or of another
 * run, and failing allocations: an error with a message, and an unchanged
 * trainer. */
#include "allocation_faults.h"
#include "formats/sealed_json.h"
#include "training_fixtures.h"

static uint64_t seed;

/* ---- damage -------------------------------------------------------------- */

/* Damage that is accepted must not change anything that is read. */
static void survives(training_run *l, const training_run *fresh,
                     const training_run *saved, const char *folder)
{
    bauta_error err = { 0 };
    if (bauta_trainer_resume(l->trainer, folder, &err)) {
        assert_true(strlen(err.message) > 10);
        assert_int_equal(bauta_trainer_steps(l->trainer), 0);
        training_run_same(fresh, l);
        return;
    }
    training_run_same(saved, l);
    assert_int_equal(bauta_trainer_steps(l->trainer),
                     bauta_trainer_steps(saved->trainer));
    // Restore it for the next one.
    bauta_train_options o = options_of(&training_cases[0]);
    training_run_release(l);
    training_run_init(l, "gpt2", folder, &o, 1, NULL);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "trainer.json",
                                         "optimizer.safetensors" };
    test_random r = test_random_from(seed);
    temp_folder s = temp_folder_create();
    training_run saved, l, fresh;
    bauta_train_options o = options_of(&training_cases[0]);
    training_case_init(&saved, &training_cases[0], NULL);
    training_run_steps(&saved, 3);
    const char *folder = temp_folder_path(&s, "step-3");
    save(&saved, folder);
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    training_run_init(&fresh, "gpt2", folder, &o, 1, NULL);
    for (size_t i = 0; i < BT_LEN(names); i++) {
        text_file good = file_load(folder, names[i]);
        char *bytes = malloc(good.size + 1);
        assert_non_null(bytes);
        for (size_t k = 0; k < 400; k++) {
            size_t size = good.size;
            memcpy(bytes, good.bytes, size);
            // Half of the positions are in the first part, where the names are.
            size_t part = k % 2 && size > 4000 ? 4000 : size;
            size_t at = test_below(&r, part);
            if (k < 100) {
                size = at;
            } else if (k < 300) {
                bytes[at] = (char)(bytes[at] ^ 1 << test_below(&r, 8));
            } else {
                memset(bytes + at, (int)test_below(&r, 256),
                       bt_size_min(1 + test_below(&r, 9), size - at));
            }
            file_store(folder, names[i], bytes, size);
            survives(&l, &fresh, &saved, folder);
        }
        file_store(folder, names[i], "", 0);
        survives(&l, &fresh, &saved, folder);
        snprintf(bytes, good.size, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(bytes), 0);
        refused(&l, folder, BAUTA_ERR_IO, names[i]);
        assert_int_equal(mkdir(bytes, 0777), 0);
        refused(&l, folder, BAUTA_ERR_IO, "is a folder");
        assert_int_equal(rmdir(bytes), 0);
        file_store(folder, names[i], good.bytes, good.size);
        free(good.bytes);
        free(bytes);
    }
    bauta_error err;
    must(bauta_trainer_resume(l.trainer, folder, &err), &err);
    training_run_same(&saved, &l);
    training_run_release(&l);
    training_run_release(&fresh);
    training_run_release(&saved);
    temp_folder_free(&s);
}

/* Load the model of a checkpoint, through either call. */
static void a_damaged_model_is_refused(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 2);
    temp_folder s = temp_folder_create();
    training_run saved;
    bauta_error err;
    training_case_init(&saved, &training_cases[0], NULL);
    training_run_steps(&saved, 1);
    const char *folder = temp_folder_path(&s, "step-1");
    save(&saved, folder);
    text_file good = file_load(folder, "model.safetensors");
    for (size_t k = 0; k < 64; k++) {
        bauta_model *model = NULL;
        size_t at = good.size - 1 - test_below(&r, good.size / 2);
        char bit = (char)(1 << test_below(&r, 8));
        good.bytes[at] ^= bit;
        file_store(folder, "model.safetensors", good.bytes, good.size);
        assert_int_equal(bauta_model_load(&model, folder, k % 2, &err),
                         BAUTA_ERR_FORMAT);
        assert_null(model);
        assert_non_null(strstr(err.message, "step-1/model.safetensors: "));
        good.bytes[at] ^= bit;
    }
    file_store(folder, "model.safetensors", good.bytes, good.size);
    bauta_model *model = NULL;
    must(bauta_model_load(&model, folder, false, &err), &err);
    bauta_model_free(model);
    free(good.bytes);
    training_run_release(&saved);
    temp_folder_free(&s);
}

/* Records with a valid checksum but impossible contents. */
static void impossible_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value; /* NULL: removed */
        bauta_status status;
        const char *message;
    } wrong[] = {
        { "format", "2", BAUTA_ERR_UNSUPPORTED, "format 2" },
        { "format", NULL, BAUTA_ERR_UNSUPPORTED, "format nothing" },
        { "format", "\"1\"", BAUTA_ERR_UNSUPPORTED, "format \"1\"" },
        { "step", "-1", BAUTA_ERR_FORMAT, "step is -1" },
        { "step", "3.5", BAUTA_ERR_FORMAT, "step is 3.5" },
        { "step", NULL, BAUTA_ERR_FORMAT, "step is nothing" },
        { "step", "\"3\"", BAUTA_ERR_FORMAT, "step is \"3\"" },
        { "epoch", "4", BAUTA_ERR_FORMAT, "epoch 4" },
        { "epoch", "9223372036854775807", BAUTA_ERR_FORMAT, "after 3 steps" },
        { "batch", "4", BAUTA_ERR_FORMAT, "batch 4" },
        { "updates", "4", BAUTA_ERR_FORMAT, "4 updates" },
        { "updates", "[]", BAUTA_ERR_FORMAT, "updates is []" },
        { "options", NULL, BAUTA_ERR_ARGUMENT, "option objective" },
        { "options", "7", BAUTA_ERR_ARGUMENT, "option objective" },
        { "digests", NULL, BAUTA_ERR_FORMAT, "no digest of the optimizer" },
        { "digests", "[]", BAUTA_ERR_FORMAT, "no digest of the optimizer" },
        { "digests", "{\"optimizer\": \"0\"}", BAUTA_ERR_FORMAT, "no digest" },
        { "digests", "{\"optimizer\": \"000000000000000g\"}", BAUTA_ERR_FORMAT,
          "no digest" },
        { "digests", "{\"optimizer\": \"0000000000000000\"}",
          BAUTA_ERR_ARGUMENT, "the corpus is not" },
    };
    temp_folder s = temp_folder_create();
    training_run saved, l;
    bauta_train_options o = options_of(&training_cases[0]);
    training_case_init(&saved, &training_cases[0], NULL);
    training_run_steps(&saved, 3);
    const char *folder = temp_folder_path(&s, "step-3");
    save(&saved, folder);
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    text_file good = file_load(folder, "trainer.json");
    for (size_t i = 0; i < BT_LEN(wrong); i++) {
        json_t *record = json_loadb(good.bytes, good.size, 0, NULL);
        char *text;
        assert_non_null(record);
        if (wrong[i].value)
            json_object_set_new(
                record, wrong[i].key,
                json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(record, wrong[i].key);
        assert_int_equal(bt_sealed_json_text(&text, record, "", NULL), 0);
        file_store(folder, "trainer.json", text, strlen(text));
        bauta_text_free(text);
        json_decref(record);
        refused(&l, folder, wrong[i].status, wrong[i].message);
    }
    // One digit, in a record that is otherwise valid.
    char *digit = strstr(good.bytes, "\"batch\": ");
    assert_non_null(digit);
    digit[9] = digit[9] == '1' ? '2' : '1';
    file_store(folder, "trainer.json", good.bytes, good.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "is damaged");
    // An option that a later version may have.
    json_t *record = json_loadb(good.bytes, good.size, 0, NULL);
    char *text;
    json_object_set_new(json_object_get(record, "options"), "more",
                        json_true());
    assert_int_equal(bt_sealed_json_text(&text, record, "", NULL), 0);
    file_store(folder, "trainer.json", text, strlen(text));
    refused(&l, folder, BAUTA_ERR_FORMAT, "unknown options");
    bauta_text_free(text);
    json_decref(record);
    // An object that is no checkpoint, and JSON that is no object.
    file_store(folder, "trainer.json", "{}", 2);
    refused(&l, folder, BAUTA_ERR_FORMAT, "has no seal");
    file_store(folder, "trainer.json", "[]", 2);
    refused(&l, folder, BAUTA_ERR_FORMAT, "not a JSON object");
    free(good.bytes);
    training_run_release(&l);
    training_run_release(&saved);
    temp_folder_free(&s);
}

/* Rename an option in a folder's record, and seal the record again. */
static void option_rename(const char *folder, const char *from, const char *to)
{
    text_file file = file_load(folder, "trainer.json");
    json_t *record = json_loadb(file.bytes, file.size, 0, NULL);
    json_t *options = json_object_get(record, "options");
    char *text;
    assert_non_null(json_object_get(options, from));
    json_object_set(options, to, json_object_get(options, from));
    json_object_del(options, from);
    assert_int_equal(bt_sealed_json_text(&text, record, "", NULL), 0);
    file_store(folder, "trainer.json", text, strlen(text));
    bauta_text_free(text);
    json_decref(record);
    free(file.bytes);
}

/* Version 0.1 named the options otherwise; its checkpoints resume. */
static void a_record_of_version_0_1_resumes(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "batch_sequences", "sequences" },
        { "batch_tokens", "tokens" },
        { "gradient_accumulation_steps", "accumulate" },
        { "microbatch_tokens", "pass" },
        { "context_length", "context" },
        { "label_smoothing", "smoothing" },
        { "mlm_probability", "hidden" },
        { "mlm_random", "hidden_random" },
        { "mlm_keep", "hidden_kept" },
        { "scheduled_sampling", "sampled" },
        { "warmup_steps", "warmup" },
        { "lr_scheduler_type", "schedule" },
        { "learning_rate", "rate" },
        { "min_learning_rate", "min_rate" },
        { "adam_beta1", "beta1" },
        { "adam_beta2", "beta2" },
        { "adam_epsilon", "epsilon" },
        { "max_grad_norm", "clip" },
        { "ema_decay", "average" },
    };
    temp_folder s = temp_folder_create();
    training_run saved, l;
    bauta_error err;
    bauta_train_options o = options_of(&training_cases[0]);
    training_case_init(&saved, &training_cases[0], NULL);
    training_run_steps(&saved, 3);
    const char *folder = temp_folder_path(&s, "step-3");
    save(&saved, folder);
    for (size_t i = 0; i < BT_LEN(names); i++)
        option_rename(folder, names[i][0], names[i][1]);
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    must(bauta_trainer_resume(l.trainer, folder, &err), &err);
    training_run_steps(&saved, 2);
    training_run_steps(&l, 2);
    training_run_same(&saved, &l);
    training_run_release(&l);

    // A value that differs is reported under the new name.
    o.learning_rate *= 2;
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, " option learning_rate is ");
    o.learning_rate /= 2;
    training_run_release(&l);
    // A name that no version has.
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    option_rename(folder, "rate", "speed");
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "learning_rate is nothing");
    training_run_release(&l);
    training_run_release(&saved);
    temp_folder_free(&s);
}

/* Valid files of tensors of another run. */
static void tensors_of_another_run_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run saved, other, l;
    bauta_train_options o = options_of(&training_cases[0]);
    training_case_init(&saved, &training_cases[0], NULL);
    training_case_init(&other, &training_cases[0], NULL);
    training_run_steps(&saved, 3);
    training_run_steps(&other, 4);
    save(&other, temp_folder_path(&s, "step-4"));
    text_file later = file_load(s.path, "optimizer.safetensors");
    text_file model = file_load(s.path, "model.safetensors");
    o.ema_decay = 0.0;
    training_run_init(&l, "gpt2", NULL, &o, 1, NULL);
    save(&l, temp_folder_path(&s, "step-0"));
    text_file fewer = file_load(s.path, "optimizer.safetensors");
    training_run_release(&l);
    o.ema_decay = 0.9;
    training_run_init(&l, "llama", NULL, &o, 1, NULL);
    save(&l, temp_folder_path(&s, "llama"));
    text_file llama = file_load(s.path, "optimizer.safetensors");
    training_run_release(&l);

    const char *folder = temp_folder_path(&s, "step-3");
    save(&saved, folder);
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    file_store(folder, "optimizer.safetensors", later.bytes, later.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "differs from the saved one");
    file_store(folder, "optimizer.safetensors", model.bytes, model.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "is missing");
    file_store(folder, "optimizer.safetensors", fewer.bytes, fewer.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "is missing");
    file_store(folder, "optimizer.safetensors", llama.bytes, llama.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "is missing");
    training_run_release(&l);

    // More tensors than this run has, under its record: without an average.
    o.ema_decay = 0.0;
    folder = temp_folder_path(&s, "step-0");
    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    file_store(folder, "optimizer.safetensors", later.bytes, later.size);
    refused(&l, folder, BAUTA_ERR_FORMAT, "tensors, but this run has");
    training_run_release(&l);
    free(later.bytes);
    free(model.bytes);
    free(fewer.bytes);
    free(llama.bytes);
    training_run_release(&other);
    training_run_release(&saved);
    temp_folder_free(&s);
}

/* ---- failing allocations ------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l, fresh;
    bauta_error err;
    bauta_train_options o = options_of(&training_cases[0]);
    bool failed = true;
    faults_begin();
    training_case_init(&l, &training_cases[0], NULL);
    training_run_steps(&l, 3);
    const char *folder = temp_folder_path(&s, "step-3");
    for (size_t k = 0; failed; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bauta_trainer_save(l.trainer, folder, "{\"a\": 1}", &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(faults_live(), live);
        assert_int_equal(temp_folder_count(&s), !failed);
    }
    training_run_init(&fresh, "gpt2", folder, &o, 1, NULL);
    failed = true;
    for (size_t k = 0; failed; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_trainer_resume(fresh.trainer, folder, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(faults_live(), live);
        assert_int_equal(bauta_trainer_steps(fresh.trainer), failed ? 0 : 3);
    }
    training_run_same(&l, &fresh);
    failed = true;
    for (size_t k = 0; failed; k++) {
        char *last = NULL, *notes = NULL;
        bauta_model *model = NULL;
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_run_last(&last, s.folder, &err);
        if (!status)
            status = bauta_checkpoint_notes(&notes, last, &err);
        if (!status)
            status = bauta_model_load(&model, s.folder, false, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        bauta_text_free(last);
        bauta_text_free(notes);
        bauta_model_free(model);
        assert_int_equal(faults_live(), live);
    }
    training_run_release(&l);
    training_run_release(&fresh);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(a_damaged_model_is_refused),
        cmocka_unit_test(impossible_records_are_refused),
        cmocka_unit_test(a_record_of_version_0_1_resumes),
        cmocka_unit_test(tensors_of_another_run_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    seed = test_seed();
    // Thousands of files are synced, which is faster in memory.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

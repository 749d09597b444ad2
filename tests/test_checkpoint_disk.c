/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_disk.c - disk errors and a killed process during a
 * checkpoint: afterwards there is a whole checkpoint or none, and the resumed
 * run is bit-identical to one that never stopped. */
#include "disk_faults.h"
#include "training_fixtures.h"

#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t seed;

/* ---- disk errors --------------------------------------------------------- */

/* A whole checkpoint of step 3, from which a new trainer resumes. */
static void is_whole(const training_case *c, const training_run *saved,
                     const char *folder)
{
    training_run l;
    training_case_init(&l, c, folder);
    training_run_same(saved, &l);
    training_run_release(&l);
}

/* One save for each of its calls, in which that call fails. */
static size_t fail_at_every_call(const training_case *c, training_run *l,
                                 temp_folder *s, disk_fault fault)
{
    char folder[512];
    bauta_error err;
    size_t k = 0;
    snprintf(folder, sizeof(folder), "%s", temp_folder_path(s, "step-3"));
    for (;; k++) {
        disk_arm(k, fault);
        bauta_status status =
            bauta_trainer_save(l->trainer, folder, NULL, &err);
        bool failed = disk_disarm();
        if (status) {
            assert_true(failed);
            assert_int_equal(status, BAUTA_ERR_IO);
            assert_true(strlen(err.message) > 10);
        }
        // There is nothing, or it is whole. A folder that could not be synced
        // exists all the same, and closing a folder after its sync may fail.
        size_t there = temp_folder_count(s);
        assert_true(there <= 1 && (status || there == 1));
        if (there == 1) {
            assert_true(access(folder, F_OK) == 0);
            if (k % 16 == 0 || status)
                is_whole(c, l, folder);
            temp_folder_remove(folder);
        }
        if (!failed)
            return k;
    }
}

/* A power failure cannot be tested here, so the test checks that everything is
 * synced before it is renamed. */
static void files_are_synced_before_they_are_renamed(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    training_case_init(&l, &training_cases[0], NULL);
    disk_watch();
    save(&l, temp_folder_path(&s, "step-0"));
    assert_int_equal(disk_unsafe(), 0);
    training_run_release(&l);
    temp_folder_free(&s);
}

static void every_file_call_may_fail(void **state)
{
    (void)state;
    size_t points = 0;
    for (size_t i = 0; i < 3; i++) {
        temp_folder s = temp_folder_create();
        training_run l, whole;
        training_case_init(&whole, &training_cases[i], NULL);
        training_case_init(&l, &training_cases[i], NULL);
        training_run_steps(&whole, STEPS);
        training_run_steps(&l, 3);
        for (int fault = DISK_FAILS; fault <= DISK_BREAKS; fault++)
            points += fail_at_every_call(&training_cases[i], &l, &s,
                                         (disk_fault)fault);
        training_run_steps(
            &l,
            STEPS - 3); // the run continues as if nothing had happened
        training_run_same(&whole, &l);
        training_run_release(&l);
        training_run_release(&whole);
        temp_folder_free(&s);
    }
    printf("%zu calls failed\n", points);
    assert_true(points >= 200);
}

/* A file that may not grow beyond some size, as on a full disk. */
static void a_full_disk_leaves_no_partial_checkpoint(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    struct rlimit old, small;
    bauta_error err;
    training_case_init(&l, &training_cases[0], NULL);
    const char *folder = temp_folder_path(&s, "step-0");
    save(&l, folder);
    text_file largest = file_load(folder, "optimizer.safetensors");
    free(largest.bytes);
    temp_folder_remove(folder);
    fflush(NULL); // the limit applies to printed output, too
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t i = 0; i < 64; i++) {
        small = (struct rlimit){ largest.size * i / 64, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        bauta_status status = bauta_trainer_save(l.trainer, folder, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, BAUTA_ERR_IO);
        assert_non_null(strstr(err.message, "cannot write it"));
        assert_int_equal(temp_folder_count(&s), 0);
    }
    signal(SIGXFSZ, before);
    save(&l, folder);
    training_run_release(&l);
    temp_folder_free(&s);
}

/* ---- a killed process ---------------------------------------------------- */

/* Kill the process at call k of the second save; true when there are fewer
 * calls. */
static bool killed_at(const training_case *c, const char *run, size_t k)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        training_run l;
        char first[600], second[600];
        snprintf(first, sizeof(first), "%s/step-1", run);
        snprintf(second, sizeof(second), "%s/step-2", run);
        training_case_init(&l, c, first);
        training_run_steps(&l, 1);
        disk_arm(k, DISK_KILLS);
        bauta_status status = bauta_trainer_save(l.trainer, second, NULL, NULL);
        _exit(status || disk_disarm() ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), SIGKILL);
    return WIFEXITED(status);
}

static void a_process_may_be_killed_at_every_call(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const training_case *c = &training_cases[0];
    training_run one, two;
    size_t k = 0, seconds = 0;
    training_case_init(&one, c, NULL);
    training_case_init(&two, c, NULL);
    training_run_steps(&one, 1);
    training_run_steps(&two, 2);
    save(&one, temp_folder_path(&s, "step-1"));
    for (bool done = false; !done; k++) {
        char *last;
        bauta_error err;
        done = killed_at(c, s.folder, k);
        must(bauta_run_last(&last, s.folder, &err), &err);
        bool second = strcmp(strrchr(last, '/') + 1, "step-2") == 0;
        assert_true(second || !done);
        // Checked in full at every eighth call and at the important ones.
        if (second || k % 8 == 0)
            is_whole(c, second ? &two : &one, last);
        seconds += second;
        if (second)
            temp_folder_remove(last);
        bauta_text_free(last);
    }
    printf("killed at %zu calls, after the last rename at %zu\n", k - 1,
           seconds - 1);
    training_run_release(&one);
    training_run_release(&two);
    temp_folder_free(&s);
}

/* Train and save from the last checkpoint on, until the end. */
static void child_run(const training_case *c, const char *run)
{
    training_run l;
    char *last;
    if (bauta_run_last(&last, run, NULL))
        _exit(2);
    training_case_init(&l, c, last);
    for (size_t at = bauta_trainer_steps(l.trainer); at < STEPS;) {
        char folder[600];
        if (bauta_trainer_step(l.trainer, NULL, NULL))
            _exit(3);
        snprintf(folder, sizeof(folder), "%s/step-%zu", run, ++at);
        if (bauta_trainer_save(l.trainer, folder, NULL, NULL))
            _exit(4);
    }
    _exit(0);
}

/* Run until killed after some time; true when it finished first. */
static bool child_killed(const training_case *c, const char *run,
                         useconds_t time)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(c, run);
    usleep(time);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFEXITED(status);
}

static void a_process_may_be_killed_at_any_time(void **state)
{
    (void)state;
    enum { KILLS = 50 };
    test_random r = test_random_from(seed + 1);
    size_t kills = 0, runs = 0;
    for (; kills < KILLS; runs++) {
        const training_case *c = &training_cases[runs % BT_LEN(training_cases)];
        temp_folder s = temp_folder_create();
        training_run whole, last;
        char *folder;
        bauta_error err;
        // The time grows, so that the run finishes on a busy machine.
        for (useconds_t most = 4000;; most += most / 8, kills++)
            if (child_killed(c, s.folder, (useconds_t)test_below(&r, most)))
                break;
        must(bauta_run_last(&folder, s.folder, &err), &err);
        training_case_init(&last, c, folder);
        assert_int_equal(bauta_trainer_steps(last.trainer), STEPS);
        training_case_init(&whole, c, NULL);
        training_run_steps(&whole, STEPS);
        training_run_same(&whole, &last);
        bauta_text_free(folder);
        training_run_release(&whole);
        training_run_release(&last);
        temp_folder_free(&s);
    }
    printf("%zu runs, killed %zu times\n", runs, kills);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_synced_before_they_are_renamed),
        cmocka_unit_test(every_file_call_may_fail),
        cmocka_unit_test(a_full_disk_leaves_no_partial_checkpoint),
        cmocka_unit_test(a_process_may_be_killed_at_every_call),
        cmocka_unit_test(a_process_may_be_killed_at_any_time),
    };
    seed = test_seed();
    // Thousands of files are synced, which is faster in memory.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

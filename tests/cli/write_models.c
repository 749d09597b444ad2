/* SPDX-License-Identifier: Apache-2.0 */
/* write_models.c - write a small model folder of every family, for program.sh.
 *
 *   folders FOLDER
 *
 * The folders are written to FOLDER, whose previous contents are removed. */
#include "tiny_models.h"

static const char *target;

static void folders_write(void **state)
{
    (void)state;
    temp_folder s;
    char path[512];
    snprintf(s.folder, sizeof(s.folder), "%s", target);
    temp_folder_remove(target);
    assert_int_equal(mkdir(target, 0777), 0);
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        tiny_write(&s, &tinies[i], path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(folders_write) };
    if (argc != 2)
        return 2;
    target = argv[1];
    return cmocka_run_group_tests_name("write_models", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_config.c - the keys of tokenizer_config.json. */
#include "temp_folder.h"

#include <bauta.h>

#include <string.h>

static bauta_status load_with(const char *config, bauta_error *err)
{
    temp_folder s = temp_folder_create();
    bauta_tokenizer *made, *loaded = NULL;
    assert_int_equal(bauta_tokenizer_bytes(&made, err), BAUTA_OK);
    assert_int_equal(bauta_tokenizer_save(made, s.folder, err), BAUTA_OK);
    temp_folder_write(&s, "tokenizer_config.json", config, strlen(config));
    bauta_status status = bauta_tokenizer_load(&loaded, s.folder, err);
    bauta_tokenizer_free(loaded);
    bauta_tokenizer_free(made);
    temp_folder_free(&s);
    return status;
}

/* As transformers writes it if a tokenizer has no maximum length. */
static void a_length_of_1e30_is_read(void **state)
{
    (void)state;
    bauta_error err;
    bauta_status status = load_with(
        "{\"model_max_length\": 1000000000000000019884624838656}", &err);
    if (status)
        fail_msg("%s", err.message);
}

static void a_malformed_config_is_an_error(void **state)
{
    (void)state;
    bauta_error err;
    assert_int_equal(load_with("{\"model_max_length\": 1e", &err),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "tokenizer_config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_length_of_1e30_is_read),
        cmocka_unit_test(a_malformed_config_is_an_error),
    };
    return cmocka_run_group_tests_name("tokenizer_config", tests, NULL, NULL);
}

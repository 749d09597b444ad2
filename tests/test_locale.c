/* SPDX-License-Identifier: Apache-2.0 */
/* test_locale.c - under a locale with a decimal comma the library writes the
 * same JSON. */
#include "audit_fixtures.h"
#include "base/string_writer.h"
#include "tiny_models.h"

#include <jansson.h>
#include <locale.h>
#include <math.h>

/* ---- a locale with a comma ----------------------------------------------- */

static const char *const commas[] = { "de_DE.UTF-8", "de_DE.utf8", "de_DE",
                                      "fr_FR.UTF-8", "ru_RU.UTF-8" };

static bool comma_set(void)
{
    for (size_t i = 0; i < BT_LEN(commas); i++)
        if (setlocale(LC_ALL, commas[i]) &&
            strcmp(localeconv()->decimal_point, ".") != 0)
            return true;
    return false;
}

/* If none is installed, localedef makes one in the temporary folder. */
static bool comma_make(temp_folder *s)
{
    char command[700];
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >'%s/log' 2>&1",
             s->folder, s->folder);
    if (system(command) != 0)
        return false;
    assert_int_equal(setenv("LOCPATH", s->folder, 1), 0);
    return comma_set();
}

/* ---- the calls that write JSON ------------------------------------------- */

enum { ROOM = 8192 };

static void describe(char *text)
{
    bauta_model *model;
    assert_int_equal(bauta_model_create(&model, tinies[1].config, 1, NULL), 0);
    assert_true(bauta_model_describe(model, text, ROOM) < ROOM);
    bauta_model_free(model);
}

static void options(char *text)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    o.temperature = 0.7f;
    o.top_p = 0.95f;
    assert_true(bauta_generate_options_json(&o, text, ROOM) < ROOM);
}

/* The seconds of a check differ from run to run, so they are removed. */
static void audit(char *text)
{
    static const size_t lengths[] = { 5 };
    test_random r = test_random_from(1);
    side target;
    bauta_model *model;
    bauta_context *context;
    bauta_audit *found;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    how.checks = 1u << BAUTA_CHECK_REACH;
    side_init(&target, &r, 1, lengths, 0, 39);
    assert_int_equal(bauta_context_create(&context, NULL, NULL), 0);
    assert_int_equal(bauta_model_create(&model, tinies[0].config, 1, NULL), 0);
    assert_int_equal(bauta_audit_create(&found, context, model, NULL,
                                        &target.batch, &how, NULL),
                     0);
    assert_true(bauta_audit_json(found, text, ROOM) < ROOM);
    char *seconds = strstr(text, "\"seconds\":");
    assert_non_null(seconds);
    char *number = seconds + strlen("\"seconds\":");
    memset(number, '1', strcspn(number, "."));
    assert_non_null(strchr(number, '.'));
    memset(strchr(number, '.') + 1, '1', 3);
    bauta_audit_free(found);
    bauta_model_free(model);
    bauta_context_free(context);
    side_release(&target);
}

static void preset(char *text)
{
    bauta_tokenizer *tokenizer;
    bauta_train_options train = BAUTA_TRAIN_OPTIONS_INIT;
    char *config;
    assert_int_equal(bauta_tokenizer_bytes(&tokenizer, NULL), 0);
    assert_int_equal(bauta_preset(&config, &train, bauta_preset_name(0, NULL),
                                  tokenizer, NULL, NULL),
                     0);
    snprintf(text, ROOM, "%s", config);
    bauta_text_free(config);
    bauta_tokenizer_free(tokenizer);
}

static void json_has_a_decimal_point_in_every_locale(void **state)
{
    static const struct {
        const char *name;
        void (*write)(char *text);
    } calls[] = {
        { "bauta_model_describe", describe },
        { "bauta_generate_options_json", options },
        { "bauta_audit_json", audit },
        { "bauta_preset", preset },
    };
    static char plain[BT_LEN(calls)][ROOM], text[ROOM];
    (void)state;
    temp_folder s = temp_folder_create();
    for (size_t i = 0; i < BT_LEN(calls); i++)
        calls[i].write(plain[i]);
    bool comma = comma_set() || comma_make(&s);
    printf("locale %s\n", comma ? setlocale(LC_NUMERIC, NULL) : "(none)");
    for (size_t i = 0; comma && i < BT_LEN(calls); i++) {
        calls[i].write(text);
        json_t *json = json_loads(text, 0, NULL);
        if (!json || strcmp(text, plain[i]) != 0)
            fail_msg("%s: %s", calls[i].name, text);
        json_decref(json);
    }
    setlocale(LC_ALL, "C");
    temp_folder_free(&s);
    if (!comma)
        skip();
}

/* ---- numbers ------------------------------------------------------------- */

static void decimal_separators_become_points(void **state)
{
    static const struct {
        const char *from, *to;
    } numbers[] = {
        { "0,5", "0.5" },
        { "-1,25e-07", "-1.25e-07" },
        { "1\xD9\xAB"
          "5e+20",
          "1.5e+20" }, // U+066B, two bytes
        { "12", "12" },
        { "0.5", "0.5" },
    };
    (void)state;
    for (size_t i = 0; i < BT_LEN(numbers); i++) {
        char text[32];
        snprintf(text, sizeof(text), "%s", numbers[i].from);
        bt_decimal_point(text);
        assert_string_equal(text, numbers[i].to);
    }
}

static void non_finite_numbers_are_null(void **state)
{
    char text[512];
    bt_string_writer w = { text, sizeof(text), 0 };
    (void)state;
    bt_put_real(&w, (double)NAN, 9);
    bt_put_fixed(&w, -(double)INFINITY, 3);
    bt_put_fixed(&w, 0.5, 3);
    bt_put_real(&w, 0.1, 17);
    assert_int_equal(bt_put_end(&w),
                     strlen("nullnull0.5000.10000000000000001"));
    assert_string_equal(text, "nullnull0.5000.10000000000000001");
    w.length = 0;
    bt_put_fixed(&w, -1.7976931348623157e308, 1); // 312 characters
    assert_int_equal(bt_put_end(&w), 312);
}

static void truncated_output_is_counted(void **state)
{
    char text[4];
    bt_string_writer w = { text, sizeof(text), 0 };
    (void)state;
    bt_put_string(&w, "a\"\n");
    assert_int_equal(bt_put_end(&w), strlen("\"a\\\"\\u000a\""));
    assert_string_equal(text, "\"a\\");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_a_decimal_point_in_every_locale),
        cmocka_unit_test(decimal_separators_become_points),
        cmocka_unit_test(non_finite_numbers_are_null),
        cmocka_unit_test(truncated_output_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

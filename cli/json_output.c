/* SPDX-License-Identifier: Apache-2.0 */
/* json_output.c - results as JSON on stdout; see json_output.h. */
#include "json_output.h"

#include "cli.h"
#include "lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *allocate_or_exit(size_t size)
{
    void *memory = malloc(size);
    if (memory)
        return memory;
    (void)cli_fail(NULL, "out of memory for JSON");
    exit(CLI_FAILED);
}

void json_exit_on_oom(void)
{
    json_set_alloc_funcs(allocate_or_exit, free);
}

json_t *json_text(const char *text, size_t length)
{
    static const char unknown[] = "\xEF\xBF\xBD";
    json_t *string = json_stringn(text, length);
    if (string)
        return string;
    char *clean = malloc(3 * length + 1);
    size_t at = 0;
    for (size_t i = 0, n; clean && i < length; i += n ? n : 1) {
        n = utf8_character((const unsigned char *)text + i, length - i);
        memcpy(clean + at, n ? text + i : unknown, n ? n : 3);
        at += n ? n : 3;
    }
    string = clean ? json_stringn(clean, at) : NULL;
    free(clean);
    return string;
}

json_t *json_ids(const uint32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

json_t *json_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

json_t *json_floats(const float *numbers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++)
        json_array_append_new(list, json_number((double)numbers[i]));
    return list;
}

json_t *json_mask(const bauta_mask *mask)
{
    size_t length = bauta_mask_json(mask, NULL, 0);
    char *text = malloc(length + 1);
    json_t *parsed = NULL;
    if (text) {
        bauta_mask_json(mask, text, length + 1);
        parsed = json_loads(text, 0, NULL);
    }
    free(text);
    return parsed;
}

json_t *json_model(const bauta_model *model)
{
    size_t length = bauta_model_describe(model, NULL, 0);
    char *text = malloc(length + 1);
    json_t *parsed = NULL;
    if (text) {
        bauta_model_describe(model, text, length + 1);
        parsed = json_loads(text, 0, NULL);
    }
    free(text);
    return parsed;
}

static int json_print(const char *verb, json_t *object, size_t flags)
{
    if (!object)
        return cli_fail(verb, "out of memory");
    json_dumpf(object, stdout, flags);
    putchar('\n');
    json_decref(object);
    return CLI_OK;
}

int json_line(const char *verb, json_t *object)
{
    return json_print(verb, object, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

int json_indented(const char *verb, json_t *object)
{
    return json_print(verb, object, JSON_INDENT(2));
}

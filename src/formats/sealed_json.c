/* SPDX-License-Identifier: Apache-2.0 */
/* sealed_json.c - see sealed_json.h. */
#include "formats/sealed_json.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char seal_key[] = "seal";

/* The seal as sixteen hexadecimal digits; false when memory runs out. */
static bool seal_of(char seal[17], const json_t *object)
{
    char *text = bt_json_dump(object, JSON_COMPACT | JSON_SORT_KEYS |
                                          JSON_REAL_PRECISION(17));
    if (!text)
        return false;
    snprintf(seal, 17, "%016" PRIx64, bt_digest_bytes(1, text, strlen(text)));
    bt_free(text);
    return true;
}

static bauta_status fail_nomem(bauta_error *err)
{
    return bt_fail_memory(err, "a JSON document", BT_SEALED_JSON_MAX);
}

bauta_status bt_sealed_json_text(char **out, json_t *object, const char *path,
                                 bauta_error *err)
{
    char seal[17];
    *out = NULL;
    (void)json_object_del(object, seal_key);
    if (!seal_of(seal, object) ||
        json_object_set_new(object, seal_key, json_string(seal)))
        return fail_nomem(err);
    char *text = bt_json_dump(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    size_t size = text ? strlen(text) : 0;
    bauta_status status = BAUTA_OK;
    if (text && size >= BT_SEALED_JSON_MAX)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "%s would have %zu bytes, more than the limit of %d",
                         bt_path_tail(path), size, BT_SEALED_JSON_MAX);
    else if (!text || !(*out = bt_alloc(size + 2)))
        status = fail_nomem(err);
    else
        snprintf(*out, size + 2, "%s\n", text);
    bt_free(text);
    return status;
}

static bauta_status seal_check(json_t *object, const char *path,
                               bauta_error *err)
{
    char want[17], got[17] = "";
    const char *seal = json_string_value(json_object_get(object, seal_key));
    if (!seal)
        return bt_fail(err, BAUTA_ERR_FORMAT, "%s: has no seal",
                       bt_path_tail(path));
    snprintf(got, sizeof(got), "%s", seal);
    (void)json_object_del(object, seal_key);
    if (!seal_of(want, object))
        return fail_nomem(err);
    if (strcmp(got, want) != 0)
        return bt_fail(
            err, BAUTA_ERR_FORMAT,
            "%s: is damaged: its seal is %s, but its contents have %s",
            bt_path_tail(path), bt_quote(got).text, want);
    return BAUTA_OK;
}

bauta_status bt_sealed_json_parse(json_t **out, const char *text, size_t size,
                                  const char *path, bauta_error *err)
{
    bauta_status status = bt_json_parse_object(out, text, size, 0, path, err);
    if (!status)
        status = seal_check(*out, path, err);
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

bauta_status bt_sealed_json_read(json_t **out, const char *path,
                                 bauta_error *err)
{
    char *text;
    size_t size;
    *out = NULL;
    bauta_status status =
        bt_file_read(&text, &size, path, BT_SEALED_JSON_MAX, err);
    if (!status)
        status = bt_sealed_json_parse(out, text, size, path, err);
    bt_free(text);
    return status;
}

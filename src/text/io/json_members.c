/* SPDX-License-Identifier: Apache-2.0 */
/* json_members.c - see json_members.h. */
#include "text/io/json_members.h"

#include "base/error.h"
#include "base/file.h"

#include <string.h>

bool bt_next_line(const char **line, size_t *length, const char **at,
                  const char *end)
{
    if (*at == end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *at = stop ? stop + 1 : end;
    *length = (size_t)((stop ? stop : end) - *line);
    if (*length && (*line)[*length - 1] == '\r')
        (*length)--;
    return true;
}

json_t *bt_member_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bauta_status bt_member_fail(const char *path, const char *key, const char *what,
                            bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: \"%s\" %s", bt_path_tail(path),
                   key, what);
}

bauta_status bt_member_bool(bool *out, const json_t *object, const char *key,
                            const char *path, bauta_error *err)
{
    const json_t *value = bt_member_get(object, key);
    if (value && !json_is_boolean(value))
        return bt_member_fail(path, key, "is neither true nor false", err);
    *out = json_is_true(value);
    return BAUTA_OK;
}

bauta_status bt_member_string(const char **out, const json_t *object,
                              const char *key, const char *path,
                              bauta_error *err)
{
    const json_t *value = bt_member_get(object, key);
    *out = NULL;
    if (value && (!json_is_string(value) || strlen(json_string_value(value)) !=
                                                json_string_length(value)))
        return bt_member_fail(path, key, "is not a string", err);
    if (json_string_length(value))
        *out = json_string_value(value);
    return BAUTA_OK;
}

bauta_status bt_member_token_id(uint32_t *out, const json_t *value,
                                const char *what, const char *path,
                                bauta_error *err)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= BT_VOCAB_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the id of \"%s\" is not a number from 0 to %d",
                       bt_path_tail(path), bt_quote(what).text,
                       BT_VOCAB_MAX - 1);
    *out = (uint32_t)id;
    return BAUTA_OK;
}

bauta_status bt_vocab_add_from_file(bt_vocab *vocab, const char *piece,
                                    size_t size, uint32_t id, const char *path,
                                    bauta_error *err)
{
    bauta_error why;
    bauta_status status = bt_vocab_add(vocab, piece, size, id, &why);
    if (status == BAUTA_ERR_NOMEM)
        return bt_fail(err, status, "%s", why.message);
    if (status)
        return bt_fail(err, BAUTA_ERR_FORMAT, "%s: %.180s", bt_path_tail(path),
                       why.message);
    return BAUTA_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading untrusted JSON with bounded memory.
 *
 * A small text is parsed as a whole. A large object or array is streamed, one
 * member at a time:
 *
 *     bt_json_enter_object(&json, err);              // {
 *     while (!bt_json_next_key(&json, &key, err) && key)
 *         bt_json_read_value(&json, &value, err);  // or bt_json_enter_object()
 * again bt_json_expect_end(&json, err);                // nothing may follow
 *
 * Values are jansson's, but jansson's parser is not used: it has no memory
 * limit (a text of empty objects costs 75 times its size), and when memory runs
 * out it writes beyond its buffers (2.14). The parser accepts RFC 8259, except
 * for duplicate keys, NUL in keys, integers beyond 64 bits, real numbers beyond
 * double, and nesting deeper than BT_JSON_DEPTH_MAX. The caller must find
 * duplicate keys of a streamed object. */
#ifndef BT_JSON_H
#define BT_JSON_H

#include "bauta.h"

#include <jansson.h>

enum {
    BT_JSON_VALUE_BYTES_MAX = 256 << 10, /* bytes of a streamed value */
    BT_JSON_VALUES_MAX = 1 << 17, /* values nested in one that is read; each
                                     takes at most 256 bytes */
    BT_JSON_DEPTH_MAX = 512,
};

typedef enum bt_json_flags {
    BT_JSON_NUL = 1,   /* strings may contain NUL */
    BT_JSON_REALS = 2, /* integers of any size become real numbers */
    BT_JSON_LINES = 4, /* errors give lines instead of bytes */
} bt_json_flags;

typedef struct bt_json_reader {
    const char *path; /* name of the text in errors */
    const char *text;
    size_t size, offset;
    size_t max_value_bytes; /* most bytes of a value; BT_JSON_VALUE_BYTES_MAX by
                               default */
    unsigned flags;         /* bt_json_flags */
    bool first;             /* the current object or array has no member yet */
} bt_json_reader;

/* A reader at the start of a text of `size` bytes. */
bt_json_reader bt_json_reader_init(const char *path, const char *text,
                                   size_t size);

/* Enter an object, which must be the next value. */
bauta_status bt_json_enter_object(bt_json_reader *json, bauta_error *err);
/* The key of the next member, for json_decref(). NULL at the end of the object,
 * which is then left, and on failure. */
bauta_status bt_json_next_key(bt_json_reader *json, json_t **key,
                              bauta_error *err);
/* Enter an array, which must be the next value; and whether it has another
 * value. At its end the array is left. */
bauta_status bt_json_enter_array(bt_json_reader *json, bauta_error *err);
bauta_status bt_json_next_item(bt_json_reader *json, bool *more,
                               bauta_error *err);
/* Read the next value, for json_decref(); NULL on failure. */
bauta_status bt_json_read_value(bt_json_reader *json, json_t **value,
                                bauta_error *err);
/* Skip the next value, of any size, without allocating. */
bauta_status bt_json_skip_value(bt_json_reader *json, bauta_error *err);
/* The first character of the next value, or 0 at the end of the text. */
char bt_json_peek(bt_json_reader *json);
/* Fail unless only whitespace is left. */
bauta_status bt_json_expect_end(bt_json_reader *json, bauta_error *err);

/* Parse a text that is one object, for json_decref(); NULL on failure. */
bauta_status bt_json_parse_object(json_t **out, const char *text, size_t size,
                                  unsigned flags, const char *path,
                                  bauta_error *err);

/* A member of an object; NULL if it is absent or null. */
json_t *bt_json_get(const json_t *object, const char *key);

/* A value as text, for bt_free(); NULL when memory runs out. `flags` are those
 * of json_dumps(), which is not used because it drops keys when memory runs out
 * (2.14). */
char *bt_json_dump(const json_t *value, size_t flags);

/* "FILE: KEY is VALUE, WHY", for a member of a file that is not accepted. */
bauta_status bt_json_fail_member(const char *file, const char *key,
                                 const json_t *value, const char *why,
                                 bauta_error *err);

/* "FILE: byte 12 of the JSON text: ...", or its line. */
bauta_status bt_json_fail(const bt_json_reader *json, size_t at,
                          const char *what, bauta_error *err);

#endif

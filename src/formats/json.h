/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading JSON that others wrote, with bounds on what it costs.
 *
 * A small text is read as a whole; a large object or list is walked, and each
 * member is forgotten before the next:
 *
 *     bt_json_enter(&json, err);              // {
 *     while (!bt_json_key(&json, &key, err) && key)
 *         bt_json_value(&json, &value, err);  // or bt_json_enter() again
 *     bt_json_end(&json, err);                // nothing may follow
 *
 * Values are jansson's, but jansson's reader is not used: it has no limit on
 * memory, of which a text of empty objects costs it 75 times its size, and when
 * memory runs out it writes beyond its buffers (2.14). What is accepted is what
 * RFC 8259 calls JSON, less duplicate keys, NUL in keys, integers beyond 64
 * bits, real numbers beyond double, and nesting deeper than BT_JSON_DEPTH_MAX.
 * Duplicates among the keys that were walked are the caller's to find. */
#ifndef BT_JSON_H
#define BT_JSON_H

#include "bauta.h"

#include <jansson.h>

enum {
    BT_JSON_MEMBER_MAX = 256 << 10, /* bytes of a value that is walked over */
    BT_JSON_VALUES_MAX = 1 << 17,   /* values within one that is kept: each
                                       costs at most 256 bytes */
    BT_JSON_DEPTH_MAX = 512,
};

typedef enum bt_json_flags {
    BT_JSON_NUL = 1,   /* strings may hold NUL */
    BT_JSON_REALS = 2, /* integers, of any size, become real numbers */
    BT_JSON_LINES = 4, /* sentences count lines instead of bytes */
} bt_json_flags;

typedef struct bt_json {
    const char *path; /* what sentences call the text */
    const char *text;
    size_t size, at;
    size_t longest; /* bytes of a value; BT_JSON_MEMBER_MAX unless changed */
    unsigned flags; /* bt_json_flags */
    bool first;     /* no member of this object or list has been seen */
} bt_json;

/* A walk over `size` bytes of text, before its first character. */
bt_json bt_json_over(const char *path, const char *text, size_t size);

/* Into an object, which is next. */
bauta_status bt_json_enter(bt_json *json, bauta_error *err);
/* The key of the next member, for json_decref(); or NULL when the object ends
 * here, and the walk is then past it. *key is NULL on failure, too. */
bauta_status bt_json_key(bt_json *json, json_t **key, bauta_error *err);
/* Into a list, which is next; and whether it has one more value. When it has
 * not, the walk is past it. */
bauta_status bt_json_enter_list(bt_json *json, bauta_error *err);
bauta_status bt_json_more(bt_json *json, bool *more, bauta_error *err);
/* The value that is next, for json_decref(); NULL on failure. */
bauta_status bt_json_value(bt_json *json, json_t **value, bauta_error *err);
/* Past the value that is next, of whatever size, and nothing is allocated. */
bauta_status bt_json_skip(bt_json *json, bauta_error *err);
/* The character that the next value begins with, or 0 at the end. */
char bt_json_next(bt_json *json);
/* Fails unless only white space is left. */
bauta_status bt_json_end(bt_json *json, bauta_error *err);

/* A text that is one object, for json_decref(); NULL on failure. */
bauta_status bt_json_object(json_t **out, const char *text, size_t size,
                            unsigned flags, const char *path, bauta_error *err);

/* A value as a text, for bt_free(); NULL when there is no memory. `flags` are
 * json_dumps()'s, which leaves out keys when memory runs out (2.14). */
char *bt_json_text(const json_t *value, size_t flags);

/* "FILE: byte 12 of the JSON text: ...", or its line. */
bauta_status bt_json_fail(const bt_json *json, size_t at, const char *what,
                          bauta_error *err);

#endif

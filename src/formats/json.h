/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - walking a large JSON object member by member.
 *
 * jansson decides what is JSON, but it would hold a text of two-byte values in
 * forty times its memory. So a large object of many members is walked: each
 * key and each value is given to jansson by itself and is forgotten before the
 * next. A walk never holds more than one member, of BT_JSON_MEMBER_MAX bytes.
 *
 *     bt_json_enter(&json, err);              // {
 *     while (!bt_json_key(&json, &key, err) && key)
 *         bt_json_value(&json, &value, err);  // or bt_json_enter() again
 *     bt_json_end(&json, err);                // nothing may follow
 *
 * jansson checks UTF-8, refuses NUL in strings, numbers beyond 64 bits, nesting
 * deeper than 2048, and duplicate keys within a value. Duplicates among the
 * keys that were walked are the caller's to find. */
#ifndef BT_JSON_H
#define BT_JSON_H

#include "bauta.h"

#include <jansson.h>

/* The worst text, of empty objects, takes jansson 80 times this. */
enum { BT_JSON_MEMBER_MAX = 256 << 10 };

typedef struct bt_json {
    const char *path; /* what sentences call the text */
    const char *text;
    size_t size, at;
    bool first; /* no member of this object has been seen */
} bt_json;

/* A walk over `size` bytes of text, before its first character. */
bt_json bt_json_over(const char *path, const char *text, size_t size);

/* Into an object, which is next. */
bauta_status bt_json_enter(bt_json *json, bauta_error *err);
/* The key of the next member, for json_decref(); or NULL when the object ends
 * here, and the walk is then behind it. *key is NULL on failure, too. */
bauta_status bt_json_key(bt_json *json, json_t **key, bauta_error *err);
/* The value that is next, for json_decref(). */
bauta_status bt_json_value(bt_json *json, json_t **value, bauta_error *err);
/* Fails unless only white space is left. */
bauta_status bt_json_end(bt_json *json, bauta_error *err);

#endif

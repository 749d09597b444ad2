/* SPDX-License-Identifier: Apache-2.0 */
/* json_value.c - parsing one JSON value into jansson's.
 *
 * The same functions skip a value: with a NULL `out` nothing is created. On
 * failure the value is NULL and everything is released. */
#include "formats/json.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct value_reader {
    bt_json_reader *json;
    size_t begin;  /* of the outermost value */
    size_t values; /* how many more it may contain */
    unsigned depth;
    bauta_error *err;
} value_reader;

static bauta_status value_read(value_reader *r, json_t **out);

static bauta_status fail_here(const value_reader *r, const char *what)
{
    return bt_json_fail(r->json, r->json->offset, what, r->err);
}

static bauta_status no_memory(const value_reader *r)
{
    return bt_fail_memory(r->err, "a JSON value", r->json->offset - r->begin);
}

static char peek(const value_reader *r)
{
    const bt_json_reader *j = r->json;
    return j->offset < j->size ? j->text[j->offset] : '\0';
}

/* ---- Strings ------------------------------------------------------------- */

/* Four hexadecimal digits, or -1. */
static int32_t hex_read(const char *at, size_t left)
{
    int32_t code = 0;
    for (size_t i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        char c = i < left ? at[i] : '\0';
        char lower = c >= 'A' && c <= 'F' ? (char)(c | 0x20) : c;
        const char *digit = lower ? strchr(digits, lower) : NULL;
        if (!digit)
            return -1;
        code = code << 4 | (int32_t)(digit - digits);
    }
    return code;
}

/* The code point of a \u escape (a surrogate pair beyond 16 bits), from its
 * digits on. Returns its length in the text, or 0 if it is invalid. */
static size_t escape_unicode(const char *at, size_t left, uint32_t *code)
{
    int32_t high = hex_read(at, left);
    *code = (uint32_t)high;
    if (high < 0 || (high >= 0xDC00 && high < 0xE000))
        return 0;
    if (high < 0xD800 || high >= 0xE000)
        return 4;
    if (left < 10 || at[4] != '\\' || at[5] != 'u')
        return 0;
    int32_t low = hex_read(at + 6, left - 6);
    if (low < 0xDC00 || low >= 0xE000)
        return 0;
    *code =
        0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return 10;
}

/* The code point of an escape, from after the backslash. Returns its length in
 * the text, or 0 if it is invalid. */
static size_t escape_read(const char *at, size_t left, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (left == 0 || !*at)
        return 0;
    if (*at == 'u') {
        size_t length = escape_unicode(at + 1, left - 1, code);
        return length ? length + 1 : 0;
    }
    const char *name = strchr(names, *at);
    if (name)
        *code = (unsigned char)meant[name - names];
    return name != NULL;
}

/* Move past the closing quote; the string's bytes are [*lo, *hi). */
static bauta_status string_scan(value_reader *r, size_t *lo, size_t *hi,
                                bool *escapes)
{
    bt_json_reader *j = r->json;
    *escapes = false;
    for (*lo = ++j->offset;; j->offset++) {
        uint32_t code = 1;
        size_t length = 0;
        unsigned char c = (unsigned char)peek(r);
        if (j->offset == j->size)
            return fail_here(r, "premature end of the text, within a string");
        if (c == '"')
            break;
        if (c < 0x20)
            return fail_here(r, "a control character in a string");
        if (c != '\\')
            continue;
        *escapes = true;
        length = escape_read(j->text + j->offset + 1, j->size - j->offset - 1,
                             &code);
        if (length == 0)
            return fail_here(r, "an invalid escape");
        if (code == 0 && !(j->flags & BT_JSON_NUL))
            return fail_here(r, "\\u0000 in a string");
        j->offset += length;
    }
    *hi = j->offset++;
    size_t good = bt_utf8_valid_prefix(j->text + *lo, *hi - *lo);
    return good == *hi - *lo
               ? BAUTA_OK
               : bt_json_fail(j, *lo + good, "a string is not UTF-8", r->err);
}

/* Decode escapes. The result is never longer. */
static size_t string_unescape(char *to, const char *from, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t code = 0;
        if (from[i] != '\\') {
            to[used++] = from[i];
            continue;
        }
        i += escape_read(from + i + 1, size - i - 1, &code);
        used += bt_utf8_encode(to + used, code);
    }
    return used;
}

static bauta_status string_read(value_reader *r, json_t **out)
{
    size_t lo = 0, hi = 0;
    bool escapes;
    bauta_status status = string_scan(r, &lo, &hi, &escapes);
    if (status || !out)
        return status;
    const char *bytes = r->json->text + lo;
    size_t size = hi - lo;
    if (size > r->json->max_value_bytes)
        return bt_json_fail(r->json, r->begin, "a value is too long", r->err);
    char *plain = escapes ? bt_alloc(size) : NULL;
    if (escapes && !plain)
        return no_memory(r);
    if (plain)
        size = string_unescape(plain, bytes, size);
    *out = json_stringn_nocheck(plain ? plain : bytes, size);
    bt_free(plain);
    return *out ? BAUTA_OK : no_memory(r);
}

/* ---- Numbers ------------------------------------------------------------- */

static size_t digits_skip(value_reader *r)
{
    size_t begin = r->json->offset;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->json->offset++;
    return r->json->offset - begin;
}

/* Move past a number; false if it is invalid. */
static bool number_scan(value_reader *r, bool *real)
{
    bt_json_reader *j = r->json;
    *real = false;
    if (peek(r) == '-')
        j->offset++;
    bool zero = peek(r) == '0';
    size_t digits = digits_skip(r);
    if (digits == 0 || (zero && digits > 1))
        return false;
    if (peek(r) == '.') {
        *real = true;
        j->offset++;
        if (digits_skip(r) == 0)
            return false;
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        *real = true;
        j->offset++;
        if (peek(r) == '+' || peek(r) == '-')
            j->offset++;
        if (digits_skip(r) == 0)
            return false;
    }
    return true;
}

/* strtod() expects the decimal point of the locale. */
static void point_localize(char *number)
{
    char *point = strchr(number, '.');
    if (point)
        *point = *localeconv()->decimal_point;
}

static bauta_status number_make(value_reader *r, json_t **out, char *number,
                                bool real)
{
    errno = 0;
    if (!real) {
        long long value = strtoll(number, NULL, 10);
        if (errno == ERANGE)
            return fail_here(r, "too big: an integer beyond 64 bits");
        *out = json_integer(value);
    } else {
        point_localize(number);
        double value = strtod(number, NULL);
        if (isinf(value))
            return fail_here(r, "too big: a real number beyond double");
        *out = json_real(value);
    }
    return *out ? BAUTA_OK : no_memory(r);
}

static bauta_status number_read(value_reader *r, json_t **out)
{
    char small[64], *number = small;
    size_t begin = r->json->offset;
    bool real;
    if (!number_scan(r, &real))
        return fail_here(r, "an invalid number");
    size_t size = r->json->offset - begin;
    if (!out)
        return BAUTA_OK;
    if (size > r->json->max_value_bytes)
        return bt_json_fail(r->json, r->begin, "a value is too long", r->err);
    if (size >= sizeof(small) && !(number = bt_alloc(size + 1)))
        return no_memory(r);
    memcpy(number, r->json->text + begin, size);
    number[size] = '\0';
    bauta_status status =
        number_make(r, out, number, real || r->json->flags & BT_JSON_REALS);
    if (number != small)
        bt_free(number);
    return status;
}

/* ---- Objects and lists --------------------------------------------------- */

/* Read what follows a member: ',' if there is another one, or `end`. */
static bauta_status member_end(value_reader *r, char end, bool *more)
{
    char c = bt_json_peek(r->json);
    *more = c == ',';
    if (c != ',' && c != end)
        return fail_here(r, end == '}' ? "'}' or ',' is expected"
                                       : "']' or ',' is expected");
    r->json->offset++;
    return BAUTA_OK;
}

/* Enter an object or array; false if it is empty, and it is left again. */
static bool inside(value_reader *r, char end)
{
    r->json->offset++;
    if (bt_json_peek(r->json) != end)
        return true;
    r->json->offset++;
    return false;
}

static bauta_status items_read(value_reader *r, json_t *list)
{
    bauta_status status = BAUTA_OK;
    for (bool more = inside(r, ']'); more && !status;) {
        json_t *item = NULL;
        status = value_read(r, list ? &item : NULL);
        if (!status && list && json_array_append_new(list, item))
            status = no_memory(r);
        if (!status)
            status = member_end(r, ']', &more);
    }
    return status;
}

/* The caller keeps ownership of `key`. */
static bauta_status member_read(value_reader *r, json_t *object,
                                const json_t *key)
{
    json_t *value = NULL;
    const char *name = json_string_value(key);
    size_t size = json_string_length(key);
    if (object && memchr(name, '\0', size))
        return fail_here(r, "a key contains NUL");
    if (object && json_object_getn(object, name, size))
        return fail_here(r, "duplicate key");
    if (bt_json_peek(r->json) != ':')
        return fail_here(r, "':' is expected");
    r->json->offset++;
    bauta_status status = value_read(r, object ? &value : NULL);
    if (!status && object &&
        json_object_setn_new_nocheck(object, name, size, value))
        status = no_memory(r);
    return status;
}

static bauta_status members_read(value_reader *r, json_t *object)
{
    bauta_status status = BAUTA_OK;
    for (bool more = inside(r, '}'); more && !status;) {
        json_t *key = NULL;
        if (bt_json_peek(r->json) != '"')
            return fail_here(r, "a key is expected");
        status = string_read(r, object ? &key : NULL);
        if (!status)
            status = member_read(r, object, key);
        json_decref(key);
        if (!status)
            status = member_end(r, '}', &more);
    }
    return status;
}

static bauta_status container_read(value_reader *r, json_t **out, bool object)
{
    json_t *made = !out ? NULL : object ? json_object() : json_array();
    if (out && !made)
        return no_memory(r);
    if (r->depth == BT_JSON_DEPTH_MAX) {
        json_decref(made);
        return fail_here(r, "values are nested too deep");
    }
    r->depth++;
    bauta_status status = object ? members_read(r, made) : items_read(r, made);
    r->depth--;
    if (status)
        json_decref(made);
    else if (out)
        *out = made;
    return status;
}

/* ---- Values -------------------------------------------------------------- */

static bauta_status word_read(value_reader *r, json_t **out)
{
    static const char *const words[] = { "true", "false", "null" };
    json_t *made[] = { json_true(), json_false(), json_null() };
    bt_json_reader *j = r->json;
    for (size_t i = 0; i < BT_LEN(words); i++) {
        size_t size = strlen(words[i]);
        if (size > j->size - j->offset ||
            memcmp(j->text + j->offset, words[i], size))
            continue;
        j->offset += size;
        if (out)
            *out = made[i];
        return BAUTA_OK;
    }
    return fail_here(r, "a value is expected");
}

static bauta_status value_read(value_reader *r, json_t **out)
{
    char c = bt_json_peek(r->json);
    if (out && (r->json->offset - r->begin > r->json->max_value_bytes))
        return bt_json_fail(r->json, r->begin, "a value is too long", r->err);
    if (out && r->values-- == 0) {
        r->values = 0;
        return fail_here(r, "a value contains too many values");
    }
    switch (c) {
    case '{':
    case '[':
        return container_read(r, out, c == '{');
    case '"':
        return string_read(r, out);
    default:
        return c == '-' || (c >= '0' && c <= '9') ? number_read(r, out)
                                                  : word_read(r, out);
    }
}

static value_reader reader_at(bt_json_reader *json, bauta_error *err)
{
    bt_json_peek(json);
    json->first = false;
    return (value_reader){ json, json->offset, BT_JSON_VALUES_MAX, 0, err };
}

bauta_status bt_json_read_value(bt_json_reader *json, json_t **value,
                                bauta_error *err)
{
    value_reader r = reader_at(json, err);
    *value = NULL;
    return value_read(&r, value);
}

bauta_status bt_json_skip_value(bt_json_reader *json, bauta_error *err)
{
    value_reader r = reader_at(json, err);
    return value_read(&r, NULL);
}

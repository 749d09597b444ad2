/* SPDX-License-Identifier: Apache-2.0 */
/* body.c - fields of a JSON body, and errors; see body.h. */
#include "body.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------ */

bool fail(failure *f, int status, const char *param, const char *code,
          const char *format, ...)
{
    va_list args;
    f->status = status;
    f->code = code;
    snprintf(f->param, sizeof(f->param), "%s", param ? param : "");
    va_start(args, format);
    vsnprintf(f->message, sizeof(f->message), format, args);
    va_end(args);
    return false;
}

static const char *failure_type(int status)
{
    if (status == 401 || status == 403)
        return "authentication_error";
    if (status == 429)
        return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

/* A message may quote a part of the request that was cut within a character. */
static json_t *message_json(const char *text)
{
    char clean[sizeof(((failure *)0)->message)];
    json_t *string = json_string(text);
    if (string)
        return string;
    snprintf(clean, sizeof(clean), "%s", text);
    for (char *c = clean; *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    return json_string(clean);
}

char *failure_json(const failure *f)
{
    json_t *object = json_pack(
        "{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
        message_json(f->message), "type", failure_type(f->status), "param",
        f->param[0] ? message_json(f->param) : json_null(), "code", f->code);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* ---- parsing ----------------------------------------------------------- */

enum { VALUES_MAX = 1 << 18, DEPTH_MAX = 64 };

/* Count values and depth before anything is allocated: every value but the
 * first follows one of these characters. */
static bool body_measure(const char *text, size_t length, failure *f)
{
    size_t values = 1, depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        values += c == ',' || c == '[' || c == '{';
        if (c == '[' || c == '{')
            depth++;
        else if ((c == ']' || c == '}') && depth)
            depth--;
        if (depth > DEPTH_MAX)
            return fail(f, 400, NULL, NULL,
                        "the body is nested more than %d deep", DEPTH_MAX);
    }
    if (values > VALUES_MAX)
        return fail(f, 400, NULL, NULL, "the body has more than %d values",
                    VALUES_MAX);
    return true;
}

json_t *body_parse(const char *text, size_t length, failure *f)
{
    json_error_t error;
    if (!body_measure(text, length, f))
        return NULL;
    json_t *body = json_loadb(text, length, JSON_ALLOW_NUL, &error);
    if (!body) {
        fail(f, 400, NULL, NULL, "the body is not JSON: line %d: %s",
             error.line, error.text);
        return NULL;
    }
    if (json_is_object(body))
        return body;
    json_decref(body);
    fail(f, 400, NULL, NULL, "the body is not a JSON object");
    return NULL;
}

/* ---- fields ------------------------------------------------------------ */

json_t *field(const json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

bool field_size(const json_t *body, const char *name, size_t min, size_t max,
                size_t *out, bool *has, failure *f)
{
    const json_t *value = field(body, name);
    json_int_t number = json_integer_value(value);
    if (has)
        *has = value != NULL;
    if (!value)
        return true;
    if (!json_is_integer(value))
        return fail(f, 400, name, NULL, "%s must be a whole number", name);
    if (number < 0 || (size_t)number < min || (size_t)number > max)
        return fail(f, 400, name, NULL, "%s is %lld, not from %zu to %zu", name,
                    (long long)number, min, max);
    *out = (size_t)number;
    return true;
}

bool field_real(const json_t *body, const char *name, double min, double max,
                float *out, bool *has, failure *f)
{
    const json_t *value = field(body, name);
    double number = json_number_value(value);
    if (has)
        *has = value != NULL;
    if (!value)
        return true;
    if (!json_is_number(value))
        return fail(f, 400, name, NULL, "%s must be a number", name);
    if (!(number >= min && number <= max))
        return fail(f, 400, name, NULL, "%s is %g, not from %g to %g", name,
                    number, min, max);
    *out = (float)number;
    return true;
}

bool field_bool(const json_t *body, const char *name, bool *out, failure *f)
{
    const json_t *value = field(body, name);
    if (value && !json_is_boolean(value))
        return fail(f, 400, name, NULL, "%s must be true or false", name);
    if (value)
        *out = json_is_true(value);
    return true;
}

bool field_string(const json_t *body, const char *name, const char **out,
                  failure *f)
{
    const json_t *value = field(body, name);
    if (value && (!json_is_string(value) || strlen(json_string_value(value)) !=
                                                json_string_length(value)))
        return fail(f, 400, name, NULL, "%s must be a string without NUL",
                    name);
    if (value)
        *out = json_string_value(value);
    return true;
}

uint32_t *ids_read(const json_t *list, const char *name, size_t vocab,
                   size_t *count, failure *f)
{
    size_t n = json_array_size(list);
    uint32_t *ids = calloc(n + 1, sizeof(*ids));
    *count = n;
    if (!ids)
        fail(f, 503, NULL, NULL, "out of memory");
    for (size_t i = 0; ids && i < n; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_integer_value(value);
        if (json_is_integer(value) && id >= 0 && (size_t)id < vocab) {
            ids[i] = (uint32_t)id;
            continue;
        }
        fail(f, 400, name, NULL,
             "%s: element %zu is not a token id from 0 to %zu", name, i,
             vocab - 1);
        free(ids);
        ids = NULL;
    }
    return ids;
}

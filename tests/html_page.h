/* SPDX-License-Identifier: Apache-2.0 */
/* html_page.h - reads an HTML page of pictures back: its JSON, and the weights
 * of one of its pictures. */
#ifndef BT_TEST_HTML_PAGE_H
#define BT_TEST_HTML_PAGE_H

#include "testing.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* All of a file, NUL-terminated. */
static inline char *page_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = '\0';
    fclose(file);
    return text;
}

/* The JSON of the page, as a browser finds it: up to the next "</script". */
static inline json_t *page_load(const char *path)
{
    static const char begin[] = "id=\"data\">";
    size_t size;
    char *text = page_text(path, &size), *at = strstr(text, begin);
    assert_non_null(at);
    at += strlen(begin);
    char *end = strstr(at, "</script");
    assert_non_null(end);
    json_error_t why;
    json_t *data = json_loadb(at, (size_t)(end - at), 0, &why);
    if (!data)
        fail_msg("%s: line %d: %s", path, why.line, why.text);
    free(text);
    return data;
}

static inline long page_number(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return (long)json_integer_value(value);
}

static inline int page_letter(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Bytes of base64; *size receives how many. */
static inline unsigned char *page_bytes(const char *text, size_t *size)
{
    unsigned char *out = malloc(strlen(text) + 1);
    unsigned bits = 0, all = 0;
    assert_non_null(out);
    assert_int_equal(strlen(text) % 4, 0);
    *size = 0;
    for (; *text && *text != '='; text++) {
        assert_true(page_letter(*text) >= 0);
        all = all << 6 | (unsigned)page_letter(*text);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[(*size)++] = (unsigned char)(all >> bits);
        }
    }
    return out;
}

/* The weights of a picture, (rows, columns), and -1 where there is none. */
static inline float *page_weights(const json_t *data, size_t index)
{
    const json_t *p = json_array_get(json_object_get(data, "pictures"), index);
    size_t rows = (size_t)page_number(p, "rows");
    size_t columns = (size_t)page_number(p, "columns"), size, used = 0;
    size_t width = (size_t)page_number(data, "bytes");
    double levels = (double)page_number(data, "levels");
    const json_t *mask = json_array_get(json_object_get(data, "masks"),
                                        (size_t)page_number(p, "mask"));
    unsigned char *bytes =
        page_bytes(json_string_value(json_object_get(p, "weights")), &size);
    float *out = malloc(rows * columns * sizeof(*out));
    assert_non_null(out);
    assert_int_equal(json_array_size(mask), rows);
    for (size_t i = 0; i < rows * columns; i++)
        out[i] = -1.0f;
    for (size_t i = 0; i < rows; i++) {
        const json_t *row = json_array_get(mask, i);
        for (size_t k = 0; k < json_array_size(row); k += 2) {
            json_int_t lo = json_integer_value(json_array_get(row, k));
            json_int_t hi = json_integer_value(json_array_get(row, k + 1));
            for (json_int_t j = lo; j < hi; j++, used += width) {
                assert_true(used + width <= size);
                unsigned stored = bytes[used];
                if (width == 2)
                    stored += 256u * bytes[used + 1];
                assert_true(stored > 0); // 0 would be hidden
                double root = (stored - 1.0) / levels;
                out[i * columns + (size_t)j] = (float)(root * root);
            }
        }
    }
    assert_int_equal(used, size);
    free(bytes);
    return out;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* text_step_cases.h - shared by the tests of normalizers and of pre-tokenizers:
 * files of expected results, random text, and a megabyte of repeated text. */
#ifndef BT_TEST_TEXT_STEP_CASES_H
#define BT_TEST_TEXT_STEP_CASES_H

#include "base/utf8.h"
#include "data.h"
#include "testing.h"
#include "text/aligned_text.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

/* A file of tests/data: a list of steps, texts, and the results of Hugging
 * Face's tokenizers 0.23. */
static inline json_t *expected_load(const char *name)
{
    char path[1024];
    json_error_t error;
    json_t *list = json_load_file(test_tree_path(path, sizeof(path), name),
                                  JSON_ALLOW_NUL, &error);
    if (!list)
        fail_msg("%s: %s", name, error.text);
    return list;
}

static inline json_t *json_of(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (!json)
        fail_msg("%s: %s", text, error.text);
    return json;
}

static inline void check_range(const json_t *pair, bt_origin origin)
{
    assert_int_equal(origin.from, json_integer_value(json_array_get(pair, 0)));
    assert_int_equal(origin.to, json_integer_value(json_array_get(pair, 1)));
}

/* Characters that matter to some step, in any order. */
static inline size_t random_text(test_random *r, char *out, size_t characters)
{
    static const uint32_t pool[] = {
        'a',    'b',    's',    'L',     'l',    'r',    'e',     'v',
        'T',    '\'',   '\'',   ' ',     ' ',    '\n',   '\r',    '\t',
        '0',    '7',    '.',    '_',     '$',    0xE9,   0xC9,    0x17F,
        0xA0,   0x85,   0x3000, 0x2028,  0x180E, 0x200B, 0x6F22,  0x3042,
        0xB2,   0xBD,   0x2167, 0x663,   0x301,  0x323,  0x345,   0x1E69,
        0xAC00, 0x1100, 0x1161, 0x11A8,  0x9C7,  0x9BE,  0x1F600, 0x2581,
        0xFB01, 0x130,  0x344,  0x1F130,
    };
    size_t size = 0;
    for (size_t i = 0; i < characters; i++) {
        size_t at = test_below(r, sizeof(pool) / sizeof(pool[0]));
        size += bt_utf8_encode(out + size, pool[at]);
    }
    return size;
}

enum { MEGABYTE = 1 << 20 };

/* A megabyte of the same bytes repeated; a partial repetition at the end is
 * left out. For free(). */
static inline char *megabyte_of(const char *unit, size_t *size)
{
    size_t length = strlen(unit);
    char *bytes = malloc(MEGABYTE);
    for (*size = 0; *size + length <= MEGABYTE; *size += length)
        memcpy(bytes + *size, unit, length);
    return bytes;
}

static const char *const megabytes[] = {
    "a", " ", "\xF0\x9F\x98\x80",         "\xCC\x81\xCC\xA3", "\xFF", "\n ",
    "'", "7", "\xE1\x84\x80\xE1\x85\xA1",
};

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Linear time, with a wide margin for sanitizers. */
enum { SECONDS_MAX = 10 };

#endif

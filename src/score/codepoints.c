/* SPDX-License-Identifier: Apache-2.0 */
/* codepoints.c - text as code points, and its lower case. */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <utf8proc.h>

/* SIGMA_MARKED is outside Unicode. */
enum { SIGMA = 0x3A3, SIGMA_FINAL = 0x3C2, SIGMA_MARKED = 0x110000 };

bauta_status bt_codepoints_reserve(bt_codepoints *codes, size_t count,
                                   bauta_error *err)
{
    if (count <= codes->room)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(codes->at, codes->room, codes->count,
                         count - codes->count))
        return bt_fail_memory(err, "the characters of a sentence",
                              bt_size_mul(count, sizeof(*codes->at)));
    return BAUTA_OK;
}

void bt_codepoints_release(bt_codepoints *codes)
{
    bt_free(codes->at);
    *codes = (bt_codepoints){ 0 };
}

bool bt_is_python_space(uint32_t code)
{
    return bt_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

bool bt_codepoints_next_word(const bt_codepoints *codes, bt_word_range *word)
{
    size_t start = word->start + word->length;
    while (start < codes->count && bt_is_python_space(codes->at[start]))
        start++;
    size_t end = start;
    while (end < codes->count && !bt_is_python_space(codes->at[end]))
        end++;
    *word = (bt_word_range){ start, end - start };
    return end > start;
}

/* ---- Lower case ---------------------------------------------------------- */

/* Unicode's Case_Ignorable: characters that do not end a word. */
static bool case_ignorable(uint32_t code)
{
    switch (code) { // Word_Break is MidLetter, MidNumLet or Single_Quote
    case 0x27:
    case 0x2E:
    case 0x3A:
    case 0xB7:
    case 0x387:
    case 0x55F:
    case 0x5F4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A:
        return true;
    default:
        break;
    }
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME ||
           c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_LM ||
           c == UTF8PROC_CATEGORY_SK;
}

/* Unicode's Cased, for characters that are not Case_Ignorable. */
static bool cased(uint32_t code)
{
    static const uint32_t others[][2] = {
        { 0xAA, 0xAA },       { 0xBA, 0xBA },       { 0x2160, 0x217F },
        { 0x24B6, 0x24E9 },   { 0x1F130, 0x1F149 }, { 0x1F150, 0x1F169 },
        { 0x1F170, 0x1F189 },
    };
    for (size_t i = 0; i < BT_LEN(others); i++)
        if (code >= others[i][0] && code <= others[i][1])
            return true;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL ||
           c == UTF8PROC_CATEGORY_LT;
}

/* Whether a character is inside a word, given the one before it. */
static bool in_word(bool before, uint32_t code)
{
    return case_ignorable(code) ? before : cased(code);
}

/* A capital sigma at the end of a word becomes a final sigma. The first pass
 * marks those with a letter before them, the second, from the end, unmarks
 * those with a letter after them. */
static void sigmas_mark(bt_codepoints *codes)
{
    bool word = false;
    for (size_t i = 0; i < codes->count; i++) {
        uint32_t code = codes->at[i];
        if (code == SIGMA && word)
            codes->at[i] = SIGMA_MARKED;
        word = in_word(word, code);
    }
    word = false;
    for (size_t i = codes->count; i-- > 0;) {
        bool marked = codes->at[i] == SIGMA_MARKED;
        if (marked && word)
            codes->at[i] = SIGMA;
        word = in_word(word, marked ? SIGMA : codes->at[i]);
    }
}

static size_t lower(uint32_t out[3], uint32_t code)
{
    if (code != SIGMA_MARKED)
        return bt_unicode_lower(out, code);
    out[0] = SIGMA_FINAL;
    return 1;
}

static bool has_sigma(const bt_codepoints *codes)
{
    for (size_t i = 0; i < codes->count; i++)
        if (codes->at[i] == SIGMA)
            return true;
    return false;
}

/* One character may become several: count first, then write from the end, so
 * that nothing is overwritten before it is read. */
static bauta_status codes_lower(bt_codepoints *codes, bauta_error *err)
{
    uint32_t small[3];
    size_t count = 0;
    if (has_sigma(codes))
        sigmas_mark(codes);
    for (size_t i = 0; i < codes->count; i++)
        count += lower(small, codes->at[i]);
    bauta_status status = bt_codepoints_reserve(codes, count, err);
    if (status)
        return status;
    for (size_t i = codes->count, to = count; i-- > 0;)
        for (size_t n = lower(small, codes->at[i]); n-- > 0;)
            codes->at[--to] = small[n];
    codes->count = count;
    return BAUTA_OK;
}

/* ---- Decoding ------------------------------------------------------------ */

bauta_status bt_codepoints_decode(bt_codepoints *codes, const char *text,
                                  size_t length, bool lowercase,
                                  bauta_error *err)
{
    size_t bytes;
    codes->count = 0;
    bauta_status status = bt_codepoints_reserve(codes, length, err);
    if (status)
        return status;
    for (size_t i = 0; i < length; i += bytes)
        codes->at[codes->count++] =
            bt_utf8_decode(text + i, length - i, &bytes);
    return lowercase ? codes_lower(codes, err) : BAUTA_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* substrings.c - the suffix array and its intervals of common prefixes
 * (Abouelhoda, Kurtz, Ohlebusch, "Replacing suffix trees with enhanced suffix
 * arrays", 2004).
 *
 * No piece is longer than BT_SUBSTRING_MAX characters, so suffixes are compared
 * up to one character more: sorting takes n log n steps whatever the words
 * are. */
#include "text/learn/substrings.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/merge_sort.h"
#include "base/size.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { DEPTH = BT_SUBSTRING_MAX + 1, SPACE = 0x2581, CODES = 0x110000 };

typedef struct substring_finder {
    bt_substrings *s;
    size_t code_room, segment_room, list_room;
    uint64_t *keys;       /* (codes) the first characters, packed */
    unsigned char *spans; /* (codes) characters from here on that may be in
                             one piece, up to DEPTH */
    double *sums;         /* (suffixes + 1) prefix sums of the counts */
    double least;
} substring_finder;

/* ---- Text ---------------------------------------------------------------- */

static bauta_status code_add(substring_finder *f, uint32_t code,
                             bauta_error *err)
{
    bt_substrings *s = f->s;
    if (s->code_count >= UINT32_MAX / 4)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the different words of the texts have more than %u "
                       "characters",
                       UINT32_MAX / 4);
    if (BT_ARRAY_RESERVE(s->codes, f->code_room, s->code_count, 1))
        return bt_fail_memory(err, "characters", s->code_count * sizeof(code));
    s->codes[s->code_count++] = code;
    return BAUTA_OK;
}

/* End the segment that starts at `begin`, unless it is empty. */
static bauta_status segment_end(substring_finder *f, size_t begin,
                                uint64_t count, bauta_error *err)
{
    bt_substrings *s = f->s;
    if (begin == s->code_count)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(s->segments, f->segment_room, s->segment_count, 1))
        return bt_fail_memory(err, "words",
                              s->segment_count * sizeof(bt_text_segment));
    s->segments[s->segment_count++] =
        (bt_text_segment){ (uint32_t)begin, (uint32_t)s->code_count,
                           (double)count };
    s->suffix_count += s->code_count - begin;
    return code_add(f, 0, err);
}

static bauta_status word_read(substring_finder *f, const bt_counted_word *word,
                              bauta_error *err)
{
    size_t begin = f->s->code_count;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0, length; !status && i < word->size; i += length) {
        uint32_t code =
            bt_utf8_decode(word->bytes + i, word->size - i, &length);
        if (code) {
            status = code_add(f, code, err);
        } else {
            status = segment_end(f, begin, word->count, err);
            begin = f->s->code_count;
        }
    }
    return status ? status : segment_end(f, begin, word->count, err);
}

static bauta_status words_read(substring_finder *f, const bt_word_counts *words,
                               bauta_error *err)
{
    size_t count;
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = word_read(f, list + i, err);
    return status;
}

/* ---- Which characters may share a piece ---------------------------------- */

typedef enum char_kind { LETTER, NUMBER, OTHER, BLANK } char_kind;

/* A mark has the kind of the character before it. */
static char_kind kind_of(uint32_t code, char_kind before)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return before;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return code == SPACE ? BLANK : OTHER;
    }
}

/* Letters, numbers and others do not mix; the space before a word goes with
 * each of them. */
static void spans_fill(substring_finder *f)
{
    const uint32_t *codes = f->s->codes;
    char_kind last = OTHER, next = OTHER;
    for (size_t i = 0; i < f->s->code_count; i++) {
        last = codes[i] ? kind_of(codes[i], last) : OTHER;
        f->spans[i] = (unsigned char)last;
    }
    for (size_t i = f->s->code_count; i-- > 0; next = last) {
        last = f->spans[i];
        bool more = codes[i] && codes[i + 1] && next != BLANK &&
                    (last == BLANK || last == next);
        size_t span = codes[i] ? 1 + (more ? f->spans[i + 1] : 0u) : 0;
        f->spans[i] = (unsigned char)bt_size_min(span, DEPTH);
    }
}

/* ---- Suffix array -------------------------------------------------------- */

/* Pack as many characters as fit into 64 bits, the first one highest, each as
 * its rank among those that occur. Most comparisons need only these keys. */
static bauta_status keys_fill(substring_finder *f, bauta_error *err)
{
    const bt_substrings *s = f->s;
    uint32_t *number = bt_alloc_zero(CODES, sizeof(*number));
    uint32_t count = 0;
    unsigned bits = 1;
    if (!number)
        return bt_fail_memory(err, "characters", CODES * sizeof(*number));
    for (size_t i = 0; i < s->code_count; i++)
        number[s->codes[i]] = 1;
    number[0] = 0;
    for (uint32_t code = 1; code < CODES; code++)
        if (number[code])
            number[code] = ++count;
    while (count >> bits)
        bits++;
    uint64_t key = 0;
    for (size_t i = s->code_count; i-- > 0;) {
        uint64_t rest = s->codes[i] ? key >> bits : 0;
        key = (uint64_t)number[s->codes[i]] << (64 - bits) | rest;
        f->keys[i] = key;
    }
    bt_free(number);
    return BAUTA_OK;
}

/* The length of the common prefix of two suffixes, up to DEPTH. */
static uint32_t common(const uint32_t *codes, uint32_t a, uint32_t b)
{
    uint32_t i = 0;
    while (i < DEPTH && codes[a + i] == codes[b + i] && codes[a + i])
        i++;
    return i;
}

static bool suffix_after(const void *user, uint32_t a, uint32_t b)
{
    const substring_finder *f = user;
    if (f->keys[a] != f->keys[b])
        return f->keys[a] > f->keys[b];
    const uint32_t *codes = f->s->codes;
    uint32_t i = common(codes, a, b);
    return i < DEPTH && codes[a + i] > codes[b + i];
}

static bauta_status suffixes_sort(substring_finder *f, bauta_error *err)
{
    bt_substrings *s = f->s;
    size_t size = bt_size_mul(s->suffix_count, sizeof(uint32_t)), count = 0;
    uint32_t *spare = bt_alloc(size);
    s->suffixes = bt_alloc(size);
    if (!spare || !s->suffixes) {
        bt_free(spare);
        return bt_fail_memory(err, "suffixes", size);
    }
    for (uint32_t i = 0; i < s->code_count; i++)
        if (s->codes[i])
            s->suffixes[count++] = i;
    bt_merge_sort(s->suffixes, spare, count, suffix_after, f);
    bt_free(spare);
    return BAUTA_OK;
}

/* sums[i] is the sum of the counts of the first i suffixes. */
static bauta_status sums_fill(substring_finder *f, bauta_error *err)
{
    const bt_substrings *s = f->s;
    double *counts = bt_alloc(bt_size_mul(s->code_count, sizeof(double)));
    if (!counts)
        return bt_fail_memory(err, "counts", s->code_count * sizeof(double));
    for (size_t i = 0; i < s->segment_count; i++)
        for (uint32_t j = s->segments[i].begin; j < s->segments[i].end; j++)
            counts[j] = s->segments[i].count;
    f->sums[0] = 0;
    for (size_t i = 0; i < s->suffix_count; i++)
        f->sums[i + 1] = f->sums[i] + counts[s->suffixes[i]];
    bt_free(counts);
    return BAUTA_OK;
}

/* ---- Candidates ---------------------------------------------------------- */

static bauta_status list_add(substring_finder *f, uint32_t lo, uint32_t hi,
                             uint32_t size, bauta_error *err)
{
    bt_substrings *s = f->s;
    if (BT_ARRAY_RESERVE(s->list, f->list_room, s->count, 1))
        return bt_fail_memory(err, "strings", s->count * sizeof(*s->list));
    s->list[s->count++] =
        (bt_substring){ lo, hi, size, f->sums[hi] - f->sums[lo] };
    return BAUTA_OK;
}

static bauta_status characters_list(substring_finder *f, bauta_error *err)
{
    bt_substrings *s = f->s;
    uint32_t count = (uint32_t)s->suffix_count;
    bauta_status status = BAUTA_OK;
    for (uint32_t lo = 0, hi; !status && lo < count; lo = hi) {
        uint32_t code = s->codes[s->suffixes[lo]];
        for (hi = lo + 1; hi < count && s->codes[s->suffixes[hi]] == code;)
            hi++;
        status = list_add(f, lo, hi, 1, err);
    }
    s->characters = s->count;
    return status;
}

/* The suffixes lo to hi - 1 have a common prefix of `size` characters. */
static bauta_status string_found(substring_finder *f, uint32_t lo, uint32_t hi,
                                 uint32_t size, bauta_error *err)
{
    if (size < 2 || size > BT_SUBSTRING_MAX ||
        size > f->spans[f->s->suffixes[lo]] ||
        f->sums[hi] - f->sums[lo] < f->least)
        return BAUTA_OK;
    return list_add(f, lo, hi, size, err);
}

typedef struct interval {
    uint32_t lo, depth;
} interval;

/* Intervals are nested, at most DEPTH deep. Each ends where the common prefix
 * of two adjacent suffixes is shorter than its own. A single suffix is an
 * interval too, as its word may be frequent. */
static bauta_status strings_list(substring_finder *f, bauta_error *err)
{
    const bt_substrings *s = f->s;
    interval stack[DEPTH + 2];
    size_t open = 0;
    uint32_t count = (uint32_t)s->suffix_count;
    bauta_status status = BAUTA_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        uint32_t at = s->suffixes[i], lo = i, length = 0;
        uint32_t shared =
            i + 1 < count ? common(s->codes, at, s->suffixes[i + 1]) : 0;
        while (length < DEPTH && s->codes[at + length])
            length++;
        if (!open || stack[open - 1].depth < length)
            stack[open++] = (interval){ i, length };
        while (!status && open && stack[open - 1].depth > shared) {
            interval top = stack[--open];
            lo = top.lo;
            status = string_found(f, top.lo, i + 1, top.depth, err);
        }
        if (shared && (!open || stack[open - 1].depth < shared))
            stack[open++] = (interval){ lo, shared };
    }
    return status;
}

/* ---- Selection ----------------------------------------------------------- */

static bool covers_less(const void *user, uint32_t a, uint32_t b)
{
    const bt_substring *list = user;
    return list[a].count * list[a].size < list[b].count * list[b].size;
}

/* Keep the characters and the `most` other candidates that cover most text. */
static bauta_status list_truncate(bt_substrings *s, size_t most,
                                  bauta_error *err)
{
    size_t strings = s->count - s->characters;
    if (strings <= most)
        return BAUTA_OK;
    bt_substring *list = s->list + s->characters;
    bt_substring *kept = bt_alloc(bt_size_mul(most, sizeof(*kept)));
    uint32_t *order = bt_alloc(bt_size_mul(strings, 2 * sizeof(*order)));
    if (kept && order) {
        for (uint32_t i = 0; i < strings; i++)
            order[i] = i;
        bt_merge_sort(order, order + strings, strings, covers_less, list);
        for (size_t i = 0; i < most; i++)
            kept[i] = list[order[i]];
        memcpy(list, kept, most * sizeof(*kept));
        s->count = s->characters + most;
    }
    bool failed = !kept || !order;
    bt_free(kept);
    bt_free(order);
    return failed ? bt_fail_memory(err, "strings", most * sizeof(*kept))
                  : BAUTA_OK;
}

static bauta_status find(substring_finder *f, bauta_error *err)
{
    bt_substrings *s = f->s;
    f->keys = bt_alloc(bt_size_mul(s->code_count, sizeof(uint64_t)));
    f->spans = bt_alloc(s->code_count);
    f->sums = bt_alloc(bt_size_mul(s->suffix_count + 1, sizeof(double)));
    if (!f->keys || !f->spans || !f->sums)
        return bt_fail_memory(err, "suffixes", s->code_count * 17);
    spans_fill(f);
    bauta_status status = keys_fill(f, err);
    if (!status)
        status = suffixes_sort(f, err);
    if (!status)
        status = sums_fill(f, err);
    if (!status)
        status = characters_list(f, err);
    return status ? status : strings_list(f, err);
}

bauta_status bt_substrings_init(bt_substrings *s, const bt_word_counts *words,
                                size_t least, size_t most, bauta_error *err)
{
    substring_finder f = { .s = s, .least = (double)bt_size_max(least, 2) };
    *s = (bt_substrings){ .codes = NULL };
    bauta_status status = words_read(&f, words, err);
    if (!status && s->code_count)
        status = find(&f, err);
    if (!status)
        status = list_truncate(s, most, err);
    bt_free(f.keys);
    bt_free(f.spans);
    bt_free(f.sums);
    return status;
}

void bt_substrings_release(bt_substrings *s)
{
    bt_free(s->codes);
    bt_free(s->segments);
    bt_free(s->suffixes);
    bt_free(s->list);
    *s = (bt_substrings){ .codes = NULL };
}

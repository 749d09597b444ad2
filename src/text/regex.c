/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - compiling and matching with PCRE2; see regex.h.
 *
 * A match first uses the small stack that PCRE2's JIT code has by default. If
 * it needs more, the matcher creates a larger one and keeps it; if that is not
 * enough either, the interpreter runs, which uses the heap.
 *
 * Time is linear in the text whatever the pattern is, and a text fails on every
 * machine or on none. PCRE2 counts the steps of a match from each start
 * position and stops at a limit, but it does not report the count, and it does
 * not count the characters that a repetition or a lookahead passes. So a search
 * covers few start positions at a time, with a low step limit, in a window of
 * the text: a match that reaches the end of the window is "partial". If limit
 * or window is too small, the start positions are tried one by one with four
 * times as many steps or characters. Those are charged to a budget that grows
 * with the text that the matcher has seen. */
#define _GNU_SOURCE // memmem
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/regex_translate.h"

#include <pcre2.h>
#include <string.h>

enum {
    PATTERN_MAX = 64 << 10, /* bytes of a pattern */
    STARTS = 256,           /* start positions of one regex_search */
    STEPS_FIRST = 128,      /* steps from one start position, and */
    WINDOW_FIRST = 512,     /* bytes after it, that are not charged */
    STEPS_FREE = 16 << 20,  /* the budget of a matcher, */
    STEPS_A_BYTE = 64,      /* and its growth for each byte of text */
    BYTES_A_STEP = 4,       /* of a window, when they are charged */
    DEPTH_LIMIT = 50 << 20,
    HEAP_LIMIT = 256 << 10, /* KiB for the interpreter */
    STACK_MIN = 64 << 10,   /* bytes, of JIT code */
    STACK_MAX = 64 << 20,
};

struct bt_regex {
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_code *code; /* NULL: search for the literal */
    char *literal;
    size_t literal_size;
    bt_quoted quoted;             /* as in the file, for messages */
    bool creating, out_of_memory; /* while it was created */
};

struct bt_regex_matcher {
    const bt_regex *pattern;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* of the context, or NULL */
    size_t spent, earned;   /* steps */
};

/* ---- Patterns ------------------------------------------------------------ */

static void *pattern_alloc(size_t size, void *user)
{
    bt_regex *pattern = user;
    void *memory = bt_alloc(size);
    // After creation it may be shared, so nothing is written.
    if (!memory && pattern->creating)
        pattern->out_of_memory = true;
    return memory;
}

static void pattern_release(void *memory, void *user)
{
    (void)user;
    bt_free(memory);
}

void bt_regex_free(bt_regex *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->limits);
    pcre2_general_context_free(pattern->general);
    bt_free(pattern->literal);
    bt_free(pattern);
}

static bauta_status fail_compile(const bt_regex *pattern, int code,
                                 const char *text, size_t size, size_t at,
                                 const char *path, bauta_error *err)
{
    char message[120];
    if (pattern->out_of_memory)
        return bt_fail_memory(err, "a pattern", size);
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof(message)) <
        0)
        strcpy(message, "unknown error");
    return bt_fail(err, BAUTA_ERR_FORMAT,
                   "%s: the pattern \"%s\" at byte %zu: %s", bt_path_tail(path),
                   bt_regex_quote(text, size).text, at, message);
}

/* Sizes and offsets in messages are those of the translated pattern, which is
 * close to that of the file. */
static bauta_status compile(bt_regex *pattern, const char *text, size_t size,
                            const char *path, bauta_error *err)
{
    int code;
    size_t at;
    pcre2_compile_context *context =
        pcre2_compile_context_create(pattern->general);
    if (!context)
        return bt_fail_memory(err, "a pattern", size);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    pcre2_set_max_pattern_length(context, PATTERN_MAX);
    pattern->code = pcre2_compile((PCRE2_SPTR)text, size,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                      PCRE2_USE_OFFSET_LIMIT,
                                  &code, &at, context);
    pcre2_compile_context_free(context);
    if (!pattern->code)
        return fail_compile(pattern, code, text, size, at, path, err);
    // Without JIT support the interpreter is used.
    (void)pcre2_jit_compile(pattern->code,
                            PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return pattern->out_of_memory ? bt_fail_memory(err, "a pattern", size)
                                  : BAUTA_OK;
}

static bauta_status contexts_create(bt_regex *pattern, bauta_error *err)
{
    pattern->general =
        pcre2_general_context_create(pattern_alloc, pattern_release, pattern);
    if (pattern->general)
        pattern->limits = pcre2_match_context_create(pattern->general);
    if (!pattern->limits)
        return bt_fail_memory(err, "a pattern", sizeof(*pattern));
    pcre2_set_match_limit(pattern->limits, STEPS_FIRST);
    pcre2_set_depth_limit(pattern->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(pattern->limits, HEAP_LIMIT);
    return BAUTA_OK;
}

static bauta_status pattern_fill(bt_regex *pattern, const char *text,
                                 size_t size, const char *path,
                                 bauta_error *err)
{
    char *translated;
    size_t translated_size;
    bauta_status status = contexts_create(pattern, err);
    if (status)
        return status;
    status = bt_regex_translate(&translated, &translated_size, text, size, path,
                                err);
    if (status)
        return status;
    status = compile(pattern, translated, translated_size, path, err);
    bt_free(translated);
    return status;
}

bauta_status bt_regex_create(bt_regex **out, const char *text, size_t size,
                             const char *path, bauta_error *err)
{
    *out = NULL;
    if (size > PATTERN_MAX || bt_utf8_valid_prefix(text, size) != size)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: a pattern of %zu bytes is too long, or is not "
                       "UTF-8",
                       bt_path_tail(path), size);
    bt_regex *pattern = bt_alloc_zero(1, sizeof(*pattern));
    if (!pattern)
        return bt_fail_memory(err, "a pattern", sizeof(*pattern));
    pattern->creating = true;
    pattern->quoted = bt_regex_quote(text, size);
    bauta_status status = pattern_fill(pattern, text, size, path, err);
    pattern->creating = false;
    if (status)
        bt_regex_free(pattern);
    else
        *out = pattern;
    return status;
}

bauta_status bt_regex_create_literal(bt_regex **out, const char *string,
                                     size_t size, bauta_error *err)
{
    *out = NULL;
    bt_regex *pattern = bt_alloc_zero(1, sizeof(*pattern));
    char *literal = pattern ? bt_alloc(size) : NULL;
    if (!literal) {
        bt_free(pattern);
        return bt_fail_memory(err, "a pattern", sizeof(*pattern) + size);
    }
    memcpy(literal, string, size);
    pattern->literal = literal;
    pattern->literal_size = size;
    *out = pattern;
    return BAUTA_OK;
}

/* ---- Matching ------------------------------------------------------------ */

bauta_status bt_regex_matcher_create(bt_regex_matcher **out,
                                     const bt_regex *pattern, bauta_error *err)
{
    *out = NULL;
    bt_regex_matcher *matcher = bt_alloc_zero(1, sizeof(*matcher));
    if (!matcher)
        return bt_fail_memory(err, "a match", sizeof(*matcher));
    matcher->pattern = pattern;
    if (pattern->code) {
        matcher->data = pcre2_match_data_create(1, pattern->general);
        matcher->context = pcre2_match_context_copy(pattern->limits);
        if (!matcher->data || !matcher->context) {
            bt_regex_matcher_free(matcher);
            return bt_fail_memory(err, "a match", sizeof(*matcher));
        }
    }
    *out = matcher;
    return BAUTA_OK;
}

void bt_regex_matcher_free(bt_regex_matcher *matcher)
{
    if (!matcher)
        return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    bt_free(matcher);
}

/* One call of PCRE2. */
typedef struct regex_search {
    const char *text;
    size_t size;   /* of the text */
    size_t at;     /* the first start position */
    size_t window; /* bytes from there that it may see */
    bool anchored; /* to the first start position */
} regex_search;

static int run(bt_regex_matcher *m, const regex_search *a, uint32_t options)
{
    size_t end = a->at + bt_size_min(a->window, a->size - a->at);
    // The window ends at the end of a character.
    while (end < a->size && bt_utf8_continues(a->text[end]))
        end++;
    options |= PCRE2_NO_UTF_CHECK;
    options |= end < a->size ? PCRE2_PARTIAL_HARD : 0u;
    pcre2_set_offset_limit(m->context, a->anchored ? a->at : a->at + STARTS);
    return pcre2_match(m->pattern->code, (PCRE2_SPTR)a->text, end, a->at,
                       options, m->data, m->context);
}

/* False if there is one already, or no memory for it. */
static bool stack_create(bt_regex_matcher *m)
{
    if (m->stack)
        return false;
    m->stack =
        pcre2_jit_stack_create(STACK_MIN, STACK_MAX, m->pattern->general);
    if (m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m->stack != NULL;
}

/* Run, with a larger stack or the interpreter if needed. */
static int run_stacked(bt_regex_matcher *m, const regex_search *a)
{
    int code = run(m, a, 0);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT && stack_create(m))
        code = run(m, a, 0);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code = run(m, a, PCRE2_NO_JIT);
    return code;
}

static bool unfinished(int code)
{
    return code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_PARTIAL;
}

/* Match at one start position with as many steps and bytes as it needs, within
 * the budget. */
static int run_charged(bt_regex_matcher *m, regex_search a)
{
    size_t budget = bt_size_add(STEPS_FREE + m->earned,
                                bt_size_mul(a.size - a.at, STEPS_A_BYTE));
    uint32_t limit = STEPS_FIRST;
    int code = run_stacked(m, &a);
    while (unfinished(code)) {
        if (code == PCRE2_ERROR_PARTIAL)
            a.window *= 4;
        else
            pcre2_set_match_limit(m->context, limit *= 4);
        m->spent += limit + a.window / BYTES_A_STEP;
        if (m->spent > budget || limit >= UINT32_MAX / 4) {
            code = PCRE2_ERROR_MATCHLIMIT;
            break;
        }
        code = run_stacked(m, &a);
    }
    pcre2_set_match_limit(m->context, STEPS_FIRST);
    return code;
}

static size_t char_next(const regex_search *a, size_t at)
{
    return at + (at < a->size ? bt_utf8_length((unsigned char)a->text[at]) : 1);
}

/* Try the start positions up to `last` one by one; a->at is the next one
 * then. */
static int run_positions(bt_regex_matcher *m, regex_search *a, size_t last)
{
    int code = PCRE2_ERROR_NOMATCH;
    a->anchored = true;
    while (code == PCRE2_ERROR_NOMATCH && a->at <= last) {
        code = run_charged(m, *a);
        a->at = char_next(a, a->at);
    }
    a->anchored = false;
    return code;
}

/* The first match from `at` on. */
static int run_all(bt_regex_matcher *m, const char *text, size_t size,
                   size_t at)
{
    regex_search a = { text, size, at, STARTS + WINDOW_FIRST, false };
    int code = PCRE2_ERROR_NOMATCH;
    while (code == PCRE2_ERROR_NOMATCH && a.at <= size) {
        size_t last = bt_size_min(a.at + STARTS, size);
        code = run_stacked(m, &a);
        if (unfinished(code))
            code = run_positions(m, &a, last);
        else if (code == PCRE2_ERROR_NOMATCH)
            for (a.at = last + 1; a.at < size && bt_utf8_continues(text[a.at]);)
                a.at++;
    }
    return code;
}

static bauta_status fail_match(const bt_regex_matcher *m, int code, size_t size,
                               bauta_error *err)
{
    char message[120] = "";
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT)
        return bt_fail_memory(err, "a match", size);
    if (code == PCRE2_ERROR_MATCHLIMIT)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the pattern \"%s\" takes too many steps to match a "
                       "text of %zu bytes",
                       m->pattern->quoted.text, size);
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof(message));
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the pattern \"%s\" cannot be matched with a text of %zu "
                   "bytes: %s",
                   m->pattern->quoted.text, size, message);
}

static void find_literal(const bt_regex *pattern, const char *text, size_t size,
                         size_t at, size_t *lo, size_t *hi)
{
    const char *found =
        memmem(text + at, size - at, pattern->literal, pattern->literal_size);
    *lo = found ? (size_t)(found - text) : SIZE_MAX;
    *hi = found ? *lo + pattern->literal_size : SIZE_MAX;
}

bauta_status bt_regex_matcher_find(bt_regex_matcher *m, const char *text,
                                   size_t size, size_t at, size_t *lo,
                                   size_t *hi, bauta_error *err)
{
    *lo = *hi = SIZE_MAX;
    if (!m->pattern->code) {
        find_literal(m->pattern, text, size, at, lo, hi);
        return BAUTA_OK;
    }
    int code = run_all(m, text, size, at);
    if (code < 0 && code != PCRE2_ERROR_NOMATCH)
        return fail_match(m, code, size, err);
    if (code != PCRE2_ERROR_NOMATCH) {
        const size_t *found = pcre2_get_ovector_pointer(m->data);
        *lo = found[0];
        // With \K in a lookahead a match could end before it begins.
        *hi = found[1] > found[0] ? found[1] : found[0];
    }
    // This much of the text is not searched again.
    m->earned += (bt_size_min(*hi, size) - at + 1) * STEPS_A_BYTE;
    return BAUTA_OK;
}

bauta_status bt_regex_matcher_next(bt_regex_matcher *m, const char *text,
                                   size_t size, bt_regex_match *match,
                                   bool *found, bauta_error *err)
{
    size_t lo, hi;
    *found = false;
    while (match->next <= size) {
        bauta_status status =
            bt_regex_matcher_find(m, text, size, match->next, &lo, &hi, err);
        if (status || lo == SIZE_MAX)
            return status;
        if (lo < hi || !match->any || lo != match->hi) {
            *match = (bt_regex_match){ lo, hi, hi, true };
            *found = true;
            return BAUTA_OK;
        }
        match->next += match->next < size
                           ? bt_utf8_length((unsigned char)text[match->next])
                           : 1;
    }
    return BAUTA_OK;
}

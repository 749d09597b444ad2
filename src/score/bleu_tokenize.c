/* SPDX-License-Identifier: Apache-2.0 */
/* bleu_tokenize.c - the tokenizers of BLEU, which insert spaces into a line.
 *
 * mteval-v13a and mteval-v14 are lists of regular expression replacements. Each
 * runs from left to right over the result of the one before; characters that it
 * has matched are not matched again by the same one. */
#include "score/score.h"

#include "base/error.h"
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- Character classes --------------------------------------------------- */

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool not_digit(uint32_t c)
{
    return !is_digit(c);
}

static bool is_stop(uint32_t c)
{
    return c == '.' || c == ',';
}

static bool is_dash(uint32_t c)
{
    return c == '-';
}

/* ASCII punctuation except ' , - and . */
static bool is_ascii_symbol(uint32_t c)
{
    return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
           (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static bool not_number(uint32_t c)
{
    return !bt_is_number(c);
}

static bool is_symbol(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO;
}

/* ---- Replacements -------------------------------------------------------- */

/* A character of class `first` followed by one of class `second`: one of the
 * two gets spaces around it. With `second` NULL any character may follow. */
typedef struct tokenize_step {
    bool (*first)(uint32_t);
    bool (*second)(uint32_t);
    bool around_first;
} tokenize_step;

static const tokenize_step steps_13a[] = {
    { is_ascii_symbol, NULL, true },
    { not_digit, is_stop, false },
    { is_stop, not_digit, true },
    { is_digit, is_dash, false },
};
static const tokenize_step steps_intl[] = {
    { not_number, bt_is_punctuation, false },
    { bt_is_punctuation, not_number, true },
    { is_symbol, NULL, true },
};

static size_t spaced(uint32_t *to, uint32_t code)
{
    to[0] = ' ';
    to[1] = code;
    to[2] = ' ';
    return 3;
}

/* Apply the step at `from`, where `left` characters remain. Returns how many
 * were written; *taken is how many were matched. */
static size_t step_one(uint32_t *to, const tokenize_step *s,
                       const uint32_t *from, size_t left, size_t *taken)
{
    *taken = 1;
    to[0] = from[0];
    if (!s->second)
        return s->first(from[0]) ? spaced(to, from[0]) : 1;
    if (left < 2 || !s->first(from[0]) || !s->second(from[1]))
        return 1;
    *taken = 2;
    if (!s->around_first)
        return 1 + spaced(to + 1, from[1]);
    to[spaced(to, from[0])] = from[1];
    return 4;
}

static bauta_status step_run(const tokenize_step *s, bt_codepoints *line,
                             bt_codepoints *spare, bauta_error *err)
{
    size_t taken;
    spare->count = 0;
    bauta_status status = bt_codepoints_reserve(spare, 3 * line->count, err);
    if (status)
        return status;
    for (size_t i = 0; i < line->count; i += taken)
        spare->count += step_one(spare->at + spare->count, s, line->at + i,
                                 line->count - i, &taken);
    bt_codepoints done = *spare;
    *spare = *line;
    *line = done;
    return BAUTA_OK;
}

static bool begins(const uint32_t *codes, size_t left, const char *text)
{
    for (; *text; text++, codes++, left--)
        if (left == 0 || *codes != (unsigned char)*text)
            return false;
    return true;
}

/* Replace every `from` by `to`, which must not be longer. */
static void replace(bt_codepoints *line, const char *from, const char *to)
{
    size_t count = 0, length = strlen(from);
    for (size_t i = 0; i < line->count;) {
        if (!begins(line->at + i, line->count - i, from)) {
            line->at[count++] = line->at[i++];
            continue;
        }
        for (const char *c = to; *c; c++)
            line->at[count++] = (unsigned char)*c;
        i += length;
    }
    line->count = count;
}

/* ---- Tokenizers ---------------------------------------------------------- */

/* The first part of 13a: entities and line breaks. The line gets a space at
 * each end. */
static bauta_status prepare_13a(bt_codepoints *line, bauta_error *err)
{
    static const char *const pairs[][2] = {
        { "<skipped>", "" }, { "-\n", "" },    { "\n", " " },
        { "&quot;", "\"" },  { "&amp;", "&" }, { "&lt;", "<" },
        { "&gt;", ">" },
    };
    for (size_t i = 0; i < BT_LEN(pairs); i++)
        replace(line, pairs[i][0], pairs[i][1]);
    bauta_status status = bt_codepoints_reserve(line, line->count + 2, err);
    if (status)
        return status;
    memmove(line->at + 1, line->at, line->count * sizeof(*line->at));
    line->at[0] = ' ';
    line->at[line->count + 1] = ' ';
    line->count += 2;
    return BAUTA_OK;
}

/* A space after every character. */
static bauta_status tokenize_char(bt_codepoints *line, bauta_error *err)
{
    bauta_status status = bt_codepoints_reserve(line, 2 * line->count, err);
    if (status)
        return status;
    for (size_t i = line->count; i-- > 0;) {
        line->at[2 * i + 1] = ' ';
        line->at[2 * i] = line->at[i];
    }
    line->count *= 2;
    return BAUTA_OK;
}

bauta_status bt_bleu_tokenize(bauta_bleu_tokenizer tokenizer,
                              bt_codepoints *line, bt_codepoints *spare,
                              bauta_error *err)
{
    const tokenize_step *steps = NULL;
    size_t count = 0;
    bauta_status status = BAUTA_OK;
    while (line->count && bt_is_python_space(line->at[line->count - 1]))
        line->count--;
    if (tokenizer == BAUTA_TOKENIZE_CHAR)
        return tokenize_char(line, err);
    if (tokenizer == BAUTA_TOKENIZE_13A) {
        steps = steps_13a;
        count = BT_LEN(steps_13a);
        status = prepare_13a(line, err);
    } else if (tokenizer == BAUTA_TOKENIZE_INTL) {
        steps = steps_intl;
        count = BT_LEN(steps_intl);
    }
    for (size_t i = 0; i < count && !status; i++)
        status = step_run(&steps[i], line, spare, err);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer_parse.c - pre-tokenizers from JSON; see pretokenizer.h. */
#include "text/pretokenize/pretokenizer_step.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/pretokenize/gpt2_split.h"
#include "text/step_json.h"
#include "text/unicode.h"

#include <string.h>

typedef struct pretokenizer_parser {
    bt_pretokenizer *out;
    const char *path;
    bauta_error *err;
} pretokenizer_parser;

/* Append a step. The list owns its pattern from here on, even on failure. */
static bauta_status step_add(pretokenizer_parser *p, bt_pretokenizer_step step)
{
    bt_pretokenizer *out = p->out;
    bauta_status status = BAUTA_OK;
    if (out->count == BT_STEPS_MAX)
        status = bt_fail(p->err, BAUTA_ERR_FORMAT,
                         "%s: the pre-tokenizer has more than %d steps",
                         bt_path_tail(p->path), BT_STEPS_MAX);
    else if (BT_ARRAY_RESERVE(out->steps, out->room, out->count, 1))
        status = bt_fail_memory(p->err, "a pre-tokenizer", sizeof(step));
    if (status)
        bt_regex_free(step.regex);
    else
        out->steps[out->count++] = step;
    return status;
}

static bauta_status chars_add(pretokenizer_parser *p, bt_char_class_fn *matches,
                              bt_split_behavior behavior)
{
    return step_add(p, (bt_pretokenizer_step){ .kind = BT_PRETOKENIZE_CHARS,
                                               .in_class = matches,
                                               .behavior = behavior });
}

/* The member "behavior", or `fallback` if there is none. */
static bauta_status behavior_read(pretokenizer_parser *p,
                                  bt_split_behavior *out, const json_t *json,
                                  bt_split_behavior fallback)
{
    static const char *const names[] = { "Removed", "Isolated",
                                         "MergedWithPrevious", "MergedWithNext",
                                         "Contiguous" };
    const char *name = NULL;
    bauta_status status =
        bt_step_string(&name, json, "behavior", p->path, p->err);
    *out = fallback;
    for (size_t i = 0; name && i < BT_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (bt_split_behavior)i;
            return BAUTA_OK;
        }
    if (status || !name)
        return status;
    return bt_fail(p->err, BAUTA_ERR_FORMAT,
                   "%s: the behavior \"%s\" of a pre-tokenizer is unknown",
                   bt_path_tail(p->path), bt_quote(name).text);
}

/* ---- One kind each ------------------------------------------------------- */

static bauta_status fail_after_bytelevel(pretokenizer_parser *p,
                                         const char *what)
{
    return bt_fail(p->err, BAUTA_ERR_FORMAT,
                   "%s: the pre-tokenizer has %s after ByteLevel, which is "
                   "not supported",
                   bt_path_tail(p->path), what);
}

static bauta_status bytelevel_parse(pretokenizer_parser *p, const json_t *json)
{
    bool prefix = true, split = true;
    bauta_status status =
        bt_step_bool(&prefix, json, "add_prefix_space", p->path, p->err);
    if (!status)
        status = bt_step_bool(&split, json, "use_regex", p->path, p->err);
    if (!status && p->out->bytes)
        return fail_after_bytelevel(p, "another ByteLevel");
    if (!status && prefix)
        status =
            step_add(p, (bt_pretokenizer_step){ .kind = BT_PRETOKENIZE_PREPEND,
                                                .code = ' ',
                                                .prepend = BT_PREPEND_ALWAYS });
    if (!status && split)
        status =
            step_add(p, (bt_pretokenizer_step){ .kind = BT_PRETOKENIZE_GPT2 });
    p->out->bytes = true;
    return status ? status
                  : step_add(p, (bt_pretokenizer_step){
                                    .kind = BT_PRETOKENIZE_BYTELEVEL });
}

/* Whether a pattern is one that gpt2_split.c implements. Its matches cover the
 * text, so the behavior must keep all of them. */
static bt_pretokenizer_step_kind known_pattern(const pretokenizer_parser *p,
                                               const json_t *json,
                                               bt_pretokenizer_step *step)
{
    const char *regex = json_string_value(
        json_object_get(json_object_get(json, "pattern"), "Regex"));
    bool matches_kept = step->behavior == BT_SPLIT_ISOLATED ||
                        (step->behavior == BT_SPLIT_REMOVED && step->invert);
    if (!regex || !matches_kept || p->out->bytes)
        return BT_PRETOKENIZE_REGEX;
    if (strcmp(regex, BT_GPT2_PATTERN) == 0)
        return BT_PRETOKENIZE_GPT2;
    step->max_digits = bt_llama3_max_digits(regex);
    return step->max_digits ? BT_PRETOKENIZE_LLAMA3 : BT_PRETOKENIZE_REGEX;
}

static bauta_status split_parse(pretokenizer_parser *p, const json_t *json)
{
    bt_pretokenizer_step step = { .kind = BT_PRETOKENIZE_REGEX };
    bauta_status status =
        behavior_read(p, &step.behavior, json, BT_SPLIT_ISOLATED);
    if (!status)
        status = bt_step_bool(&step.invert, json, "invert", p->path, p->err);
    step.kind = known_pattern(p, json, &step);
    if (!status && step.kind == BT_PRETOKENIZE_REGEX)
        status = bt_step_regex(&step.regex, json, p->path, p->err);
    return status ? status : step_add(p, step);
}

static bauta_status prepend_read(pretokenizer_parser *p, bt_prepend_scheme *out,
                                 const json_t *json)
{
    static const char *const names[] = { "never", "first", "always" };
    const char *name = "always";
    bool prefix = true;
    bauta_status status =
        bt_step_string(&name, json, "prepend_scheme", p->path, p->err);
    if (!status) // of older files
        status =
            bt_step_bool(&prefix, json, "add_prefix_space", p->path, p->err);
    *out = BT_PREPEND_NEVER;
    if (status || !prefix)
        return status;
    for (size_t i = 0; i < BT_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (bt_prepend_scheme)i;
            return BAUTA_OK;
        }
    return bt_fail(p->err, BAUTA_ERR_FORMAT,
                   "%s: the prepend_scheme \"%s\" of Metaspace is unknown",
                   bt_path_tail(p->path), bt_quote(name).text);
}

static bauta_status metaspace_parse(pretokenizer_parser *p, const json_t *json)
{
    bt_pretokenizer_step step = { .kind = BT_PRETOKENIZE_METASPACE,
                                  .behavior = BT_SPLIT_MERGED_WITH_NEXT,
                                  .code = 0x2581 };
    bool split = true;
    bauta_status status =
        bt_step_char(&step.code, json, "replacement", p->path, p->err);
    if (!status)
        status = bt_step_bool(&split, json, "split", p->path, p->err);
    if (!status)
        status = prepend_read(p, &step.prepend, json);
    step.no_split = !split;
    if (!status && p->out->bytes)
        return fail_after_bytelevel(p, "Metaspace");
    return status ? status : step_add(p, step);
}

static bauta_status bert_parse(pretokenizer_parser *p, const json_t *json)
{
    (void)json;
    bauta_status status = chars_add(p, bt_is_space, BT_SPLIT_REMOVED);
    return status ? status
                  : chars_add(p, bt_is_bert_punctuation, BT_SPLIT_ISOLATED);
}

static bauta_status whitespace_parse(pretokenizer_parser *p, const json_t *json)
{
    (void)json;
    return step_add(p, (bt_pretokenizer_step){ .kind = BT_PRETOKENIZE_WORDS,
                                               .behavior = BT_SPLIT_REMOVED,
                                               .invert = true });
}

static bauta_status whitespace_split_parse(pretokenizer_parser *p,
                                           const json_t *json)
{
    (void)json;
    return chars_add(p, bt_is_space, BT_SPLIT_REMOVED);
}

static bauta_status punctuation_parse(pretokenizer_parser *p,
                                      const json_t *json)
{
    bt_split_behavior behavior;
    bauta_status status = behavior_read(p, &behavior, json, BT_SPLIT_ISOLATED);
    return status ? status : chars_add(p, bt_is_bert_punctuation, behavior);
}

static bauta_status digits_parse(pretokenizer_parser *p, const json_t *json)
{
    bool individual = false;
    bauta_status status =
        bt_step_bool(&individual, json, "individual_digits", p->path, p->err);
    return status ? status
                  : chars_add(p, bt_is_number,
                              individual ? BT_SPLIT_ISOLATED
                                         : BT_SPLIT_CONTIGUOUS);
}

static bauta_status delimiter_parse(pretokenizer_parser *p, const json_t *json)
{
    bt_pretokenizer_step step = { .kind = BT_PRETOKENIZE_CHAR,
                                  .behavior = BT_SPLIT_REMOVED,
                                  .code = UINT32_MAX };
    bauta_status status =
        bt_step_char(&step.code, json, "delimiter", p->path, p->err);
    if (!status && step.code == UINT32_MAX)
        status = bt_fail(p->err, BAUTA_ERR_FORMAT,
                         "%s: CharDelimiterSplit has no \"delimiter\"",
                         bt_path_tail(p->path));
    return status ? status : step_add(p, step);
}

/* ---- All kinds ----------------------------------------------------------- */

static const struct {
    const char *type;
    bauta_status (*parse)(pretokenizer_parser *p, const json_t *json);
} kinds[] = {
    { "ByteLevel", bytelevel_parse },
    { "Split", split_parse },
    { "Metaspace", metaspace_parse },
    { "BertPreTokenizer", bert_parse },
    { "Whitespace", whitespace_parse },
    { "WhitespaceSplit", whitespace_split_parse },
    { "Punctuation", punctuation_parse },
    { "Digits", digits_parse },
    { "CharDelimiterSplit", delimiter_parse },
};

static bauta_status step_parse(void *user, const char *type, const json_t *json)
{
    pretokenizer_parser *p = user;
    for (size_t i = 0; i < BT_LEN(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].parse(p, json);
    return bt_fail(p->err, BAUTA_ERR_FORMAT,
                   "%s: the pre-tokenizer \"%s\" is unknown",
                   bt_path_tail(p->path), bt_quote(type).text);
}

bauta_status bt_pretokenizer_parse(bt_pretokenizer **out, const json_t *json,
                                   const char *path, bauta_error *err)
{
    *out = NULL;
    if (!json || json_is_null(json))
        return BAUTA_OK;
    pretokenizer_parser p = { bt_alloc_zero(1, sizeof(*p.out)), path, err };
    if (!p.out)
        return bt_fail_memory(err, "a pre-tokenizer", sizeof(*p.out));
    bt_step_reader reader = {
        "pre-tokenizer", "pretokenizers", path, step_parse, &p, err
    };
    bauta_status status = bt_steps_parse(&reader, json);
    if (status)
        bt_pretokenizer_free(p.out);
    else
        *out = p.out;
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_parse.c - the steps of a detokenizer from JSON.
 *
 * Each decoder of Hugging Face's library becomes one or more steps. */
#include "text/detokenize/detokenizer.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/detokenize/detokenizer_step.h"
#include "text/step_json.h"

#include <string.h>

/* STEPS_MAX bounds the recursion from step to step, GROWTH_MAX how much longer
 * a text may become. */
enum { STEPS_MAX = 256, GROWTH_MAX = 1024 };

typedef struct detokenizer_parser {
    bt_detokenizer_chain *decoding;
    const char *path;
    bauta_error *err;
    double growth; /* the factor by which the text may have grown */
    bool fused;    /* the next step gets a single token */
} detokenizer_parser;

static bauta_status fail(const detokenizer_parser *p, const char *what,
                         const char *name)
{
    return bt_fail(p->err, BAUTA_ERR_FORMAT, "%s: decoder: %s%s",
                   bt_path_tail(p->path), what, bt_quote(name).text);
}

/* ---- Steps --------------------------------------------------------------- */

static void step_release(bt_detokenizer_step *step)
{
    bt_free(step->needle);
    bt_free(step->borders);
    bt_free(step->content);
    bt_regex_free(step->regex);
}

/* Append a step; the pointer is valid until the next call. */
static bauta_status step_add(detokenizer_parser *p,
                             bt_detokenizer_step_kind kind,
                             bt_detokenizer_step **out)
{
    bt_detokenizer_chain *d = p->decoding;
    if (d->count == STEPS_MAX)
        return fail(p, "more than 256 steps", "");
    if (BT_ARRAY_RESERVE(d->steps, d->room, d->count, 1))
        return bt_fail_memory(p->err, "a decoder", sizeof(*d->steps));
    *out = d->steps + d->count++;
    **out = (bt_detokenizer_step){ .kind = kind };
    return BAUTA_OK;
}

/* A NUL-terminated copy. */
static bauta_status string_copy(const detokenizer_parser *p, char **out,
                                size_t *out_size, const char *string,
                                size_t size)
{
    if (size > BT_DETOKENIZE_STRING_MAX)
        return fail(p, "a string is longer than 65535 bytes", "");
    *out = bt_alloc(size + 1);
    if (!*out)
        return bt_fail_memory(p->err, "a decoder", size + 1);
    memcpy(*out, string, size);
    (*out)[size] = '\0';
    *out_size = size;
    return BAUTA_OK;
}

/* The failure table of Knuth, Morris and Pratt. */
static bauta_status create_borders(const detokenizer_parser *p,
                                   bt_detokenizer_step *step)
{
    size_t n = step->needle_size, border = 0;
    step->borders = bt_alloc_zero(n + 1, sizeof(*step->borders));
    if (!step->borders)
        return bt_fail_memory(p->err, "a decoder", n + 1);
    for (size_t i = 1; i < n; i++) {
        while (border && step->needle[i] != step->needle[border])
            border = step->borders[border];
        border += step->needle[i] == step->needle[border];
        step->borders[i + 1] = (uint16_t)border;
    }
    return BAUTA_OK;
}

static bauta_status grow(detokenizer_parser *p, double factor)
{
    p->growth *= factor > 1 ? factor : 1;
    if (p->growth > GROWTH_MAX)
        return fail(p, "text could become more than 1024 times longer", "");
    return BAUTA_OK;
}

/* Append a step that replaces `needle`, which may be empty. */
static bauta_status literal_add(detokenizer_parser *p, const char *needle,
                                size_t size, const char *content,
                                size_t content_size, bt_detokenizer_step **out)
{
    bauta_status status =
        step_add(p, size ? BT_DETOKENIZE_LITERAL : BT_DETOKENIZE_REGEX, out);
    if (status)
        return status;
    bt_detokenizer_step *step = *out;
    status = string_copy(p, &step->needle, &step->needle_size, needle, size);
    if (!status)
        status = string_copy(p, &step->content, &step->content_size, content,
                             content_size);
    if (!status)
        status = create_borders(p, step);
    if (!status)
        status = grow(p, size ? (double)content_size / (double)size
                              : 1 + 2 * (double)content_size);
    return status;
}

/* ---- JSON ---------------------------------------------------------------- */

static bauta_status string_get(const detokenizer_parser *p, const json_t *json,
                               const char *key, const char **out, size_t *size)
{
    const json_t *value = json_object_get(json, key);
    bool valid = json_is_string(value);
    *out = valid ? json_string_value(value) : "";
    *size = valid ? json_string_length(value) : 0;
    return valid ? BAUTA_OK : fail(p, "a string is missing: ", key);
}

static bauta_status char_get(const detokenizer_parser *p, const json_t *json,
                             const char *key, const char **out, size_t *size)
{
    bauta_status status = string_get(p, json, key, out, size);
    if (!status &&
        (!*size || *size != bt_utf8_length((unsigned char)(*out)[0])))
        status = fail(p, "not a single character: ", key);
    return status;
}

static bauta_status bool_get(const detokenizer_parser *p, const json_t *json,
                             const char *key, bool *out)
{
    const json_t *value = json_object_get(json, key);
    *out = json_is_true(value);
    return json_is_boolean(value) ? BAUTA_OK
                                  : fail(p, "a boolean is missing: ", key);
}

static bauta_status count_get(const detokenizer_parser *p, const json_t *json,
                              const char *key, size_t *out)
{
    const json_t *value = json_object_get(json, key);
    bool valid = json_is_integer(value) && json_integer_value(value) >= 0;
    *out = valid ? (size_t)json_integer_value(value) : 0;
    return valid ? BAUTA_OK : fail(p, "a count is missing: ", key);
}

/* ---- Decoders of tokenizer.json ------------------------------------------ */

typedef bauta_status decoder_fn(detokenizer_parser *p, const json_t *json);

static bauta_status bytelevel_parse(detokenizer_parser *p, const json_t *json)
{
    bt_detokenizer_step *step;
    (void)json;
    p->fused = true;
    bauta_status status = step_add(p, BT_DETOKENIZE_BYTELEVEL, &step);
    return status ? status : grow(p, 1.5); // two bytes may become U+FFFD
}

static bauta_status fallback_parse(detokenizer_parser *p, const json_t *json)
{
    bt_detokenizer_step *step;
    (void)json;
    return step_add(p, BT_DETOKENIZE_BYTE_FALLBACK, &step);
}

static bauta_status fuse_parse(detokenizer_parser *p, const json_t *json)
{
    bt_detokenizer_step *step;
    (void)json;
    p->fused = true;
    return step_add(p, BT_DETOKENIZE_FUSE, &step);
}

static bauta_status metaspace_parse(detokenizer_parser *p, const json_t *json)
{
    const json_t *scheme = json_object_get(json, "prepend_scheme");
    const char *text, *name = scheme ? json_string_value(scheme) : "always";
    size_t size;
    bt_detokenizer_step *step;
    if (!name || (strcmp(name, "always") != 0 && strcmp(name, "never") != 0 &&
                  strcmp(name, "first") != 0))
        return fail(p, "no prepend_scheme of Metaspace: ", name ? name : "");
    bool never = strcmp(name, "never") == 0;
    if (json_is_false(json_object_get(json, "add_prefix_space")) && !never)
        return fail(p, "add_prefix_space of Metaspace contradicts ", name);
    bauta_status status = char_get(p, json, "replacement", &text, &size);
    if (!status)
        status = literal_add(p, text, size, " ", 1, &step);
    if (!status)
        step->not_first = !never;
    return status;
}

static bauta_status cleanup_add(detokenizer_parser *p)
{
    static const char *const replacements[][2] = {
        { " .", "." },     { " ?", "?" },           { " !", "!" },
        { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
        { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
        { " 've", "'ve" }, { " 're", "'re" },
    };
    bauta_status status = BAUTA_OK;
    bt_detokenizer_step *step;
    for (size_t i = 0; i < BT_LEN(replacements) && !status; i++)
        status =
            literal_add(p, replacements[i][0], strlen(replacements[i][0]),
                        replacements[i][1], strlen(replacements[i][1]), &step);
    return status;
}

static bauta_status wordpiece_parse(detokenizer_parser *p, const json_t *json)
{
    const char *prefix;
    size_t size;
    bool cleanup;
    bt_detokenizer_step *step;
    bauta_status status = string_get(p, json, "prefix", &prefix, &size);
    if (!status)
        status = bool_get(p, json, "cleanup", &cleanup);
    if (!status)
        status = step_add(p, BT_DETOKENIZE_PREFIX, &step);
    if (!status)
        status =
            string_copy(p, &step->needle, &step->needle_size, prefix, size);
    if (!status && cleanup)
        status = cleanup_add(p);
    return status;
}

/* The suffix becomes a space; in the last token it is removed. */
static bauta_status bpe_parse(detokenizer_parser *p, const json_t *json)
{
    const char *suffix;
    size_t size;
    bt_detokenizer_step *step;
    bauta_status status = string_get(p, json, "suffix", &suffix, &size);
    if (status)
        return status;
    if (p->fused)
        return size ? literal_add(p, suffix, size, "", 0, &step) : BAUTA_OK;
    status = literal_add(p, suffix, size, BT_DETOKENIZE_MARK, 1, &step);
    if (status)
        return status;
    step->match_empty = true;
    return step_add(p, BT_DETOKENIZE_SUFFIX, &step);
}

static bauta_status strip_parse(detokenizer_parser *p, const json_t *json)
{
    const char *text;
    size_t size, start, stop;
    bt_detokenizer_step *step;
    bauta_status status = char_get(p, json, "content", &text, &size);
    if (!status)
        status = count_get(p, json, "start", &start);
    if (!status)
        status = count_get(p, json, "stop", &stop);
    if (!status)
        status = step_add(p, BT_DETOKENIZE_STRIP, &step);
    if (status)
        return status;
    step->start = start;
    step->stop = stop;
    return string_copy(p, &step->needle, &step->needle_size, text, size);
}

static bauta_status regex_add(detokenizer_parser *p, const char *pattern,
                              size_t size, const char *content,
                              size_t content_size)
{
    bt_detokenizer_step *step;
    bauta_status status = step_add(p, BT_DETOKENIZE_REGEX, &step);
    if (!status)
        status = string_copy(p, &step->content, &step->content_size, content,
                             content_size);
    if (!status)
        status = bt_regex_create(&step->regex, pattern, size, p->path, p->err);
    return status ? status : grow(p, 1 + 2 * (double)content_size);
}

static bauta_status replace_parse(detokenizer_parser *p, const json_t *json)
{
    const json_t *pattern = json_object_get(json, "pattern");
    const char *content, *text;
    size_t size, text_size;
    bt_detokenizer_step *step;
    bauta_status status = string_get(p, json, "content", &content, &size);
    if (status)
        return status;
    bool literal = json_object_get(pattern, "String") != NULL;
    status =
        string_get(p, pattern, literal ? "String" : "Regex", &text, &text_size);
    if (status)
        return status;
    return literal ? literal_add(p, text, text_size, content, size, &step)
                   : regex_add(p, text, text_size, content, size);
}

static bauta_status ctc_parse(detokenizer_parser *p, const json_t *json)
{
    (void)json;
    return fail(p, "CTC, which is for speech, is not supported", "");
}

static bauta_status step_parse(void *user, const char *type, const json_t *json)
{
    detokenizer_parser *p = user;
    static const struct {
        const char *type;
        decoder_fn *parse;
    } types[] = {
        { "ByteLevel", bytelevel_parse },
        { "Metaspace", metaspace_parse },
        { "ByteFallback", fallback_parse },
        { "WordPiece", wordpiece_parse },
        { "BPEDecoder", bpe_parse },
        { "Fuse", fuse_parse },
        { "Strip", strip_parse },
        { "Replace", replace_parse },
        { "CTC", ctc_parse },
    };
    for (size_t i = 0; i < BT_LEN(types); i++)
        if (strcmp(type, types[i].type) == 0)
            return types[i].parse(p, json);
    return fail(p, "an unknown type: ", type);
}

/* ---- The chain ----------------------------------------------------------- */

static bauta_status chain_create(detokenizer_parser *p, const char *path,
                                 bauta_error *err)
{
    *p = (detokenizer_parser){ .path = path, .err = err, .growth = 1 };
    p->decoding = bt_alloc_zero(1, sizeof(*p->decoding));
    return p->decoding ? BAUTA_OK
                       : bt_fail_memory(err, "a decoder", sizeof(*p->decoding));
}

/* Return the chain, or free it after a failure. */
static bauta_status chain_end(detokenizer_parser *p, bauta_status status,
                              bt_detokenizer_chain **out)
{
    if (status)
        bt_detokenizer_chain_free(p->decoding);
    *out = status ? NULL : p->decoding;
    return status;
}

void bt_detokenizer_chain_free(bt_detokenizer_chain *decoding)
{
    if (!decoding)
        return;
    for (size_t i = 0; i < decoding->count; i++)
        step_release(decoding->steps + i);
    bt_free(decoding->steps);
    bt_free(decoding);
}

bauta_status bt_detokenizer_chain_parse(bt_detokenizer_chain **out,
                                        const json_t *json, const char *path,
                                        bauta_error *err)
{
    detokenizer_parser p;
    bt_detokenizer_step *step;
    bauta_status status = chain_create(&p, path, err);
    if (!status && (!json || json_is_null(json)))
        status = step_add(&p, BT_DETOKENIZE_JOIN, &step);
    else if (!status)
        status = bt_steps_parse(&(bt_step_reader){ "decoder", "decoders", path,
                                                   step_parse, &p, err },
                                json);
    return chain_end(&p, status, out);
}

bauta_status bt_detokenizer_chain_sentencepiece(bt_detokenizer_chain **out,
                                                bool dummy_prefix,
                                                bool remove_extra,
                                                bauta_error *err)
{
    static const char space[] = "\xE2\x96\x81"; /* U+2581 */
    detokenizer_parser p;
    bt_detokenizer_step *step;
    bauta_status status = chain_create(&p, "SentencePiece", err);
    if (!status && (dummy_prefix || remove_extra)) {
        status = step_add(&p, BT_DETOKENIZE_DUMMY_PREFIX, &step);
        if (!status) {
            step->all_leading = remove_extra;
            status =
                string_copy(&p, &step->needle, &step->needle_size, space, 3);
        }
    }
    // Before the bytes: three byte pieces that make U+2581 are not a space.
    if (!status)
        status = literal_add(&p, space, 3, " ", 1, &step);
    if (!status)
        status = step_add(&p, BT_DETOKENIZE_BYTE_FALLBACK, &step);
    return chain_end(&p, status, out);
}

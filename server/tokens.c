/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - /tokenize and /detokenize; the tokens of a prompt and the text of
 * a token. */
#include "state.h"

#include "../cli/json_output.h"

#include <stdlib.h>
#include <string.h>

/* ---- prompts ----------------------------------------------------------- */

/* The token to append: a source ends with EOS, and a prompt has one token at
 * least. As in `bauta generate` and `bauta embed`. */
static uint32_t ending_token(const served_model *m, const bauta_tokens *tokens)
{
    const bauta_tokenizer *t = m->opened->tokenizer;
    uint32_t bos = bauta_tokenizer_special_token(t, BAUTA_TOKEN_BOS);
    uint32_t eos = bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS);
    uint32_t sep = bauta_tokenizer_special_token(t, BAUTA_TOKEN_SEP);
    uint32_t last =
        tokens->count ? tokens->ids[tokens->count - 1] : BAUTA_NO_TOKEN;
    if (bauta_model_kind_of(m->opened->model) == BAUTA_ENCODER_DECODER)
        return tokens->count && (last == eos || last == sep) ? BAUTA_NO_TOKEN
                                                             : eos;
    if (tokens->count)
        return BAUTA_NO_TOKEN;
    return bos != BAUTA_NO_TOKEN ? bos : eos;
}

bool prompt_encode(const served_model *m, const char *text, size_t length,
                   bool special_tokens, const char *name, token_ids *out,
                   failure *f)
{
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    options.no_special_tokens = !special_tokens;
    if (bauta_tokenizer_encode(m->opened->tokenizer, text, length, &options,
                               &tokens, &err))
        return fail(f, 400, name, NULL, "%s", err.message);
    uint32_t last = ending_token(m, &tokens);
    out->count = 0;
    out->at = calloc(tokens.count + 1, sizeof(*out->at));
    if (out->at) {
        if (tokens.count)
            memcpy(out->at, tokens.ids, tokens.count * sizeof(*out->at));
        out->count = tokens.count;
        if (last != BAUTA_NO_TOKEN)
            out->at[out->count++] = last;
    }
    bauta_tokens_release(&tokens);
    if (!out->at)
        return fail(f, 503, NULL, NULL, "out of memory");
    if (out->count)
        return true;
    return fail(f, 400, name, NULL,
                "%s has no tokens, and the tokenizer has none for the "
                "beginning of a text",
                name);
}

bool prompt_check(const served_model *m, size_t tokens, const char *name,
                  failure *f)
{
    const bauta_model *model = m->opened->model;
    size_t limit = m->options->max_prompt;
    if (!limit || !bauta_model_rotary(model))
        limit = bauta_model_max_positions(model);
    if (tokens <= limit)
        return true;
    return fail(f, 400, name, "context_length_exceeded",
                "the prompt has %zu tokens; the limit is %zu", tokens, limit);
}

/* ---- the text of a token ----------------------------------------------- */

void token_text(const bauta_tokenizer *tokenizer, uint32_t id, buffer *out)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    const uint32_t twice[2] = { id, id };
    char *one = NULL, *two = NULL;
    size_t length = 0, length_two = 0;
    how.keep_special_tokens = true;
    if (bauta_tokenizer_decode(tokenizer, twice, 1, &how, &one, &length,
                               NULL) ||
        bauta_tokenizer_decode(tokenizer, twice, 2, &how, &two, &length_two,
                               NULL)) {
        bauta_text_free(one); // an id beyond the tokenizer's vocabulary
        return;
    }
    // At the beginning of a text a token may lose its space, so take what the
    // second of two adds.
    if (length_two > length && memcmp(two, one, length) == 0)
        buffer_add(out, two + length, length_two - length);
    else
        buffer_add(out, one, length);
    bauta_text_free(one);
    bauta_text_free(two);
}

json_t *token_json(const bauta_tokenizer *tokenizer, uint32_t id)
{
    buffer text = { 0 };
    token_text(tokenizer, id, &text);
    // A NUL would end a name in an object.
    json_t *string = json_text(text.at ? text.at : "", text.length);
    buffer_release(&text);
    return string ? string : json_string("");
}

/* ---- /tokenize and /detokenize ----------------------------------------- */

/* The text is "content", as for llama-server, or "prompt", as for vLLM. */
bool tokenize_answer(const api_request *q, reply *out, failure *f)
{
    const opened_model *m = q->model->opened;
    const json_t *body = q->body;
    const json_t *text = field(body, "content");
    bool special = true, old_special = true, pieces = false;
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    if (!text)
        text = field(body, "prompt");
    if (!json_is_string(text))
        return fail(f, 400, "content", NULL, "content must be a string");
    if (!field_bool(body, "add_special_tokens", &special, f) ||
        !field_bool(body, "add_special", &old_special, f) ||
        !field_bool(body, "with_pieces", &pieces, f))
        return false;
    options.no_special_tokens = !special || !old_special;
    if (bauta_tokenizer_encode(m->tokenizer, json_string_value(text),
                               json_string_length(text), &options, &tokens,
                               &err))
        return fail(f, 400, "content", NULL, "%s", err.message);
    json_t *list = json_array();
    for (size_t i = 0; i < tokens.count; i++)
        json_array_append_new(
            list, !pieces ? json_integer(tokens.ids[i])
                          : json_pack("{s:I, s:o}", "id",
                                      (json_int_t)tokens.ids[i], "piece",
                                      token_json(m->tokenizer, tokens.ids[i])));
    reply_json(out, json_pack("{s:o, s:I, s:I}", "tokens", list, "count",
                              (json_int_t)tokens.count, "max_model_len",
                              (json_int_t)bauta_model_max_positions(m->model)));
    bauta_tokens_release(&tokens);
    return true;
}

bool detokenize_answer(const api_request *q, reply *out, failure *f)
{
    const bauta_tokenizer *t = q->model->opened->tokenizer;
    const json_t *tokens = field(q->body, "tokens");
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    bauta_error err;
    char *text;
    size_t count, length;
    bool skip = false;
    if (!json_is_array(tokens))
        return fail(f, 400, "tokens", NULL,
                    "tokens must be an array of token ids");
    if (!field_bool(q->body, "skip_special_tokens", &skip, f))
        return false;
    how.keep_special_tokens = !skip;
    uint32_t *ids =
        ids_read(tokens, "tokens", bauta_tokenizer_vocab_size(t), &count, f);
    if (!ids)
        return false;
    bauta_status status =
        bauta_tokenizer_decode(t, ids, count, &how, &text, &length, &err);
    free(ids);
    if (status)
        return fail(f, 400, "tokens", NULL, "%s", err.message);
    reply_json(out, json_pack("{s:o, s:o}", "content", json_text(text, length),
                              "prompt", json_text(text, length)));
    bauta_text_free(text);
    return true;
}

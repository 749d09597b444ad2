/* SPDX-License-Identifier: Apache-2.0 */
/* opened_model.c - a model with its tokenizer, ready to run; see
 * opened_model.h.
 */
#include "opened_model.h"

#include "cli.h"
#include "ranks.h"
#include "unknown_chars.h"

#include <stdlib.h>
#include <string.h>

const char *const weight_formats[] = { "float32", "bfloat16", "int8", NULL };

int model_args_check(const char *verb, const string_list *rest,
                     const char *file)
{
    if (rest->count == 0)
        return cli_usage(verb, "the model's folder is missing");
    if (rest->count > 1 && file)
        return cli_usage(verb, "both texts and --file");
    return CLI_OK;
}

void opened_model_close(opened_model *m)
{
    bauta_tokenizer_free(m->tokenizer);
    bauta_model_free(m->model);
    bauta_context_free(m->context);
}

static int kind_check(const opened_model *m, int kind)
{
    static const char *const verbs[] = {
        [BAUTA_DECODER_ONLY] = "generate",
        [BAUTA_ENCODER_ONLY] = "fill",
        [BAUTA_ENCODER_DECODER] = "translate",
    };
    bauta_model_kind is = bauta_model_kind_of(m->model);
    if (kind == MODEL_KIND_ANY || (int)is == kind)
        return CLI_OK;
    return cli_fail(m->verb, "%s is %s; the verb for it is 'bauta %s'",
                    m->folder, bauta_model_kind_text(is), verbs[is]);
}

/* On the CPU decoding token by token has a layout of its own for float32,
 * too. */
static bauta_status model_pack(opened_model *m, int kind, bauta_error *err)
{
    bool decodes = kind == BAUTA_DECODER_ONLY || kind == BAUTA_ENCODER_DECODER;
    int weights = m->options->weights;
    if (weights || (decodes && device_is_cpu(&m->options->device)))
        return bauta_model_pack(m->model, (bauta_dtype)weights, err);
    return BAUTA_OK;
}

int opened_model_open(opened_model *m, const char *verb, const char *folder,
                      const model_options *options, int kind)
{
    bauta_error err;
    *m = (opened_model){ .verb = verb, .folder = folder, .options = options };
    int failed = ranks_context(&m->context, verb, &options->device);
    if (failed)
        return failed;
    bauta_status status =
        bauta_model_load_to(&m->model, folder, m->context, &err);
    if (!status && kind_check(m, kind))
        return CLI_FAILED;
    if (!status)
        cli_warn(verb, bauta_model_warnings(m->model));
    if (!status)
        status = bauta_tokenizer_load(
            &m->tokenizer, options->tokenizer ? options->tokenizer : folder,
            &err);
    if (!status)
        status = model_pack(m, kind, &err);
    return status ? cli_fail(verb, "%s", err.message) : CLI_OK;
}

/* ---- tokens ------------------------------------------------------------ */

/* The token to append, as text_ending says; or BAUTA_NO_TOKEN. */
static uint32_t ending_token(const opened_model *m, const bauta_tokens *tokens,
                             text_ending ending)
{
    uint32_t bos = bauta_tokenizer_special_token(m->tokenizer, BAUTA_TOKEN_BOS);
    uint32_t eos = bauta_tokenizer_special_token(m->tokenizer, BAUTA_TOKEN_EOS);
    uint32_t sep = bauta_tokenizer_special_token(m->tokenizer, BAUTA_TOKEN_SEP);
    if (ending == ENDING_NONE)
        return BAUTA_NO_TOKEN;
    if (ending == ENDING_OPEN) {
        if (tokens->count)
            return BAUTA_NO_TOKEN;
        return bos != BAUTA_NO_TOKEN ? bos : eos;
    }
    uint32_t last =
        tokens->count ? tokens->ids[tokens->count - 1] : BAUTA_NO_TOKEN;
    return tokens->count && (last == eos || last == sep) ? BAUTA_NO_TOKEN : eos;
}

int encode_text(token_ids *out, const opened_model *m, const char *place,
                const char *text, size_t length, text_ending ending)
{
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    *out = (token_ids){ 0 };
    options.no_special_tokens = options.target = ending == ENDING_NONE;
    if (bauta_tokenizer_encode(m->tokenizer, text, length, &options, &tokens,
                               &err))
        return cli_fail(m->verb, "%s: %s", place, err.message);
    unknown_chars_warn(m->verb, place, m->tokenizer, &tokens, text, length);
    uint32_t last = ending_token(m, &tokens, ending);
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
        return cli_fail(m->verb, "out of memory");
    if (out->count || ending == ENDING_NONE)
        return CLI_OK;
    return cli_fail(m->verb,
                    "%s: the text has no tokens, and the tokenizer has none "
                    "for the beginning of a text",
                    place);
}

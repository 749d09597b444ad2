/* SPDX-License-Identifier: Apache-2.0 */
/* loaded.c - a model with its tokenizer, ready to run; see loaded.h. */
#include "loaded.h"

#include "cli.h"
#include "unknown.h"

#include <stdlib.h>
#include <string.h>

const char *const loaded_weights[] = { "float32", "bfloat16", "int8", NULL };

void loaded_close(loaded *l)
{
    bauta_tokenizer_free(l->tokenizer);
    bauta_model_free(l->model);
    bauta_context_free(l->context);
}

static int kind_check(const loaded *l, int kind)
{
    static const char *const verbs[] = {
        [BAUTA_DECODER_ONLY] = "generate",
        [BAUTA_ENCODER_ONLY] = "fill",
        [BAUTA_ENCODER_DECODER] = "translate",
    };
    bauta_model_kind is = bauta_model_kind_of(l->model);
    if (kind == LOADED_ANY || (int)is == kind)
        return CLI_OK;
    return cli_fail(l->verb, "%s is %s; the verb for it is 'bauta %s'",
                    l->folder, bauta_model_kind_text(is), verbs[is]);
}

int loaded_open(loaded *l, const char *verb, const char *folder,
                const loaded_wish *wish, int kind)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_error err;
    *l = (loaded){ .verb = verb, .folder = folder };
    how.threads = (int)wish->threads;
    bauta_status status = bauta_context_create(&l->context, &how, &err);
    if (!status)
        status = bauta_model_load(&l->model, folder, false, &err);
    if (!status && kind_check(l, kind))
        return CLI_FAILED;
    if (!status)
        cli_warn(verb, bauta_model_warnings(l->model));
    if (!status)
        status = bauta_tokenizer_load(
            &l->tokenizer, wish->tokenizer ? wish->tokenizer : folder, &err);
    // Where texts are made token by token, float32 is laid out for it, too.
    bool speaks = kind == BAUTA_DECODER_ONLY || kind == BAUTA_ENCODER_DECODER;
    if (!status && (wish->weights || speaks))
        status =
            bauta_model_compress(l->model, (bauta_weights)wish->weights, &err);
    return status ? cli_fail(verb, "%s", err.message) : CLI_OK;
}

/* ---- tokens ------------------------------------------------------------ */

/* What stands behind the tokens: as the corpora of training have it, or what a
 * text begins with where there is nothing else; or BAUTA_NO_TOKEN. */
static uint32_t added(const loaded *l, const bauta_tokens *tokens,
                      ids_ending ending)
{
    uint32_t bos = bauta_tokenizer_token(l->tokenizer, BAUTA_TOKEN_BOS);
    uint32_t eos = bauta_tokenizer_token(l->tokenizer, BAUTA_TOKEN_EOS);
    uint32_t sep = bauta_tokenizer_token(l->tokenizer, BAUTA_TOKEN_SEP);
    if (ending == IDS_BARE)
        return BAUTA_NO_TOKEN;
    if (ending == IDS_OPEN) {
        if (tokens->count)
            return BAUTA_NO_TOKEN;
        return bos != BAUTA_NO_TOKEN ? bos : eos;
    }
    uint32_t last =
        tokens->count ? tokens->ids[tokens->count - 1] : BAUTA_NO_TOKEN;
    return tokens->count && (last == eos || last == sep) ? BAUTA_NO_TOKEN : eos;
}

int ids_read(ids *out, const loaded *l, const char *place, const char *text,
             size_t length, ids_ending ending)
{
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    *out = (ids){ 0 };
    how.bare = how.target = ending == IDS_BARE;
    if (bauta_tokenizer_encode(l->tokenizer, text, length, &how, &tokens, &err))
        return cli_fail(l->verb, "%s: %s", place, err.message);
    unknown_say(l->verb, place, l->tokenizer, &tokens, text, length);
    uint32_t last = added(l, &tokens, ending);
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
        return cli_fail(l->verb, "out of memory");
    if (out->count || ending == IDS_BARE)
        return CLI_OK;
    return cli_fail(l->verb,
                    "%s: the text has no tokens, and the tokenizer has none "
                    "for the beginning of a text",
                    place);
}

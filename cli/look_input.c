/* SPDX-License-Identifier: Apache-2.0 */
/* look_input.c - bauta look: the model and its input.
 *
 * The decoder of an encoder-decoder reads decoder_start_token_id and then the
 * target shifted by one: row i reads token i - 1 and predicts token i. */
#include "cli.h"
#include "look.h"
#include "text_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "look"

static int failed_with(const bauta_error *err)
{
    return cli_fail(VERB, "%s", err->message);
}

static int out_of_memory(void)
{
    return cli_fail(VERB, "out of memory");
}

/* ---- tokens ------------------------------------------------------------ */

/* The tokens of a text as the model reads it. */
static int text_encode(const look_input *s, const char *text, size_t length,
                       bool target, uint32_t **out, size_t *count)
{
    bauta_error err;
    bauta_tokens tokens;
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    options.target = target;
    if (bauta_tokenizer_encode(s->tokenizer, text, length, &options, &tokens,
                               &err))
        return failed_with(&err);
    *out = calloc(tokens.count + 1, sizeof(**out));
    *count = tokens.count;
    if (*out && tokens.count)
        memcpy(*out, tokens.ids, tokens.count * sizeof(**out));
    bauta_tokens_release(&tokens);
    if (!*out)
        return out_of_memory();
    return *count ? CLI_OK : cli_fail(VERB, "the text has no tokens");
}

/* An argument, or for "-" standard input without its final newline. */
static int text_read(const look_input *s, const char *word, bool target,
                     uint32_t **out, size_t *count)
{
    text_input in;
    const char *text;
    size_t length;
    int failed = text_input_open(&in, VERB, &word, 1, NULL);
    if (!failed && text_input_read_all(&in, &text, &length)) {
        if (in.name && length && text[length - 1] == '\n')
            length--;
        failed = text_encode(s, text, length, target, out, count);
    }
    return text_input_close(&in) ? CLI_FAILED : failed;
}

/* The input of an encoder-decoder ends in EOS, which not every tokenizer adds.
 * There is room for it. */
static void end_add(const look_input *s, uint32_t *ids, size_t *count)
{
    uint32_t end = bauta_tokenizer_special_token(s->tokenizer, BAUTA_TOKEN_EOS);
    if (end != BAUTA_NO_TOKEN && ids[*count - 1] != end)
        ids[(*count)++] = end;
}

/* Generate greedily, at most `most` tokens (0: until EOS), and append them to
 * *out. */
static int generate(const look_input *s, bauta_request *request, size_t most,
                    uint32_t **out, size_t *count)
{
    bauta_error err;
    bauta_result *result = NULL;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(&options, s->model, &err))
        return failed_with(&err);
    options.do_sample = false;
    options.num_beams = 1;
    options.num_return_sequences = 0;
    if (most) {
        options.max_new_tokens = most;
        options.max_length = 0;
    }
    request->options = &options;
    if (bauta_generate(s->context, s->model, s->tokenizer, request, &result,
                       &err))
        return failed_with(&err);
    const bauta_hypothesis *best = result->hypotheses[0];
    uint32_t *ids = realloc(*out, (*count + best->count + 1) * sizeof(*ids));
    if (ids) {
        memcpy(ids + *count, best->tokens, best->count * sizeof(*ids));
        *out = ids;
        *count += best->count;
    }
    bauta_result_free(result);
    return ids ? CLI_OK : out_of_memory();
}

/* ---- input by model kind ----------------------------------------------- */

static int decoder_read(look_input *s, const look_options *o)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    if (o->source)
        return cli_usage(VERB, "--source is for an encoder-decoder; %s is %s",
                         o->model, bauta_model_kind_text(s->kind));
    int failed = text_read(s, o->text, false, &s->target, &s->target_count);
    if (failed || !o->generate)
        return failed;
    size_t prompt = s->target_count;
    request.count = prompt;
    request.tokens = s->target;
    failed = generate(s, &request, o->generate, &s->target, &s->target_count);
    s->generated = s->target_count - prompt;
    return failed;
}

static int encoder_read(look_input *s, const look_options *o)
{
    if (o->source || o->generate)
        return cli_usage(VERB, "%s is for models that write; %s is %s",
                         o->source ? "--source" : "--generate", o->model,
                         bauta_model_kind_text(s->kind));
    return text_read(s, o->text, false, &s->source, &s->source_count);
}

/* The target: the text, or the model's own translation. */
static int outputs_read(look_input *s, const look_options *o)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    int failed = CLI_OK;
    if (o->source && o->text) {
        failed = text_read(s, o->text, true, &s->outputs, &s->target_count);
        if (!failed)
            end_add(s, s->outputs, &s->target_count);
        return failed;
    }
    request.source = s->source;
    request.source_count = s->source_count;
    failed = generate(s, &request, o->generate, &s->outputs, &s->target_count);
    s->generated = s->target_count;
    if (!failed && !s->target_count)
        failed = cli_fail(VERB, "the translation has no tokens");
    return failed;
}

static int translation_read(look_input *s, const look_options *o)
{
    bauta_error err;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    int failed = text_read(s, o->source ? o->source : o->text, false,
                           &s->source, &s->source_count);
    if (failed)
        return failed;
    end_add(s, s->source, &s->source_count);
    failed = outputs_read(s, o);
    if (failed)
        return failed;
    if (bauta_generate_options_load(&options, s->model, &err))
        return failed_with(&err);
    s->target = calloc(s->target_count, sizeof(*s->target));
    if (!s->target)
        return out_of_memory();
    s->target[0] = options.decoder_start_token_id;
    memcpy(s->target + 1, s->outputs,
           (s->target_count - 1) * sizeof(*s->target));
    return CLI_OK;
}

/* ---- labels ------------------------------------------------------------ */

static bool begins(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

/* The text of a token, with the leading blank that the vocabulary writes as a
 * special character; or the vocabulary's spelling if it has no text. */
static char *label_of(const bauta_tokenizer *tokenizer, uint32_t id)
{
    static const char broken[] = "\xEF\xBF\xBD"; // half a character
    bauta_decode_options options = BAUTA_DECODE_OPTIONS_INIT;
    const char *piece = bauta_tokenizer_piece(tokenizer, id, NULL);
    char *text = NULL, *label = NULL;
    size_t length = 0;
    options.keep_special_tokens = true;
    bool decoded = piece && !bauta_tokenizer_decode(tokenizer, &id, 1, &options,
                                                    &text, &length, NULL);
    if (!decoded || !length || strlen(text) != length || strstr(text, broken) ||
        begins(piece, "##")) {
        label = strdup(piece ? piece : "(start)"); // it has no piece
    } else {
        bool blank = (begins(piece, "\u2581") || begins(piece, "\u0120")) &&
                     text[0] != ' ';
        label = malloc(length + 2);
        if (label)
            snprintf(label, length + 2, "%s%s", blank ? " " : "", text);
    }
    bauta_text_free(text);
    return label;
}

static int labels_make(char ***out, const look_input *s, const uint32_t *ids,
                       size_t count)
{
    if (!ids)
        return CLI_OK;
    *out = calloc(count + 1, sizeof(**out));
    for (size_t i = 0; *out && i < count; i++) {
        (*out)[i] = label_of(s->tokenizer, ids[i]);
        if (!(*out)[i])
            return out_of_memory();
    }
    return *out ? CLI_OK : out_of_memory();
}

static void labels_free(char **labels)
{
    for (char **l = labels; l && *l; l++)
        free(*l);
    free(labels);
}

/* ---- the input --------------------------------------------------------- */

static int extra_read(look_input *s, const look_options *o)
{
    bauta_error err;
    size_t n = s->target ? s->target_count : s->source_count;
    if (o->mask && bauta_mask_parse(&s->extra, o->mask, n, n, &err))
        return cli_usage(VERB, "--mask '%s', for %zu tokens: %s", o->mask, n,
                         err.message);
    return CLI_OK;
}

static int parts_load(look_input *s, const look_options *o)
{
    bauta_error err;
    int failed = device_open(&s->context, VERB, &o->device);
    if (failed)
        return failed;
    if (bauta_model_load_to(&s->model, o->model, s->context, &err) ||
        bauta_tokenizer_load(&s->tokenizer, o->model, &err))
        return failed_with(&err);
    cli_warn(VERB, bauta_model_warnings(s->model));
    s->kind = bauta_model_kind_of(s->model);
    return CLI_OK;
}

int look_input_open(look_input *s, const look_options *o)
{
    *s = (look_input){ .context = NULL };
    int failed = parts_load(s, o);
    if (failed)
        return failed;
    if (!o->text && s->kind != BAUTA_ENCODER_DECODER)
        return cli_usage(VERB, "the text is missing");
    failed = s->kind == BAUTA_DECODER_ONLY   ? decoder_read(s, o)
             : s->kind == BAUTA_ENCODER_ONLY ? encoder_read(s, o)
                                             : translation_read(s, o);
    if (!failed)
        failed = extra_read(s, o);
    if (!failed)
        failed = labels_make(&s->source_labels, s, s->source, s->source_count);
    if (!failed)
        failed = labels_make(&s->target_labels, s, s->target, s->target_count);
    if (!failed)
        failed = labels_make(&s->output_labels, s, s->outputs, s->target_count);
    return failed;
}

void look_input_close(look_input *s)
{
    labels_free(s->source_labels);
    labels_free(s->target_labels);
    labels_free(s->output_labels);
    free(s->source);
    free(s->target);
    free(s->outputs);
    bauta_mask_free(s->extra);
    bauta_tokenizer_free(s->tokenizer);
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

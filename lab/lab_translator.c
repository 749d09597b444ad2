/* SPDX-License-Identifier: Apache-2.0 */
/* lab_translator.c - bauta lab translate: a small translator from English to
 * German, trained on sentences of the grammar. */
#include "lab_translator.h"

#include "../cli/cli.h"
#include "../cli/terminal.h"

#include <stdlib.h>
#include <string.h>

typedef struct sizes {
    size_t train, held, tokens, steps, layers;
    double rate;
} sizes;
static const sizes full = { 20000, 200, 2048, 500, 2, 5e-3 };
static const sizes fast = { 4000, 40, 512, 500, 1, 6e-3 };

/* ---- tokens ------------------------------------------------------------ */

static int text_encode(const translator *t, const char *text, bool target,
                       uint32_t *ids, size_t *count)
{
    bauta_error err;
    bauta_tokens tokens;
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    options.target = target;
    if (bauta_tokenizer_encode(t->tokenizer, text, strlen(text), &options,
                               &tokens, &err))
        return lab_failed(&err);
    bool fits = tokens.count + 1 <= SENTENCE_TOKENS;
    *count = fits ? tokens.count : 0;
    if (*count)
        memcpy(ids, tokens.ids, *count * sizeof(*ids));
    bauta_tokens_release(&tokens);
    if (!fits)
        return cli_fail("lab", "'%s' has too many tokens", text);
    if (!*count || ids[*count - 1] != t->end)
        ids[(*count)++] = t->end;
    return CLI_OK;
}

static void translation_shift(const translator *t, translation *s)
{
    s->read[0] = t->start;
    memcpy(s->read + 1, s->target, (SENTENCE_TOKENS - 1) * sizeof(*s->read));
}

int translation_read(const translator *t, const char *english,
                     const char *german, translation *s)
{
    *s = (translation){ .source_count = 0 };
    int failed = text_encode(t, english, false, s->source, &s->source_count);
    if (!failed)
        failed = text_encode(t, german, true, s->target, &s->target_count);
    translation_shift(t, s);
    return failed;
}

int translation_write(const translator *t, const char *english, translation *s,
                      char **text)
{
    bauta_error err;
    bauta_result *result = NULL;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    *s = (translation){ .source_count = 0 };
    int failed = text_encode(t, english, false, s->source, &s->source_count);
    if (failed)
        return failed;
    request.source = s->source;
    request.source_count = s->source_count;
    request.options = &options;
    if (bauta_generate_options_load(&options, t->model, &err))
        return lab_failed(&err);
    options.num_beams = 1;
    options.max_length = SENTENCE_TOKENS;
    if (bauta_generate(t->l->context, t->model, t->tokenizer, &request, &result,
                       &err))
        return lab_failed(&err);
    const bauta_hypothesis *best = result->hypotheses[0];
    s->target_count = best->count;
    memcpy(s->target, best->tokens, best->count * sizeof(*s->target));
    translation_shift(t, s);
    if (text && !(*text = strdup(best->text)))
        failed = cli_fail("lab", "out of memory");
    bauta_result_free(result);
    return failed;
}

void translation_label(const translator *t, uint32_t token, char *to)
{
    const char *piece = bauta_tokenizer_piece(t->tokenizer, token, NULL);
    if (token == t->end)
        snprintf(to, TOKEN_TEXT, "(end)");
    else if (token == t->start)
        snprintf(to, TOKEN_TEXT, "(start)");
    else
        token_label(to, TOKEN_TEXT, piece ? piece : "?");
}

/* ---- sentences --------------------------------------------------------- */

static int tokenizer_make(translator *t)
{
    bauta_error err;
    bauta_tokenizer_trainer *trainer = NULL;
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    o.kind = BAUTA_TOKENIZER_UNIGRAM;
    o.vocab_size = 900;
    bauta_status status = bauta_tokenizer_trainer_create(&trainer, &o, &err);
    for (size_t i = t->held; !status && i < t->sentences.count; i++) {
        const pair *p = &t->sentences.at[i];
        status = bauta_tokenizer_trainer_add(trainer, p->english,
                                             strlen(p->english), &err);
        if (!status)
            status = bauta_tokenizer_trainer_add(trainer, p->german,
                                                 strlen(p->german), &err);
    }
    if (!status)
        status = bauta_tokenizer_trainer_train(trainer, &t->tokenizer, &err);
    bauta_tokenizer_trainer_free(trainer);
    if (status)
        return lab_failed(&err);
    t->end = bauta_tokenizer_special_token(t->tokenizer, BAUTA_TOKEN_EOS);
    return CLI_OK;
}

static int corpus_make(translator *t)
{
    bauta_error err;
    int failed = CLI_OK;
    if (bauta_corpus_create(&t->corpus, &err))
        return lab_failed(&err);
    for (size_t i = t->held; i < t->sentences.count && !failed; i++) {
        const pair *p = &t->sentences.at[i];
        translation s;
        failed = translation_read(t, p->english, p->german, &s);
        if (!failed && bauta_corpus_add(t->corpus, s.target, s.target_count,
                                        s.source, s.source_count, &err))
            failed = lab_failed(&err);
    }
    return failed;
}

/* ---- training ---------------------------------------------------------- */

static int trainer_make(translator *t, const sizes *z)
{
    bauta_error err;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    char config[96];
    o.batch_tokens = z->tokens;
    o.max_steps = t->steps = z->steps;
    o.warmup_steps = z->steps / 8;
    o.learning_rate = z->rate;
    o.min_learning_rate = 1e-5;
    o.max_grad_norm = 25.0;
    o.microbatch_tokens = 16384;
    o.seed = t->l->seed;
    snprintf(config, sizeof(config),
             "{\"d_model\": 64, \"encoder_layers\": %zu, "
             "\"decoder_layers\": %zu}",
             z->layers, z->layers);
    int failed = lab_model_make(&t->model, "transformer-tiny", config,
                                t->tokenizer, t->l->seed);
    if (failed)
        return failed;
    if (bauta_generate_options_load(&options, t->model, &err) ||
        bauta_trainer_create(&t->trainer, t->l->context, t->model, t->tokenizer,
                             t->corpus, &o, &err))
        return lab_failed(&err);
    t->start = options.decoder_start_token_id;
    return CLI_OK;
}

int translator_make(translator *t, const lab *l)
{
    const sizes *z = l->fast ? &fast : &full;
    *t = (translator){ .l = l, .held = z->held, .start = BAUTA_NO_TOKEN };
    int failed = pairs_draw(&t->sentences, z->held + z->train, l->seed)
                     ? cli_fail("lab", "out of memory")
                     : CLI_OK;
    if (!failed)
        failed = tokenizer_make(t);
    if (!failed)
        failed = corpus_make(t);
    if (!failed)
        failed = trainer_make(t, z);
    if (failed)
        translator_release(t);
    return failed;
}

void translator_release(translator *t)
{
    bauta_trainer_free(t->trainer);
    bauta_model_free(t->model);
    bauta_corpus_free(t->corpus);
    bauta_tokenizer_free(t->tokenizer);
    pairs_release(&t->sentences);
    *t = (translator){ .held = 0 };
}

int translator_train(translator *t, size_t until, double *loss)
{
    bauta_error err;
    bauta_train_report one = BAUTA_TRAIN_REPORT_INIT;
    while (bauta_trainer_steps(t->trainer) < until) {
        if (bauta_trainer_step(t->trainer, &one, &err))
            return lab_failed(&err);
        lab_progress(t->l, "translate: step %zu of %zu, loss %.3f", one.step,
                     t->steps, one.loss);
        *loss = one.loss;
    }
    return CLI_OK;
}

/* ---- running it -------------------------------------------------------- */

void translation_batch_set(translation_batch *b, const translator *t,
                           const translation *s, size_t pads, bool visible)
{
    uint32_t pad = bauta_tokenizer_special_token(t->tokenizer, BAUTA_TOKEN_PAD);
    *b = (translation_batch){ .source = BAUTA_BATCH_INIT,
                              .target = BAUTA_BATCH_INIT };
    memcpy(b->ids, s->source, s->source_count * sizeof(*b->ids));
    // Hidden padding is never read: a token that does not exist shows it.
    for (size_t i = 0; i < pads; i++)
        b->ids[s->source_count + i] = visible ? pad : UINT32_MAX;
    b->source_length = s->source_count + (visible ? pads : 0);
    b->target_length = s->target_count;
    b->source.count = b->target.count = 1;
    b->source.stride = s->source_count + pads;
    b->source.lengths = &b->source_length;
    b->source.ids = b->ids;
    b->target.stride = s->target_count;
    b->target.ids = s->read;
}

void translation_batch_unmask(translation_batch *b)
{
    b->target.prefix_lengths = &b->target_length;
}

static float *logits_alloc(const translator *t, size_t rows)
{
    float *logits =
        malloc(rows * bauta_model_vocab_size(t->model) * sizeof(*logits));
    if (!logits)
        cli_fail("lab", "out of memory");
    return logits;
}

float *translation_logits(const translator *t, const translation_batch *b)
{
    bauta_error err;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    float *logits = outputs.logits = logits_alloc(t, b->target_length);
    if (!logits)
        return NULL;
    if (bauta_model_forward(t->l->context, t->model, &b->source, &b->target,
                            &outputs, &err)) {
        lab_failed(&err);
        free(logits);
        return NULL;
    }
    return logits;
}

static bauta_status decode(const translator *t, const translation *s,
                           bauta_decode_session *session, float *logits,
                           bauta_error *err)
{
    bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
    input.count = 1;
    bauta_status status = bauta_decode_session_open(
        session, s->source, s->source_count, &input.sequence, err);
    for (size_t i = 0; !status && i < s->target_count; i++) {
        input.tokens = &s->read[i];
        input.logits = logits + i * bauta_model_vocab_size(t->model);
        status = bauta_decode_session_append(session, &input, 1, err);
    }
    return status;
}

float *translation_logits_decoded(const translator *t, const translation *s)
{
    bauta_error err;
    bauta_decode_session *session = NULL;
    float *logits = logits_alloc(t, s->target_count);
    if (!logits)
        return NULL;
    bauta_status status =
        bauta_decode_session_create(&session, t->l->context, t->model, &err);
    if (!status)
        status = decode(t, s, session, logits, &err);
    bauta_decode_session_free(session);
    if (!status)
        return logits;
    lab_failed(&err);
    free(logits);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* lab_cloze.c - bauta lab mlm: a cloze test for an encoder and a decoder. */
#include "lab_cloze.h"
#include "../cli/cli.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

/* A sentence is [CLS], words, punctuation, [SEP]. */
enum { AROUND = 3, LEAST_WORDS = 4 };

/* ---- the questions ----------------------------------------------------- */

void cloze_release(cloze *x)
{
    free(x->lengths);
    free(x->asked);
    free(x->ids);
    free(x->masked);
}

static size_t place_of(cloze_place place, size_t words, uint64_t *random)
{
    if (place == CLOZE_FIRST)
        return 1;
    return place == CLOZE_LAST ? words : 2 + random_below(random, words - 2);
}

int cloze_make(cloze *x, const lab_corpus *text, cloze_place place, size_t most,
               uint64_t seed)
{
    uint32_t mask =
        bauta_tokenizer_special_token(text->tokenizer, BAUTA_TOKEN_MASK);
    size_t documents = bauta_corpus_documents(text->valid_corpus);
    size_t rows = (size_t)bauta_corpus_tokens(text->valid_corpus);
    *x = (cloze){ .lengths = malloc((documents + 1) * sizeof(*x->lengths)),
                  .asked = malloc((documents + 1) * sizeof(*x->asked)),
                  .ids = malloc((rows + 1) * sizeof(*x->ids)),
                  .masked = malloc((rows + 1) * sizeof(*x->masked)) };
    if (!x->lengths || !x->asked || !x->ids || !x->masked)
        return cli_fail("lab", "out of memory");
    for (size_t i = 0; i < documents && x->count < most; i++) {
        size_t count;
        const uint32_t *ids =
            bauta_corpus_document(text->valid_corpus, i, &count, NULL, NULL);
        if (count < LEAST_WORDS + AROUND)
            continue;
        size_t asked = x->rows + place_of(place, count - AROUND, &seed);
        memcpy(x->ids + x->rows, ids, count * sizeof(*ids));
        memcpy(x->masked + x->rows, ids, count * sizeof(*ids));
        x->masked[asked] = mask;
        x->lengths[x->count] = count;
        x->asked[x->count++] = asked;
        x->rows += count;
    }
    return CLI_OK;
}

/* ---- the predictions --------------------------------------------------- */

/* Logits of all rows; NULL after a message. */
static float *logits_of(const cloze *x, const lab *l, const bauta_model *model)
{
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY;
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    float *logits =
        malloc(x->rows * bauta_model_vocab_size(model) * sizeof(*logits));
    if (!logits) {
        cli_fail("lab", "out of memory");
        return NULL;
    }
    batch.count = x->count;
    batch.lengths = x->lengths;
    batch.ids = encoder ? x->masked : x->ids;
    outputs.logits = logits;
    if (bauta_model_forward(l->context, model, encoder ? &batch : NULL,
                            encoder ? NULL : &batch, &outputs, &err)) {
        lab_failed(&err);
        free(logits);
        return NULL;
    }
    return logits;
}

/* The logits for question i: the row of the word, or the one before it. */
static const float *prediction(const cloze *x, const bauta_model *model,
                               const float *logits, size_t i)
{
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY;
    return logits + (x->asked[i] - !encoder) * bauta_model_vocab_size(model);
}

int cloze_evaluate(const cloze *x, const lab *l, const bauta_model *model,
                   cloze_result *result)
{
    float *logits = logits_of(x, l, model);
    if (!logits)
        return CLI_FAILED;
    *result = (cloze_result){ 0.0, 0.0 };
    for (size_t i = 0; i < x->count; i++) {
        bool right;
        result->loss += lab_cross_entropy(prediction(x, model, logits, i),
                                          bauta_model_vocab_size(model),
                                          x->ids[x->asked[i]], &right);
        result->accuracy += right;
    }
    result->loss /= (double)x->count;
    result->accuracy /= (double)x->count;
    free(logits);
    return CLI_OK;
}

/* ---- examples ---------------------------------------------------------- */

/* The words of question i, without special tokens. */
static void sentence_show(char *to, size_t room, const cloze *x, size_t i,
                          size_t row, const bauta_tokenizer *tokenizer)
{
    size_t used = 0;
    to[0] = '\0';
    for (size_t k = row + 1; k + 1 < row + x->lengths[i] && used < room; k++) {
        const char *piece = bauta_tokenizer_piece(tokenizer, x->ids[k], NULL);
        int size =
            snprintf(to + used, room - used, "%s%s", k == row + 1 ? "" : " ",
                     k == x->asked[i] ? "___" : piece);
        used += size > 0 ? (size_t)size : 0;
    }
}

static const char *most_likely(const cloze *x, const bauta_model *model,
                               const float *logits, size_t i,
                               const bauta_tokenizer *tokenizer)
{
    const float *z = prediction(x, model, logits, i);
    uint32_t best = 0;
    for (uint32_t k = 1; k < bauta_model_vocab_size(model); k++)
        if (z[k] > z[best])
            best = k;
    const char *piece = bauta_tokenizer_piece(tokenizer, best, NULL);
    return piece ? piece : "";
}

static void rows_show(const cloze *x, report *r,
                      const bauta_tokenizer *tokenizer,
                      const bauta_model *const *models, float *const *logits)
{
    enum { SHOWN = 6 };
    size_t row = 0;
    report_table(r, "examples", "sentence\tmasked\tcausal\tcorrect");
    for (size_t i = 0; i < SHOWN && i < x->count; i++) {
        char text[256];
        sentence_show(text, sizeof(text), x, i, row, tokenizer);
        report_row(r, "%s\t%s\t%s\t%s", text,
                   most_likely(x, models[0], logits[0], i, tokenizer),
                   most_likely(x, models[1], logits[1], i, tokenizer),
                   bauta_tokenizer_piece(tokenizer, x->ids[x->asked[i]], NULL));
        row += x->lengths[i];
    }
}

int cloze_examples(const cloze *x, const lab *l, report *r,
                   const bauta_tokenizer *tokenizer, const bauta_model *encoder,
                   const bauta_model *decoder)
{
    const bauta_model *models[] = { encoder, decoder };
    float *logits[] = { logits_of(x, l, encoder), NULL };
    if (logits[0])
        logits[1] = logits_of(x, l, decoder);
    if (logits[1])
        rows_show(x, r, tokenizer, models, logits);
    int failed = logits[1] ? CLI_OK : CLI_FAILED;
    free(logits[0]);
    free(logits[1]);
    return failed;
}

/* ---- the picture of the page ------------------------------------------- */

enum { TOY_SENTENCES = 4, TOY_WORDS = 24, TOY_GUESSES = 4 };

/* The guesses of a model for one row: [["cat", 0.4], ...]. */
static int guesses(const lab *l, const bauta_model *model,
                   const bauta_tokenizer *tokenizer, const uint32_t *ids,
                   size_t count, size_t row, json_t *words)
{
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY;
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_top_tokens_options o = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    uint32_t best[TOY_GUESSES];
    double p[TOY_GUESSES];
    json_t *list = json_array();
    json_array_append_new(words, list);
    batch.count = 1;
    batch.stride = count;
    batch.ids = ids;
    o.top_k = TOY_GUESSES;
    if (bauta_model_top_tokens(l->context, model, encoder ? &batch : NULL,
                               encoder ? NULL : &batch, &row, 1, &o, best, p,
                               &err))
        return lab_failed(&err);
    for (size_t k = 0; k < TOY_GUESSES; k++) {
        const char *piece = bauta_tokenizer_piece(tokenizer, best[k], NULL);
        json_array_append_new(list,
                              json_pack("[s, f]", piece ? piece : "?", p[k]));
    }
    return CLI_OK;
}

static int toy_sentence(const lab *l, const bauta_tokenizer *tokenizer,
                        const bauta_model *encoder, const bauta_model *decoder,
                        const uint32_t *ids, size_t count, json_t *list)
{
    uint32_t blank = bauta_tokenizer_special_token(tokenizer, BAUTA_TOKEN_MASK);
    uint32_t masked[TOY_WORDS];
    json_t *words = json_array(), *both = json_array(), *before = json_array();
    json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "words", words,
                                          "masked", both, "causal", before));
    int failed = CLI_OK;
    for (size_t k = 1; k + 1 < count && !failed; k++) {
        const char *piece = bauta_tokenizer_piece(tokenizer, ids[k], NULL);
        json_array_append_new(words, json_string(piece));
        memcpy(masked, ids, count * sizeof(*ids));
        masked[k] = blank;
        failed = guesses(l, encoder, tokenizer, masked, count, k, both);
        if (!failed)
            failed = guesses(l, decoder, tokenizer, ids, k, k - 1, before);
    }
    return failed;
}

int cloze_toy(const cloze *x, const lab *l, report *r,
              const bauta_tokenizer *tokenizer, const bauta_model *encoder,
              const bauta_model *decoder)
{
    json_t *list = json_array();
    int failed = CLI_OK;
    size_t row = 0;
    for (size_t i = 0; i < x->count && !failed; row += x->lengths[i++])
        if (json_array_size(list) < TOY_SENTENCES && x->lengths[i] > 8 &&
            x->lengths[i] <= TOY_WORDS)
            failed = toy_sentence(l, tokenizer, encoder, decoder, x->ids + row,
                                  x->lengths[i], list);
    report_toy(r, list);
    return failed;
}

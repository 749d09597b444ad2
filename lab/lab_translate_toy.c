/* SPDX-License-Identifier: Apache-2.0 */
/* lab_translate_toy.c - bauta lab translate: its numbers for the pictures of
 * the page. Weights and probabilities are rounded to four digits; logits that
 * are compared bit for bit are written as their bits. */
#include "lab_translate.h"

#include "../cli/cli.h"
#include "../cli/json_output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 }; /* candidates for a token */

static json_t *rounded(double number)
{
    return json_real(round(number * 1e4) / 1e4);
}

static json_t *label_json(const translator *t, uint32_t token)
{
    char label[TOKEN_TEXT];
    translation_label(t, token, label);
    return json_text(label, strlen(label));
}

static json_t *labels_json(const translator *t, const uint32_t *ids,
                           size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, label_json(t, ids[i]));
    return list;
}

/* ---- candidates -------------------------------------------------------- */

/* The most likely tokens of each row: [["Ich", 0.98], ...]. */
static int candidates(const translator *t, const translation_batch *b,
                      json_t *rows)
{
    bauta_error err;
    bauta_top_tokens_options o = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    uint32_t ids[SENTENCE_TOKENS * SHOWN];
    double p[SENTENCE_TOKENS * SHOWN];
    size_t at[SENTENCE_TOKENS] = { 0 }, count = b->target_length;
    o.top_k = SHOWN;
    for (size_t i = 0; i < count; i++)
        at[i] = i;
    if (bauta_model_top_tokens(t->l->context, t->model, &b->source, &b->target,
                               at, count, &o, ids, p, &err))
        return lab_failed(&err);
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_array();
        for (size_t k = i * SHOWN; k < (i + 1) * SHOWN; k++)
            json_array_append_new(
                row, json_pack("[o, o]", label_json(t, ids[k]), rounded(p[k])));
        json_array_append_new(rows, row);
    }
    return CLI_OK;
}

/* ---- weights ----------------------------------------------------------- */

static json_t *matrix_json(const float *weights, size_t rows, size_t columns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rows; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < columns; j++)
            json_array_append_new(row,
                                  rounded((double)weights[i * columns + j]));
        json_array_append_new(list, row);
    }
    return list;
}

/* Of every layer and head: [layer][head][row][column]. */
static json_t *weights_json(const translator *t, const translation_batch *b,
                            bauta_attention_kind at, bauta_error *err)
{
    float weights[2 * SENTENCE_TOKENS * SENTENCE_TOKENS];
    bauta_attention_weights look = BAUTA_ATTENTION_WEIGHTS_INIT;
    bool source = at == BAUTA_ATTENTION_ENCODER;
    size_t columns =
        at == BAUTA_ATTENTION_DECODER ? b->target.stride : b->source.stride;
    size_t layers = source ? bauta_model_encoder_layers(t->model)
                           : bauta_model_decoder_layers(t->model);
    json_t *list = json_array();
    look.attention = at;
    look.rows = source ? b->source.stride : b->target.stride;
    look.weights = weights;
    for (; look.layer < layers; look.layer++) {
        json_t *heads = json_array();
        json_array_append_new(list, heads);
        for (look.head = 0; look.head < bauta_model_heads(t->model, at);
             look.head++) {
            if (bauta_model_attention_weights(t->l->context, t->model,
                                              &b->source, &b->target, NULL,
                                              &look, 1, err)) {
                json_decref(list);
                return NULL;
            }
            json_array_append_new(heads,
                                  matrix_json(weights, look.rows, columns));
        }
    }
    return list;
}

int toy_sentence(const translator *t, const translation *s, json_t *list)
{
    static const struct {
        const char *name;
        bauta_attention_kind at;
        bool unmasked;
    } views[] = { { "encoder", BAUTA_ATTENTION_ENCODER, false },
                  { "decoder", BAUTA_ATTENTION_DECODER, false },
                  { "cross", BAUTA_ATTENTION_CROSS, false },
                  { "unmasked", BAUTA_ATTENTION_DECODER, true } };
    bauta_error err;
    translation_batch masked, unmasked;
    translation_batch_set(&masked, t, s, 0, false);
    translation_batch_set(&unmasked, t, s, 0, false);
    translation_batch_unmask(&unmasked);
    json_t *all = json_object(), *rows = json_array();
    json_array_append_new(list, all);
    json_object_set_new(all, "source",
                        labels_json(t, s->source, s->source_count));
    json_object_set_new(all, "target",
                        labels_json(t, s->target, s->target_count));
    json_object_set_new(all, "read", labels_json(t, s->read, s->target_count));
    json_array_set_new(json_object_get(all, "read"), 0, json_string("(start)"));
    json_object_set_new(all, "candidates", rows);
    int failed = candidates(t, &masked, rows);
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]) && !failed; i++) {
        json_t *weights = weights_json(
            t, views[i].unmasked ? &unmasked : &masked, views[i].at, &err);
        failed = weights ? CLI_OK : lab_failed(&err);
        json_object_set_new(all, views[i].name, weights);
    }
    return failed;
}

/* ---- training ---------------------------------------------------------- */

int toy_snapshot(const translator *t, const translation *s, double loss,
                 json_t *list)
{
    translation_batch forced;
    translation own;
    char *english = NULL, *text = NULL;
    size_t length;
    bauta_error err;
    json_t *rows = json_array();
    translation_batch_set(&forced, t, s, 0, false);
    int failed = candidates(t, &forced, rows);
    if (!failed &&
        bauta_tokenizer_decode(t->tokenizer, s->source, s->source_count, NULL,
                               &english, &length, &err))
        failed = lab_failed(&err);
    if (!failed)
        failed = translation_write(t, english, &own, &text);
    if (!failed)
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:O, s:o}", "step",
                            (json_int_t)bauta_trainer_steps(t->trainer), "loss",
                            rounded(loss), "forced", rows, "free",
                            labels_json(t, own.target, own.target_count)));
    json_decref(rows);
    bauta_text_free(english);
    free(text);
    return failed;
}

/* ---- bits -------------------------------------------------------------- */

static json_t *bits_json(float number)
{
    uint32_t bits;
    char text[16];
    memcpy(&bits, &number, sizeof(bits));
    snprintf(text, sizeof(text), "%08x", (unsigned)bits);
    return json_pack("[s, f]", text, (double)number);
}

json_t *toy_bits(const translator *t, const translation *s,
                 const float *parallel, const float *decoded,
                 const float *unmasked)
{
    size_t words = bauta_model_vocab_size(t->model);
    json_t *list = json_array();
    for (size_t i = 0; i < s->target_count; i++) {
        size_t at = i * words + s->target[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o, s:o}", "token",
                                        label_json(t, s->target[i]), "parallel",
                                        bits_json(parallel[at]), "decoded",
                                        bits_json(decoded[at]), "unmasked",
                                        bits_json(unmasked[at])));
    }
    return list;
}

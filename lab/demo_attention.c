/* SPDX-License-Identifier: Apache-2.0 */
/* demo_attention.c - bauta demo: attention weights of the translator. */
#include "../cli/cli.h"
#include "../cli/terminal.h"
#include "demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 32, LABEL = 32 };

/* A sentence and its translation. The decoder reads the target shifted by one:
 * row i predicts token i. */
typedef struct attention_input {
    const demo_model *t;
    uint32_t source[TOKENS_MAX], target[TOKENS_MAX], read[TOKENS_MAX];
    size_t source_count, target_count;
} attention_input;

static int attention_input_set(attention_input *s, const demo_model *t,
                               const pair *p)
{
    bauta_error err;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    *s = (attention_input){ .t = t };
    int failed = demo_model_read(t, p->english, false, s->source, TOKENS_MAX,
                                 &s->source_count);
    if (!failed)
        failed = demo_model_read(t, p->german, true, s->target, TOKENS_MAX,
                                 &s->target_count);
    if (failed)
        return failed;
    if (bauta_generate_options_load(&options, t->model, &err))
        return demo_failed(&err);
    s->read[0] = options.decoder_start_token_id;
    memcpy(s->read + 1, s->target, (TOKENS_MAX - 1) * sizeof(*s->read));
    return CLI_OK;
}

/* The mean over the heads of a layer. */
static int weights_mean(const attention_input *s, bauta_attention_kind at,
                        size_t layer, float *to, size_t keys)
{
    bauta_error err;
    float one[TOKENS_MAX * TOKENS_MAX];
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_attention_weights look = BAUTA_ATTENTION_WEIGHTS_INIT;
    size_t heads = bauta_model_heads(s->t->model, at);
    source.count = target.count = 1;
    source.stride = s->source_count;
    source.ids = s->source;
    target.stride = s->target_count;
    target.ids = s->read;
    look.attention = at;
    look.layer = layer;
    look.rows = s->target_count;
    look.weights = one;
    memset(to, 0, look.rows * keys * sizeof(*to));
    for (look.head = 0; look.head < heads; look.head++) {
        if (bauta_model_attention_weights(s->t->context, s->t->model, &source,
                                          &target, NULL, &look, 1, &err))
            return demo_failed(&err);
        for (size_t i = 0; i < look.rows * keys; i++)
            to[i] += one[i] / (float)heads;
    }
    return CLI_OK;
}

static void labels_set(const attention_input *s, char texts[][LABEL],
                       const char *labels[], const uint32_t *ids, size_t count)
{
    uint32_t end =
        bauta_tokenizer_special_token(s->t->tokenizer, BAUTA_TOKEN_EOS);
    for (size_t i = 0; i < count; i++) {
        const char *piece =
            bauta_tokenizer_piece(s->t->tokenizer, ids[i], NULL);
        token_label(texts[i], LABEL,
                    ids == s->read && i == 0 ? "(start)"
                    : ids[i] == end          ? "(end)"
                    : piece                  ? piece
                                             : "?");
        labels[i] = texts[i];
    }
}

static int attention_draw(const attention_input *s, bauta_attention_kind at,
                          const char *title)
{
    float weights[TOKENS_MAX * TOKENS_MAX];
    char row_texts[TOKENS_MAX][LABEL], column_texts[TOKENS_MAX][LABEL];
    const char *rows[TOKENS_MAX], *columns[TOKENS_MAX];
    bool cross = at == BAUTA_ATTENTION_CROSS;
    size_t keys = cross ? s->source_count : s->target_count;
    size_t layer = bauta_model_decoder_layers(s->t->model) - 1;
    int failed = weights_mean(s, at, layer, weights, keys);
    if (failed)
        return failed;
    labels_set(s, row_texts, rows, cross ? s->target : s->read,
               s->target_count);
    labels_set(s, column_texts, columns, cross ? s->source : s->read, keys);
    printf("\n%s.\nLayer %zu (the last), mean of %zu heads, in percent:\n\n",
           title, layer, bauta_model_heads(s->t->model, at));
    heatmap p = { s->target_count, keys, rows, columns, weights };
    heatmap_draw(stdout, &p, terminal_has_colours(stdout));
    return CLI_OK;
}

int attention_show(const demo_model *t, const pair *p, bool self)
{
    attention_input s;
    int failed = attention_input_set(&s, t, p);
    if (!failed && self)
        failed =
            attention_draw(&s, BAUTA_ATTENTION_DECODER,
                           "Masked self-attention: each token of the German "
                           "(rows) sees itself and those\nbefore it; the "
                           "future is hidden (dots)");
    if (!failed)
        failed = attention_draw(&s, BAUTA_ATTENTION_CROSS,
                                "Cross-attention: weights over the English for "
                                "each German token (rows)");
    return failed;
}

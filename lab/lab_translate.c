/* SPDX-License-Identifier: Apache-2.0 */
/* lab_translate.c - bauta lab translate: "I love you", token by token.
 *
 * A Transformer with encoder and decoder learns to translate from sentences of
 * a small grammar. Held-out sentences then go through it all at once, as in
 * training, and one token at a time, as in use; with padding and without; and
 * once without the causal mask. The logits are compared bit for bit. */
#include "lab_translate.h"

#include "../cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const shown[][2] = {
    { "I love you", "Ich liebe dich" },
    { "I do not want to see the old man",
      "Ich will den alten Mann nicht sehen" },
    { "Does the queen love him?", "Liebt die Königin ihn?" },
};
enum { SHOWN = sizeof(shown) / sizeof(shown[0]), SNAPSHOTS = 6 };

/* Steps of the snapshots, as shares of the training. */
static const double snapshot_at[SNAPSHOTS] = { 0.0, 0.06, 0.12, 0.2, 0.4, 1.0 };

typedef struct findings {
    char *love;              /* the translation of "I love you" */
    size_t right;            /* held-out sentences translated exactly */
    size_t logits, same;     /* of both ways, and of these with equal bits */
    size_t padded, pad_same; /* the same with and without padding */
    size_t unmasked_same;    /* of `logits`, without the causal mask */
    size_t rows, wrong_rows; /* of attention weights */
    double p[PADS + 1], p_visible[PADS + 1]; /* of the translation, by pads */
} findings;

/* ---- training ---------------------------------------------------------- */

static int learn(translator *t, report *r, json_t *snapshots)
{
    const plot_options plot = { "training loss", "step", "loss", false, false };
    double loss = log((double)bauta_model_vocab_size(t->model));
    size_t next = 0, every = t->steps / 40 ? t->steps / 40 : 1;
    translation s;
    int failed = translation_read(t, shown[1][0], shown[1][1], &s);
    report_plot(r, &plot);
    report_curve(r, "translator");
    for (size_t step = 0; step <= t->steps && !failed; step++) {
        failed = translator_train(t, step, &loss);
        if (!failed && next < SNAPSHOTS &&
            step == (size_t)(snapshot_at[next] * (double)t->steps)) {
            failed = toy_snapshot(t, &s, loss, snapshots);
            next++;
        }
        if (step % every == 0)
            report_point(r, (double)step, loss);
    }
    return failed;
}

/* ---- both ways --------------------------------------------------------- */

static size_t equal_bits(const float *a, const float *b, size_t count)
{
    size_t same = 0;
    for (size_t i = 0; i < count; i++)
        same += memcmp(&a[i], &b[i], sizeof(*a)) == 0;
    return same;
}

void target_probabilities(const translator *t, const translation *s,
                          const float *logits, double *p)
{
    size_t words = bauta_model_vocab_size(t->model);
    for (size_t i = 0; i < s->target_count; i++)
        p[i] = exp(
            -lab_cross_entropy(logits + i * words, words, s->target[i], NULL));
}

/* Parallel, incremental, without the mask; *bits, unless NULL, receives them
 * for the page. */
static int ways_compare(const translator *t, const translation *s, findings *f,
                        json_t **bits)
{
    translation_batch b;
    translation_batch_set(&b, t, s, 0, false);
    float *parallel = translation_logits(t, &b);
    translation_batch_unmask(&b);
    float *unmasked = parallel ? translation_logits(t, &b) : NULL;
    float *decoded = unmasked ? translation_logits_decoded(t, s) : NULL;
    size_t count = s->target_count * bauta_model_vocab_size(t->model);
    if (decoded) {
        f->logits += count;
        f->same += equal_bits(parallel, decoded, count);
        f->unmasked_same += equal_bits(parallel, unmasked, count);
        if (bits)
            *bits = toy_bits(t, s, parallel, decoded, unmasked);
    }
    free(parallel);
    free(unmasked);
    free(decoded);
    return decoded ? CLI_OK : CLI_FAILED;
}

/* ---- weights ----------------------------------------------------------- */

/* Whether the visible weights of a row add up to 1 and the hidden ones, after
 * `visible`, are exactly 0. */
static bool row_right(const float *weights, size_t visible, size_t count)
{
    double sum = 0.0;
    for (size_t j = 0; j < count; j++) {
        sum += (double)weights[j];
        if (j >= visible && weights[j] != 0.0f)
            return false;
    }
    return fabs(sum - 1.0) < 1e-5;
}

/* Masked self-attention and cross-attention, in every layer and head. */
static int weights_check(const translator *t, const translation *s, findings *f)
{
    static const bauta_attention_kind kinds[] = { BAUTA_ATTENTION_DECODER,
                                                  BAUTA_ATTENTION_CROSS };
    bauta_error err;
    float weights[SENTENCE_TOKENS * SENTENCE_TOKENS];
    bauta_attention_weights look = BAUTA_ATTENTION_WEIGHTS_INIT;
    translation_batch b;
    translation_batch_set(&b, t, s, 0, false);
    look.rows = s->target_count;
    look.weights = weights;
    for (size_t k = 0; k < 2; k++) {
        size_t heads = bauta_model_heads(t->model, kinds[k]);
        size_t keys = k ? s->source_count : s->target_count;
        look.attention = kinds[k];
        for (size_t n = 0; n < heads * bauta_model_decoder_layers(t->model);
             n++) {
            look.layer = n / heads;
            look.head = n % heads;
            if (bauta_model_attention_weights(t->l->context, t->model,
                                              &b.source, &b.target, NULL, &look,
                                              1, &err))
                return lab_failed(&err);
            for (size_t i = 0; i < look.rows; i++)
                f->wrong_rows +=
                    !row_right(weights + i * keys, k ? keys : i + 1, keys);
            f->rows += look.rows;
        }
    }
    return CLI_OK;
}

/* ---- padding ----------------------------------------------------------- */

static int padding_probability(const translator *t, const translation *s,
                               size_t pads, bool visible, const float *without,
                               findings *f)
{
    double p[SENTENCE_TOKENS], all = 1.0;
    translation_batch b;
    translation_batch_set(&b, t, s, pads, visible);
    float *logits = translation_logits(t, &b);
    size_t count = s->target_count * bauta_model_vocab_size(t->model);
    if (!logits)
        return CLI_FAILED;
    target_probabilities(t, s, logits, p);
    for (size_t i = 0; i < s->target_count; i++)
        all *= p[i];
    *(visible ? &f->p_visible[pads] : &f->p[pads]) = all;
    if (!visible) {
        f->padded += count;
        f->pad_same += equal_bits(without, logits, count);
    }
    free(logits);
    return CLI_OK;
}

static int padding_compare(const translator *t, const translation *s,
                           findings *f)
{
    translation_batch b;
    translation_batch_set(&b, t, s, 0, false);
    float *without = translation_logits(t, &b);
    int failed = without ? CLI_OK : CLI_FAILED;
    for (size_t pads = 0; pads <= PADS && !failed; pads++) {
        failed = padding_probability(t, s, pads, false, without, f);
        if (!failed)
            failed = padding_probability(t, s, pads, true, without, f);
    }
    free(without);
    return failed;
}

static json_t *padding_json(const findings *f)
{
    json_t *hidden = json_array(), *visible = json_array();
    for (size_t i = 0; i <= PADS; i++) {
        json_array_append_new(hidden, json_real(f->p[i]));
        json_array_append_new(visible, json_real(f->p_visible[i]));
    }
    return json_pack("{s:o, s:o}", "hidden", hidden, "visible", visible);
}

/* ---- held-out sentences ------------------------------------------------ */

static int held_out_run(const translator *t, findings *f, json_t **bits)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < t->held && !failed; i++) {
        const pair *p = &t->sentences.at[i];
        translation s;
        char *text = NULL;
        failed = translation_write(t, p->english, &s, &text);
        if (failed)
            break;
        f->right += strcmp(text, p->german) == 0;
        failed = ways_compare(t, &s, f, i == 0 ? bits : NULL);
        if (!failed)
            failed = weights_check(t, &s, f);
        if (!failed && i == 0)
            failed = padding_compare(t, &s, f);
        if (i == 0)
            f->love = text;
        else
            free(text);
    }
    return failed;
}

/* ---- the report -------------------------------------------------------- */

/* How "I love you" is translated: one row for each token. */
static int steps_report(const translator *t, report *r)
{
    translation s;
    translation_batch b;
    double p[SENTENCE_TOKENS];
    int failed = translation_write(t, shown[0][0], &s, NULL);
    if (failed)
        return failed;
    translation_batch_set(&b, t, &s, 0, false);
    float *logits = translation_logits(t, &b);
    if (!logits)
        return CLI_FAILED;
    target_probabilities(t, &s, logits, p);
    report_table(r, "I love you, one token at a time",
                 "step\treads\tsees of the German\tsees of the English\twrites"
                 "\tprobability");
    for (size_t i = 0; i < s.target_count; i++) {
        char reads[TOKEN_TEXT] = "(start)", writes[TOKEN_TEXT];
        if (i)
            translation_label(t, s.read[i], reads);
        translation_label(t, s.target[i], writes);
        report_row(r, "%zu\t%s\t%zu\t%zu\t%s\t%.1f %%", i + 1, reads, i + 1,
                   s.source_count, writes, 100.0 * p[i]);
    }
    free(logits);
    return CLI_OK;
}

static int masks_report(const translator *t, report *r)
{
    bauta_error err;
    translation s;
    bauta_mask *encoder = NULL, *decoder = NULL, *cross = NULL;
    int failed = translation_read(t, shown[1][0], shown[1][1], &s);
    if (failed)
        return failed;
    size_t n = s.source_count, m = s.target_count;
    if (bauta_mask_parse(&encoder, "all", n, n, &err) ||
        bauta_mask_parse(&decoder, "causal", m, m, &err) ||
        bauta_mask_parse(&cross, "all", m, n, &err))
        failed = lab_failed(&err);
    if (!failed) {
        report_heading(r, shown[1][0]);
        report_mask(r, "encoder", encoder, NULL);
        report_mask(r, "decoder", decoder, NULL);
        report_mask(r, "cross", cross, NULL);
    }
    bauta_mask_free(encoder);
    bauta_mask_free(decoder);
    bauta_mask_free(cross);
    return failed;
}

static void tables_report(report *r, const findings *f)
{
    report_table(r, "logits of held-out sentences",
                 "against the parallel pass\tlogits\tequal bits");
    report_row(r, "one token at a time, with the KV cache\t%zu\t%zu", f->logits,
               f->same);
    report_row(r, "in parallel, with padding after the source\t%zu\t%zu",
               f->padded, f->pad_same);
    report_row(r, "in parallel, without the causal mask\t%zu\t%zu", f->logits,
               f->unmasked_same);
    report_table(r, "probability of the whole translation, by padding",
                 "tokens of padding\tpadding hidden\tpadding visible");
    for (size_t i = 0; i <= PADS; i++)
        report_row(r, "%zu\t%.6f\t%.6f", i, f->p[i], f->p_visible[i]);
}

static void conclude(report *r, const translator *t, const findings *f)
{
    report_conclude(
        r,
        "\"I love you\", which is not in the training text, becomes \"%s\", "
        "and %zu of %zu held-out sentences are translated exactly.",
        f->love, f->right, t->held);
    report_conclude(
        r,
        "All at once or one token at a time, with padding or without, all %zu "
        "logits have the same bits; without the causal mask %zu of them are "
        "different, because each token then sees the answer.",
        f->logits, f->logits - f->unmasked_same);
    report_claim(r, strcmp(f->love, shown[0][1]) == 0,
                 "\"I love you\", held out, becomes \"%s\": the output is "
                 "\"%s\"",
                 shown[0][1], f->love);
    report_claim(r, f->same == f->logits,
                 "the parallel pass and decoding with the KV cache give the "
                 "same bits: %zu of %zu logits",
                 f->same, f->logits);
    report_claim(r, f->pad_same == f->padded,
                 "padding changes no bit: %zu of %zu logits are equal",
                 f->pad_same, f->padded);
    report_claim(r, f->unmasked_same < f->logits / 2,
                 "without the causal mask most logits differ: %zu of %zu",
                 f->logits - f->unmasked_same, f->logits);
    report_claim(
        r, f->wrong_rows == 0,
        "the weights of a row add up to 1, and hidden ones are exactly "
        "0: in %zu of %zu rows",
        f->rows - f->wrong_rows, f->rows);
}

/* ---- the experiment ---------------------------------------------------- */

static int sentences_show(const translator *t, json_t *list)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < SHOWN && !failed; i++) {
        translation s;
        failed = translation_read(t, shown[i][0], shown[i][1], &s);
        if (!failed)
            failed = toy_sentence(t, &s, list);
    }
    return failed;
}

static int translate_run(translator *t, report *r, findings *f)
{
    json_t *snapshots = json_array(), *sentences = json_array(), *bits = NULL;
    int failed = learn(t, r, snapshots);
    if (!failed)
        failed = held_out_run(t, f, &bits);
    if (!failed)
        failed = steps_report(t, r);
    if (!failed)
        failed = masks_report(t, r);
    if (!failed)
        failed = sentences_show(t, sentences);
    if (!failed) {
        tables_report(r, f);
        conclude(r, t, f);
        report_toy(r, json_pack("{s:O, s:O, s:O, s:o}", "snapshots", snapshots,
                                "sentences", sentences, "bits", bits, "padding",
                                padding_json(f)));
    }
    json_decref(snapshots);
    json_decref(sentences);
    json_decref(bits);
    return failed;
}

int lab_translate(const lab *l, report *r)
{
    translator t;
    findings f = { .love = NULL };
    int failed = translator_make(&t, l);
    if (failed)
        return failed;
    failed = translate_run(&t, r, &f);
    free(f.love);
    translator_release(&t);
    return failed;
}

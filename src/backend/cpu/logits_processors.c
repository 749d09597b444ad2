/* SPDX-License-Identifier: Apache-2.0 */
/* logits_processors.c - penalizing, masking and forcing tokens; see sampling.h.
 */
#include "backend/cpu/sampling.h"

#include <math.h>
#include <string.h>

bool bt_logits_too_short(const bauta_generate_options *o,
                         const bt_token_history *h)
{
    return h->count - h->prompt < o->min_new_tokens || h->count < o->min_length;
}

static bool forces_bos(const bauta_generate_options *o,
                       const bt_token_history *h)
{
    return o->forced_bos_token_id != BAUTA_NO_TOKEN && h->count == 1;
}

static bool forces_eos(const bauta_generate_options *o,
                       const bt_token_history *h)
{
    return o->forced_eos_token_id != BAUTA_NO_TOKEN && h->count + 1 == h->limit;
}

bool bt_logits_forced_token(const bauta_generate_options *o,
                            const bt_token_history *h, uint32_t *token)
{
    if (forces_eos(o, h))
        *token = o->forced_eos_token_id;
    else if (forces_bos(o, h))
        *token = o->forced_bos_token_id;
    else
        return false;
    return true;
}

bool bt_logits_counts_penalized(const bauta_generate_options *o)
{
    return o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f;
}

bool bt_logits_processors_need_history(const bauta_generate_options *o)
{
    bool reads = o->repetition_penalty != 1.0f ||
                 bt_logits_counts_penalized(o) || o->no_repeat_ngram_size > 0;
    for (size_t i = 0; i < o->bad_word_count && !reads; i++)
        reads = o->bad_words[i].count > 1;
    return reads;
}

bool bt_logits_processors_active(const bauta_generate_options *o,
                                 const bt_token_history *h)
{
    return bt_logits_processors_need_history(o) || o->suppress_token_count ||
           o->bad_word_count || o->logit_bias_count ||
           (o->eos_token_count && bt_logits_too_short(o, h)) ||
           forces_bos(o, h) || forces_eos(o, h);
}

/* A token that occurs twice is penalized once. */
static void penalize(float *x, const bt_sampler_scratch *scratch, float penalty,
                     const bt_token_history *h)
{
    for (size_t i = 0; i < h->count; i++) {
        uint32_t id = h->ids[i];
        if (id >= scratch->vocab || scratch->marks[id])
            continue;
        scratch->marks[id] = 1;
        x[id] = x[id] < 0 ? x[id] * penalty : x[id] / penalty;
    }
    for (size_t i = 0; i < h->count; i++)
        if (h->ids[i] < scratch->vocab)
            scratch->marks[h->ids[i]] = 0;
}

/* Subtract presence + frequency * n from each token that occurs n times among
 * the new ones. The exponentials are not needed yet, so they count. */
static void penalize_counts(float *x, const bt_sampler_scratch *scratch,
                            const bauta_generate_options *o,
                            const bt_token_history *h)
{
    float *counts = scratch->exps;
    for (size_t i = h->prompt; i < h->count; i++)
        if (h->ids[i] < scratch->vocab)
            counts[h->ids[i]] = 0;
    for (size_t i = h->prompt; i < h->count; i++)
        if (h->ids[i] < scratch->vocab)
            counts[h->ids[i]] += 1;
    for (size_t i = h->prompt; i < h->count; i++) {
        uint32_t id = h->ids[i];
        if (id >= scratch->vocab || counts[id] == 0)
            continue;
        x[id] -= fmaf(o->frequency_penalty, counts[id], o->presence_penalty);
        counts[id] = 0;
    }
}

/* Mask every token that would repeat an n-gram of the history. */
static void mask_repeated_ngrams(float *x, size_t vocab, size_t n,
                                 const bt_token_history *h)
{
    if (h->count < n)
        return;
    const uint32_t *tail = h->ids + h->count - (n - 1);
    for (size_t i = 0; i + n <= h->count; i++) {
        uint32_t next = h->ids[i + n - 1];
        if (next < vocab && !memcmp(h->ids + i, tail, (n - 1) * sizeof(*tail)))
            x[next] = -INFINITY;
    }
}

bool bt_is_eos_token(const bauta_generate_options *o, uint32_t token)
{
    for (size_t i = 0; i < o->eos_token_count; i++)
        if (o->eos_token_ids[i] == token)
            return true;
    return false;
}

/* Mask the last token of a bad word whenever the tokens before it match. */
static void mask_bad_words(float *x, const bauta_generate_options *o,
                           const bt_token_history *h)
{
    for (size_t i = 0; i < o->bad_word_count; i++) {
        const bauta_token_seq *word = &o->bad_words[i];
        size_t before = word->count - 1;
        uint32_t last = word->tokens[before];
        bool follows =
            before ? before <= h->count &&
                         !memcmp(h->ids + h->count - before, word->tokens,
                                 before * sizeof(*word->tokens))
                   : !bt_is_eos_token(o, last);
        if (follows)
            x[last] = -INFINITY;
    }
}

static void force_token(float *x, size_t vocab, uint32_t token)
{
    for (size_t j = 0; j < vocab; j++)
        x[j] = -INFINITY;
    x[token] = 0;
}

void bt_logits_processors_apply(float *x, const bt_sampler_scratch *scratch,
                                const bauta_generate_options *o,
                                const bt_token_history *h)
{
    if (o->repetition_penalty != 1.0f)
        penalize(x, scratch, o->repetition_penalty, h);
    for (size_t i = 0; i < o->logit_bias_count; i++)
        x[o->logit_bias[i].token] += o->logit_bias[i].bias;
    if (bt_logits_counts_penalized(o))
        penalize_counts(x, scratch, o, h);
    if (o->no_repeat_ngram_size)
        mask_repeated_ngrams(x, scratch->vocab, o->no_repeat_ngram_size, h);
    for (size_t i = 0; i < o->suppress_token_count; i++)
        x[o->suppress_tokens[i]] = -INFINITY;
    mask_bad_words(x, o, h);
    for (size_t i = 0; i < o->eos_token_count && bt_logits_too_short(o, h); i++)
        x[o->eos_token_ids[i]] = -INFINITY;
    uint32_t forced;
    if (bt_logits_forced_token(o, h, &forced))
        force_token(x, scratch->vocab, forced);
}

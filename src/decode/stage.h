/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - sequences that are being read or spoken, and one forward for all
 * of them.
 *
 * A sequence is what a decoder has read so far: its keys and values, layer by
 * layer. Feeding a token more is the last row of the mask that trained the
 * model, so the logits are those of the parallel pass, bit for bit, whatever
 * else is fed in the same call and in however many pieces a prompt comes.
 *
 * Pages of 64 tokens hold keys and values; sequences that were forked share
 * them until one writes. Where there is a window, of a layer or of a sequence,
 * pages are given back that no later token can see. What a decoder sees of a
 * source is made once, and shared by all sequences that translate it. All pages
 * come from one pool, which is bounded.
 *
 * A stage, its sequences and its memories serve one call at a time. */
#ifndef BT_STAGE_H
#define BT_STAGE_H

#include "bauta.h"

typedef struct bt_stage bt_stage;

/* A model with a decoder; both outlive the stage. `bytes` bounds the pages of
 * all sequences and memories together; 0: no bound. */
bauta_status bt_stage_create(bt_stage **out, bauta_context *context,
                             const bauta_model *model, uint64_t bytes,
                             bauta_error *err);
/* Sequences and memories must be gone. */
void bt_stage_free(bt_stage *stage);

/* Bytes of pages that a sequence of so many tokens, and the memory of a source
 * of so many tokens, need at most, in however many pieces they are fed; that
 * are taken now; and the bound (0: none). What is taken never exceeds the sum
 * of what all that live may need, forks and those they came from alike. */
uint64_t bt_stage_cost(const bt_stage *stage, size_t tokens, size_t source);
uint64_t bt_stage_used(const bt_stage *stage);
uint64_t bt_stage_bound(const bt_stage *stage);

/* ---- sources ----------------------------------------------------------- */

/* Keys and values of cross-attention of one source, in every layer. */
typedef struct bt_memory bt_memory;

/* Read `count` sources with the encoder, in one pass; out[i] is released by
 * bt_memory_drop(). All or none. */
bauta_status bt_stage_encode(bt_stage *stage, size_t count,
                             const uint32_t *const *ids, const size_t *lengths,
                             bt_memory **out, bauta_error *err);
void bt_memory_drop(bt_memory *memory);

/* ---- sequences --------------------------------------------------------- */

typedef struct bt_sequence bt_sequence;

/* An empty one. It keeps the memory for as long as it lives; NULL where the
 * model has no encoder. */
bauta_status bt_sequence_create(bt_sequence **out, bt_stage *stage,
                                bt_memory *memory, bauta_error *err);
/* Another one that has read the same; nothing is copied. */
bauta_status bt_sequence_fork(bt_sequence **out, const bt_sequence *sequence,
                              bauta_error *err);
void bt_sequence_free(bt_sequence *sequence);

/* Give an empty sequence a window in every layer: a token sees itself and the
 * `window` - 1 before it, as bauta_mask_window() has it, and fewer where a
 * layer's own window is narrower. 0: none. Forks have it, too. */
void bt_sequence_slide(bt_sequence *sequence, size_t window);

size_t bt_sequence_tokens(const bt_sequence *sequence);
/* Forget all but the first `tokens` tokens; where there are not more, nothing
 * happens. False, and nothing happens, where a layer with a window has given
 * away what the next token would have to see. */
bool bt_sequence_truncate(bt_sequence *sequence, size_t tokens);

/* ---- reading ----------------------------------------------------------- */

typedef struct bt_feed {
    bt_sequence *sequence; /* each at most once in a call */
    size_t count;          /* at least 1 */
    const uint32_t *ids;   /* (count) */
    float *logits;         /* (vocabulary) behind the last of them; NULL: they
                              are not asked for, and not computed */
} bt_feed;

/* Feed tokens to sequences. After a failure all are as they were. Where feeds
 * that see the same source are neighbours, it is read once for all of them;
 * and where their logits lie one behind the other, they are one product. */
bauta_status bt_stage_feed(bt_stage *stage, const bt_feed *feeds, size_t count,
                           bauta_error *err);

#endif

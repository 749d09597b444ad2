/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.h - random sequences for a model, in each layout that must not
 * matter: padded to a common length, packed back to back, or one alone. */
#ifndef BT_TEST_SEQUENCES_H
#define BT_TEST_SEQUENCES_H

#include "base/error.h"
#include "host_tensors.h"
#include "model/model_store.h"
#include "model/transformer.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 4, TIME_MAX = 140 /* more than two blocks of keys */ };

/* The input of one stack. */
typedef struct text {
    size_t lengths[SEQUENCES];
    uint32_t ids[SEQUENCES][TIME_MAX];
    uint32_t labels[SEQUENCES][TIME_MAX];
} text;

/* The token that only padding has. */
static inline uint32_t text_padding(const bt_model_config *config)
{
    return (uint32_t)config->vocab_size - 1;
}

/* Lengths from 1 to the longest; `turn` rotates them, so that a target is not
 * as long as its source. */
static inline text text_random(test_random *r, const bt_model_config *config,
                               size_t turn)
{
    text x;
    size_t most = TIME_MAX;
    if (config->position_kind != BT_POSITIONS_ROTARY &&
        config->max_positions < most)
        most = config->max_positions;
    const size_t lengths[SEQUENCES] = { most, 1, most / 2 + 1, most / 3 + 1 };
    for (size_t s = 0; s < SEQUENCES; s++) {
        x.lengths[s] = lengths[(s + turn) % SEQUENCES];
        for (size_t t = 0; t < x.lengths[s]; t++) {
            x.ids[s][t] = (uint32_t)test_below(r, config->vocab_size - 1);
            x.labels[s][t] = t % 5 == 3
                                 ? BT_IGNORE_INDEX
                                 : (uint32_t)test_below(r, config->vocab_size);
        }
    }
    return x;
}

/* Which sequences, and whether padded. */
typedef struct layout {
    size_t from, count;
    bool padded;
} layout;

static inline layout layout_alone(size_t sequence)
{
    return (layout){ sequence, 1, false };
}

/* The rows of one stack. */
typedef struct side {
    layout how;
    const size_t *lengths; /* (how.count) */
    size_t first[SEQUENCES], rows, time;
    uint32_t *ids, *positions, *labels;
    bt_attention_plan *plan, *window, *cross;
    bt_forward_input input;
} side;

typedef enum visibility { BOTH_WAYS, CAUSAL, WINDOW } visibility;

/* The mask within one sequence. */
static inline bauta_mask *visibility_mask(visibility kind, size_t n,
                                          size_t window)
{
    bauta_mask *mask = NULL;
    bauta_status status = kind == BOTH_WAYS ? bauta_mask_all(&mask, n, n, NULL)
                          : kind == CAUSAL
                              ? bauta_mask_causal(&mask, n, n, NULL)
                              : bauta_mask_window(&mask, n, n, window, NULL);
    assert_int_equal(status, 0);
    return mask;
}

static inline bauta_mask *side_packed(const side *x, visibility kind,
                                      size_t window)
{
    bauta_mask *parts[SEQUENCES], *mask = NULL;
    for (size_t s = 0; s < x->how.count; s++)
        parts[s] = visibility_mask(kind, x->lengths[s], window);
    assert_int_equal(bauta_mask_pack(&mask, x->how.count,
                                     (const bauta_mask *const *)parts, NULL),
                     0);
    for (size_t s = 0; s < x->how.count; s++)
        bauta_mask_free(parts[s]);
    return mask;
}

static inline bauta_mask *side_padded(const side *x, visibility kind,
                                      size_t window)
{
    bauta_mask *real = NULL, *mask = NULL;
    bauta_mask *seen = visibility_mask(kind, x->rows, window);
    assert_int_equal(bauta_mask_lengths(&real, x->how.count, x->time, x->time,
                                        NULL, x->lengths, NULL),
                     0);
    assert_int_equal(bauta_mask_and(&mask, real, seen, NULL), 0);
    bauta_mask_free(real);
    bauta_mask_free(seen);
    return mask;
}

static inline bt_attention_plan *side_plan(const side *x, visibility kind,
                                           size_t window)
{
    // A single sequence is not packed, as for a caller without batches.
    if (x->how.count == 1 && !x->how.padded)
        return test_plan(visibility_mask(kind, x->rows, window));
    return test_plan(x->how.padded ? side_padded(x, kind, window)
                                   : side_packed(x, kind, window));
}

static inline void side_place(side *x)
{
    for (size_t s = 0; s < x->how.count; s++)
        if (x->lengths[s] > x->time)
            x->time = x->lengths[s];
    for (size_t s = 0; s < x->how.count; s++) {
        x->first[s] = x->rows;
        x->rows += x->how.padded ? x->time : x->lengths[s];
    }
}

static inline void side_fill(side *x, const text *from, uint32_t padding)
{
    uint32_t *memory = malloc(3 * x->rows * sizeof(*memory));
    assert_non_null(memory);
    x->ids = memory;
    x->positions = memory + x->rows;
    x->labels = memory + 2 * x->rows;
    for (size_t i = 0; i < x->rows; i++) {
        x->ids[i] = padding;
        x->positions[i] = 0;
        x->labels[i] = BT_IGNORE_INDEX;
    }
    for (size_t s = 0; s < x->how.count; s++)
        for (size_t t = 0; t < x->lengths[s]; t++) {
            x->ids[x->first[s] + t] = from->ids[x->how.from + s][t];
            x->labels[x->first[s] + t] = from->labels[x->how.from + s][t];
            x->positions[x->first[s] + t] = (uint32_t)t;
        }
}

static inline side side_make(const text *from, layout how, visibility kind,
                             const bt_model_config *config)
{
    side x = { .how = how, .lengths = from->lengths + how.from };
    side_place(&x);
    side_fill(&x, from, text_padding(config));
    x.plan = side_plan(&x, kind, 0);
    if (config->window)
        x.window = side_plan(&x, WINDOW, config->window);
    x.input = (bt_forward_input){ .tokens = x.rows,
                                  .ids = x.ids,
                                  .positions = x.positions,
                                  .plans = { [BT_SLOT_ENCODER] = x.plan,
                                             [BT_SLOT_DECODER] = x.plan,
                                             [BT_SLOT_WINDOW] = x.window } };
    return x;
}

/* Targets see their own sources. */
static inline void side_cross(side *target, const side *source)
{
    bauta_mask *mask = NULL;
    bauta_status status;
    if (target->how.padded)
        status = bauta_mask_lengths(&mask, target->how.count, target->time,
                                    source->time, target->lengths,
                                    source->lengths, NULL);
    else
        status = bauta_mask_documents(&mask, target->how.count, target->lengths,
                                      source->lengths, NULL);
    assert_int_equal(status, 0);
    target->cross = test_plan(mask);
    target->input.plans[BT_SLOT_CROSS] = target->cross;
}

static inline void side_release(side *x)
{
    free(x->ids);
    bt_cpu_plan_free(x->plan);
    bt_cpu_plan_free(x->window);
    bt_cpu_plan_free(x->cross);
}

#endif

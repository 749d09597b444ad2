/* SPDX-License-Identifier: Apache-2.0 */
/* admit.c - who runs next, and what it can share with others.
 *
 * A request runs when the most that it can ever need fits beside the most that
 * the running ones can: so none has to be put out again. They run in the order
 * in which they came. */
#include "decode/generator.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* A prompt that another is still reading is waited for where so many tokens
 * are alike. */
enum { WORTH_WAITING = 16 };

/* ---- kept texts -------------------------------------------------------- */

static void kept_release(bt_prefix_entry *kept)
{
    bt_sequence_free(kept->sequence);
    bt_free(kept->ids);
    bt_free(kept->source);
}

bool bt_generator_forget(bauta_generator *g)
{
    size_t oldest = 0;
    if (g->kept_count == 0)
        return false;
    for (size_t i = 1; i < g->kept_count; i++)
        if (g->kept[i].used < g->kept[oldest].used)
            oldest = i;
    g->kept_cost -= g->kept[oldest].cost;
    kept_release(&g->kept[oldest]);
    g->kept[oldest] = g->kept[--g->kept_count];
    return true;
}

void bt_generator_keep(bauta_generator *g, bt_request *r)
{
    bt_sequence *sequence = r->sequences ? r->sequences[0] : NULL;
    if (!g->options.keep || !sequence)
        return;
    // Of beams only the prompt is known to be what the sequence has read.
    size_t count = bt_sequence_tokens(sequence);
    if (r->options.beams > 1 && bt_sequence_truncate(sequence, r->prompt))
        count = r->prompt;
    count = bt_size_min(count, r->count);
    if (g->kept_count == g->options.keep)
        bt_generator_forget(g);
    g->kept[g->kept_count] = (bt_prefix_entry){
        .sequence = sequence,
        .ids = r->ids,
        .count = count,
        .source = r->source,
        .source_count = r->source_count,
        .window = r->options.sliding_window,
        .cost = bt_stage_cost(g->stage, bt_sequence_tokens(sequence),
                              r->source_count),
        .used = g->steps,
    };
    g->kept_cost += g->kept[g->kept_count++].cost;
    r->sequences[0] = NULL;
    r->ids = r->source = NULL;
}

/* ---- sharing ----------------------------------------------------------- */

/* Something whose beginning may serve a request. */
typedef struct match {
    const bt_sequence *sequence; /* NULL: it has none yet */
    size_t common;               /* tokens of the prompt, less the last */
    size_t ready;                /* of which so many are read */
    bt_prefix_entry *kept;               /* where it is one of these */
} match;

static size_t common_of(const bt_request *r, const uint32_t *ids, size_t count)
{
    size_t n = 0, most = bt_size_min(r->prompt - 1, count);
    while (n < most && r->ids[n] == ids[n])
        n++;
    return n;
}

static bool same_source(const bt_request *r, const uint32_t *source,
                        size_t count)
{
    return r->source_count == count &&
           !memcmp(r->source, source, count * sizeof(*source));
}

static void match_better(match *best, bool *found, match m)
{
    if (*found && m.common <= best->common)
        return;
    *best = m;
    *found = true;
}

/* The best one among what is kept and what runs, up to number `before`. */
static bool match_find(match *best, bauta_generator *g, const bt_request *r,
                       size_t before)
{
    bool found = false;
    for (size_t i = 0; i < g->kept_count; i++) {
        bt_prefix_entry *k = &g->kept[i];
        if (k->window != r->options.sliding_window ||
            !same_source(r, k->source, k->source_count))
            continue;
        size_t common = common_of(r, k->ids, k->count);
        match_better(best, &found, (match){ k->sequence, common, common, k });
    }
    for (size_t i = 0; i < before; i++) {
        const bt_request *o = g->running[i];
        const bt_sequence *sequence = o->sequences[0];
        if (o->options.sliding_window != r->options.sliding_window ||
            !same_source(r, o->source, o->source_count))
            continue;
        // Beams write behind the prompt what `ids` does not know.
        size_t common =
            common_of(r, o->ids, o->options.beams > 1 ? o->prompt : o->count);
        size_t ready = sequence ? bt_sequence_tokens(sequence) : 0;
        match_better(
            best, &found,
            (match){ sequence, common, bt_size_min(ready, common), NULL });
    }
    return found && (best->common > 0 || r->source_count > 0);
}

/* Begin with what another has read. *done: there is a sequence now. Windows may
 * have let go of what would be needed; then it is read anew. */
static bauta_status share(bauta_generator *g, bt_request *r, const match *m,
                          bool *done, bauta_error *err)
{
    bt_sequence *fork = NULL;
    *done = false;
    bauta_status status = bt_sequence_fork(&fork, m->sequence, err);
    if (status)
        return status;
    if (!bt_sequence_truncate(fork, m->ready)) {
        bt_sequence_free(fork);
        return BAUTA_OK;
    }
    r->sequences[0] = fork;
    r->read = m->ready;
    r->shared = r->source_count ? r->source_count : m->ready;
    if (m->kept)
        m->kept->used = g->steps;
    *done = true;
    return BAUTA_OK;
}

/* Whether the request should begin alone now; else it has begun with another,
 * or waits for one. */
static bauta_status share_or_wait(bauta_generator *g, size_t at, bool *alone,
                                  bauta_error *err)
{
    bt_request *r = g->running[at];
    match m = { 0 };
    bool done = false;
    *alone = true;
    if (!match_find(&m, g, r, at))
        return BAUTA_OK;
    bool reading = m.ready < m.common || !m.sequence;
    if (reading && (r->source_count || m.common - m.ready >= WORTH_WAITING)) {
        *alone = false;
        return BAUTA_OK;
    }
    if (!m.sequence || (m.ready == 0 && !r->source_count))
        return BAUTA_OK;
    bauta_status status = share(g, r, &m, &done, err);
    *alone = !done;
    return status;
}

/* ---- beginning --------------------------------------------------------- */

/* Those whose sources are read in this step. */
typedef struct readers {
    size_t count;
    bt_request **requests;
    const uint32_t **sources;
    size_t *lengths;
    bt_memory **memories;
} readers;

static bauta_status readers_init(readers *all, size_t most, bauta_error *err)
{
    *all = (readers){ 0 };
    all->requests = bt_alloc_zero(most, sizeof(*all->requests));
    all->sources = bt_alloc_zero(most, sizeof(*all->sources));
    all->lengths = bt_alloc_zero(most, sizeof(*all->lengths));
    all->memories = bt_alloc_zero(most, sizeof(*all->memories));
    if (!all->requests || !all->sources || !all->lengths || !all->memories)
        return bt_fail_memory(err, "sources", most * sizeof(*all->sources));
    return BAUTA_OK;
}

static void readers_release(readers *all)
{
    for (size_t i = 0; all->memories && i < all->count; i++)
        bt_memory_drop(all->memories[i]);
    bt_free(all->requests);
    bt_free(all->sources);
    bt_free(all->lengths);
    bt_free(all->memories);
}

/* Sources in one pass, and a sequence for each. */
static bauta_status readers_run(bauta_generator *g, readers *all,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (all->count == 0)
        return BAUTA_OK;
    if (all->sources[0])
        status = bt_stage_encode(g->stage, all->count, all->sources,
                                 all->lengths, all->memories, err);
    for (size_t i = 0; i < all->count && !status; i++) {
        bt_request *r = all->requests[i];
        status = bt_sequence_create(&r->sequences[0], g->stage,
                                    all->memories[i], err);
        if (!status)
            bt_sequence_slide(r->sequences[0], r->options.sliding_window);
    }
    return status;
}

/* Everyone who runs and has no sequence yet. Sources count as prompts do: no
 * more than so many tokens in one step, but one in any case. */
static bauta_status begin(bauta_generator *g, bauta_error *err)
{
    readers all;
    size_t tokens = 0, at = 0;
    while (at < g->running_count && g->running[at]->sequences[0])
        at++;
    if (at == g->running_count)
        return BAUTA_OK;
    bauta_status status = readers_init(&all, g->running_count, err);
    for (size_t i = at; i < g->running_count && !status; i++) {
        bt_request *r = g->running[i];
        bool alone;
        if (r->sequences[0])
            continue;
        status = share_or_wait(g, i, &alone, err);
        if (status || !alone)
            continue;
        if (all.count &&
            bt_size_add(tokens, r->source_count) > g->options.prompt_tokens)
            break;
        tokens += r->source_count;
        all.requests[all.count] = r;
        all.sources[all.count] = r->source_count ? r->source : NULL;
        all.lengths[all.count++] = r->source_count;
    }
    if (!status)
        status = readers_run(g, &all, err);
    readers_release(&all);
    return status;
}

/* ---- admission --------------------------------------------------------- */

static bool fits(const bauta_generator *g, const bt_request *r)
{
    uint64_t bound = bt_stage_bound(g->stage);
    return !bound || r->cost <= bound - g->reserved;
}

/* Make room for the request among what is kept. */
static void crowd_out(bauta_generator *g, const bt_request *r)
{
    uint64_t bound = bt_stage_bound(g->stage);
    while (bound && g->kept_cost > bound - g->reserved - r->cost &&
           bt_generator_forget(g))
        ;
}

bauta_status bt_generator_admit(bauta_generator *g, bauta_error *err)
{
    for (bt_request *r; (r = g->queue);) {
        if (r->options.beams > g->options.sequences - g->sequences ||
            !fits(g, r))
            break;
        bauta_status status = bt_request_start(r, g->tokenizer, err);
        if (!status)
            status =
                bt_generator_desks(g, r->search.wide, r->options.beams, err);
        if (!status &&
            BT_ROOM(g->running, g->running_room, g->running_count, 1))
            status = bt_fail_memory(err, "requests", sizeof(r));
        if (status)
            return status;
        crowd_out(g, r);
        g->queue = r->after;
        if (!g->queue)
            g->queue_end = &g->queue;
        g->queued--;
        g->running[g->running_count++] = r;
        g->sequences += r->options.beams;
        g->reserved += r->cost;
    }
    return begin(g, err);
}

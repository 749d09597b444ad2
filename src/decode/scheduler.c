/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c - which requests run, and which prefixes they share.
 *
 * A request starts when the most memory that it can need fits beside the most
 * that the running requests can need, so none is ever preempted. Requests start
 * in the order of arrival. */
#include "decode/generator.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* A request waits for another one that is still reading a common prefix, if at
 * least this many tokens of it are missing. */
enum { WORTH_WAITING = 16 };

/* Sources of waiting requests are encoded with those of starting ones, until
 * there are so many: each would read all weights for a product of few rows. */
enum { ENCODE_TOKENS = 512, ENCODE_SOURCES = 32 };

/* ---- prefix cache ------------------------------------------------------ */

static void prefix_release(bt_prefix_entry *entry)
{
    bt_sequence_free(entry->sequence);
    bt_free(entry->ids);
    bt_free(entry->source);
}

bool bt_generator_evict_prefix(bauta_generator *g)
{
    size_t oldest = 0;
    if (g->prefix_count == 0)
        return false;
    for (size_t i = 1; i < g->prefix_count; i++)
        if (g->prefixes[i].used < g->prefixes[oldest].used)
            oldest = i;
    g->prefix_cost -= g->prefixes[oldest].cost;
    prefix_release(&g->prefixes[oldest]);
    g->prefixes[oldest] = g->prefixes[--g->prefix_count];
    return true;
}

void bt_generator_cache_prefix(bauta_generator *g, bt_request *r)
{
    bt_sequence *sequence = r->sequences ? r->sequences[0] : NULL;
    if (!g->options.cached_sequences || !sequence)
        return;
    // With beam search, only the prompt's part of the sequence is known.
    size_t count = bt_sequence_tokens(sequence);
    if (r->options.num_beams > 1 && bt_sequence_truncate(sequence, r->prompt))
        count = r->prompt;
    count = bt_size_min(count, r->count);
    if (g->prefix_count == g->options.cached_sequences)
        bt_generator_evict_prefix(g);
    g->prefixes[g->prefix_count] = (bt_prefix_entry){
        .sequence = sequence,
        .ids = r->ids,
        .count = count,
        .source = r->source,
        .source_count = r->source_count,
        .window = r->options.sliding_window,
        .cost = bt_decode_session_cost(g->session, bt_sequence_tokens(sequence),
                                       r->source_count),
        .used = g->steps,
    };
    g->prefix_cost += g->prefixes[g->prefix_count++].cost;
    r->sequences[0] = NULL;
    r->ids = r->source = NULL;
}

/* ---- sharing ----------------------------------------------------------- */

/* A sequence that has a prefix in common with a request. */
typedef struct match {
    const bt_sequence *sequence; /* NULL: not started yet */
    size_t common;               /* prompt tokens, the last one excluded */
    size_t ready;                /* of these, already in the sequence */
    bt_prefix_entry *entry;      /* the cache entry, or NULL */
} match;

static size_t common_prefix(const bt_request *r, const uint32_t *ids,
                            size_t count)
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

/* Find the longest match among the cached prefixes and the running requests
 * before index `before`. */
static bool match_find(match *best, bauta_generator *g, const bt_request *r,
                       size_t before)
{
    bool found = false;
    for (size_t i = 0; i < g->prefix_count; i++) {
        bt_prefix_entry *entry = &g->prefixes[i];
        if (entry->window != r->options.sliding_window ||
            !same_source(r, entry->source, entry->source_count))
            continue;
        size_t common = common_prefix(r, entry->ids, entry->count);
        match_better(best, &found,
                     (match){ entry->sequence, common, common, entry });
    }
    for (size_t i = 0; i < before; i++) {
        const bt_request *o = g->running[i];
        const bt_sequence *sequence = o->sequences[0];
        if (o->options.sliding_window != r->options.sliding_window ||
            !same_source(r, o->source, o->source_count))
            continue;
        // With beam search, `ids` has the prompt only.
        size_t common = common_prefix(
            r, o->ids, o->options.num_beams > 1 ? o->prompt : o->count);
        size_t ready = sequence ? bt_sequence_tokens(sequence) : 0;
        match_better(
            best, &found,
            (match){ sequence, common, bt_size_min(ready, common), NULL });
    }
    return found && (best->common > 0 || r->source_count > 0);
}

/* Fork the matching sequence. *done: the request has a sequence now. A window
 * may have released keys that are needed; then the prompt is read from scratch.
 */
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
    bt_cross_kv_release(r->cross_kv);
    r->cross_kv = NULL;
    r->prompt_read = m->ready;
    r->cached_tokens = r->source_count ? r->source_count : m->ready;
    if (m->entry)
        m->entry->used = g->steps;
    *done = true;
    return BAUTA_OK;
}

/* Share a prefix if possible. *alone: the request should start from scratch;
 * otherwise it has a fork, or it waits for another request. */
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

/* ---- starting ---------------------------------------------------------- */

/* The requests whose sources are encoded in this step. */
typedef struct encode_batch {
    size_t count, tokens;
    bt_request **requests;
    const uint32_t **sources;
    size_t *lengths;
    bt_cross_kv **cross_kvs;
} encode_batch;

static bauta_status encode_batch_init(encode_batch *all, size_t most,
                                      bauta_error *err)
{
    *all = (encode_batch){ 0 };
    all->requests = bt_alloc_zero(most, sizeof(*all->requests));
    all->sources = bt_alloc_zero(most, sizeof(*all->sources));
    all->lengths = bt_alloc_zero(most, sizeof(*all->lengths));
    all->cross_kvs = bt_alloc_zero(most, sizeof(*all->cross_kvs));
    if (!all->requests || !all->sources || !all->lengths || !all->cross_kvs)
        return bt_fail_memory(err, "sources", most * sizeof(*all->sources));
    return BAUTA_OK;
}

static void encode_batch_release(encode_batch *all)
{
    bt_free(all->requests);
    bt_free(all->sources);
    bt_free(all->lengths);
    bt_free(all->cross_kvs);
}

/* Add a request unless there would be more than `most` tokens. The first one
 * always fits. */
static bool encode_batch_add(encode_batch *all, bt_request *r, size_t most)
{
    size_t tokens = bt_size_add(all->tokens, r->source_count);
    if (all->count && tokens > most)
        return false;
    all->tokens = tokens;
    all->requests[all->count] = r;
    all->sources[all->count] = r->source;
    all->lengths[all->count++] = r->source_count;
    return true;
}

/* Add requests that wait. Where the cache is bounded, its pages are for those
 * that run. */
static void encode_batch_add_queued(bauta_generator *g, encode_batch *all)
{
    size_t most = bt_size_min(ENCODE_TOKENS, g->options.max_batched_tokens);
    bool room = all->count && !bt_decode_session_limit(g->session);
    for (bt_request *r = g->queue; r && room && all->count < ENCODE_SOURCES;
         r = r->next) {
        const bt_request *last = all->requests[all->count - 1];
        if (!r->cross_kv && !same_source(r, last->source, last->source_count))
            room = encode_batch_add(all, r, most);
    }
}

/* Encode all sources in one pass. */
static bauta_status encode_batch_run(bauta_generator *g, encode_batch *all,
                                     bauta_error *err)
{
    if (all->count == 0)
        return BAUTA_OK;
    bauta_status status =
        bt_decode_session_encode(g->session, all->count, all->sources,
                                 all->lengths, all->cross_kvs, err);
    for (size_t i = 0; i < all->count && !status; i++)
        all->requests[i]->cross_kv = all->cross_kvs[i];
    return status;
}

/* Create the first sequence of a request, whose source is encoded. */
static bauta_status sequence_begin(bauta_generator *g, bt_request *r,
                                   bauta_error *err)
{
    bauta_status status =
        bt_sequence_create(&r->sequences[0], g->session, r->cross_kv, err);
    if (status)
        return status;
    bt_sequence_set_window(r->sequences[0], r->options.sliding_window);
    bt_cross_kv_release(r->cross_kv);
    r->cross_kv = NULL;
    return BAUTA_OK;
}

/* Start the running requests from `at` on that have no sequence yet. Source
 * tokens count against the token budget of a step, but at least one source is
 * encoded. */
static bauta_status start_from(bauta_generator *g, size_t at, encode_batch *all,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = at; i < g->running_count && !status; i++) {
        bt_request *r = g->running[i];
        bool alone;
        if (r->sequences[0])
            continue;
        status = share_or_wait(g, i, &alone, err);
        if (status || !alone)
            continue;
        if (r->cross_kv || !r->source_count)
            status = sequence_begin(g, r, err);
        else if (!encode_batch_add(all, r, g->options.max_batched_tokens))
            break;
    }
    size_t starting = all->count;
    encode_batch_add_queued(g, all);
    if (!status)
        status = encode_batch_run(g, all, err);
    for (size_t i = 0; i < starting && !status; i++)
        status = sequence_begin(g, all->requests[i], err);
    return status;
}

static bauta_status start(bauta_generator *g, bauta_error *err)
{
    encode_batch all;
    size_t at = 0;
    while (at < g->running_count && g->running[at]->sequences[0])
        at++;
    if (at == g->running_count)
        return BAUTA_OK;
    bauta_status status = encode_batch_init(
        &all, g->running_count + bt_size_min(g->queued, ENCODE_SOURCES), err);
    if (!status)
        status = start_from(g, at, &all, err);
    encode_batch_release(&all);
    return status;
}

/* ---- admission --------------------------------------------------------- */

static bool fits(const bauta_generator *g, const bt_request *r)
{
    uint64_t bound = bt_decode_session_limit(g->session);
    return !bound || r->cost_bytes <= bound - g->reserved;
}

/* Evict cached prefixes until the request fits. */
static void evict_prefixes(bauta_generator *g, const bt_request *r)
{
    uint64_t bound = bt_decode_session_limit(g->session);
    while (bound && g->prefix_cost > bound - g->reserved - r->cost_bytes &&
           bt_generator_evict_prefix(g))
        ;
}

bool bt_generator_can_start(const bauta_generator *g)
{
    const bt_request *r = g->queue;
    return r &&
           r->options.num_beams <= g->options.max_sequences - g->sequences &&
           fits(g, r);
}

bauta_status bt_generator_schedule(bauta_generator *g, bauta_error *err)
{
    for (bt_request *r; bt_generator_can_start(g);) {
        r = g->queue;
        bauta_status status = bt_request_start(r, g->tokenizer, err);
        if (!status && BT_ARRAY_RESERVE(g->running, g->running_capacity,
                                        g->running_count, 1))
            status = bt_fail_memory(err, "requests", sizeof(r));
        if (status)
            return status;
        evict_prefixes(g, r);
        g->queue = r->next;
        if (!g->queue)
            g->queue_end = &g->queue;
        g->queued--;
        g->running[g->running_count++] = r;
        g->sequences += r->options.num_beams;
        g->reserved += r->cost_bytes;
    }
    return start(g, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c - one token after another, and the parallel pass. */
#include "audit/stage.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- a token or a piece at a time -------------------------------------- */

static bauta_status pieces_try(bt_auditing *a, bt_double *d, bt_piece_fn *piece,
                               bt_fault *fault, bauta_error *err)
{
    bt_readings read;
    bt_states want = { 0 };
    bt_cast cast;
    bauta_status status = bt_cast_possible(a, err);
    if (!status)
        status = bt_readings_plain(&read, &a->read, err);
    if (status)
        return status;
    status = bt_states_of(&want, a->context, d, &read, true, err);
    if (!status)
        status = bt_cast_init(&cast, a, d, &read, 1, err);
    if (!status) {
        status =
            bt_cast_read(&cast, a, &read, piece, &want, NULL, 0, fault, err);
        bt_cast_release(&cast);
    }
    bt_states_release(&want);
    bt_readings_release(&read);
    return status;
}

bauta_status bt_try_steps(bt_auditing *a, bt_double *d, bt_fault *fault,
                          bauta_error *err)
{
    return pieces_try(a, d, bt_piece_single, fault, err);
}

bauta_status bt_try_pieces(bt_auditing *a, bt_double *d, bt_fault *fault,
                           bauta_error *err)
{
    return pieces_try(a, d, bt_piece_several, fault, err);
}

/* ---- forks ------------------------------------------------------------- */

enum { BEAMS = 3 };

/* Which of the beams each one goes on from, step after step. */
static const size_t parents[][BEAMS] = {
    { 0, 1, 2 }, { 1, 0, 0 }, { 2, 1, 1 }, { 0, 2, 2 }, { 1, 2, 0 },
};

/* Beams of all readings. What each has read is kept with a digest of the logits
 * behind every token, and both go along when a beam forks. */
typedef struct tree {
    bt_auditing *a;
    const bt_double *d;
    const bt_reading *r;
    bt_cast cast;
    size_t longest;
    uint32_t *ids;     /* (beams, longest) */
    uint64_t *digests; /* (beams, longest) */
    uint32_t *spare;   /* as large, to change places */
    uint64_t *spare_digests;
} tree;

static uint64_t digest(const float *numbers, size_t count)
{
    const unsigned char *bytes = (const unsigned char *)numbers;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count * sizeof(*numbers); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Every beam of a reading is exchanged for a fork of its parent. */
static bauta_status reading_fork(tree *t, size_t s, size_t step,
                                 bauta_error *err)
{
    const size_t *from = parents[step % BT_LEN(parents)];
    bt_sequence *forks[BEAMS] = { NULL }, **old;
    bauta_status status = BAUTA_OK;
    old = t->cast.sequences + s * BEAMS;
    for (size_t b = 0; !status && b < BEAMS; b++)
        status = bt_sequence_fork(&forks[b], old[from[b]], err);
    for (size_t b = 0; b < BEAMS; b++) {
        bt_sequence *gone = status ? forks[b] : old[b];
        if (gone)
            bt_sequence_free(gone);
        if (status)
            continue;
        old[b] = forks[b];
        size_t to = (s * BEAMS + b) * t->longest;
        size_t of = (s * BEAMS + from[b]) * t->longest;
        memcpy(t->spare + to, t->ids + of, t->longest * sizeof(*t->ids));
        memcpy(t->spare_digests + to, t->digests + of,
               t->longest * sizeof(*t->digests));
    }
    return status;
}

static bauta_status forks_make(tree *t, size_t step, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t s = 0; !status && s < t->r->count; s++)
        status = reading_fork(t, s, step, err);
    uint32_t *ids = t->ids;
    uint64_t *digests = t->digests;
    t->ids = t->spare;
    t->digests = t->spare_digests;
    t->spare = ids;
    t->spare_digests = digests;
    return status;
}

/* Read what is not there, and turn back; or, where a window has let go of what
 * would be needed, go on with one that did not. */
static bauta_status stray(tree *t, size_t s, size_t step, bauta_error *err)
{
    const bt_blueprint *print = &t->d->model.print;
    bt_sequence **at = &t->cast.sequences[s * BEAMS], *kept;
    uint32_t ids[2] = { t->r->ids[0], t->r->ids[0] };
    if (step + 2 > print->max_positions || !print->decoder.layers)
        return BAUTA_OK;
    bauta_status status = bt_sequence_fork(&kept, *at, err);
    if (status)
        return status;
    ids[0] = bt_other_token(t->a, ids[0], 977);
    bt_feed feed = { .sequence = *at, .count = 2, .ids = ids };
    status = bt_stage_feed(t->cast.stage, &feed, 1, err);
    if (!status && !bt_sequence_truncate(*at, step)) {
        bt_sequence *gone = *at;
        *at = kept;
        kept = gone;
    }
    bt_sequence_free(kept);
    return status;
}

static bauta_status strays(tree *t, size_t step, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t s = 0; !status && s < t->r->count; s++)
        if (step < t->r->lengths[s])
            status = stray(t, s, step, err);
    return status;
}

/* One token for every beam of every reading that has one left. */
static bauta_status tree_step(tree *t, size_t step, bauta_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < t->cast.count; i++) {
        size_t s = i / BEAMS, b = i % BEAMS;
        if (step >= t->r->lengths[s])
            continue;
        uint32_t id = t->r->ids[t->r->starts[s] + step];
        uint32_t *to = &t->ids[i * t->longest + step];
        *to = b ? bt_other_token(t->a, id, step * BEAMS + b) : id;
        t->cast.feeds[count] =
            (bt_feed){ .sequence = t->cast.sequences[i],
                       .count = 1,
                       .ids = to,
                       .logits = t->cast.logits + count * t->cast.stride };
        count++;
    }
    bauta_status status =
        bt_stage_feed(t->cast.stage, t->cast.feeds, count, err);
    for (size_t f = 0; !status && f < count; f++) {
        size_t at = (size_t)(t->cast.feeds[f].ids - t->ids);
        t->digests[at] = digest(t->cast.feeds[f].logits, t->cast.vocabulary);
    }
    return status;
}

static bauta_status tree_grow(tree *t, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t step = 0; !status && step < t->longest; step++) {
        // Beams that have ended change places as well, which does no harm.
        status = forks_make(t, step, err);
        if (!status && (step == t->longest / 2 || step == 3))
            status = strays(t, step, err);
        if (!status)
            status = tree_step(t, step, err);
    }
    return status;
}

/* ---- against the parallel pass ----------------------------------------- */

/* What the beams have read, as a batch. */
static bauta_status tree_readings(const tree *t, const bt_readings *from,
                                  bt_readings *to, bauta_error *err)
{
    size_t *list = bt_alloc_zero(t->cast.count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of beams", t->cast.count);
    for (size_t i = 0; i < t->cast.count; i++)
        list[i] = i / BEAMS;
    bauta_status status = bt_readings_pick(to, from, list, t->cast.count, err);
    bt_free(list);
    for (size_t i = 0; !status && i < t->cast.count; i++)
        if (to->target.lengths[i])
            memcpy(to->target.ids + to->target.starts[i],
                   t->ids + i * t->longest,
                   to->target.lengths[i] * sizeof(*t->ids));
    return status;
}

static void tree_compare(const tree *t, const bt_readings *all,
                         const bt_states *want, bt_fault *fault)
{
    for (size_t row = 0; row < all->target.rows; row++) {
        size_t i = all->target.sequence[row];
        size_t at = bt_reading_position(&all->target, row);
        bt_fault found = BT_FAULT_INIT;
        t->a->compared++;
        if (t->digests[i * t->longest + at] ==
            digest(want->logits + row * want->vocabulary, want->vocabulary))
            continue;
        found.found = found.target = true;
        found.row = t->r->starts[i / BEAMS] + at;
        bt_fault_keep(fault, &found);
    }
}

static bool tree_take(tree *t)
{
    for (size_t s = 0; s < t->r->count; s++)
        t->longest = bt_size_max(t->longest, t->r->lengths[s]);
    size_t count = bt_size_mul(t->cast.count, t->longest);
    t->ids = bt_alloc_zero(count, sizeof(*t->ids));
    t->spare = bt_alloc_zero(count, sizeof(*t->spare));
    t->digests = bt_alloc_zero(count, sizeof(*t->digests));
    t->spare_digests = bt_alloc_zero(count, sizeof(*t->spare_digests));
    return t->ids && t->spare && t->digests && t->spare_digests;
}

static bauta_status tree_try(tree *t, const bt_double *d,
                             const bt_readings *read, bt_fault *fault,
                             bauta_error *err)
{
    bt_readings all;
    bt_states want = { 0 };
    if (!tree_take(t))
        return bt_fail_memory(err, "what beams have read", t->longest);
    bauta_status status = tree_grow(t, err);
    if (!status)
        status = tree_readings(t, read, &all, err);
    if (status)
        return status;
    status = bt_states_of(&want, t->a->context, d, &all, true, err);
    if (!status)
        tree_compare(t, &all, &want, fault);
    bt_states_release(&want);
    bt_readings_release(&all);
    return status;
}

bauta_status bt_try_forks(bt_auditing *a, bt_double *d, bt_fault *fault,
                          bauta_error *err)
{
    bt_readings read;
    tree t = { .a = a, .d = d };
    bauta_status status = bt_cast_possible(a, err);
    if (!status)
        status = bt_readings_plain(&read, &a->read, err);
    if (status)
        return status;
    t.r = &read.target;
    status = bt_cast_init(&t.cast, a, d, &read, BEAMS, err);
    if (!status)
        status = tree_try(&t, d, &read, fault, err);
    bt_free(t.ids);
    bt_free(t.spare);
    bt_free(t.digests);
    bt_free(t.spare_digests);
    bt_cast_release(&t.cast);
    bt_readings_release(&read);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - sequences on a stage. */
#include "audit/stage.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* ---- a cast ------------------------------------------------------------ */

static bauta_status sources_read(bt_cast *cast, const bt_reading *source,
                                 bauta_error *err)
{
    size_t n = source->count;
    const uint32_t **ids = bt_alloc_zero(n, sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "sources", n);
    for (size_t s = 0; s < n; s++)
        ids[s] = source->ids + source->starts[s];
    bauta_status status = bt_stage_encode(cast->stage, n, ids, source->lengths,
                                          cast->memories, err);
    bt_free(ids);
    return status;
}

static bool cast_take(bt_cast *cast, size_t sources, size_t sequences)
{
    cast->count = sequences;
    cast->memories = bt_alloc_zero(sources, sizeof(*cast->memories));
    cast->sequences = bt_alloc_zero(sequences, sizeof(*cast->sequences));
    cast->feeds = bt_alloc_zero(sequences, sizeof(*cast->feeds));
    cast->logits =
        bt_alloc_zero(bt_size_mul(sequences, cast->stride), sizeof(float));
    return cast->memories && cast->sequences && cast->feeds && cast->logits;
}

bauta_status bt_cast_init(bt_cast *cast, bt_auditing *a, const bt_double *d,
                          const bt_readings *read, size_t each,
                          bauta_error *err)
{
    size_t readings = read->target.count;
    *cast = (bt_cast){ .vocabulary = d->original->print.vocab };
    // With another table a stage takes the vocabulary for larger or smaller
    // than the head is; then rows of logits must not seem to touch.
    cast->stride = cast->vocabulary;
    if (d->model.print.vocab != cast->vocabulary)
        cast->stride += d->model.print.vocab + 1;
    bauta_status status =
        bt_stage_create(&cast->stage, a->context, &d->handle, 0, err);
    if (!status && !cast_take(cast, readings, readings * each))
        status = bt_fail_memory(err, "sequences of an audit", readings * each);
    if (!status && read->source.count)
        status = sources_read(cast, &read->source, err);
    for (size_t i = 0; !status && i < cast->count; i++)
        status = bt_sequence_create(&cast->sequences[i], cast->stage,
                                    cast->memories[i / each], err);
    for (size_t s = 0; cast->memories && s < readings; s++) {
        if (cast->memories[s])
            bt_memory_drop(cast->memories[s]); // the sequences keep it
        cast->memories[s] = NULL;
    }
    if (status)
        bt_cast_release(cast);
    return status;
}

void bt_cast_release(bt_cast *cast)
{
    for (size_t i = 0; cast->sequences && i < cast->count; i++)
        if (cast->sequences[i])
            bt_sequence_free(cast->sequences[i]);
    bt_free(cast->sequences);
    bt_free(cast->memories);
    bt_free(cast->feeds);
    bt_free(cast->logits);
    if (cast->stage)
        bt_stage_free(cast->stage);
    *cast = (bt_cast){ 0 };
}

bauta_status bt_cast_possible(const bt_auditing *a, bauta_error *err)
{
    const bt_readings *r = &a->read;
    if (!r->target.count)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "an encoder reads everything at once");
    for (size_t s = 0; s < r->target.count; s++)
        if (!r->target.lengths[s] || (r->source.count && !r->source.lengths[s]))
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "sequence %zu has no tokens to begin with", s);
    return BAUTA_OK;
}

bauta_status bt_readings_plain(bt_readings *to, const bt_readings *from,
                               bauta_error *err)
{
    bt_readings bare = *from;
    size_t count = from->target.count;
    size_t *list = bt_alloc_zero(count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    for (size_t s = 0; s < count; s++)
        list[s] = s;
    bare.source.mask = bare.target.mask = bare.cross = (bt_grid){ 0 };
    bare.source.prefixes = bare.target.prefixes = NULL;
    bauta_status status = bt_readings_pick(to, &bare, list, count, err);
    bt_free(list);
    return status;
}

/* ---- reading ----------------------------------------------------------- */

size_t bt_piece_single(size_t step)
{
    (void)step;
    return 1;
}

/* Of all sizes, and across the border of a page. */
size_t bt_piece_several(size_t step)
{
    static const size_t sizes[] = { 5, 1, 60, 2, 1, 16 };
    return sizes[step % BT_LEN(sizes)];
}

/* The feeds of all sequences that have tokens left; how many. */
static size_t feeds_fill(bt_cast *cast, const bt_reading *r, size_t piece)
{
    size_t count = 0;
    for (size_t s = 0; s < cast->count; s++) {
        size_t done = bt_sequence_tokens(cast->sequences[s]);
        if (done == r->lengths[s])
            continue;
        cast->feeds[count] =
            (bt_feed){ .sequence = cast->sequences[s],
                       .count = bt_size_min(piece, r->lengths[s] - done),
                       .ids = r->ids + r->starts[s] + done,
                       .logits = cast->logits + count * cast->stride };
        count++;
    }
    return count;
}

static bool row_right(const float *got, size_t row, const bt_states *want,
                      const bt_law *law, size_t poisoned, bool *blind)
{
    if (want)
        return memcmp(got, want->logits + row * want->vocabulary,
                      want->vocabulary * sizeof(*got)) == 0;
    *blind = bt_law_reaches(law, true, law->decoder, row, true, poisoned);
    return *blind == (bool)isnan(got[0]);
}

bauta_status bt_cast_read(bt_cast *cast, bt_auditing *a,
                          const bt_readings *read, bt_piece_fn *piece,
                          const bt_states *want, const bt_law *law,
                          size_t poisoned, bt_fault *fault, bauta_error *err)
{
    const bt_reading *r = &read->target;
    bauta_status status = BAUTA_OK;
    for (size_t step = 0;; step++) {
        size_t count = feeds_fill(cast, r, piece(step));
        if (!count)
            return BAUTA_OK;
        status = bt_stage_feed(cast->stage, cast->feeds, count, err);
        if (status)
            return status;
        for (size_t f = 0; f < count; f++) {
            const bt_feed *feed = &cast->feeds[f];
            bt_fault found = BT_FAULT_INIT;
            found.found = found.target = true;
            found.row = (size_t)(feed->ids - r->ids) + feed->count - 1;
            a->compared++;
            if (!row_right(feed->logits, found.row, want, law, poisoned,
                           &found.blind))
                bt_fault_keep(fault, &found);
        }
    }
}

/* ---- which key --------------------------------------------------------- */

static bauta_status key_try(bt_auditing *a, bt_double *d,
                            const bt_readings *read, bt_piece_fn *piece,
                            size_t key, bt_fault *fault, bauta_error *err)
{
    bt_cast cast;
    bt_law law;
    bauta_status status = bt_law_init(&law, &d->model.print, read, err);
    if (status)
        return status;
    status = bt_cast_init(&cast, a, d, read, 1, err);
    if (!status) {
        status =
            bt_cast_read(&cast, a, read, piece, NULL, &law, key, fault, err);
        bt_cast_release(&cast);
    }
    bt_law_release(&law);
    return status;
}

bauta_status bt_key_find(bt_auditing *a, size_t encoder, size_t decoder,
                         bt_piece_fn *piece, bt_fault *fault, bauta_error *err)
{
    bt_readings read;
    bt_double d;
    bt_fault found = BT_FAULT_INIT;
    size_t sources = a->read.source.rows, key;
    bauta_status status = bt_readings_plain(&read, &a->read, err);
    if (status)
        return status;
    for (size_t i = 0; i < read.source.rows; i++)
        read.source.ids[i] = (uint32_t)i;
    for (size_t i = 0; i < read.target.rows; i++)
        read.target.ids[i] = (uint32_t)(sources + i);
    for (key = 0; !status && !found.found && key < read.target.rows; key++) {
        status = bt_double_init(&d, a->model, err);
        if (status)
            break;
        bt_double_cut(&d, encoder, decoder);
        status = bt_poison_table(&d, &a->read, err);
        read.target.ids[key] = (uint32_t)(sources + read.target.rows);
        if (!status)
            status = key_try(a, &d, &read, piece, key, &found, err);
        read.target.ids[key] = (uint32_t)(sources + key);
        bt_double_release(&d);
    }
    if (found.found) {
        fault->row = found.row;
        fault->key = key - 1;
        fault->key_target = true;
        fault->blind = found.blind;
    }
    bt_readings_release(&read);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* law.c - what must be. */
#include "audit/law.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- a layer ----------------------------------------------------------- */

/* Whether a decoder's row may see a key of its sequence. */
static bool causal(const bt_reading *r, size_t row, size_t key, size_t window)
{
    size_t i = bt_reading_position(r, row), j = bt_reading_position(r, key);
    size_t prefix = r->prefixes ? r->prefixes[r->sequence[row]] : 0;
    if (i < prefix && j < prefix)
        return true;
    return j <= i && (!window || i - j < window);
}

static bauta_status self_init(bt_grid *grid, const bt_reading *r, bool decoder,
                              size_t window, bauta_error *err)
{
    bauta_status status = bt_grid_init(grid, r->rows, r->rows, err);
    for (size_t i = 0; !status && i < r->rows; i++)
        for (size_t j = 0; j < r->rows; j++)
            if (r->sequence[i] == r->sequence[j] &&
                (!r->mask.bits || bt_grid_get(&r->mask, i, j)) &&
                (!decoder || causal(r, i, j, window)))
                bt_grid_set(grid, i, j);
    return status;
}

static bauta_status across_init(bt_grid *grid, const bt_readings *read,
                                bauta_error *err)
{
    const bt_reading *t = &read->target, *s = &read->source;
    bauta_status status = bt_grid_init(grid, t->rows, s->rows, err);
    for (size_t i = 0; !status && i < t->rows; i++)
        for (size_t j = 0; j < s->rows; j++)
            if (t->sequence[i] == s->sequence[j] &&
                (!read->cross.bits || bt_grid_get(&read->cross, i, j)))
                bt_grid_set(grid, i, j);
    return status;
}

/* ---- through layers ---------------------------------------------------- */

/* to = from, and what every row sees in it. */
static bauta_status through(bt_grid *to, const bt_grid *from,
                            const bt_grid *sees, bauta_error *err)
{
    bauta_status status = bt_grid_init(to, from->rows, from->keys, err);
    if (status)
        return status;
    memcpy(to->bits, from->bits, to->rows * to->words * sizeof(*to->bits));
    for (size_t i = 0; i < to->rows; i++)
        bt_grid_add(to, i, sees, from);
    return BAUTA_OK;
}

static bauta_status identity(bt_grid *grid, size_t rows, bauta_error *err)
{
    bauta_status status = bt_grid_init(grid, rows, rows, err);
    for (size_t i = 0; !status && i < rows; i++)
        bt_grid_set(grid, i, i);
    return status;
}

static bauta_status encoder_init(bt_law *law, const bt_reading *r,
                                 bauta_error *err)
{
    bauta_status status = self_init(&law->both_ways, r, false, 0, err);
    if (!status)
        status = identity(&law->in_encoder[0], r->rows, err);
    for (size_t l = 0; !status && l < law->encoder; l++)
        status = through(&law->in_encoder[l + 1], &law->in_encoder[l],
                         &law->both_ways, err);
    return status;
}

static bauta_status decoder_init(bt_law *law, const bt_reading *r,
                                 size_t window, bauta_error *err)
{
    bauta_status status = self_init(&law->sees, r, true, 0, err);
    if (!status)
        status = self_init(&law->narrow, r, true, window, err);
    if (!status)
        status = identity(&law->in_decoder[0], r->rows, err);
    for (size_t l = 0; !status && l < law->decoder; l++)
        status = through(&law->in_decoder[l + 1], &law->in_decoder[l],
                         bt_law_sees(law, true, l), err);
    return status;
}

/* Self-attention passes on what came before; then the layer sees the source. */
static bauta_status source_init(bt_law *law, const bt_readings *read,
                                bauta_error *err)
{
    bauta_status status = across_init(&law->across, read, err);
    if (!status)
        status = bt_grid_init(&law->from_source[0], read->target.rows,
                              read->source.rows, err);
    for (size_t l = 0; !status && l < law->decoder; l++) {
        bt_grid *to = &law->from_source[l + 1];
        status =
            through(to, &law->from_source[l], bt_law_sees(law, true, l), err);
        for (size_t i = 0; !status && i < to->rows; i++)
            bt_grid_add(to, i, &law->across, &law->in_encoder[law->encoder]);
    }
    return status;
}

bauta_status bt_law_init(bt_law *law, const bt_blueprint *print,
                         const bt_readings *read, bauta_error *err)
{
    *law = (bt_law){ .encoder = print->encoder.layers,
                     .decoder = print->decoder.layers };
    law->window_from = print->window ? print->window_from : SIZE_MAX;
    law->in_encoder = bt_alloc_zero(law->encoder + 1, sizeof(bt_grid));
    law->in_decoder = bt_alloc_zero(law->decoder + 1, sizeof(bt_grid));
    law->from_source = bt_alloc_zero(law->decoder + 1, sizeof(bt_grid));
    bauta_status status = BAUTA_OK;
    if (!law->in_encoder || !law->in_decoder || !law->from_source)
        status = bt_fail_memory(err, "what an audit expects", 0);
    if (!status && read->source.count)
        status = encoder_init(law, &read->source, err);
    if (!status && read->target.count)
        status = decoder_init(law, &read->target, print->window, err);
    if (!status && read->source.count && read->target.count)
        status = source_init(law, read, err);
    if (status)
        bt_law_release(law);
    return status;
}

static void grids_free(bt_grid *grids, size_t count)
{
    for (size_t i = 0; grids && i < count; i++)
        bt_grid_release(&grids[i]);
    bt_free(grids);
}

void bt_law_release(bt_law *law)
{
    bt_grid_release(&law->sees);
    bt_grid_release(&law->narrow);
    bt_grid_release(&law->both_ways);
    bt_grid_release(&law->across);
    grids_free(law->in_encoder, law->encoder + 1);
    grids_free(law->in_decoder, law->decoder + 1);
    grids_free(law->from_source, law->decoder + 1);
    *law = (bt_law){ 0 };
}

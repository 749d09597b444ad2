/* SPDX-License-Identifier: Apache-2.0 */
/* work_list.c - from a plan to what the GPU kernels read.
 *
 * One walk over the plan, made twice: first with no arrays, to count, then to
 * fill them. */
#include "mask/work_list.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN (SIZE_MAX - 1) /* beside BT_FULL: a half that is in no run */

/* A pair of blocks of one tile: where the words of its halves begin. */
typedef struct key_pair {
    size_t index; /* in the tile's grid */
    size_t half[2];
} key_pair;

static uint64_t word_of(const bauta_plan *plan, size_t words, size_t row)
{
    return words == BT_FULL  ? UINT64_MAX
           : words == HIDDEN ? 0
                             : plan->words[words + row];
}

static void fill_bits(uint64_t *bits, const bauta_plan *plan,
                      const bt_tile *tile, const key_pair *pair)
{
    for (size_t row = 0; row < tile->rows; row++)
        for (size_t h = 0; h < 2; h++)
            bits[row * 2 + h] = word_of(plan, pair->half[h], row);
}

static int32_t halves_of(const bauta_plan *plan, const bt_tile *tile,
                         const key_pair *pair)
{
    int32_t halves = 0;
    for (size_t row = 0; row < tile->rows; row++)
        for (size_t h = 0; h < 2; h++)
            if (word_of(plan, pair->half[h], row))
                halves |= 1 << (row / 64 * 2 + h);
    return halves;
}

/* Append a pair to the runs of its tile, whose first run is list->runs[run]. */
static void add_pair(bt_worklist *list, size_t run, const bauta_plan *plan,
                     const bt_tile *tile, const key_pair *pair,
                     bt_work_run *last)
{
    bool full = pair->half[0] == BT_FULL && pair->half[1] == BT_FULL;
    size_t key = plan->blocks[tile->grid].key + pair->index * BT_PAIR;
    int32_t halves = full ? -1 : halves_of(plan, tile, pair);
    bool longer = list->run_count > run && last->halves == halves &&
                  (size_t)last->key + (size_t)last->count * BT_PAIR == key;

    if (longer) {
        last->count++;
    } else {
        *last = (bt_work_run){ .key = (int32_t)key,
                               .count = 1,
                               .bits = full ? -1 : (int32_t)list->bits_count,
                               .halves = halves };
        list->run_count++;
    }
    if (list->runs)
        list->runs[list->run_count - 1] = *last;
    if (!full) {
        if (list->bits)
            fill_bits(list->bits + list->bits_count * list->tile_rows * 2, plan,
                      tile, pair);
        list->bits_count++;
    }
}

static void add_tile(bt_worklist *list, const bauta_plan *plan,
                     const bt_tile *tile, size_t row, size_t which,
                     size_t chunk)
{
    size_t run = list->run_count, pairs = 0, last_chunk = SIZE_MAX;
    key_pair pair = { SIZE_MAX, { HIDDEN, HIDDEN } };
    bt_work_run last = { 0 };

    for (size_t r = tile->run; r < tile->run + tile->runs; r++)
        for (size_t k = 0; k < plan->runs[r].count; k++) {
            size_t block = plan->runs[r].first + k;
            size_t words = plan->runs[r].words;
            if (pair.index != block / 2) {
                if (pair.index != SIZE_MAX)
                    add_pair(list, run, plan, tile, &pair, &last);
                pair.index = block / 2;
                pair.half[0] = pair.half[1] = HIDDEN;
                pairs++;
                list->chunked |= last_chunk < pair.index * BT_PAIR / chunk;
                last_chunk = pair.index * BT_PAIR / chunk;
            }
            pair.half[block % 2] =
                words == BT_FULL ? BT_FULL : words + k * tile->rows;
        }
    if (pair.index != SIZE_MAX)
        add_pair(list, run, plan, tile, &pair, &last);
    if (list->tiles)
        list->tiles[list->tile_count] =
            (bt_work_tile){ (int32_t)(row + tile->row),
                            (int32_t)tile->rows,
                            (int32_t)run,
                            (int32_t)pairs,
                            pairs ? (int32_t)plan->blocks[tile->grid].key : 0,
                            (int32_t)which };
    list->tile_count++;
    list->empty_count += pairs == 0;
}

static void walk(bt_worklist *list, const bauta_plan *const *plans,
                 const size_t *rows, size_t count, size_t chunk)
{
    list->tile_count = list->run_count = 0;
    list->bits_count = list->empty_count = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < plans[i]->tile_count; t++)
            add_tile(list, plans[i], &plans[i]->tiles[t], rows[i], i, chunk);
}

static bauta_status check_plan(const bauta_plan *plan, size_t tile_rows,
                               bauta_error *err)
{
    for (size_t t = 0; t < plan->tile_count; t++)
        if (plan->tiles[t].rows > tile_rows)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "a tile of the plan has %zu rows, the kernel's have "
                           "at most %zu",
                           plan->tiles[t].rows, tile_rows);
    // A pair may end up to 127 keys after the last one.
    if (plan->rows > INT32_MAX - BT_PAIR || plan->keys > INT32_MAX - BT_PAIR)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries over %zu keys: the GPU kernels count in "
                       "32 bits",
                       plan->rows, plan->keys);
    return BAUTA_OK;
}

/* Longest first; equal ones by row, so neighbours share keys in the cache. */
static int tile_order(const void *a, const void *b)
{
    const bt_work_tile *x = a, *y = b;
    if (x->pairs != y->pairs)
        return x->pairs > y->pairs ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

bauta_status bt_worklist_init(bt_worklist *list, const bauta_plan *const *plans,
                              const size_t *rows, size_t count,
                              size_t tile_rows, size_t chunk, bauta_error *err)
{
    *list = (bt_worklist){ .tile_rows = tile_rows };
    for (size_t i = 0; i < count; i++) {
        bauta_status status = check_plan(plans[i], tile_rows, err);
        if (status)
            return status;
        list->rows = bt_size_max(list->rows, rows[i] + plans[i]->rows);
        list->keys = bt_size_max(list->keys, plans[i]->keys);
    }

    walk(list, plans, rows, count, chunk);
    if (list->run_count > INT32_MAX || list->bits_count > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu runs and %zu partial blocks: the GPU kernels count "
                       "in 32 bits",
                       list->run_count, list->bits_count);
    size_t bits = bt_size_mul(list->bits_count, tile_rows * 2);
    list->tiles = bt_alloc_zero(list->tile_count, sizeof(bt_work_tile));
    list->runs = bt_alloc_zero(list->run_count, sizeof(bt_work_run));
    list->bits = bt_alloc_zero(bits, sizeof(uint64_t));
    if (!list->tiles || !list->runs || !list->bits) {
        bt_worklist_release(list);
        return bt_fail_memory(err, "the work list of a plan",
                              bt_size_mul(bits, sizeof(uint64_t)));
    }
    walk(list, plans, rows, count, chunk);
    qsort(list->tiles, list->tile_count, sizeof(bt_work_tile), tile_order);
    return BAUTA_OK;
}

void bt_worklist_release(bt_worklist *list)
{
    bt_free(list->tiles);
    bt_free(list->runs);
    bt_free(list->bits);
    *list = (bt_worklist){ 0 };
}

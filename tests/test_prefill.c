/* SPDX-License-Identifier: Apache-2.0 */
/* test_prefill.c - sequences with many queries in a decoding step: the work
 * lists of the forward kernel match the masks and the pages. Needs no GPU. */
#include "mask/prefill_list.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "mask/mask.h"
#include "masks.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 4, MOST = 5, TILE_ROWS = 128, CHUNK = 512 };

typedef struct batch {
    bauta_mask *mask[SEQUENCES];
    bt_decode_sequence sequence[SEQUENCES];
    uint32_t pages[SEQUENCES][32];
    size_t row[SEQUENCES];     /* where its rows begin in the step */
    size_t of_plan[SEQUENCES]; /* sequence of a plan */
    size_t plans, page_keys;
} batch;

static void batch_init(batch *b, test_random *r)
{
    size_t row = 0;
    *b = (batch){ .page_keys = (size_t)64 << test_below(r, 3) };
    for (size_t s = 0; s < SEQUENCES; s++) {
        size_t n = 1 + test_below(r, s % 2 ? 8 : 300);
        size_t m = 1 + test_below(r, 1500), first = test_below(r, n);
        // The inverse of the inverse: a mask without origins, as a cache has
        // none.
        bauta_mask *a = test_mask_random(r, n, m, 2), *inverse = NULL;
        assert_int_equal(bauta_mask_not(&inverse, a, NULL), 0);
        assert_int_equal(bauta_mask_not(&b->mask[s], inverse, NULL), 0);
        bauta_mask_free(a);
        bauta_mask_free(inverse);
        for (size_t i = 0; i < 32; i++)
            b->pages[s][i] = (uint32_t)(100 * s + 31 - i);
        b->sequence[s] =
            (bt_decode_sequence){ b->mask[s], first, n - first, b->pages[s] };
        b->row[s] = row;
        row += n - first;
        if (n - first > MOST)
            b->of_plan[b->plans++] = s;
    }
}

static void batch_release(batch *b)
{
    for (size_t s = 0; s < SEQUENCES; s++)
        bauta_mask_free(b->mask[s]);
}

/* One pair of blocks of a tile: each row sees what its mask shows, in the right
 * page. */
static void check_pair(const batch *b, const bt_prefill *p,
                       const bt_work_tile *tile, const bt_work_run *run,
                       size_t k, size_t *visible)
{
    size_t s = b->of_plan[tile->plan], per_page = b->page_keys;
    const bt_decode_sequence *sequence = &b->sequence[s];
    const int32_t *table = p->table + p->start[tile->plan];
    for (size_t i = 0; i < (size_t)tile->rows; i++) {
        size_t row = (size_t)tile->row + i - b->row[s];
        for (size_t j = 0; j < BT_PAIR; j++) {
            size_t key = (size_t)run->key + k * BT_PAIR + j;
            size_t bits = (size_t)run->bits + k;
            bool sees =
                run->bits < 0 ||
                p->list.bits[(bits * TILE_ROWS + i) * 2 + j / 64] >> (j % 64) &
                    1;
            if (!sees)
                continue;
            (*visible)++;
            assert_true(row < sequence->rows);
            assert_true(
                bauta_mask_visible(sequence->mask, sequence->first + row, key));
            assert_int_equal(table[key / per_page],
                             sequence->block_table[key / per_page]);
        }
    }
}

static void check(const batch *b, const bt_prefill *p)
{
    size_t visible = 0, want = 0, rows = 0, last = 0;
    assert_int_equal(p->count, b->plans);
    for (size_t t = 0; t < p->list.tile_count; t++) {
        const bt_work_tile *tile = &p->list.tiles[t];
        int32_t left = tile->pairs;
        rows += (size_t)tile->rows;
        assert_true((size_t)tile->plan < b->plans);
        for (int32_t r = tile->run; left > 0; r++) {
            const bt_work_run *run = &p->list.runs[r];
            for (int32_t k = 0; k < run->count; k++)
                check_pair(b, p, tile, run, (size_t)k, &visible);
            left -= run->count;
        }
    }
    for (size_t i = 0; i < b->plans; i++) {
        const bt_decode_sequence *s = &b->sequence[b->of_plan[i]];
        for (size_t row = s->first; row < s->first + s->rows; row++) {
            size_t count;
            const bauta_span *span = bauta_mask_row(s->mask, row, &count);
            for (size_t x = 0; x < count; x++) {
                want += span[x].hi - span[x].lo;
                size_t page = s->block_table[span[x].lo / b->page_keys];
                last = page + 1 > last ? page + 1 : last;
            }
            rows--;
        }
    }
    assert_int_equal(visible, want);
    assert_int_equal(rows, 0);
    assert_true(p->pages >= last);
}

static void list_matches_masks_and_pages(void **state)
{
    test_random r = test_random_from(test_seed());
    (void)state;
    for (int i = 0; i < 12; i++) {
        batch b;
        bt_prefill p;
        batch_init(&b, &r);
        assert_int_equal(bt_prefill_init(&p, b.sequence, SEQUENCES, MOST,
                                         b.page_keys, TILE_ROWS, CHUNK, NULL),
                         0);
        check(&b, &p);
        bt_prefill_release(&p);
        batch_release(&b);
    }
}

static void few_rows_need_no_list(void **state)
{
    test_random r = test_random_from(test_seed());
    batch b;
    bt_prefill p;
    (void)state;
    batch_init(&b, &r);
    assert_int_equal(bt_prefill_init(&p, b.sequence, SEQUENCES, 1000,
                                     b.page_keys, TILE_ROWS, CHUNK, NULL),
                     0);
    assert_int_equal(p.count, 0);
    assert_int_equal(p.list.tile_count, 0);
    assert_null(p.table);
    bt_prefill_release(&p);
    batch_release(&b);
}

static void allocation_failure_gives_no_list(void **state)
{
    test_random r = test_random_from(test_seed());
    bauta_error err = { 0 };
    batch b;
    bt_prefill p;
    (void)state;
    faults_begin();
    batch_init(&b, &r);
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bt_prefill_init(&p, b.sequence, SEQUENCES, MOST, b.page_keys,
                            TILE_ROWS, CHUNK, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
    }
    bt_prefill_release(&p);
    batch_release(&b);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_matches_masks_and_pages),
        cmocka_unit_test(few_rows_need_no_list),
        cmocka_unit_test(allocation_failure_gives_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

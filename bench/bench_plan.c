/* SPDX-License-Identifier: Apache-2.0 */
/* bench_plan.c - host time of masks, plans and the GPU's lists.
 *
 *     bench_plan [--best]
 *
 * What a training step on a GPU needs for every batch: a mask, the work list of
 * the forward pass and the two lists of the backward pass (heads of 128, or of
 * 64 in the last cases). Lists are made again and again in the same memory, as
 * a plan that is updated does; copying them to the GPU is not in it, their
 * bytes are. Needs no GPU. */
#include "bench.h"

#include "base/error.h"
#include "mask/bands.h"
#include "mask/batch_mask.h"
#include "mask/loop_list.h"
#include "mask/work_list.h"

enum { TURNS = 200, SEQUENCES_MOST = 64 };

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "bench_plan: %s\n", err->message);
        exit(1);
    }
}

typedef struct plan_case {
    const char *name;
    size_t sequences; /* of equal lengths; 0: of uneven ones, 16 of them */
    size_t tokens;    /* of all */
    size_t window, prefix;
    bool causal;
    size_t head_dim;
} plan_case;

static const plan_case cases[] = {
    { "causal 16k", 1, 16384, 0, 0, true, 128 },
    { "16 uneven documents, 16k", 0, 16384, 0, 0, true, 128 },
    { "window of 1,024 over 16k", 1, 16384, 1024, 0, true, 128 },
    { "prefix of 1,024 over 16k", 1, 16384, 0, 1024, true, 128 },
    { "all of 8k, twice", 2, 16384, 0, 0, false, 128 },
    { "64 sequences of 1k", 64, 65536, 0, 0, true, 128 },
    { "causal 16k, heads of 64", 1, 16384, 0, 0, true, 64 },
    { "16 uneven documents, of 64", 0, 16384, 0, 0, true, 64 },
    { "64 sequences of 1k, of 64", 64, 65536, 0, 0, true, 64 },
};

/* Lengths of 1 to about twice the mean. */
static size_t lengths_of(const plan_case *c, size_t *lengths)
{
    size_t count = c->sequences ? c->sequences : 16, left = c->tokens;
    uint32_t x = 12345;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        lengths[i] = c->sequences ? c->tokens / count
                                  : 1 + (x >> 8) % (2 * c->tokens / count);
        if (lengths[i] > left - (count - 1 - i) || i + 1 == count)
            lengths[i] = left - (count - 1 - i);
        left -= lengths[i];
    }
    return count;
}

/* As the plan of 16 heads has it, whose tiles see 2,048 rows at most. */
static bt_tile_order order_of(size_t rows, bool descending)
{
    return (bt_tile_order){ 2048 / rows, 9, descending };
}

typedef struct lists {
    bt_bands bands;
    bt_worklist work;
    bt_loop_list keys, queries;
} lists;

static double seconds_of(double *samples, size_t count, int best)
{
    return bench_time(samples, count, best) * 1e6;
}

static void run(const plan_case *c, int best)
{
    static double mask_time[TURNS], forward[TURNS], backward[TURNS];
    size_t lengths[SEQUENCES_MOST], prefixes[SEQUENCES_MOST],
        windows = c->window;
    size_t count = lengths_of(c, lengths);
    size_t tile = c->head_dim == 64 ? 192 : 128;
    lists l = { .bands = { 0 } };
    bauta_error err;
    for (size_t i = 0; i < count; i++)
        prefixes[i] = c->prefix;
    const bt_batch_mask batch = { .queries = { count, lengths, 0 },
                                  .keys = { count, lengths, 0 },
                                  .prefixes = prefixes,
                                  .causal = c->causal,
                                  .window = windows };
    for (size_t turn = 0; turn < TURNS; turn++) {
        bauta_mask *mask = NULL;
        double t0 = bench_now();
        must(bt_batch_mask_create(&mask, &batch, &err), &err);
        double t1 = bench_now();
        must(bt_bands_read(&l.bands, mask, 0, c->tokens, &err), &err);
        must(bt_worklist_begin(&l.work, tile, 4096, &err), &err);
        must(bt_worklist_add(&l.work, &l.bands, tile, 0, 0, &err), &err);
        must(bt_worklist_end(&l.work, order_of(128, false), &err), &err);
        double t2 = bench_now();
        bt_bands_mark_dense(&l.bands, &l.bands,
                            c->head_dim == 128 ? 3072 : 1024, SIZE_MAX);
        must(bt_loop_list_over_keys(&l.keys, &l.bands, tile, tile,
                                    order_of(64, false), &err),
             &err);
        must(bt_loop_list_over_queries(&l.queries, &l.bands, tile,
                                       order_of(64, true), &err),
             &err);
        double t3 = bench_now();
        bauta_mask_free(mask);
        mask_time[turn] = t1 - t0 + bench_now() - t3; // its end, too
        forward[turn] = t2 - t1;
        backward[turn] = t3 - t2;
    }
    double m = seconds_of(mask_time, TURNS, best);
    double f = seconds_of(forward, TURNS, best);
    double b = seconds_of(backward, TURNS, best);
    size_t bytes = l.work.tile_count * sizeof(bt_work_tile) +
                   l.work.run_count * sizeof(bt_work_run) +
                   l.work.bits_count * l.work.tile_rows * 16;
    bytes += (l.keys.tile_count + l.queries.tile_count) * sizeof(bt_loop_tile) +
             (l.keys.run_count + l.queries.run_count) * sizeof(bt_loop_run) +
             (l.keys.bits_count + l.queries.bits_count) * tile * 8 +
             l.queries.step_count * sizeof(bt_loop_step);
    printf("%-28s mask %5.1f  forward %5.1f  backward %5.1f  "
           "together %5.1f us, %4zu KB\n",
           c->name, m, f, b, m + f + b, bytes / 1024);
    bt_bands_release(&l.bands);
    bt_worklist_release(&l.work);
    bt_loop_list_release(&l.keys);
    bt_loop_list_release(&l.queries);
}

int main(int argc, char **argv)
{
    int best = argc == 2 && strcmp(argv[1], "--best") == 0;
    for (size_t i = 0; i < BT_LEN(cases); i++)
        run(&cases[i], best);
    return 0;
}

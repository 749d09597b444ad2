/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_task.h - a product as its kernels are given it: what gemm.c decides, and
 * what the kernels' sources carry out. */
#ifndef BT_CUDA_GEMM_TASK_H
#define BT_CUDA_GEMM_TASK_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BT_GEMM_STEP = 64 }; /* of k: 128 bytes, a swizzled row */

/* What becomes of a total. */
typedef struct bt_gemm_end {
    void *out;
    const uint16_t *bias, *slope, *residual;
    uint16_t *pre;
    size_t ldo, ld_pre, ld_slope, ld_residual;
    int m, n;
    int kind; /* 0: no activation; 1 + act; 5 + act: times its slope */
    bool out_f32, accumulate;
} bt_gemm_end;

/* Large products: workers (clusters of blocks) that each take one tile of the
 * result after another. `whole` rounds of whole tiles are dealt to all workers.
 * The `part` tiles that are left over, fewer than workers, have their first
 * `head` chunks summed by one worker each; the chunks that follow are dealt to
 * the remaining workers one at a time, or to all where head is 1. Where head is
 * less than all chunks these sums go to `partial` and are added up by the merge
 * kernel: (1 + chunks - head, part, blocks of a cluster, tile rows / 16,
 * columns / 8, lanes of a warp), four floats each, as a warp's registers hold
 * them. */
typedef struct bt_gemm_task {
    CUtensorMap a, b, out;
    bt_gemm_end end;
    float *partial;
    int steps, chunk_steps, chunks; /* of k */
    int tiles_m, tiles_n, group;    /* tiles of a cluster; see tile_at() */
    int workers, whole, part, head;
} bt_gemm_task;

/* Shapes of tiles: rows of a warpgroup in units of 64, columns, ping pong,
 * several chunks in one unit, blocks of a cluster along m and along n. All give
 * the same bits. */
#define BT_GEMM_TILES(X)               \
    X(PING192_2X1, 2, 192, 1, 0, 2, 1) \
    X(PING128_1X1, 2, 128, 1, 0, 1, 1) \
    X(COOP192_2X1, 1, 192, 0, 1, 2, 1) \
    X(COOP192_1X1, 1, 192, 0, 1, 1, 1) \
    X(COOP128_2X1, 1, 128, 0, 1, 2, 1) \
    X(COOP192_2X2, 1, 192, 0, 1, 2, 2) \
    X(COOP192_4X1, 1, 192, 0, 1, 4, 1)

#define BT_GEMM_TILE_ID(name, ...) BT_GEMM_##name,
typedef enum bt_gemm_tile {
    BT_GEMM_TILES(BT_GEMM_TILE_ID) BT_GEMM_TILE_COUNT
} bt_gemm_tile;

/* Products of few rows, with the operands exchanged: 64 rows of b's and all
 * rows of a's make a tile. The chunks of a tile are dealt to the blocks of a
 * cluster, `per` to each. */
typedef struct bt_gemm_small_task {
    CUtensorMap a, b;
    bt_gemm_end end;
    int steps, chunk_steps, chunks;
    int blocks, per, stages; /* of a cluster; chunks and stages of a block */
    bool b_ready;
} bt_gemm_small_task;

/* How a product is carried out; bt_cuda_gemm chooses, checks and benches may.
 */
typedef struct bt_gemm_choice {
    bool small;
    bt_gemm_tile tile;
    int head;   /* chunks that a tile's first worker sums; 0: all of them,
                 * -1: as seems best */
    int group;  /* 0: as seems best; see bt_gemm_task */
    int blocks; /* small: of a cluster; 1, 2, 4 or 8 */
    int chunk;  /* 0: the library's; another one gives other bits */
} bt_gemm_choice;

/* Of a shape of tile; NULL behind the last. chunks: it can add chunks up. */
const char *bt_gemm_tile_name(bt_gemm_tile tile, bool *chunks);
void bt_gemm_choose(bt_gemm_choice *choice, const bt_gemm *product,
                    size_t workspace_bytes, int multiprocessors);
size_t bt_gemm_choice_bytes(const bt_gemm_choice *choice,
                            const bt_gemm *product, int multiprocessors);
bauta_status bt_cuda_gemm_by(const bt_gemm_choice *choice,
                             const bt_gemm *product, void *workspace,
                             size_t workspace_bytes, void *stream,
                             bauta_error *err);

/* The kernels; they return a cudaError_t. */
typedef int bt_gemm_large_fn(bt_gemm_tile tile, const bt_gemm_task *task,
                             void *stream);
bt_gemm_large_fn bt_gemm_large_nt, bt_gemm_large_nn, bt_gemm_large_tn;
/* Clusters that the device runs at a time. */
int bt_gemm_large_workers(bt_gemm_tile tile);
/* Add up the partial sums that a task of this shape of tile has left. */
int bt_gemm_merge(bt_gemm_tile tile, const bt_gemm_task *task, void *stream);
/* rows: 8, 16, 32 or 64, at least m. */
int bt_gemm_small(bt_gemm_form form, int rows, const bt_gemm_small_task *task,
                  void *stream);
/* Of k: the unit of its steps. */
int bt_gemm_small_step(int rows);
/* Stages that fit beside the sums of so many chunks; 0: too many sums. */
int bt_gemm_small_stages(int rows, int sums);
int bt_gemm_plain(const bt_gemm *product, const bt_gemm_end *end, int chunk,
                  void *stream);

#ifdef __cplusplus
}
#endif
#endif

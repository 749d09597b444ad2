/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_task.h - a product as its kernels are given it: what gemm.c decides, and
 * what the kernels' sources carry out. */
#ifndef BT_CUDA_GEMM_TASK_H
#define BT_CUDA_GEMM_TASK_H

#include "backend/cuda/device.h"
#include "backend/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BT_GEMM_STEP = 64,       /* of k: 128 bytes, a swizzled row */
    BT_GEMM_TILE_ROWS = 128, /* of a large product's tile */
    BT_GEMM_JOINED = 4,      /* partial sums that a tile's first block adds */
    BT_GEMM_NARROW_K = 1024, /* of k that a block of the narrow kernel has */
    /* Elements of matrices that narrow tiles are chosen for: GPT-2's. Larger
     * ones keep the next kernel from fetching its weights ahead. */
    BT_GEMM_NARROW_WEIGHTS = 2400 << 10,
    BT_GEMM_TAKES_BLOCKS = 128, /* of a product that takes a norm or gate */
    /* Of shared memory that a block of the narrow kernel may ask for: all but
     * what a norm's sums take. */
    BT_GEMM_NARROW_BYTES = (227 << 10) - 512
};

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

/* Large products: workers (blocks) that each take one tile of the result after
 * another. `whole` rounds of whole tiles are dealt to all workers. The `part`
 * tiles that are left over, fewer than workers, have their first `head` chunks
 * summed by one worker each; the chunks that follow are dealt to the remaining
 * workers one at a time, or to all where head is 1. Where head is less than all
 * chunks their sums are partial: (1 + chunks - head, part, tile rows / 16,
 * columns / 8, lanes of a warp), four floats each, as a warp's registers hold
 * them. With `join` a tile's first worker adds them, else the merge kernel. */
typedef struct bt_gemm_task {
    CUtensorMap a, b, out;
    CUtensorMap side; /* pre, which is written, or slope, which is read */
    bt_gemm_end end;
    float *partial;
    int *flags; /* (part, tile rows / 16, BT_GEMM_JOINED): 0 in between */
    int steps, chunk_steps, chunks; /* of k */
    int tiles_m, tiles_n, group;    /* see tile_at() */
    int workers, whole, part, head;
    bool join;
    bool onto;   /* chunks are added to the result one by one; see gemm.h */
    bool staged; /* activations and slopes go by way of `side` */
} bt_gemm_task;

/* Shapes of tiles: columns, ping pong. All give the same bits. Ping pong is for
 * units of one chunk. */
#define BT_GEMM_TILES(X)   \
    X(PING192, 192, true)  \
    X(PING128, 128, true)  \
    X(COOP192, 192, false) \
    X(COOP128, 128, false)

#define BT_GEMM_TILE_ID(name, ...) BT_GEMM_##name,
typedef enum bt_gemm_tile {
    BT_GEMM_TILES(BT_GEMM_TILE_ID) BT_GEMM_TILE_COUNT
} bt_gemm_tile;

/* Where few rows of a come from, and what the product has to write of it; see
 * bt_cuda_gemm_args. */
typedef enum bt_gemm_source {
    BT_ROWS_GIVEN,
    BT_ROWS_NORM,
    BT_ROWS_GATED
} bt_gemm_source;

typedef struct bt_gemm_rows {
    const uint16_t *x, *with; /* with: the norm's residual, or NULL; or up */
    uint16_t *sum, *y;
    size_t ldx, ld_with, ld_sum, ld_y;
    const uint16_t *gain, *bias; /* bias may be NULL */
    float *mean, *scale;
    float inverse, epsilon;
    int m, k;
    bool rms;
    bt_act act;
} bt_gemm_rows;

/* A gated activation that a product of few rows carries out with its result;
 * see bt_cuda_gemm_args. */
typedef struct bt_gemm_gate {
    uint16_t *y;
    size_t ld_y;
    int half; /* columns of gate and factor; 0: there is none */
    bool gate_first;
    bt_act act;
} bt_gemm_gate;

/* Products of few rows, with the operands exchanged: 64 rows of b's and all
 * rows of a's make a tile. The chunks of a tile are dealt to the blocks of a
 * cluster, `per` to each. */
typedef struct bt_gemm_small_task {
    CUtensorMap a, b;
    bt_gemm_end end;
    bt_gemm_gate gate;
    int steps, chunk_steps, chunks;
    int blocks, per, stages; /* of a cluster; chunks and stages of a block */
    bool b_ready;
} bt_gemm_small_task;

/* Products of few rows with small matrices: `tile` rows of b's and all rows of
 * a's make a tile, of which a block has one chunk. */
typedef struct bt_gemm_narrow_task {
    CUtensorMap a, b;
    bt_gemm_end end;
    bt_gemm_rows rows;
    int panels, chunk_panels; /* of 64 of k, in all and of a chunk */
    int chunks, blocks;       /* of a cluster: at least as many */
    bool b_ready;
} bt_gemm_narrow_task;

/* How a product is carried out; bt_cuda_gemm chooses, checks and benches may.
 */
typedef struct bt_gemm_choice {
    bool small;
    bt_gemm_tile tile;
    int head;   /* chunks that a tile's first worker sums; 0: all of them,
                 * -1: as seems best */
    int group;  /* 0: as seems best; see bt_gemm_task */
    int blocks; /* small: of a cluster; 1, 2, 4 or 8, and where it is narrow
                 * any number from that of the chunks to 8 */
    int narrow; /* small: rows of b's in a tile of the narrow kernel, 32 or
                 * 64; 0: not by that one */
    int chunk;  /* 0: the library's; another one gives other bits */
} bt_gemm_choice;

const char *bt_gemm_tile_name(bt_gemm_tile tile);
void bt_gemm_choose(bt_gemm_choice *choice, const bt_cuda_gemm_args *product,
                    size_t workspace_bytes, int multiprocessors);
/* Whether the product can be carried out by narrow tiles as the choice says. */
bool bt_gemm_narrow_can(const bt_gemm_choice *choice,
                        const bt_cuda_gemm_args *product);
size_t bt_gemm_choice_bytes(const bt_gemm_choice *choice,
                            const bt_cuda_gemm_args *product,
                            int multiprocessors);
bauta_status bt_cuda_gemm_by(const bt_gemm_choice *choice,
                             const bt_cuda_gemm_args *product, void *workspace,
                             size_t workspace_bytes, void *stream,
                             bauta_error *err);

/* The kernels; they return a cudaError_t. */
typedef int bt_gemm_large_fn(bt_gemm_tile tile, const bt_gemm_task *task,
                             void *stream);
bt_gemm_large_fn bt_gemm_large_nt, bt_gemm_large_nn, bt_gemm_large_tn;
/* Add up the partial sums that a task has left, of tiles of so many columns. */
int bt_gemm_merge(int columns, const bt_gemm_task *task, void *stream);
/* rows: 8, 16, 32 or 64, at least m. */
int bt_gemm_small(bt_gemm_form form, int rows, const bt_gemm_small_task *task,
                  void *stream);
/* Of k: the unit of its steps. */
int bt_gemm_small_step(int rows);
/* Stages that fit beside a block's sums in half or all of a multiprocessor's
 * shared memory; 0: too many sums. */
int bt_gemm_small_stages(int rows, const bt_gemm_small_task *task, bool whole);
/* rows as above, tile 32 or 64. Other sources than given rows: 8 rows. */
int bt_gemm_narrow(bt_gemm_form form, int rows, int tile, bt_gemm_source source,
                   const bt_gemm_narrow_task *task, void *stream);
/* Of shared memory that a block needs. */
int bt_gemm_narrow_bytes(int rows, int tile, int panels, int chunks,
                         int blocks);
int bt_gemm_plain(const bt_cuda_gemm_args *product, const bt_gemm_end *end,
                  int chunk, bool onto, void *stream);

#ifdef __cplusplus
}
#endif
#endif

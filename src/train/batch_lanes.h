/* SPDX-License-Identifier: Apache-2.0 */
/* batch_lanes.h - a batch dealt into parts whose gradients are added as a tree.
 *
 * Lane i of 8 gets a contiguous part of the batch, by tokens. Its gradient is
 * computed on its own, and the lanes are added pairwise:
 *
 *     0   1   2   3   4   5   6   7
 *      \ /     \ /     \ /     \ /
 *       +       +       +       +
 *        \     /         \     /
 *           +               +
 *             \           /
 *                   +
 *
 * A rank has a contiguous group of lanes, so it adds a subtree, and ranks add
 * the rest in the same order (comm.h): 1, 2, 4 or 8 ranks give the same bits.
 * A rank with n lanes keeps at most log2(n) sums besides the gradients. */
#ifndef BT_BATCH_LANES_H
#define BT_BATCH_LANES_H

#include "model/model_store.h"
#include "runtime/comm.h"

enum { BT_LANES_MAX = BT_RANKS_MAX, BT_LANE_BITS_MAX = BT_RANK_BITS_MAX };

typedef struct bt_lanes {
    size_t all;                       /* of the batch */
    size_t first, own;                /* those of this rank */
    bt_buffer sums[BT_LANE_BITS_MAX]; /* of 1, 2, 4 ... lanes; or empty */
    void *home;                  /* where the gradients are between steps */
    double losses[BT_LANES_MAX]; /* of a step */
} bt_lanes;

/* `lanes` is a power of two, and the ranks are not more. */
bauta_status bt_lanes_check(size_t lanes, const bt_comm *comm,
                            bauta_error *err);
/* Share out the lanes, and reserve the sums of gradients. */
bauta_status bt_lanes_init(bt_lanes *lanes, size_t all, const bt_comm *comm,
                           bt_stream *stream, const bt_model_store *store,
                           bauta_error *err);
void bt_lanes_release(bt_lanes *lanes);

/* Own lane number `done`, from 0 on, has its gradient in the store. Add it to
 * those before. After the last one the store has the sum of all own lanes. */
bauta_status bt_lanes_add(bt_lanes *lanes, size_t done, bt_stream *stream,
                          bt_model_store *store, bauta_error *err);

/* The loss of all lanes, from those of the own ones in `losses`. Collective. */
bauta_status bt_lanes_loss(bt_lanes *lanes, bt_comm *comm, double *loss,
                           bauta_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - ranks: the processes that train one model together.
 *
 * Each rank computes the gradients of a part of the batch. A tensor that all
 * ranks have in common, such as the gradients or the weights, is cut into one
 * slice for each rank: reduce_scatter() leaves the sum of a slice with its
 * owner, who updates the weights there, and all_gather() gives the slices back
 * to all. The number of ranks is a power of two, and a rank talks only to those
 * whose number differs from its own in one bit, the bit 1 first:
 *
 *     reduce_scatter   rank ^ 1, ^ 2, ^ 4 ...: each sends the half of what it
 *                      has that the other keeps, and adds what it receives
 *     all_gather       the same way back
 *
 * (recursive halving and doubling). So the sum of an element is a binary tree
 * over ranks, adjacent ones first, and 1, 2, 4 ... ranks give the same bits if
 * their parts are subtrees of the same tree. A rank receives and sends
 * (count - 1) / count of the tensor in each of the two, in log2(count) messages
 * as far as they fit into a chunk.
 *
 * The order of additions is comm.c's and the same for all transports: a
 * transport only exchanges bytes between two ranks. There are three: sockets
 * (comm_sockets.c; processes of one machine, or TCP), MPI (mpi/comm_mpi.c), and
 * none at all for a single rank. Tensors on GPUs go through host memory, or
 * where the library has NCCL (nccl/comm_nccl.c), from GPU to GPU; the transport
 * then still moves all that is small, and the reasons of failures. */
#ifndef BT_COMM_H
#define BT_COMM_H

#include "backend/backend.h"

typedef struct bt_comm bt_comm;

enum {
    BT_RANKS_MAX = 1024,
    BT_RANK_BITS_MAX = 10,
    BT_COMM_CHUNK = 1 << 20,         /* bytes of an exchange, at most */
    BT_COMM_DEVICE_FLOATS = 1 << 22, /* of an exchange between devices */
};

typedef struct bt_comm_transport {
    const char *name; /* "sockets" */
    /* Send to a rank and receive from it at the same time, at most
     * BT_COMM_CHUNK bytes each; either may be 0. Both ranks know both sizes.
     * `peer` differs from comm->rank in one bit. If the other one has failed,
     * BAUTA_ERR_RANK with its reason. */
    bauta_status (*exchange)(bt_comm *comm, int peer, const void *send,
                             size_t send_bytes, void *receive,
                             size_t receive_bytes, bauta_error *err);
    /* Let the other ranks fail with a reason, as far as they can be reached,
     * and without waiting for them. */
    void (*abort)(bt_comm *comm, const char *reason);
    /* Whether the reason of another rank arrives within a time. Exchanges that
     * it comes after are lost, so this rank must have failed. */
    bool (*heard)(bt_comm *comm, int milliseconds);
    /* Without waiting: whether a rank that this one is connected to has failed
     * or ended, which sets comm->reason or comm->lost. */
    bool (*failing)(bt_comm *comm);
    void (*release)(bt_comm *comm);
} bt_comm_transport;

/* Exchanges between memory of devices, beside a transport. Tensors are one row
 * of float32 in memory of the stream's backend, or have no columns. */
typedef struct bt_comm_device {
    const char *name; /* "nccl" */
    /* Queue an exchange on the stream. */
    bauta_status (*exchange)(bt_comm *comm, bt_stream *stream, int peer,
                             const bt_tensor *send, const bt_tensor *receive,
                             bauta_error *err);
    /* Wait for all that is queued on the stream, unless a rank fails. */
    bauta_status (*wait)(bt_comm *comm, bt_stream *stream, bauta_error *err);
    void (*release)(bt_comm *comm);
} bt_comm_device;

struct bt_comm {
    const bt_comm_transport *transport; /* NULL: a single rank */
    int rank, count;                    /* count is a power of two */
    void *state;                        /* of the transport */
    uint64_t sent;                      /* bytes of exchanges */
    int lost; /* the rank whose connection ended without a reason; or -1 */
    char reason[256];       /* of another rank that failed; or "" */
    unsigned char *staging; /* (3 BT_COMM_CHUNK) or NULL until it is needed */
    const bt_comm_device *device; /* NULL: tensors go through host memory */
    void *device_state;
    bool device_chosen;       /* by the first tensor on a device */
    bt_buffer device_staging; /* (BT_COMM_DEVICE_FLOATS), on the device */
};

/* A process on its own: every call is done at once. */
bt_comm bt_comm_single(void);
void bt_comm_release(bt_comm *comm);

/* Collective calls: all ranks make the same ones in the same order.
 *
 * `bounds` (count + 1) cuts a dense float32 tensor into slices: slice i has the
 * elements from bounds[i] to before bounds[i + 1], and bounds[0] is 0. A rank
 * owns the slice bt_comm_slice(comm, rank). */
int bt_comm_slice(const bt_comm *comm, int rank);
bauta_status bt_comm_reduce_scatter(bt_comm *comm, bt_stream *stream,
                                    const bt_tensor *tensor,
                                    const size_t *bounds, bauta_error *err);
bauta_status bt_comm_all_gather(bt_comm *comm, bt_stream *stream,
                                const bt_tensor *tensor, const size_t *bounds,
                                bauta_error *err);
/* Bytes that this rank sends in a reduce_scatter() and an all_gather() of a
 * tensor with these slices. */
uint64_t bt_comm_slices_bytes(const bt_comm *comm, const size_t *bounds);

/* Give all ranks the bytes of rank 0, which are in host memory. */
bauta_status bt_comm_broadcast(bt_comm *comm, void *bytes, size_t count,
                               bauta_error *err);
/* Give rank 0 the slices of all; elsewhere `host` is only read. It is float32
 * in host memory, with all elements. */
bauta_status bt_comm_gather(bt_comm *comm, float *host, const size_t *bounds,
                            bauta_error *err);
/* Add the values of all ranks. Exact, and so without an order, for integers,
 * and where all ranks but one have 0. */
bauta_status bt_comm_sum(bt_comm *comm, double *values, size_t count,
                         bauta_error *err);
bauta_status bt_comm_barrier(bt_comm *comm, bauta_error *err);

/* In a rank that has failed: whether another one has reported why, so that all
 * ranks together print one sentence. Rank 0 is the first to speak, or if a rank
 * was lost, one of those that notice it; the others wait for it, five seconds
 * at most. */
bool bt_comm_reported(bt_comm *comm);

/* ---- transports ---------------------------------------------------------- */

/* Over stream sockets, of which number i (of log2(count)) is connected to
 * rank ^ (1 << i). They are closed by bt_comm_release(), and here on failure.
 */
bauta_status bt_comm_sockets(bt_comm *comm, int rank, int count,
                             const int *sockets, bauta_error *err);

/* Over TCP: rank 0 waits for the others at `address` and `port`, and tells them
 * of each other. */
bauta_status bt_comm_tcp(bt_comm *comm, int rank, int count,
                         const char *address, const char *port,
                         bauta_error *err);

/* Over MPI, whose ranks are those of MPI_COMM_WORLD. In a library without MPI,
 * BAUTA_ERR_UNSUPPORTED. */
bauta_status bt_comm_mpi(bt_comm *comm, bauta_error *err);

/* Beside a transport, over NCCL, for a stream on a GPU. Collective. Sets
 * comm->device, unless two ranks share a GPU, which NCCL does not allow, or the
 * library has no NCCL. */
bauta_status bt_comm_nccl(bt_comm *comm, bt_stream *stream, bauta_error *err);

/* BAUTA_ERR_ARGUMENT unless it is a power of two up to BT_RANKS_MAX. */
bauta_status bt_comm_count_check(size_t count, bauta_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* comm_nccl.c - exchanges between the memory of GPUs over NCCL.
 *
 * Only ncclSend() and ncclRecv() are used: the order of additions is comm.c's,
 * and NCCL's own reductions have another one. NCCL is told of the ranks by the
 * transport that they have already: rank 0 makes an id and broadcasts it.
 *
 * A kernel of NCCL waits for its peer without end. So this side does not block:
 * it asks NCCL and the transport in turn, and ends the communicator if a rank
 * has failed.
 *
 * NCCL refuses two ranks on one GPU, and takes ranks whose variable NCCL_HOSTID
 * differs for those of different hosts. So do we: with it, tests run two ranks
 * of NCCL on one GPU. */
#include "backend/cuda/stream.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct nccl_state {
    ncclComm_t comm;
    int device;
    bool failed;
} nccl_state;

static bauta_status fail_nccl(nccl_state *s, ncclResult_t result,
                              const char *what, bauta_error *err)
{
    s->failed = true;
    return bt_fail(err, BAUTA_ERR_RANK, "NCCL cannot %s: %s", what,
                   ncclGetErrorString(result));
}

static bauta_status fail_rank(const bt_comm *comm, nccl_state *s,
                              bauta_error *err)
{
    s->failed = true;
    if (comm->reason[0])
        return bt_fail(err, BAUTA_ERR_RANK, "%s", comm->reason);
    return bt_fail(err, BAUTA_ERR_RANK, "rank %d ended unexpectedly",
                   comm->lost);
}

/* ---- waiting --------------------------------------------------------------
 */

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 }, NULL);
}

/* Whether there is nothing to wait for any more: a rank has failed, or it has
 * ended. One that ended may have been done, and what it has sent still arrives,
 * so that waits for another second at least. A single rank has no transport. */
enum { PATIENCE = 50 * 1000 }; // pauses

static bool given_up(bt_comm *comm, int *patience)
{
    return comm->transport && comm->transport->failing(comm) &&
           (comm->reason[0] || --*patience == 0);
}

/* *done: whether NCCL has done what was asked of it. */
static bauta_status ask(nccl_state *s, const char *what, bool *done,
                        bauta_error *err)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(s->comm, &result);
    *done = result == ncclSuccess;
    return asked || (result && result != ncclInProgress)
               ? fail_nccl(s, asked ? asked : result, what, err)
               : BAUTA_OK;
}

/* Until NCCL has done what was asked of it; work may still be queued. */
static bauta_status settle(bt_comm *comm, nccl_state *s, const char *what,
                           bauta_error *err)
{
    int patience = PATIENCE;
    for (;;) {
        bool done;
        bauta_status status = ask(s, what, &done, err);
        if (status || done)
            return status;
        if (given_up(comm, &patience))
            return fail_rank(comm, s, err);
        pause_briefly();
    }
}

static bauta_status queue_wait(bt_comm *comm, nccl_state *s, cudaStream_t queue,
                               bauta_error *err)
{
    int patience = PATIENCE;
    for (;;) {
        bool settled;
        cudaError_t done = cudaStreamQuery(queue);
        if (done == cudaSuccess)
            return BAUTA_OK;
        if (done != cudaErrorNotReady) {
            s->failed = true;
            return bt_cuda_failed((int)done, "the exchange between GPUs", err);
        }
        cudaGetLastError(); // "not ready" would be the next call's error
        bauta_status status = ask(s, "exchange gradients", &settled, err);
        if (status)
            return status;
        if (given_up(comm, &patience))
            return fail_rank(comm, s, err);
        pause_briefly();
    }
}

static bauta_status nccl_wait(bt_comm *comm, bt_stream *stream,
                              bauta_error *err)
{
    return queue_wait(comm, comm->device_state,
                      bt_cuda_stream_of(stream)->queue, err);
}

/* ---- an exchange ----------------------------------------------------------
 */

static ncclResult_t send_and_receive(const nccl_state *s, int peer,
                                     const bt_tensor *send,
                                     const bt_tensor *receive,
                                     cudaStream_t queue)
{
    ncclResult_t result = ncclGroupStart(), end;
    if (result)
        return result;
    if (send->columns)
        result = ncclSend(bt_cuda_address(send), send->columns, ncclFloat32,
                          peer, s->comm, queue);
    if (receive->columns && (!result || result == ncclInProgress))
        result = ncclRecv(bt_cuda_address(receive), receive->columns,
                          ncclFloat32, peer, s->comm, queue);
    end = ncclGroupEnd();
    return !result || result == ncclInProgress ? end : result;
}

static bauta_status nccl_exchange(bt_comm *comm, bt_stream *stream, int peer,
                                  const bt_tensor *send,
                                  const bt_tensor *receive, bauta_error *err)
{
    nccl_state *s = comm->device_state;
    int before = 0;
    if (s->failed)
        return bt_fail(err, BAUTA_ERR_RANK, "an exchange has failed before");
    cudaError_t device = cudaGetDevice(&before);
    if (!device)
        device = cudaSetDevice(s->device);
    if (device)
        return bt_cuda_failed((int)device, "the exchange between GPUs", err);
    ncclResult_t result = send_and_receive(s, peer, send, receive,
                                           bt_cuda_stream_of(stream)->queue);
    cudaSetDevice(before);
    return result && result != ncclInProgress
               ? fail_nccl(s, result, "exchange gradients", err)
               : settle(comm, s, "exchange gradients", err);
}

/* ---- life -----------------------------------------------------------------
 */

/* What other ranks still receive from this one is not cut off. */
static void nccl_release(bt_comm *comm)
{
    nccl_state *s = comm->device_state;
    ncclResult_t ended =
        s->failed ? ncclSystemError : ncclCommFinalize(s->comm);
    if (ended == ncclInProgress || ended == ncclSuccess)
        settle(comm, s, "end", NULL);
    if (s->failed || (ended && ended != ncclInProgress))
        ncclCommAbort(s->comm);
    else
        ncclCommDestroy(s->comm);
    bt_free(s);
    comm->device_state = NULL;
    comm->device = NULL;
}

/* The name of a GPU among those of all hosts. */
static cudaError_t gpu_name(char *name, size_t size, int device)
{
    const char *given = getenv("NCCL_HOSTID");
    char host[64] = "", bus[64] = "";
    cudaError_t failed = cudaDeviceGetPCIBusId(bus, sizeof(bus), device);
    gethostname(host, sizeof(host) - 1);
    snprintf(name, size, "%s %s", given && *given ? given : host, bus);
    return failed;
}

/* Whether two ranks have the same GPU of the same machine. All ranks come to
 * the same answer. */
static bauta_status gpus_compare(bt_comm *comm, int device, bool *shared,
                                 bauta_error *err)
{
    double gpus[BT_RANKS_MAX] = { 0.0 };
    char name[160];
    cudaError_t failed = gpu_name(name, sizeof(name), device);
    if (failed)
        return bt_cuda_failed((int)failed, "the name of a GPU", err);
    // As many bits as a double has.
    gpus[comm->rank] = (double)(bt_hash(name, strlen(name), 0) >> 11);
    bauta_status status = bt_comm_sum(comm, gpus, (size_t)comm->count, err);
    *shared = false;
    for (int i = 0; i < comm->count; i++)
        for (int j = 0; j < i; j++)
            *shared = *shared || gpus[i] == gpus[j];
    return status;
}

static bauta_status nccl_connect(bt_comm *comm, nccl_state *s, bauta_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct {
        ncclUniqueId id;
        ncclResult_t result;
    } first = { .result = ncclSuccess };
    config.blocking = 0;
    if (comm->rank == 0)
        first.result = ncclGetUniqueId(&first.id);
    bauta_status status = bt_comm_broadcast(comm, &first, sizeof(first), err);
    if (status)
        return status;
    if (first.result)
        return fail_nccl(s, first.result, "make an id", err);
    ncclResult_t result = ncclCommInitRankConfig(&s->comm, comm->count,
                                                 first.id, comm->rank, &config);
    if (result && result != ncclInProgress)
        return fail_nccl(s, result, "connect the ranks", err);
    status = settle(comm, s, "connect the ranks", err);
    if (status)
        ncclCommAbort(s->comm);
    return status;
}

bauta_status bt_comm_nccl(bt_comm *comm, bt_stream *stream, bauta_error *err)
{
    static const bt_comm_device device = {
        .name = "nccl",
        .exchange = nccl_exchange,
        .wait = nccl_wait,
        .release = nccl_release,
    };
    int number = bt_cuda_stream_of(stream)->number, before = 0;
    bool shared = true;
    bauta_status status = gpus_compare(comm, number, &shared, err);
    if (status || shared)
        return status;
    nccl_state *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return bt_fail_memory(err, "the ranks of NCCL", sizeof(*s));
    s->device = number;
    cudaGetDevice(&before);
    cudaSetDevice(number);
    status = nccl_connect(comm, s, err);
    cudaSetDevice(before);
    if (status) {
        bt_free(s);
        return status;
    }
    comm->device = &device;
    comm->device_state = s;
    return BAUTA_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.c - exchanges between ranks over MPI.
 *
 * MPI ends all ranks when one of them dies or calls MPI_Abort(): that is what
 * its launchers are made for. It is initialised here unless the program has
 * done so, and finalised by whoever initialised it. */
#include "runtime/comm.h"

#include "base/error.h"

#include <mpi.h>
#include <time.h>

/* Whether MPI_Init() was called here. */
static bool initialised;

static bauta_status mpi_exchange(bt_comm *comm, int peer, const void *send,
                                 size_t send_bytes, void *receive,
                                 size_t receive_bytes, bauta_error *err)
{
    enum { TAG = 1 };
    MPI_Status got;
    int count = 0;
    int failed = MPI_Sendrecv(send, (int)send_bytes, MPI_BYTE, peer, TAG,
                              receive, (int)receive_bytes, MPI_BYTE, peer, TAG,
                              MPI_COMM_WORLD, &got);
    if (failed || MPI_Get_count(&got, MPI_BYTE, &count) ||
        (size_t)count != receive_bytes) {
        comm->lost = peer;
        return bt_fail(err, BAUTA_ERR_RANK,
                       "rank %d did not send the %zu bytes that were expected",
                       peer, receive_bytes);
    }
    return BAUTA_OK;
}

static void mpi_abort(bt_comm *comm, const char *reason)
{
    (void)comm;
    (void)reason; // the rank that failed has reported it
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The rank that speaks ends this process while it waits. */
static bool mpi_heard(bt_comm *comm, int milliseconds)
{
    struct timespec time = { .tv_sec = milliseconds / 1000,
                             .tv_nsec = milliseconds % 1000 * 1000000L };
    (void)comm;
    nanosleep(&time, NULL);
    return false;
}

/* The launcher ends all ranks when one has failed. */
static bool mpi_failing(bt_comm *comm)
{
    (void)comm;
    return false;
}

/* A rank that is done waits for the others here. */
static void mpi_release(bt_comm *comm)
{
    (void)comm;
    if (initialised)
        MPI_Finalize();
    initialised = false;
}

bauta_status bt_comm_mpi(bt_comm *comm, bauta_error *err)
{
    static const bt_comm_transport transport = {
        .name = "mpi",
        .exchange = mpi_exchange,
        .abort = mpi_abort,
        .heard = mpi_heard,
        .failing = mpi_failing,
        .release = mpi_release,
    };
    int already = 0, rank = 0, count = 1;
    *comm = bt_comm_single();
    if (MPI_Initialized(&already) || (!already && MPI_Init(NULL, NULL)))
        return bt_fail(err, BAUTA_ERR_RANK, "MPI could not be initialised");
    initialised = !already;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    comm->transport = &transport;
    comm->rank = rank;
    comm->count = count;
    bauta_status status = bt_comm_count_check((size_t)count, err);
    if (status)
        bt_comm_release(comm);
    return status;
}

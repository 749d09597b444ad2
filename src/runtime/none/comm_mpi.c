/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.c - a library without MPI. */
#include "runtime/comm.h"

#include "base/error.h"

bauta_status bt_comm_mpi(bt_comm *comm, bauta_error *err)
{
    *comm = bt_comm_single();
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "this bauta was built without MPI, whose mpirun started it; "
                   "--ranks, or the variables RANK, WORLD_SIZE and MASTER_ADDR "
                   "start ranks without MPI");
}

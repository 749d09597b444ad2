/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_nccl.c - ranks over NCCL, as far as they can be tested without several
 * GPUs: the transport is compiled and linked, and two ranks that share a GPU,
 * or have none, are not connected by NCCL. */
#include "backend/cuda/stream.h"
#include "rank_threads.h"

#include <string.h>

static void gpu_rank(rank_thread *self)
{
    bauta_error err = { 0 };
    bt_comm comm;
    bt_cuda_stream stream = { .number = 0 };
    bauta_status status =
        bt_comm_sockets(&comm, self->rank, self->count, self->sockets, &err);
    RANK_CHECK(self, status == BAUTA_OK);
    if (status)
        return;
    status = bt_comm_nccl(&comm, &stream.base, &err);
    if (status) { // there is no GPU
        RANK_CHECK(self, status == BAUTA_ERR_DEVICE);
        RANK_CHECK(self, strstr(err.message, "the name of a GPU") != NULL);
    }
    RANK_CHECK(self, comm.device == NULL);
    bt_comm_release(&comm);
}

static void ranks_that_share_a_gpu_do_not_use_nccl(void **state)
{
    (void)state;
    ranks_run(2, gpu_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_gpu_do_not_use_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

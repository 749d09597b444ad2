/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_nccl.c - ranks over NCCL, as far as they can be tested with one GPU or
 * none: the transport is compiled and linked, two ranks that share a GPU are
 * not connected by NCCL, and a single rank exchanges tensors with itself.
 * tools/gpu-ranks.sh trains with it. */
#include "backend/cuda/driver.h"
#include "backend/cuda/stream.h"
#include "base/error.h"
#include "rank_threads.h"

#include <stdlib.h>
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

static void must(bauta_status status, const bauta_error *err)
{
    if (status)
        fail_msg("%s", err->message);
}

/* `count` floats go from the first to the second half of a buffer. */
static void floats_move(bt_comm *comm, bt_stream *stream, test_random *r,
                        size_t count)
{
    size_t bytes = count * sizeof(float);
    float *sent = malloc(bytes), *got = malloc(bytes);
    bt_buffer buffer = { 0 };
    bauta_error err = { 0 };
    assert_true(sent && got);
    for (size_t i = 0; i < count; i++)
        sent[i] = test_float(r);
    must(stream->backend->alloc(stream, &buffer, 2 * bytes, &err), &err);
    must(stream->backend->fill(stream, &buffer, 0, 0xff, 2 * bytes, &err),
         &err);
    must(stream->backend->upload(stream, &buffer, 0, sent, bytes, &err), &err);
    bt_tensor from = bt_tensor_of(&buffer, BAUTA_FLOAT32, 1, count), to = from;
    to.offset = count;
    must(comm->device->exchange(comm, stream, 0, &from, &to, &err), &err);
    must(comm->device->wait(comm, stream, &err), &err);
    must(stream->backend->download(stream, got, &buffer, bytes, bytes, &err),
         &err);
    assert_memory_equal(got, sent, bytes);
    stream->backend->free(&buffer);
    free(sent);
    free(got);
}

static void one_rank_of_nccl_exchanges_with_itself(void **state)
{
    static const size_t counts[] = { 1, 1000, 999999, BT_COMM_DEVICE_FLOATS };
    test_random r = test_random_from(test_seed());
    bt_comm comm = bt_comm_single();
    bt_stream *stream = NULL;
    bauta_error err = { 0 };
    (void)state;
    if (bt_cuda_driver.open(&stream, -1, NULL, &err)) {
        print_message("no GPU: %s\n", err.message);
        skip();
    }
    must(bt_comm_nccl(&comm, stream, &err), &err);
    assert_non_null(comm.device);
    assert_string_equal(comm.device->name, "nccl");
    for (size_t i = 0; i < BT_LEN(counts); i++)
        floats_move(&comm, stream, &r, counts[i]);
    bt_comm_release(&comm);
    assert_null(comm.device);
    stream->backend->stream_free(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_gpu_do_not_use_nccl),
        cmocka_unit_test(one_rank_of_nccl_exchanges_with_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* rank_device.h - exchanges between devices in place of NCCL's: between memory
 * of a backend that the host cannot touch, over the transport of the ranks. */
#ifndef BT_TEST_RANK_DEVICE_H
#define BT_TEST_RANK_DEVICE_H

#include "runtime/comm.h"

#include <stdlib.h>

static inline bauta_status rank_device_exchange(bt_comm *comm,
                                                bt_stream *stream, int peer,
                                                const bt_tensor *send,
                                                const bt_tensor *receive,
                                                bauta_error *err)
{
    const bt_backend *b = stream->backend;
    const size_t most = BT_COMM_CHUNK / sizeof(float);
    size_t all =
        send->columns > receive->columns ? send->columns : receive->columns;
    float *out = malloc(BT_COMM_CHUNK), *in = malloc(BT_COMM_CHUNK);
    bauta_status status = BAUTA_OK;
    for (size_t at = 0; !status && at < all; at += most) {
        size_t n = at < send->columns ? send->columns - at : 0;
        size_t m = at < receive->columns ? receive->columns - at : 0;
        n = sizeof(float) * (n < most ? n : most);
        m = sizeof(float) * (m < most ? m : most);
        status = b->download(stream, out, send->buffer,
                             (send->offset + at) * sizeof(float), n, err);
        if (!status)
            status = comm->transport->exchange(comm, peer, out, n, in, m, err);
        if (!status)
            status =
                b->upload(stream, receive->buffer,
                          (receive->offset + at) * sizeof(float), in, m, err);
    }
    free(out);
    free(in);
    return status;
}

static inline bauta_status rank_device_wait(bt_comm *comm, bt_stream *stream,
                                            bauta_error *err)
{
    return comm->transport->failing(comm) ? BAUTA_ERR_RANK
                                          : stream->backend->sync(stream, err);
}

static inline void rank_device_release(bt_comm *comm)
{
    comm->device = NULL;
}

static const bt_comm_device rank_device = { "test", rank_device_exchange,
                                            rank_device_wait,
                                            rank_device_release };

#endif

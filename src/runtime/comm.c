/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - collective operations by exchanges between two ranks. */
#include "runtime/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

bt_comm bt_comm_single(void)
{
    return (bt_comm){ .count = 1, .lost = -1 };
}

void bt_comm_release(bt_comm *comm)
{
    if (comm->device)
        comm->device->release(comm);
    if (comm->device_staging.memory)
        comm->device_staging.backend->free(&comm->device_staging);
    if (comm->transport)
        comm->transport->release(comm);
    bt_free(comm->staging);
    *comm = bt_comm_single();
}

bauta_status bt_comm_count_check(size_t count, bauta_error *err)
{
    if (count && count <= BT_RANKS_MAX && (count & (count - 1)) == 0)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the number of ranks is %zu, not a power of two up to %d",
                   count, (int)BT_RANKS_MAX);
}

/* ---- Failures ------------------------------------------------------------ */

/* Only neighbours of a lost rank notice that, and rank 0 may be one. */
static int first_speaker(const bt_comm *comm)
{
    int lost = comm->lost;
    if (lost < 0)
        return 0;
    return lost && (lost & (lost - 1)) == 0 ? 0 : lost ^ 1;
}

bool bt_comm_reported(bt_comm *comm)
{
    enum { PATIENCE = 5000 }; // milliseconds
    bool first = comm->rank == first_speaker(comm);
    if (!comm->transport || comm->reason[0])
        return comm->reason[0];
    return comm->transport->heard(comm, first ? 0 : PATIENCE);
}

/* ---- Bytes --------------------------------------------------------------- */

static size_t part_of(size_t all, size_t at)
{
    return at < all ? bt_size_min(all - at, BT_COMM_CHUNK) : 0;
}

static bauta_status exchange(bt_comm *comm, int peer, const void *send,
                             size_t send_bytes, void *receive,
                             size_t receive_bytes, bauta_error *err)
{
    comm->sent += send_bytes;
    return comm->transport->exchange(comm, peer, send, send_bytes, receive,
                                     receive_bytes, err);
}

/* In chunks, of which there is one even without bytes. */
static bauta_status exchange_all(bt_comm *comm, int peer, const void *send,
                                 size_t send_bytes, void *receive,
                                 size_t receive_bytes, bauta_error *err)
{
    size_t most = bt_size_max(send_bytes, receive_bytes), at = 0;
    const char *from = send;
    char *to = receive;
    bauta_status status;
    do {
        size_t n = part_of(send_bytes, at), m = part_of(receive_bytes, at);
        status = exchange(comm, peer, n ? from + at : NULL, n,
                          m ? to + at : NULL, m, err);
        at += BT_COMM_CHUNK;
    } while (!status && at < most);
    return status;
}

/* Three chunks of memory: to send, to receive, and of the sum. */
static bauta_status staging_reserve(bt_comm *comm, bauta_error *err)
{
    if (!comm->staging)
        comm->staging = bt_alloc(3 * (size_t)BT_COMM_CHUNK);
    return comm->staging ? BAUTA_OK
                         : bt_fail_memory(err, "the exchange between ranks",
                                          3 * (size_t)BT_COMM_CHUNK);
}

/* ---- Slices -------------------------------------------------------------- */

/* The bits of the rank in reverse: the first exchange, by bit 0, decides on the
 * half. */
int bt_comm_slice(const bt_comm *comm, int rank)
{
    int slice = 0;
    for (int bit = 1; bit < comm->count; bit <<= 1, rank >>= 1)
        slice = slice << 1 | (rank & 1);
    return slice;
}

/* Slices first to first + count - 1. */
typedef struct slice_range {
    int first, count;
} slice_range;

/* The half of a range that ranks with this bit, or without it, keep. */
static slice_range half_of(slice_range range, bool upper)
{
    int half = range.count / 2;
    return (slice_range){ upper ? range.first + half : range.first, half };
}

/* A tensor in host memory, or one that is copied there chunk by chunk. */
typedef struct slice_exchange {
    bt_comm *comm;
    bt_stream *stream;
    const bt_tensor *tensor;
    const size_t *bounds;
    float *host; /* NULL: not visible */
    int peer;
    bool add;
} slice_exchange;

static void add_floats(float *to, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* Floats to send, from element `at` on. */
static bauta_status chunk_get(const slice_exchange *x, void *staging, size_t at,
                              size_t bytes, const void **out, bauta_error *err)
{
    *out = x->host ? (const void *)(x->host + at) : staging;
    if (x->host || bytes == 0)
        return BAUTA_OK;
    return x->stream->backend->download(
        x->stream, staging, x->tensor->buffer,
        (x->tensor->offset + at) * sizeof(float), bytes, err);
}

/* Store what was received as the elements from `at` on, or add it to them. */
static bauta_status chunk_put(const slice_exchange *x, size_t at,
                              const void *received, size_t bytes,
                              bauta_error *err)
{
    unsigned char *sum = x->comm->staging + 2 * (size_t)BT_COMM_CHUNK;
    const void *own;
    if (bytes == 0 || (x->host && !x->add))
        return BAUTA_OK; // received in place
    if (x->host) {
        add_floats(x->host + at, received, bytes / sizeof(float));
        return BAUTA_OK;
    }
    bauta_status status = BAUTA_OK;
    if (x->add) {
        status = chunk_get(x, sum, at, bytes, &own, err);
        if (!status)
            add_floats((float *)sum, received, bytes / sizeof(float));
    }
    return status ? status
                  : x->stream->backend->upload(
                        x->stream, x->tensor->buffer,
                        (x->tensor->offset + at) * sizeof(float),
                        x->add ? sum : received, bytes, err);
}

/* `count` floats of a tensor, from element `at` on. */
static bt_tensor floats_of(const bt_tensor *tensor, size_t at, size_t count)
{
    bt_tensor part = *tensor;
    part.rows = 1;
    part.columns = part.stride = count;
    part.offset += at;
    return part;
}

/* As slices_exchange(), from device to device. The device adds. */
static bauta_status slices_exchange_device(const slice_exchange *x,
                                           slice_range send,
                                           slice_range receive,
                                           bauta_error *err)
{
    const size_t *b = x->bounds, most = BT_COMM_DEVICE_FLOATS;
    size_t from = b[send.first], from_end = b[send.first + send.count];
    size_t to = b[receive.first], to_end = b[receive.first + receive.count];
    const bt_comm_device *device = x->comm->device;
    bt_tensor staging = bt_tensor_of(&x->comm->device_staging, BAUTA_FLOAT32, 1,
                                     BT_COMM_DEVICE_FLOATS);
    bauta_status status = BAUTA_OK;
    while (!status && (from < from_end || to < to_end)) {
        size_t n = bt_size_min(from_end - from, most);
        size_t m = bt_size_min(to_end - to, most);
        bt_tensor out = floats_of(x->tensor, from, n);
        bt_tensor own = floats_of(x->tensor, to, m);
        bt_tensor in = x->add ? floats_of(&staging, 0, m) : own;
        bt_accumulate_args sum = { &in, &own, true };
        x->comm->sent += n * sizeof(float);
        status = device->exchange(x->comm, x->stream, x->peer, &out, &in, err);
        if (!status && x->add && m)
            status = x->stream->backend->accumulate(x->stream, &sum, err);
        from += n;
        to += m;
    }
    return status ? status : device->wait(x->comm, x->stream, err);
}

/* Send some slices to the peer and receive others. */
static bauta_status slices_exchange(const slice_exchange *x, slice_range send,
                                    slice_range receive, bauta_error *err)
{
    const size_t *b = x->bounds;
    size_t from = b[send.first], to = b[receive.first];
    size_t send_bytes = (b[send.first + send.count] - from) * sizeof(float);
    size_t bytes = (b[receive.first + receive.count] - to) * sizeof(float);
    size_t most = bt_size_max(send_bytes, bytes), at = 0;
    unsigned char *staging = x->comm->staging;
    bool in_place = x->host && !x->add;
    bauta_status status;
    if (!x->host && x->comm->device)
        return slices_exchange_device(x, send, receive, err);
    do {
        size_t n = part_of(send_bytes, at), m = part_of(bytes, at);
        size_t element = at / sizeof(float);
        void *received = in_place ? (void *)(x->host + to + element)
                                  : staging + BT_COMM_CHUNK;
        const void *sent;
        status = chunk_get(x, staging, from + element, n, &sent, err);
        if (!status)
            status = exchange(x->comm, x->peer, sent, n, received, m, err);
        if (!status)
            status = chunk_put(x, to + element, received, m, err);
        at += BT_COMM_CHUNK;
    } while (!status && at < most);
    return status;
}

/* How tensors on this device travel, and memory for it. */
static bauta_status device_begin(bt_comm *comm, bt_stream *stream,
                                 bauta_error *err)
{
    const size_t bytes = (size_t)BT_COMM_DEVICE_FLOATS * sizeof(float);
    bauta_status status = BAUTA_OK;
    if (!comm->device_chosen)
        status = bt_comm_nccl(comm, stream, err);
    comm->device_chosen = true;
    if (status || !comm->device || comm->device_staging.memory)
        return status;
    return stream->backend->alloc(stream, &comm->device_staging, bytes, err);
}

static bauta_status slices_begin(slice_exchange *x, bt_comm *comm,
                                 bt_stream *stream, const bt_tensor *tensor,
                                 const size_t *bounds, bauta_error *err)
{
    *x = (slice_exchange){ .comm = comm,
                           .stream = stream,
                           .tensor = tensor,
                           .bounds = bounds,
                           .host = bt_tensor_host(tensor) };
    bauta_status status = x->host ? BAUTA_OK : device_begin(comm, stream, err);
    return status ? status : staging_reserve(comm, err);
}

bauta_status bt_comm_reduce_scatter(bt_comm *comm, bt_stream *stream,
                                    const bt_tensor *tensor,
                                    const size_t *bounds, bauta_error *err)
{
    slice_exchange x;
    slice_range own = { 0, comm->count };
    if (comm->count == 1)
        return BAUTA_OK;
    bauta_status status = slices_begin(&x, comm, stream, tensor, bounds, err);
    x.add = true;
    for (int bit = 1; !status && bit < comm->count; bit <<= 1) {
        bool upper = comm->rank & bit;
        x.peer = comm->rank ^ bit;
        status =
            slices_exchange(&x, half_of(own, !upper), half_of(own, upper), err);
        own = half_of(own, upper);
    }
    return status;
}

bauta_status bt_comm_all_gather(bt_comm *comm, bt_stream *stream,
                                const bt_tensor *tensor, const size_t *bounds,
                                bauta_error *err)
{
    slice_exchange x;
    slice_range own = { bt_comm_slice(comm, comm->rank), 1 };
    if (comm->count == 1)
        return BAUTA_OK;
    bauta_status status = slices_begin(&x, comm, stream, tensor, bounds, err);
    for (int bit = comm->count / 2; !status && bit; bit >>= 1) {
        bool upper = comm->rank & bit;
        slice_range other = { upper ? own.first - own.count
                                    : own.first + own.count,
                              own.count };
        x.peer = comm->rank ^ bit;
        status = slices_exchange(&x, own, other, err);
        own = (slice_range){ upper ? other.first : own.first, 2 * own.count };
    }
    return status;
}

uint64_t bt_comm_slices_bytes(const bt_comm *comm, const size_t *bounds)
{
    size_t all = bounds[comm->count], floats = 0;
    int own = bt_comm_slice(comm, comm->rank);
    slice_range range = { 0, comm->count };
    // All that a rank does not keep is sent once to be reduced, and what it has
    // is sent to be gathered: 1, 2, 4 ... slices.
    floats = all - (bounds[own + 1] - bounds[own]);
    for (int bit = 1; bit < comm->count; bit <<= 1) {
        range = half_of(range, comm->rank & bit);
        floats += bounds[range.first + range.count] - bounds[range.first];
    }
    return (uint64_t)floats * sizeof(float);
}

/* ---- Host memory --------------------------------------------------------- */

/* Rank r receives from r without its highest bit. */
bauta_status bt_comm_broadcast(bt_comm *comm, void *bytes, size_t count,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (int bit = 1; !status && bit < comm->count; bit <<= 1) {
        if (comm->rank < bit)
            status = exchange_all(comm, comm->rank ^ bit, bytes, count, NULL, 0,
                                  err);
        else if (comm->rank < 2 * bit)
            status = exchange_all(comm, comm->rank ^ bit, NULL, 0, bytes, count,
                                  err);
    }
    return status;
}

/* As all_gather(), but only towards rank 0: after each exchange the ranks
 * without this bit have the slices of those with it, which are done. */
bauta_status bt_comm_gather(bt_comm *comm, float *host, const size_t *bounds,
                            bauta_error *err)
{
    slice_range own = { bt_comm_slice(comm, comm->rank), 1 };
    bauta_status status = BAUTA_OK;
    for (int bit = comm->count / 2; !status && bit; bit >>= 1) {
        bool upper = comm->rank & bit;
        slice_range other = { own.first + own.count, own.count };
        slice_range moved = upper ? own : other;
        float *floats = host + bounds[moved.first];
        size_t bytes =
            (bounds[moved.first + moved.count] - bounds[moved.first]) *
            sizeof(float);
        status = exchange_all(comm, comm->rank ^ bit, floats, upper ? bytes : 0,
                              floats, upper ? 0 : bytes, err);
        if (upper)
            break;
        own.count *= 2;
    }
    return status;
}

bauta_status bt_comm_sum(bt_comm *comm, double *values, size_t count,
                         bauta_error *err)
{
    enum { MOST = BT_COMM_CHUNK / sizeof(double) };
    bauta_status status =
        comm->count > 1 ? staging_reserve(comm, err) : BAUTA_OK;
    for (int bit = 1; !status && bit < comm->count; bit <<= 1) {
        double *theirs = (double *)(void *)comm->staging;
        size_t at = 0;
        do {
            size_t n = bt_size_min(count - at, MOST);
            status =
                exchange(comm, comm->rank ^ bit, values + at,
                         n * sizeof(double), theirs, n * sizeof(double), err);
            for (size_t i = 0; !status && i < n; i++)
                values[at + i] += theirs[i];
            at += n;
        } while (!status && at < count);
    }
    return status;
}

bauta_status bt_comm_barrier(bt_comm *comm, bauta_error *err)
{
    double none = 0.0;
    return bt_comm_sum(comm, &none, 1, err);
}

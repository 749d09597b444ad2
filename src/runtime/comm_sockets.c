/* SPDX-License-Identifier: Apache-2.0 */
/* comm_sockets.c - exchanges between ranks over stream sockets.
 *
 * A message is a header and its bytes. Instead of the one that is expected, the
 * reason of a rank that failed may arrive, and is then the error here, too. */
#include "runtime/comm.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DATA = 0x62617574, REASON = 0x62617466, REASON_MAX = 255 };
enum { REASON_WAIT = 1000 }; /* milliseconds for the text, after its header */

typedef struct header {
    uint32_t kind, bytes;
} header;

/* What a rank says when it is connected. */
typedef struct greeting {
    uint32_t rank, count, host_order, reserved;
    char host[64];
} greeting;

typedef struct connection {
    int socket;
    char host[64]; /* of the other rank */
} connection;

typedef struct sockets {
    int links;
    bool greeted; /* by all; until then, reasons of other ranks have to wait */
    connection links_to[BT_RANK_BITS_MAX]; /* i: rank ^ (1 << i) */
} sockets;

static connection *link_to(const bt_comm *comm, int peer)
{
    sockets *s = comm->state;
    int i = 0;
    while (comm->rank ^ peer ^ (1 << i))
        i++;
    return &s->links_to[i];
}

/* A short read or write is no error, nor one that has to wait. */
static bool moved(ssize_t count, size_t *done)
{
    if (count > 0)
        *done += (size_t)count;
    return count > 0 || (count < 0 && (errno == EAGAIN ||
                                       errno == EWOULDBLOCK || errno == EINTR));
}

/* ---- the reason of a rank that failed ------------------------------------ */

static double milliseconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Signals do not end it. */
static int poll_by(struct pollfd *list, nfds_t count, double deadline)
{
    int ready;
    do {
        double left = deadline - milliseconds_now();
        ready = poll(list, count, left > 0.0 ? (int)left : 0);
    } while (ready < 0 && errno == EINTR);
    return ready;
}

/* All bytes, before the deadline. */
static bool receive_by(int socket, void *data, size_t bytes, double deadline)
{
    struct pollfd ready = { .fd = socket, .events = POLLIN };
    size_t done = 0;
    while (done < bytes) {
        if (poll_by(&ready, 1, deadline) <= 0 ||
            !moved(recv(socket, (char *)data + done, bytes - done, 0), &done))
            return false;
    }
    return true;
}

/* A text of another rank, up to its end; control characters become spaces. */
static void text_clean(char *to, size_t room, const char *text, size_t bytes)
{
    size_t i = 0;
    for (; i < bytes && i + 1 < room && text[i]; i++)
        to[i] = (unsigned char)text[i] < 0x20 ? ' ' : text[i];
    to[i] = '\0';
}

/* The rest of a message whose header says that the other rank failed. */
static void reason_take(bt_comm *comm, int socket, const header *head,
                        double deadline)
{
    char text[REASON_MAX];
    size_t bytes = head->bytes < REASON_MAX ? head->bytes : REASON_MAX;
    if (receive_by(socket, text, bytes, deadline))
        text_clean(comm->reason, sizeof(comm->reason), text, bytes);
    if (!comm->reason[0])
        snprintf(comm->reason, sizeof(comm->reason), "another rank failed");
}

static bauta_status fail_reason(const bt_comm *comm, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_RANK, "%s", comm->reason);
}

/* Take one message of a rank; false: there are no more. */
static bool message_take(bt_comm *comm, int socket, double deadline)
{
    header head;
    char skipped[4096];
    if (!receive_by(socket, &head, sizeof(head), deadline))
        return false;
    if (head.kind == REASON)
        reason_take(comm, socket, &head, deadline);
    for (size_t left = head.kind == DATA ? head.bytes : 0, n; left; left -= n) {
        n = left < sizeof(skipped) ? left : sizeof(skipped);
        if (!receive_by(socket, skipped, n, deadline))
            return false;
    }
    return head.kind == DATA;
}

/* A connection is between two messages, except that to a rank that is lost. */
static bool sockets_heard(bt_comm *comm, int milliseconds)
{
    sockets *s = comm->state;
    struct pollfd ready[BT_RANK_BITS_MAX];
    double deadline = milliseconds_now() + milliseconds;
    int open = 0;
    for (int i = 0; i < s->links; i++) {
        bool lost = comm->lost == (comm->rank ^ 1 << i);
        ready[i] = (struct pollfd){ .fd = lost ? -1 : s->links_to[i].socket,
                                    .events = POLLIN };
        open += !lost;
    }
    while (open && !comm->reason[0]) {
        if (poll_by(ready, (nfds_t)s->links, deadline) <= 0)
            break;
        for (int i = 0; i < s->links && !comm->reason[0]; i++)
            if (ready[i].revents &&
                !message_take(comm, s->links_to[i].socket, deadline)) {
                ready[i].fd = -1;
                open--;
            }
    }
    return comm->reason[0];
}

static bool sockets_failing(bt_comm *comm)
{
    sockets *s = comm->state;
    for (int i = 0; i < s->links && comm->lost < 0 && !comm->reason[0]; i++) {
        int socket = s->links_to[i].socket;
        header head = { 0, 0 };
        ssize_t got = recv(socket, &head, sizeof(head), MSG_PEEK);
        if (got == sizeof(head) && head.kind == REASON)
            message_take(comm, socket, milliseconds_now() + REASON_WAIT);
        else if (got == 0 || (got < 0 && errno != EAGAIN &&
                              errno != EWOULDBLOCK && errno != EINTR))
            comm->lost = comm->rank ^ 1 << i;
    }
    return comm->lost >= 0 || comm->reason[0];
}

/* ---- one message each way ------------------------------------------------ */

/* Bytes that are still to be moved: first the header, then the rest. */
typedef struct transfer {
    header head;
    size_t head_done, done, bytes;
    char *data; /* only read when sending */
} transfer;

static bool is_done(const transfer *t)
{
    return t->head_done == sizeof(t->head) && t->done == t->bytes;
}

static bauta_status fail_lost(bt_comm *comm, int peer, bauta_error *err)
{
    const connection *l = link_to(comm, peer);
    comm->lost = peer;
    return bt_fail(err, BAUTA_ERR_RANK, "rank %d%s%s ended unexpectedly", peer,
                   l->host[0] ? " on " : "", l->host);
}

static bool send_some(int socket, transfer *t)
{
    char *head = (char *)&t->head;
    struct iovec parts[2] = { { head + t->head_done,
                                sizeof(t->head) - t->head_done },
                              { t->data + t->done, t->bytes - t->done } };
    struct msghdr message = { .msg_iov = parts,
                              .msg_iovlen = t->done < t->bytes ? 2 : 1 };
    size_t count = 0;
    bool good = moved(sendmsg(socket, &message, MSG_NOSIGNAL), &count);
    size_t of_head =
        count < parts[0].iov_len ? count : parts[0].iov_len; // the first part
    t->head_done += of_head;
    t->done += count - of_head;
    return good;
}

static bool receive_some(int socket, transfer *t)
{
    char *head = (char *)&t->head;
    if (t->head_done < sizeof(t->head))
        return moved(recv(socket, head + t->head_done,
                          sizeof(t->head) - t->head_done, 0),
                     &t->head_done);
    return moved(recv(socket, t->data + t->done, t->bytes - t->done, 0),
                 &t->done);
}

/* Look at a header as soon as it is there. */
static bauta_status head_check(bt_comm *comm, int peer, const transfer *in,
                               bauta_error *err)
{
    if (in->head_done < sizeof(in->head))
        return BAUTA_OK;
    if (in->head.kind == REASON) {
        reason_take(comm, link_to(comm, peer)->socket, &in->head,
                    milliseconds_now() + REASON_WAIT);
        return fail_reason(comm, err);
    }
    if (in->head.kind != DATA || in->head.bytes != in->bytes)
        return bt_fail(err, BAUTA_ERR_RANK,
                       "rank %d sent %u bytes where %zu were expected: the "
                       "ranks do not run the same command",
                       peer, (unsigned)in->head.bytes, in->bytes);
    return BAUTA_OK;
}

/* A rank takes no more, but it may have said why. */
static bauta_status fail_send(bt_comm *comm, int peer, transfer *in,
                              bauta_error *err)
{
    int socket = link_to(comm, peer)->socket;
    double deadline = milliseconds_now() + REASON_WAIT;
    struct pollfd ready = { .fd = socket, .events = POLLIN };
    bauta_status status = BAUTA_OK;
    while (!status && !is_done(in) && poll_by(&ready, 1, deadline) > 0) {
        if (!receive_some(socket, in))
            return fail_lost(comm, peer, err);
        status = head_check(comm, peer, in, err);
    }
    if (status)
        return status;
    while (is_done(in) && message_take(comm, socket, deadline))
        ;
    return comm->reason[0] ? fail_reason(comm, err)
                           : fail_lost(comm, peer, err);
}

static bauta_status transfer_some(bt_comm *comm, int peer, transfer *out,
                                  transfer *in, short events, bauta_error *err)
{
    int socket = link_to(comm, peer)->socket;
    bauta_status status = BAUTA_OK;
    if (events & (POLLIN | POLLHUP | POLLERR) && !is_done(in)) {
        if (!receive_some(socket, in))
            return fail_lost(comm, peer, err);
        status = head_check(comm, peer, in, err);
    }
    if (!status && events & (POLLOUT | POLLERR) && !is_done(out) &&
        !send_some(socket, out))
        status = fail_send(comm, peer, in, err);
    return status;
}

/* Another rank than the peer has sent something, or has ended. The reason of a
 * failure is taken at once: the peer may be waiting for it, too. All else can
 * wait. */
static bool others_failed(bt_comm *comm, struct pollfd *ready)
{
    sockets *s = comm->state;
    for (int i = 0; i < s->links; i++) {
        header head = { 0, 0 };
        if (ready[i].fd < 0 || !ready[i].revents)
            continue;
        ssize_t got = recv(ready[i].fd, &head, sizeof(head), MSG_PEEK);
        if (got == sizeof(head) && head.kind == REASON)
            message_take(comm, ready[i].fd, milliseconds_now() + REASON_WAIT);
        ready[i].fd = -1;
    }
    return comm->reason[0];
}

static bauta_status sockets_exchange(bt_comm *comm, int peer, const void *send,
                                     size_t send_bytes, void *receive,
                                     size_t receive_bytes, bauta_error *err)
{
    sockets *s = comm->state;
    connection *to = link_to(comm, peer);
    transfer out = { .head = { DATA, (uint32_t)send_bytes },
                     .bytes = send_bytes,
                     .data = (char *)(uintptr_t)(send ? send : "") };
    transfer in = { .bytes = receive_bytes, .data = receive };
    struct pollfd ready[BT_RANK_BITS_MAX + 1]; // the last one is the peer
    bauta_status status = BAUTA_OK;
    for (int i = 0; i < s->links; i++) {
        bool other = s->greeted && &s->links_to[i] != to;
        ready[i] = (struct pollfd){ .fd = other ? s->links_to[i].socket : -1,
                                    .events = POLLIN };
    }
    ready[s->links].fd = to->socket;
    while (!status && !(is_done(&out) && is_done(&in))) {
        ready[s->links].events = (short)((is_done(&in) ? 0 : POLLIN) |
                                         (is_done(&out) ? 0 : POLLOUT));
        if (poll(ready, (nfds_t)s->links + 1, -1) > 0)
            status = others_failed(comm, ready)
                         ? fail_reason(comm, err)
                         : transfer_some(comm, peer, &out, &in,
                                         ready[s->links].revents, err);
        else if (errno != EINTR)
            status = fail_lost(comm, peer, err);
    }
    return status;
}

/* ---- life ---------------------------------------------------------------- */

/* A rank that takes no more bytes does not keep the others waiting. */
static void sockets_abort(bt_comm *comm, const char *reason)
{
    sockets *s = comm->state;
    struct {
        header head;
        char text[REASON_MAX + 1];
    } message = { .head.kind = REASON };
    snprintf(message.text, sizeof(message.text), "%s", reason);
    message.head.bytes = (uint32_t)strlen(message.text);
    for (int i = 0; i < s->links; i++) {
        ssize_t sent = send(s->links_to[i].socket, &message,
                            sizeof(message.head) + message.head.bytes,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
        shutdown(s->links_to[i].socket, SHUT_WR);
    }
}

static void sockets_release(bt_comm *comm)
{
    sockets *s = comm->state;
    for (int i = 0; i < s->links; i++)
        close(s->links_to[i].socket);
    bt_free(s);
}

/* Ranks that were started by different commands find out here. */
static bauta_status greet(bt_comm *comm, int peer, bauta_error *err)
{
    greeting mine = { .rank = (uint32_t)comm->rank,
                      .count = (uint32_t)comm->count,
                      .host_order = DATA },
             theirs;
    gethostname(mine.host, sizeof(mine.host) - 1);
    bauta_status status = sockets_exchange(comm, peer, &mine, sizeof(mine),
                                           &theirs, sizeof(theirs), err);
    if (status)
        return status;
    if (theirs.rank != (uint32_t)peer || theirs.count != mine.count ||
        theirs.host_order != mine.host_order)
        return bt_fail(err, BAUTA_ERR_RANK,
                       "rank %d of %d is connected to rank %u of %u instead of "
                       "rank %d",
                       comm->rank, comm->count, (unsigned)theirs.rank,
                       (unsigned)theirs.count, peer);
    connection *l = link_to(comm, peer);
    text_clean(l->host, sizeof(l->host), theirs.host, sizeof(theirs.host));
    return BAUTA_OK;
}

bauta_status bt_comm_sockets(bt_comm *comm, int rank, int count,
                             const int *socket, bauta_error *err)
{
    static const bt_comm_transport transport = {
        .name = "sockets",
        .exchange = sockets_exchange,
        .abort = sockets_abort,
        .heard = sockets_heard,
        .failing = sockets_failing,
        .release = sockets_release,
    };
    *comm = bt_comm_single();
    sockets *s = bt_alloc_zero(1, sizeof(*s));
    for (int i = 0; 1 << i < count; i++) {
        fcntl(socket[i], F_SETFL, fcntl(socket[i], F_GETFL) | O_NONBLOCK);
        if (s)
            s->links_to[s->links++].socket = socket[i];
        else
            close(socket[i]);
    }
    if (!s)
        return bt_fail_memory(err, "the connections of a rank", sizeof(*s));
    comm->transport = &transport;
    comm->state = s;
    comm->rank = rank;
    comm->count = count;
    bauta_error why = { 0 };
    bauta_status status = BAUTA_OK;
    for (int bit = 1; !status && bit < count; bit <<= 1)
        status = greet(comm, rank ^ bit, &why);
    s->greeted = !status;
    if (!status)
        return BAUTA_OK;
    sockets_abort(comm, why.message);
    bt_comm_release(comm);
    return bt_fail(err, status, "%s", why.message);
}

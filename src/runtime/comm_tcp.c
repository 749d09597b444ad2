/* SPDX-License-Identifier: Apache-2.0 */
/* comm_tcp.c - how ranks on different machines find each other.
 *
 * Every rank listens: rank 0 at the address that all know, the others at a port
 * of the system's choice, which they tell rank 0. When rank 0 has heard of all,
 * it sends everyone the list. Then a rank connects to those below it that
 * differ in one bit, and accepts those above. A stranger who connects is turned
 * away; what ranks send is neither encrypted nor signed, as with MPI and NCCL,
 * so the network between them must be trusted. */
#include "runtime/comm_tcp.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE = 300, /* seconds that ranks wait for each other to start */
    HELLO_WAIT = 5, /* seconds for a hello, once connected */
};

typedef struct rendezvous {
    int rank, count;
    const char *address, *port; /* of rank 0 */
    double deadline;
    int listener;
    bt_tcp_address *ranks; /* (count) */
    int sockets[BT_RANK_BITS_MAX];
    bauta_error *err;
} rendezvous;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bauta_status fail_late(const rendezvous *r, const char *what)
{
    return bt_fail(r->err, BAUTA_ERR_RANK,
                   "rank %d of %d: %s within %d seconds (rank 0 is at %s:%s)",
                   r->rank, r->count, what, (int)PATIENCE,
                   bt_quote(r->address).text, bt_quote(r->port).text);
}

/* ---- sockets ------------------------------------------------------------- */

static void wait_set(int socket, int option, double seconds)
{
    struct timeval t = { .tv_sec = seconds > 1.0 ? (time_t)seconds : 1 };
    setsockopt(socket, SOL_SOCKET, option, &t, sizeof(t));
}

/* No delay for small messages; a machine that is gone is noticed. */
static void link_set(int socket)
{
    static const struct {
        int level, name, value;
    } options[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },  { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, 5 }, { IPPROTO_TCP, TCP_KEEPINTVL, 1 },
        { IPPROTO_TCP, TCP_KEEPCNT, 4 },
    };
    for (size_t i = 0; i < BT_LEN(options); i++)
        setsockopt(socket, options[i].level, options[i].name, &options[i].value,
                   sizeof(options[i].value));
}

static bool send_all(int socket, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes) {
        ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool receive_all(int socket, void *data, size_t bytes)
{
    char *to = data;
    while (bytes) {
        ssize_t n = recv(socket, to, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- messages ------------------------------------------------------------ */

/* Whether a text ends, and has only these characters. */
static bool consists_of(const char *text, size_t room, const char *characters)
{
    return memchr(text, '\0', room) && *text &&
           text[strspn(text, characters)] == '\0';
}

static bool is_port(const char *text, size_t room)
{
    return consists_of(text, room, "0123456789");
}

bool bt_tcp_hello_receive(int socket, int count, bt_tcp_hello *hello)
{
    return receive_all(socket, hello, sizeof(*hello)) &&
           hello->magic == BT_TCP_HELLO_MAGIC &&
           hello->count == (uint32_t)count && hello->rank < hello->count &&
           is_port(hello->port, sizeof(hello->port));
}

/* Rank 0 does not list itself. An address of IPv6 may end with the name of an
 * interface. */
bool bt_tcp_addresses_receive(int socket, int count, bt_tcp_address *list)
{
    static const char host[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:%-_";
    bool good = receive_all(socket, list, (size_t)count * sizeof(*list));
    for (int i = 1; good && i < count; i++)
        good = consists_of(list[i].host, sizeof(list[i].host), host) &&
               is_port(list[i].port, sizeof(list[i].port));
    return good;
}

/* ---- connecting ---------------------------------------------------------- */

static struct addrinfo *resolve(const char *host, const char *port, int flags)
{
    struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = flags },
                    *list = NULL;
    return getaddrinfo(host, port, &wanted, &list) ? NULL : list;
}

/* Listen at a port, "0" for any; -1 if that fails. */
static int listen_at(const char *port, int room)
{
    struct addrinfo *list = resolve(NULL, port, AI_PASSIVE);
    int found = -1, yes = 1;
    for (struct addrinfo *a = list; a && found < 0; a = a->ai_next) {
        int s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (s < 0)
            continue;
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, room) == 0)
            found = s;
        else
            close(s);
    }
    if (list)
        freeaddrinfo(list);
    return found;
}

static int connect_once(const char *host, const char *port)
{
    struct addrinfo *list = resolve(host, port, 0);
    int found = -1;
    for (struct addrinfo *a = list; a && found < 0; a = a->ai_next) {
        int s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (s < 0)
            continue;
        wait_set(s, SO_SNDTIMEO, HELLO_WAIT);
        if (connect(s, a->ai_addr, a->ai_addrlen) == 0)
            found = s;
        else
            close(s);
    }
    if (list)
        freeaddrinfo(list);
    return found;
}

/* Until the other one listens. */
static int connect_to(const rendezvous *r, const char *host, const char *port)
{
    const struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
    int s;
    while ((s = connect_once(host, port)) < 0 && seconds_now() < r->deadline)
        nanosleep(&pause, NULL);
    return s;
}

/* The next connection with a proper hello; -1 when it is too late. */
static int accept_rank(const rendezvous *r, bt_tcp_hello *from)
{
    while (seconds_now() < r->deadline) {
        wait_set(r->listener, SO_RCVTIMEO, r->deadline - seconds_now());
        int s = accept(r->listener, NULL, NULL);
        if (s < 0)
            continue;
        fcntl(s, F_SETFD, FD_CLOEXEC);
        wait_set(s, SO_RCVTIMEO, HELLO_WAIT);
        wait_set(s, SO_SNDTIMEO, HELLO_WAIT);
        if (bt_tcp_hello_receive(s, r->count, from))
            return s;
        close(s);
    }
    return -1;
}

/* ---- the list of ranks --------------------------------------------------- */

static bauta_status listen_begin(rendezvous *r)
{
    r->listener = listen_at(r->rank ? "0" : r->port, r->count);
    return r->listener >= 0
               ? BAUTA_OK
               : bt_fail(r->err, BAUTA_ERR_RANK,
                         "rank %d cannot listen at port %s: %s", r->rank,
                         r->rank ? "0" : bt_quote(r->port).text,
                         strerror(errno));
}

static bauta_status address_of(bt_tcp_address *out, int socket)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof(a);
    return getpeername(socket, (struct sockaddr *)&a, &size) == 0 &&
                   getnameinfo((struct sockaddr *)&a, size, out->host,
                               sizeof(out->host), NULL, 0, NI_NUMERICHOST) == 0
               ? BAUTA_OK
               : BAUTA_ERR_RANK;
}

/* Rank 0: hear of all, then tell all. */
static bauta_status list_collect(rendezvous *r)
{
    int *joined = bt_alloc_zero((size_t)r->count, sizeof(*joined));
    bauta_status status =
        joined ? BAUTA_OK : bt_fail_memory(r->err, "the list of ranks", 0);
    for (int heard = 1; !status && heard < r->count;) {
        bt_tcp_hello from;
        int s = accept_rank(r, &from);
        if (s < 0) {
            status = fail_late(r, "not all ranks joined");
        } else if (from.rank == 0 || joined[from.rank] ||
                   address_of(&r->ranks[from.rank], s)) {
            close(s); // there is one with this number
        } else {
            snprintf(r->ranks[from.rank].port, sizeof(r->ranks[0].port), "%s",
                     from.port);
            joined[from.rank] = s;
            heard++;
        }
    }
    for (int i = 1; joined && i < r->count; i++) {
        if (!status && !send_all(joined[i], r->ranks,
                                 (size_t)r->count * sizeof(*r->ranks)))
            status = bt_fail(r->err, BAUTA_ERR_RANK,
                             "rank %d ended before all had joined", i);
        if (joined[i])
            close(joined[i]);
    }
    bt_free(joined);
    return status;
}

static bt_tcp_hello hello_of(const rendezvous *r)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof(a);
    bt_tcp_hello h = { BT_TCP_HELLO_MAGIC, (uint32_t)r->rank,
                       (uint32_t)r->count, "0" };
    if (getsockname(r->listener, (struct sockaddr *)&a, &size) == 0)
        getnameinfo((struct sockaddr *)&a, size, NULL, 0, h.port,
                    sizeof(h.port), NI_NUMERICSERV);
    return h;
}

/* The others: tell rank 0, and get the list. */
static bauta_status list_receive(rendezvous *r)
{
    bt_tcp_hello mine = hello_of(r);
    int s = connect_to(r, r->address, r->port);
    if (s < 0)
        return fail_late(r, "rank 0 did not answer");
    wait_set(s, SO_RCVTIMEO, r->deadline - seconds_now());
    bool good = send_all(s, &mine, sizeof(mine)) &&
                bt_tcp_addresses_receive(s, r->count, r->ranks);
    close(s);
    return good ? BAUTA_OK
                : fail_late(r, "rank 0 did not accept this rank (is there one "
                               "with the same number?)");
}

/* ---- connections --------------------------------------------------------- */

static bauta_status connect_below(rendezvous *r, int bit)
{
    const bt_tcp_address *a = &r->ranks[r->rank ^ 1 << bit];
    bool first = (r->rank ^ 1 << bit) == 0;
    bt_tcp_hello mine = hello_of(r);
    int s =
        connect_to(r, first ? r->address : a->host, first ? r->port : a->port);
    if (s < 0 || !send_all(s, &mine, sizeof(mine))) {
        if (s >= 0)
            close(s);
        return fail_late(r, "another rank did not answer");
    }
    r->sockets[bit] = s;
    return BAUTA_OK;
}

static bauta_status accept_above(rendezvous *r, int missing)
{
    while (missing) {
        bt_tcp_hello from;
        int bit = 0, s = accept_rank(r, &from);
        if (s < 0)
            return fail_late(r, "another rank did not connect");
        while (1 << bit < r->count && (r->rank ^ 1 << bit) != (int)from.rank)
            bit++;
        if (1 << bit == r->count || r->sockets[bit] >= 0) {
            close(s);
            continue;
        }
        r->sockets[bit] = s;
        missing--;
    }
    return BAUTA_OK;
}

static bauta_status connect_all(rendezvous *r)
{
    bauta_status status = BAUTA_OK;
    int above = 0;
    for (int bit = 0; !status && 1 << bit < r->count; bit++) {
        if (r->rank & 1 << bit)
            status = connect_below(r, bit);
        else
            above++;
    }
    if (!status)
        status = accept_above(r, above);
    for (int bit = 0; !status && 1 << bit < r->count; bit++) {
        wait_set(r->sockets[bit], SO_RCVTIMEO, 0);
        link_set(r->sockets[bit]);
    }
    return status;
}

bauta_status bt_comm_tcp(bt_comm *comm, int rank, int count,
                         const char *address, const char *port,
                         bauta_error *err)
{
    rendezvous r = { .rank = rank,
                     .count = count,
                     .address = address,
                     .port = port,
                     .deadline = seconds_now() + PATIENCE,
                     .listener = -1,
                     .err = err };
    for (int i = 0; i < BT_RANK_BITS_MAX; i++)
        r.sockets[i] = -1;
    *comm = bt_comm_single();
    r.ranks = bt_alloc_zero((size_t)count, sizeof(*r.ranks));
    bauta_status status =
        r.ranks ? listen_begin(&r)
                : bt_fail_memory(err, "the list of ranks",
                                 (size_t)count * sizeof(*r.ranks));
    if (!status)
        status = rank ? list_receive(&r) : list_collect(&r);
    if (!status)
        status = connect_all(&r);
    if (r.listener >= 0)
        close(r.listener);
    bt_free(r.ranks);
    if (!status)
        return bt_comm_sockets(comm, rank, count, r.sockets, err);
    for (int i = 0; i < BT_RANK_BITS_MAX; i++)
        if (r.sockets[i] >= 0)
            close(r.sockets[i]);
    return status;
}

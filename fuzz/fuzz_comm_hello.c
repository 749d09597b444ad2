/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_comm_hello.c - any bytes from a stranger who connects to a rank.
 *
 * The first byte says what the rank expects: the hello of another rank, the
 * addresses of all from rank 0, or the greeting and the messages of a rank that
 * it is connected to. All are refused, or are what the rank can use. */
#include "base/error.h"
#include "checks.h"
#include "runtime/comm_tcp.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 4, MOST = 1 << 16 };

static void number_check(const char *text, size_t room)
{
    must(memchr(text, '\0', room) && *text);
    must(text[strspn(text, "0123456789")] == '\0');
}

static void hello_check(int socket)
{
    bt_tcp_hello hello;
    if (bt_tcp_hello_receive(socket, COUNT, &hello)) {
        must(hello.rank < COUNT && hello.count == COUNT);
        number_check(hello.port, sizeof(hello.port));
    }
    close(socket);
}

static void addresses_check(int socket)
{
    bt_tcp_address list[COUNT];
    if (bt_tcp_addresses_receive(socket, COUNT, list))
        for (int i = 1; i < COUNT; i++) {
            must(memchr(list[i].host, '\0', sizeof(list[i].host)) != NULL);
            must(list[i].host[0] > 0x20);
            number_check(list[i].port, sizeof(list[i].port));
        }
    close(socket);
}

/* As rank 0 of 2: the greeting, then sums until the other one ends or fails. */
static void messages_check(int socket)
{
    bt_comm comm;
    bauta_error err = { 0 };
    double values[3] = { 0 };
    bauta_status status = bt_comm_sockets(&comm, 0, 2, &socket, &err);
    if (status) {
        must_refuse(status, &err);
        return;
    }
    while (!(status = bt_comm_sum(&comm, values, 3, &err)))
        ;
    must_refuse(status, &err);
    must(status == BAUTA_ERR_RANK);
    bt_comm_reported(&comm);
    bt_comm_release(&comm);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static void (*const checks[])(int) = { hello_check, addresses_check,
                                           messages_check };
    int pair[2];
    if (size == 0 || size > MOST)
        return 0;
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(send(pair[1], bytes + 1, size - 1, MSG_NOSIGNAL) ==
         (ssize_t)(size - 1));
    shutdown(pair[1], SHUT_WR);
    checks[bytes[0] % BT_LEN(checks)](pair[0]);
    close(pair[1]);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* comm_tcp.h - what ranks tell each other before they are connected. */
#ifndef BT_COMM_TCP_H
#define BT_COMM_TCP_H

#include "runtime/comm.h"

enum { BT_TCP_HELLO_MAGIC = 0x62617431 };

/* The first message of a rank, to rank 0 or to another rank. */
typedef struct bt_tcp_hello {
    uint32_t magic, rank, count;
    char port[8]; /* where the rank listens: a number */
} bt_tcp_hello;

/* Where a rank listens: both are numeric. Rank 0 sends (count) of them. */
typedef struct bt_tcp_address {
    char host[128], port[8];
} bt_tcp_address;

/* Read from a socket with a time limit. false: it is not one of `count` ranks
 * that speaks, or it was too slow. */
bool bt_tcp_hello_receive(int socket, int count, bt_tcp_hello *hello);
bool bt_tcp_addresses_receive(int socket, int count, bt_tcp_address *list);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h - open connections, watched from outside of libmicrohttpd.
 *
 * A suspended connection is not polled by the library, and a client that sends
 * a byte now and then is never idle. So one thread watches all sockets: a
 * client that closes its side cancels the job that it waits for, and a request
 * that does not arrive in time ends its connection. */
#ifndef SERVER_CONNECTIONS_H
#define SERVER_CONNECTIONS_H

#include "job.h"

typedef struct connections connections;
typedef struct open_connection open_connection;

/* `seconds` is the time for a request to arrive. NULL: errno says why. */
connections *connections_create(size_t seconds);
void connections_free(connections *all);
/* Also wait for this descriptor to become readable. */
bool connections_watch(connections *all, int fd);

/* Called by the thread of libmicrohttpd. NULL if out of memory. */
open_connection *connection_open(connections *all, int fd);
void connection_close(connections *all, open_connection *c);
/* The whole request has arrived. `j` is what the client waits for, or NULL. */
void connection_busy(connections *all, open_connection *c, job *j);
/* The answer is sent, or given up: another request may arrive. */
void connection_idle(connections *all, open_connection *c);

/* Handle events for `milliseconds`, or until the watched descriptor is
 * readable. */
void connections_poll(connections *all, int milliseconds);
void connections_cancel(connections *all);

#endif

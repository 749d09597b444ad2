/* SPDX-License-Identifier: Apache-2.0 */
/* access.h - who may ask: API keys, origins of pages, names of this host. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "state.h"

/* Check a request. `open` ones need no key. False after a failure. */
bool access_check(const server *s, struct MHD_Connection *connection, bool open,
                  failure *f);
/* The client for fair queueing: its API key, or else its address. */
uint64_t access_client(const server *s, struct MHD_Connection *connection);
/* Headers that let pages of --cors-origin read the answer. */
void access_headers(const server *s, struct MHD_Response *response);

#endif

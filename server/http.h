/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - requests and answers of libmicrohttpd. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "state.h"

/* Listen, with TLS if the options have a certificate. *port receives the port.
 * NULL after a message. */
struct MHD_Daemon *http_start(server *s, size_t *port);

#endif

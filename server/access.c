/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - who may ask; see access.h. */
#include "access.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* ---- API keys ---------------------------------------------------------- */

/* The time depends on the length of `given`, and on no byte of `key`. */
static bool key_equal(const char *key, const char *given)
{
    size_t length = strlen(key), given_length = strlen(given);
    unsigned difference = length != given_length;
    for (size_t i = 0; i < given_length; i++)
        difference |= (unsigned char)given[i] ^
                      (unsigned char)key[length ? i % length : 0];
    return difference == 0;
}

/* 1 + the number of the request's key, or 0. All keys are compared. */
static size_t key_find(const server *s, struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *given = header(connection, "Authorization");
    size_t found = 0;
    if (!given || strncasecmp(given, scheme, sizeof(scheme) - 1) != 0)
        return 0;
    given += sizeof(scheme) - 1;
    for (size_t i = 0; i < s->options->api_keys.count; i++)
        if (key_equal(s->options->api_keys.at[i], given))
            found = i + 1;
    return found;
}

/* ---- pages of other sites ---------------------------------------------- */

/* Whether a Host header is a name of this machine for itself. */
static bool host_is_local(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 &&
            (!host[length] || host[length] == ':'))
            return true;
    }
    return false;
}

static bool listens_locally(const server *s)
{
    const char *host = s->options->host;
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* A browser sends requests of any page to any address, with the page's origin.
 * Only our own page and --cors-origin may ask. A page whose name was made to
 * point to this machine (DNS rebinding) has our origin, but a foreign host. */
static bool origin_check(const server *s, struct MHD_Connection *connection,
                         failure *f)
{
    const char *origin = header(connection, "Origin");
    const char *host = header(connection, "Host");
    const char *allowed = s->options->cors_origin;
    if (host && listens_locally(s) && !s->options->api_keys.count &&
        !host_is_local(host))
        return fail(f, 403, NULL, "host_not_allowed",
                    "the server listens on %s only, and has no API key; the "
                    "host '%.80s' is not allowed",
                    s->options->host, host);
    if (!origin || (allowed && (strcmp(allowed, "*") == 0 ||
                                strcmp(allowed, origin) == 0)))
        return true;
    if (host && strncmp(origin, "http", 4) == 0) {
        const char *name = strstr(origin, "://");
        if (name && strcmp(name + 3, host) == 0)
            return true;
    }
    return fail(f, 403, NULL, "origin_not_allowed",
                "pages of '%.80s' may not use this server; see --cors-origin",
                origin);
}

bool access_check(const server *s, struct MHD_Connection *connection, bool open,
                  failure *f)
{
    if (!origin_check(s, connection, f))
        return false;
    if (open || !s->options->api_keys.count || key_find(s, connection))
        return true;
    return fail(f, 401, NULL, "invalid_api_key",
                "the API key is missing or wrong (Authorization: Bearer KEY)");
}

void access_headers(const server *s, struct MHD_Response *response)
{
    if (!s->options->cors_origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin",
                            s->options->cors_origin);
    MHD_add_response_header(response, "Access-Control-Allow-Methods",
                            "GET, POST, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            "Authorization, Content-Type");
    MHD_add_response_header(response, "Vary", "Origin");
}

/* ---- clients ----------------------------------------------------------- */

/* FNV-1a. */
static uint64_t hash(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

uint64_t access_client(const server *s, struct MHD_Connection *connection)
{
    size_t key = key_find(s, connection);
    if (key)
        return hash(&key, sizeof(key));
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!info || !info->client_addr)
        return 0;
    if (info->client_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 address;
        memcpy(&address, info->client_addr, sizeof(address));
        return hash(&address.sin6_addr, sizeof(address.sin6_addr));
    }
    struct sockaddr_in address;
    memcpy(&address, info->client_addr, sizeof(address));
    return hash(&address.sin_addr, sizeof(address.sin_addr));
}

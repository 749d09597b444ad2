/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - requests and answers of libmicrohttpd; see http.h.
 *
 * One thread with epoll reads requests and sends answers. A request is parsed
 * when its body is complete; if it needs the model, the connection is suspended
 * until the scheduler has something to send. */
#include "http.h"

#include "../cli/cli.h"
#include "../cli/format.h"
#include "access.h"
#include "routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ---------------------------------------------------------- */

typedef struct exchange {
    server *server;
    const route *route;  /* NULL: there is none */
    served_model *model; /* that the request names */
    const char *allow;   /* the method of the path, if it has one */
    open_connection *connection;
    bool counted;
    buffer body;
    size_t received; /* bytes, including those that were dropped */
    failure failed;
    reply reply;
} exchange;

static open_connection *connection_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- answers ----------------------------------------------------------- */

static enum MHD_Result response_queue(const exchange *e,
                                      struct MHD_Connection *c, int status,
                                      const char *type,
                                      struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (strncmp(type, "text/html", 9) == 0)
        MHD_add_response_header(response, "Content-Security-Policy",
                                "default-src 'none'; script-src 'self'; "
                                "style-src 'self'; img-src 'self'; "
                                "connect-src 'self'; base-uri 'none'; "
                                "form-action 'none'; frame-ancestors 'none'");
    if (status == 429 || status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (status == 405 && e->allow)
        MHD_add_response_header(response, "Allow", e->allow);
    if (atomic_load(&e->server->draining))
        MHD_add_response_header(response, "Connection", "close");
    access_headers(e->server, response);
    enum MHD_Result queued = MHD_queue_response(c, (unsigned)status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result text_queue(const exchange *e, struct MHD_Connection *c,
                                  int status, const char *type,
                                  const char *text, size_t length)
{
    // The library only reads a buffer that it copies.
    void *bytes = (void *)(uintptr_t)(text ? text : "");
    return response_queue(
        e, c, status, type,
        MHD_create_response_from_buffer(length, bytes, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result failure_queue(const exchange *e,
                                     struct MHD_Connection *c)
{
    char *text = failure_json(&e->failed);
    if (!text)
        return MHD_NO;
    enum MHD_Result queued = text_queue(e, c, e->failed.status,
                                        "application/json", text, strlen(text));
    free(text);
    return queued;
}

/* ---- answers of jobs --------------------------------------------------- */

typedef struct stream {
    job *job;
    struct MHD_Connection *connection;
} stream;

static ssize_t stream_read(void *user, uint64_t position, char *to, size_t max)
{
    stream *t = user;
    job *j = t->job;
    (void)position;
    if (job_wait(j, t->connection))
        return 0;
    pthread_mutex_lock(&j->lock);
    size_t left = j->out.length - j->sent;
    size_t count = left < max ? left : max;
    if (count)
        memcpy(to, j->out.at + j->sent, count);
    j->sent += count;
    bool broken = j->out.failed || atomic_load(&j->cancelled);
    pthread_mutex_unlock(&j->lock);
    if (count)
        return (ssize_t)count;
    return broken ? MHD_CONTENT_READER_END_WITH_ERROR
                  : MHD_CONTENT_READER_END_OF_STREAM;
}

static void stream_free(void *user)
{
    stream *t = user;
    job_release(t->job);
    free(t);
}

static enum MHD_Result stream_queue(exchange *e, struct MHD_Connection *c)
{
    enum { BLOCK = 16384 };
    stream *t = calloc(1, sizeof(*t));
    if (!t)
        return MHD_NO;
    *t = (stream){ e->reply.job, c };
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK, stream_read, t, stream_free);
    if (!response) {
        free(t);
        return MHD_NO;
    }
    pthread_mutex_lock(&t->job->lock);
    t->job->owners++;
    pthread_mutex_unlock(&t->job->lock);
    return response_queue(e, c, 200, "text/event-stream", response);
}

/* Called again whenever the connection is resumed. */
static enum MHD_Result job_answer(exchange *e, struct MHD_Connection *c)
{
    job *j = e->reply.job;
    if (job_wait(j, c))
        return MHD_YES;
    pthread_mutex_lock(&j->lock);
    int status = j->status;
    bool begun = j->stream && status == 200;
    pthread_mutex_unlock(&j->lock);
    if (begun)
        return stream_queue(e, c);
    if (!status || j->out.failed) // cancelled, or out of memory
        return MHD_NO;
    return text_queue(e, c, status, j->type, j->out.at, j->out.length);
}

/* ---- the handler ------------------------------------------------------- */

static bool job_submit(exchange *e, struct MHD_Connection *c)
{
    server *s = e->server;
    job *j = e->reply.job;
    j->client = access_client(s, c);
    j->arrived = seconds_now();
    j->deadline = j->arrived + (double)s->options->timeout;
    connection_busy(s->connections, e->connection, j);
    return scheduler_submit(e->model->scheduler, j, &e->failed);
}

/* "model" in a body or after "?" names the model. */
static bool model_find(exchange *e, struct MHD_Connection *c,
                       const json_t *body)
{
    const char *name =
        MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "model");
    if (e->failed.status)
        return false;
    if (e->model) // the path had its name
        return true;
    if (!field_string(body, "model", &name, &e->failed))
        return false;
    e->model = served_model_find(e->server->models, e->server->model_count,
                                 name, &e->failed);
    return e->model != NULL;
}

static bool body_check(exchange *e)
{
    const server *s = e->server;
    if (e->received > s->options->max_body)
        return fail(&e->failed, 413, NULL, "body_too_large",
                    "the body has more than %zu bytes", s->options->max_body);
    if (e->body.failed)
        return fail(&e->failed, 503, NULL, NULL, "out of memory");
    return true;
}

static bool request_run(exchange *e, struct MHD_Connection *c)
{
    bool post = strcmp(e->route->method, "POST") == 0;
    json_t *body = NULL;
    if (post && atomic_load(&e->server->draining))
        return fail(&e->failed, 503, NULL, "shutting_down",
                    "the server is shutting down");
    if (!body_check(e))
        return false;
    if (post)
        body = body_parse(e->body.at ? e->body.at : "", e->body.length,
                          &e->failed);
    if (post && !body)
        return false;
    bool good = model_find(e, c, body);
    const api_request q = { e->server, e->model, body };
    good = good && e->route->answer(&q, &e->reply, &e->failed);
    json_decref(body);
    buffer_release(&e->body);
    return good && (!e->reply.job || job_submit(e, c));
}

static enum MHD_Result request_answer(exchange *e, struct MHD_Connection *c)
{
    if (!e->failed.status && request_run(e, c) && e->reply.job)
        return job_answer(e, c);
    if (e->failed.status) {
        if (e->reply.job)
            connection_busy(e->server->connections, e->connection, NULL);
        return failure_queue(e, c);
    }
    return text_queue(e, c, e->reply.status, e->reply.type, e->reply.text.at,
                      e->reply.text.length);
}

/* The headers have arrived. */
static enum MHD_Result request_begin(server *s, struct MHD_Connection *c,
                                     const char *path, const char *method,
                                     void **state)
{
    exchange *e = calloc(1, sizeof(*e));
    const char *length = MHD_lookup_connection_value(
        c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!e)
        return MHD_NO;
    *state = e;
    e->server = s;
    e->connection = connection_of(c);
    e->reply = (reply){ .status = 200, .type = "application/json" };
    atomic_fetch_add(&s->requests, 1);
    if (s->options->cors_origin && strcmp(method, "OPTIONS") == 0)
        return text_queue(e, c, 204, "text/plain", "", 0);
    const char *model;
    e->route = route_find(path, method, &model, &e->allow, &e->failed);
    if (e->route && model)
        e->model =
            served_model_find(s->models, s->model_count, model, &e->failed);
    failure denied = { 0 };
    if (!access_check(s, c, e->route && e->route->open, &denied))
        e->failed = denied;
    // A body that is announced as too large is not awaited.
    if (length && strtoull(length, NULL, 10) > s->options->max_body) {
        if (!e->failed.status)
            fail(&e->failed, 413, NULL, "body_too_large",
                 "the body has %.20s bytes; the limit is %zu", length,
                 s->options->max_body);
        return failure_queue(e, c);
    }
    return MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *c,
                              const char *path, const char *method,
                              const char *version, const char *data,
                              size_t *size, void **state)
{
    exchange *e = *state;
    (void)version;
    if (!e)
        return request_begin(user, c, path, method, state);
    if (*size) {
        e->received += *size;
        if (e->received <= e->server->options->max_body && !e->failed.status)
            buffer_add(&e->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (e->reply.job)
        return job_answer(e, c);
    connection_busy(e->server->connections, e->connection, NULL);
    return request_answer(e, c);
}

/* The answer is sent, or the client is gone. */
static void completed(void *user, struct MHD_Connection *c, void **state,
                      enum MHD_RequestTerminationCode how)
{
    server *s = user;
    exchange *e = *state;
    (void)c;
    if (!e)
        return;
    connection_idle(s->connections, e->connection);
    if (e->reply.job) {
        if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
            atomic_store(&e->reply.job->cancelled, true);
        job_release(e->reply.job);
    }
    buffer_release(&e->body);
    buffer_release(&e->reply.text);
    free(e);
    *state = NULL;
    atomic_fetch_sub(&s->requests, 1);
}

static void connection_notify(void *user, struct MHD_Connection *c,
                              void **context,
                              enum MHD_ConnectionNotificationCode what)
{
    server *s = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context =
            info ? connection_open(s->connections, info->connect_fd) : NULL;
    } else {
        connection_close(s->connections, *context);
        *context = NULL;
    }
}

/* ---- listening --------------------------------------------------------- */

/* The texts of a key and a certificate in PEM, or two NULLs. */
typedef struct tls_files {
    char *key, *certificate;
} tls_files;

static char *file_read(const char *verb, const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, MOST + 1);
    if (file && text && fread(text, 1, MOST, file) && !ferror(file)) {
        fclose(file);
        return text;
    }
    (void)cli_fail(verb, "%s: %s", path,
                   !file || ferror(file) ? strerror(errno)
                   : text                ? "it is empty"
                                         : "out of memory");
    if (file)
        fclose(file);
    free(text);
    return NULL;
}

static bool tls_read(tls_files *tls, const server *s)
{
    const char *verb = s->models[0].opened->verb;
    if (!s->options->ssl_cert_file)
        return true;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        (void)cli_fail(verb, "this libmicrohttpd has no TLS; use a proxy");
        return false;
    }
    tls->key = file_read(verb, s->options->ssl_key_file);
    if (tls->key)
        tls->certificate = file_read(verb, s->options->ssl_cert_file);
    return tls->certificate != NULL;
}

static struct MHD_Daemon *
daemon_start(server *s, const struct addrinfo *address, const tls_files *tls)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    struct MHD_OptionItem more[] = {
        { MHD_OPTION_HTTPS_MEM_KEY, 0, tls->key },
        { MHD_OPTION_HTTPS_MEM_CERT, 0, tls->certificate },
        { MHD_OPTION_END, 0, NULL },
    };
    if (address->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    if (tls->key)
        flags |= MHD_USE_TLS;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, address->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->options->connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->options->timeout,
        MHD_OPTION_NOTIFY_COMPLETED, completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        connection_notify, s, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024u, MHD_OPTION_ARRAY,
        tls->key ? more : more + 2, MHD_OPTION_END);
}

struct MHD_Daemon *http_start(server *s, size_t *port)
{
    const char *verb = s->models[0].opened->verb, *host = s->options->host;
    struct addrinfo how = { .ai_family = AF_UNSPEC,
                            .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE };
    struct addrinfo *address = NULL;
    tls_files tls = { NULL, NULL };
    char service[16];
    snprintf(service, sizeof(service), "%zu", s->options->port);
    int error = getaddrinfo(host, service, &how, &address);
    if (error) {
        (void)cli_fail(verb, "--host %s: %s", host, gai_strerror(error));
        return NULL;
    }
    struct MHD_Daemon *started = NULL;
    bool good = tls_read(&tls, s);
    errno = 0;
    if (good)
        started = daemon_start(s, address, &tls);
    int why = errno;
    free(tls.key);
    free(tls.certificate);
    freeaddrinfo(address);
    if (!good)
        return NULL;
    const union MHD_DaemonInfo *info =
        started ? MHD_get_daemon_info(started, MHD_DAEMON_INFO_BIND_PORT)
                : NULL;
    if (info)
        *port = info->port;
    else
        (void)cli_fail(verb, "cannot listen on %s port %zu: %s", host,
                       s->options->port,
                       why                         ? strerror(why)
                       : s->options->ssl_cert_file ? "the key or the "
                                                     "certificate is not valid"
                                                   : "libmicrohttpd failed");
    return started;
}

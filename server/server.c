/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - start, signals, watching clients, the end; see server.h. */
#include "server.h"

#include "../cli/cli.h"
#include "../cli/format.h"
#include "http.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- signals ----------------------------------------------------------- */

static int signal_event = -1; /* becomes readable */
static volatile sig_atomic_t signals;

static void signal_note(int number)
{
    uint64_t one = 1;
    int saved = errno;
    (void)number;
    signals = signals + 1;
    if (write(signal_event, &one, sizeof(one)) < 0)
        errno = saved; // the main loop looks at `signals` anyway
    errno = saved;
}

static bool signals_catch(void)
{
    struct sigaction action = { .sa_handler = signal_note,
                                .sa_flags = SA_RESTART };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    signals = 0;
    signal_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sigemptyset(&action.sa_mask);
    sigemptyset(&ignore.sa_mask);
    return signal_event >= 0 && sigaction(SIGTERM, &action, NULL) == 0 &&
           sigaction(SIGINT, &action, NULL) == 0 &&
           sigaction(SIGPIPE, &ignore, NULL) == 0;
}

static void signals_read(void)
{
    uint64_t count;
    while (read(signal_event, &count, sizeof(count)) > 0)
        ;
}

/* ---- the loop ---------------------------------------------------------- */

enum { TICK = 200 }; /* milliseconds */

/* Wait until all requests are answered, or for `seconds`. A further signal ends
 * the wait. */
static bool requests_wait(server *s, double seconds, int until)
{
    double begun = seconds_now();
    while (atomic_load(&s->requests) && signals < until &&
           seconds_now() - begun < seconds) {
        connections_poll(s->connections, TICK / 10);
        signals_read();
    }
    return atomic_load(&s->requests) == 0;
}

/* Refuse new requests and answer those that were accepted; after a second
 * signal, or when their time is up, cancel them. */
static int drain(server *s)
{
    enum { CANCEL_SECONDS = 10 };
    atomic_store(&s->draining, true);
    for (size_t i = 0; i < s->model_count; i++)
        scheduler_close(s->models[i].scheduler);
    if (!s->options->quiet && atomic_load(&s->requests))
        fprintf(stderr, "finishing %zu requests; once more to cancel them\n",
                atomic_load(&s->requests));
    if (requests_wait(s, (double)s->options->timeout, 2))
        return CLI_OK;
    connections_cancel(s->connections);
    if (!requests_wait(s, CANCEL_SECONDS, 1 << 20))
        exit(CLI_FAILED); // libmicrohttpd cannot stop with them
    return CLI_FAILED;
}

static int serve(server *s)
{
    size_t port = 0;
    struct MHD_Daemon *daemon = http_start(s, &port);
    if (!daemon)
        return CLI_FAILED;
    bool six = strchr(s->options->host, ':') != NULL;
    printf("listening on http%s://%s%s%s:%zu\n",
           s->options->ssl_cert_file ? "s" : "", six ? "[" : "",
           s->options->host, six ? "]" : "", port);
    int failed = cli_finish(s->models[0].opened->verb);
    while (!signals && !failed) {
        connections_poll(s->connections, TICK);
        signals_read();
    }
    if (!failed)
        failed = drain(s);
    MHD_stop_daemon(daemon);
    return failed;
}

/* Connections are files; a shell's limit is often 1024. */
static void files_allow(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The name of each model must be its own. */
static int aliases_check(const server *s)
{
    for (size_t i = 0; i < s->model_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(s->models[i].alias, s->models[j].alias) == 0)
                return cli_fail(s->models[i].opened->verb,
                                "%s and %s are both called '%s'; see --alias",
                                s->models[j].opened->folder,
                                s->models[i].opened->folder,
                                s->models[i].alias);
    return CLI_OK;
}

static int models_open(server *s, const opened_model *opened, size_t count)
{
    const string_list *aliases = &s->options->aliases;
    int failed = CLI_OK;
    s->models = calloc(count, sizeof(*s->models));
    if (!s->models)
        return cli_fail(opened->verb, "out of memory");
    while (!failed && s->model_count < count) {
        size_t i = s->model_count++;
        failed = served_model_open(&s->models[i], s->options, &opened[i],
                                   i < aliases->count ? aliases->at[i] : NULL);
    }
    return failed ? failed : aliases_check(s);
}

static int server_open(server *s, const char *verb)
{
    files_allow();
    s->connections = connections_create(s->options->timeout);
    if (s->connections && signals_catch() &&
        connections_watch(s->connections, signal_event))
        return CLI_OK;
    return cli_fail(verb, "%s", strerror(errno));
}

int server_run(const server_options *options, const opened_model *models,
               size_t count)
{
    server s = { .options = options, .started = time(NULL) };
    int failed = server_open(&s, models->verb);
    if (!failed)
        failed = models_open(&s, models, count);
    if (!failed)
        failed = serve(&s);
    for (size_t i = 0; i < s.model_count; i++)
        served_model_close(&s.models[i]);
    free(s.models);
    connections_free(s.connections);
    if (signal_event >= 0)
        close(signal_event);
    return failed;
}

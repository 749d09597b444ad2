/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - starting ranks on this machine, and joining others. */
#include "ranks.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum {
    RANKS_MAX = 64, /* of --ranks */
    BITS_MAX = 6,
    GRACE = 5, /* seconds in which ranks end by themselves, when one has died */
    /* The exit status of a rank that ended because of another one. */
    FOLLOWED = 3,
};

static struct {
    bauta_ranks *ranks;
    size_t here; /* ranks on this machine, if it is known */
    int reports; /* the pipe to the process that watches; -1: there is none */
    bool followed;
    FILE *
        errors; /* without such a process: where one rank prints its messages */
    char *message; /* those of this rank, until it is known who prints */
    size_t message_bytes;
} self = { .reports = -1 };

bauta_ranks *ranks_get(void)
{
    return self.ranks;
}

bool ranks_first(void)
{
    return bauta_ranks_rank(self.ranks) == 0;
}

size_t ranks_count(void)
{
    return bauta_ranks_count(self.ranks);
}

/* The number of this rank among those on this machine. */
static size_t rank_here(void)
{
    static const char *const names[] = { "LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "MPI_LOCALRANKID", "SLURM_LOCALID" };
    if (self.here > 1)
        return bauta_ranks_rank(self.ranks);
    if (ranks_part().count > 1)
        return ranks_part().rank;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text && *text)
            return strtoul(text, NULL, 10);
    }
    return 0;
}

/* Ranks of one machine take its GPUs in turn, unless one was asked for. A
 * launcher may show each rank its own GPU only. */
static void gpu_choose(device_options *own, char name[16])
{
    bool several = ranks_count() > 1 || ranks_part().count > 1;
    if (!several || !own->name || strcmp(own->name, "cuda") != 0)
        return;
    size_t gpus = bauta_gpu_count();
    if (gpus < 2)
        return;
    snprintf(name, 16, "cuda:%u", (unsigned)(rank_here() % gpus));
    own->name = name;
}

int ranks_context(bauta_context **out, const char *verb,
                  const device_options *device)
{
    bauta_error err;
    char name[16];
    device_options own = *device;
    size_t here = self.here > 1 ? self.here : ranks_part().count;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (own.threads == 0 && here > 1)
        own.threads = cores > (long)here ? (size_t)cores / here : 1;
    gpu_choose(&own, name);
    int failed = device_open(out, verb, &own);
    if (!failed && bauta_context_set_ranks(*out, self.ranks, &err))
        failed = cli_fail(verb, "%s", err.message);
    return failed;
}

bool ranks_reported(const bauta_error *err)
{
    self.followed = err->status == BAUTA_ERR_RANK && self.ranks;
    return self.followed &&
           (self.reports >= 0 || !bauta_ranks_lost(self.ranks));
}

/* ---- speaking ------------------------------------------------------------ */

static void silence(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return;
    fflush(stdout);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
}

/* All ranks but the first are silent, except for cli_fail(), which names rank
 * and host. It prints to the process that watches, or where there is none, when
 * the rank ends. */
static void voice_set(void)
{
    char host[64] = "";
    if (ranks_count() == 1)
        return;
    gethostname(host, sizeof(host) - 1);
    snprintf(cli_speaker.name, sizeof(cli_speaker.name),
             "rank %zu on %s: ", bauta_ranks_rank(self.ranks), host);
    if (self.reports < 0) {
        self.errors = fdopen(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0), "w");
        cli_speaker.errors = open_memstream(&self.message, &self.message_bytes);
    } else if (!ranks_first()) {
        cli_speaker.errors = fdopen(self.reports, "w");
    }
    if (!ranks_first())
        silence();
}

/* Print the messages of this rank, unless another one has. */
static void messages_print(bool failed)
{
    if (!self.errors || !cli_speaker.errors)
        return;
    fclose(cli_speaker.errors);
    cli_speaker.errors = NULL;
    if (!failed || !bauta_ranks_reported(self.ranks))
        fputs(self.message, self.errors);
    free(self.message);
    fclose(self.errors);
    self.errors = NULL;
}

int ranks_end(int failed)
{
    bauta_ranks *ranks = self.ranks;
    if (!ranks)
        return failed;
    if (cli_speaker.errors)
        fflush(cli_speaker.errors);
    messages_print(failed);
    if (failed) {
        bauta_ranks_abort(ranks, cli_speaker.last);
        // The sentence of rank 0 is enough where all fail for the same reason.
        failed = self.followed ? FOLLOWED : failed;
    }
    bauta_ranks_free(ranks);
    self.ranks = NULL;
    return failed == FOLLOWED && self.reports < 0 ? CLI_FAILED : failed;
}

/* ---- the process that watches -------------------------------------------- */

typedef struct watch {
    const char *verb;
    size_t count, left;
    pid_t pids[RANKS_MAX];
    int codes[RANKS_MAX];   /* exit status, or -signal */
    size_t first_failed;    /* the rank that died first; count: none */
    bool killed[RANKS_MAX]; /* by this process */
    int reports;
} watch;

static void note_end(watch *w, pid_t pid, int status)
{
    for (size_t i = 0; i < w->count; i++) {
        if (w->pids[i] != pid)
            continue;
        w->pids[i] = 0;
        w->left--;
        w->codes[i] =
            WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        if (w->codes[i] && !w->killed[i] && w->codes[i] != FOLLOWED &&
            w->first_failed == w->count)
            w->first_failed = i;
    }
}

static void all_kill(watch *w, int number)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->pids[i]) {
            w->killed[i] = number == SIGKILL;
            kill(w->pids[i], number);
        }
}

static bool any_failed(const watch *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (!w->pids[i] && w->codes[i])
            return true;
    return false;
}

static double seconds_of(struct timespec t)
{
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wait for the ranks. A signal from a terminal has reached them, too; others
 * are passed on. */
static void watch_ranks(watch *w, const sigset_t *signals)
{
    double deadline = 0.0;
    while (w->left) {
        struct timespec now, most = { .tv_sec = 1 };
        siginfo_t info = { 0 };
        int status, number = sigtimedwait(signals, &info, &most);
        pid_t pid;
        if (number > 0 && number != SIGCHLD && info.si_code == SI_USER)
            all_kill(w, number);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            note_end(w, pid, status);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!any_failed(w))
            continue;
        if (deadline == 0.0)
            deadline = seconds_of(now) + GRACE;
        if (seconds_of(now) >= deadline)
            all_kill(w, SIGKILL);
    }
}

/* What the ranks have reported: the first line. */
static bool report_print(const watch *w)
{
    char text[1024];
    ssize_t bytes = read(w->reports, text, sizeof(text) - 1);
    if (bytes <= 0)
        return false;
    text[bytes] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fprintf(stderr, "%s\n", text);
    return true;
}

static int watch_result(const watch *w)
{
    size_t rank = w->first_failed;
    int first = w->codes[0];
    for (size_t i = 0; !first && i < w->count; i++)
        first = w->codes[i];
    if (first == 0)
        return CLI_OK;
    if (w->codes[0] > 0 && w->codes[0] != FOLLOWED) // it has said why
        return w->codes[0];
    if (report_print(w))
        return CLI_FAILED;
    if (rank < w->count && w->codes[rank] < 0)
        return cli_fail(w->verb,
                        "rank %zu was ended by signal %d (%s), and so were the "
                        "others; the last checkpoint is complete",
                        rank, -w->codes[rank], strsignal(-w->codes[rank]));
    return cli_fail(w->verb, "the ranks lost each other");
}

/* ---- starting ------------------------------------------------------------ */

typedef struct wiring {
    int to[RANKS_MAX][BITS_MAX]; /* socket i of a rank: to rank ^ (1 << i) */
} wiring;

static int wire(wiring *w, size_t count)
{
    memset(w, -1, sizeof(*w));
    for (size_t rank = 0; rank < count; rank++)
        for (size_t bit = 0; (size_t)1 << bit < count; bit++) {
            size_t other = rank ^ (size_t)1 << bit;
            int pair[2];
            if (rank > other)
                continue;
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
                return -1;
            w->to[rank][bit] = pair[0];
            w->to[other][bit] = pair[1];
        }
    return 0;
}

/* All sockets but those of one rank; SIZE_MAX: all. */
static void unwire(wiring *w, size_t count, size_t but)
{
    for (size_t rank = 0; rank < count; rank++)
        for (size_t bit = 0; bit < BITS_MAX; bit++)
            if (rank != but && w->to[rank][bit] >= 0)
                close(w->to[rank][bit]);
}

/* In a rank that was just started. It stops when nobody watches it. */
static bool rank_become(const char *verb, wiring *w, size_t rank, size_t count,
                        int reports, const sigset_t *before, int *code)
{
    bauta_error err;
    unwire(w, count, rank);
    sigprocmask(SIG_SETMASK, before, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    self.reports = reports;
    self.here = count;
    if (bauta_ranks_connect(&self.ranks, rank, count, w->to[rank], &err)) {
        *code = err.status == BAUTA_ERR_RANK
                    ? FOLLOWED
                    : cli_fail(verb, "%s", err.message);
        return true;
    }
    voice_set();
    return false;
}

static void signals_block(sigset_t *signals, sigset_t *before)
{
    sigemptyset(signals);
    sigaddset(signals, SIGCHLD);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGHUP);
    sigprocmask(SIG_BLOCK, signals, before);
}

static bool ranks_fork(const char *verb, size_t count, int *code)
{
    watch w = { .verb = verb, .count = count, .first_failed = count };
    wiring sockets;
    sigset_t signals, before;
    int reports[2];
    if (wire(&sockets, count) || pipe(reports)) {
        unwire(&sockets, count, SIZE_MAX);
        *code = cli_fail(verb, "cannot connect %zu ranks: %s", count,
                         strerror(errno));
        return true;
    }
    signals_block(&signals, &before);
    fflush(stdout);
    for (size_t i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0)
            return rank_become(verb, &sockets, i, count, reports[1], &before,
                               code);
        if (pid < 0) {
            cli_fail(verb, "cannot start rank %zu: %s", i, strerror(errno));
            all_kill(&w, SIGKILL);
            w.count = i;
            break;
        }
        w.pids[i] = pid;
        w.left++;
    }
    unwire(&sockets, count, SIZE_MAX);
    close(reports[1]);
    w.reports = reports[0];
    watch_ranks(&w, &signals);
    *code = w.count < count ? CLI_FAILED : watch_result(&w);
    close(reports[0]);
    return true;
}

bool ranks_begin(const char *verb, size_t count, int *code)
{
    bauta_error err;
    *code = CLI_OK;
    if (count > RANKS_MAX || (count & (count - 1))) {
        *code = cli_usage(verb, "--ranks is %zu, not a power of two up to %d",
                          count, (int)RANKS_MAX);
        return true;
    }
    if (count > 1)
        return ranks_fork(verb, count, code);
    if (count == 0 && bauta_ranks_join(&self.ranks, &err)) {
        *code = cli_fail(verb, "%s", err.message);
        return true;
    }
    voice_set();
    return false;
}

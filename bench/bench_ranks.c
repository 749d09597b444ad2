/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ranks.c - training steps of GPT-2 on one machine, by ranks and lanes.
 *
 *   bench_ranks [--steps N] [--rounds N] [--layers N] [--sequences N]
 *
 * The ways take turns, so that a busy machine is busy for all of them:
 *
 *     1 rank, all threads, no lanes
 *     1 rank, all threads, 2 lanes
 *     2 ranks of half the threads, 2 lanes
 *
 * Printed are the seconds of a step by the clock and by the processors of all
 * ranks, the best of all rounds, and the bytes that a rank sends. Then what an
 * exchange costs: the latency of a small sum, and the bandwidth of gradients
 * and weights. */
#include "bench.h"

#include "bauta.h"
#include "runtime/comm.h"
#include "runtime/context.h"
#include "train/trainer.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct options {
    size_t steps, rounds, layers, sequences;
} options;

typedef struct way {
    const char *name;
    int ranks, threads;
    size_t lanes;
    double wall, cpu; /* seconds of a step, the best so far */
    uint64_t sent, formula;
} way;

/* What a rank tells the process that started it. */
typedef struct figures {
    double wall, cpu;
    uint64_t sent, formula;
} figures;

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static bauta_corpus *random_corpus(size_t sequences, size_t length)
{
    bauta_corpus *corpus;
    bauta_error err;
    uint32_t *tokens = malloc((length + 1) * sizeof(*tokens));
    must(bauta_corpus_create(&corpus, &err), &err);
    for (size_t i = 0; i < sequences; i++) {
        for (size_t j = 0; j <= length; j++)
            tokens[j] = (uint32_t)((i * length + j) * 7919 % 50257);
        must(bauta_corpus_add(corpus, tokens, length + 1, NULL, 0, &err), &err);
    }
    free(tokens);
    return corpus;
}

/* Steps of a rank: one to warm up, then those that count. */
static figures rank_run(const options *o, const way *w, bauta_ranks *ranks)
{
    enum { LENGTH = 1024 };
    char config[512];
    bauta_context *context;
    bauta_model *model;
    bauta_trainer *trainer;
    bauta_error err;
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_train_options train = BAUTA_TRAIN_OPTIONS_INIT;
    snprintf(config, sizeof(config),
             "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, "
             "\"n_positions\": 1024, \"n_embd\": 768, \"n_layer\": %zu, "
             "\"n_head\": 12, \"activation_function\": \"gelu_new\", "
             "\"layer_norm_epsilon\": 1e-5, \"tie_word_embeddings\": true}",
             o->layers);
    how.threads = w->threads;
    train.lanes = w->lanes;
    train.batch_sequences = o->sequences;
    train.microbatch_tokens = LENGTH;
    bauta_corpus *corpus = random_corpus(o->sequences, LENGTH);
    must(bauta_context_create(&context, &how, &err), &err);
    must(bauta_context_set_ranks(context, ranks, &err), &err);
    must(bauta_model_create(&model, config, 1, &err), &err);
    must(bauta_trainer_create(&trainer, context, model, NULL, corpus, &train,
                              &err),
         &err);
    must(bauta_trainer_step(trainer, NULL, &err), &err);
    uint64_t sent = bauta_ranks_sent(ranks);
    double began = bench_now(), cpu = cpu_seconds();
    for (size_t i = 0; i < o->steps; i++)
        must(bauta_trainer_step(trainer, NULL, &err), &err);
    double steps = (double)o->steps;
    figures f = { .wall = (bench_now() - began) / steps,
                  .cpu = (cpu_seconds() - cpu) / steps,
                  .sent = (bauta_ranks_sent(ranks) - sent) / o->steps,
                  .formula = bt_comm_slices_bytes(context->comm,
                                                  trainer->shards.bounds) };
    bauta_trainer_free(trainer);
    bauta_model_free(model);
    bauta_context_free(context);
    bauta_corpus_free(corpus);
    return f;
}

/* Each way runs in processes of its own. */
static void way_run(const options *o, way *w)
{
    int sockets[2] = { -1, -1 }, out[2];
    figures f;
    double wall = 0.0, cpu = 0.0;
    bauta_error err;
    if (pipe(out) ||
        (w->ranks == 2 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)))
        exit(1);
    for (int rank = 0; rank < w->ranks; rank++)
        if (fork() == 0) {
            bauta_ranks *ranks;
            if (w->ranks == 2)
                close(sockets[!rank]);
            must(bauta_ranks_connect(&ranks, (size_t)rank, (size_t)w->ranks,
                                     &sockets[rank], &err),
                 &err);
            f = rank_run(o, w, ranks);
            bauta_ranks_free(ranks);
            if (write(out[1], &f, sizeof(f)) != sizeof(f))
                exit(1);
            exit(0);
        }
    for (int i = 0; i < 2; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    close(out[1]);
    for (int rank = 0; rank < w->ranks; rank++) {
        if (read(out[0], &f, sizeof(f)) != sizeof(f))
            exit(1);
        wall = f.wall > wall ? f.wall : wall;
        cpu += f.cpu;
        w->sent = f.sent;
        w->formula = f.formula;
    }
    close(out[0]);
    while (wait(NULL) > 0)
        ;
    w->wall = w->wall == 0.0 || wall < w->wall ? wall : w->wall;
    w->cpu = w->cpu == 0.0 || cpu < w->cpu ? cpu : w->cpu;
}

/* The best so far. */
static void way_print(const way *w)
{
    printf("%-18s %d x %d threads  %.3f s a step, %.3f s of processors, %llu "
           "bytes sent by a rank (gradients and weights %llu)\n",
           w->name, w->ranks, w->threads, w->wall, w->cpu,
           (unsigned long long)w->sent, (unsigned long long)w->formula);
    fflush(stdout);
}

/* ---- exchanges ----------------------------------------------------------- */

enum { FLOATS = 1 << 25, SUMS = 2000 };

static void exchanges_rank(int rank, int socket)
{
    bt_comm comm;
    bauta_error err;
    double value = 1.0;
    const size_t bounds[] = { 0, FLOATS / 2, FLOATS };
    float *floats = bench_floats(FLOATS);
    bt_buffer buffer = bt_buffer_of_host(floats, FLOATS * sizeof(float));
    bt_tensor t = bt_tensor_of(&buffer, BAUTA_FLOAT32, 1, FLOATS);
    must(bt_comm_sockets(&comm, rank, 2, &socket, &err), &err);
    must(bt_comm_barrier(&comm, &err), &err);
    double began = bench_now();
    for (int i = 0; i < SUMS; i++)
        must(bt_comm_sum(&comm, &value, 1, &err), &err);
    double sums = bench_now(), busy = cpu_seconds();
    must(bt_comm_reduce_scatter(&comm, NULL, &t, bounds, &err), &err);
    double reduced = bench_now(), busy_reduced = cpu_seconds();
    must(bt_comm_all_gather(&comm, NULL, &t, bounds, &err), &err);
    double gathered = bench_now(), busy_gathered = cpu_seconds();
    double bytes = (double)(FLOATS / 2) * sizeof(float);
    if (rank == 0)
        printf("exchange of 8 bytes %.1f us; gradients %.2f GB/s, weights "
               "%.2f GB/s each way, with %.0f %% and %.0f %% of a "
               "processor\n",
               1e6 * (sums - began) / SUMS, 1e-9 * bytes / (reduced - sums),
               1e-9 * bytes / (gathered - reduced),
               100.0 * (busy_reduced - busy) / (reduced - sums),
               100.0 * (busy_gathered - busy_reduced) / (gathered - reduced));
    bt_comm_release(&comm);
}

static void exchanges_run(void)
{
    int sockets[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        exit(1);
    for (int rank = 0; rank < 2; rank++)
        if (fork() == 0) {
            close(sockets[!rank]);
            exchanges_rank(rank, sockets[rank]);
            fflush(stdout);
            _exit(0);
        }
    close(sockets[0]);
    close(sockets[1]);
    while (wait(NULL) > 0)
        ;
}

int main(int argc, char **argv)
{
    options o = { .steps = 2, .rounds = 2, .layers = 12, .sequences = 4 };
    const struct {
        const char *name;
        size_t *value;
    } names[] = { { "--steps", &o.steps },
                  { "--rounds", &o.rounds },
                  { "--layers", &o.layers },
                  { "--sequences", &o.sequences } };
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int half = cores > 1 ? cores / 2 : 1;
    way ways[] = {
        { .name = "1 rank", .ranks = 1, .threads = 2 * half, .lanes = 1 },
        { .name = "1 rank, 2 lanes",
          .ranks = 1,
          .threads = 2 * half,
          .lanes = 2 },
        { .name = "2 ranks, 2 lanes", .ranks = 2, .threads = half, .lanes = 2 },
    };
    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t j = 0; j < 4; j++)
            if (strcmp(argv[i], names[j].name) == 0)
                *names[j].value = strtoul(argv[i + 1], NULL, 10);
    exchanges_run();
    for (size_t r = 0; r < o.rounds; r++)
        for (size_t i = 0; i < 3; i++) {
            way_run(&o, &ways[i]);
            way_print(&ways[i]);
        }
    return 0;
}

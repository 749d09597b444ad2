/* SPDX-License-Identifier: Apache-2.0 */
/* bench_generate.c - prefill and decoding, with weights as float32, bfloat16
 * and int8, as a share of the machine's peak.
 *
 *   bench_generate [--threads N] [--isa NAME] [--only TEXT] [--seconds S]
 *                  [--best] [--json] [FOLDER...]
 *
 * Models of the shapes of GPT-2 124M and of a Llama of 110M with random weights
 * (written to a temporary folder and loaded from there, as any model is), then
 * the folders. Prefill of 512 tokens is compared with the fused multiply-adds
 * that it needs, with the logits of its last token alone; generation after 16
 * tokens with the bytes of weights that every token reads. The machine's peaks
 * are measured between the rounds. Figures are medians, or with --best the best
 * of all rounds, for a busy machine. */
#include "backend/cpu/kernels/kernels.h"
#include "base/thread_pool.h"
#include "bench.h"
#include "decode/session.h"

#include <jansson.h>
#include <unistd.h>

enum {
    PROMPT = 512,
    SHORT_PROMPT = 16,
    TOKENS = 64,           /* generated in a round */
    WINDOW = 8,            /* of them are timed together */
    SAMPLES = 1024,        /* kept at most */
    READ_FLOATS = 1 << 28, /* 1 GiB, read in eight parts */
    FOLDERS = 16
};

typedef struct options {
    int threads, best, json;
    const char *isa, *only;
    double seconds; /* for each line */
    const char *folders[FOLDERS];
    size_t count;
} options;

typedef struct samples {
    double of[SAMPLES];
    size_t count;
} samples;

static void sample_add(samples *s, double x)
{
    if (s->count < SAMPLES)
        s->of[s->count++] = x;
}

static void die(const bauta_error *err)
{
    fprintf(stderr, "bench_generate: %s\n", err->message);
    exit(1);
}

/* ---- the limits -------------------------------------------------------- */

typedef struct limits {
    float *memory;
    samples read, peak;
} limits;

static void limits_sample(limits *l, const options *o)
{
    for (size_t part = 0; part < 8; part++)
        sample_add(&l->read, bench_read(l->memory + part * READ_FLOATS / 8,
                                        READ_FLOATS / 8, o->threads));
    for (int i = 0; i < 4; i++)
        sample_add(&l->peak, bench_peak(bench_pool(o->threads), o->isa));
}

/* ---- the work of a model ----------------------------------------------- */

typedef struct work {
    double matrices;  /* weights of the layers, which every token reads */
    double head;      /* of the head, which the last token reads */
    double attention; /* multiply-adds of the prompt's attention */
} work;

static work work_of(const bauta_model *model)
{
    work w = { 0 };
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = BAUTA_TENSOR_INIT;
        bauta_error err;
        if (bauta_model_tensor(model, i, &t, &err))
            die(&err);
        if (t.rank == 1 || strstr(t.name, "wpe"))
            continue;
        if (t.shape[0] != bauta_model_vocab_size(model))
            w.matrices += (double)t.count;
        else
            w.head = (double)t.count; // a table that is only looked up has
                                      // the size of the head
    }
    w.attention = 2.0 * (double)bauta_model_hidden_size(model) *
                  (double)bauta_model_decoder_layers(model) * PROMPT *
                  (PROMPT + 1) / 2;
    return w;
}

/* Bytes of weights that a token reads; int8 has a scale for each output, which
 * is less than a hundredth and not counted. */
static double token_bytes(const work *w, bauta_dtype weights)
{
    static const double sizes[] = { 4, 2, 1 };
    return (w->matrices + w->head) * sizes[weights];
}

static double prompt_flops(const work *w)
{
    return 2 * (w->matrices * PROMPT + w->head + w->attention);
}

/* ---- one benchmark line ------------------------------------------------ */

typedef struct runner {
    const options *o;
    bauta_context *context;
    bauta_model *model;
    bt_decode_session *session;
    float *logits;
    uint32_t ids[PROMPT];
    samples prompt, token; /* seconds */
} runner;

static void runner_open(runner *r, const char *folder, bauta_dtype weights)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_error err;
    how.threads = r->o->threads;
    how.isa = r->o->isa;
    if (bauta_context_create(&r->context, &how, &err) ||
        bauta_model_load(&r->model, folder, false, &err) ||
        bauta_model_pack(r->model, weights, &err) ||
        bt_decode_session_create(&r->session, r->context, r->model, 0, &err))
        die(&err);
    size_t vocabulary = bauta_model_vocab_size(r->model);
    r->logits = bench_floats(vocabulary);
    for (size_t i = 0; i < PROMPT; i++)
        r->ids[i] = (uint32_t)(i * 7919 % vocabulary);
}

static void runner_close(runner *r)
{
    bt_decode_session_free(r->session);
    bauta_model_free(r->model);
    bauta_context_free(r->context);
    free(r->logits);
}

/* Seconds of appending `count` tokens, with the logits of the last. */
static double append(runner *r, bt_sequence *sequence, const uint32_t *ids,
                     size_t count)
{
    bauta_error err;
    bt_decode_input one = {
        .sequence = sequence, .count = count, .ids = ids, .logits = r->logits
    };
    double begin = bench_now();
    if (bt_decode_session_append(r->session, &one, 1, NULL, NULL, &err))
        die(&err);
    return bench_now() - begin;
}

static uint32_t best_of(const runner *r)
{
    size_t best = 0;
    for (size_t i = 1; i < bauta_model_vocab_size(r->model); i++)
        if (r->logits[i] > r->logits[best])
            best = i;
    return (uint32_t)best;
}

static bt_sequence *sequence_of(runner *r)
{
    bt_sequence *sequence;
    bauta_error err;
    if (bt_sequence_create(&sequence, r->session, NULL, &err))
        die(&err);
    return sequence;
}

static void round_prompt(runner *r, bool counts)
{
    bt_sequence *sequence = sequence_of(r);
    double seconds = append(r, sequence, r->ids, PROMPT);
    if (counts)
        sample_add(&r->prompt, seconds);
    bt_sequence_free(sequence);
}

/* Greedy; choosing the token is up to the caller and is not timed. */
static void round_tokens(runner *r, bool counts)
{
    bt_sequence *sequence = sequence_of(r);
    append(r, sequence, r->ids, SHORT_PROMPT);
    for (size_t t = 0; t < TOKENS; t += WINDOW) {
        double seconds = 0;
        for (size_t i = 0; i < WINDOW; i++) {
            uint32_t id = best_of(r);
            seconds += append(r, sequence, &id, 1);
        }
        if (counts)
            sample_add(&r->token, seconds / WINDOW);
    }
    bt_sequence_free(sequence);
}

static const char *const weight_names[] = { "float32", "bfloat16", "int8" };

static json_t *line_of(const char *name, bauta_dtype weights, const work *w,
                       runner *r, limits *l)
{
    int best = r->o->best;
    double read = bench_rate(l->read.of, l->read.count, best);
    double peak = bench_rate(l->peak.of, l->peak.count, best);
    double prompt = bench_time(r->prompt.of, r->prompt.count, best);
    double token = bench_time(r->token.of, r->token.count, best);
    double gflops = prompt_flops(w) / prompt * 1e-9;
    double gbytes = token_bytes(w, weights) / token * 1e-9;
    if (!r->o->json) {
        printf("%-14s %-9s %8.0f %8.1f %8.1f %5.1f %9.1f %7.1f %7.1f %6.1f\n",
               name, weight_names[weights], PROMPT / prompt, gflops, peak,
               100 * gflops / peak, 1 / token, gbytes, read,
               100 * gbytes / read);
        fflush(stdout);
    }
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "model", name,
                     "weights", weight_names[weights], "prompt_tokens_s",
                     PROMPT / prompt, "prompt_gflop_s", gflops, "peak_gflop_s",
                     peak, "tokens_s", 1 / token, "weights_gb_s", gbytes,
                     "read_gb_s", read);
}

static void run_line(const char *name, const char *folder, bauta_dtype weights,
                     const options *o, float *memory, json_t *lines)
{
    static runner r;
    static limits l;
    memset(&r, 0, sizeof(r));
    memset(&l, 0, sizeof(l));
    r.o = o;
    l.memory = memory;
    bauta_model *plain;
    bauta_error err;
    if (bauta_model_load(&plain, folder, false, &err))
        die(&err);
    work w = work_of(plain);
    bauta_model_free(plain);
    runner_open(&r, folder, weights);
    round_prompt(&r, false); // warm up
    round_tokens(&r, false);
    double begin = bench_now();
    for (int i = 0; i < 3 || bench_now() - begin < o->seconds; i++) {
        round_prompt(&r, true);
        round_tokens(&r, true);
        limits_sample(&l, o);
    }
    json_array_append_new(lines, line_of(name, weights, &w, &r, &l));
    runner_close(&r);
}

/* ---- models ------------------------------------------------------------ */

static const struct {
    const char *name, *config;
} shapes[] = {
    { "gpt2-124M",
      "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_head\": 12, "
      "\"n_layer\": 12, \"vocab_size\": 50257, \"n_positions\": 1024}" },
    { "llama-110M", "{\"model_type\": \"llama\", \"hidden_size\": 768, "
                    "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, "
                    "\"num_hidden_layers\": 12, \"intermediate_size\": 2048, "
                    "\"vocab_size\": 32000, \"max_position_embeddings\": 1024, "
                    "\"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": true}" },
};

static void run_folder(const char *name, const char *folder, const options *o,
                       float *memory, json_t *lines)
{
    for (bauta_dtype w = 0; w <= BAUTA_INT8; w++) {
        char text[256];
        snprintf(text, sizeof(text), "%s %s", name, weight_names[w]);
        if (!o->only || strstr(text, o->only))
            run_line(name, folder, w, o, memory, lines);
    }
}

static bool wanted(const char *name, const options *o)
{
    bool any = !o->only;
    for (int w = 0; w < 3 && !any; w++) {
        char text[256];
        snprintf(text, sizeof(text), "%s %s", name, weight_names[w]);
        any = strstr(text, o->only);
    }
    return any;
}

static void run_shape(size_t i, const options *o, float *memory, json_t *lines)
{
    const char *root = getenv("TMPDIR");
    char folder[200], path[256], file[300];
    bauta_model *model;
    bauta_error err;
    if (!wanted(shapes[i].name, o))
        return;
    snprintf(folder, sizeof(folder), "%s/bench-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/model", folder);
    if (bauta_model_create(&model, shapes[i].config, 1, &err) ||
        bauta_model_save(model, path, &err))
        die(&err);
    bauta_model_free(model);
    run_folder(shapes[i].name, path, o, memory, lines);
    static const char *const files[] = { "config.json", "model.safetensors" };
    for (size_t f = 0; f < 2; f++) {
        snprintf(file, sizeof(file), "%s/%s", path, files[f]);
        remove(file);
    }
    remove(path);
    remove(folder);
}

/* ---- the command line -------------------------------------------------- */

static void usage(void)
{
    fprintf(stderr, "usage: bench_generate [--threads N] [--isa NAME] "
                    "[--only TEXT] [--seconds S] [--best] [--json] "
                    "[FOLDER...]\n");
    exit(2);
}

static options options_read(int argc, char **argv)
{
    options o = { .threads = bt_threads_available(), .seconds = 3 };
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(word, "--best") == 0)
            o.best = 1;
        else if (strcmp(word, "--json") == 0)
            o.json = 1;
        else if (word[0] != '-' && o.count < FOLDERS)
            o.folders[o.count++] = word;
        else if (value && strcmp(word, "--threads") == 0)
            o.threads = atoi(argv[++i]);
        else if (value && strcmp(word, "--isa") == 0)
            o.isa = argv[++i];
        else if (value && strcmp(word, "--only") == 0)
            o.only = argv[++i];
        else if (value && strcmp(word, "--seconds") == 0)
            o.seconds = atof(argv[++i]);
        else
            usage();
    }
    if (o.threads < 1)
        usage();
    return o;
}

int main(int argc, char **argv)
{
    options o = options_read(argc, argv);
    float *memory = bench_floats(READ_FLOATS);
    json_t *lines = json_array();
    if (!o.json)
        printf("%d threads\n%-14s %-9s %8s %8s %8s %5s %9s %7s %7s %6s\n",
               o.threads, "model", "weights", "prompt/s", "GFLOP/s", "peak",
               "%", "tokens/s", "GB/s", "read", "%");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        run_shape(i, &o, memory, lines);
    for (size_t i = 0; i < o.count; i++) {
        const char *slash = strrchr(o.folders[i], '/');
        run_folder(slash ? slash + 1 : o.folders[i], o.folders[i], &o, memory,
                   lines);
    }
    if (o.json) {
        json_t *all =
            json_pack("{s:i, s:O}", "threads", o.threads, "lines", lines);
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
    }
    json_decref(lines);
    free(memory);
    return 0;
}

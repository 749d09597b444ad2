/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_batches.c - generation on a GPU does not depend on the batch.
 *
 *   check_cuda_batches [--cpu] [--gpt2] [--plain] [--only FAMILY]
 *                      [--batches N] [--seed N]
 *
 * For a small model of every family with a decoder, in bfloat16: texts are
 * generated alone, by greedy search, sampling and beam search. Their
 * log-probabilities equal those of the parallel pass over the whole text. Then
 * they are generated in N random batches: some of them, in random order, that
 * arrive at random steps, with and without a prefix cache, for several limits
 * of sequences and of tokens in a step. All tokens, log-probabilities and
 * scores are compared bit for bit. --gpt2 adds GPT-2 124M with random weights.
 * --plain launches the kernels of every step one by one instead of replaying
 * steps. --cpu runs the same in float32 on the CPU. */
#include "cuda/tiny_models.h"

#include "bauta.h"
#include "runtime/context.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXTS = 16,
    COMMON = 70, /* tokens of a prefix that texts share: more than a page */
    PROMPT_MAX = COMMON + 20,
    NEW_MAX = 24,
    BEAMS = 3
};

static size_t checks, failures;
static uint64_t random_state;

static void need(bauta_status status, const bauta_error *err)
{
    if (!status)
        return;
    fprintf(stderr, "check_cuda_batches: %s\n", err->message);
    exit(1);
}

static void expect(bool right, const char *family, const char *what)
{
    checks++;
    if (right)
        return;
    if (failures++ < 20)
        printf("%s: %s\n", family, what);
}

static size_t below(size_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((random_state >> 33) % n);
}

/* ---- Texts --------------------------------------------------------------- */

typedef struct text {
    uint32_t prompt[PROMPT_MAX], source[PROMPT_MAX];
    size_t count, source_count;
    bauta_generate_options options;
    bauta_result *alone;
} text;

typedef struct subject {
    const char *family;
    bauta_context *context;
    bauta_model *model;
    bool encoder;
    text texts[TEXTS];
} subject;

static bauta_generate_options options_of(const subject *s, size_t i)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    o.max_new_tokens = 2 + below(NEW_MAX - 1);
    o.seed = i;
    if (s->encoder)
        o.decoder_start_token_id = 2;
    if (i % 4 == 1) {
        o.do_sample = true;
        o.temperature = 0.8f;
        o.top_k = 20;
    } else if (i % 4 == 2) {
        o.do_sample = true;
        o.top_p = 0.9f;
        o.presence_penalty = 0.5f;
        o.repetition_penalty = 1.2f;
    } else if (i % 4 == 3) {
        o.num_beams = BEAMS;
    }
    return o;
}

static void tokens_fill(uint32_t *to, size_t count, size_t vocab)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (uint32_t)below(vocab);
}

/* Half of the texts begin with one of two common prefixes. */
static void texts_make(subject *s)
{
    size_t vocab = bauta_model_vocab_size(s->model);
    uint32_t common[2][COMMON];
    tokens_fill(common[0], 2 * COMMON, vocab);
    for (size_t i = 0; i < TEXTS; i++) {
        text *t = &s->texts[i];
        size_t shared = below(2) && !s->encoder ? COMMON : 0;
        if (shared)
            memcpy(t->prompt, common[below(2)], sizeof(common[0]));
        t->count = shared + (s->encoder ? 0 : 1 + below(PROMPT_MAX - COMMON));
        tokens_fill(t->prompt + shared, t->count - shared, vocab);
        t->source_count = s->encoder ? 1 + below(PROMPT_MAX) : 0;
        tokens_fill(t->source, t->source_count, vocab);
        t->options = options_of(s, i);
        t->alone = NULL;
    }
}

static bauta_request request_of(const text *t, size_t tag)
{
    bauta_request r = BAUTA_REQUEST_INIT;
    r.tokens = t->prompt;
    r.count = t->count;
    r.source = t->source_count ? t->source : NULL;
    r.source_count = t->source_count;
    r.options = &t->options;
    r.tag = tag;
    return r;
}

/* ---- Checks -------------------------------------------------------------- */

/* The first token in which two hypotheses differ, or their common length. */
static size_t first_difference(const bauta_hypothesis *x,
                               const bauta_hypothesis *y)
{
    size_t i = 0;
    while (i < x->count && i < y->count && x->tokens[i] == y->tokens[i] &&
           memcmp(&x->logprobs[i], &y->logprobs[i], sizeof(float)) == 0)
        i++;
    return i;
}

static bool hypotheses_equal(const bauta_hypothesis *x,
                             const bauta_hypothesis *y)
{
    return x->count == y->count && x->finish == y->finish &&
           first_difference(x, y) == x->count &&
           memcmp(&x->score, &y->score, sizeof(x->score)) == 0;
}

/* Whether they are equal; if not, `what` says where they differ. */
static bool results_equal(const bauta_result *a, const bauta_result *b,
                          char *what, size_t size)
{
    what[0] = '\0';
    if (a->status || b->status || a->count != b->count) {
        snprintf(what, size, "status %d and %d, %zu and %zu hypotheses",
                 (int)a->status, (int)b->status, a->count, b->count);
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        const bauta_hypothesis *x = a->hypotheses[i], *y = b->hypotheses[i];
        size_t at = first_difference(x, y);
        if (hypotheses_equal(x, y))
            continue;
        snprintf(what, size, "%zu and %zu tokens, scores %a and %a, token %zu",
                 x->count, y->count, (double)x->score, (double)y->score, at);
        if (at < x->count && at < y->count)
            snprintf(what + strlen(what), size - strlen(what),
                     ": %u with %a and %u with %a", x->tokens[at],
                     (double)x->logprobs[at], y->tokens[at],
                     (double)y->logprobs[at]);
        return false;
    }
    return true;
}

/* The log-probabilities of the new tokens by one pass over the whole text. */
static void check_parallel(const subject *s, const text *t)
{
    const bauta_hypothesis *h = t->alone->hypotheses[0];
    uint32_t ids[1 + PROMPT_MAX + NEW_MAX], labels[1 + PROMPT_MAX + NEW_MAX];
    float logprobs[1 + PROMPT_MAX + NEW_MAX];
    size_t count = 0, first;
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_error err = { 0 };
    if (s->encoder)
        ids[count++] = t->options.decoder_start_token_id;
    memcpy(ids + count, t->prompt, t->count * sizeof(*ids));
    count += t->count;
    first = count - 1;
    memcpy(ids + count, h->tokens, h->count * sizeof(*ids));
    count += h->count - 1; // nothing is predicted after the last one
    memcpy(labels, ids + 1, count * sizeof(*ids));
    source.count = target.count = 1;
    source.lengths = &t->source_count;
    source.ids = t->source;
    target.lengths = &count;
    target.ids = ids;
    need(bauta_model_logprobs(s->context, s->model, s->encoder ? &source : NULL,
                              &target, labels, logprobs, &err),
         &err);
    expect(memcmp(logprobs + first, h->logprobs,
                  h->count * sizeof(*logprobs)) == 0,
           s->family, "a generated text differs from the parallel pass");
}

static void check_alone(subject *s)
{
    bauta_error err = { 0 };
    for (size_t i = 0; i < TEXTS; i++) {
        text *t = &s->texts[i];
        bauta_request request = request_of(t, i);
        need(bauta_generate(s->context, s->model, NULL, &request, &t->alone,
                            &err),
             &err);
        expect(t->alone->status == BAUTA_OK && t->alone->count > 0, s->family,
               t->alone->message);
        if (t->alone->count && t->options.num_beams == 1)
            check_parallel(s, t);
    }
}

static void results_check(const subject *s, bauta_generator *generator,
                          const bauta_generator_options *how, size_t *taken)
{
    for (bauta_result *r; (r = bauta_generator_take(generator)); ++*taken) {
        const text *t = &s->texts[r->tag];
        char where[256], what[512];
        bool equal = results_equal(r, t->alone, where, sizeof(where));
        snprintf(what, sizeof(what),
                 "text %zu (%zu beams, sampled %d, %zu + %zu tokens) differs "
                 "in a batch of %zu sequences, %zu tokens, %zu cached: %s",
                 r->tag, t->options.num_beams, t->options.do_sample,
                 t->source_count, t->count, how->max_sequences,
                 how->max_batched_tokens, how->cached_sequences, where);
        expect(equal, s->family, what);
        bauta_result_free(r);
    }
}

/* Some of the texts in random order, which arrive at random steps. */
static void check_batch(const subject *s)
{
    static const size_t tokens[] = { 16, 64, 200, 2048 };
    size_t order[TEXTS], count = 1 + below(TEXTS), given = 0, taken = 0;
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *generator = NULL;
    bauta_error err = { 0 };
    for (size_t i = 0; i < TEXTS; i++) {
        size_t j = below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    how.max_sequences = BEAMS + below(30);
    how.max_batched_tokens = tokens[below(4)];
    how.cached_sequences = below(2) ? 4 : 0;
    need(bauta_generator_create(&generator, s->context, s->model, NULL, &how,
                                &err),
         &err);
    while (taken < count) {
        for (; given < count && (given == taken || below(3)); given++) {
            bauta_request request =
                request_of(&s->texts[order[given]], order[given]);
            need(bauta_generator_add(generator, &request, &err), &err);
        }
        need(bauta_generator_step(generator, NULL, &err), &err);
        results_check(s, generator, &how, &taken);
    }
    bauta_generator_free(generator);
}

/* The table of the context's device without recorded steps. */
static void forbid_replay(bauta_context *context)
{
    static bt_backend plain;
    plain = *context->stream->backend;
    plain.step_begin = NULL;
    context->stream->backend = &plain;
}

static void check_model(const char *family, const char *config,
                        const char *device, bool replay, size_t batches)
{
    static subject s;
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err = { 0 };
    s = (subject){ .family = family };
    options.device = device;
    options.dtype = strcmp(device, "cpu") ? BAUTA_BFLOAT16 : BAUTA_FLOAT32;
    need(bauta_context_create(&s.context, &options, &err), &err);
    if (!replay)
        forbid_replay(s.context);
    need(bauta_model_create(&s.model, config, 3, &err), &err);
    need(bauta_model_to(s.model, s.context, &err), &err);
    s.encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
    if (bauta_model_kind_of(s.model) != BAUTA_ENCODER_ONLY) {
        texts_make(&s);
        check_alone(&s);
        for (size_t i = 0; i < batches; i++)
            check_batch(&s);
        printf("%-10s %zu batches, %zu checks so far\n", family, batches,
               checks);
        fflush(stdout);
    }
    for (size_t i = 0; i < TEXTS; i++)
        bauta_result_free(s.texts[i].alone);
    bauta_model_free(s.model);
    bauta_context_free(s.context);
}

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_head\": 12, "
    "\"n_layer\": 12, \"vocab_size\": 50257, \"n_positions\": 1024}";

int main(int argc, char **argv)
{
    const char *device = "cuda", *only = NULL;
    size_t batches = 100;
    uint64_t seed = 20261117;
    bool large = false, replay = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cpu"))
            device = "cpu";
        else if (!strcmp(argv[i], "--gpt2"))
            large = true;
        else if (!strcmp(argv[i], "--plain"))
            replay = false;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--batches") && i + 1 < argc)
            batches = (size_t)strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
    }
    printf("seed %llu (--seed sets another)\n", (unsigned long long)seed);
    random_state = seed;
    for (size_t i = 0; i < TINY_MODELS; i++)
        if (!only || !strcmp(only, tiny_models[i].family))
            check_model(tiny_models[i].family, tiny_models[i].config, device,
                        replay, batches);
    if (large)
        check_model("gpt2-124m", gpt2, device, replay, batches);
    printf("%zu checks, %zu failures\n", checks, failures);
    return failures != 0;
}

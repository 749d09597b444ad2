/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_models.c - whole models on a GPU, through the public interface.
 *
 *   check_cuda_models [--quick] [--cpu] [FOLDER...]
 *
 * In bfloat16 and in float32, for a small model of every family and for model
 * folders: a sequence has the bits in a batch that it has alone, incremental
 * decoding equals the parallel pass, in steps and in chunks, training repeats
 * to the bit, and the audit passes. Losses are compared with the CPU's. Steps
 * of generation that CUDA graphs replay give the same texts and
 * log-probabilities as those whose kernels are queued one by one, and steps
 * that are queued before the tokens of the step before are known the same as
 * those that are not. --cpu runs
 * the checks on the CPU, where they hold in float32. */
#include "cuda/tiny_models.h"

#include "backend/cuda/stream.h"
#include "bauta.h"
#include "runtime/context.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 5, LONGEST = 90 };

static size_t checks, failures;
static const char *device = "cuda";

static void need(bauta_status status, const bauta_error *err)
{
    if (!status)
        return;
    fprintf(stderr, "check_cuda_models: %s\n", err->message);
    exit(1);
}

static void expect(bool right, const char *family, const char *type,
                   const char *what)
{
    checks++;
    if (right)
        return;
    failures++;
    printf("%s, %s: %s\n", family, type, what);
}

/* ---- Models -------------------------------------------------------------- */

/* A model on a device, with a batch for it. */
typedef struct subject {
    const char *family, *type;
    bauta_context *context;
    bauta_model *model;
    size_t vocab;
    size_t lengths[SEQUENCES], source_lengths[SEQUENCES];
    size_t rows, source_rows;
    uint32_t ids[SEQUENCES * LONGEST], source[SEQUENCES * LONGEST];
    uint32_t labels[SEQUENCES * LONGEST];
    float *logits; /* (rows, vocab) of the whole batch */
} subject;

static uint32_t random_below(uint64_t *state, size_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static void batch_make(subject *s)
{
    uint64_t state = 42;
    s->rows = s->source_rows = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        s->lengths[i] = 1 + random_below(&state, LONGEST);
        s->source_lengths[i] = 1 + random_below(&state, LONGEST);
        s->rows += s->lengths[i];
        s->source_rows += s->source_lengths[i];
    }
    for (size_t i = 0; i < SEQUENCES * LONGEST; i++) {
        s->ids[i] = random_below(&state, s->vocab);
        s->source[i] = random_below(&state, s->vocab);
        s->labels[i] = random_below(&state, s->vocab);
    }
}

/* Sequences first to first + count - 1, as source and as target. */
typedef struct part {
    bauta_batch batches[2];
    const bauta_batch *source, *target;
    size_t row; /* of the first one in the whole batch */
} part;

static void part_make(part *p, const subject *s, size_t first, size_t count)
{
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_model_kind kind = bauta_model_kind_of(s->model);
    size_t row = 0, source_row = 0;
    for (size_t i = 0; i < first; i++) {
        row += s->lengths[i];
        source_row += s->source_lengths[i];
    }
    source.count = target.count = count;
    source.lengths = s->source_lengths + first;
    source.ids = s->source + source_row;
    target.lengths = s->lengths + first;
    target.ids = s->ids + row;
    p->batches[0] = kind == BAUTA_ENCODER_ONLY ? target : source;
    p->batches[1] = target;
    p->source = kind == BAUTA_DECODER_ONLY ? NULL : &p->batches[0];
    p->target = kind == BAUTA_ENCODER_ONLY ? NULL : &p->batches[1];
    p->row = row;
}

static void forward(const subject *s, const part *p, float *logits)
{
    bauta_error err = { 0 };
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = logits;
    need(bauta_model_forward(s->context, s->model, p->source, p->target,
                             &outputs, &err),
         &err);
}

static bool same(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof(*a)) == 0;
}

/* ---- Checks -------------------------------------------------------------- */

static void check_alone(subject *s, float *got)
{
    for (size_t i = 0; i < SEQUENCES; i++) {
        part p;
        part_make(&p, s, i, 1);
        forward(s, &p, got);
        expect(
            same(got, s->logits + p.row * s->vocab, s->lengths[i] * s->vocab),
            s->family, s->type, "a sequence alone differs from the batch");
    }
}

/* All sequences in one session: `step` tokens at a time, each from its own
 * length on. */
static void check_decoding(subject *s, float *got, size_t step)
{
    bauta_error err = { 0 };
    bauta_decode_session *session = NULL;
    bauta_decode_input inputs[SEQUENCES];
    size_t sequences[SEQUENCES], done[SEQUENCES] = { 0 }, rows[SEQUENCES];
    bool encoder = bauta_model_kind_of(s->model) == BAUTA_ENCODER_DECODER;
    need(bauta_decode_session_create(&session, s->context, s->model, &err),
         &err);
    for (size_t i = 0, row = 0, at = 0; i < SEQUENCES; i++) {
        need(bauta_decode_session_open(session, encoder ? s->source + at : NULL,
                                       encoder ? s->source_lengths[i] : 0,
                                       &sequences[i], &err),
             &err);
        rows[i] = row;
        row += s->lengths[i];
        at += s->source_lengths[i];
    }
    for (size_t count = 1; count;) {
        size_t which[SEQUENCES];
        count = 0;
        for (size_t i = 0; i < SEQUENCES; i++) {
            size_t left = s->lengths[i] - done[i];
            if (!left)
                continue;
            bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
            input.sequence = sequences[i];
            input.count = left < step ? left : step;
            input.tokens = s->ids + rows[i] + done[i];
            input.logits = got + count * s->vocab;
            done[i] += input.count;
            which[count] = i;
            inputs[count++] = input;
        }
        if (count)
            need(bauta_decode_session_append(session, inputs, count, &err),
                 &err);
        for (size_t i = 0; i < count; i++) {
            size_t row = rows[which[i]] + done[which[i]] - 1;
            expect(
                same(got + i * s->vocab, s->logits + row * s->vocab, s->vocab),
                s->family, s->type,
                step == 1 ? "a step differs from the parallel pass"
                          : "a chunk differs from the parallel pass");
        }
    }
    bauta_decode_session_free(session);
}

/* How texts are generated. */
typedef enum manner {
    GREEDY,
    ENDING, /* some tokens end a text, and few texts run at a time */
    SAMPLED /* the same, with tokens drawn */
} manner;

/* Texts after the sequences of the batch from `first` on, in one generator. */
static void generate(const subject *s, size_t first, size_t count, size_t beams,
                     manner how_to, bauta_result **results)
{
    enum { NEW = 37 };
    static const uint32_t ends[] = { 3, 14, 15, 26, 35, 58 };
    bauta_error err = { 0 };
    bauta_generator *generator = NULL;
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    size_t left = 1;
    options.num_beams = beams;
    options.decoder_start_token_id = 2;
    how.max_sequences = count * beams;
    if (how_to != GREEDY) {
        how.max_sequences = 2 * beams;
        memcpy(options.eos_token_ids, ends, sizeof(ends));
        options.eos_token_count = sizeof(ends) / sizeof(*ends);
    }
    if (how_to == SAMPLED) {
        options.do_sample = true;
        options.temperature = 1.3f;
        options.seed = 5;
    }
    need(bauta_generator_create(&generator, s->context, s->model, NULL, &how,
                                &err),
         &err);
    for (size_t i = first; i < first + count; i++) {
        part p;
        part_make(&p, s, i, 1);
        bauta_request request = BAUTA_REQUEST_INIT;
        options.max_new_tokens = NEW - i; // the batch gets smaller
        request.tokens = p.target->ids;
        request.count = s->lengths[i];
        if (p.source) {
            request.count = 0;
            request.source = p.source->ids;
            request.source_count = s->source_lengths[i];
        }
        request.options = &options;
        request.tag = i - first;
        need(bauta_generator_add(generator, &request, &err), &err);
    }
    while (left)
        need(bauta_generator_step(generator, &left, &err), &err);
    for (bauta_result *r; (r = bauta_generator_take(generator));)
        results[r->tag] = r;
    bauta_generator_free(generator);
}

static bool results_equal(const bauta_result *a, const bauta_result *b)
{
    if (a->status || b->status || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const bauta_hypothesis *x = a->hypotheses[i], *y = b->hypotheses[i];
        if (x->count != y->count || x->score != y->score ||
            memcmp(x->tokens, y->tokens, x->count * sizeof(*x->tokens)) != 0 ||
            memcmp(x->logprobs, y->logprobs, x->count * sizeof(*x->logprobs)) !=
                0)
            return false;
    }
    return true;
}

/* Texts whose steps are replayed and queued ahead, and the same without the one
 * or the other. */
static void check_graphs_of(const subject *s, size_t first, size_t count,
                            size_t beams, manner how_to)
{
    static bt_backend plain;
    static const char *const what[] = {
        "a text differs when graphs replay its steps",
        "a text differs when its steps are queued ahead"
    };
    const bt_backend *table = s->context->stream->backend;
    bauta_result *with[SEQUENCES], *without[SEQUENCES];
    generate(s, first, count, beams, how_to, with);
    for (size_t way = 0; way < 2; way++) {
        plain = *table;
        if (way == 0)
            plain.step_begin = NULL;
        else
            plain.sample_queue = NULL;
        s->context->stream->backend = &plain;
        generate(s, first, count, beams, how_to, without);
        s->context->stream->backend = table;
        for (size_t i = 0; i < count; i++) {
            expect(results_equal(with[i], without[i]), s->family, s->type,
                   what[way]);
            bauta_result_free(without[i]);
        }
    }
    for (size_t i = 0; i < count; i++)
        bauta_result_free(with[i]);
}

static bt_cuda_step_counts step_counts(const subject *s)
{
    return bt_cuda_steps_counts(bt_cuda_stream_of(s->context->stream)->steps);
}

/* Every sequence alone, all in a batch, and with beams. */
static void check_graphs(const subject *s)
{
    bt_cuda_step_counts before = step_counts(s);
    for (size_t i = 0; i < SEQUENCES; i++)
        check_graphs_of(s, i, 1, 1, GREEDY);
    check_graphs_of(s, 0, SEQUENCES, 1, GREEDY);
    check_graphs_of(s, 0, SEQUENCES, 1, ENDING);
    check_graphs_of(s, 0, SEQUENCES, 1, SAMPLED);
    check_graphs_of(s, 0, 1, 4, GREEDY);
    check_graphs_of(s, 0, SEQUENCES, 3, GREEDY);
    bt_cuda_step_counts after = step_counts(s);
    size_t steps = after.steps - before.steps;
    size_t replayed = after.replayed - before.replayed;
    printf("%-10s %-9s %zu of %zu steps replayed, %zu left, %zu kernels "
           "patched\n",
           s->family, s->type, replayed, steps, after.left - before.left,
           after.patched - before.patched);
    expect(replayed > steps / 2, s->family, s->type,
           "most steps are not replayed by graphs");
}

static double loss_of(const subject *s, bool train)
{
    bauta_error err = { 0 };
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    double loss = 0;
    part p;
    part_make(&p, s, 0, SEQUENCES);
    if (train) {
        options.dropout = 0.1f;
        options.label_smoothing = 0.1f;
        options.seed = 9;
    }
    need(bauta_model_loss(s->context, s->model, p.source, p.target, s->labels,
                          &options, &loss, NULL, &err),
         &err);
    return loss;
}

static void check_logprobs(const subject *s, float *got)
{
    bauta_error err = { 0 };
    part p;
    double worst = 0;
    part_make(&p, s, 0, SEQUENCES);
    need(bauta_model_logprobs(s->context, s->model, p.source, p.target,
                              s->labels, got, &err),
         &err);
    for (size_t i = 0; i < s->rows; i++) {
        const float *z = s->logits + i * s->vocab;
        double max = -INFINITY, sum = 0;
        for (size_t j = 0; j < s->vocab; j++)
            max = fmax(max, (double)z[j]);
        for (size_t j = 0; j < s->vocab; j++)
            sum += exp((double)z[j] - max);
        double want = (double)z[s->labels[i]] - max - log(sum);
        worst = fmax(worst, fabs(want - (double)got[i]));
    }
    expect(worst < 1e-4, s->family, s->type,
           "log-probabilities are not those of the logits");
}

/* Losses of some steps of AdamW with dropout. */
static void train(const subject *s, double *losses, size_t steps)
{
    bauta_error err = { 0 };
    bauta_optimizer *optimizer = NULL;
    bauta_optimizer_options options = BAUTA_OPTIMIZER_OPTIONS_INIT;
    // Wide models take smaller steps.
    bool wide = bauta_model_parameter_count(s->model) > 1000000;
    options.learning_rate = wide ? 1e-5 : 1e-3;
    need(bauta_optimizer_create(&optimizer, s->context, s->model, &options,
                                &err),
         &err);
    for (size_t i = 0; i < steps; i++) {
        need(bauta_model_zero_gradients(s->model, &err), &err);
        losses[i] = loss_of(s, true);
        need(bauta_optimizer_step(optimizer, NULL, &err), &err);
    }
    bauta_optimizer_free(optimizer);
}

static void check_audit(const subject *s)
{
    bauta_error err = { 0 };
    bauta_audit *audit = NULL;
    bauta_audit_options options = BAUTA_AUDIT_OPTIONS_INIT;
    part p;
    part_make(&p, s, 0, SEQUENCES);
    need(bauta_audit_create(&audit, s->context, s->model, p.source, p.target,
                            &options, &err),
         &err);
    expect(bauta_audit_passed(audit), s->family, s->type, "the audit fails");
    for (size_t i = 0; i < bauta_audit_findings(audit); i++) {
        const bauta_finding *f = bauta_audit_finding(audit, i);
        if (f->verdict == BAUTA_FAILED)
            printf("    %s: %s\n", bauta_check_name(f->check), f->message);
    }
    bauta_audit_free(audit);
}

/* ---- A model ------------------------------------------------------------- */

static void subject_open(subject *s, const char *family, const char *config,
                         const char *folder, const char *where,
                         bauta_dtype dtype)
{
    bauta_error err = { 0 };
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.device = where;
    options.dtype = dtype;
    *s = (subject){ .family = family,
                    .type = dtype == BAUTA_FLOAT32 ? "float32" : "bfloat16" };
    need(bauta_context_create(&s->context, &options, &err), &err);
    need(folder ? bauta_model_load(&s->model, folder, true, &err)
                : bauta_model_create(&s->model, config, 3, &err),
         &err);
    need(bauta_model_to(s->model, s->context, &err), &err);
    s->vocab = bauta_model_vocab_size(s->model);
    batch_make(s);
    s->logits = malloc(s->rows * s->vocab * sizeof(float));
    if (!s->logits)
        exit(1);
}

static void subject_close(subject *s)
{
    free(s->logits);
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

static void check_model(const char *family, const char *config,
                        const char *folder, bauta_dtype dtype, bool audits)
{
    static subject s, again, cpu;
    enum { STEPS = 5 };
    double losses[STEPS], repeated[STEPS];
    part p;
    subject_open(&s, family, config, folder, device, dtype);
    float *got = malloc(s.rows * s.vocab * sizeof(float));
    if (!got)
        exit(1);
    part_make(&p, &s, 0, SEQUENCES);
    forward(&s, &p, s.logits);
    check_alone(&s, got);
    check_logprobs(&s, got);
    if (p.target) {
        check_decoding(&s, got, 1);
        check_decoding(&s, got, 7);
        check_decoding(&s, got, 64);
    }
    if (p.target && s.context->stream->backend->step_begin)
        check_graphs(&s);
    subject_open(&cpu, family, config, folder, NULL, BAUTA_FLOAT32);
    double want = loss_of(&cpu, false), is = loss_of(&s, false);
    double bound = dtype == BAUTA_FLOAT32 ? 1e-5 : 2e-2;
    expect(fabs(is - want) <= bound * fabs(want), family, s.type,
           "the loss is not the CPU's");
    if (audits)
        check_audit(&s);
    subject_open(&again, family, config, folder, device, dtype);
    train(&s, losses, STEPS);
    train(&again, repeated, STEPS);
    expect(memcmp(losses, repeated, sizeof(losses)) == 0, family, s.type,
           "training does not repeat");
    expect(losses[STEPS - 1] < losses[0], family, s.type,
           "training does not lower the loss");
    printf("%-10s %-9s loss %.6f, on the CPU %.6f; trained %.6f to %.6f\n",
           family, s.type, is, want, losses[0], losses[STEPS - 1]);
    free(got);
    subject_close(&again);
    subject_close(&cpu);
    subject_close(&s);
}

int main(int argc, char **argv)
{
    static const bauta_dtype types[] = { BAUTA_FLOAT32, BAUTA_BFLOAT16 };
    bool quick = false;
    size_t count = 2;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++)
        if (strcmp(argv[at], "--cpu") == 0) {
            device = "cpu";
            count = 1;
        } else {
            quick = true;
        }
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < TINY_MODELS; i++)
            check_model(tiny_models[i].family, tiny_models[i].config, NULL,
                        types[t], !quick);
        for (int i = at; i < argc; i++)
            check_model(argv[i], NULL, argv[i], types[t], !quick);
    }
    printf("%zu checks, %zu failures\n", checks, failures);
    return failures != 0;
}

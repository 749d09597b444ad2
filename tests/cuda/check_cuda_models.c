/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_models.c - whole models on a GPU, through the public interface.
 *
 *   check_cuda_models [--quick] [--cpu] [FOLDER...]
 *
 * In bfloat16 and in float32, for a small model of every family and for model
 * folders: a sequence has the bits in a batch that it has alone, incremental
 * decoding equals the parallel pass, in steps and in chunks, training repeats
 * to the bit, and the audit passes. Losses are compared with the CPU's. --cpu
 * runs the checks on the CPU, where they hold in float32. */
#include "bauta.h"

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

#define LLAMA                                                     \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "           \
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 3, "      \
    "\"intermediate_size\": 160, \"vocab_size\": 300, "           \
    "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-05, " \
    "\"initializer_range\": 0.1, "
#define BERT                                                  \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "       \
    "\"num_hidden_layers\": 2, \"intermediate_size\": 160, "  \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, " \
    "\"pad_token_id\": 1, \"initializer_range\": 0.1, "
#define BART                                                           \
    "\"d_model\": 64, \"encoder_layers\": 2, \"decoder_layers\": 3, "  \
    "\"encoder_attention_heads\": 4, \"decoder_attention_heads\": 4, " \
    "\"encoder_ffn_dim\": 160, \"decoder_ffn_dim\": 96, "              \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, "          \
    "\"pad_token_id\": 299, \"decoder_start_token_id\": 299, "         \
    "\"scale_embedding\": true, \"init_std\": 0.1, "

#define T5                                                            \
    "\"d_model\": 64, \"d_kv\": 16, \"num_heads\": 4, \"d_ff\": 96, " \
    "\"num_layers\": 2, \"num_decoder_layers\": 3, "                  \
    "\"vocab_size\": 300, \"n_positions\": 128, "                     \
    "\"relative_attention_num_buckets\": 8, "                         \
    "\"relative_attention_max_distance\": 20, "                       \
    "\"pad_token_id\": 0, \"decoder_start_token_id\": 0, "
#define GEMMA                                                 \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "       \
    "\"num_key_value_heads\": 2, \"head_dim\": 32, "          \
    "\"num_hidden_layers\": 3, \"intermediate_size\": 160, "  \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, " \
    "\"query_pre_attn_scalar\": 32, \"sliding_window\": 20, " \
    "\"hidden_activation\": \"gelu_pytorch_tanh\", "          \
    "\"initializer_range\": 0.1, "

static const struct {
    const char *name, *config;
} families[] = {
    { "gpt2", "{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 3, "
              "\"n_layer\": 2, \"vocab_size\": 301, \"n_positions\": 128, "
              "\"initializer_range\": 0.1}" },
    { "llama", "{" LLAMA "\"model_type\": \"llama\"}" },
    { "mistral", "{" LLAMA "\"model_type\": \"mistral\", "
                 "\"sliding_window\": 20}" },
    { "qwen2", "{" LLAMA "\"model_type\": \"qwen2\", "
               "\"use_sliding_window\": true, \"sliding_window\": 15, "
               "\"max_window_layers\": 1}" },
    { "qwen3", "{" LLAMA "\"model_type\": \"qwen3\", \"head_dim\": 32, "
               "\"tie_word_embeddings\": true}" },
    { "bert", "{" BERT "\"model_type\": \"bert\"}" },
    { "roberta", "{" BERT "\"model_type\": \"roberta\", "
                 "\"type_vocab_size\": 1}" },
    { "marian", "{" BART "\"model_type\": \"marian\"}" },
    { "bart", "{" BART "\"model_type\": \"bart\"}" },
    { "t5", "{" T5 "\"model_type\": \"t5\"}" },
    { "t5_gated", "{" T5 "\"model_type\": \"t5\", "
                  "\"feed_forward_proj\": \"gated-gelu\", "
                  "\"tie_word_embeddings\": false}" },
    { "gemma2", "{" GEMMA "\"model_type\": \"gemma2\", "
                "\"attn_logit_softcapping\": 5, "
                "\"final_logit_softcapping\": 3}" },
    { "gemma3", "{" GEMMA "\"model_type\": \"gemma3_text\", "
                "\"attn_logit_softcapping\": 5}" },
    { "mpt", "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, "
             "\"n_layers\": 3, "
             "\"vocab_size\": 300, \"max_seq_len\": 128, "
             "\"no_bias\": true, \"attn_config\": {\"alibi\": true}, "
             "\"initializer_range\": 0.1}" },
};

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
    options.learning_rate = 1e-3;
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
        for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
            check_model(families[i].name, families[i].config, NULL, types[t],
                        !quick);
        for (int i = at; i < argc; i++)
            check_model(argv[i], NULL, argv[i], types[t], !quick);
    }
    printf("%zu checks, %zu failures\n", checks, failures);
    return failures != 0;
}

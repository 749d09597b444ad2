/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - training equals inference: the logits of one parallel pass over a
 * whole text are those of a decoding session that reads it in pieces, bit for
 * bit.
 *
 *   decode [MODEL]
 *
 * MODEL is the folder of a decoder-only model; without it, a small one with
 * random weights is created. The exit status is 0 if all bits are equal. */
#include <bauta.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 96 };

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 3, \"intermediate_size\": 128, "
    "\"vocab_size\": 500, \"max_position_embeddings\": 128, "
    "\"rms_norm_eps\": 1e-5}";

static bauta_error err;

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "decode: %s\n", err.message);
        exit(1);
    }
}

/* All positions at once, as in training: the causal mask hides the future. */
static void parallel_pass(bauta_context *context, const bauta_model *model,
                          const uint32_t *ids, float *logits)
{
    const size_t length = TOKENS;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    batch.count = 1;
    batch.lengths = &length;
    batch.ids = ids;
    outputs.logits = logits;
    check(bauta_model_forward(context, model, NULL, &batch, &outputs, &err));
}

/* Append tokens up to `end`, and compare the logits after the last one. */
static size_t append(bauta_decode_session *session, size_t sequence,
                     const uint32_t *ids, size_t end, const float *want,
                     float *got, size_t vocab)
{
    size_t begin = bauta_decode_session_tokens(session, sequence);
    bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
    input.sequence = sequence;
    input.tokens = ids + begin;
    input.count = end - begin;
    input.logits = got;
    check(bauta_decode_session_append(session, &input, 1, &err));
    return memcmp(want + (end - 1) * vocab, got, vocab * sizeof(*got)) != 0;
}

int main(int argc, char **argv)
{
    bauta_context *context;
    bauta_model *model;
    bauta_decode_session *session;
    uint32_t ids[TOKENS];
    size_t one, other, fork, calls = 0, wrong = 0;

    check(bauta_context_create(&context, NULL, &err));
    if (argc > 1)
        check(bauta_model_load(&model, argv[1], false, &err));
    else
        check(bauta_model_create(&model, config, 1, &err));
    size_t vocab = bauta_model_vocab_size(model);
    float *want = malloc(TOKENS * vocab * sizeof(*want));
    float *got = malloc(vocab * sizeof(*got));
    if (!want || !got)
        return 1;
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(i * i * 31 % vocab);
    parallel_pass(context, model, ids, want);

    check(bauta_decode_session_create(&session, context, model, &err));
    // One token at a time, as generation reads its own output.
    check(bauta_decode_session_open(session, NULL, 0, &one, &err));
    for (size_t end = 1; end <= TOKENS; end++, calls++)
        wrong += append(session, one, ids, end, want, got, vocab);

    // In pieces of growing length, as prompts are read.
    check(bauta_decode_session_open(session, NULL, 0, &other, &err));
    for (size_t end = 1; end < TOKENS; end += end, calls++)
        wrong += append(session, other, ids, end, want, got, vocab);

    // From the middle of a copy, as beams and cached prefixes do.
    check(bauta_decode_session_fork(session, one, &fork, &err));
    check(bauta_decode_session_truncate(session, fork, TOKENS - 3, &err));
    wrong += append(session, fork, ids, TOKENS - 1, want, got, vocab);
    wrong += append(session, other, ids, TOKENS, want, got, vocab);
    calls += 2;

    printf("%zu of %zu calls gave the logits of the parallel pass, bit for "
           "bit\n",
           calls - wrong, calls);
    bauta_decode_session_free(session);
    free(want);
    free(got);
    bauta_model_free(model);
    bauta_context_free(context);
    return wrong != 0;
}

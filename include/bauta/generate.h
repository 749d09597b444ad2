/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/generate.h - sampling, beam search and continuous batching. */
#ifndef BAUTA_GENERATE_H
#define BAUTA_GENERATE_H

#include "core.h"
#include "model.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options ----------------------------------------------------------- */

/* When beam search ends: transformers' early_stopping. */
typedef enum bauta_early_stopping {
    BAUTA_EARLY_STOPPING_NO = 0,   /* false: when no open beam is likely to do
                                      better */
    BAUTA_EARLY_STOPPING_YES = 1,  /* true: as soon as enough have ended */
    BAUTA_EARLY_STOPPING_NEVER = 2 /* "never": when none can do better */
} bauta_early_stopping;

/* A sequence of tokens. */
typedef struct bauta_token_seq {
    size_t count; /* at least 1 */
    const uint32_t *tokens;
} bauta_token_seq;

/* What is added to the logit of a token. */
typedef struct bauta_token_bias {
    uint32_t token;
    float bias;
} bauta_token_bias;

#define BAUTA_EOS_TOKENS_MAX 8
#define BAUTA_SUPPRESS_TOKENS_MAX 32

/* How tokens are chosen: names, meanings and order of application are those of
 * transformers' GenerationConfig. */
typedef struct bauta_generate_options {
    size_t size;
    size_t max_new_tokens; /* 0: no limit */
    size_t max_length;     /* of prompt (or decoder start token) and new tokens;
                              0: the model's context */
    size_t min_new_tokens;
    size_t min_length;

    float repetition_penalty;    /* 1: none */
    size_t no_repeat_ngram_size; /* 0: none */
    bool do_sample;              /* sample; else take the most likely token */
    float temperature;           /* 1: none */
    size_t top_k;                /* 0: off */
    float top_p;                 /* 1: off */
    float min_p;                 /* 0: off */
    uint64_t seed; /* samples are a function of it and of the sequence alone */

    size_t num_beams; /* 1: no beam search */
    float length_penalty;
    bauta_early_stopping early_stopping;
    size_t num_return_sequences; /* of beam search; 0: one */
    bool renormalize_logits; /* after the logits processors, before scores are
                                added */

    uint32_t decoder_start_token_id; /* of an encoder-decoder */
    uint32_t forced_bos_token_id;    /* forced after the first token (of a
                                        target, after the start token), or
                                        BAUTA_NO_TOKEN */
    uint32_t forced_eos_token_id; /* forced at max_length, or BAUTA_NO_TOKEN */
    size_t eos_token_count;
    uint32_t eos_token_ids[BAUTA_EOS_TOKENS_MAX];
    size_t suppress_token_count;
    uint32_t suppress_tokens[BAUTA_SUPPRESS_TOKENS_MAX];

    const char *const *stop_strings; /* need a tokenizer; must stay valid while
                                        the request runs */
    size_t stop_string_count;
    const bauta_token_seq *bad_words; /* banned token sequences: the last token
                                         is masked whenever the preceding ones
                                         match. A sequence of one end token is
                                         ignored. Must stay valid while the
                                         request runs */
    size_t bad_word_count;

    size_t sliding_window; /* for models with rotary positions: every layer sees
                              the last so many tokens, the current one included,
                              as in bauta_mask_window(), so that a text may
                              exceed the model's context in bounded memory (set
                              max_new_tokens). Same bits as a model whose config
                              has this sliding_window; a narrower window of a
                              layer is kept. 0: none */

    /* As in the OpenAI API: after the repetition penalty, logit_bias is added,
     * then presence_penalty + frequency_penalty * n is subtracted for each
     * token that occurs n > 0 times among the new ones. */
    float presence_penalty;             /* 0: none */
    float frequency_penalty;            /* 0: none */
    const bauta_token_bias *logit_bias; /* by ascending token; must stay valid
                                           while the request runs */
    size_t logit_bias_count;
} bauta_generate_options;
#define BAUTA_GENERATE_OPTIONS_DEFAULTS(X)    \
    X(repetition_penalty, 1.0f)               \
    X(temperature, 1.0f)                      \
    X(top_p, 1.0f)                            \
    X(num_beams, 1)                           \
    X(length_penalty, 1.0f)                   \
    X(decoder_start_token_id, BAUTA_NO_TOKEN) \
    X(forced_bos_token_id, BAUTA_NO_TOKEN)    \
    X(forced_eos_token_id, BAUTA_NO_TOKEN)
#define BAUTA_GENERATE_OPTIONS_INIT \
    BAUTA_INIT(bauta_generate_options, BAUTA_GENERATE_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_generate_options, BAUTA_GENERATE_OPTIONS_DEFAULTS)

/* The settings of the model's generation_config.json, with config.json as the
 * fallback. A setting that affects results and is not supported is an error
 * that names it. Stop strings and bad words are owned by the model. `options`
 * must be initialized; fields beyond its `size` are not written. */
BAUTA_API bauta_status
bauta_generate_options_load(bauta_generate_options *options,
                            const bauta_model *model, bauta_error *err);
/* All options as a JSON object with transformers' names; "{}" for options that
 * the other calls reject because of their `size`. Works like snprintf. */
BAUTA_API size_t bauta_generate_options_json(
    const bauta_generate_options *options, char *text, size_t size);

/* ---- Requests and results ---------------------------------------------- */

/* Called for each token as it is chosen, with its log-probability and the text
 * that became final with it (NULL without a tokenizer; text that may be the
 * beginning of a stop string is held back). A last call has BAUTA_NO_TOKEN and
 * the pending text. Return false to cancel the request. */
typedef bool bauta_on_token_fn(void *user, uint32_t token, float logprob,
                               const char *text, size_t length);

/* Called with the logits of the next token, (vocab_size), before any processor:
 * those of the model's forward pass over prompt and chosen tokens, bit for bit.
 * `position` counts new tokens from 0. Comes before on_token for that token,
 * and not with beams. The logits are valid during the call. */
typedef void bauta_on_logits_fn(void *user, size_t position,
                                const float *logits, size_t vocab_size);

/* One text to generate. Arrays are copied. */
typedef struct bauta_request {
    size_t size;
    size_t count;
    const uint32_t *tokens; /* the prompt, at least one token; for an
                               encoder-decoder the beginning of the target,
                               after the start token, which may be empty */
    size_t source_count;
    const uint32_t *source;                /* of an encoder-decoder */
    const bauta_generate_options *options; /* NULL: the model's */
    bauta_on_token_fn *on_token;           /* or NULL; not called with beams */
    void *user;                            /* for the callbacks */
    uint64_t tag;                          /* returned in the result */
    bauta_on_logits_fn *on_logits;         /* or NULL */
} bauta_request;
#define BAUTA_REQUEST_INIT BAUTA_INIT(bauta_request, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_request, BAUTA_NO_DEFAULTS)

typedef enum bauta_finish {
    BAUTA_FINISH_END = 0,       /* an end token */
    BAUTA_FINISH_STOP = 1,      /* a stop string */
    BAUTA_FINISH_LENGTH = 2,    /* max_new_tokens or max_length */
    BAUTA_FINISH_CANCELLED = 3, /* on_token returned false */
    BAUTA_FINISH_CONTEXT = 4    /* the model's context is full; see
                                   sliding_window */
} bauta_finish;
/* "end", "stop", "length", "cancelled" or "context". Never NULL. */
BAUTA_API const char *bauta_finish_text(bauta_finish finish);

typedef struct bauta_hypothesis {
    size_t size; /* sizeof(bauta_hypothesis) in the library */
    size_t count;
    const uint32_t *tokens; /* the new ones, the end token included */
    const float *logprobs;  /* (count) of the model, before any processor */
    double score;           /* the sum of the log-probabilities used by the
                               search; of a beam, divided by its length to the
                               power of length_penalty */
    bauta_finish finish;
    const char *text; /* continues the prompt, without end token and stop
                         string, NUL-terminated; NULL without a tokenizer. Ids
                         beyond the tokenizer's vocabulary add nothing */
    size_t text_length;
} bauta_hypothesis;

typedef struct bauta_result {
    size_t size; /* sizeof(bauta_result) in the library */
    uint64_t tag;
    size_t prompt_tokens; /* of the prompt or the source */
    size_t cached_tokens; /* of these, tokens found in the prefix cache */
    size_t count;
    const bauta_hypothesis *const *hypotheses; /* (count) best first */
    bauta_status status; /* BAUTA_OK; else there are no hypotheses */
    const char *message; /* why; "" if nothing is wrong */
} bauta_result;
BAUTA_API void bauta_result_free(bauta_result *result);

/* ---- Generators -------------------------------------------------------- */

/* A generator runs many requests by continuous batching: each step runs the
 * model once for all of them, a finished request leaves, and a waiting one
 * takes its place. Generation is batch-invariant: each result is bit-identical
 * to running that request alone. Common prefixes are shared. */
typedef struct bauta_generator bauta_generator;

typedef struct bauta_generator_options {
    size_t size;
    size_t max_sequences;      /* running at once; each beam counts; 32 */
    size_t max_batched_tokens; /* prompt or source tokens in one step; 2048 */
    uint64_t cache_bytes;      /* limit of the KV cache; 0: none */
    size_t cached_sequences;   /* finished sequences kept for prefix sharing */
} bauta_generator_options;
#define BAUTA_GENERATOR_OPTIONS_DEFAULTS(X) \
    X(max_sequences, 32) X(max_batched_tokens, 2048)
#define BAUTA_GENERATOR_OPTIONS_INIT \
    BAUTA_INIT(bauta_generator_options, BAUTA_GENERATOR_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_generator_options, BAUTA_GENERATOR_OPTIONS_DEFAULTS)

/* Context, model and tokenizer must outlive the generator. Tokenizer and
 * options may be NULL. */
BAUTA_API bauta_status bauta_generator_create(
    bauta_generator **out, bauta_context *context, const bauta_model *model,
    const bauta_tokenizer *tokenizer, const bauta_generator_options *options,
    bauta_error *err);
BAUTA_API void bauta_generator_free(bauta_generator *generator);
/* Queue a request. One that can never run (too long, too large for the cache,
 * contradictory options) is rejected here. */
BAUTA_API bauta_status bauta_generator_add(bauta_generator *generator,
                                           const bauta_request *request,
                                           bauta_error *err);
/* Generate one token for every running request. *left, which may be NULL,
 * receives the number of unfinished requests. On failure all requests are
 * unchanged. A problem of one request alone (NaN logits, or all tokens masked
 * by its options) is no failure of the step: that request ends with an error in
 * its result, and the others continue. */
BAUTA_API bauta_status bauta_generator_step(bauta_generator *generator,
                                            size_t *left, bauta_error *err);
/* The next finished result, for bauta_result_free(); NULL: none. */
BAUTA_API bauta_result *bauta_generator_take(bauta_generator *generator);
/* Bytes of keys and values in use. */
BAUTA_API uint64_t bauta_generator_bytes(const bauta_generator *generator);

/* Run one request to completion. */
BAUTA_API bauta_status bauta_generate(bauta_context *context,
                                      const bauta_model *model,
                                      const bauta_tokenizer *tokenizer,
                                      const bauta_request *request,
                                      bauta_result **out, bauta_error *err);

/* ---- Decoding sessions ------------------------------------------------- */

/* Sequences with their KV cache, for programs that choose tokens themselves.
 * The logits equal those of bauta_model_forward() over the whole sequence, bit
 * for bit, however the tokens were split into calls and whatever else is in the
 * session. Context and model must outlive it, and the weights of a trainable
 * model must not change while it has tokens. One call at a time. */
typedef struct bauta_decode_session bauta_decode_session;

/* The model must have a decoder. */
BAUTA_API bauta_status bauta_decode_session_create(bauta_decode_session **out,
                                                   bauta_context *context,
                                                   const bauta_model *model,
                                                   bauta_error *err);
/* Also closes all sequences. */
BAUTA_API void bauta_decode_session_free(bauta_decode_session *session);

/* Open an empty sequence; *sequence receives its number, the smallest that is
 * not in use. An encoder-decoder encodes the `source`; for a decoder-only model
 * source is NULL and source_count 0. */
BAUTA_API bauta_status bauta_decode_session_open(bauta_decode_session *session,
                                                 const uint32_t *source,
                                                 size_t source_count,
                                                 size_t *sequence,
                                                 bauta_error *err);
/* Open a copy of a sequence. Pages are shared, and copied when one writes. */
BAUTA_API bauta_status bauta_decode_session_fork(bauta_decode_session *session,
                                                 size_t sequence, size_t *copy,
                                                 bauta_error *err);
/* Keep the first `tokens` tokens of a sequence, which must have as many. If a
 * sliding window has already released keys that the next token would see, this
 * fails and changes nothing. */
BAUTA_API bauta_status
bauta_decode_session_truncate(bauta_decode_session *session, size_t sequence,
                              size_t tokens, bauta_error *err);
/* Close a sequence; its number may then be reused. Closing a number that is not
 * in use does nothing. */
BAUTA_API void bauta_decode_session_close(bauta_decode_session *session,
                                          size_t sequence);
/* The number of tokens in a sequence; 0 if there is no such sequence. */
BAUTA_API size_t bauta_decode_session_tokens(
    const bauta_decode_session *session, size_t sequence);

typedef struct bauta_decode_input {
    size_t size;
    size_t sequence;        /* each at most once in a call */
    const uint32_t *tokens; /* (count) to append */
    size_t count;           /* at least 1 */
    float *logits;          /* (vocabulary) receives the logits after the last
                               token; NULL: they are not computed */
} bauta_decode_input;
#define BAUTA_DECODE_INPUT_INIT \
    BAUTA_INIT(bauta_decode_input, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_decode_input, BAUTA_NO_DEFAULTS)

/* Append tokens to `count` different sequences in one forward pass. On failure
 * all sequences are unchanged. */
BAUTA_API bauta_status bauta_decode_session_append(
    bauta_decode_session *session, const bauta_decode_input *inputs,
    size_t count, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif

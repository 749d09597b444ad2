/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - creating a generator, its scratch memory, and public calls. */
#include "decode/generator.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "runtime/context.h"

/* ---- create and free --------------------------------------------------- */

static bauta_status options_check(const bauta_generator_options *options,
                                  bauta_error *err)
{
    if (options->max_sequences == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the number of sequences is 0");
    if (options->max_batched_tokens == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the token budget of a step is 0");
    return BAUTA_OK;
}

static bauta_status generator_fill(bauta_generator *g, bauta_error *err)
{
    g->vocab = bauta_model_vocab_size(g->model);
    g->queue_end = &g->queue;
    g->now = &g->samples[0];
    g->next = &g->samples[1];
    bauta_status status = bt_decode_session_create(
        &g->session, g->context, g->model, g->options.cache_bytes, err);
    if (status)
        return status;
    g->prefixes =
        bt_alloc_zero(g->options.cached_sequences, sizeof(*g->prefixes));
    if (!g->prefixes)
        return bt_fail_memory(
            err, "ended texts",
            bt_size_mul(g->options.cached_sequences, sizeof(*g->prefixes)));
    return BAUTA_OK;
}

bauta_status bauta_generator_create(bauta_generator **out,
                                    bauta_context *context,
                                    const bauta_model *model,
                                    const bauta_tokenizer *tokenizer,
                                    const bauta_generator_options *options,
                                    bauta_error *err)
{
    bauta_generator_options chosen;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_GENERATOR_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status = options_check(&chosen, err);
    if (status)
        return status;
    if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "an encoder-only model cannot generate text");
    bauta_generator *g = bt_alloc_zero(1, sizeof(*g));
    if (!g)
        return bt_fail_memory(err, "a generator", sizeof(*g));
    g->context = context;
    g->model = model;
    g->tokenizer = tokenizer;
    g->options = chosen;
    status = generator_fill(g, err);
    if (status)
        bauta_generator_free(g);
    else
        *out = g;
    return status;
}

void bauta_generator_free(bauta_generator *g)
{
    if (!g)
        return;
    for (bt_request *r = g->queue, *next; r; r = next) {
        next = r->next;
        bt_request_free(r);
    }
    for (size_t i = 0; i < g->running_count; i++)
        bt_request_free(g->running[i]);
    while (bt_generator_evict_prefix(g))
        ;
    for (size_t i = 0; i < g->results.count; i++)
        bauta_result_free(g->results.items[g->results.first + i]);
    bt_decode_session_free(g->session);
    bt_free(g->running);
    bt_free(g->prefixes);
    bt_free(g->results.items);
    if (g->logits.memory)
        g->logits.backend->free(&g->logits);
    bt_free(g->logits_row);
    bt_free(g->inputs);
    for (size_t i = 0; i < BT_LEN(g->samples); i++) {
        bt_free(g->samples[i].items);
        if (g->samples[i].sampling)
            g->samples[i].sampling->backend->sampling_free(
                g->samples[i].sampling);
    }
    bt_free(g->beams);
    bt_free(g->scores);
    bt_free(g->histories);
    bt_free(g);
}

/* ---- memory ------------------------------------------------------------ */

bool bt_generator_replace_block(void **block, size_t count, size_t size)
{
    void *larger = bt_alloc_zero(count, size);
    if (!larger)
        return false;
    bt_free(*block);
    *block = larger;
    return true;
}

/* ---- requests and results ---------------------------------------------- */

bauta_status bauta_generator_add(bauta_generator *generator,
                                 const bauta_request *request, bauta_error *err)
{
    BT_NEED(generator, err);
    BT_NEED(request, err);
    bt_request *r;
    bt_request_limits limits = { generator->model, generator->tokenizer,
                                 generator->session,
                                 generator->options.max_sequences };
    bauta_status status = bt_request_create(&r, request, &limits, err);
    if (status)
        return status;
    *generator->queue_end = r;
    generator->queue_end = &r->next;
    generator->queued++;
    return BAUTA_OK;
}

bauta_result *bauta_generator_take(bauta_generator *generator)
{
    if (!generator || generator->results.count == 0)
        return NULL;
    generator->results.count--;
    return generator->results.items[generator->results.first++];
}

uint64_t bauta_generator_bytes(const bauta_generator *generator)
{
    return generator ? bt_decode_session_used(generator->session) : 0;
}

/* The number of beams of the request, or the model's default. */
static bauta_status sequences_of(size_t *out, const bauta_request *request,
                                 const bauta_model *model, bauta_error *err)
{
    bauta_request own;
    bauta_generate_options options;
    bauta_status status = bt_request_read(&own, &options, request, model, err);
    if (!status)
        *out = options.num_beams;
    return status;
}

/* Take the only result, or its error. */
static bauta_status result_take(bauta_result **out, bauta_generator *generator,
                                bauta_error *err)
{
    bauta_result *result = bauta_generator_take(generator);
    bauta_status status = result->status;
    if (status) {
        bt_fail(err, status, "%s", result->message);
        bauta_result_free(result);
        return status;
    }
    *out = result;
    return BAUTA_OK;
}

bauta_status bauta_generate(bauta_context *context, const bauta_model *model,
                            const bauta_tokenizer *tokenizer,
                            const bauta_request *request, bauta_result **out,
                            bauta_error *err)
{
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *generator = NULL;
    size_t left = 1;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(model, err);
    BT_NEED(request, err);
    bauta_status status =
        sequences_of(&options.max_sequences, request, model, err);
    if (!status && options.max_sequences == 0)
        options.max_sequences = 1; // bauta_generator_add() reports the error
    if (!status)
        status = bauta_generator_create(&generator, context, model, tokenizer,
                                        &options, err);
    if (!status)
        status = bauta_generator_add(generator, request, err);
    while (!status && left)
        status = bauta_generator_step(generator, &left, err);
    if (!status)
        status = result_take(out, generator, err);
    bauta_generator_free(generator);
    return status;
}

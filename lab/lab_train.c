/* SPDX-License-Identifier: Apache-2.0 */
/* lab_train.c - bauta lab: training steps with a schedule of the learning rate,
 * and models.
 *
 * The learning rate rises linearly over the first tenth of the steps and falls
 * linearly to a tenth at the last. */
#include "lab_train.h"
#include "../cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps ------------------------------------------------------------- */

static const double last_share = 0.1;

struct learner {
    bauta_model *model;
    bauta_optimizer *optimizer;
    double rate;
    size_t steps, done;
};

int learner_create(learner **out, bauta_context *context, bauta_model *model,
                   double rate, size_t steps)
{
    bauta_error err;
    learner *l = malloc(sizeof(*l));
    *out = NULL;
    if (!l)
        return cli_fail("lab", "out of memory");
    *l = (learner){ .model = model, .rate = rate, .steps = steps };
    if (bauta_optimizer_create(&l->optimizer, context, model, NULL, &err)) {
        free(l);
        return lab_failed(&err);
    }
    *out = l;
    return CLI_OK;
}

void learner_free(learner *l)
{
    if (!l)
        return;
    bauta_optimizer_free(l->optimizer);
    free(l);
}

/* The learning rate of step `done`, counted from 1. */
static double rate_of(const learner *l, size_t done)
{
    double t = (double)done, all = (double)l->steps;
    double warm = ceil(all / 10.0);
    if (t <= warm)
        return l->rate * t / warm;
    double left = all > warm ? fmax(0.0, (all - t) / (all - warm)) : 0.0;
    return l->rate * (last_share + (1.0 - last_share) * left);
}

int learner_step(learner *l)
{
    bauta_error err;
    if (bauta_optimizer_set_learning_rate(l->optimizer, rate_of(l, l->done + 1),
                                          &err) ||
        bauta_optimizer_step(l->optimizer, NULL, &err) ||
        bauta_model_zero_gradients(l->model, &err))
        return lab_failed(&err);
    l->done++;
    return CLI_OK;
}

/* ---- models ------------------------------------------------------------ */

int lab_model_make(bauta_model **out, const char *preset, const char *overrides,
                   const bauta_tokenizer *tokenizer, uint64_t seed)
{
    bauta_error err;
    char *config = NULL;
    *out = NULL;
    bauta_status status =
        bauta_preset(&config, NULL, preset, tokenizer, overrides, &err);
    if (!status)
        status = bauta_model_create(out, config, seed, &err);
    bauta_text_free(config);
    return status ? lab_failed(&err) : CLI_OK;
}

double lab_cross_entropy(const float *logits, size_t count, uint32_t token,
                         bool *right)
{
    size_t best = 0;
    double sum = 0.0;
    for (size_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    if (right)
        *right = best == token;
    return log(sum) + (double)logits[best] - (double)logits[token];
}

static bauta_status continuation(const lab *l, const bauta_model *model,
                                 const lab_corpus *text, const char *prompt,
                                 size_t tokens, bauta_result **out,
                                 bauta_error *err)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_encode_options plain = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_tokens ids;
    *out = NULL;
    o.max_new_tokens = tokens;
    o.eos_token_ids[0] =
        bauta_tokenizer_special_token(text->tokenizer, BAUTA_TOKEN_SEP);
    o.eos_token_count = o.eos_token_ids[0] != BAUTA_NO_TOKEN;
    plain.no_special_tokens = true;
    bauta_status status = bauta_tokenizer_encode(
        text->tokenizer, prompt, strlen(prompt), &plain, &ids, err);
    if (status)
        return status;
    request.count = ids.count;
    request.tokens = ids.ids;
    request.options = &o;
    status =
        bauta_generate(l->context, model, text->tokenizer, &request, out, err);
    bauta_tokens_release(&ids);
    return status;
}

char *lab_continue(const lab *l, const bauta_model *model,
                   const lab_corpus *text, const char *prompt, size_t tokens)
{
    bauta_error err;
    bauta_result *result;
    if (continuation(l, model, text, prompt, tokens, &result, &err)) {
        lab_failed(&err);
        return NULL;
    }
    char *output = strdup(result->hypotheses[0]->text);
    bauta_result_free(result);
    if (!output)
        cli_fail("lab", "out of memory");
    for (char *c = output; c && *c; c++)
        if (*c == '\n')
            *c = ' ';
    return output;
}

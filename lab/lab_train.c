/* SPDX-License-Identifier: Apache-2.0 */
/* lab_train.c - bauta lab: AdamW over the gradients of a model.
 *
 * bauta_trainer cannot train without the mask. So the optimizer is implemented
 * here again:
 *
 *     m <- b1 m + (1 - b1) g          v <- b2 v + (1 - b2) g^2
 *     p <- p - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e) - rate d p
 *
 * where g is clipped to a norm of 1 over all gradients, and the decay d applies
 * to matrices only. The learning rate rises linearly over the first tenth of
 * the steps and falls linearly to a tenth at the last. */
#include "lab_train.h"
#include "../cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the optimizer ----------------------------------------------------- */

static const double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8, decay = 0.1,
                    clip = 1.0, last_share = 0.1;

struct learner {
    bauta_model *model;
    double rate;
    size_t steps, done;
    float *first, *second; /* moments of all parameters, concatenated */
};

learner *learner_create(bauta_model *model, double rate, size_t steps)
{
    size_t count = (size_t)bauta_model_parameter_count(model);
    learner *l = malloc(sizeof(*l));
    if (!l)
        return NULL;
    *l = (learner){ .model = model, .rate = rate, .steps = steps };
    l->first = calloc(count + 1, sizeof(*l->first));
    l->second = calloc(count + 1, sizeof(*l->second));
    if (!l->first || !l->second) {
        learner_free(l);
        return NULL;
    }
    return l;
}

void learner_free(learner *l)
{
    if (!l)
        return;
    free(l->first);
    free(l->second);
    free(l);
}

/* The learning rate of step `done`, counted from 1. */
static double rate_now(const learner *l)
{
    double t = (double)l->done, all = (double)l->steps;
    double warm = ceil(all / 10.0);
    if (t <= warm)
        return l->rate * t / warm;
    double left = all > warm ? fmax(0.0, (all - t) / (all - warm)) : 0.0;
    return l->rate * (last_share + (1.0 - last_share) * left);
}

/* The factor that clips the gradients. */
static int scale_find(const learner *l, double *scale)
{
    bauta_error err;
    bauta_tensor t = BAUTA_TENSOR_INIT;
    double squares = 0.0;
    for (size_t i = 0; i < bauta_model_tensor_count(l->model); i++) {
        if (bauta_model_tensor(l->model, i, &t, &err))
            return lab_failed(&err);
        for (size_t j = 0; t.gradient && j < t.count; j++)
            squares += (double)t.gradient[j] * (double)t.gradient[j];
    }
    if (!isfinite(squares))
        return cli_fail("lab", "the gradients are not finite");
    *scale = fmin(1.0, clip / (sqrt(squares) + 1e-6));
    return CLI_OK;
}

static void tensor_step(const bauta_tensor *t, float *first, float *second,
                        double rate, double scale, size_t done)
{
    double right1 = 1.0 - pow(beta1, (double)done);
    double right2 = 1.0 - pow(beta2, (double)done);
    double keep = 1.0 - rate * (t->rank == 2 ? decay : 0.0);
    for (size_t i = 0; i < t->count; i++) {
        double g = scale * (double)t->gradient[i];
        double m = beta1 * (double)first[i] + (1.0 - beta1) * g;
        double v = beta2 * (double)second[i] + (1.0 - beta2) * g * g;
        double move = m / right1 / (sqrt(v / right2) + epsilon);
        first[i] = (float)m;
        second[i] = (float)v;
        t->writable[i] = (float)(keep * (double)t->writable[i] - rate * move);
    }
}

int learner_step(learner *l)
{
    bauta_error err;
    bauta_tensor t = BAUTA_TENSOR_INIT;
    double scale = 0.0;
    int failed = scale_find(l, &scale);
    if (failed)
        return failed;
    l->done++;
    for (size_t i = 0, at = 0; i < bauta_model_tensor_count(l->model); i++) {
        if (bauta_model_tensor(l->model, i, &t, &err))
            return lab_failed(&err);
        if (!t.gradient)
            continue;
        tensor_step(&t, l->first + at, l->second + at, rate_now(l), scale,
                    l->done);
        at += t.count;
    }
    if (bauta_model_zero_gradients(l->model, &err))
        return lab_failed(&err);
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

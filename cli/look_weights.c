/* SPDX-License-Identifier: Apache-2.0 */
/* look_weights.c - bauta look: the selected attentions and their weights. */
#include "cli.h"
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VERB "look"

enum { WEIGHTS_MAX = 64 << 20 }; /* 256 MiB of them */

const char *attention_name(bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_ENCODER   ? "encoder"
           : at == BAUTA_ATTENTION_DECODER ? "decoder"
                                           : "cross";
}

/* ---- selection --------------------------------------------------------- */

typedef struct choice {
    bauta_attention_kind first, last;
    bool every_layer;
} choice;

static bool is_page(const look_options *o)
{
    size_t length = o->out ? strlen(o->out) : 0;
    return length > 5 && strcasecmp(o->out + length - 5, ".html") == 0;
}

static bauta_attention_kind default_at(const look_input *s)
{
    return s->kind == BAUTA_DECODER_ONLY   ? BAUTA_ATTENTION_DECODER
           : s->kind == BAUTA_ENCODER_ONLY ? BAUTA_ATTENTION_ENCODER
                                           : BAUTA_ATTENTION_CROSS;
}

/* A page shows all attentions unless some are selected. */
static choice choice_of(const look_input *s, const look_options *o)
{
    bool page = is_page(o);
    choice c = { default_at(s), default_at(s),
                 o->all || (page && o->layer < 0) };
    if (o->at != LOOK_NONE)
        c.first = c.last = (bauta_attention_kind)o->at;
    else if (page || o->all) {
        c.first = BAUTA_ATTENTION_ENCODER;
        c.last = BAUTA_ATTENTION_CROSS;
    }
    return c;
}

static size_t layers_of(const look_input *s, bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_ENCODER ? bauta_model_encoder_layers(s->model)
                                         : bauta_model_decoder_layers(s->model);
}

static int choice_check(const look_input *s, const look_options *o,
                        bauta_attention_kind at)
{
    size_t heads = bauta_model_heads(s->model, at), layers = layers_of(s, at);
    if (!heads)
        return cli_usage(VERB, "%s is %s: it has no --at %s", o->model,
                         bauta_model_kind_text(s->kind), attention_name(at));
    if (o->layer >= (long)layers)
        return cli_usage(VERB, "--layer is %ld; the %s has %zu, from 0",
                         o->layer, attention_name(at), layers);
    if (o->head >= (long)heads)
        return cli_usage(VERB, "--head is %ld; the %s has %zu, from 0", o->head,
                         attention_name(at), heads);
    return CLI_OK;
}

/* ---- pictures ---------------------------------------------------------- */

static void picture_set(bauta_picture *p, const look_input *s,
                        bauta_attention_kind at, size_t layer, size_t head)
{
    bool source = at == BAUTA_ATTENTION_ENCODER,
         cross = at == BAUTA_ATTENTION_CROSS;
    *p = (bauta_picture)BAUTA_PICTURE_INIT;
    p->attention = at;
    p->layer = layer;
    p->head = head;
    p->rows = source ? s->source_count : s->target_count;
    p->columns = source || cross ? s->source_count : s->target_count;
    p->row_labels = (const char *const *)(source  ? s->source_labels
                                          : cross ? s->output_labels
                                                  : s->target_labels);
    p->column_labels =
        (const char *const *)(source || cross ? s->source_labels
                                              : s->target_labels);
}

static void layer_add(look_weights *v, const look_input *s,
                      const look_options *o, bauta_attention_kind at,
                      size_t layer)
{
    size_t heads = bauta_model_heads(s->model, at);
    for (size_t head = 0; head < heads; head++)
        if (o->head < 0 || o->head == (long)head)
            picture_set(&v->pictures[v->count++], s, at, layer, head);
}

static int pictures_choose(look_weights *v, const look_input *s,
                           const look_options *o)
{
    choice c = choice_of(s, o);
    size_t most = 0;
    bool one = c.first == c.last;
    for (int at = (int)c.first; at <= (int)c.last; at++) {
        size_t heads = bauta_model_heads(s->model, (bauta_attention_kind)at);
        int usage =
            one || heads ? choice_check(s, o, (bauta_attention_kind)at) : 0;
        if (usage)
            return usage;
        most += heads * layers_of(s, (bauta_attention_kind)at);
    }
    v->pictures = calloc(most, sizeof(*v->pictures));
    v->masks = calloc(most, sizeof(*v->masks));
    if (!v->pictures || !v->masks)
        return cli_fail(VERB, "out of memory");
    for (int at = (int)c.first; at <= (int)c.last; at++) {
        size_t layers = layers_of(s, (bauta_attention_kind)at);
        size_t only = o->layer >= 0 ? (size_t)o->layer : layers - 1;
        for (size_t l = 0; l < layers; l++)
            if (c.every_layer || l == only)
                layer_add(v, s, o, (bauta_attention_kind)at, l);
    }
    return CLI_OK;
}

/* ---- masks ------------------------------------------------------------- */

/* The model's own mask. */
static bauta_status own_mask(bauta_mask **out, const look_input *s,
                             const bauta_picture *p, bauta_error *err)
{
    size_t window = bauta_model_sliding_window(s->model, p->layer);
    if (p->attention != BAUTA_ATTENTION_DECODER)
        return bauta_mask_all(out, p->rows, p->columns, err);
    return window ? bauta_mask_window(out, p->rows, p->columns, window, err)
                  : bauta_mask_causal(out, p->rows, p->columns, err);
}

static bauta_status mask_make(bauta_mask **out, const look_input *s,
                              const bauta_picture *p, bauta_error *err)
{
    bauta_mask *own = NULL;
    bauta_status status = own_mask(&own, s, p, err);
    bool hides = s->extra && (p->attention == BAUTA_ATTENTION_DECODER ||
                              s->kind == BAUTA_ENCODER_ONLY);
    if (status || !hides) {
        *out = own;
        return status;
    }
    status = bauta_mask_and(out, own, s->extra, err);
    bauta_mask_free(own);
    return status;
}

/* All heads of a layer have the same mask, and most layers do. */
static bool same_mask(const look_input *s, const bauta_picture *a,
                      const bauta_picture *b)
{
    return a->attention == b->attention &&
           (a->attention != BAUTA_ATTENTION_DECODER ||
            bauta_model_sliding_window(s->model, a->layer) ==
                bauta_model_sliding_window(s->model, b->layer));
}

static int masks_make(look_weights *v, const look_input *s)
{
    bauta_error err;
    for (size_t i = 0; i < v->count; i++) {
        bauta_picture *p = &v->pictures[i];
        if (i > 0 && same_mask(s, p, p - 1)) {
            p->mask = p[-1].mask;
            continue;
        }
        if (mask_make(&v->masks[i], s, p, &err))
            return cli_fail(VERB, "%s", err.message);
        p->mask = v->masks[i];
    }
    return CLI_OK;
}

/* ---- weights ----------------------------------------------------------- */

static bauta_batch batch_of(const uint32_t *ids, size_t count)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = 1;
    batch.stride = count;
    batch.ids = ids;
    return batch;
}

static bool all_finite(const float *numbers, size_t count)
{
    size_t i = 0;
    while (i < count && isfinite(numbers[i]))
        i++;
    return i == count;
}

static bauta_status weights_fill(look_weights *v, const look_input *s,
                                 bauta_attention_weights *looks,
                                 bauta_error *err)
{
    bauta_batch source = batch_of(s->source, s->source_count);
    bauta_batch target = batch_of(s->target, s->target_count);
    float *at = v->weights;
    (s->target ? &target : &source)->mask = s->extra;
    for (size_t i = 0; i < v->count; i++) {
        bauta_picture *p = &v->pictures[i];
        looks[i] = (bauta_attention_weights)BAUTA_ATTENTION_WEIGHTS_INIT;
        looks[i].attention = p->attention;
        looks[i].layer = p->layer;
        looks[i].head = p->head;
        looks[i].rows = p->rows;
        looks[i].weights = at;
        p->weights = at;
        at += p->rows * p->columns;
    }
    const bauta_batch *reads = s->source ? &source : NULL;
    const bauta_batch *writes = s->target ? &target : NULL;
    bauta_status status = bauta_model_attention_weights(
        s->context, s->model, reads, writes, NULL, looks, v->count, err);
    if (!status && !all_finite(v->weights, (size_t)(at - v->weights)))
        status =
            bauta_model_check_finite(s->context, s->model, reads, writes, err);
    return status;
}

static int weights_make(look_weights *v, const look_input *s)
{
    bauta_error err;
    double all = 0.0;
    for (size_t i = 0; i < v->count; i++)
        all += (double)v->pictures[i].rows * (double)v->pictures[i].columns;
    if (all > WEIGHTS_MAX)
        return cli_fail(VERB,
                        "%.0f weights of %zu attentions are too many to show; "
                        "choose a --layer, a --head or a shorter text",
                        all, v->count);
    v->weights = calloc((size_t)all, sizeof(*v->weights));
    bauta_attention_weights *looks = calloc(v->count, sizeof(*looks));
    bauta_status status = BAUTA_ERR_NOMEM;
    snprintf(err.message, sizeof(err.message), "out of memory");
    if (v->weights && looks)
        status = weights_fill(v, s, looks, &err);
    free(looks);
    return status ? cli_fail(VERB, "%s", err.message) : CLI_OK;
}

int look_weights_compute(look_weights *v, const look_input *s,
                         const look_options *o)
{
    int failed = pictures_choose(v, s, o);
    if (!failed)
        failed = masks_make(v, s);
    if (!failed)
        failed = weights_make(v, s);
    return failed;
}

void look_weights_release(look_weights *v)
{
    for (size_t i = 0; i < v->count; i++)
        bauta_mask_free(v->masks[i]);
    free(v->masks);
    free(v->pictures);
    free(v->weights);
}

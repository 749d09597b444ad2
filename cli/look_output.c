/* SPDX-License-Identifier: Apache-2.0 */
/* look_output.c - bauta look: output to the terminal, as JSON, to a file. */
#include "cli.h"
#include "json_output.h"
#include "look.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "look"

enum { LABEL = 64, TERMINAL_MAX = 512 };

/* ---- files ------------------------------------------------------------- */

static int file_write(const bauta_picture *pictures, size_t count,
                      const look_options *o, const char *title)
{
    bauta_error err;
    bauta_picture_options options = BAUTA_PICTURE_OPTIONS_INIT;
    options.title = title;
    if (bauta_picture_save(o->out, pictures, count, &options, &err))
        return err.status == BAUTA_ERR_ARGUMENT
                   ? cli_usage(VERB, "--out: %s", err.message)
                   : cli_fail(VERB, "%s", err.message);
    printf("%s: %zu %s\n", o->out, count, count == 1 ? "picture" : "pictures");
    return cli_finish(VERB);
}

/* ---- JSON -------------------------------------------------------------- */

static json_t *labels_json(const char *const *labels, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_text(labels[i], strlen(labels[i])));
    return list;
}

static json_t *weights_json(const bauta_picture *p)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < p->rows; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < p->columns; j++)
            json_array_append_new(
                row, json_real((double)p->weights[i * p->columns + j]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *picture_json(const bauta_picture *p)
{
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "at",
                     attention_name(p->attention), "layer",
                     (json_int_t)p->layer, "head", (json_int_t)p->head, "rows",
                     labels_json(p->row_labels, p->rows), "columns",
                     labels_json(p->column_labels, p->columns), "mask",
                     json_mask(p->mask), "weights", weights_json(p));
}

static int json_show(const look_input *s, const look_weights *v,
                     const look_options *o)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->count; i++)
        json_array_append_new(list, picture_json(&v->pictures[i]));
    json_t *all = json_pack(
        "{s:o, s:s, s:o, s:o, s:I, s:o}", "model",
        json_text(o->model, strlen(o->model)), "kind",
        bauta_model_kind_text(s->kind), "source",
        json_ids(s->source, s->source_count), "target",
        json_ids(s->outputs ? s->outputs : s->target, s->target_count),
        "generated", (json_int_t)s->generated, "attentions", list);
    int failed = json_line(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

/* ---- the terminal ------------------------------------------------------ */

/* A label without a leading blank, and with newlines and tabs escaped. */
static void label_clean(char *to, size_t size, const char *label)
{
    size_t used = 0;
    if (*label == ' ' && label[1])
        label++;
    for (; *label && used + 2 < size; label++) {
        unsigned char c = (unsigned char)*label;
        if (c == '\n' || c == '\t') {
            to[used++] = '\\';
            to[used++] = c == '\n' ? 'n' : 't';
        } else {
            to[used++] = c < 0x20 || c == 0x7F ? '?' : (char)c;
        }
    }
    to[used] = '\0';
}

typedef struct cleaned {
    char (*texts)[LABEL];
    const char **labels;
} cleaned;

static cleaned clean(const char *const *labels, size_t count)
{
    cleaned c = { calloc(count, sizeof(*c.texts)),
                  calloc(count, sizeof(*c.labels)) };
    for (size_t i = 0; c.texts && c.labels && i < count; i++) {
        label_clean(c.texts[i], LABEL, labels[i]);
        c.labels[i] = c.texts[i];
    }
    return c;
}

static void cleaned_free(cleaned *c)
{
    free(c->texts);
    free(c->labels);
}

/* The mean of `count` consecutive pictures. */
static float *mean_of(const bauta_picture *p, size_t count)
{
    size_t pairs = p->rows * p->columns;
    float *mean = calloc(pairs, sizeof(*mean));
    for (size_t h = 0; mean && h < count; h++)
        for (size_t i = 0; i < pairs; i++)
            mean[i] += p[h].weights[i] / (float)count;
    return mean;
}

static int picture_show(const bauta_picture *p, const float *weights)
{
    cleaned rows = clean(p->row_labels, p->rows);
    cleaned columns = clean(p->column_labels, p->columns);
    int failed = CLI_OK;
    if (!weights || !rows.texts || !rows.labels || !columns.texts ||
        !columns.labels)
        failed = cli_fail(VERB, "out of memory");
    else
        heatmap_draw_fitting(stdout,
                             &(heatmap){ p->rows, p->columns, rows.labels,
                                         columns.labels, weights },
                             terminal_has_colours(stdout));
    cleaned_free(&rows);
    cleaned_free(&columns);
    return failed;
}

static const char *axes_text(bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_CROSS ? "rows: target; columns: source"
                                       : "rows: queries; columns: keys";
}

/* The mean over the heads of a layer, or one head. */
static int layer_show(const bauta_picture *p, size_t count)
{
    float *mean = count > 1 ? mean_of(p, count) : NULL;
    printf("%s, layer %zu, ", attention_name(p->attention), p->layer);
    if (count > 1)
        printf("mean of %zu heads", count);
    else
        printf("head %zu", p->head);
    printf(", in percent (%s)\n\n", axes_text(p->attention));
    int failed = picture_show(p, count > 1 ? mean : p->weights);
    free(mean);
    return failed;
}

/* The generated text, for bauta_text_free(); NULL if there is none. */
static char *generated_text(const look_input *s)
{
    const uint32_t *ids = s->outputs ? s->outputs : s->target;
    char *text = NULL;
    size_t length;
    if (s->generated)
        bauta_tokenizer_decode(s->tokenizer,
                               ids + s->target_count - s->generated,
                               s->generated, NULL, &text, &length, NULL);
    return text;
}

static int terminal_show(const look_input *s, const look_weights *v,
                         const look_options *o)
{
    int failed = CLI_OK;
    char *written = generated_text(s);
    if (written)
        printf("generated: %s\n\n", written);
    bauta_text_free(written);
    for (size_t i = 0, n; i < v->count && !failed; i += n) {
        const bauta_picture *p = &v->pictures[i];
        if (p->rows > TERMINAL_MAX || p->columns > TERMINAL_MAX)
            return cli_fail(VERB,
                            "%zu by %zu tokens are too many for the terminal; "
                            "--out draws them",
                            p->rows, p->columns);
        n = 1;
        while (!o->all && i + n < v->count && p[n].attention == p->attention &&
               p[n].layer == p->layer)
            n++;
        if (i)
            putchar('\n');
        failed = layer_show(p, n);
    }
    return failed ? failed : cli_finish(VERB);
}

/* The title: source and target of a translation, or prompt and continuation. */
static int files_show(const look_input *s, const look_weights *v,
                      const look_options *o)
{
    char *written = generated_text(s);
    const char *first = o->source ? o->source : o->text;
    const char *second = written                ? written
                         : o->source && o->text ? o->text
                                                : "";
    size_t size = strlen(first) + strlen(second) + 8;
    char *title = malloc(size);
    if (title)
        snprintf(title, size, "%s%s%s", first, s->outputs ? " \u2192 " : "",
                 second);
    int failed = title ? file_write(v->pictures, v->count, o, title)
                       : cli_fail(VERB, "out of memory");
    free(title);
    bauta_text_free(written);
    return failed;
}

int look_output(const look_input *s, const look_weights *v,
                const look_options *o)
{
    return o->json  ? json_show(s, v, o)
           : o->out ? files_show(s, v, o)
                    : terminal_show(s, v, o);
}

/* ---- masks ------------------------------------------------------------- */

static int mask_terminal(const bauta_mask *mask, const look_options *o)
{
    size_t length = bauta_mask_text(mask, NULL, 0);
    if (o->queries > TERMINAL_MAX || o->keys > TERMINAL_MAX)
        return cli_fail(VERB,
                        "a mask of %zu by %zu is too large for the terminal; "
                        "--out draws it",
                        o->queries, o->keys);
    char *text = malloc(length + 1);
    if (!text)
        return cli_fail(VERB, "out of memory");
    bauta_mask_text(mask, text, length + 1);
    mask_draw(stdout, text, terminal_has_colours(stdout));
    free(text);
    printf("%zu queries over %zu keys: %llu of %llu pairs are visible%s\n",
           o->queries, o->keys, (unsigned long long)bauta_mask_pairs(mask),
           (unsigned long long)o->queries * o->keys,
           bauta_mask_is_causal(mask, NULL, NULL) ? ", none in the future"
                                                  : "");
    return cli_finish(VERB);
}

int look_output_mask(const bauta_mask *mask, const look_options *o)
{
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.title = o->mask;
    p.rows = o->queries;
    p.columns = o->keys;
    p.mask = mask;
    if (o->out)
        return file_write(&p, 1, o, NULL);
    if (!o->json)
        return mask_terminal(mask, o);
    int failed = json_line(VERB, json_mask(mask));
    return failed ? failed : cli_finish(VERB);
}

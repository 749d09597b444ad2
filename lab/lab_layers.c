/* SPDX-License-Identifier: Apache-2.0 */
/* lab_layers.c - bauta lab layers: why every layer needs the mask. The mask is
 * removed from one layer after another, and then widened by a single pair. */
#include "../cli/cli.h"
#include "lab_stack.h"

static void trial_draw(report *r, const stack *s, const trial *t,
                       const char *title)
{
    report_heading(r, title);
    for (size_t i = 0; i < s->layers; i++) {
        char name[48];
        snprintf(name, sizeof(name), "after layer %zu", i);
        report_mask(r, name, t->reach[i], s->causal);
    }
}

/* A row of a table; layers and tokens count from 0. */
static void trial_row(report *r, const trial *t, const stack *s,
                      const char *where)
{
    char leak[64] = "-";
    if (t->leaks)
        snprintf(leak, sizeof(leak), "layer %zu: %zu sees %zu", t->leak.layer,
                 t->leak.query, t->leak.key);
    report_row(r, "%s\t%s\t%zu\t%zu\t%zu of %zu\t%s", where, leak, t->proved,
               t->found, t->affected[s->layers], s->tokens,
               t->agree ? "yes" : "no");
}

#define HEADINGS \
    "\tfirst leak\tleaks by masks\tleaks measured\taffected by last\tequal"

/* ---- no mask in one layer ---------------------------------------------- */

static void missing_claim(report *r, const stack *s, const trial *t,
                          size_t missing)
{
    size_t every = s->tokens * (s->tokens - 1) / 2;
    if (missing == 0)
        report_claim(r, !t->leaks && t->proved == 0 && t->found == 0,
                     "With the mask in every layer nothing leaks: %zu pairs by "
                     "the masks, %zu measured.",
                     t->proved, t->found);
    else
        report_claim(r,
                     t->leaks && t->leak.layer == missing - 1 &&
                         t->proved == every && t->found == every &&
                         t->affected[s->layers] == s->tokens,
                     "Without the mask in layer %zu everything leaks: %zu of "
                     "%zu pairs by the masks, %zu measured.",
                     missing - 1, t->proved, every, t->found);
    char where[48] = "in every layer";
    if (missing)
        snprintf(where, sizeof(where), "not in layer %zu", missing - 1);
    report_claim(r, t->agree, "Masks and measurement agree (mask %s).", where);
}

/* trials[0] has the mask in every layer, trials[n + 1] in all but layer n. */
static int missing_try(report *r, stack *s, trial *trials)
{
    int failed = CLI_OK;
    char title[128];
    snprintf(title, sizeof(title),
             "%zu tokens through %zu layers, in one of which the mask is "
             "missing",
             s->tokens, s->layers);
    report_table(r, title, "missing in" HEADINGS);
    for (size_t n = 0; n <= s->layers && !failed; n++) {
        char where[32] = "no layer";
        if (n)
            snprintf(where, sizeof(where), "layer %zu", n - 1);
        lab_progress(s->l, "layers: the mask is missing in %s", where);
        failed = trial_run(&trials[n], s, n - 1, s->all);
        if (!failed) {
            trial_row(r, &trials[n], s, where);
            missing_claim(r, s, &trials[n], n);
        }
    }
    return failed;
}

static void missing_plot(report *r, const stack *s, const trial *trials)
{
    report_plot(r, &(plot_options){ .title = "Tokens affected by the last one, "
                                             "measured",
                                    .across = "layers passed",
                                    .upward = "affected tokens" });
    for (size_t n = 0; n <= s->layers; n++) {
        char name[48] = "mask in every layer";
        if (n)
            snprintf(name, sizeof(name), "not in layer %zu", n - 1);
        report_curve(r, name);
        for (size_t i = 0; i <= s->layers; i++)
            report_point(r, (double)i, (double)trials[n].affected[i]);
    }
}

/* ---- one extra pair ---------------------------------------------------- */

typedef struct hole {
    size_t query, key;
} hole;

/* The causal row, and one key after it. */
static size_t hole_row(void *user, size_t query, bauta_span *spans,
                       size_t capacity)
{
    const hole *h = user;
    size_t count = query == h->query ? 2 : 1;
    if (capacity >= count)
        spans[0] = (bauta_span){ 0, query + 1 };
    if (capacity >= count && count == 2)
        spans[1] = (bauta_span){ h->key, h->key + 1 };
    return count;
}

static int hole_try(report *r, stack *s, trial *trials)
{
    hole h = { s->tokens / 4, s->tokens - 1 };
    bauta_error err;
    bauta_mask *mask;
    char text[96];
    int failed = CLI_OK;
    if (bauta_mask_rows(&mask, s->tokens, s->tokens, hole_row, &h, &err))
        return lab_failed(&err);
    snprintf(text, sizeof(text), "One hole: token %zu also sees token %zu",
             h.query, h.key);
    report_table(r, text, "hole in" HEADINGS);
    for (size_t i = 0; i < s->layers && !failed; i++) {
        failed = trial_run(&trials[i], s, i, mask);
        if (failed)
            break;
        snprintf(text, sizeof(text), "layer %zu", i);
        trial_row(r, &trials[i], s, text);
        report_claim(r,
                     trials[i].leaks && trials[i].leak.layer == i &&
                         trials[i].proved > 0 && trials[i].agree,
                     "One extra pair in layer %zu leaks, and masks and "
                     "measurement agree.",
                     i);
        trials[i].masks[i] = NULL; // it is freed here
    }
    bauta_mask_free(mask);
    return failed;
}

/* ---- the experiment ---------------------------------------------------- */

static void layers_conclude(report *r, const stack *s, const trial *missing,
                            const trial *holes)
{
    size_t most = 0, where = 0, least = s->tokens;
    for (size_t i = 0; i < s->layers; i++)
        if (holes[i].found > most) {
            most = holes[i].found;
            where = i;
        }
    report_conclude(
        r,
        "With the mask in all %zu layers, %zu of %zu outputs changes when the "
        "last token does: its own. Without it in a single layer, no matter "
        "which, %zu change, because the layers above pass on what one token "
        "has seen.",
        s->layers, missing[0].affected[s->layers], s->tokens, least);
    report_conclude(
        r,
        "Even one extra pair, in layer %zu, becomes %zu pairs at the top, "
        "so a mask must hold in every layer and for every pair.",
        where, most);
}

static int layers_run(report *r, stack *s, trial *missing, trial *holes)
{
    size_t middle = s->layers / 2;
    char title[96];
    int failed = missing_try(r, s, missing);
    if (failed)
        return failed;
    snprintf(title, sizeof(title),
             "No mask in layer %zu: what each token reaches (leaks are marked)",
             middle);
    trial_draw(r, s, &missing[middle + 1], title);
    missing_plot(r, s, missing);
    failed = hole_try(r, s, holes);
    if (failed)
        return failed;
    snprintf(title, sizeof(title),
             "The hole in layer %zu: what each token reaches", middle - 1);
    trial_draw(r, s, &holes[middle - 1], title);
    layers_conclude(r, s, missing, holes);
    return CLI_OK;
}

int lab_layers(const lab *l, report *r)
{
    stack s;
    trial missing[LAYERS_MAX + 1] = { 0 }, holes[LAYERS_MAX] = { 0 };
    int failed = stack_init(&s, l);
    if (!failed)
        failed = layers_run(r, &s, missing, holes);
    for (size_t i = 0; i <= LAYERS_MAX; i++)
        trial_release(&missing[i]);
    for (size_t i = 0; i < LAYERS_MAX; i++)
        trial_release(&holes[i]);
    stack_release(&s);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* lab.h - bauta lab: what its files share.
 *
 *   lab.c           the verb: options, and which experiments run
 *   lab_leak.c      the same model with and without the mask
 *   lab_parallel.c  all positions at once, one by one, and on its own
 *   lab_exposure_bias.c     its last part
 *   lab_masks.c     every kind of mask, and what it costs
 *   lab_mask_kinds.c     the kinds
 *   lab_mlm.c       hidden words against the next word
 *   lab_cloze.c      what both are asked
 *   lab_layers.c    why every layer needs the mask
 *   lab_stack.c     the layers
 *   lab_corpus.c      the corpus: sentences of the grammar, as tokens
 *   lab_train.c     a small optimizer over bauta_model_loss()
 *   lab_report.c    what an experiment found, as it grows
 *   lab_report_text.c     a report in the terminal
 *   lab_report_json.c      and as JSON
 *   lab_plot.c      the axes of curves; curves in characters
 *   lab_report_svg.c       curves and masks as SVG
 *   lab_report_html.c      reports as one page of HTML
 *
 * An experiment says what it asks, fills tables, curves and drawings, draws
 * two sentences from them, and claims what must have come out: a claim that
 * does not hold is a failure of the verb, so that each is a test, too. */
#ifndef LAB_H
#define LAB_H

#include <bauta.h>

#include <stdio.h>

/* ---- reports ------------------------------------------------------------ */

/* What an experiment found. The calls copy what they are given; one that has
 * no memory makes the whole report void, which report_whole() tells. NULL is a
 * void report. */
typedef struct report report;

report *report_create(const char *name, const char *question);
void report_free(report *r);
bool report_whole(const report *r);
/* Whether all claims hold. */
bool report_holds(const report *r);

/* A heading over what follows. */
void report_heading(report *r, const char *text);

/* Begin a table: headings with tabs between them. Then its rows, likewise; a
 * cell that is missing is empty, and one too many is left out. */
void report_table(report *r, const char *title, const char *headings);
void report_row(report *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct plot_options {
    const char *title, *across, *upward; /* of the axes */
    bool log_across, log_upward;
} plot_options;

/* Begin a plot; then curves of it, and their points. A point that is not
 * finite, or not above 0 where the axis is logarithmic, is not drawn. */
void report_plot(report *r, const plot_options *options);
void report_curve(report *r, const char *name);
void report_point(report *r, double x, double y);

/* A mask to be drawn; those that follow each other stand side by side. What
 * `allowed`, of the same size, hides and the mask shows is a leak and stands
 * out; NULL: nothing is one. */
void report_mask(report *r, const char *title, const bauta_mask *mask,
                 const bauta_mask *allowed);
/* A text as it is: what a model said. */
void report_quote(report *r, const char *title, const char *text);
/* A sentence of what follows from it. */
void report_say(report *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What must be; it is shown only where it is not. */
void report_claim(report *r, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* All of it in the terminal; as an object of JSON, a line; as a page, which is
 * written as a whole or not at all. The last two return CLI_OK, or CLI_FAILED
 * after a sentence. */
void report_print(const report *r, FILE *to, bool colours);
int report_json(const report *r);
int report_page(const report *const *reports, size_t count, const char *path);

/* ---- experiments -------------------------------------------------------- */

typedef struct lab {
    bauta_context *context;
    uint64_t seed;
    bool fast;      /* small sizes: some seconds instead of a minute */
    FILE *progress; /* a line now and then; NULL: none */
    double *told;   /* when the last one was; lab_progress()'s own */
} lab;

/* An experiment: CLI_OK with a filled report, or CLI_FAILED after a
 * sentence. */
typedef int lab_experiment(const lab *l, report *r);
lab_experiment lab_leak, lab_parallel, lab_masks, lab_mlm, lab_layers;

/* Tell that it goes on: "leak: without the mask, step 120 of 300, loss 0.41";
 * on a terminal over the last one. It may be called at every step: what comes
 * too soon after the last one is not shown. */
void lab_progress(const lab *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A sentence of the library, and CLI_FAILED. */
int lab_failed(const bauta_error *err);

/* ---- text --------------------------------------------------------------- */

/* English sentences of the grammar as two texts, one to learn from and one
 * that is kept back, and a tokenizer of their characters or words. */
typedef struct lab_text {
    bauta_tokenizer *tokenizer;
    uint32_t *train, *valid; /* tokens, sentence after sentence */
    size_t train_count, valid_count;
    bauta_corpus *train_corpus, *valid_corpus; /* the same, for a trainer */
} lab_text;

int lab_text_make(lab_text *t, size_t sentences, uint64_t seed);
void lab_text_release(lab_text *t);

/* ---- learning ----------------------------------------------------------- */

/* AdamW over the gradients of bauta_model_loss(), for experiments that feed
 * the model what the trainer never would. */
typedef struct learner learner;
learner *learner_create(bauta_model *model, double rate, size_t steps);
void learner_free(learner *l);
/* One step with the gradients that are there, which become 0. */
int learner_step(learner *l);

#endif

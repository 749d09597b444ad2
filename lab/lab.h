/* SPDX-License-Identifier: Apache-2.0 */
/* lab.h - bauta lab: declarations shared by its files.
 *
 *   lab.c                the verb: options, and which experiments run
 *   lab_kept.c           finished experiments in the folder of the page
 *   lab_translate.c      a translation, all at once and token by token
 *   lab_leak.c           training with and without the causal mask
 *   lab_parallel.c       teacher forcing, position by position, free-running
 *   lab_exposure_bias.c  its last part
 *   lab_masks.c          every kind of mask, and its cost
 *   lab_mask_kinds.c     the kinds
 *   lab_mlm.c            masked against causal language modelling
 *   lab_cloze.c          the cloze test for both
 *   lab_layers.c         why every layer needs the mask
 *   lab_stack.c          its attention layers
 *   lab_rnn.c            a recurrent network beside a Transformer
 *   lab_rnn_net.c        the recurrent network
 *   lab_corpus.c         sentences of the grammar as tokens
 *   lab_train.c          optimizer steps, models, continuations
 *   lab_report.c         the findings of an experiment
 *   lab_report_text.c    a report in the terminal
 *   lab_report_json.c    as JSON
 *   lab_report_load.c    from JSON
 *   lab_plot.c           axes, and plots in characters
 *   lab_report_svg.c     plots, masks and attention as SVG
 *   lab_report_files.c   attention as picture files
 *   lab_report_html.c    a report as HTML
 *   lab_lesson.c         the page: lesson.html with reports in it
 *
 * An experiment asks a question, fills tables, plots and drawings, concludes
 * with two sentences, and makes claims about the result. A claim that does not
 * hold is a failure of the verb, so each is a test, too. */
#ifndef LAB_H
#define LAB_H

#include <bauta.h>

#include <jansson.h>
#include <stdio.h>

/* ---- reports ----------------------------------------------------------- */

/* The findings of an experiment. Calls copy their arguments. If one runs out of
 * memory, the report is void: report_valid() is false. NULL is a void report.
 */
typedef struct report report;

report *report_create(const char *name, const char *question);
void report_free(report *r);
bool report_valid(const report *r);
/* Whether all claims hold. */
bool report_passed(const report *r);

/* A heading for the next items. */
void report_heading(report *r, const char *text);

/* Begin a table; headings and the cells of rows are separated by tabs. Missing
 * cells are empty, surplus ones are dropped. */
void report_table(report *r, const char *title, const char *headings);
void report_row(report *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct plot_options {
    const char *title, *across, *upward; /* of the axes */
    bool log_across, log_upward;
} plot_options;

/* Begin a plot; then its curves, and their points. A point that is not finite,
 * or not positive on a logarithmic axis, is not drawn. */
void report_plot(report *r, const plot_options *options);
void report_curve(report *r, const char *name);
void report_point(report *r, double x, double y);

/* A mask to draw; consecutive ones stand side by side. A pair that `allowed`,
 * of the same size, hides and the mask shows is a leak and is marked; NULL: no
 * leaks.
 */
void report_mask(report *r, const char *title, const bauta_mask *mask,
                 const bauta_mask *allowed);
/* Attention weights to draw: rows are queries, columns keys; labels are single
 * words. Consecutive ones stand side by side. */
void report_attention(report *r, const char *title, size_t rows, size_t columns,
                      const char *const *row_labels,
                      const char *const *column_labels, const float *weights);
/* A verbatim text: output of a model. */
void report_quote(report *r, const char *title, const char *text);
/* A sentence of the conclusion. */
void report_conclude(report *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A claim about the result; shown only if it does not hold. */
void report_claim(report *r, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Numbers for the pictures of the page, which are shown by lesson.html. Takes
 * over `toy`. */
void report_toy(report *r, json_t *toy);

/* Print a report; print it as one line of JSON, without the numbers for the
 * page; write several as an HTML page, atomically. The last two return CLI_OK,
 * or CLI_FAILED after a message. */
void report_print(const report *r, FILE *to, bool colours);
int report_json(const report *r);
int report_page(const report *const *reports, size_t count, const char *path);
/* Write the attention of a report to DIR/NAME.svg, if it has some and the
 * library can draw; CLI_OK, or CLI_FAILED after a message. */
int report_files(const report *r, const char *folder);

/* A report as JSON, with all that is needed to read it back; and read back, or
 * NULL if this is no such JSON or there is no memory. */
json_t *report_to_json(const report *r);
report *report_from_json(const json_t *from);

/* ---- experiments ------------------------------------------------------- */

typedef struct lab {
    bauta_context *context;
    uint64_t seed;
    bool fast;      /* small sizes: seconds instead of a minute */
    FILE *progress; /* for progress lines; NULL: none */
    double *shown;  /* time of the last one; used by lab_progress() */
} lab;

/* An experiment: CLI_OK with a filled report, or CLI_FAILED after a message. */
typedef int lab_experiment(const lab *l, report *r);
lab_experiment lab_translate, lab_leak, lab_parallel, lab_masks, lab_mlm,
    lab_layers, lab_rnn;

/* Finished experiments in the folder of the page: DIR/NAME.json. Loading
 * returns NULL unless the file is there and its experiment ran with the same
 * seed, sizes and version. Saving returns CLI_OK, or CLI_FAILED after a
 * message.
 */
report *lab_kept_load(const lab *l, const char *folder, const char *name);
int lab_kept_save(const lab *l, const char *folder, const report *r);

/* Show progress: "leak: without mask, step 120 of 300, loss 0.41"; on a
 * terminal it replaces the last line. May be called at every step: lines that
 * come too fast are dropped. */
void lab_progress(const lab *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Print the library's message; returns CLI_FAILED. */
int lab_failed(const bauta_error *err);

/* ---- the corpus -------------------------------------------------------- */

/* English sentences of the grammar, for training and validation, and a
 * tokenizer of their characters or words. */
typedef struct lab_corpus {
    bauta_tokenizer *tokenizer;
    uint32_t *train, *valid; /* tokens of all sentences */
    size_t train_count, valid_count;
    bauta_corpus *train_corpus, *valid_corpus; /* the same, for a trainer */
} lab_corpus;

int lab_corpus_make(lab_corpus *t, size_t sentences, uint64_t seed);
void lab_corpus_release(lab_corpus *t);

/* ---- the optimizer ----------------------------------------------------- */

/* A bauta_optimizer with a schedule of the learning rate over `steps` steps,
 * for experiments with batches that the trainer cannot make. */
typedef struct learner learner;
int learner_create(learner **out, bauta_context *context, bauta_model *model,
                   double rate, size_t steps);
void learner_free(learner *l);
/* One step with the current gradients, which become 0. */
int learner_step(learner *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - bauta train: what its files share.
 *
 *   train.c          the verb: what is to be done
 *   train_options.c  the command line to settings
 *   train_config.c   --config, and the options.json of a run
 *   train_help.c     --help
 *   train_notes.c    settings to JSON and back, for checkpoints
 *   train_data.c     tokenizer, corpora, model
 *   train_run.c      the loop
 *   train_folder.c   a run's folder: checkpoints and links
 *   train_log.c      metrics.jsonl and TensorBoard events
 *   train_show.c     what a person sees
 *   train_trial.c    --dry-run and --compare-modes
 *   modes.c          what the latter compares
 *   sample.c         what the model says meanwhile */
#ifndef TRAIN_H
#define TRAIN_H

#include "options.h"

#include <bauta.h>

#include <jansson.h>
#include <stdio.h>

#define VERB "train"

/* ---- settings ---------------------------------------------------------- */

/* Everything that was asked for. Texts live as long as the command line or
 * the notes do. */
typedef struct settings {
    const char *preset, *from, *tokenizer, *out, *resume, *config;
    const char *source, *target, *pairs;
    const char *valid_source, *valid_target, *valid_pairs;
    words files, valid, set;
    double valid_share;
    bool lines, skip_bad;
    bool dry_run, compare, json, help;
    bool audit, no_audit;

    bauta_train_options train;
    size_t eval_every, eval_tokens, save_every, keep, patience, average;
    size_t threads;
    const char *isa;
} settings;
#define SETTINGS_INIT                                                   \
    {                                                                   \
        .train = BAUTA_TRAIN_OPTIONS_INIT, .eval_every = 250, .keep = 3 \
    }

typedef enum field_kind {
    FIELD_FLAG,
    FIELD_TEXT,
    FIELD_PATH, /* a text that is a file's name */
    FIELD_WORDS,
    FIELD_PATHS,
    FIELD_SIZE,
    FIELD_SEED,  /* uint64_t */
    FIELD_REAL,  /* double */
    FIELD_FLOAT, /* float */
    FIELD_CHOICE /* an enum */
} field_kind;

/* An option, and where its value lies in the settings. */
typedef struct field {
    const char *name; /* without "--" */
    field_kind kind;
    size_t offset;
    const char *const *choices; /* NULL behind the last */
    bool passing;               /* of this call only: not in the notes */
} field;

extern const field train_fields[];
extern const size_t train_field_count;

static inline void *field_at(const field *f, settings *s)
{
    return (char *)s + f->offset;
}

/* What was given on the command line, to be applied to settings, and again
 * after a preset has set all numbers. */
typedef struct given {
    const field **fields;
    const char **values;
    size_t count, room;
    const char **files;
    size_t file_count;
    json_t *config; /* what --config names: owns texts of it */
    char **numbers; /* (number_count) its numbers as texts */
    size_t number_count;
} given;

int given_read(given *g, int argc, char **argv);
/* One more; CLI_FAILED after a sentence. */
int given_add(given *g, const field *f, const char *value);
/* The field of a name, or NULL. */
const field *field_find(const char *name);
void given_release(given *g);
int given_apply(const given *g, settings *s);
bool given_has(const given *g, const char *name);
void settings_release(settings *s);
/* What does not go together. */
int settings_check(const settings *s);
int train_help(void);

/* The settings as JSON, with all paths absolute; NULL without memory. And
 * back, over what is there. */
json_t *settings_json(const settings *s);
int settings_from_json(settings *s, const json_t *from, const char *where);
/* Refuse a command line that changes what a run cannot change; `saved` are the
 * settings of the notes. */
int notes_compare(const json_t *saved, const given *g, settings *s);

/* The options of a JSON file, less those that the command line gives or
 * excludes. */
int config_read(given *g, const char *path);
/* The settings as RUN/options.json, which --config reads. */
int options_write(const settings *s, const char *run);

/* ---- what is trained --------------------------------------------------- */

typedef struct workshop {
    bauta_context *context;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus, *valid; /* valid may be NULL */
    bauta_model *model;
    bauta_trainer *trainer;
    uint32_t start; /* what a decoder reads first, or BAUTA_NO_TOKEN */
} workshop;

/* Everything for a new run, or for one that goes on from a checkpoint. A preset
 * changes the settings. */
int workshop_open(workshop *w, settings *s, const given *g,
                  const char *checkpoint);
void workshop_close(workshop *w);
/* Whether --tokenizer is no file or folder, but "chars" or "bpe:8000". */
bool tokenizer_is_made(const char *word);
/* A sentence of the library, and CLI_FAILED. */
int train_failed(const bauta_error *err);

/* ---- a run ------------------------------------------------------------- */

/* What a run knows beside its trainer; kept in the notes. */
typedef struct progress {
    double best;      /* validation loss; infinite before the first */
    size_t best_step; /* 0: none */
    size_t stale;     /* validations since */
} progress;

int train_run(workshop *w, settings *s, progress *p);

/* Notes of a checkpoint, and back. */
char *notes_write(const settings *s, const progress *p);
int notes_read(settings *s, progress *p, json_t **owner,
               const char *checkpoint);

/* --- the folder */

int folder_open(const char *run, bool exists);
/* "RUN/step-00001000" in malloc'd memory, or NULL. */
char *checkpoint_path(const char *run, size_t step);
/* RUN/name becomes a link to the checkpoint, in one step. */
int folder_link(const char *run, const char *name, size_t step);
/* Remove all but the last `keep` checkpoints, and `best`. */
int folder_prune(const char *run, size_t keep, size_t best);
/* The last `count` steps that have a checkpoint, ascending; how many. */
size_t folder_steps(const char *run, size_t *steps, size_t count);
/* A folder of files; what is not there is fine. */
int folder_remove(const char *path);

/* --- metrics */

typedef struct train_log train_log;
int log_open(train_log **out, const char *run, size_t step);
int log_step(train_log *log, const bauta_train_report *r, double seconds);
int log_valid(train_log *log, size_t step, double loss, size_t counted);
int log_close(train_log *log);

/* TensorBoard's files: see events.c. */
typedef struct events events;
typedef struct event_scalar {
    const char *tag;
    double value;
} event_scalar;
events *events_open(const char *folder, size_t step);
bool events_write(events *e, size_t step, const event_scalar *scalars,
                  size_t count);
bool events_close(events *e);

/* --- for the eye */

enum { SHOW_LOSSES = 24 };
typedef struct show {
    bool terminal;
    size_t steps, every;
    double rate;    /* smoothed tokens per second */
    double smooth;  /* smoothed loss */
    double seconds; /* smoothed, of a step */
    double last_drawn;
    float losses[SHOW_LOSSES]; /* means of equal parts of the run */
    size_t counts[SHOW_LOSSES];
    bool drawn;
} show;

double now(void);
show show_begin(size_t done, size_t steps);
void show_step(show *s, const bauta_train_report *r, double seconds);
/* A line below which the live one goes on. */
void show_line(show *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void show_end(show *s);
/* "1 h 02 min", "3 min 04 s", "5.2 s". */
const char *duration(char text[32], double seconds);
/* What printf would print, in malloc'd memory; NULL when there is none. */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 1234567 as 1,234,567. */
const char *grouped(char text[32], uint64_t number);

/* What the model makes of the first document, in malloc'd memory: a
 * continuation, a translation or a filled gap; NULL when there is none. */
char *sample_text(const workshop *w);

/* ---- trials ------------------------------------------------------------ */

int trial_dry_run(workshop *w, const settings *s);
int trial_compare(workshop *w, const settings *s);

#endif

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
 *   train_steps.c    --epochs and --minutes to steps
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
    size_t from_step;       /* of --resume; 0: the newest that is whole */
    double epochs, minutes; /* 0: as many as train.steps says */
} settings;
#define SETTINGS_INIT                                         \
    {                                                         \
        .train = BAUTA_TRAIN_OPTIONS_INIT, .eval_every = 250, \
        .eval_tokens = 65536, .keep = 3                       \
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

/* ---- what is trained --------------------------------------------------- */

typedef struct workshop {
    bauta_context *context;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus, *valid; /* valid may be NULL */
    bauta_model *model;
    bauta_trainer *trainer;
    uint32_t start; /* what a decoder reads first, or BAUTA_NO_TOKEN */
    bool damaged;   /* the checkpoint could not be read: another may do */
    double began;   /* when it was opened */
} workshop;

/* Everything for a new run, or for one that goes on from a checkpoint. A preset
 * changes the settings. */
int workshop_open(workshop *w, settings *s, const given *g,
                  const char *checkpoint);
/* Another trainer for options that changed, and where steps were tried out,
 * another model. */
int workshop_renew(workshop *w, settings *s, const given *g,
                   const char *checkpoint, bool model);
void workshop_close(workshop *w);
/* Whether --tokenizer is no file or folder, but "chars" or "bpe:8000". */
bool tokenizer_is_made(const char *word);
/* A sentence of the library, and CLI_FAILED. */
int train_failed(const bauta_error *err);

/* Settle how many steps the run has, and warn of a warm-up that is longer. */
int steps_fit(workshop *w, settings *s, const given *g, const char *checkpoint);

/* ---- a run ------------------------------------------------------------- */

/* What a run knows beside its trainer; kept in the notes. */
typedef struct progress {
    double best;      /* validation loss; infinite before the first */
    size_t best_step; /* 0: none */
    size_t stale;     /* validations since */
} progress;

/* A run's folder: held against other trainings (see bauta_run_open), or only
 * read. */
typedef struct run_folder {
    const char *path;
    int fd;
    bauta_run *run; /* NULL: only read */
    bool told;      /* a checkpoint could not be removed */
} run_folder;

int train_run(workshop *w, settings *s, progress *p, run_folder *f);

/* Notes of a checkpoint, and back. */
char *notes_write(const settings *s, const progress *p);
/* *damaged where another checkpoint may do. */
int notes_read(settings *s, progress *p, json_t **owner, const char *checkpoint,
               bool *damaged);

/* --- the folder */

/* A new run, or one to resume. */
int folder_open(run_folder *f, const char *run, bool resumed, bool held);
void folder_close(run_folder *f);
/* "RUN/step-00001000" in malloc'd memory, or NULL. */
char *checkpoint_path(const char *run, size_t step);
/* A file that was not there before; NULL and errno. */
FILE *folder_create(const run_folder *f, const char *name);
/* A file that takes the place of RUN/name, whatever is there, in one step when
 * it is committed; it stays open. NULL or -1 and errno. */
FILE *folder_draft(const run_folder *f, const char *name);
int folder_commit(const run_folder *f, FILE *file, const char *name);
/* The settings as RUN/options.json, which --config reads. */
int options_write(const settings *s, const run_folder *f);
/* What errno says of a file. */
int folder_failed(const run_folder *f, const char *name);
/* Make the names durable; -1 and errno. */
int folder_sync(const run_folder *f);
/* RUN/name becomes a link to the checkpoint, in one step. */
int folder_link(const run_folder *f, const char *name, size_t step);
/* Both links as of the checkpoint `last`, from which a run goes on: it may have
 * been killed before it set them. `back`: there are later checkpoints, of which
 * `best` may be one. */
int folder_links(const run_folder *f, size_t last, size_t best, bool back);
/* Remove all but the last `keep` checkpoints up to `newest`, and `best`. */
void folder_prune(run_folder *f, size_t newest, size_t keep, size_t best);
/* The last `count` steps up to `most` that have a checkpoint, ascending; how
 * many. */
size_t folder_steps(const run_folder *f, size_t most, size_t *steps,
                    size_t count);
/* A checkpoint or the average; what is not there is fine. */
int folder_remove(const run_folder *f, const char *name);

/* --- metrics */

typedef struct train_log train_log;
int log_open(train_log **out, const run_folder *f, size_t step);
int log_step(train_log *log, const bauta_train_report *r, double seconds);
int log_valid(train_log *log, size_t step, double loss, size_t counted);
int log_close(train_log *log);

/* TensorBoard's files: see events.c. */
typedef struct events events;
typedef struct event_scalar {
    const char *tag;
    double value;
} event_scalar;
events *events_open(const run_folder *f, size_t step);
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
    bool drawn, validating; /* the live line is there; it is a validation's */
} show;

double now(void);
show show_begin(size_t done, size_t steps);
void show_step(show *s, const bauta_train_report *r, double seconds);
/* A line below which the live one goes on. */
void show_line(show *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A validation is so far. */
void show_validation(show *s, size_t done, size_t all);
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

/* Time a few steps of the workshop's model, which is not what it was then. */
typedef struct trial_timing {
    double step_seconds, token_seconds;
} trial_timing;
int trial_speed(workshop *w, const settings *s, trial_timing *out);
int trial_dry_run(workshop *w, const settings *s);
int trial_compare(workshop *w, const settings *s);

#endif

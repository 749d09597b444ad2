/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - bauta train: declarations shared by its files.
 *
 *   cmd_train.c      the verb: a new run, or one that is resumed
 *   train_options.c  the command line to settings
 *   train_config.c   --config, and the options.json of a run
 *   train_help.c     --help
 *   train_notes.c    settings to JSON and back, for checkpoints
 *   train_job.c      tokenizer, corpora, model, trainer
 *   train_series.c   the same for --series
 *   train_run.c      bauta_run_train() with display, signals and events
 *   train_folder.c   the folder of a run
 *   tensorboard.c    TensorBoard event files
 *   train_display.c  progress on the terminal
 *   train_dry_run.c  --dry-run and --compare-modes
 *   compare_modes.c  the comparison itself
 *   train_steps.c    --epochs and --minutes to steps
 *   train_sample.c   sample output during training */
#ifndef TRAIN_H
#define TRAIN_H

#include "device_options.h"
#include "options.h"

#include <bauta.h>

#include <jansson.h>
#include <stdio.h>

#define VERB "train"

/* ---- settings ---------------------------------------------------------- */

/* All options. Strings belong to the command line or to the notes of a
 * checkpoint. */
typedef struct settings {
    const char *preset, *from, *tokenizer, *out, *resume, *config;
    const char *source, *target, *pairs;
    const char *valid_source, *valid_target, *valid_pairs;
    string_list files, valid, set, series, column;
    size_t season, holdout; /* of series */
    int calendar;           /* of bauta_series_calendar */
    double valid_share;
    bool lines, skip_bad;
    bool dry_run, compare, json, help;
    bool audit, no_audit;

    bauta_train_options train;
    size_t eval_every, eval_tokens, save_every, keep, patience, average;
    device_options device;
    size_t ranks;           /* on this machine; 0: as the environment says */
    size_t from_step;       /* of --resume; 0: the newest complete one */
    double epochs, minutes; /* 0: train.steps counts */
} settings;
#define SETTINGS_INIT                                         \
    {                                                         \
        .train = BAUTA_TRAIN_OPTIONS_INIT, .eval_every = 250, \
        .eval_tokens = 65536, .keep = 3                       \
    }

/* An option, and where the settings hold its value. */
typedef struct train_option {
    const char *name;
    option_kind kind;
    size_t offset;
    unsigned attributes;
    const char *const *choices; /* NULL-terminated */
} train_option;
enum {
    TRAIN_PATH = 1,      /* strings that are file names */
    TRAIN_TRANSIENT = 2, /* applies to one call: not saved with the run */
    TRAIN_NEWER = 4      /* not in every older run */
};

extern const train_option train_options[];
extern const size_t train_option_count;

/* The row for options_parse(), storing into *s. */
option train_option_bind(const train_option *t, settings *s);
/* The option of this name or alias, with or without "--"; or NULL. */
const train_option *train_option_find(const char *name);

/* The arguments of a call, from the command line and --config. They are applied
 * to settings, and again after a preset has set all numbers. */
typedef struct train_arg {
    const train_option *option;
    const char *value; /* NULL: a flag */
} train_arg;

typedef struct train_args {
    train_arg *at;
    size_t count, room;
    string_list files;
    json_t *config; /* the file of --config: owns its strings */
    char **numbers; /* (number_count) its numbers as strings */
    size_t number_count;
} train_args;

int train_args_parse(train_args *args, int argc, char **argv);
/* Append one; CLI_FAILED after a message. */
int train_args_add(train_args *args, const train_option *o, const char *value);
void train_args_release(train_args *args);
int train_args_apply(const train_args *args, settings *s);
/* Whether an option ("--steps") is among them. */
bool train_args_has(const train_args *args, const char *name);
void settings_release(settings *s);
/* Report options that are missing or exclude each other. */
int settings_check(const settings *s);
int train_help(void);

/* The settings as JSON, with absolute paths; NULL if out of memory. And back,
 * replacing those of *s. */
json_t *settings_json(const settings *s);
int settings_from_json(settings *s, const json_t *from, const char *where);
/* Refuse arguments that change what is fixed for a run; `saved` are the
 * settings of its notes. */
int notes_compare(const json_t *saved, const train_args *args, settings *s);

/* Add the options of a JSON file, except those that the command line has or
 * excludes. */
int config_read(train_args *args, const char *path);

/* ---- the job ----------------------------------------------------------- */

typedef struct train_job {
    bauta_context *context;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus, *valid; /* valid may be NULL */
    bauta_series_codec *codec;    /* of --series, or NULL */
    bauta_model *model;
    bauta_trainer *trainer;
    uint32_t start; /* decoder_start_token_id, or BAUTA_NO_TOKEN */
    bool damaged;   /* the checkpoint cannot be read; an older one might */
    double began;   /* when it was opened, in seconds_now() */
} train_job;

/* Load everything for a new run, or to continue from a checkpoint. A preset
 * changes the settings. */
int train_job_open(train_job *job, settings *s, const train_args *args,
                   const char *checkpoint);
/* Create the trainer again after options changed, and with `model` the model,
 * after trial steps changed it. */
int train_job_renew(train_job *job, settings *s, const train_args *args,
                    const char *checkpoint, bool model);
void train_job_close(train_job *job);
/* Whether --tokenizer is "chars", "bpe:8000" etc. and not a file or folder. */
bool tokenizer_is_trained(const char *word);
/* Print the library's message; returns CLI_FAILED. */
int train_failed(const bauta_error *err);

/* Codec and tokenizer of --series, new or those of a checkpoint; and the
 * corpus. CLI_FAILED after a message. */
int train_series_open(train_job *job, const settings *s,
                      const char *checkpoint);

/* Determine the number of steps; warn if the warm-up is longer. */
int steps_fit(train_job *job, settings *s, const train_args *args,
              const char *checkpoint);

/* ---- a run ------------------------------------------------------------- */

/* The folder of a run, locked against other training processes (see
 * bauta_run_open) or read only. */
typedef struct run_folder {
    const char *path;
    int fd;
    bauta_run *run; /* NULL: read only */
} run_folder;

int train_run(train_job *job, settings *s, run_folder *f);

/* The notes of a checkpoint as JSON text, for free(); and back. */
char *notes_write(const settings *s);
/* *damaged: the checkpoint cannot be read; an older one might. */
int notes_read(settings *s, json_t **owner, const char *checkpoint,
               bool *damaged);

/* Open the folder of a new run, or of one to resume; `held` locks it. */
int folder_open(run_folder *f, const char *run, bool resumed, bool held);
void folder_close(run_folder *f);
/* Create a file that does not exist; NULL with errno set on failure. */
FILE *folder_create(const run_folder *f, const char *name);
/* The settings as RUN/options.json, which --config reads. */
int options_write(const settings *s, const run_folder *f);

/* TensorBoard's files: see tensorboard.c. */
typedef struct events events;
typedef struct event_scalar {
    const char *tag;
    double value;
} event_scalar;
events *events_open(const run_folder *f, size_t step);
bool events_write(events *e, size_t step, const event_scalar *scalars,
                  size_t count);
bool events_close(events *e);

/* --- progress on the terminal */

enum { DISPLAY_LOSSES = 24 };
typedef struct train_display {
    bool terminal;
    size_t steps, every;
    double rate;    /* smoothed tokens per second */
    double smooth;  /* smoothed loss */
    double seconds; /* smoothed, of a step */
    double last_drawn;
    float losses[DISPLAY_LOSSES]; /* means over equal parts of the run */
    size_t counts[DISPLAY_LOSSES];
    bool drawn, validating; /* the progress line is shown; for a validation */
} train_display;

train_display display_begin(size_t done, size_t steps);
void display_step(train_display *s, const bauta_train_report *r,
                  double seconds);
/* Print a line; the progress line continues below it. */
void display_line(train_display *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Progress of a validation. */
void display_validation(train_display *s, size_t done, size_t all);
void display_end(train_display *s);

/* Sample output for the first document, for free(): a continuation, a
 * translation or a predicted masked token; NULL if there is none. */
char *sample_text(const train_job *job);

/* ---- --dry-run and --compare-modes ------------------------------------- */

/* Time a few steps, which change the model. */
typedef struct step_timing {
    double step_seconds, token_seconds;
} step_timing;
int dry_run_timing(train_job *job, const settings *s, step_timing *out);
int dry_run(train_job *job, const settings *s);
int compare_modes_run(train_job *job, const settings *s);

#endif

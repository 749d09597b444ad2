/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/train.h - corpora, training, checkpoints and runs. */
#ifndef BAUTA_TRAIN_H
#define BAUTA_TRAIN_H

#include "core.h"
#include "model.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Corpora ----------------------------------------------------------- */

/* A corpus is a list of documents, each a sequence of tokens, or of pairs of
 * sequences: source and target. Files follow the rules of bauta/text.h. The two
 * files of a pair must have the same number of lines, none of them empty.
 *
 * A corpus may be larger than memory. Files are encoded 256 KiB at a time, and
 * a larger document is split where that does not change its tokens; a tokenizer
 * that must see the whole document (SentencePiece, Llama 2, custom patterns)
 * accepts documents of up to 64 MiB. Tokens beyond the memory limit are stored
 * in an unnamed temporary file in TMPDIR, or in /var/tmp. */
typedef struct bauta_corpus bauta_corpus;

/* Load text files. A document is encoded with the tokenizer's special tokens,
 * followed by its end token if it has one and has not added it (nor [SEP]).
 * `options` may be NULL. */
BAUTA_API bauta_status bauta_corpus_load(bauta_corpus **out,
                                         const bauta_tokenizer *tokenizer,
                                         const char *const *files, size_t count,
                                         const bauta_corpus_options *options,
                                         bauta_error *err);
/* Load pairs: line i of `target` is the translation of line i of `source`. If
 * target is NULL, `source` has two columns separated by a tab. */
BAUTA_API bauta_status bauta_corpus_load_pairs(
    bauta_corpus **out, const bauta_tokenizer *tokenizer, const char *source,
    const char *target, const bauta_corpus_options *options, bauta_error *err);
/* Create an empty corpus and add documents to it; tokens are copied. `source`
 * is NULL for texts. A corpus holds either texts or pairs. */
BAUTA_API bauta_status bauta_corpus_create(bauta_corpus **out,
                                           bauta_error *err);
BAUTA_API bauta_status bauta_corpus_add(bauta_corpus *corpus,
                                        const uint32_t *tokens, size_t count,
                                        const uint32_t *source,
                                        size_t source_count, bauta_error *err);
BAUTA_API void bauta_corpus_free(bauta_corpus *corpus);

BAUTA_API bool bauta_corpus_pairs(const bauta_corpus *corpus);
BAUTA_API size_t bauta_corpus_documents(const bauta_corpus *corpus);
/* Tokens of all documents, without sources. */
BAUTA_API uint64_t bauta_corpus_tokens(const bauta_corpus *corpus);
/* Bytes of the loaded files, decompressed. */
BAUTA_API uint64_t bauta_corpus_bytes(const bauta_corpus *corpus);
/* Lines or files that were skipped. */
BAUTA_API size_t bauta_corpus_skipped(const bauta_corpus *corpus);
/* The number of characters in the files that the tokenizer does not know, and
 * where the first of them is. Each pointer may be NULL; `first` and `file` are
 * valid as long as the corpus. */
BAUTA_API uint64_t bauta_corpus_unknown(const bauta_corpus *corpus,
                                        const char **first, const char **file,
                                        size_t *line);
/* The tokens of a document; *source is NULL in a corpus of texts. */
BAUTA_API const uint32_t *bauta_corpus_document(const bauta_corpus *corpus,
                                                size_t index, size_t *count,
                                                const uint32_t **source,
                                                size_t *source_count);
/* Move the given share of the documents, the last ones (or the last tokens of a
 * single text), to *rest, for validation. */
BAUTA_API bauta_status bauta_corpus_split(bauta_corpus *corpus, double share,
                                          bauta_corpus **rest,
                                          bauta_error *err);

/* ---- Training ---------------------------------------------------------- */

typedef enum bauta_objective {
    BAUTA_OBJECTIVE_AUTO,    /* the one of the next three that fits the model */
    BAUTA_OBJECTIVE_CAUSAL,  /* next token, decoder */
    BAUTA_OBJECTIVE_SEQ2SEQ, /* next token of the target, encoder-decoder */
    BAUTA_OBJECTIVE_MASKED,  /* masked tokens, encoder */
    BAUTA_OBJECTIVE_PREFIX   /* next token after a bidirectional prefix */
} bauta_objective;

typedef enum bauta_train_mode {
    BAUTA_MODE_PARALLEL,   /* teacher forcing, all positions in one pass */
    BAUTA_MODE_SEQUENTIAL, /* teacher forcing, one pass for each position */
    BAUTA_MODE_FREE,       /* each input is the model's own prediction */
    BAUTA_MODE_SCHEDULED   /* a share `scheduled_sampling` of the inputs is */
} bauta_train_mode;

typedef enum bauta_schedule {
    BAUTA_SCHEDULE_CONSTANT,
    BAUTA_SCHEDULE_LINEAR,      /* to min_learning_rate at the last step */
    BAUTA_SCHEDULE_COSINE,      /* likewise, along a cosine */
    BAUTA_SCHEDULE_INVERSE_SQRT /* learning_rate x sqrt(warmup_steps / step) */
} bauta_schedule;

/* The names are those of transformers' TrainingArguments where it has one. */
typedef struct bauta_train_options {
    size_t size;
    bauta_objective objective;
    bauta_train_mode mode;
    uint64_t seed;

    /* A step reads `gradient_accumulation_steps` batches of `batch_sequences`
     * sequences, or of as many as have at most `batch_tokens` tokens, as one
     * large batch. Documents longer than `context_length` are split; longer
     * pairs are skipped. */
    size_t batch_sequences; /* 0: as many as fit into batch_tokens */
    size_t batch_tokens;
    size_t gradient_accumulation_steps;
    size_t microbatch_tokens; /* tokens in one forward pass, at most; bounds
                                 memory and changes no bit */
    size_t context_length;    /* 0: the model's */

    float dropout, label_smoothing;
    float
        mlm_probability; /* masked: the share of tokens to predict; of these */
    float mlm_random;    /* the share replaced by a random token, */
    float mlm_keep;      /* and the share left as it is */
    float scheduled_sampling;

    size_t max_steps, warmup_steps;
    bauta_schedule lr_scheduler_type;
    double learning_rate, min_learning_rate;
    double adam_beta1, adam_beta2, adam_epsilon;
    double weight_decay;  /* of matrices; biases, norms and other vectors are
                             not decayed */
    double max_grad_norm; /* 0: no clipping */
    double ema_decay;     /* exponential moving average of weights; 0: none */
} bauta_train_options;
#define BAUTA_TRAIN_OPTIONS_DEFAULTS(X)         \
    X(seed, 1)                                  \
    X(batch_tokens, 4096)                       \
    X(gradient_accumulation_steps, 1)           \
    X(microbatch_tokens, 8192)                  \
    X(mlm_probability, 0.15f)                   \
    X(mlm_random, 0.1f)                         \
    X(mlm_keep, 0.1f)                           \
    X(scheduled_sampling, 0.25f)                \
    X(max_steps, 1000)                          \
    X(warmup_steps, 100)                        \
    X(lr_scheduler_type, BAUTA_SCHEDULE_COSINE) \
    X(learning_rate, 1e-3)                      \
    X(min_learning_rate, 1e-4)                  \
    X(adam_beta1, 0.9)                          \
    X(adam_beta2, 0.99)                         \
    X(adam_epsilon, 1e-8)                       \
    X(weight_decay, 0.1)                        \
    X(max_grad_norm, 1.0)
#define BAUTA_TRAIN_OPTIONS_INIT \
    BAUTA_INIT(bauta_train_options, BAUTA_TRAIN_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_train_options, BAUTA_TRAIN_OPTIONS_DEFAULTS)

/* Defaults for fine-tuning a trained model: a small learning rate that falls
 * linearly to 0. */
#define BAUTA_FINETUNE_OPTIONS_DEFAULTS(X)      \
    X(seed, 1)                                  \
    X(batch_tokens, 4096)                       \
    X(gradient_accumulation_steps, 1)           \
    X(microbatch_tokens, 2048)                  \
    X(mlm_probability, 0.15f)                   \
    X(mlm_random, 0.1f)                         \
    X(mlm_keep, 0.1f)                           \
    X(scheduled_sampling, 0.25f)                \
    X(max_steps, 1000)                          \
    X(warmup_steps, 100)                        \
    X(lr_scheduler_type, BAUTA_SCHEDULE_LINEAR) \
    X(learning_rate, 5e-5)                      \
    X(adam_beta1, 0.9)                          \
    X(adam_beta2, 0.999)                        \
    X(adam_epsilon, 1e-8)                       \
    X(weight_decay, 0.01)                       \
    X(max_grad_norm, 1.0)
#ifdef __cplusplus
static inline bauta_train_options bauta_finetune_options_init()
{
    bauta_train_options init = bauta_train_options();
    init.size = sizeof(init);
    BAUTA_FINETUNE_OPTIONS_DEFAULTS(BAUTA_DEFAULT)
    return init;
}
#define BAUTA_FINETUNE_OPTIONS_INIT bauta_finetune_options_init()
#else
#define BAUTA_FINETUNE_OPTIONS_INIT \
    BAUTA_INIT(bauta_train_options, BAUTA_FINETUNE_OPTIONS_DEFAULTS)
#endif

typedef struct bauta_trainer bauta_trainer;

/* All arguments must outlive the trainer; the model must be trainable. The
 * tokenizer provides the special tokens and may be NULL unless the objective is
 * masked. */
BAUTA_API bauta_status bauta_trainer_create(
    bauta_trainer **out, bauta_context *context, bauta_model *model,
    const bauta_tokenizer *tokenizer, const bauta_corpus *corpus,
    const bauta_train_options *options, bauta_error *err);
BAUTA_API void bauta_trainer_free(bauta_trainer *trainer);

typedef struct bauta_train_report {
    size_t size;
    size_t step;          /* steps taken, this one included */
    size_t epoch;         /* complete passes through the corpus, from 0 */
    double loss;          /* mean over the predicted tokens, in nats */
    size_t counted;       /* predicted tokens */
    size_t tokens;        /* tokens read, sources included */
    double grad_norm;     /* before clipping */
    double learning_rate; /* of this step */
    bool updated;         /* false: the gradients were not finite, or no token
                             was to be predicted */
} bauta_train_report;
#define BAUTA_TRAIN_REPORT_INIT \
    BAUTA_INIT(bauta_train_report, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_train_report, BAUTA_NO_DEFAULTS)

/* Take one step; `report` may be NULL. Options and corpus determine every bit,
 * independently of threads, instruction set, and how often the run was stopped
 * and resumed. */
BAUTA_API bauta_status bauta_trainer_step(bauta_trainer *trainer,
                                          bauta_train_report *report,
                                          bauta_error *err);
/* The mean loss over a corpus, in parallel, without dropout and label
 * smoothing, with the averaged weights if there are any. At most `limit` tokens
 * are read (0: all), but at least one sequence; sequences are spread evenly
 * over the corpus and are the same in each call. Of a pair the longer side
 * counts. `counted` receives the number of predicted tokens. */
BAUTA_API bauta_status bauta_trainer_evaluate(bauta_trainer *trainer,
                                              const bauta_corpus *corpus,
                                              size_t limit, double *loss,
                                              size_t *counted,
                                              bauta_error *err);
/* Call `progress` during evaluations, after each micro-batch, with the number
 * of sequences done; NULL: stop calling it. */
BAUTA_API void
bauta_trainer_on_evaluate(bauta_trainer *trainer,
                          void (*progress)(void *user, size_t done, size_t all),
                          void *user);
/* Compute loss and gradients of the next batch in the given mode, without a
 * step. The gradients of the model are zeroed first. */
BAUTA_API bauta_status bauta_trainer_gradients(bauta_trainer *trainer,
                                               bauta_train_mode mode,
                                               double *loss, bauta_error *err);
/* Steps taken. */
BAUTA_API size_t bauta_trainer_steps(const bauta_trainer *trainer);
/* Approximate number of steps in one pass through the corpus. */
BAUTA_API size_t bauta_trainer_epoch_steps(const bauta_trainer *trainer);

/* ---- Checkpoints and runs ---------------------------------------------- */

/* A checkpoint is a model folder (with the tokenizer's files, if there is a
 * tokenizer) that also contains optimizer.safetensors, with the moments and the
 * moving average, and trainer.json: the position in the run, its options, and
 * digests of everything that must be equal to resume. It is written atomically
 * as `folder`, which must not exist. `notes`, a JSON object of less than
 * 200 KiB or NULL, is stored in trainer.json. */
BAUTA_API bauta_status bauta_trainer_save(const bauta_trainer *trainer,
                                          const char *folder, const char *notes,
                                          bauta_error *err);
/* Resume a checkpoint with a trainer that was created like the saved one, on
 * the model of the checkpoint's folder. It then takes the same steps as the
 * saved one would have, bit for bit. Different options (except max_steps),
 * corpus or model, and damaged files are rejected by name; the trainer is then
 * unchanged. */
BAUTA_API bauta_status bauta_trainer_resume(bauta_trainer *trainer,
                                            const char *folder,
                                            bauta_error *err);
/* Write a model folder with the tokenizer's files, without optimizer state: the
 * weights that bauta_trainer_evaluate() measures, which are the averaged ones
 * if there are any. (A checkpoint holds the weights that the steps left.) */
BAUTA_API bauta_status bauta_trainer_export(const bauta_trainer *trainer,
                                            const char *folder,
                                            bauta_error *err);
/* The notes of a checkpoint as JSON, for bauta_text_free(); NULL if it has
 * none. */
BAUTA_API bauta_status bauta_checkpoint_notes(char **notes, const char *folder,
                                              bauta_error *err);
/* The last complete checkpoint of a run, whose checkpoints are named
 * step-<number>; for bauta_text_free(), NULL if there is none. Incomplete ones
 * are skipped. */
BAUTA_API bauta_status bauta_run_last(char **folder, const char *run,
                                      bauta_error *err);
/* Remove a checkpoint, or an incomplete one: trainer.json first, so that an
 * interrupted removal leaves no checkpoint. A folder that contains anything
 * bauta does not write, or a link, is left untouched, which is a failure. A
 * missing folder is no failure. */
BAUTA_API bauta_status bauta_checkpoint_remove(const char *folder,
                                               bauta_error *err);

/* The folder of a run, locked by one program at a time. The lock ends with
 * bauta_run_free() or with the process, however it ends; while it is held,
 * opening fails and names the process and its host. With `create` a missing
 * folder is created, and removed by bauta_run_free() if it is still empty.
 * Incomplete checkpoints of a killed program are removed. */
typedef struct bauta_run bauta_run;
BAUTA_API bauta_status bauta_run_open(bauta_run **out, const char *folder,
                                      bool create, bauta_error *err);
/* Whether there is a lock: some file systems do not support it. */
BAUTA_API bool bauta_run_locked(const bauta_run *run);
BAUTA_API void bauta_run_free(bauta_run *run);

/* Write a model folder with the mean of the weights of `count` others, which
 * must have the same tensors; everything else is taken from the first. */
BAUTA_API bauta_status bauta_model_average(const char *out,
                                           const char *const *folders,
                                           size_t count, bauta_error *err);

/* The config of a new model by name ("gpt2-tiny"), for bauta_text_free(), and
 * its training options. `overrides` is a JSON object whose members replace the
 * config's, or NULL; vocabulary size and special tokens are the tokenizer's. */
BAUTA_API bauta_status bauta_preset(char **config, bauta_train_options *options,
                                    const char *name,
                                    const bauta_tokenizer *tokenizer,
                                    const char *overrides, bauta_error *err);
/* The name and description of preset `index`; NULL after the last. */
BAUTA_API const char *bauta_preset_name(size_t index, const char **summary);

#ifdef __cplusplus
}
#endif
#endif

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

/* ---- Ranks ------------------------------------------------------------- */

/* Ranks are the processes that train a model together; there are 1, 2, 4 ... of
 * them, up to 1024. All run the same program on the same files, with the same
 * options, and make the same calls in the same order. In a context with ranks,
 * bauta_trainer_step(), _evaluate(), _save(), _export() and bauta_run_train()
 * are such calls: each rank computes a part, holds a part of the optimizer's
 * state, and gets the whole result, with the bits of a single rank. The
 * trainer's option `lanes` must be at least the number of ranks. A rank that
 * fails calls bauta_ranks_abort(), which lets the calls of the others fail with
 * BAUTA_ERR_RANK. */
typedef struct bauta_ranks bauta_ranks;

/* Join the other ranks as the environment says:
 *
 *     mpirun, and srun with its MPI   through MPI, if the library has it
 *     RANK, WORLD_SIZE, MASTER_ADDR   as torchrun sets them: over TCP; rank 0
 *                                     listens at MASTER_PORT, 29500 by default
 *     SLURM_PROCID, SLURM_STEP_NUM_TASKS      with MASTER_ADDR likewise
 *
 * Without these variables the process is the only rank. */
BAUTA_API bauta_status bauta_ranks_join(bauta_ranks **out, bauta_error *err);
/* Be a rank of several on one machine. `sockets` are connected stream sockets,
 * as of socketpair(): number i leads to the rank whose number differs in bit i,
 * for 1 << i below count. They are closed by bauta_ranks_free(), or here on
 * failure. */
BAUTA_API bauta_status bauta_ranks_connect(bauta_ranks **out, size_t rank,
                                           size_t count, const int *sockets,
                                           bauta_error *err);
/* NULL is a single rank. */
BAUTA_API size_t bauta_ranks_rank(const bauta_ranks *ranks);
BAUTA_API size_t bauta_ranks_count(const bauta_ranks *ranks);
/* Bytes that this rank has sent. */
BAUTA_API uint64_t bauta_ranks_sent(const bauta_ranks *ranks);
/* Whether a rank ended without a reason: it was killed, or its machine. */
BAUTA_API bool bauta_ranks_lost(const bauta_ranks *ranks);
/* In a rank that has failed: whether another rank has reported a reason. Where
 * another one would be the first to do so, this waits for it, up to five
 * seconds. If each rank prints its message only if this is false, before
 * bauta_ranks_abort(), all of them together print one. */
BAUTA_API bool bauta_ranks_reported(bauta_ranks *ranks);
/* Give the other ranks a reason to fail, or pass on the one that was received.
 * Over MPI this ends all processes. */
BAUTA_API void bauta_ranks_abort(bauta_ranks *ranks, const char *reason);
BAUTA_API void bauta_ranks_free(bauta_ranks *ranks);
/* Let a context be that of a rank; NULL: of a single one. The ranks must
 * outlive the context, and be set before a trainer is created. */
BAUTA_API bauta_status bauta_context_set_ranks(bauta_context *context,
                                               bauta_ranks *ranks,
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
    size_t lanes; /* a power of two: the batch is dealt into so many parts,
                     whose gradients are added as a binary tree; so many ranks
                     can share the run. 0 and 1: one part */
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
 * masked. The corpus may be NULL for a trainer that only takes
 * bauta_trainer_step_batch().
 *
 * With several ranks, a model of bfloat16 gives its float32 weights to the
 * trainer, of which each rank has a slice: bauta_trainer_save() and
 * bauta_trainer_export() write them. The model computes as before, but it can
 * no longer be saved, written to or given to another trainer. */
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
 * independently of threads, instruction set, the number of ranks, and how often
 * the run was stopped and resumed. */
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

/* A micro-batch of your own. */
typedef struct bauta_train_batch {
    size_t size;
    const bauta_batch *source, *target; /* as for bauta_model_forward() */
    const uint32_t *labels;             /* (rows) as for bauta_model_loss() */
    const float *label_weights;         /* (rows) likewise, any sign; NULL: 1 */
    const uint64_t *source_keys; /* (rows) of dropout, likewise. NULL: the */
    const uint64_t *target_keys; /* rows, counted through all batches */
} bauta_train_batch;
#define BAUTA_TRAIN_BATCH_INIT BAUTA_INIT(bauta_train_batch, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_train_batch, BAUTA_NO_DEFAULTS)

/* Take a step on batches of your own instead of the corpus', for reinforcement
 * learning, distillation or custom data: one large batch that is given as
 * `count` micro-batches, at least one. The mean is over the counted labels of
 * all of them. Learning rate, clipping, dropout, label smoothing, weight decay
 * and moving average are the trainer's; its objective, mode and batch sizes are
 * not used, and its position in the corpus does not change. `report` may be
 * NULL. After a failure the weights are unchanged. */
BAUTA_API bauta_status bauta_trainer_step_batch(
    bauta_trainer *trainer, const bauta_train_batch *batches, size_t count,
    bauta_train_report *report, bauta_error *err);

/* ---- Optimizer --------------------------------------------------------- */

/* AdamW over the gradients of a trainable model, for training loops of your
 * own; bauta_trainer uses the same code. Decoupled weight decay applies to the
 * tensors that `decay` selects. The default, and what bauta_trainer does: every
 * tensor of rank 2 (weights of linear layers, embeddings and position tables),
 * and no biases, norms and other vectors. */
typedef struct bauta_optimizer bauta_optimizer;

typedef struct bauta_optimizer_options {
    size_t size;
    double learning_rate;
    double adam_beta1, adam_beta2, adam_epsilon;
    double weight_decay;
    double max_grad_norm; /* 0: no clipping */
    /* Whether a tensor is decayed. Called by bauta_optimizer_create() for each
     * tensor with a gradient. NULL: those of rank 2 */
    bool (*decay)(void *user, const bauta_tensor *tensor);
    void *user;
} bauta_optimizer_options;
#define BAUTA_OPTIMIZER_OPTIONS_DEFAULTS(X) \
    X(learning_rate, 1e-3)                  \
    X(adam_beta1, 0.9)                      \
    X(adam_beta2, 0.99)                     \
    X(adam_epsilon, 1e-8)                   \
    X(weight_decay, 0.1)                    \
    X(max_grad_norm, 1.0)
#define BAUTA_OPTIMIZER_OPTIONS_INIT \
    BAUTA_INIT(bauta_optimizer_options, BAUTA_OPTIMIZER_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_optimizer_options, BAUTA_OPTIMIZER_OPTIONS_DEFAULTS)

/* Context and model must outlive the optimizer; `options` may be NULL. */
BAUTA_API bauta_status bauta_optimizer_create(
    bauta_optimizer **out, bauta_context *context, bauta_model *model,
    const bauta_optimizer_options *options, bauta_error *err);
BAUTA_API void bauta_optimizer_free(bauta_optimizer *optimizer);
/* Take one step with the clipped gradients, which themselves do not change.
 * *grad_norm, which may be NULL, receives their norm before clipping. Gradients
 * that are not finite change nothing and are BAUTA_ERR_NOT_FINITE; the message
 * names the first tensor. */
BAUTA_API bauta_status bauta_optimizer_step(bauta_optimizer *optimizer,
                                            double *grad_norm,
                                            bauta_error *err);
/* Change the learning rate of the following steps. */
BAUTA_API bauta_status bauta_optimizer_set_learning_rate(
    bauta_optimizer *optimizer, double learning_rate, bauta_error *err);

/* ---- Perplexity -------------------------------------------------------- */

typedef struct bauta_perplexity_options {
    size_t size;
    bauta_objective objective; /* AUTO, or the one of the model's kind: CAUSAL,
                                  MASKED or SEQ2SEQ */
    size_t context_length;     /* tokens of a window; 0: the model's context */
    size_t stride;     /* tokens from one window of a document to the next, at
                          most context_length; 0: half of it, rounded up */
    size_t max_tokens; /* read only so many tokens of the documents (not of
                          their sources), in order; 0: all */
    void (*progress)(void *user, uint64_t done, uint64_t all); /* tokens read,
                                  after each batch; or NULL */
    void *user;
} bauta_perplexity_options;
#define BAUTA_PERPLEXITY_OPTIONS_INIT \
    BAUTA_INIT(bauta_perplexity_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_perplexity_options, BAUTA_NO_DEFAULTS)

typedef struct bauta_perplexity_result {
    size_t size;
    double loss;       /* mean negative log-likelihood, in nats per token */
    double perplexity; /* exp(loss); of masked tokens, the pseudo-perplexity */
    double total_loss; /* sum over the predicted tokens, in nats */
    uint64_t tokens;   /* predicted */
    size_t skipped;    /* pairs that are longer than the context */
    size_t context_length, stride; /* as used */
} bauta_perplexity_result;
#define BAUTA_PERPLEXITY_RESULT_INIT \
    BAUTA_INIT(bauta_perplexity_result, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_perplexity_result, BAUTA_NO_DEFAULTS)

/* The perplexity of a corpus under a model, which is only read.
 *
 * A text is read in windows of `context_length` tokens, each `stride` tokens
 * after the one before. Every token is predicted once, in the first window that
 * predicts it. A decoder predicts all tokens of a text but the first, each from
 * the tokens before it in the window. An encoder predicts all tokens but the
 * special ones; each is masked in turn and predicted from the whole window, so
 * a window takes as many sequences as it has such tokens. An encoder-decoder
 * needs a corpus of pairs and predicts all tokens of the targets.
 *
 * The tokenizer provides the mask token and the special tokens of a masked
 * model and may be NULL otherwise. A corpus with nothing to predict is
 * BAUTA_ERR_ARGUMENT. A loss that is not finite is BAUTA_ERR_NOT_FINITE, and
 * the message names the layer as bauta_model_check_finite() does. `options` may
 * be NULL. */
BAUTA_API bauta_status bauta_perplexity(bauta_context *context,
                                        const bauta_model *model,
                                        const bauta_tokenizer *tokenizer,
                                        const bauta_corpus *corpus,
                                        const bauta_perplexity_options *options,
                                        bauta_perplexity_result *result,
                                        bauta_error *err);

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
/* Write a file into the folder of a run, replacing it atomically. `name` has no
 * slash. No link is followed. */
BAUTA_API bauta_status bauta_run_write(const bauta_run *run, const char *name,
                                       const void *bytes, size_t size,
                                       bauta_error *err);
/* The checkpoint of a run with the most steps, but at most `max_step`: its
 * folder, for bauta_text_free(), and its step; NULL and 0 if there is none.
 * Only its presence is checked. If it turns out to be damaged (BAUTA_ERR_IO or
 * BAUTA_ERR_FORMAT), continue with the one before it: max_step = step - 1. */
BAUTA_API bauta_status bauta_run_checkpoint(char **folder, size_t *step,
                                            const char *run, size_t max_step,
                                            bauta_error *err);
/* Continue a run: load the weights, the optimizer state and the position of the
 * checkpoint of `step` into a trainer that was created like the saved one, on
 * any trainable model with the same config. With step 0 it is the newest one,
 * or if that is damaged, the one before it, and so on. *resumed, which may be
 * NULL, receives the step. A run without any checkpoint leaves the trainer as
 * it is, with *resumed 0. After a failure the trainer is unchanged. */
BAUTA_API bauta_status bauta_run_resume(const bauta_run *run,
                                        bauta_trainer *trainer, size_t step,
                                        size_t *resumed, bauta_error *err);

typedef enum bauta_run_ending {
    BAUTA_RUN_DONE = 0,           /* all steps were taken */
    BAUTA_RUN_STOPPED = 1,        /* by should_stop */
    BAUTA_RUN_EARLY_STOPPING = 2, /* by early_stopping_patience */
    BAUTA_RUN_TIME = 3            /* by max_minutes */
} bauta_run_ending;

/* An evaluation on the validation corpus. */
typedef struct bauta_run_evaluation {
    size_t size; /* sizeof(bauta_run_evaluation) in the library */
    size_t step;
    double loss;    /* mean over the predicted tokens, in nats */
    size_t counted; /* predicted tokens */
    bool best;      /* the smallest loss of the run so far */
} bauta_run_evaluation;

/* The names are those of transformers' TrainingArguments where it has one. The
 * callbacks may be NULL. A status other than BAUTA_OK from on_step or
 * on_evaluate ends the run without another checkpoint, and bauta_run_train()
 * returns it. */
typedef struct bauta_run_options {
    size_t size;
    size_t max_steps;        /* of the run, not only of this call; 0: max_steps
                                of the trainer's options */
    double num_train_epochs; /* passes through the corpus; 0: no limit */
    double max_minutes;      /* of this call; 0: no limit */
    size_t logging_steps;    /* every so many steps a line of metrics.jsonl; 0:
                                none */
    size_t eval_steps;       /* evaluate every so many steps, and after the last
                                one; 0: after the last one only */
    size_t eval_tokens;      /* `limit` of bauta_trainer_evaluate() */
    size_t save_steps;       /* save every so many steps, and at the end; 0:
                                eval_steps */
    size_t save_total_limit; /* keep so many checkpoints, and the best one; 0:
                                all */
    size_t early_stopping_patience; /* end after so many evaluations without a
                                       new best loss; 0: never */
    size_t average_checkpoints;     /* at the end, write the mean of the last so
                                       many checkpoints to the folder average;
                                       they are kept; 0: none */
    const char *notes; /* a JSON object that is stored in every checkpoint, or
                          NULL; best, best_step and stale are added to it */
    void *user;        /* of the callbacks */
    bauta_status (*on_step)(void *user, const bauta_train_report *report,
                            double seconds);
    bauta_status (*on_evaluate)(void *user,
                                const bauta_run_evaluation *evaluation);
    void (*on_save)(void *user, size_t step, const char *folder);
    void (*on_warning)(void *user, const char *message); /* such as an old
                          checkpoint that cannot be removed */
    bool (*should_stop)(void *user); /* asked after each step; a program that
                          got a signal returns true */
} bauta_run_options;
#define BAUTA_RUN_OPTIONS_DEFAULTS(X) \
    X(logging_steps, 1)               \
    X(eval_steps, 250) X(eval_tokens, 65536) X(save_total_limit, 3)
#define BAUTA_RUN_OPTIONS_INIT \
    BAUTA_INIT(bauta_run_options, BAUTA_RUN_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_run_options, BAUTA_RUN_OPTIONS_DEFAULTS)

/* Losses are NaN where there is none. */
typedef struct bauta_run_result {
    size_t size;
    bauta_run_ending ending;
    size_t step;         /* steps of the run */
    size_t saved_step;   /* of the last checkpoint; 0: none */
    double loss;         /* of the last step of this call */
    double eval_loss;    /* of the last evaluation of this call */
    double best_loss;    /* of the run */
    size_t best_step;    /* 0: none */
    size_t stale;        /* evaluations since the best one */
    double average_loss; /* of the average that this call wrote */
    size_t averaged;     /* checkpoints in it; 0: none was written, or it is the
                            exponential moving average */
} bauta_run_result;
#define BAUTA_RUN_RESULT_INIT BAUTA_INIT(bauta_run_result, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_run_result, BAUTA_NO_DEFAULTS)

/* With several ranks, rank 0 gives its run, and the others NULL: rank 0 writes
 * all files. Only the callbacks of a rank itself are called; what should_stop
 * returns on one rank, or max_minutes ends, ends the run for all of them after
 * the same step.
 *
 * Train in the folder of a run until a limit is reached, or should_stop ends
 * it, then save. The folder receives
 *
 *     step-00001000/  checkpoints, of which old ones are removed
 *     last, best      links to two of them
 *     metrics.jsonl   a line for each step and evaluation
 *     average/        the mean of the last checkpoints, or with ema_decay the
 *                     moving average, as a model folder
 *
 * A run that is stopped, or killed, and resumed takes the same steps and leaves
 * the same checkpoints as one that was not interrupted: resume it with
 * bauta_run_resume(), or with bauta_trainer_resume() on a checkpoint of this
 * folder, then call this again. Lines of metrics.jsonl after the trainer's step
 * are removed, and best, stale and the links are those of its checkpoint.
 * `validation` may be NULL; best and patience need it. Ten steps in a row whose
 * gradients are not finite are BAUTA_ERR_NOT_FINITE. `options` and `result` may
 * be NULL; the result is also set after a failure. */
BAUTA_API bauta_status bauta_run_train(bauta_run *run, bauta_trainer *trainer,
                                       const bauta_corpus *validation,
                                       const bauta_run_options *options,
                                       bauta_run_result *result,
                                       bauta_error *err);

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

/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/extras.h - scores, pictures and audits. */
#ifndef BAUTA_EXTRAS_H
#define BAUTA_EXTRAS_H

#include "core.h"
#include "model.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Scores ------------------------------------------------------------ */

/* BLEU and chrF with the numbers of sacrebleu 2.6.
 *
 * Hypotheses and one or more sets of references. Text is UTF-8; an invalid byte
 * counts as U+FFFD. */
typedef struct bauta_translations {
    size_t size;
    size_t count;                     /* sentences; at least 1 */
    const char *const *hypotheses;    /* (count) */
    const size_t *hypothesis_lengths; /* (count) in bytes; NULL: NUL-terminated
                                       */
    size_t sets;                      /* of references; at least 1 */
    const char *const *references;    /* (sets, count); NULL if a set lacks the
                                         sentence, but not in all sets */
    const size_t *reference_lengths;  /* (sets, count), as above */
} bauta_translations;
#define BAUTA_TRANSLATIONS_DEFAULTS(X) X(sets, 1)
#define BAUTA_TRANSLATIONS_INIT \
    BAUTA_INIT(bauta_translations, BAUTA_TRANSLATIONS_DEFAULTS)
BAUTA_SIZED(bauta_translations, BAUTA_TRANSLATIONS_DEFAULTS)

/* The longest n-grams that are counted. */
#define BAUTA_NGRAM_MAX 16

typedef enum bauta_bleu_tokenizer {
    BAUTA_TOKENIZE_13A,  /* mteval-v13a, sacrebleu's default */
    BAUTA_TOKENIZE_INTL, /* mteval-v14: Unicode punctuation and symbols */
    BAUTA_TOKENIZE_CHAR, /* every character */
    BAUTA_TOKENIZE_NONE  /* split at white space */
} bauta_bleu_tokenizer;

/* Smoothing of n-gram orders without a match. */
typedef enum bauta_bleu_smoothing {
    BAUTA_SMOOTH_EXP,   /* the first such order counts 1/2, the next 1/4, ... */
    BAUTA_SMOOTH_FLOOR, /* it counts `smoothing_value` */
    BAUTA_SMOOTH_ADD_K, /* for n > 1, add `smoothing_value` to matches and
                           totals */
    BAUTA_SMOOTH_NONE   /* none: the score is 0 */
} bauta_bleu_smoothing;

typedef struct bauta_bleu_options {
    size_t size;
    bauta_bleu_tokenizer tokenizer;
    bauta_bleu_smoothing smoothing;
    double smoothing_value; /* negative: 0.1 for FLOOR, 1 for ADD_K */
    size_t max_ngram_order; /* 1 to BAUTA_NGRAM_MAX; 4 */
    bool lowercase;
    bool effective_order; /* skip orders for which the text is too short; use it
                             for single sentences */
    bool accumulate;      /* add to the counts in *score, to score a text in
                             parts */
} bauta_bleu_options;
#define BAUTA_BLEU_OPTIONS_DEFAULTS(X) \
    X(smoothing_value, -1) X(max_ngram_order, 4)
#define BAUTA_BLEU_OPTIONS_INIT \
    BAUTA_INIT(bauta_bleu_options, BAUTA_BLEU_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_bleu_options, BAUTA_BLEU_OPTIONS_DEFAULTS)

typedef struct bauta_bleu_score {
    size_t size;
    double score;                       /* 0 to 100 */
    uint64_t matches[BAUTA_NGRAM_MAX];  /* [n - 1], before smoothing */
    uint64_t totals[BAUTA_NGRAM_MAX];   /* n-grams of the hypotheses */
    double precisions[BAUTA_NGRAM_MAX]; /* in percent, smoothed */
    char signature[128];                /* sacrebleu's: "nrefs:1|case:..." */
    double brevity_penalty;
    uint64_t hypothesis_length; /* in tokens */
    uint64_t reference_length;  /* of the references closest in length */
} bauta_bleu_score;
#define BAUTA_BLEU_SCORE_INIT BAUTA_INIT(bauta_bleu_score, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_bleu_score, BAUTA_NO_DEFAULTS)

/* The corpus BLEU score. `sentences` (count), which may be NULL, receives the
 * score of each sentence; set options.effective_order for it. `options` may be
 * NULL. */
BAUTA_API bauta_status bauta_bleu(const bauta_translations *texts,
                                  const bauta_bleu_options *options,
                                  bauta_bleu_score *score, double *sentences,
                                  bauta_error *err);

typedef struct bauta_chrf_options {
    size_t size;
    size_t char_order; /* the longest character n-gram; 6 */
    size_t word_order; /* the longest word n-gram: 0, or 2 for chrF++; both up
                          to BAUTA_NGRAM_MAX and not both 0 */
    size_t beta;       /* weight of recall: beta^2 times precision; 2 */
    bool lowercase;
    bool whitespace; /* count white space as characters */
    bool epsilon;    /* smooth as chrF++.py, instead of skipping orders for
                        which a text is too short */
    bool accumulate; /* as in bauta_bleu_options */
} bauta_chrf_options;
#define BAUTA_CHRF_OPTIONS_DEFAULTS(X) X(char_order, 6) X(beta, 2)
#define BAUTA_CHRF_OPTIONS_INIT \
    BAUTA_INIT(bauta_chrf_options, BAUTA_CHRF_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_chrf_options, BAUTA_CHRF_OPTIONS_DEFAULTS)

/* Counts are of character n-grams, then of word n-grams: [n - 1] and
 * [char_order + n - 1]. Each sentence counts with its best reference. */
typedef struct bauta_chrf_score {
    size_t size;
    double score; /* 0 to 100 */
    uint64_t matches[2 * BAUTA_NGRAM_MAX];
    uint64_t hypothesis_totals[2 * BAUTA_NGRAM_MAX];
    uint64_t reference_totals[2 * BAUTA_NGRAM_MAX];
    char name[48];       /* "chrF2", "chrF2++" */
    char signature[128]; /* "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|..." */
    size_t orders;       /* char_order + word_order */
} bauta_chrf_score;
#define BAUTA_CHRF_SCORE_INIT BAUTA_INIT(bauta_chrf_score, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_chrf_score, BAUTA_NO_DEFAULTS)

/* As bauta_bleu(). */
BAUTA_API bauta_status bauta_chrf(const bauta_translations *texts,
                                  const bauta_chrf_options *options,
                                  bauta_chrf_score *score, double *sentences,
                                  bauta_error *err);

/* ---- Pictures ---------------------------------------------------------- */

/* Attention weights with their mask, or a mask alone. */
typedef struct bauta_picture {
    size_t size;
    const char *title; /* NULL: "decoder, layer 2, head 0"; none for a mask */
    bauta_attention_kind attention;
    size_t layer, head;
    size_t rows, columns;             /* queries and keys; at least 1 each */
    const float *weights;             /* (rows, columns) from 0 to 1; NULL: draw
                                         the mask alone */
    const bauta_mask *mask;           /* (rows, columns); hidden pairs must have
                                         the weight 0. NULL: a weight of exactly
                                         0 is hidden */
    const char *const *row_labels;    /* (rows) UTF-8; NULL: numbers */
    const char *const *column_labels; /* (columns) likewise */
} bauta_picture;
#define BAUTA_PICTURE_DEFAULTS(X) X(attention, BAUTA_ATTENTION_DECODER)
#define BAUTA_PICTURE_INIT BAUTA_INIT(bauta_picture, BAUTA_PICTURE_DEFAULTS)
BAUTA_SIZED(bauta_picture, BAUTA_PICTURE_DEFAULTS)

typedef struct bauta_picture_options {
    size_t size;
    const char *title; /* of the whole; or NULL */
    size_t across;     /* pictures in a row; 0: automatic. HTML shows one at a
                          time */
} bauta_picture_options;
#define BAUTA_PICTURE_OPTIONS_INIT \
    BAUTA_INIT(bauta_picture_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_picture_options, BAUTA_NO_DEFAULTS)

/* Write pictures to one file, atomically. Its extension selects the format:
 *
 *     .png .svg        one sheet with all of them, drawn by cairo;
 *                      BAUTA_ERR_UNSUPPORTED if built without it
 *     .pdf             the same, with a page for each layer of each attention
 *     .html            one self-contained page that shows one at a time, the
 *                      mean of a layer's heads first, as a matrix or as lines;
 *                      weights are rounded to 16 bits, or to 8 if there are
 *                      more than 3 million, and hidden ones are left out
 *
 * Colour follows the square root of the weight; hidden pairs are hatched, which
 * no weight is. White space in labels is made visible. If there are more rows
 * or columns than pixels, a pixel shows its largest weight. `options` may be
 * NULL. */
BAUTA_API bauta_status bauta_picture_save(const char *path,
                                          const bauta_picture *pictures,
                                          size_t count,
                                          const bauta_picture_options *options,
                                          bauta_error *err);

/* ---- Audits ------------------------------------------------------------ */

/* An audit tests the guarantees on a model and a batch: it changes inputs that
 * must not be visible and compares bits, and checks that visible inputs do
 * change something, so that no check passes vacuously. Expectations are derived
 * from the definitions in these headers, pair by pair, not by the code under
 * test.
 *
 * Every check, its pinned value, its name and its meaning. Append; never
 * renumber. */
#define BAUTA_CHECK_MAP(X)                                                     \
    X(REACH, 0, "reach", "no output depends on an input that it must not see") \
    X(VISIBILITY, 1, "visibility",                                             \
      "each layer sees exactly the keys it should see")                        \
    X(TOKENS, 2, "tokens",                                                     \
      "changing a hidden token changes no output that must not see it")        \
    X(POISON, 3, "poison", "NaN in a token spreads only where it is visible")  \
    X(EMPTY, 4, "empty", "a query that sees nothing gets 0 from attention")    \
    X(GRADIENTS, 5, "gradients",                                               \
      "no gradient flows to an input that an output must not see")             \
    X(BATCH, 6, "batch",                                                       \
      "a sequence in a batch gives the bits it gives alone")                   \
    X(PADDING, 7, "padding", "the contents of padding change nothing")         \
    X(INCREMENTAL, 8, "incremental",                                           \
      "incremental decoding equals the parallel pass")                         \
    X(CHUNKED, 9, "chunked", "chunked prefill equals prefill in one pass")     \
    X(FORKS, 10, "forks",                                                      \
      "forked, truncated and reordered sequences decode as fresh ones")        \
    X(THREADS, 11, "threads", "any number of threads gives the same bits")     \
    X(ISA, 12, "isa", "every instruction set here gives the same bits")

#define BAUTA_CHECK_ENUM(name, value, word, text) BAUTA_CHECK_##name = value,
typedef enum bauta_check {
    BAUTA_CHECK_MAP(BAUTA_CHECK_ENUM) BAUTA_CHECKS
} bauta_check;

/* The name of a check and its meaning. Never NULL. */
BAUTA_API const char *bauta_check_name(bauta_check check);
BAUTA_API const char *bauta_check_text(bauta_check check);

typedef enum bauta_verdict {
    BAUTA_PASSED = 0,
    BAUTA_FAILED = 1, /* this model, on this machine, breaks the guarantee */
    BAUTA_SKIPPED = 2 /* not applicable; `message` says why */
} bauta_verdict;

#define BAUTA_NO_INDEX SIZE_MAX

/* The result of a check, with the place of a failure as far as it is known;
 * unknown parts are BAUTA_NO_INDEX. Positions count from the start of their
 * sequence. */
typedef struct bauta_finding {
    size_t size; /* sizeof(bauta_finding) in the library */
    bauta_check check;
    bauta_verdict verdict;
    uint64_t compared;              /* rows of numbers, or pairs of a mask */
    double seconds;                 /* duration */
    bauta_attention_kind attention; /* of the layer below */
    size_t layer;                   /* the first wrong one, from 0 */
    size_t head;                    /* the first wrong one */
    size_t sequence, query;         /* the wrong output */
    size_t key_sequence, key; /* the key it sees, or should see and does not */
    char message[256];        /* all of it as a sentence */
} bauta_finding;

typedef struct bauta_audit_options {
    size_t size;
    uint32_t checks; /* bit c: check c; 0: all */
    size_t probes;   /* tokens to change, at most; 0: as many as the size of the
                        model allows in a few seconds */
    uint64_t seed;   /* of the changes; 1 */
} bauta_audit_options;
#define BAUTA_AUDIT_OPTIONS_DEFAULTS(X) X(seed, 1)
#define BAUTA_AUDIT_OPTIONS_INIT \
    BAUTA_INIT(bauta_audit_options, BAUTA_AUDIT_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_audit_options, BAUTA_AUDIT_OPTIONS_DEFAULTS)

typedef struct bauta_audit bauta_audit;

/* Audit a model on batches as for bauta_model_forward(), with masks and
 * prefixes; at most 4096 rows each. A failed check is no error: the status is
 * BAUTA_OK, and the findings report it. The model is only read; changes are
 * made to clones of it. `options` may be NULL. */
BAUTA_API bauta_status bauta_audit_create(
    bauta_audit **out, bauta_context *context, const bauta_model *model,
    const bauta_batch *source, const bauta_batch *target,
    const bauta_audit_options *options, bauta_error *err);
/* Audit the beginning of a trainer's next batch, by default for leaks only
 * (reach, tokens, poison and gradients). It takes a fraction of a step and does
 * not affect the trainer's steps. */
BAUTA_API bauta_status bauta_audit_trainer(bauta_audit **out,
                                           bauta_trainer *trainer,
                                           const bauta_audit_options *options,
                                           bauta_error *err);
BAUTA_API void bauta_audit_free(bauta_audit *audit);

/* Whether no check failed. */
BAUTA_API bool bauta_audit_passed(const bauta_audit *audit);
/* The findings, one for each requested check, in the order of the map; valid as
 * long as the audit. */
BAUTA_API size_t bauta_audit_findings(const bauta_audit *audit);
BAUTA_API const bauta_finding *bauta_audit_finding(const bauta_audit *audit,
                                                   size_t index);
/* All findings as a JSON object {"passed":...,"findings":[{...},...]}. Works
 * like snprintf. */
BAUTA_API size_t bauta_audit_json(const bauta_audit *audit, char *text,
                                  size_t size);

/* A proof without a model: through layers of attention with these masks, lowest
 * first, each with a residual connection, does a query reach a key that
 * `allowed` hides? All masks are square and of one size. *leaks receives the
 * answer, *leak the first such pair with the lowest layer after which it is
 * reached. */
typedef struct bauta_leak {
    size_t layer, query, key;
} bauta_leak;
BAUTA_API bauta_status bauta_audit_masks(const bauta_mask *const *masks,
                                         size_t layers,
                                         const bauta_mask *allowed, bool *leaks,
                                         bauta_leak *leak, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif

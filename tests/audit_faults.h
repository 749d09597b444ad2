/* SPDX-License-Identifier: Apache-2.0 */
/* audit_faults.h - the faults of fault_injection.h that an audit must find, and
 * audits of batches in which they show. */
#ifndef BT_TEST_AUDIT_FAULTS_H
#define BT_TEST_AUDIT_FAULTS_H

#include "base/error.h"
#include "bauta.h"
#include "fault_injection.h"
#include "testing.h"

#include <string.h>

enum { SEQUENCES = 3, ANY = -1 };

/* A fault of fault_injection.c, the model it is in, and the check that must
 * find it. */
typedef struct injected_fault {
    const char *name, *family;
    int layer; /* or ANY: every layer has it, and the first one is named */
    bauta_check found_by;
    bauta_attention_kind at;
    const char *mask, *cross; /* of the batch, or NULL */
    const char *isa;
} injected_fault;

#define SELF BAUTA_ATTENTION_DECODER
#define ACROSS BAUTA_ATTENTION_CROSS
#define ENCODER BAUTA_ATTENTION_ENCODER
#define BY(check) BAUTA_CHECK_##check

static const injected_fault injected_faults[] = {
    // Masks: of one layer, of the batch, of training, of documents.
    { "future-key", "gpt2", 1, BY(VISIBILITY), SELF, NULL, NULL, NULL },
    { "future-key", "llama", 2, BY(TOKENS), SELF, NULL, NULL, NULL },
    { "future-key", "marian", 1, BY(POISON), SELF, NULL, NULL, NULL },
    { "dropout-drops-mask", "gpt2", 0, BY(GRADIENTS), SELF, NULL, NULL, NULL },
    { "dropout-drops-mask", "llama", 0, BY(GRADIENTS), SELF, NULL, NULL, NULL },
    { "batch-mask-ignored", "gpt2", 1, BY(VISIBILITY), SELF,
      "window(5)|sinks(2)", NULL, NULL },
    { "batch-mask-ignored", "bert", 1, BY(VISIBILITY), ENCODER, "!causal", NULL,
      NULL },
    { "mask-inverted", "llama", 1, BY(VISIBILITY), SELF, NULL, NULL, NULL },
    { "mask-inverted", "llama", 1, BY(TOKENS), SELF, NULL, NULL, NULL },
    { "window-dropped", "mistral", 2, BY(VISIBILITY), SELF, NULL, NULL, NULL },
    { "window-dropped", "mistral", 0, BY(TOKENS), SELF, NULL, NULL, NULL },
    { "window-dropped", "qwen2", 1, BY(INCREMENTAL), SELF, NULL, NULL, NULL },
    { "documents-open", "llama", 0, BY(REACH), SELF, NULL, NULL, NULL },
    { "documents-open", "llama", 0, BY(BATCH), SELF, NULL, NULL, NULL },
    { "padding-seen-across", "marian", 0, BY(REACH), ENCODER, NULL, NULL,
      NULL },
    { "cross-mask-ignored", "marian", 2, BY(VISIBILITY), ACROSS, NULL,
      "!window(9)", NULL },
    { "cross-misses-last", "bart", 1, BY(VISIBILITY), ACROSS, NULL, NULL,
      NULL },
    { "backward-sees-future", "gpt2", 0, BY(GRADIENTS), SELF, NULL, NULL,
      NULL },
    // Arithmetic that reads hidden values, or divides by zero.
    { "large-negative", "gpt2", 0, BY(POISON), SELF, NULL, NULL, "c" },
    { "empty-row-is-nan", "llama", 0, BY(EMPTY), SELF, NULL, NULL, NULL },
    { "empty-row-is-nan", "bert", 0, BY(EMPTY), ENCODER, NULL, NULL, NULL },
    // Batches.
    { "positions-run-on", "llama", 0, BY(BATCH), SELF, NULL, NULL, NULL },
    { "padding-read", "mistral", ANY, BY(PADDING), SELF, NULL, NULL, NULL },
    { "padding-read", "bert", ANY, BY(PADDING), ENCODER, NULL, NULL, NULL },
    { "sums-by-batch", "qwen3", 0, BY(BATCH), SELF, NULL, NULL, NULL },
    // Incremental decoding.
    { "window-short-in-steps", "mistral", 1, BY(INCREMENTAL), SELF, NULL, NULL,
      NULL },
    { "window-long-in-steps", "mistral", 2, BY(INCREMENTAL), SELF, NULL, NULL,
      NULL },
    { "top-left-in-steps", "gpt2", 0, BY(INCREMENTAL), SELF, NULL, NULL, NULL },
    // Only the last token of a chunk has logits, and it may see the others; so
    // what they saw shows one layer higher.
    { "pieces-see-ahead", "llama", 1, BY(CHUNKED), SELF, NULL, NULL, NULL },
    { "heads-swapped-in-steps", "llama", 1, BY(INCREMENTAL), SELF, NULL, NULL,
      NULL },
    { "heads-swapped-in-steps", "marian", 2, BY(INCREMENTAL), SELF, NULL, NULL,
      NULL },
    { "positions-restart", "llama", 0, BY(CHUNKED), SELF, NULL, NULL, NULL },
    { "position-off-in-steps", "gpt2", ANY, BY(INCREMENTAL), SELF, NULL, NULL,
      NULL },
    { "source-of-another", "marian", 0, BY(INCREMENTAL), ACROSS, NULL, NULL,
      NULL },
    { "forks-share-writes", "gpt2", 0, BY(FORKS), SELF, NULL, NULL, NULL },
    { "copy-one-short", "marian", 0, BY(FORKS), SELF, NULL, NULL, NULL },
    { "truncate-forgotten", "gpt2", ANY, BY(FORKS), SELF, NULL, NULL, NULL },
    // Threads and instruction sets.
    { "sums-by-threads", "gpt2", 0, BY(THREADS), SELF, NULL, NULL, NULL },
    { "sums-by-isa", "gpt2", 0, BY(ISA), SELF, NULL, NULL, NULL },
};

/* ---- an audit ------------------------------------------------------------ */

typedef struct side {
    size_t lengths[SEQUENCES], rows;
    uint32_t ids[256];
    bauta_mask *mask, *cross;
    bauta_batch batch;
} side;

static inline void side_init(side *s, const size_t lengths[SEQUENCES],
                             test_random *r, const char *mask)
{
    *s = (side){ .batch = BAUTA_BATCH_INIT };
    for (size_t i = 0; i < SEQUENCES; i++)
        s->rows += s->lengths[i] = lengths[i];
    for (size_t i = 0; i < s->rows; i++)
        s->ids[i] = (uint32_t)test_below(r, 39);
    if (mask)
        assert_int_equal(
            bauta_mask_parse(&s->mask, mask, s->rows, s->rows, NULL), 0);
    s->batch.count = SEQUENCES;
    s->batch.lengths = s->lengths;
    s->batch.ids = s->ids;
    s->batch.mask = s->mask;
}

/* An audit of a model on a context's device, with these checks; 0: all. */
static inline bauta_audit *audit_run(const injected_fault *b,
                                     bauta_context *context,
                                     const bauta_model *model, uint32_t checks)
{
    static const size_t targets[] = { 69, 9, 4 }, sources[] = { 66, 5, 17 };
    test_random r = test_random_from(7);
    bauta_model_kind kind = bauta_model_kind_of(model);
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    bauta_audit *audit = NULL;
    bauta_error err;
    side source, target;
    how.probes = 32;
    how.checks = checks;
    side_init(&source, sources, &r,
              kind == BAUTA_ENCODER_ONLY ? b->mask : NULL);
    side_init(&target, targets, &r, b->mask);
    if (b->cross)
        assert_int_equal(bauta_mask_parse(&target.cross, b->cross, target.rows,
                                          source.rows, NULL),
                         0);
    target.batch.cross_mask = target.cross;
    if (bauta_audit_create(&audit, context, model,
                           kind == BAUTA_DECODER_ONLY ? NULL : &source.batch,
                           kind == BAUTA_ENCODER_ONLY ? NULL : &target.batch,
                           &how, &err))
        fail_msg("%s in %s: %s", b->name, b->family, err.message);
    bauta_mask_free(source.mask);
    bauta_mask_free(target.mask);
    bauta_mask_free(target.cross);
    return audit;
}

/* ---- what it has found --------------------------------------------------- */

static inline const bauta_finding *finding_of(const bauta_audit *audit,
                                              bauta_check check)
{
    for (size_t i = 0; i < bauta_audit_findings(audit); i++)
        if (bauta_audit_finding(audit, i)->check == check)
            return bauta_audit_finding(audit, i);
    return NULL;
}

static inline bool fault_found(const injected_fault *b,
                               const bauta_audit *audit)
{
    const bauta_finding *f = finding_of(audit, b->found_by);
    assert_non_null(f);
    printf("%-24s %-8s %-9s %s\n", b->name, b->family,
           bauta_check_name(b->found_by), f->message);
    if (f->verdict == BAUTA_FAILED &&
        (b->layer == ANY ||
         (f->layer == (size_t)b->layer && f->attention == b->at)))
        return true;
    for (size_t i = 0; i < bauta_audit_findings(audit); i++)
        printf("    %-9s %d %s\n",
               bauta_check_name(bauta_audit_finding(audit, i)->check),
               (int)bauta_audit_finding(audit, i)->verdict,
               bauta_audit_finding(audit, i)->message);
    return false;
}

static inline bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static inline bool same_batch(const injected_fault *a, const injected_fault *b)
{
    return same_text(a->family, b->family) && same_text(a->mask, b->mask) &&
           same_text(a->cross, b->cross) && same_text(a->isa, b->isa);
}

/* Whether an earlier fault has the same model and batch. */
static inline bool seen_before(size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (same_batch(&injected_faults[i], &injected_faults[index]))
            return true;
    return false;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* audit_fixtures.h - a model and batches to be audited. */
#ifndef BT_TEST_AUDIT_FIXTURES_H
#define BT_TEST_AUDIT_FIXTURES_H

#include "bauta.h"
#include "testing.h"

enum { SEQUENCES = 4, ROWS_MAX = 512 };

/* ---- input --------------------------------------------------------------- */

typedef struct side {
    size_t lengths[SEQUENCES], prefixes[SEQUENCES], rows;
    uint32_t ids[ROWS_MAX], types[ROWS_MAX];
    bauta_mask *mask, *cross;
    bauta_batch batch;
} side;

/* Sequences of random tokens; a stride pads them. */
static inline void side_init(side *s, test_random *r, size_t count,
                             const size_t *lengths, size_t stride,
                             size_t vocabulary)
{
    *s = (side){ .batch = BAUTA_BATCH_INIT };
    for (size_t i = 0; i < count; i++)
        s->rows += s->lengths[i] = lengths[i];
    if (stride)
        s->rows = stride * count;
    assert_true(s->rows <= ROWS_MAX);
    for (size_t i = 0; i < s->rows; i++)
        s->ids[i] = (uint32_t)test_below(r, vocabulary);
    s->batch.count = count;
    s->batch.lengths = s->lengths;
    s->batch.stride = stride;
    s->batch.ids = s->ids;
}

static inline void side_release(side *s)
{
    bauta_mask_free(s->mask);
    bauta_mask_free(s->cross);
}

typedef struct subject {
    bauta_model *model;
    bauta_context *context;
    side source, target;
} subject;

static inline const bauta_batch *source_of(const subject *s)
{
    return bauta_model_kind_of(s->model) == BAUTA_DECODER_ONLY
               ? NULL
               : &s->source.batch;
}

static inline const bauta_batch *target_of(const subject *s)
{
    return bauta_model_kind_of(s->model) == BAUTA_ENCODER_ONLY
               ? NULL
               : &s->target.batch;
}

static inline bauta_context *context_make(int threads)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    options.threads = threads;
    assert_int_equal(bauta_context_create(&context, &options, NULL), 0);
    return context;
}

static inline void subject_release(subject *s)
{
    side_release(&s->source);
    side_release(&s->target);
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

/* Audit, and fail with the finding. */
static inline void must_pass(const subject *s, size_t probes, uint64_t seed,
                             const char *name)
{
    bauta_error err;
    bauta_audit *audit = NULL;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    how.probes = probes;
    how.seed = seed;
    if (bauta_audit_create(&audit, s->context, s->model, source_of(s),
                           target_of(s), &how, &err))
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(bauta_audit_findings(audit), BAUTA_CHECKS);
    for (size_t i = 0; i < bauta_audit_findings(audit); i++) {
        const bauta_finding *f = bauta_audit_finding(audit, i);
        if (f->verdict == BAUTA_FAILED)
            fail_msg("%s: %s: %s", name, bauta_check_name(f->check),
                     f->message);
        if (f->verdict == BAUTA_PASSED && f->compared == 0)
            fail_msg("%s: %s compared nothing", name,
                     bauta_check_name(f->check));
    }
    assert_true(bauta_audit_passed(audit));
    bauta_audit_free(audit);
}

#endif

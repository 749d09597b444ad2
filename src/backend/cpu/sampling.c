/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c - sampling and beam selection for many texts, one task each. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/sampler.h"
#include "base/error.h"
#include "base/size.h"

typedef struct sampling_job {
    const bt_tensor *logits;
    bt_sampler_scratch *scratch; /* one for each thread */
    bt_sample_item *samples;     /* or */
    bt_beam_item *beams;
} sampling_job;

/* Runs twice: to measure, then to take the scratch of all threads. */
static void scratch_take(sampling_job *job, bt_cpu *cpu, bt_arena *arena,
                         size_t choices, size_t beams)
{
    size_t threads = (size_t)bt_cpu_threads(cpu);
    size_t vocab = job->logits->columns;
    size_t capacity = bt_size_max(choices, vocab);
    job->scratch = bt_arena_alloc(arena, threads, sizeof(*job->scratch));
    for (size_t t = 0; t < threads; t++) {
        bt_sampler_scratch s = {
            .kernels = cpu->kernels,
            .vocab = vocab,
            .work = bt_arena_alloc(arena, vocab, sizeof(float)),
            .exps = bt_arena_alloc(arena, vocab, sizeof(float)),
            .marks = bt_arena_alloc(arena, vocab, 1),
            .topk = bt_arena_alloc(arena, capacity, sizeof(bt_topk_item)),
            .topk_capacity = capacity,
            .lse = bt_arena_alloc(arena, beams, sizeof(float)),
        };
        if (!arena->base)
            continue;
        memset(s.marks, 0, vocab);
        job->scratch[t] = s;
    }
}

static bauta_status scratch_reserve(sampling_job *job, bt_cpu *cpu,
                                    size_t choices, size_t beams,
                                    bauta_error *err)
{
    bt_arena measure = { NULL, 0, 0 };
    scratch_take(job, cpu, &measure, choices, beams);
    if (bt_arena_reserve(&cpu->workspace, measure.used))
        return bt_fail_memory(err, "sampling", measure.used);
    scratch_take(job, cpu, &cpu->workspace, choices, beams);
    return BAUTA_OK;
}

static const float *row_of(const sampling_job *job, size_t row)
{
    return bt_cpu_f32(job->logits) + row * job->logits->stride;
}

static void sample_task(void *job, size_t task, int thread)
{
    const sampling_job *j = job;
    bt_sample_item *item = &j->samples[task];
    item->status =
        bt_sample(&item->token, &j->scratch[thread], row_of(j, item->row),
                  item->options, &item->history);
}

bauta_status bt_cpu_sample(bt_stream *stream, const bt_sample_args *args,
                           bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    sampling_job job = { .logits = args->logits, .samples = args->items };
    BT_CPU_CHECK(stream, sample, err, args->logits);
    bauta_status status = scratch_reserve(&job, cpu, 0, 0, err);
    if (!status)
        bt_parallel_for(cpu->pool, args->count, sample_task, &job);
    return status;
}

static void beam_task(void *job, size_t task, int thread)
{
    const sampling_job *j = job;
    bt_beam_item *item = &j->beams[task];
    bt_beam_rows rows = { .beams = item->beams,
                          .rows = row_of(j, item->row),
                          .stride = j->logits->stride,
                          .scores = item->scores,
                          .options = item->options,
                          .histories = item->histories,
                          .want = item->want,
                          .choices = item->choices };
    item->status = bt_beam_rows_select(&rows, &j->scratch[thread]);
    item->count = rows.count;
}

bauta_status bt_cpu_beam(bt_stream *stream, const bt_beam_args *args,
                         bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    sampling_job job = { .logits = args->logits, .beams = args->items };
    size_t choices = 0, beams = 0;
    BT_CPU_CHECK(stream, beam, err, args->logits);
    for (size_t i = 0; i < args->count; i++) {
        choices = bt_size_max(choices, args->items[i].want);
        beams = bt_size_max(beams, args->items[i].beams);
    }
    bauta_status status = scratch_reserve(&job, cpu, choices, beams, err);
    if (!status)
        bt_parallel_for(cpu->pool, args->count, beam_task, &job);
    return status;
}

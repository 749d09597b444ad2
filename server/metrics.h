/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - counters and histograms, as Prometheus reads them.
 *
 * Names and buckets are those of vLLM with the prefix bauta:, so that
 * dashboards work after a change of the prefix. All calls may come from any
 * thread. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "buffer.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef enum metrics_histogram {
    METRICS_FIRST_TOKEN,
    METRICS_INTER_TOKEN,
    METRICS_REQUEST,
    METRICS_HISTOGRAMS
} metrics_histogram;

typedef enum metrics_counter {
    METRICS_PROMPT_TOKENS,
    METRICS_GENERATION_TOKENS,
    METRICS_PREFIX_QUERIES, /* tokens that were looked up */
    METRICS_PREFIX_HITS,
    METRICS_SUCCESS,   /* requests that were answered */
    METRICS_CANCELLED, /* requests whose client left */
    METRICS_REJECTED,  /* requests that found the queue full */
    METRICS_FAILED,    /* other requests with an error of the server */
    METRICS_COUNTERS
} metrics_counter;

enum { METRICS_BUCKETS = 22 };

typedef struct metrics {
    pthread_mutex_t lock;
    uint64_t counters[METRICS_COUNTERS];
    struct {
        uint64_t counts[METRICS_BUCKETS + 1]; /* the last one: above all */
        double sum;
    } histograms[METRICS_HISTOGRAMS];
} metrics;

void metrics_init(metrics *m);
void metrics_release(metrics *m);
void metrics_add(metrics *m, metrics_counter counter, uint64_t value);
void metrics_observe(metrics *m, metrics_histogram histogram, double seconds);

/* Values at this moment. */
typedef struct metrics_gauges {
    size_t running, waiting;
    double cache_usage; /* 0 to 1; 0 without a limit */
    uint64_t cache_bytes;
} metrics_gauges;
/* The metrics of one model. */
typedef struct metrics_source {
    metrics *metrics;
    const char *model; /* its name */
    metrics_gauges now;
} metrics_source;
/* The exposition format: one line for each metric of each model. */
void metrics_print(const metrics_source *sources, size_t count, buffer *out);

#endif

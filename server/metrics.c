/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - counters and histograms; see metrics.h. */
#include "metrics.h"

#include <inttypes.h>

static const struct {
    const char *name, *help;
} counter_names[METRICS_COUNTERS] = {
    [METRICS_PROMPT_TOKENS] = { "prompt_tokens_total",
                                "Prompt tokens processed." },
    [METRICS_GENERATION_TOKENS] = { "generation_tokens_total",
                                    "Tokens generated." },
    [METRICS_PREFIX_QUERIES] = { "prefix_cache_queries",
                                 "Prompt tokens looked up in the prefix "
                                 "cache." },
    [METRICS_PREFIX_HITS] = { "prefix_cache_hits",
                              "Prompt tokens found in the prefix cache." },
    [METRICS_SUCCESS] = { "request_success_total", "Requests answered." },
    [METRICS_CANCELLED] = { "request_cancelled_total",
                            "Requests whose client disconnected." },
    [METRICS_REJECTED] = { "request_rejected_total",
                           "Requests rejected because the queue was full." },
    [METRICS_FAILED] = { "request_failed_total",
                         "Requests that ended with a server error." },
};

static const struct {
    const char *name, *help;
} histogram_names[METRICS_HISTOGRAMS] = {
    [METRICS_FIRST_TOKEN] = { "time_to_first_token_seconds",
                              "Time to the first token." },
    [METRICS_INTER_TOKEN] = { "inter_token_latency_seconds",
                              "Time between two tokens of a sequence." },
    [METRICS_REQUEST] = { "e2e_request_latency_seconds",
                          "Time from the arrival of a request to its end." },
};

static const double bounds[METRICS_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,
    0.75,  1.0,    2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0
};

void metrics_init(metrics *m)
{
    *m = (metrics){ .counters = { 0 } };
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_release(metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

void metrics_add(metrics *m, metrics_counter counter, uint64_t value)
{
    pthread_mutex_lock(&m->lock);
    m->counters[counter] += value;
    pthread_mutex_unlock(&m->lock);
}

void metrics_observe(metrics *m, metrics_histogram histogram, double seconds)
{
    size_t bucket = 0;
    while (bucket < METRICS_BUCKETS && seconds > bounds[bucket])
        bucket++;
    pthread_mutex_lock(&m->lock);
    m->histograms[histogram].counts[bucket]++;
    m->histograms[histogram].sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

/* ---- output ------------------------------------------------------------ */

static void head_print(buffer *out, const char *name, const char *help,
                       const char *type)
{
    buffer_print(out, "# HELP bauta:%s %s\n# TYPE bauta:%s %s\n", name, help,
                 name, type);
}

static void histogram_print(const metrics_source *source, size_t h, buffer *out)
{
    const char *name = histogram_names[h].name, *model = source->model;
    metrics *m = source->metrics;
    uint64_t total = 0;
    pthread_mutex_lock(&m->lock);
    for (size_t b = 0; b <= METRICS_BUCKETS; b++) {
        total += m->histograms[h].counts[b];
        buffer_print(out, "bauta:%s_bucket{model_name=\"%s\",le=\"", name,
                     model);
        if (b < METRICS_BUCKETS)
            buffer_print(out, "%g", bounds[b]);
        buffer_print(out, "%s\"} %" PRIu64 "\n",
                     b < METRICS_BUCKETS ? "" : "+Inf", total);
    }
    buffer_print(out, "bauta:%s_sum{model_name=\"%s\"} %.9g\n", name, model,
                 m->histograms[h].sum);
    buffer_print(out, "bauta:%s_count{model_name=\"%s\"} %" PRIu64 "\n", name,
                 model, total);
    pthread_mutex_unlock(&m->lock);
}

static double gauge_running(const metrics_gauges *now)
{
    return (double)now->running;
}

static double gauge_waiting(const metrics_gauges *now)
{
    return (double)now->waiting;
}

static double gauge_cache_usage(const metrics_gauges *now)
{
    return now->cache_usage;
}

static double gauge_cache_bytes(const metrics_gauges *now)
{
    return (double)now->cache_bytes;
}

static const struct {
    const char *name, *help;
    double (*value)(const metrics_gauges *now);
} gauges[] = {
    { "num_requests_running", "Sequences running.", gauge_running },
    { "num_requests_waiting", "Requests waiting in the queue.", gauge_waiting },
    { "kv_cache_usage_perc",
      "Share of the KV cache in use, from 0 to 1; 0 without a limit.",
      gauge_cache_usage },
    { "kv_cache_bytes", "Bytes of keys and values in use.", gauge_cache_bytes },
};

static void counter_print(const metrics_source *source, size_t i, buffer *out)
{
    pthread_mutex_lock(&source->metrics->lock);
    buffer_print(out, "bauta:%s{model_name=\"%s\"} %" PRIu64 "\n",
                 counter_names[i].name, source->model,
                 source->metrics->counters[i]);
    pthread_mutex_unlock(&source->metrics->lock);
}

void metrics_print(const metrics_source *sources, size_t count, buffer *out)
{
    for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++) {
        head_print(out, gauges[i].name, gauges[i].help, "gauge");
        for (size_t m = 0; m < count; m++)
            buffer_print(out, "bauta:%s{model_name=\"%s\"} %.9g\n",
                         gauges[i].name, sources[m].model,
                         gauges[i].value(&sources[m].now));
    }
    for (size_t i = 0; i < METRICS_COUNTERS; i++) {
        head_print(out, counter_names[i].name, counter_names[i].help,
                   "counter");
        for (size_t m = 0; m < count; m++)
            counter_print(&sources[m], i, out);
    }
    for (size_t h = 0; h < METRICS_HISTOGRAMS; h++) {
        head_print(out, histogram_names[h].name, histogram_names[h].help,
                   "histogram");
        for (size_t m = 0; m < count; m++)
            histogram_print(&sources[m], h, out);
    }
}

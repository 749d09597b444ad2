/* SPDX-License-Identifier: Apache-2.0 */
/* train_series.c - bauta train --series: tables of numbers as a corpus. */
#include "cli.h"
#include "train.h"

#include <stdlib.h>

static int tables_load(bauta_series **tables, const settings *s)
{
    bauta_series_options how = BAUTA_SERIES_OPTIONS_INIT;
    bauta_error err;
    how.columns = s->column.at;
    how.column_count = s->column.count;
    for (size_t i = 0; i < s->series.count; i++)
        if (bauta_series_load(&tables[i], s->series.at[i], &how, &err))
            return train_failed(&err);
    return CLI_OK;
}

static bauta_status codec_open(train_job *job, const settings *s,
                               bauta_series *const *tables,
                               const char *checkpoint, bauta_error *err)
{
    bauta_series_codec_options how = BAUTA_SERIES_CODEC_OPTIONS_INIT;
    const char *from = checkpoint ? checkpoint : s->from;
    if (from)
        return bauta_series_codec_load(&job->codec, from, err);
    how.season = s->season;
    how.holdout = s->holdout;
    how.calendar = (bauta_series_calendar)s->calendar;
    return bauta_series_codec_create(&job->codec,
                                     (const bauta_series *const *)tables,
                                     s->series.count, &how, err);
}

static void codec_report(const bauta_series_codec *codec)
{
    size_t lag = bauta_series_codec_lag(codec);
    size_t calendar = bauta_series_codec_calendar(codec);
    fprintf(stderr, "season of %zu; values are predicted as %s from %s",
            bauta_series_codec_season(codec),
            bauta_series_codec_log(codec) ? "ratios" : "differences",
            lag == 1 ? "the last one" : "the last season");
    if (calendar)
        fprintf(stderr, ", with %zu places in the calendar", calendar);
    fprintf(stderr, "\n");
}

int train_series_open(train_job *job, const settings *s, const char *checkpoint)
{
    bauta_error err;
    bauta_status status = BAUTA_OK;
    bauta_series **tables = calloc(s->series.count, sizeof(*tables));
    int failed =
        tables ? tables_load(tables, s) : cli_fail(VERB, "out of memory");
    const char *from = checkpoint ? checkpoint : s->from;
    if (!failed)
        status = codec_open(job, s, tables, checkpoint, &err);
    if (!failed && !status)
        status = from ? bauta_tokenizer_load(&job->tokenizer, from, &err)
                      : bauta_series_codec_tokenizer(&job->tokenizer,
                                                     job->codec, &err);
    if (!failed && !status)
        status = bauta_series_corpus(&job->corpus, job->codec,
                                     (const bauta_series *const *)tables,
                                     s->series.count, s->holdout, &err);
    if (!failed && status)
        failed = train_failed(&err);
    if (!failed && !checkpoint)
        codec_report(job->codec);
    for (size_t i = 0; tables && i < s->series.count; i++)
        bauta_series_free(tables[i]);
    free(tables);
    return failed;
}

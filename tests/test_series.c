/* SPDX-License-Identifier: Apache-2.0 */
/* test_series.c - tables, dates, tokens, forecasts, baselines and scores. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "data/objective.h"
#include "series/codec.h"
#include "series/synthetic.h"
#include "temp_folder.h"
#include "testing.h"

#include <math.h>
#include <string.h>

static temp_folder files;
static bauta_context *context;

static int setup(void **state)
{
    (void)state;
    files = temp_folder_create();
    return (int)bauta_context_create(&context, NULL, NULL);
}

static int teardown(void **state)
{
    (void)state;
    bauta_context_free(context);
    temp_folder_free(&files);
    return 0;
}

/* ---- a planted look into the future ------------------------------------ */

/* While it is on, the scale of every value is that of the whole column. */
static bool look_ahead;
static const double *column_z;
static size_t column_count;

double __real_bt_codec_scale(const bauta_series_codec *codec, const double *z,
                             size_t t);
double __wrap_bt_codec_scale(const bauta_series_codec *codec, const double *z,
                             size_t t);
bauta_status __real_bt_observed_init(bt_observed *past,
                                     const bauta_series_codec *codec,
                                     const bauta_series *series, size_t column,
                                     size_t rows, size_t room,
                                     bauta_error *err);
bauta_status __wrap_bt_observed_init(bt_observed *past,
                                     const bauta_series_codec *codec,
                                     const bauta_series *series, size_t column,
                                     size_t rows, size_t room,
                                     bauta_error *err);

double __wrap_bt_codec_scale(const bauta_series_codec *codec, const double *z,
                             size_t t)
{
    double sum = 0.0;
    if (!look_ahead || z != column_z)
        return __real_bt_codec_scale(codec, z, t);
    for (size_t u = codec->lag; u < column_count; u++)
        sum += fabs(z[u] - z[u - codec->lag]);
    return sum / (double)(column_count - codec->lag) + 1e-12;
}

bauta_status __wrap_bt_observed_init(bt_observed *past,
                                     const bauta_series_codec *codec,
                                     const bauta_series *series, size_t column,
                                     size_t rows, size_t room, bauta_error *err)
{
    bauta_status status =
        __real_bt_observed_init(past, codec, series, column, rows, room, err);
    column_z = past->z;
    column_count = past->count;
    return status;
}

/* ---- fixtures ---------------------------------------------------------- */

static bauta_status load(bauta_series **out, const char *text, size_t size,
                         bauta_error *err)
{
    return bauta_series_load(
        out, temp_folder_write(&files, "table.csv", text, size), NULL, err);
}

static bauta_series *loaded(const char *text)
{
    bauta_series *series;
    bauta_error err;
    if (load(&series, text, strlen(text), &err))
        fail_msg("%s", err.message);
    return series;
}

/* Monthly values with a trend and a season, in two columns. */
static bauta_series *months(size_t rows)
{
    static char text[65536];
    size_t used = (size_t)snprintf(text, sizeof(text), "month,\"a, b\",c\n");
    for (size_t t = 0; t < rows; t++) {
        double x = (100.0 + (double)t) *
                   (1.0 + 0.3 * sin(0.5235987755982988 * (double)t));
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%04zu-%02zu,%.6f,%.6f\n", 1950 + t / 12,
                                 t % 12 + 1, x, 500.0 - 2.0 * x);
    }
    return loaded(text);
}

static bauta_series_codec *codec_for(const bauta_series *series, size_t holdout)
{
    bauta_series_codec_options how = BAUTA_SERIES_CODEC_OPTIONS_INIT;
    bauta_series_codec *codec;
    bauta_error err;
    how.holdout = holdout;
    how.calendar = BAUTA_SERIES_CALENDAR_ALWAYS;
    if (bauta_series_codec_create(&codec, &series, 1, &how, &err))
        fail_msg("%s", err.message);
    return codec;
}

static bauta_model *model_for(const bauta_series_codec *codec)
{
    bauta_tokenizer *tokenizer = NULL;
    bauta_model *model = NULL;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_error err;
    char *config = NULL;
    if (bauta_series_codec_tokenizer(&tokenizer, codec, &err) ||
        bauta_preset(&config, &options, "series-tiny", tokenizer,
                     "{\"n_layer\": 1, \"n_embd\": 16, \"n_positions\": 32, "
                     "\"initializer_range\": 0.5}",
                     &err) ||
        bauta_model_create(&model, config, 1, &err))
        fail_msg("%s", err.message);
    bauta_text_free(config);
    bauta_tokenizer_free(tokenizer);
    return model;
}

/* ---- CSV --------------------------------------------------------------- */

static void a_table_has_dates_and_columns_of_numbers(void **state)
{
    (void)state;
    char date[32];
    bauta_series *s = loaded("\"day\", \"x, y\" ,note,z\r\n"
                             "2024-02-27,1.5,a,\n\n"
                             "2024-02-28,-2e3,b,NA\n"
                             "2024-02-29,,\"c, d\",7\n");
    assert_int_equal(bauta_series_rows(s), 3);
    assert_int_equal(bauta_series_columns(s), 2);
    assert_string_equal(bauta_series_name(s, 0), "x, y");
    assert_string_equal(bauta_series_name(s, 1), "z");
    assert_null(bauta_series_name(s, 2));
    assert_true(bauta_series_values(s, 0)[1] == -2000.0);
    assert_true(isnan(bauta_series_values(s, 0)[2]));
    assert_true(isnan(bauta_series_values(s, 1)[1]));
    assert_int_equal(bauta_series_season(s), 7);
    bauta_series_date(s, 3, date, sizeof(date));
    assert_string_equal(date, "2024-03-01");
    bauta_series_free(s);
}

static void columns_are_chosen_by_name(void **state)
{
    (void)state;
    static const char text[] = "a,b,c\n1,x,3\n2,y,4\n";
    const char *names[] = { "c", "b" };
    const char *path =
        temp_folder_write(&files, "table.csv", text, strlen(text));
    bauta_series_options how = BAUTA_SERIES_OPTIONS_INIT;
    bauta_series *s;
    bauta_error err;
    how.columns = names;
    how.column_count = 1;
    assert_int_equal(bauta_series_load(&s, path, &how, &err), BAUTA_OK);
    assert_int_equal(bauta_series_columns(s), 1);
    assert_true(bauta_series_values(s, 0)[0] == 3.0);
    bauta_series_free(s);
    how.column_count = 2;
    assert_int_equal(bauta_series_load(&s, path, &how, &err), BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "line 2"));
    how.column_count = 1;
    names[0] = "d";
    assert_int_equal(bauta_series_load(&s, path, &how, &err), BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "\"d\" is missing"));
    how.column_count = 0;
    how.date = "a";
    assert_int_equal(bauta_series_load(&s, path, &how, &err), BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "increasing dates"));
}

static void malformed_tables_are_refused_with_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "", "no rows" },
        { "a,b\n", "no rows" },
        { "a,b\n1,2\n3\n", "line 3: has 1 cells, but the header has 2" },
        { "a,b\n1,2,3\n", "line 2: has 3 cells" },
        { "a\n\"1\n", "line 2" },
        { "\"a\n1\n", "line 1" },
        { "a\nx\n", "no column of numbers" },
        { "a\n0x10\n", "no column of numbers" },
        { "a\ninf\n", "no column of numbers" },
        { "a\n1e999\n", "no column of numbers" },
        { "a\n1,5\n", "line 2: has 2 cells" },
        { "a\n\xff\n", "UTF-8" },
        { "a\n,\n", "line 2" },
        { "a\nNA\nNaN\n", "no column of numbers" },
    };
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        bauta_series *s;
        bauta_error err;
        assert_int_equal(load(&s, bad[i].text, strlen(bad[i].text), &err),
                         BAUTA_ERR_FORMAT);
        assert_null(s);
        if (!strstr(err.message, bad[i].message) ||
            !strstr(err.message, "table.csv"))
            fail_msg("%zu: %s", i, err.message);
    }
}

/* A valid text with a few changed, removed or doubled bytes. */
static size_t mutate(test_random *r, char *to, const char *from, size_t size)
{
    size_t changes = 1 + test_below(r, 4);
    memcpy(to, from, size);
    for (size_t i = 0; i < changes && size > 2; i++) {
        size_t at = test_below(r, size - 1);
        switch (test_below(r, 3)) {
        case 0:
            to[at] = "0\",\n-.eE9x{}[]: \0\xff"[test_below(r, 18)];
            break;
        case 1:
            memmove(to + at, to + at + 1, size - at - 1);
            size--;
            break;
        default:
            size = at + 1;
        }
    }
    return size;
}

static void mutated_tables_are_read_or_refused(void **state)
{
    (void)state;
    static const char text[] = "date,x,\"y, z\"\n2024-01,1.5,\"2\"\n"
                               "2024-02,,3e-2\n2024-03,-7,NA\n2024-04,8,1\n";
    char changed[sizeof(text)];
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < 800; i++) {
        bauta_series *s;
        bauta_error err = { 0 };
        size_t size = mutate(&r, changed, text, sizeof(text) - 1);
        bauta_status status = load(&s, changed, size, &err);
        assert_true(!s == !!status);
        if (status && (!strstr(err.message, "table.csv") || !*err.message))
            fail_msg("case %zu: %s", i, err.message);
        for (size_t c = 0; s && c < bauta_series_columns(s); c++)
            for (size_t t = 0; t < bauta_series_rows(s); t++)
                assert_true(!isinf(bauta_series_values(s, c)[t]));
        bauta_series_free(s);
    }
}

/* ---- dates ------------------------------------------------------------- */

static void dates_count_every_day_of_four_centuries(void **state)
{
    (void)state;
    static const int days[] = {
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31
    };
    int year = 1800, month = 1, day = 1;
    int64_t date, first = 0;
    bt_date_form form;
    for (int64_t i = 0; i < 146097; i++) {
        char text[40], back[BT_DATE_BYTES];
        snprintf(text, sizeof(text), "%04d-%02d-%02d", year, month, day);
        assert_true(bt_date_parse(&date, &form, text, 10));
        if (i == 0)
            first = date;
        assert_true(date == first + i * 86400);
        bt_date_write(back, date, form);
        assert_string_equal(back, text);
        bool leap = year % 4 == 0 && (year % 100 || year % 400 == 0);
        if (++day > days[month - 1] + (month == 2 && leap)) {
            day = 1;
            month = month == 12 ? 1 : month + 1;
            year += month == 1;
        }
    }
    assert_true(bt_date_parse(&date, &form, "1970-01-01 00:00:01", 19));
    assert_true(date == 1);
}

static void invalid_dates_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "2023-02-29",       "2024-13",    "2024-00-10",
        "2024-1-1",         "0000-01",    "2024-01-01 24:00",
        "2024-01-01 12:60", "2024/01/01", "2024-01-01x12:00",
        "2024-01-32",       "20240101",   "2024-01-01 12:00:61",
    };
    int64_t date;
    bt_date_form form;
    for (size_t i = 0; i < BT_LEN(bad); i++)
        if (bt_date_parse(&date, &form, bad[i], strlen(bad[i])))
            fail_msg("%s", bad[i]);
}

static void seasons_come_from_the_interval(void **state)
{
    (void)state;
    static const struct {
        const char *rows[7];
        size_t season;
        const char *next;
    } cases[] = {
        { { "2024-10", "2024-11", "2024-12" }, 12, "2025-01" },
        { { "2024-04-30", "2024-05-31", "2024-06-30" }, 12, "2024-07-31" },
        { { "2023-07-01", "2023-10-01", "2024-01-01" }, 4, "2024-04-01" },
        { { "2022-01-01", "2023-01-01", "2024-01-01" }, 1, "2025-01-01" },
        { { "2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29" },
          7,
          "2024-03-01" },
        { { "2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29",
            "2024-03-01", "2024-03-04", "2024-03-08" },
          5,
          "2024-03-11" },
        { { "2024-02-26", "2024-03-04", "2024-03-11" }, 52, "2024-03-18" },
        { { "2024-02-29 22:00", "2024-02-29 22:30", "2024-02-29 23:00" },
          48,
          "2024-02-29 23:30" },
        { { "2024-02-29T21:00:00", "2024-02-29 22:00:00",
            "2024-02-29 23:00:00" },
          24,
          "2024-03-01 00:00:00" },
        { { "2024-02-01", "2024-02-04", "2024-02-07" }, 1, "2024-02-10" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        char text[400] = "date,x\n", date[32];
        size_t rows = 0;
        for (; rows < 7 && cases[i].rows[rows]; rows++) {
            strcat(text, cases[i].rows[rows]);
            strcat(text, ",1\n");
        }
        bauta_series *s = loaded(text);
        assert_true(bauta_series_has_dates(s));
        assert_int_equal(bauta_series_season(s), cases[i].season);
        bauta_series_date(s, rows, date, sizeof(date));
        assert_string_equal(date, cases[i].next);
        bauta_series_date(s, SIZE_MAX, date, sizeof(date));
        bauta_series_date(s, 1 << 26, date, sizeof(date)); // ends
        bauta_series_free(s);
    }
}

/* ---- tokens ------------------------------------------------------------ */

static void tokens_give_the_values_back(void **state)
{
    (void)state;
    bauta_series *s = months(120);
    bauta_series_codec *codec = codec_for(s, 0);
    uint32_t tokens[512];
    size_t count;
    bauta_error err;
    assert_int_equal(bauta_series_codec_season(codec), 12);
    assert_int_equal(bauta_series_codec_lag(codec), 12);
    assert_int_equal(bauta_series_codec_calendar(codec), 12);
    assert_false(bauta_series_codec_log(codec)); // column c is negative
    for (size_t c = 0; c < 2; c++) {
        const double *x = bauta_series_values(s, c);
        assert_int_equal(
            bauta_series_encode(codec, s, c, 120, tokens, 512, &count, &err),
            BAUTA_OK);
        size_t start = bt_codec_start(codec);
        assert_int_equal(count, 2 * (120 - start));
        for (size_t t = start; t < 120; t++) {
            uint32_t place = tokens[2 * (t - start)];
            uint32_t bin = tokens[2 * (t - start) + 1];
            double scale = bt_codec_scale(codec, x, t);
            double r = (x[t] - x[t - 12]) / scale;
            assert_int_equal(place, codec->bins + t % 12);
            assert_true(bin < codec->bins);
            assert_int_equal(
                bt_codec_quantize(codec, bt_codec_centre(codec, bin)), bin);
            if (fabs(r) < 6.0)
                assert_true(
                    fabs(asinh(r) - asinh(bt_codec_centre(codec, bin))) <=
                    asinh(6.0) / (double)codec->bins * 1.0001);
        }
    }
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

/* The definition, in plain loops over all values before t. */
static double scale_slowly(const bauta_series_codec *codec, const double *z,
                           size_t t)
{
    double sum = 0.0;
    size_t count = 0;
    for (size_t u = 0; u < t; u++)
        if (u + codec->window >= t && u >= codec->lag) {
            sum += fabs(z[u] - z[u - codec->lag]);
            count++;
        }
    return sum / (double)count;
}

static void scales_and_tokens_do_not_depend_on_later_values(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < 200; i++) {
        double values[200];
        uint32_t before[400], after[400];
        size_t rows = 60 + test_below(&r, 140), count, count_after;
        size_t cut = 40 + test_below(&r, rows - 40);
        bauta_series_codec codec = { .season = 1 + test_below(&r, 20),
                                     .bins = 16 + test_below(&r, 200),
                                     .window = 1 + test_below(&r, 90) };
        codec.lag = test_below(&r, 2) ? codec.season : 1;
        for (size_t t = 0; t < rows; t++)
            values[t] = test_below(&r, 9) ? (double)test_float(&r) : NAN;
        values[0] = 1.0;
        bauta_series *s;
        assert_int_equal(bauta_series_create(&s, values, rows, 1, NULL), 0);
        assert_int_equal(
            bauta_series_encode(&codec, s, 0, rows, before, 400, &count, NULL),
            0);
        bt_observed past;
        assert_int_equal(bt_observed_init(&past, &codec, s, 0, rows, 0, NULL),
                         0);
        for (size_t t = bt_codec_start(&codec); t < rows; t++)
            assert_true(fabs(bt_codec_scale(&codec, past.z, t) -
                             scale_slowly(&codec, past.z, t)) < 1e-7);
        bt_observed_release(&past);
        for (size_t t = cut; t < rows; t++)
            s->values[0][t] = 1e6 * (double)test_float(&r);
        assert_int_equal(bauta_series_encode(&codec, s, 0, rows, after, 400,
                                             &count_after, NULL),
                         0);
        assert_int_equal(count, count_after);
        assert_memory_equal(before, after,
                            (cut - bt_codec_start(&codec)) * sizeof(*before));
        bauta_series_free(s);
    }
}

static void extreme_values_have_a_token(void **state)
{
    (void)state;
    static const double values[] = { 1e308,  -1e308, 1e308,  -1e308, 1e308,
                                     -1e308, 0,      0,      0,      0,
                                     0,      0,      5e-324, 0,      1e308 };
    bauta_series_codec codec = {
        .season = 1, .lag = 1, .bins = 16, .window = 9
    };
    uint32_t tokens[16];
    size_t count;
    bauta_series *s;
    assert_int_equal(bauta_series_create(&s, values, BT_LEN(values), 1, NULL),
                     0);
    assert_int_equal(bauta_series_encode(&codec, s, 0, BT_LEN(values), tokens,
                                         16, &count, NULL),
                     0);
    for (size_t i = 0; i < count; i++)
        assert_true(tokens[i] < 16);
    bauta_series_free(s);
}

static void the_lag_is_the_one_that_predicts_better(void **state)
{
    (void)state;
    double values[400];
    test_random r = test_random_from(test_seed());
    bauta_series_codec_options how = BAUTA_SERIES_CODEC_OPTIONS_INIT;
    how.season = 5;
    values[0] = 0.0;
    for (size_t t = 1; t < 400; t++)
        values[t] = values[t - 1] + (double)test_float(&r); // a random walk
    // Then a season, alone and with a slope that is steeper than it.
    for (int seasonal = 0; seasonal < 3; seasonal++) {
        bauta_series *s;
        bauta_series_codec *codec;
        for (size_t t = 0; seasonal && t < 400; t++)
            values[t] = (double)(t % 5) + 0.1 * (double)test_float(&r) +
                        (seasonal == 2 ? 2.0 * (double)t - 99.0 : 0.0);
        assert_int_equal(bauta_series_create(&s, values, 400, 1, NULL), 0);
        const bauta_series *table = s;
        assert_int_equal(
            bauta_series_codec_create(&codec, &table, 1, &how, NULL), 0);
        assert_int_equal(bauta_series_codec_lag(codec), seasonal ? 5 : 1);
        bauta_series_codec_free(codec);
        bauta_series_free(s);
    }
}

static void places_of_the_calendar_are_no_labels(void **state)
{
    (void)state;
    bauta_series *s = months(60);
    const bauta_series *table = s;
    bauta_series_codec *codec = codec_for(s, 0);
    bauta_corpus *corpus;
    bt_train_batch batch = { 0 };
    bt_objective objective = { .kind = BAUTA_OBJECTIVE_CAUSAL };
    const bt_example example = { .document = 0, .first = 0, .count = 20 };
    assert_int_equal(bauta_series_corpus(&corpus, codec, &table, 1, 0, NULL),
                     0);
    assert_int_equal(
        bt_train_batch_set(&batch, &objective, corpus, &example, 1, NULL), 0);
    for (size_t i = 0; i < 20; i++)
        assert_true((batch.labels[i] == BAUTA_IGNORE) ==
                    (batch.ids[i] < codec->bins));
    assert_int_equal(batch.label_count, 10);
    bt_train_batch_release(&batch);
    bauta_corpus_free(corpus);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

static void a_short_table_is_filled_up_with_synthetic_series(void **state)
{
    (void)state;
    static const size_t rows[] = { 60, 2000, 30000 };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        double *values = malloc(rows[i] * sizeof(*values));
        bauta_series *s;
        bauta_series_codec *codec;
        bauta_corpus *corpus;
        assert_non_null(values);
        for (size_t t = 0; t < rows[i]; t++)
            values[t] = (double)(t * t % 17);
        assert_int_equal(bauta_series_create(&s, values, rows[i], 1, NULL), 0);
        const bauta_series *table = s;
        assert_int_equal(
            bauta_series_codec_create(&codec, &table, 1, NULL, NULL), 0);
        assert_int_equal(
            bauta_series_corpus(&corpus, codec, &table, 1, 0, NULL), 0);
        size_t copies = bt_size_max(bt_size_min(20000 / (rows[i] + 1), 8), 1);
        size_t documents = bauta_corpus_documents(corpus);
        // Each has 256 values, until there are 20,000.
        size_t missing =
            20000 - bt_size_min(copies * rows[i], 20000); // of the table
        assert_int_equal(documents, copies + (missing + 255) / 256);
        bauta_corpus_free(corpus);
        bauta_series_codec_free(codec);
        bauta_series_free(s);
        free(values);
    }
}

/* How much steps at a distance differ; a slope does not count. */
static double mean_difference(const bt_observed *past, size_t distance)
{
    double sum = 0.0;
    const double *z = past->z;
    for (size_t t = distance + 1; t < past->count; t++)
        sum += fabs(z[t] - z[t - 1] - z[t - distance] + z[t - distance - 1]);
    return sum / (double)(past->count - distance - 1);
}

static void synthetic_series_have_the_season(void **state)
{
    (void)state;
    const bauta_series_codec codec = {
        .season = 12, .lag = 12, .bins = 16, .window = 64
    };
    size_t seasonal = 0;
    for (size_t i = 0; i < 100; i++) {
        bt_observed past, again;
        assert_int_equal(bt_synthetic_init(&past, &codec, i, NULL), 0);
        assert_int_equal(bt_synthetic_init(&again, &codec, i, NULL), 0);
        assert_int_equal(past.count, 18 + BT_SYNTHETIC_VALUES);
        assert_memory_equal(past.z, again.z, past.count * sizeof(double));
        for (size_t t = 0; t < past.count; t++)
            assert_true(isfinite(past.z[t]));
        seasonal += mean_difference(&past, 12) < mean_difference(&past, 6);
        bt_observed_release(&past);
        bt_observed_release(&again);
    }
    assert_in_range(seasonal, 75, 100); // in the others noise is larger
}

/* ---- series.json ------------------------------------------------------- */

static void series_json_is_read_back(void **state)
{
    (void)state;
    bauta_series *s = months(120);
    bauta_series_codec *codec = codec_for(s, 24), *back;
    char *text;
    assert_int_equal(bt_codec_write(&text, codec, NULL), 0);
    assert_int_equal(
        bt_codec_parse(&back, text, strlen(text), "series.json", NULL), 0);
    assert_int_equal(back->season, codec->season);
    assert_int_equal(back->lag, codec->lag);
    assert_int_equal(back->bins, codec->bins);
    assert_int_equal(back->window, codec->window);
    assert_int_equal(back->calendar, codec->calendar);
    assert_int_equal(back->log, codec->log);
    assert_int_equal(bauta_series_codec_trained(back, s, 0), 96);
    assert_int_equal(bauta_series_codec_trained(back, s, 1), 96);
    s->values[0][10] += 1.0;
    assert_int_equal(bauta_series_codec_trained(back, s, 0), 0);
    s->values[1][100] += 1.0; // after the rows that were trained on
    assert_int_equal(bauta_series_codec_trained(back, s, 1), 96);
    bt_free(text);
    bauta_series_codec_free(back);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

static void malformed_series_json_is_refused(void **state)
{
    (void)state;
    bauta_series *s = months(60);
    bauta_series_codec *codec = codec_for(s, 0), *back;
    test_random r = test_random_from(test_seed());
    char *text, changed[4096];
    size_t refused = 0;
    assert_int_equal(bt_codec_write(&text, codec, NULL), 0);
    assert_true(strlen(text) < sizeof(changed));
    for (size_t i = 0; i < 600; i++) {
        bauta_error err = { 0 };
        size_t size = mutate(&r, changed, text, strlen(text));
        bauta_status status =
            bt_codec_parse(&back, changed, size, "series.json", &err);
        assert_true(!back == !!status);
        if (status && !strstr(err.message, "series.json"))
            fail_msg("case %zu: %s", i, err.message);
        refused += status != BAUTA_OK;
        bauta_series_codec_free(back);
    }
    assert_true(refused > 500); // blanks may change
    bt_free(text);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

/* ---- baselines and scores ---------------------------------------------- */

static const double levels[] = { 0.1, 0.5, 0.9 };

static void baselines_continue_what_they_assume(void **state)
{
    (void)state;
    double values[48], out[3 * 8];
    for (size_t t = 0; t < 48; t++) // a season on a line
        values[t] = 50.0 + 2.0 * (double)t + 10.0 * (double)(t % 4);
    assert_int_equal(bauta_baseline_forecast(BAUTA_BASELINE_SEASONAL_NAIVE,
                                             values, 48, 4, levels, 3, 8, out,
                                             NULL),
                     0);
    for (size_t h = 0; h < 8; h++) {
        assert_true(out[8 + h] == values[44 + h % 4]);
        assert_true(out[h] < out[8 + h] && out[8 + h] < out[16 + h]);
    }
    assert_int_equal(bauta_baseline_forecast(BAUTA_BASELINE_DRIFT, values, 48,
                                             4, levels, 3, 8, out, NULL),
                     0);
    double slope = (values[47] - values[0]) / 47.0;
    for (size_t h = 0; h < 8; h++)
        assert_true(fabs(out[8 + h] - values[47] - slope * (double)(h + 1)) <
                    1e-9);
    for (size_t t = 0; t < 48; t++) // negative: no logarithms
        values[t] -= 1000.0;
    assert_int_equal(bauta_baseline_forecast(BAUTA_BASELINE_EXPONENTIAL, values,
                                             48, 4, levels, 3, 8, out, NULL),
                     0);
    for (size_t h = 0; h < 8; h++)
        assert_true(fabs(out[8 + h] - (-950.0 + 2.0 * (double)(48 + h) +
                                       10.0 * (double)(h % 4))) < 0.1);
    for (size_t t = 0; t < 48; t++)
        values[t] = NAN;
    assert_int_equal(bauta_baseline_forecast(BAUTA_BASELINE_DRIFT, values, 48,
                                             4, levels, 3, 8, out, NULL),
                     BAUTA_ERR_ARGUMENT);
}

static void scores_are_those_of_the_definition(void **state)
{
    (void)state;
    const double history[] = { 1, 2, 3, 5, NAN, 4 };
    const double truth[] = { 6, NAN, 10 };
    const double forecast[] = { 5, 0, 8, 7, 0, 9, 8, 0, 12 };
    bauta_forecast_score score = BAUTA_FORECAST_SCORE_INIT;
    assert_int_equal(bauta_forecast_evaluate(history, 6, 2, levels, 3, forecast,
                                             truth, 3, &score, NULL),
                     0);
    // Seasonal differences: 2, 3, missing, 1. Errors: 1 and 1.
    assert_true(fabs(score.mase - 1.0 / 2.0) < 1e-12);
    double pinball = 0.1 * 1 + 0.5 * 1 + 0.1 * 2 + 0.1 * 2 + 0.5 * 1 + 0.1 * 2;
    assert_true(fabs(score.weighted_quantile_loss -
                     2.0 * pinball / 3.0 / 16.0) < 1e-12);
}

/* ---- forecasts --------------------------------------------------------- */

static bauta_forecast *forecast(const bauta_model *model,
                                const bauta_series_codec *codec,
                                const bauta_series *series, size_t rows,
                                size_t samples, size_t horizon)
{
    bauta_forecast_options how = BAUTA_FORECAST_OPTIONS_INIT;
    bauta_forecast *f;
    bauta_error err;
    how.rows = rows;
    how.samples = samples;
    how.horizon = horizon;
    if (bauta_forecast_create(&f, context, model, codec, series, &how, &err))
        fail_msg("%s", err.message);
    return f;
}

/* Also where the horizon is longer than the context, which begins anew. */
static void paths_do_not_depend_on_their_number_or_later_rows(void **state)
{
    (void)state;
    bauta_series *s = months(120);
    bauta_series_codec *codec = codec_for(s, 24);
    bauta_model *model = model_for(codec);
    bauta_forecast *few = forecast(model, codec, s, 96, 3, 40);
    for (size_t c = 0; c < 2; c++)
        for (size_t t = 96; t < 120; t++)
            s->values[c][t] = NAN;
    bauta_forecast *many = forecast(model, codec, s, 96, 7, 40);
    bauta_forecast *shorter = forecast(model, codec, s, 96, 2, 5);
    for (size_t c = 0; c < 2; c++) {
        const double *a = bauta_forecast_paths(few, c);
        const double *b = bauta_forecast_paths(many, c);
        assert_memory_equal(a, b, 3 * 40 * sizeof(*a));
        for (size_t i = 0; i < 3 * 40; i++)
            assert_true(isfinite(a[i]));
        assert_int_equal(bauta_forecast_columns(shorter), 2);
    }
    bauta_forecast_free(few);
    bauta_forecast_free(many);
    bauta_forecast_free(shorter);
    bauta_model_free(model);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

static void quantiles_are_those_of_the_samples(void **state)
{
    (void)state;
    bauta_series *s = months(120);
    bauta_series_codec *codec = codec_for(s, 0);
    bauta_model *model = model_for(codec);
    bauta_forecast *f = forecast(model, codec, s, 0, 11, 6);
    const double *paths = bauta_forecast_paths(f, 0);
    double low[6], median[6], high[6];
    assert_int_equal(bauta_forecast_quantile(f, 0, 0.0, low, NULL), 0);
    assert_int_equal(bauta_forecast_quantile(f, 0, 0.5, median, NULL), 0);
    assert_int_equal(bauta_forecast_quantile(f, 0, 1.0, high, NULL), 0);
    for (size_t h = 0; h < 6; h++) {
        size_t below = 0, equal = 0;
        for (size_t i = 0; i < 11; i++) {
            double x = paths[i * 6 + h];
            assert_true(x >= low[h] && x <= high[h]);
            below += x < median[h];
            equal += x == median[h];
        }
        assert_true(below <= 5 && below + equal >= 6);
    }
    bauta_forecast_free(f);
    bauta_model_free(model);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

static void a_look_into_the_future_is_caught(void **state)
{
    (void)state;
    bauta_series *s = months(120);
    bauta_series_codec *codec = codec_for(s, 0);
    bauta_model *model = model_for(codec);
    char message[256];
    bauta_error err;
    for (int own = 0; own < 2; own++) {
        bool leaks = true;
        look_ahead = false;
        if (bauta_series_audit(context, model, codec, own ? NULL : s, 1, &leaks,
                               message, sizeof(message), &err))
            fail_msg("%s", err.message);
        assert_false(leaks);
        look_ahead = true;
        bauta_status status =
            bauta_series_audit(context, model, codec, own ? NULL : s, 1, &leaks,
                               message, sizeof(message), &err);
        look_ahead = false;
        assert_int_equal(status, BAUTA_OK);
        assert_true(leaks);
        assert_non_null(strstr(message, "the tokens of earlier values"));
    }
    bauta_model_free(model);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

static void tables_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    bauta_series *s = months(120), *plain;
    bauta_series_codec *codec = codec_for(s, 0);
    bauta_model *model = model_for(codec);
    double values[100] = { 0 };
    uint32_t token;
    size_t count;
    bauta_error err;
    assert_int_equal(bauta_series_create(&plain, values, 100, 1, NULL), 0);
    assert_int_equal(
        bauta_series_encode(codec, plain, 0, 100, &token, 1, &count, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no dates"));
    assert_int_equal(
        bauta_series_encode(codec, s, 0, 18, &token, 1, &count, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "needs more than 18"));
    codec->calendar = 0;
    codec->log = true;
    assert_int_equal(
        bauta_series_encode(codec, plain, 0, 100, &token, 1, &count, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "not positive"));
    bauta_series_free(plain);
    bauta_model_free(model);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
}

/* ---- memory ------------------------------------------------------------ */

/* Everything from the file to the forecast. */
static bauta_status whole(bauta_context *c, const char *path)
{
    bauta_series *s = NULL;
    bauta_series_codec *codec = NULL;
    bauta_tokenizer *tokenizer = NULL;
    bauta_corpus *corpus = NULL;
    bauta_model *model = NULL;
    bauta_forecast *f = NULL;
    bauta_train_options train = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_forecast_options how = BAUTA_FORECAST_OPTIONS_INIT;
    char *config = NULL;
    double out[2 * 3];
    how.samples = 2;
    how.horizon = 2;
    bauta_status status = bauta_series_load(&s, path, NULL, NULL);
    const bauta_series *table = s;
    if (!status)
        status = bauta_series_codec_create(&codec, &table, 1, NULL, NULL);
    if (!status)
        status = bauta_series_codec_tokenizer(&tokenizer, codec, NULL);
    if (!status)
        status = bauta_series_corpus(&corpus, codec, &table, 1, 0, NULL);
    if (!status)
        status = bauta_preset(&config, &train, "series-tiny", tokenizer,
                              "{\"n_layer\": 1, \"n_embd\": 8, "
                              "\"n_head\": 1, \"n_positions\": 16}",
                              NULL);
    if (!status)
        status = bauta_model_create(&model, config, 1, NULL);
    if (!status)
        status = bauta_forecast_create(&f, c, model, codec, s, &how, NULL);
    if (!status)
        status = bauta_forecast_quantile(f, 0, 0.5, out, NULL);
    if (!status)
        status = bauta_baseline_forecast(BAUTA_BASELINE_EXPONENTIAL,
                                         bauta_series_values(s, 0), 30, 4,
                                         levels, 3, 2, out, NULL);
    bauta_forecast_free(f);
    bauta_model_free(model);
    bauta_text_free(config);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
    bauta_series_codec_free(codec);
    bauta_series_free(s);
    return status;
}

static void every_failing_allocation_is_an_error(void **state)
{
    (void)state;
    char text[2000] = "date,x\n", path[512];
    bauta_context *own;
    for (size_t t = 0; t < 70; t++)
        snprintf(text + strlen(text), 40, "%zu-%02zu,%zu\n", 1990 + t / 4,
                 t % 4 * 3 + 1, 5 + t % 4 + t / 9);
    snprintf(path, sizeof(path), "%s",
             temp_folder_write(&files, "faults.csv", text, strlen(text)));
    faults_begin();
    assert_int_equal(bauta_context_create(&own, NULL, NULL), BAUTA_OK);
    assert_int_equal(whole(own, path), BAUTA_OK); // the context grows
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = whole(own, path);
        if (!faults_disarm())
            break;
        if (status != BAUTA_OK)
            assert_int_equal(status, BAUTA_ERR_NOMEM);
        if (faults_live() > live)
            fail_msg("allocation %zu: %zu blocks remain", k,
                     faults_live() - live);
    }
    bauta_context_free(own);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_has_dates_and_columns_of_numbers),
        cmocka_unit_test(columns_are_chosen_by_name),
        cmocka_unit_test(malformed_tables_are_refused_with_the_place),
        cmocka_unit_test(mutated_tables_are_read_or_refused),
        cmocka_unit_test(dates_count_every_day_of_four_centuries),
        cmocka_unit_test(invalid_dates_are_none),
        cmocka_unit_test(seasons_come_from_the_interval),
        cmocka_unit_test(tokens_give_the_values_back),
        cmocka_unit_test(scales_and_tokens_do_not_depend_on_later_values),
        cmocka_unit_test(extreme_values_have_a_token),
        cmocka_unit_test(the_lag_is_the_one_that_predicts_better),
        cmocka_unit_test(places_of_the_calendar_are_no_labels),
        cmocka_unit_test(a_short_table_is_filled_up_with_synthetic_series),
        cmocka_unit_test(synthetic_series_have_the_season),
        cmocka_unit_test(series_json_is_read_back),
        cmocka_unit_test(malformed_series_json_is_refused),
        cmocka_unit_test(baselines_continue_what_they_assume),
        cmocka_unit_test(scores_are_those_of_the_definition),
        cmocka_unit_test(paths_do_not_depend_on_their_number_or_later_rows),
        cmocka_unit_test(quantiles_are_those_of_the_samples),
        cmocka_unit_test(a_look_into_the_future_is_caught),
        cmocka_unit_test(tables_that_do_not_fit_are_refused),
    };
    const struct CMUnitTest memory[] = {
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    files = temp_folder_create();
    failed += cmocka_run_group_tests(memory, NULL, NULL);
    temp_folder_free(&files);
    return failed;
}

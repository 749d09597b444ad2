/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_series_csv.c - any bytes as a table.
 *
 * It is refused with a message, or has finite or missing values, dates that are
 * written as they were read, and tokens if it is long enough. */
#include "series/series.h"
#include "temp_folder.h"

#include <math.h>

static void codec_try(const bauta_series *series)
{
    bauta_series_codec *codec;
    bauta_error err = { 0 };
    bauta_status status =
        bauta_series_codec_create(&codec, &series, 1, NULL, &err);
    if (status) {
        must_refuse(status, &err);
        return;
    }
    for (size_t c = 0; c < bauta_series_columns(series); c++) {
        uint32_t tokens[64];
        size_t count;
        status =
            bauta_series_encode(codec, series, c, bauta_series_rows(series),
                                tokens, 64, &count, &err);
        if (status)
            must_refuse(status, &err);
    }
    bauta_series_codec_free(codec);
}

static void dates_check(const bauta_series *series)
{
    for (size_t i = 0; i < bauta_series_rows(series) + 2; i++) {
        char text[40];
        int64_t date;
        bt_date_form form;
        size_t length = bauta_series_date(series, i, text, sizeof(text));
        must(length < sizeof(text));
        if (i < bauta_series_rows(series)) {
            must(bt_date_parse(&date, &form, text, length));
            if (series->form != BT_DATE_MONTH)
                must(form == series->form && date == series->dates[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_series *series;
    bauta_error err = { 0 };
    temp_folder_make();
    temp_folder_put("table.csv", bytes, size);
    bauta_status status =
        bauta_series_load(&series, temp_folder_path("table.csv"), NULL, &err);
    must(!series == !!status);
    if (status) {
        must_refuse(status, &err);
        return 0;
    }
    must(bauta_series_rows(series) > 0 && bauta_series_columns(series) > 0);
    for (size_t c = 0; c < bauta_series_columns(series); c++)
        for (size_t i = 0; i < bauta_series_rows(series); i++)
            must(!isinf(bauta_series_values(series, c)[i]));
    if (bauta_series_has_dates(series))
        dates_check(series);
    codec_try(series);
    bauta_series_free(series);
    return 0;
}

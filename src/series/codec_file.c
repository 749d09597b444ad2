/* SPDX-License-Identifier: Apache-2.0 */
/* codec_file.c - series.json, and the tokenizer that carries it.
 *
 * The tokens of a codec are characters to the rest of the library: bin b is
 * U+3400 + b, and places of the calendar follow. So a model of series is a
 * model folder like any other. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/json.h"
#include "formats/run_folder.h"
#include "formats/sealed_json.h"
#include "series/codec.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "series.json";

/* ---- writing ----------------------------------------------------------- */

static json_t *trained_json(const bauta_series_codec *codec)
{
    json_t *all = json_array();
    bool failed = !all;
    for (size_t i = 0; i < codec->trained_count && !failed; i++) {
        char digest[20];
        snprintf(digest, sizeof(digest), "%016" PRIx64,
                 codec->trained[i].digest);
        failed = json_array_append_new(
            all,
            json_pack("{s:I,s:s}", "rows", (json_int_t)codec->trained[i].rows,
                      "digest", digest));
    }
    if (failed) {
        json_decref(all);
        return NULL;
    }
    return all;
}

bauta_status bt_codec_write(char **out, const bauta_series_codec *codec,
                            bauta_error *err)
{
    *out = NULL;
    json_t *trained = trained_json(codec);
    json_t *all =
        trained
            ? json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:b,s:o}", "format", 1,
                        "season", (json_int_t)codec->season, "lag",
                        (json_int_t)codec->lag, "bins", (json_int_t)codec->bins,
                        "window", (json_int_t)codec->window, "calendar",
                        (json_int_t)codec->calendar, "log", (int)codec->log,
                        "trained", trained)
            : NULL;
    bauta_status status = all ? bt_sealed_json_text(out, all, file_name, err)
                              : bt_fail_memory(err, file_name, 0);
    json_decref(all);
    return status;
}

/* ---- reading ----------------------------------------------------------- */

/* A member from `min` to `max`. */
static bauta_status size_read(size_t *out, const json_t *from, const char *key,
                              size_t min, size_t max, const char *path,
                              bauta_error *err)
{
    json_t *value = bt_json_get(from, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < (json_int_t)min || number > (json_int_t)max)
        return bt_json_fail_member(path, key, value, "which is out of range",
                                   err);
    *out = (size_t)number;
    return BAUTA_OK;
}

static bauta_status settings_read(bauta_series_codec *codec, const json_t *from,
                                  const char *path, bauta_error *err)
{
    const struct {
        const char *key;
        size_t *to, min, max;
    } members[] = {
        { "format", &codec->window, 1, 1 },
        { "season", &codec->season, 1, BT_SEASON_MAX },
        { "lag", &codec->lag, 1, BT_SEASON_MAX },
        { "bins", &codec->bins, BT_BINS_MIN, BT_BINS_MAX },
        { "window", &codec->window, 1, 4 * BT_SEASON_MAX },
        { "calendar", &codec->calendar, 0, BT_CALENDAR_MAX },
    };
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < BT_LEN(members) && !status; i++)
        status = size_read(members[i].to, from, members[i].key, members[i].min,
                           members[i].max, path, err);
    json_t *log = bt_json_get(from, "log");
    if (!status && !json_is_boolean(log))
        status = bt_json_fail_member(path, "log", log,
                                     "which is not true or false", err);
    codec->log = json_is_true(log);
    return status;
}

static bauta_status trained_read(bauta_series_codec *codec, const json_t *from,
                                 const char *path, bauta_error *err)
{
    json_t *all = bt_json_get(from, "trained");
    size_t count = json_array_size(all);
    if (!json_is_array(all) || count > BT_TRAINED_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: trained is not an array of up to %d objects",
                       bt_path_tail(path), BT_TRAINED_MAX);
    codec->trained = bt_alloc_zero(count, sizeof(*codec->trained));
    if (!codec->trained)
        return bt_fail_memory(err, "a codec", count * sizeof(*codec->trained));
    for (size_t i = 0; i < count; i++) {
        bt_trained_column *to = &codec->trained[i];
        const json_t *item = json_array_get(all, i);
        const char *digest = json_string_value(json_object_get(item, "digest"));
        bauta_status status = size_read(&to->rows, item, "rows", 0,
                                        BT_SERIES_CELLS_MAX, path, err);
        if (status)
            return status;
        if (!digest || strspn(digest, "0123456789abcdef") != 16 || digest[16])
            return bt_fail(err, BAUTA_ERR_FORMAT,
                           "%s: a digest is not 16 hexadecimal digits",
                           bt_path_tail(path));
        to->digest = strtoull(digest, NULL, 16);
        codec->trained_count++;
    }
    return BAUTA_OK;
}

bauta_status bt_codec_parse(bauta_series_codec **out, const char *text,
                            size_t size, const char *path, bauta_error *err)
{
    json_t *from;
    *out = NULL;
    bauta_status status = bt_sealed_json_parse(&from, text, size, path, err);
    if (status)
        return status;
    bauta_series_codec *codec = bt_alloc_zero(1, sizeof(*codec));
    status = codec ? settings_read(codec, from, path, err)
                   : bt_fail_memory(err, "a codec", sizeof(*codec));
    if (!status)
        status = trained_read(codec, from, path, err);
    json_decref(from);
    if (status)
        bauta_series_codec_free(codec);
    else
        *out = codec;
    return status;
}

static bauta_status file_load(bauta_series_codec **out, const char *path,
                              bauta_error *err)
{
    char *text;
    size_t size;
    bauta_status status =
        bt_file_read(&text, &size, path, BT_SEALED_JSON_MAX, err);
    if (!status)
        status = bt_codec_parse(out, text, size, path, err);
    bt_free(text);
    return status;
}

static bauta_status folder_load(bauta_series_codec **out, const char *folder,
                                bool *found, bauta_error *err)
{
    char *path = bt_path_join(folder, file_name);
    if (!path)
        return bt_fail_memory(err, "a path", strlen(folder));
    *found = bt_file_exists(path);
    bauta_status status = *found ? file_load(out, path, err) : BAUTA_OK;
    bt_free(path);
    return status;
}

bauta_status bauta_series_codec_load(bauta_series_codec **out,
                                     const char *folder, bauta_error *err)
{
    bool found;
    char *checkpoint = NULL;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(folder, err);
    bauta_status status = folder_load(out, folder, &found, err);
    if (status || found)
        return status;
    if (!bt_run_resolve(&checkpoint, folder, NULL))
        status = folder_load(out, checkpoint, &found, err);
    bt_free(checkpoint);
    if (!status && !found)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%s has no series.json: it is not a model of series, "
                         "which 'bauta train --series' trains",
                         bt_path_tail(folder));
    return status;
}

/* ---- the tokenizer ----------------------------------------------------- */

enum { FIRST_CHARACTER = 0x3400 };

bauta_status bauta_series_codec_tokenizer(bauta_tokenizer **out,
                                          const bauta_series_codec *codec,
                                          bauta_error *err)
{
    char *text = NULL;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(codec, err);
    uint64_t *set = bt_alloc_zero(BT_CHAR_SET_WORDS, sizeof(*set));
    if (!set)
        return bt_fail_memory(err, "a vocabulary", 8 * BT_CHAR_SET_WORDS);
    for (size_t i = 0; i < codec->bins + codec->calendar; i++) {
        size_t code = FIRST_CHARACTER + i;
        set[code / 64] |= UINT64_C(1) << code % 64;
    }
    bauta_status status = bt_codec_write(&text, codec, err);
    if (!status)
        status = bt_tokenizer_create_characters(out, set, err);
    if (!status)
        bt_tokenizer_store_file(*out, file_name, text, strlen(text));
    else
        bt_free(text);
    bt_free(set);
    return status;
}

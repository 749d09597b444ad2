/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_series_json.c - any bytes as the series.json of a model; and an object
 * as one that is sealed, so that its members are read.
 *
 * It is refused with a message, or is written and read back the same. */
#include "base/memory.h"
#include "checks.h"
#include "formats/sealed_json.h"
#include "series/codec.h"

#include <jansson.h>
#include <string.h>

static void text_try(const char *text, size_t size)
{
    bauta_series_codec *codec, *again;
    bauta_error err = { 0 };
    char *written;
    bauta_status status =
        bt_codec_parse(&codec, text, size, "series.json", &err);
    must(!codec == !!status);
    if (status) {
        must_refuse(status, &err);
        return;
    }
    must(!bt_codec_write(&written, codec, &err));
    must(
        !bt_codec_parse(&again, written, strlen(written), "series.json", &err));
    must(again->season == codec->season && again->lag == codec->lag &&
         again->bins == codec->bins && again->window == codec->window &&
         again->calendar == codec->calendar && again->log == codec->log &&
         again->trained_count == codec->trained_count);
    bt_free(written);
    bauta_series_codec_free(again);
    bauta_series_codec_free(codec);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_error err;
    char *sealed;
    text_try((const char *)bytes, size);
    json_t *object =
        json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(object) &&
        !bt_sealed_json_text(&sealed, object, "series.json", &err)) {
        text_try(sealed, strlen(sealed));
        bt_free(sealed);
    }
    json_decref(object);
    return 0;
}

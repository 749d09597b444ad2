/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.h - the "pre_tokenizer" of a tokenizer.json, which divides a
 * text into splits for the subword model.
 *
 * ByteLevel is special: in the file the model works on an alphabet of 256
 * characters that represent bytes; here it works on the bytes themselves (see
 * bytelevel.h), so ByteLevel only splits and may prepend a space. Later steps
 * see that alphabet and may split within a character. */
#ifndef BT_PRETOKENIZER_H
#define BT_PRETOKENIZER_H

#include "text/pretokenize/split.h"

#include <jansson.h>

typedef struct bt_pretokenizer bt_pretokenizer;

/* Parse the value of "pre_tokenizer"; *out is NULL for null. */
bauta_status bt_pretokenizer_parse(bt_pretokenizer **out, const json_t *json,
                                   const char *path, bauta_error *err);
void bt_pretokenizer_free(bt_pretokenizer *pretokenizer);

/* Whether one of its steps is ByteLevel. */
bool bt_pretokenizer_bytelevel(const bt_pretokenizer *pretokenizer);

/* Divide all splits that are not added tokens; NULL changes nothing. */
bauta_status bt_pretokenizer_run(const bt_pretokenizer *pretokenizer,
                                 bt_splits *splits, bauta_error *err);
/* The same, but the splits of the last step are passed on to `taker` as they
 * are made; the list is undefined afterwards. */
bauta_status bt_pretokenizer_stream(const bt_pretokenizer *pretokenizer,
                                    bt_splits *splits,
                                    const bt_split_sink *taker,
                                    bauta_error *err);

#endif

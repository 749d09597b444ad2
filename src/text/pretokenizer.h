/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.h - where a text is cut before the subword model sees it: the
 * "pre_tokenizer" of a tokenizer.json.
 *
 * ByteLevel is special: in the file the model works on an alphabet of 256
 * characters that stand for bytes; here it works on the bytes themselves (see
 * bytelevel.h), so ByteLevel only cuts and may put a space in front. Steps
 * behind it see that alphabet, and may then cut within a character. */
#ifndef BT_PRETOKENIZER_H
#define BT_PRETOKENIZER_H

#include "text/split.h"

#include <jansson.h>

typedef struct bt_pretokenizer bt_pretokenizer;

/* From the value of "pre_tokenizer"; *out is NULL for null. */
bauta_status bt_pretokenizer_parse(bt_pretokenizer **out, const json_t *json,
                                   const char *path, bauta_error *err);
void bt_pretokenizer_free(bt_pretokenizer *pretokenizer);

/* Whether one of its steps is ByteLevel. */
bool bt_pretokenizer_bytelevel(const bt_pretokenizer *pretokenizer);

/* Cut all splits that are not tokens; NULL leaves them as they are. */
bauta_status bt_pretokenizer_run(const bt_pretokenizer *pretokenizer,
                                 bt_splits *splits, bauta_error *err);
/* The same, and the last step's splits go to `taker` as they are made; what is
 * left in the list then says nothing. */
bauta_status bt_pretokenizer_give(const bt_pretokenizer *pretokenizer,
                                  bt_splits *splits,
                                  const bt_splits_taker *taker,
                                  bauta_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* template.h - what is put around a text: the "post_processor" of a
 * tokenizer.json, such as [CLS] A [SEP] B [SEP].
 *
 * All kinds (TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel,
 * a Sequence of them) come down to two lists, one for a single text and one
 * for a pair. */
#ifndef BT_TEMPLATE_H
#define BT_TEMPLATE_H

#include "bauta.h"

#include <jansson.h>

enum { BT_TEMPLATE_A = UINT32_MAX - 1, BT_TEMPLATE_B = UINT32_MAX - 2 };

typedef struct bt_template_item {
    uint32_t id; /* a token, or BT_TEMPLATE_A or _B: the text's own tokens */
    uint32_t type;
} bt_template_item;

typedef struct bt_template {
    bt_template_item *items;
    size_t count, room;
} bt_template;

/* From the value of "post_processor", which may be null: then A, and A B with
 * types 0 and 1. Ids must be below `vocabulary`. Where a text is to be encoded
 * bare, only its A and B are used. Release both in any case. */
bauta_status bt_template_parse(bt_template *single, bt_template *pair,
                               const json_t *json, size_t vocabulary,
                               const char *path, bauta_error *err);
/* `before` A `behind`; and for pairs, B and `behind` once more follow, of type
 * 1. */
bauta_status bt_template_around(bt_template *single, bt_template *pair,
                                const uint32_t *before, size_t before_count,
                                const uint32_t *behind, size_t behind_count,
                                bauta_error *err);
void bt_template_release(bt_template *t);

#endif

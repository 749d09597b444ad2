/* SPDX-License-Identifier: Apache-2.0 */
/* post_processor.h - the "post_processor" of a tokenizer.json, which puts
 * special tokens around a text: [CLS] A [SEP] B [SEP].
 *
 * All types (TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel,
 * a Sequence of them) are reduced to two templates, one for a single text and
 * one for a pair. */
#ifndef BT_POST_PROCESSOR_H
#define BT_POST_PROCESSOR_H

#include "bauta.h"

#include <jansson.h>

enum { BT_TEMPLATE_A = UINT32_MAX - 1, BT_TEMPLATE_B = UINT32_MAX - 2 };

typedef struct bt_template_item {
    uint32_t id; /* a token, or BT_TEMPLATE_A or _B: the tokens of a text */
    uint32_t type;
} bt_template_item;

typedef struct bt_template {
    bt_template_item *items;
    size_t count, room;
} bt_template;

/* Parse the value of "post_processor". If it is null the templates are A, and A
 * B with types 0 and 1. Ids must be below `vocab_size`. Without special tokens
 * only A and B of a template are used. Both are empty after a failure. */
bauta_status bt_template_parse(bt_template *single, bt_template *pair,
                               const json_t *json, size_t vocab_size,
                               const char *path, bauta_error *err);
/* The templates `before` A `after`, and `before` A `after` B `after`, where B
 * and its `after` have type 1. */
bauta_status bt_template_wrap(bt_template *single, bt_template *pair,
                              const uint32_t *before, size_t before_count,
                              const uint32_t *after, size_t after_count,
                              bauta_error *err);
void bt_template_release(bt_template *t);

#endif

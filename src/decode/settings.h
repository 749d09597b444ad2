/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - generation options from the texts of a model's files. */
#ifndef BT_DECODE_SETTINGS_H
#define BT_DECODE_SETTINGS_H

#include "model/generation_lists.h"

/* `generation` is the text of a generation_config.json, or NULL; `config` that
 * of the config.json; `phrases` are theirs, and outlive the options. Tokens
 * that the vocabulary does not have end nothing and need not be forbidden, so
 * they are left out. */
bauta_status bt_settings_parse(bauta_generate_options *options,
                               const bt_phrases *phrases,
                               const char *generation, size_t generation_size,
                               const char *config, size_t config_size,
                               size_t vocab, bauta_error *err);

#endif

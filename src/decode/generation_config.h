/* SPDX-License-Identifier: Apache-2.0 */
/* generation_config.h - generation options from a model's files. */
#ifndef BT_GENERATION_CONFIG_H
#define BT_GENERATION_CONFIG_H

#include "model/generation_lists.h"

/* `generation` is the text of generation_config.json, or NULL; `config` is that
 * of config.json. `lists` come from the same files and outlive the options.
 * Tokens outside of the vocabulary cannot occur and are left out. */
bauta_status bt_generation_config_parse(bauta_generate_options *options,
                                        const bt_generation_lists *lists,
                                        const char *generation,
                                        size_t generation_size,
                                        const char *config, size_t config_size,
                                        size_t vocab, bauta_error *err);

/* The same from the files of a model. */
bauta_status bt_generation_config_load(bauta_generate_options *options,
                                       const bauta_model *model,
                                       bauta_error *err);

#endif

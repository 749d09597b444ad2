/* SPDX-License-Identifier: Apache-2.0 */
/* preset.h - the presets, a table: see presets.c. */
#ifndef BT_PRESET_H
#define BT_PRESET_H

#include "bauta.h"

typedef struct bt_preset {
    const char *name, *summary;
    const char *config; /* as Hugging Face writes it, with every key that may
                           be replaced; token ids and vocabulary are null */
    bauta_train_options options;
} bt_preset;

/* Number `index`, or NULL behind the last. */
const bt_preset *bt_preset_at(size_t index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* decode_sequence.h - the queries of one sequence in a step of paged decoding,
 * as the GPU's work lists are built from them. */
#ifndef BT_DECODE_SEQUENCE_H
#define BT_DECODE_SEQUENCE_H

#include "bauta.h"

typedef struct bt_decode_sequence {
    const bauta_mask *mask;
    size_t first, rows;          /* of the mask */
    const uint32_t *block_table; /* in host memory */
} bt_decode_sequence;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* trail.h - the new tokens of one request, of all its beams, as a tree.
 *
 * A beam is a node, and its tokens are the way from there to the root; so beams
 * that begin alike hold what they share once, and none is ever copied. */
#ifndef BT_TRAIL_H
#define BT_TRAIL_H

#include <stddef.h>
#include <stdint.h>

#define BT_NO_NODE UINT32_MAX

typedef struct bt_node {
    uint32_t parent, token;
    float logprob;
} bt_node;

typedef struct bt_trail {
    bt_node *nodes;
    size_t count, room;
} bt_trail;

/* Room for so many nodes more; -1 without memory. */
int bt_trail_reserve(bt_trail *trail, size_t more);
/* A token behind a node; there is room. Returns its node. */
uint32_t bt_trail_add(bt_trail *trail, uint32_t parent, uint32_t token,
                      float logprob);
/* The tokens up to a node, of which there are `count`; either may be NULL. */
void bt_trail_read(const bt_trail *trail, uint32_t node, size_t count,
                   uint32_t *tokens, float *logprobs);
/* How many. */
size_t bt_trail_length(const bt_trail *trail, uint32_t node);
void bt_trail_release(bt_trail *trail);

#endif

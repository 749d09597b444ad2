/* SPDX-License-Identifier: Apache-2.0 */
/* trail.c - a tree of tokens that only grows; see trail.h. */
#include "decode/trail.h"

#include "base/array.h"
#include "base/memory.h"

int bt_trail_reserve(bt_trail *trail, size_t more)
{
    if (trail->count + more >= BT_NO_NODE)
        return -1;
    return BT_ROOM(trail->nodes, trail->room, trail->count, more);
}

uint32_t bt_trail_add(bt_trail *trail, uint32_t parent, uint32_t token,
                      float logprob)
{
    trail->nodes[trail->count] = (bt_node){ parent, token, logprob };
    return (uint32_t)trail->count++;
}

void bt_trail_read(const bt_trail *trail, uint32_t node, size_t count,
                   uint32_t *tokens, float *logprobs)
{
    while (count-- > 0) {
        const bt_node *n = &trail->nodes[node];
        if (tokens)
            tokens[count] = n->token;
        if (logprobs)
            logprobs[count] = n->logprob;
        node = n->parent;
    }
}

size_t bt_trail_length(const bt_trail *trail, uint32_t node)
{
    size_t length = 0;
    for (; node != BT_NO_NODE; node = trail->nodes[node].parent)
        length++;
    return length;
}

void bt_trail_release(bt_trail *trail)
{
    bt_free(trail->nodes);
    *trail = (bt_trail){ NULL, 0, 0 };
}

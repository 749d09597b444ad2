/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - arrays that grow.
 *
 *     uint32_t *ids = NULL;
 *     size_t count = 0, room = 0;
 *     if (BT_ROOM(ids, room, count, 1))     // for one more
 *         return bt_fail_memory(err, "tokens", sizeof(*ids));
 *     ids[count++] = id;
 *     bt_free(ids); */
#ifndef BT_ARRAY_H
#define BT_ARRAY_H

#include <stddef.h>

/* Make room for `more` elements of `size` bytes behind the `count` that *array
 * (NULL, or from here) holds; *room is how many it has room for. Grows by
 * half, so that n additions cost O(n). Returns 0, or -1 when there is no
 * memory, and the array is then as it was. Use BT_ROOM. */
int bt_array_grow(void **array, size_t *room, size_t count, size_t more,
                  size_t size);

#define BT_ROOM(array, room, count, more)                             \
    ((room) - (count) >= (size_t)(more)                               \
         ? 0                                                          \
         : bt_array_grow((void **)&(array), &(room), (count), (more), \
                         sizeof(*(array))))

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - growable arrays.
 *
 *     uint32_t *ids = NULL;
 *     size_t count = 0, capacity = 0;
 *     if (BT_ARRAY_RESERVE(ids, capacity, count, 1)) // for one more
 *         return bt_fail_memory(err, "tokens", sizeof(*ids));
 *     ids[count++] = id;
 *     bt_free(ids); */
#ifndef BT_ARRAY_H
#define BT_ARRAY_H

#include <stddef.h>

/* Grow *array, which is NULL or came from here and holds `count` elements of
 * `size` bytes, to a capacity of at least count + more. The capacity grows by
 * half, so n appends cost O(n). Returns 0, or -1 when there is no memory; the
 * array is then unchanged. Call it through BT_ARRAY_RESERVE. */
int bt_array_grow(void **array, size_t *capacity, size_t count, size_t more,
                  size_t size);

#define BT_ARRAY_RESERVE(array, capacity, count, more)                    \
    ((capacity) - (count) >= (size_t)(more)                               \
         ? 0                                                              \
         : bt_array_grow((void **)&(array), &(capacity), (count), (more), \
                         sizeof(*(array))))

#endif

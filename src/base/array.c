/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - growable arrays: allocate, copy, free. */
#include "base/array.h"

#include "base/memory.h"
#include "base/size.h"

#include <string.h>

int bt_array_grow(void **array, size_t *capacity, size_t count, size_t more,
                  size_t size)
{
    size_t need = bt_size_add(count, more);
    size_t larger = bt_size_max(need, bt_size_add(*capacity, *capacity / 2));
    void *grown = bt_alloc(bt_size_mul(bt_size_max(larger, 16), size));
    if (!grown)
        return -1;
    if (count)
        memcpy(grown, *array, count * size);
    bt_free(*array);
    *array = grown;
    *capacity = bt_size_max(larger, 16);
    return 0;
}

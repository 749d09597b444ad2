/* SPDX-License-Identifier: Apache-2.0 */
/* sized.c - copy structs whose size is the caller's. */
#include "base/sized.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

static size_t size_of(const void *from)
{
    size_t size;
    memcpy(&size, from, sizeof(size));
    return size;
}

/* A sizeof that the compiler can have computed: the size and at least one more
 * word, in whole words, since the size is a word itself. */
static bool size_possible(size_t size)
{
    return size >= 2 * sizeof(size_t) && size <= BT_SIZED_MAX &&
           size % sizeof(size_t) == 0;
}

bauta_status bt_sized_check(const void *from, const char *name,
                            const char *init, bauta_error *err)
{
    size_t size = size_of(from);
    if (size_possible(size))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s.size is %zu, which no version of the struct has: start "
                   "from %s",
                   name, size, init);
}

/* What this library does not know must be 0: the default of every field that
 * is ever added. */
static bauta_status unknown_check(const unsigned char *from, size_t known,
                                  const char *name, bauta_error *err)
{
    size_t size = size_of(from);
    for (size_t i = known; i < size; i++)
        if (from[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: a field at byte %zu of %zu is set; bauta %s "
                           "knows the first %zu bytes of the struct",
                           name, i / sizeof(size_t) * sizeof(size_t), size,
                           bauta_version(), known);
    return BAUTA_OK;
}

bauta_status bt_sized_read(void *to, size_t known, const void *from,
                           const char *name, const char *init, bauta_error *err)
{
    if (!from)
        return BAUTA_OK;
    bauta_status status = bt_sized_check(from, name, init, err);
    if (!status)
        status = unknown_check(from, known, name, err);
    if (status)
        return status;
    memcpy(to, from, bt_size_min(size_of(from), known));
    memcpy(to, &known, sizeof(known));
    return BAUTA_OK;
}

bauta_status bt_sized_element(void *to, size_t known, const void *array,
                              size_t index, const char *name, const char *init,
                              bauta_error *err)
{
    char element[64];
    size_t stride = size_of(array);
    snprintf(element, sizeof(element), "%s[%zu]", name, index);
    if (!size_possible(stride))
        return bt_sized_check(array, element, init, err);
    const unsigned char *from = (const unsigned char *)array + index * stride;
    if (size_of(from) != stride)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s.size is %zu, and that of the first is %zu: start "
                       "each from %s",
                       element, size_of(from), stride, init);
    return bt_sized_read(to, known, from, element, init, err);
}

void bt_sized_write(void *to, const void *from, size_t known)
{
    size_t size = bt_size_min(size_of(to), known);
    memcpy((unsigned char *)to + sizeof(size),
           (const unsigned char *)from + sizeof(size), size - sizeof(size));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sized.h - structs of the caller whose first field is `size`.
 *
 * The caller may have been compiled against an older or a newer header, so its
 * struct may be smaller or larger than the library's. An input is copied into a
 * struct of the library before any field is read; an output is filled in a
 * struct of the library and copied back. See the conventions in bauta.h. */
#ifndef BT_SIZED_H
#define BT_SIZED_H

#include "base/error.h"

/* The largest `size` that is believed; a larger one was never initialised. */
enum { BT_SIZED_MAX = 4096 };

/* The caller's structs by their type, so that the macros below do not compile
 * with a pointer to another one. */
#define BT_SIZED_SAME(own, theirs) (1 ? (theirs) : (own))

/* Set *to to its defaults, `init` (a BAUTA_..._INIT), and copy the caller's
 * struct over them; NULL leaves the defaults. `name` is the argument in error
 * messages. Returns a status. */
#define BT_SIZED_READ(to, init, from, name, err)                            \
    (*(to) = (__typeof__(*(to)))init,                                       \
     bt_sized_read(to, sizeof(*(to)), BT_SIZED_SAME(to, from), name, #init, \
                   err))

/* The same for element `index` of an array, whose stride is the size of its
 * first element. All elements must have that size. */
#define BT_SIZED_ELEMENT(to, init, array, index, name, err)               \
    (*(to) = (__typeof__(*(to)))init,                                     \
     bt_sized_element(to, sizeof(*(to)), BT_SIZED_SAME(to, array), index, \
                      name, #init, err))

/* Check the size of a struct that the library is to fill. Bytes that the
 * library does not know may hold anything and are left unchanged. */
#define BT_SIZED_CHECK(to, init, name, err) bt_sized_check(to, name, #init, err)

/* Copy a struct of the library to the caller's: no more than the caller's size,
 * which has been checked and is kept. */
#define BT_SIZED_WRITE(to, from) \
    ((void)BT_SIZED_SAME(from, to), bt_sized_write(to, from, sizeof(*(from))))

bauta_status bt_sized_read(void *to, size_t known, const void *from,
                           const char *name, const char *init,
                           bauta_error *err);
bauta_status bt_sized_element(void *to, size_t known, const void *array,
                              size_t index, const char *name, const char *init,
                              bauta_error *err);
bauta_status bt_sized_check(const void *from, const char *name,
                            const char *init, bauta_error *err);
void bt_sized_write(void *to, const void *from, size_t known);

#endif

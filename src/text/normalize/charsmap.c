/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.c - a lookup in the double-array trie; see charsmap.h.
 *
 * A unit of the array, as darts-clone lays it out:
 *
 *     bits 0-7    the label: the byte that leads here
 *     bit  8      whether a key ends here: its value is at the offset itself
 *     bit  9      whether the offset is counted in units of 256
 *     bits 10-30  where the children are, XORed with the position of this unit
 *     bit  31     set in a unit that holds a value, in bits 0-30
 *
 * The child for byte b of unit i is at i ^ offset ^ b. */
#include "text/normalize/charsmap.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

/* Far above any real map. A crafted trie may have cycles, and a long form for
 * every character would exhaust the memory. */
enum { KEY_MAX = 256, FORM_MAX = 1024 };

struct bt_charsmap {
    uint32_t *units;
    size_t count;
    const char *forms; /* after the units; the last byte is NUL */
    size_t forms_size; /* with that NUL */
};

static uint32_t unit_read(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

/* Forms must be UTF-8, so that mapped texts are too. */
static bauta_status forms_check(const char *forms, size_t size,
                                const char *path, bauta_error *err)
{
    size_t valid = bt_utf8_valid_prefix(forms, size);
    if (valid != size)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the map of characters is not UTF-8 at byte %zu of "
                       "its forms",
                       bt_path_tail(path), valid);
    for (size_t at = 0, length; at < size; at += length + 1) {
        length = strnlen(forms + at, size - at);
        if (length > FORM_MAX)
            return bt_fail(err, BAUTA_ERR_FORMAT,
                           "%s: the map of characters has a form of %zu bytes; "
                           "at most %d are supported",
                           bt_path_tail(path), length, FORM_MAX);
    }
    return BAUTA_OK;
}

static bauta_status map_fill(bt_charsmap *map, const unsigned char *trie,
                             size_t size, size_t forms_size, bauta_error *err)
{
    map->count = size / 4;
    map->forms_size = forms_size + 1;
    map->units = bt_alloc(size + map->forms_size);
    if (!map->units)
        return bt_fail_memory(err, "a map of characters",
                              size + map->forms_size);
    for (size_t i = 0; i < map->count; i++)
        map->units[i] = unit_read(trie + 4 * i);
    char *forms = (char *)(map->units + map->count);
    memcpy(forms, trie + size, forms_size);
    forms[forms_size] = 0;
    map->forms = forms;
    return BAUTA_OK;
}

bauta_status bt_charsmap_create(bt_charsmap **out, const void *bytes,
                                size_t size, const char *path, bauta_error *err)
{
    *out = NULL;
    if (size < 4)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the map of characters has only %zu bytes",
                       bt_path_tail(path), size);
    size_t trie = unit_read(bytes);
    if (trie > size - 4 || trie % 4 != 0 || trie == 0)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the map of characters has %zu bytes and a trie of "
                       "%zu",
                       bt_path_tail(path), size, trie);
    bt_charsmap *map = bt_alloc_zero(1, sizeof(*map));
    if (!map)
        return bt_fail_memory(err, "a map of characters", sizeof(*map));
    bauta_status status = map_fill(map, (const unsigned char *)bytes + 4, trie,
                                   size - 4 - trie, err);
    if (!status)
        status = forms_check(map->forms, map->forms_size - 1, path, err);
    if (status) {
        bt_charsmap_free(map);
        return status;
    }
    *out = map;
    return BAUTA_OK;
}

void bt_charsmap_free(bt_charsmap *map)
{
    if (map)
        bt_free(map->units);
    bt_free(map);
}

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The offset of the form of a key that ends at `unit`, or SIZE_MAX; `children`
 * is the position of its children. */
static size_t form_of(const bt_charsmap *map, uint32_t unit, uint32_t children)
{
    if (!(unit & 1u << 8) || children >= map->count)
        return SIZE_MAX;
    size_t at = map->units[children] & ~(1u << 31);
    if (at >= map->forms_size || bt_utf8_continues(map->forms[at]))
        return SIZE_MAX;
    return at;
}

size_t bt_charsmap_find(const bt_charsmap *map, const char *text, size_t size,
                        bool longest, const char **form, size_t *form_size)
{
    size_t found = 0, at = 0;
    uint32_t position = unit_offset(map->units[0]);
    for (size_t i = 0; i < size && i < KEY_MAX; i++) {
        unsigned char byte = (unsigned char)text[i];
        position ^= byte;
        if (position >= map->count)
            break;
        uint32_t unit = map->units[position];
        if ((unit & (1u << 31 | 0xFF)) != byte)
            break;
        position ^= unit_offset(unit);
        size_t begin = form_of(map, unit, position);
        if (begin == SIZE_MAX ||
            (i + 1 < size && bt_utf8_continues(text[i + 1])))
            continue;
        found = i + 1;
        at = begin;
        if (!longest)
            break;
    }
    *form = map->forms + at;
    *form_size = found ? strlen(*form) : 0;
    return found;
}

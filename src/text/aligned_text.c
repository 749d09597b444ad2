/* SPDX-License-Identifier: Apache-2.0 */
/* aligned_text.c - see aligned_text.h. */
#include "text/aligned_text.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"

#include <string.h>

enum { ROOM_MIN = 64 };

void bt_aligned_text_init_empty(bt_aligned_text *text)
{
    *text = (bt_aligned_text){ .bytes = "" };
}

void bt_aligned_text_release(bt_aligned_text *text)
{
    bt_free(text->owned);
    bt_free(text->origins);
    bt_aligned_text_init_empty(text);
}

void bt_aligned_text_replace(bt_aligned_text *text, bt_aligned_text *other)
{
    bt_aligned_text_release(text);
    *text = *other;
    bt_aligned_text_init_empty(other);
}

static bauta_status fail_size(size_t size, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "a text of %zu bytes is too long; it must be below 4 GiB",
                   size);
}

/* Grow both blocks, or neither if memory runs out. */
static bauta_status text_grow(bt_aligned_text *text, size_t more,
                              bauta_error *err)
{
    size_t need = bt_size_add(text->size, more);
    if (need >= UINT32_MAX)
        return fail_size(need, err);
    size_t room = bt_size_max(need, text->capacity + text->capacity / 2);
    room = bt_size_max(room, ROOM_MIN);
    char *own = bt_alloc(room);
    bt_origin *origins = bt_alloc(room * sizeof(*origins));
    if (!own || !origins) {
        bt_free(own);
        bt_free(origins);
        return bt_fail_memory(err, "a text", room * (1 + sizeof(*origins)));
    }
    if (text->size) {
        memcpy(own, text->owned, text->size);
        memcpy(origins, text->origins, text->size * sizeof(*origins));
    }
    bt_free(text->owned);
    bt_free(text->origins);
    text->bytes = text->owned = own;
    text->origins = origins;
    text->capacity = room;
    return BAUTA_OK;
}

bauta_status bt_aligned_text_reserve(bt_aligned_text *text, size_t more,
                                     bauta_error *err)
{
    return text->capacity - text->size >= more ? BAUTA_OK
                                               : text_grow(text, more, err);
}

bauta_status bt_aligned_text_append(bt_aligned_text *text, const char *bytes,
                                    size_t size, bt_origin origin,
                                    bauta_error *err)
{
    bauta_status status = bt_aligned_text_reserve(text, size, err);
    if (status || !size)
        return status;
    memcpy(text->owned + text->size, bytes, size);
    for (size_t i = 0; i < size; i++)
        text->origins[text->size + i] = origin;
    text->size += size;
    return BAUTA_OK;
}

bauta_status bt_aligned_text_append_char(bt_aligned_text *text, uint32_t code,
                                         bt_origin origin, bauta_error *err)
{
    char bytes[4];
    return bt_aligned_text_append(text, bytes, bt_utf8_encode(bytes, code),
                                  origin, err);
}

bauta_status bt_aligned_text_append_range(bt_aligned_text *text,
                                          const bt_aligned_text *from,
                                          size_t lo, size_t hi,
                                          bauta_error *err)
{
    size_t size = hi - lo;
    bauta_status status = bt_aligned_text_reserve(text, size, err);
    if (status || !size)
        return status;
    bt_origin *origins = text->origins + text->size;
    memcpy(text->owned + text->size, from->bytes + lo, size);
    if (from->origins)
        memcpy(origins, from->origins + lo, size * sizeof(*origins));
    else
        for (size_t i = 0; i < size; i++) {
            uint32_t at = (uint32_t)(lo + i) + from->base_offset;
            origins[i] = (bt_origin){ at, at + 1 };
        }
    text->size += size;
    return BAUTA_OK;
}

bt_origin bt_aligned_text_origin(const bt_aligned_text *text, size_t lo,
                                 size_t hi)
{
    if (!text->origins)
        return (bt_origin){ (uint32_t)lo + text->base_offset,
                            (uint32_t)hi + text->base_offset };
    if (lo < hi) {
        // Origins may run backwards where marks were reordered.
        bt_origin first = text->origins[lo], last = text->origins[hi - 1];
        return (bt_origin){ first.from,
                            last.to > first.from ? last.to : first.from };
    }
    uint32_t at = lo < text->size ? text->origins[lo].from
                  : text->size    ? text->origins[text->size - 1].to
                                  : text->base_offset;
    return (bt_origin){ at, at };
}

bt_origin bt_aligned_text_origin_before(const bt_aligned_text *text, size_t end)
{
    if (end == 0)
        return (bt_origin){ 0, 0 };
    return bt_aligned_text_origin(text, bt_utf8_char_start(text->bytes, 0, end),
                                  end);
}

bool bt_aligned_text_is_repaired(const bt_aligned_text *text, size_t at)
{
    if (text->size - at < 3 || memcmp(text->bytes + at, "\xEF\xBF\xBD", 3) != 0)
        return false;
    bt_origin origin = bt_aligned_text_origin(text, at, at + 3);
    return origin.to - origin.from == 1;
}

/* Append a copy in which each malformed byte is U+FFFD. The first `good` bytes
 * are known to be well formed. */
static bauta_status append_repaired(bt_aligned_text *text,
                                    const bt_aligned_text *raw, size_t good,
                                    bauta_error *err)
{
    bauta_status status = bt_aligned_text_append_range(text, raw, 0, good, err);
    for (size_t i = good; !status && i < raw->size; i += good) {
        bt_origin malformed = bt_aligned_text_origin(raw, i, i + 1);
        status = bt_aligned_text_append_char(text, BT_UTF8_REPLACEMENT,
                                             malformed, err);
        i++;
        good = bt_utf8_valid_prefix(raw->bytes + i, raw->size - i);
        if (!status)
            status = bt_aligned_text_append_range(text, raw, i, i + good, err);
    }
    return status;
}

bauta_status bt_aligned_text_init(bt_aligned_text *text, const char *bytes,
                                  size_t size, size_t shift, bauta_error *err)
{
    bt_aligned_text_init_empty(text);
    if (bt_size_add(size, shift) >= UINT32_MAX)
        return fail_size(bt_size_add(size, shift), err);
    bt_aligned_text raw = { .bytes = bytes,
                            .size = size,
                            .base_offset = (uint32_t)shift };
    size_t good = bt_utf8_valid_prefix(bytes, size);
    if (good == size) {
        *text = raw;
        return BAUTA_OK;
    }
    text->base_offset = (uint32_t)shift;
    bauta_status status = append_repaired(text, &raw, good, err);
    if (status)
        bt_aligned_text_release(text);
    return status;
}

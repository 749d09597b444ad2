/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - the distinct words of texts, and how often each occurs.
 *
 * Bytes lie in blocks that never move, so that a word's pointer stays; a table
 * with open addressing leads to it. */
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "text/hash.h"
#include "text/vocabulary.h"

#include <string.h>

typedef struct block {
    struct block *next;
    size_t used, size;
    char bytes[];
} block;

typedef struct slot {
    uint32_t word; /* 1 + its number; 0 in an empty slot */
    uint32_t hash;
} slot;

struct bt_words {
    bt_word *list;
    size_t count, room;
    slot *slots;
    unsigned bits; /* there are 1 << bits slots */
    block *blocks;
};

enum { BITS_FIRST = 10, BLOCK_SIZE = 64 << 10 };

bauta_status bt_words_create(bt_words **out, bauta_error *err)
{
    bt_words *words = bt_alloc_zero(1, sizeof(*words));
    slot *slots = bt_alloc_zero((size_t)1 << BITS_FIRST, sizeof(slot));
    *out = NULL;
    if (!words || !slots) {
        bt_free(words);
        bt_free(slots);
        return bt_fail_memory(err, "words", sizeof(slot) << BITS_FIRST);
    }
    words->slots = slots;
    words->bits = BITS_FIRST;
    *out = words;
    return BAUTA_OK;
}

void bt_words_free(bt_words *words)
{
    if (!words)
        return;
    for (block *b = words->blocks, *next; b; b = next) {
        next = b->next;
        bt_free(b);
    }
    bt_free(words->slots);
    bt_free(words->list);
    bt_free(words);
}

const bt_word *bt_words_list(const bt_words *words, size_t *count)
{
    *count = words->count;
    return words->list;
}

/* Room for `size` bytes that will not move, or NULL. */
static char *bytes_take(bt_words *words, size_t size)
{
    block *b = words->blocks;
    if (!b || b->size - b->used < size) {
        size_t room = bt_size_max(size, BLOCK_SIZE);
        b = bt_alloc(bt_size_add(sizeof(*b), room));
        if (!b)
            return NULL;
        *b = (block){ .next = words->blocks, .size = room };
        words->blocks = b;
    }
    b->used += size;
    return b->bytes + b->used - size;
}

/* Where a word is, or the empty slot where it would be. */
static slot *slot_of(const bt_words *words, uint32_t hash, const char *bytes,
                     size_t size)
{
    size_t mask = ((size_t)1 << words->bits) - 1;
    for (size_t i = hash >> (32 - words->bits);; i = (i + 1) & mask) {
        slot *s = words->slots + i;
        if (!s->word)
            return s;
        const bt_word *w = words->list + s->word - 1;
        if (s->hash == hash && w->size == size &&
            memcmp(w->bytes, bytes, size) == 0)
            return s;
    }
}

static int slots_grow(bt_words *words)
{
    unsigned bits = words->bits + 1;
    size_t mask = ((size_t)1 << bits) - 1;
    slot *slots = bt_alloc_zero((size_t)1 << bits, sizeof(slot));
    if (!slots)
        return -1;
    for (size_t i = 0; i < (size_t)1 << words->bits; i++) {
        slot s = words->slots[i];
        size_t j = s.hash >> (32 - bits);
        while (s.word && slots[j].word)
            j = (j + 1) & mask;
        if (s.word)
            slots[j] = s;
    }
    bt_free(words->slots);
    words->slots = slots;
    words->bits = bits;
    return 0;
}

/* A word that is not there yet. */
static bauta_status word_new(bt_words *words, const char *bytes, size_t size,
                             uint64_t count, uint32_t hash, bauta_error *err)
{
    if (words->count >= UINT32_MAX / 4)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the texts have more than %u different words",
                       UINT32_MAX / 4);
    if (words->count >= (size_t)1 << (words->bits - 1) && slots_grow(words))
        return bt_fail_memory(err, "words", sizeof(slot) << (words->bits + 1));
    if (BT_ROOM(words->list, words->room, words->count, 1))
        return bt_fail_memory(err, "words", words->count * sizeof(bt_word));
    char *copy = bytes_take(words, size);
    if (!copy)
        return bt_fail_memory(err, "a word", size);
    memcpy(copy, bytes, size);
    words->list[words->count++] = (bt_word){ copy, size, count };
    *slot_of(words, hash, bytes, size) = (slot){ (uint32_t)words->count, hash };
    return BAUTA_OK;
}

bauta_status bt_words_add(bt_words *words, const char *bytes, size_t size,
                          uint64_t count, bauta_error *err)
{
    uint32_t hash = (uint32_t)(bt_hash(bytes, size, (uintptr_t)words) >> 32);
    slot *s = slot_of(words, hash, bytes, size);
    if (!s->word)
        return word_new(words, bytes, size, count, hash, err);
    words->list[s->word - 1].count += count;
    return BAUTA_OK;
}

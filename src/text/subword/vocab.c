/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c - see vocab.h. All pieces are in one block of bytes; an array maps
 * ids to pieces, and a hash table with linear probing maps pieces to ids. */
#include "text/subword/vocab.h"

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

typedef struct vocab_entry {
    uint32_t at, size; /* of the piece in the bytes */
} vocab_entry;

typedef struct vocab_slot {
    uint32_t id, hash;
} vocab_slot;

struct bt_vocab {
    char *bytes; /* the pieces, NUL-terminated */
    size_t used, bytes_room;
    vocab_entry *entries; /* by id; `at` is NONE if there is no piece */
    size_t count, entries_room;
    vocab_slot *slots; /* id is NONE in an empty one */
    size_t filled;
    unsigned bits; /* there are 1 << bits slots */
};

enum { NONE = UINT32_MAX, BITS_FIRST = 8 };

static void slots_clear(vocab_slot *slots, unsigned bits)
{
    for (size_t i = 0; i < (size_t)1 << bits; i++)
        slots[i].id = NONE;
}

bauta_status bt_vocab_create(bt_vocab **out, bauta_error *err)
{
    bt_vocab *vocab = bt_alloc_zero(1, sizeof(*vocab));
    vocab_slot *slots = bt_alloc(sizeof(vocab_slot) << BITS_FIRST);
    *out = NULL;
    if (!vocab || !slots) {
        bt_free(vocab);
        bt_free(slots);
        return bt_fail_memory(err, "a vocabulary",
                              sizeof(vocab_slot) << BITS_FIRST);
    }
    vocab->slots = slots;
    vocab->bits = BITS_FIRST;
    slots_clear(slots, BITS_FIRST);
    *out = vocab;
    return BAUTA_OK;
}

void bt_vocab_free(bt_vocab *vocab)
{
    if (!vocab)
        return;
    bt_free(vocab->bytes);
    bt_free(vocab->entries);
    bt_free(vocab->slots);
    bt_free(vocab);
}

static uint32_t hash_of(const bt_vocab *vocab, const char *piece, size_t size)
{
    return (uint32_t)(bt_hash(piece, size, (uintptr_t)vocab) >> 32);
}

/* The slot of a piece, or the empty one where it belongs. */
static vocab_slot *slot_of(const bt_vocab *vocab, uint32_t hash,
                           const char *piece, size_t size)
{
    size_t mask = ((size_t)1 << vocab->bits) - 1;
    for (size_t i = hash >> (32 - vocab->bits);; i = (i + 1) & mask) {
        vocab_slot *s = vocab->slots + i;
        if (s->id == NONE)
            return s;
        const vocab_entry *e = vocab->entries + s->id;
        if (s->hash == hash && e->size == size &&
            memcmp(vocab->bytes + e->at, piece, size) == 0)
            return s;
    }
}

/* Double the slots. They store the hashes, so no piece is read. */
static int slots_grow(bt_vocab *vocab)
{
    unsigned bits = vocab->bits + 1;
    size_t mask = ((size_t)1 << bits) - 1;
    vocab_slot *slots = bt_alloc(sizeof(vocab_slot) << bits);
    if (!slots)
        return -1;
    slots_clear(slots, bits);
    for (size_t i = 0; i < (size_t)1 << vocab->bits; i++) {
        vocab_slot s = vocab->slots[i];
        if (s.id == NONE)
            continue;
        size_t j = s.hash >> (32 - bits);
        while (slots[j].id != NONE)
            j = (j + 1) & mask;
        slots[j] = s;
    }
    bt_free(vocab->slots);
    vocab->slots = slots;
    vocab->bits = bits;
    return 0;
}

/* Reserve memory for one more piece; adding it cannot fail then. */
static bauta_status reserve(bt_vocab *vocab, size_t size, uint32_t id,
                            bauta_error *err)
{
    size_t more = id < vocab->count ? 0 : id + 1 - vocab->count;
    if (size > BT_VOCAB_BYTES_MAX + vocab->filled - vocab->used)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "the pieces of the vocabulary have more than %d bytes",
                       BT_VOCAB_BYTES_MAX);
    if (BT_ARRAY_RESERVE(vocab->bytes, vocab->bytes_room, vocab->used,
                         size + 1))
        return bt_fail_memory(err, "pieces", vocab->used + size + 1);
    if (BT_ARRAY_RESERVE(vocab->entries, vocab->entries_room, vocab->count,
                         more))
        return bt_fail_memory(err, "pieces", (id + 1) * sizeof(vocab_entry));
    if (vocab->filled >= (size_t)1 << (vocab->bits - 1) && slots_grow(vocab))
        return bt_fail_memory(err, "pieces",
                              sizeof(vocab_slot) << (vocab->bits + 1));
    return BAUTA_OK;
}

static bt_quoted quote(const char *piece, size_t size)
{
    char text[2 * sizeof(bt_quoted)] = ""; // longer than bt_quote() shows
    memcpy(text, piece, size < sizeof(text) ? size : sizeof(text) - 1);
    return bt_quote(text);
}

bauta_status bt_vocab_add(bt_vocab *vocab, const char *piece, size_t size,
                          uint32_t id, bauta_error *err)
{
    if (id >= BT_VOCAB_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "piece \"%s\" has the id %u; the limit is %d",
                       quote(piece, size).text, id, BT_VOCAB_MAX - 1);
    if (id < vocab->count && vocab->entries[id].at != NONE)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "pieces \"%s\" and \"%s\" have id %u",
                       bt_quote(vocab->bytes + vocab->entries[id].at).text,
                       quote(piece, size).text, id);
    uint32_t hash = hash_of(vocab, piece, size);
    vocab_slot *s = slot_of(vocab, hash, piece, size);
    if (s->id != NONE)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "piece \"%s\" has the ids %u and %u",
                       quote(piece, size).text, s->id, id);
    unsigned bits = vocab->bits;
    bauta_status status = reserve(vocab, size, id, err);
    if (status)
        return status;
    if (bits != vocab->bits)
        s = slot_of(vocab, hash, piece, size);
    while (vocab->count <= id)
        vocab->entries[vocab->count++] = (vocab_entry){ NONE, 0 };
    vocab->entries[id] = (vocab_entry){ (uint32_t)vocab->used, (uint32_t)size };
    memcpy(vocab->bytes + vocab->used, piece, size);
    vocab->bytes[vocab->used + size] = '\0';
    vocab->used += size + 1;
    *s = (vocab_slot){ id, hash };
    vocab->filled++;
    return BAUTA_OK;
}

size_t bt_vocab_size(const bt_vocab *vocab)
{
    return vocab->count;
}

uint32_t bt_vocab_find(const bt_vocab *vocab, const char *piece, size_t size)
{
    return slot_of(vocab, hash_of(vocab, piece, size), piece, size)->id;
}

const char *bt_vocab_piece(const bt_vocab *vocab, uint32_t id, size_t *size)
{
    if (id >= vocab->count || vocab->entries[id].at == NONE)
        return NULL;
    if (size)
        *size = vocab->entries[id].size;
    return vocab->bytes + vocab->entries[id].at;
}

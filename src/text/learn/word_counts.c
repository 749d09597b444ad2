/* SPDX-License-Identifier: Apache-2.0 */
/* word_counts.c - the distinct words of texts and their counts.
 *
 * The bytes of the words are in blocks that never move, so that pointers to
 * them stay valid; a hash table with linear probing finds them. */
#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/learn/tokenizer_trainer.h"
#include "text/unicode.h"

#include <string.h>

typedef struct word_block {
    struct word_block *next;
    size_t used, size;
    char bytes[];
} word_block;

typedef struct word_slot {
    uint32_t word; /* 1 + its index; 0 in an empty word_slot */
    uint32_t hash;
} word_slot;

struct bt_word_counts {
    bt_counted_word *list;
    size_t count, room;
    word_slot *slots;
    unsigned bits; /* there are 1 << bits slots */
    word_block *blocks;
};

enum { BITS_FIRST = 10, BLOCK_SIZE = 64 << 10 };

bauta_status bt_word_counts_create(bt_word_counts **out, bauta_error *err)
{
    bt_word_counts *words = bt_alloc_zero(1, sizeof(*words));
    word_slot *slots =
        bt_alloc_zero((size_t)1 << BITS_FIRST, sizeof(word_slot));
    *out = NULL;
    if (!words || !slots) {
        bt_free(words);
        bt_free(slots);
        return bt_fail_memory(err, "words", sizeof(word_slot) << BITS_FIRST);
    }
    words->slots = slots;
    words->bits = BITS_FIRST;
    *out = words;
    return BAUTA_OK;
}

void bt_word_counts_free(bt_word_counts *words)
{
    if (!words)
        return;
    for (word_block *b = words->blocks, *next; b; b = next) {
        next = b->next;
        bt_free(b);
    }
    bt_free(words->slots);
    bt_free(words->list);
    bt_free(words);
}

const bt_counted_word *bt_word_counts_list(const bt_word_counts *words,
                                           size_t *count)
{
    *count = words->count;
    return words->list;
}

/* Memory for `size` bytes that will not move, or NULL. */
static char *bytes_take(bt_word_counts *words, size_t size)
{
    word_block *b = words->blocks;
    if (!b || b->size - b->used < size) {
        size_t room = bt_size_max(size, BLOCK_SIZE);
        b = bt_alloc(bt_size_add(sizeof(*b), room));
        if (!b)
            return NULL;
        *b = (word_block){ .next = words->blocks, .size = room };
        words->blocks = b;
    }
    b->used += size;
    return b->bytes + b->used - size;
}

/* The slot of a word, or the empty one where it belongs. */
static word_slot *slot_of(const bt_word_counts *words, uint32_t hash,
                          const char *bytes, size_t size)
{
    size_t mask = ((size_t)1 << words->bits) - 1;
    for (size_t i = hash >> (32 - words->bits);; i = (i + 1) & mask) {
        word_slot *s = words->slots + i;
        if (!s->word)
            return s;
        const bt_counted_word *w = words->list + s->word - 1;
        if (s->hash == hash && w->size == size &&
            memcmp(w->bytes, bytes, size) == 0)
            return s;
    }
}

static int slots_grow(bt_word_counts *words)
{
    unsigned bits = words->bits + 1;
    size_t mask = ((size_t)1 << bits) - 1;
    word_slot *slots = bt_alloc_zero((size_t)1 << bits, sizeof(word_slot));
    if (!slots)
        return -1;
    for (size_t i = 0; i < (size_t)1 << words->bits; i++) {
        word_slot s = words->slots[i];
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

/* Add a new word. */
static bauta_status word_new(bt_word_counts *words, const char *bytes,
                             size_t size, uint64_t count, uint32_t hash,
                             bauta_error *err)
{
    if (words->count >= UINT32_MAX / 4)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the texts have more than %u different words",
                       UINT32_MAX / 4);
    if (words->count >= (size_t)1 << (words->bits - 1) && slots_grow(words))
        return bt_fail_memory(err, "words",
                              sizeof(word_slot) << (words->bits + 1));
    if (BT_ARRAY_RESERVE(words->list, words->room, words->count, 1))
        return bt_fail_memory(err, "words",
                              words->count * sizeof(bt_counted_word));
    char *copy = bytes_take(words, size);
    if (!copy)
        return bt_fail_memory(err, "a word", size);
    memcpy(copy, bytes, size);
    words->list[words->count++] = (bt_counted_word){ copy, size, count };
    *slot_of(words, hash, bytes, size) =
        (word_slot){ (uint32_t)words->count, hash };
    return BAUTA_OK;
}

bauta_status bt_word_counts_add(bt_word_counts *words, const char *bytes,
                                size_t size, uint64_t count, bauta_error *err)
{
    uint32_t hash = (uint32_t)(bt_hash(bytes, size, (uintptr_t)words) >> 32);
    word_slot *s = slot_of(words, hash, bytes, size);
    if (!s->word)
        return word_new(words, bytes, size, count, hash, err);
    words->list[s->word - 1].count += count;
    return BAUTA_OK;
}

/* ---- Words of a text ----------------------------------------------------- */

typedef struct word_reader {
    bt_word_counts *words;
    const bt_normalizer *normalizer;
    const bt_pretokenizer *pretokenizer;
    const char *original;
    bool repaired; /* byte-level, and the text has malformed bytes, which are
                      restored before a word is counted */
    char *bytes;
    size_t room;
} word_reader;

/* A text is processed in slices of about this many bytes, so that the memory
 * for origins and splits does not grow with the text. */
enum { SLICE = 256 << 10 };

bool bt_is_word_start(const char *text, size_t lo, size_t at)
{
    size_t length;
    if (text[at] != ' ' && text[at] != '\n')
        return false;
    size_t begin = bt_utf8_char_start(text, lo, at);
    return !bt_is_space(bt_utf8_decode(text + begin, at - begin, &length));
}

/* The end of the slice that begins at `lo`. */
static size_t slice_end(const char *text, size_t lo, size_t hi)
{
    for (size_t at = bt_size_add(lo, SLICE); at < hi; at++)
        if (bt_is_word_start(text, lo, at))
            return at;
    return hi;
}

/* The original bytes of a word. */
static bauta_status restore_word(word_reader *r, const bt_aligned_text *text,
                                 bt_split s, size_t *size, bauta_error *err)
{
    if (BT_ARRAY_RESERVE(r->bytes, r->room, 0, s.hi - s.lo))
        return bt_fail_memory(err, "a word", s.hi - s.lo);
    *size = 0;
    for (size_t at = s.lo, length; at < s.hi; at += length) {
        bt_origin o = bt_aligned_text_origin(text, at, at + 1);
        length = bt_utf8_length((unsigned char)text->bytes[at]);
        bool repaired = bt_aligned_text_is_repaired(text, at);
        memcpy(r->bytes + *size,
               repaired ? r->original + o.from : text->bytes + at,
               repaired ? 1 : length);
        *size += repaired ? 1 : length;
    }
    return BAUTA_OK;
}

static bauta_status count_split(word_reader *r, const bt_aligned_text *text,
                                bt_split s, bauta_error *err)
{
    size_t size = s.hi - s.lo;
    const char *bytes = text->bytes + s.lo;
    if (r->repaired) {
        bauta_status status = restore_word(r, text, s, &size, err);
        if (status)
            return status;
        bytes = r->bytes;
    }
    return bt_word_counts_add(r->words, bytes, size, 1, err);
}

/* Normalize, split and count bytes [lo, hi), which contain no special token. */
static bauta_status count_slice(word_reader *r, const bt_aligned_text *text,
                                size_t lo, size_t hi, bauta_error *err)
{
    bt_splits splits = { .list = NULL };
    bauta_status status = BAUTA_OK;
    bt_aligned_text_init_empty(&splits.text);
    if (text->origins) {
        status = bt_aligned_text_append_range(&splits.text, text, lo, hi, err);
    } else {
        splits.text.bytes = text->bytes + lo;
        splits.text.size = hi - lo;
        splits.text.base_offset = text->base_offset + (uint32_t)lo;
    }
    if (!status)
        status = bt_normalizer_run(r->normalizer, &splits.text, err);
    bt_split all = { 0, (uint32_t)splits.text.size, BT_NO_TOKEN,
                     lo == 0 && text->base_offset == 0 };
    if (!status)
        status = bt_splits_add(&splits, all, err);
    if (!status)
        status = bt_pretokenizer_run(r->pretokenizer, &splits, err);
    for (size_t i = 0; !status && i < splits.count; i++)
        status = count_split(r, &splits.text, splits.list[i], err);
    bt_splits_release(&splits);
    return status;
}

static bauta_status count_part(word_reader *r, const bt_aligned_text *text,
                               bt_split s, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t lo = s.lo, hi; !status && lo < s.hi; lo = hi) {
        hi = slice_end(text->bytes, lo, s.hi);
        status = count_slice(r, text, lo, hi, err);
    }
    return status;
}

bauta_status bt_word_counts_add_text(bt_word_counts *words, const char *text,
                                     size_t size, bool continues,
                                     const bt_added_tokens *specials,
                                     const bt_normalizer *normalizer,
                                     const bt_pretokenizer *pretokenizer,
                                     bauta_error *err)
{
    word_reader r = { .words = words,
                      .normalizer = normalizer,
                      .pretokenizer = pretokenizer,
                      .original = text };
    bt_splits parts = { .list = NULL };
    bauta_status status =
        bt_aligned_text_init(&parts.text, text, size, continues, err);
    r.repaired =
        parts.text.origins != NULL && bt_pretokenizer_bytelevel(pretokenizer);
    if (!status)
        status = bt_added_tokens_split(specials, false, false, parts.text.bytes,
                                       0, parts.text.size, &parts, err);
    for (size_t i = 0; !status && i < parts.count; i++)
        if (parts.list[i].token == BT_NO_TOKEN)
            status = count_part(&r, &parts.text, parts.list[i], err);
    bt_splits_release(&parts);
    bt_free(r.bytes);
    return status;
}

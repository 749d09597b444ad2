/* SPDX-License-Identifier: Apache-2.0 */
/* test_bpe.c - byte-pair encoding against a textbook implementation, and
 * SentencePiece's variant against one that works on strings. */
#include "base/memory.h"
#include "base/utf8.h"
#include "subword_fixtures.h"
#include "text/subword/bytelevel.h"

#include <time.h>

static bt_subword_model *bpe_create(const bt_bpe_spec *spec)
{
    bt_subword_model *model;
    bauta_error err;
    if (bt_bpe_create(&model, spec, "test", &err))
        fail_msg("%s", err.message);
    return model;
}

/* ---- By hand ------------------------------------------------------------- */

static void the_lowest_rank_goes_first_and_the_leftmost_of_equals(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("a", "b", "ab", "ba", "aba", "aa");
    // Ranks as SentencePiece has them: "ab" and "ba" have the same.
    const bt_merge_rule merges[] = {
        { 0, 1, 2, 1 }, { 1, 0, 3, 1 }, { 2, 0, 4, 2 }, { 0, 0, 5, 0 }
    };
    bt_subword_model *model = bpe_create(&(bt_bpe_spec){ .vocab = vocab,
                                                         .merges = merges,
                                                         .merge_count = 4,
                                                         .unknown = BT_NO_ID });
    assert_tokens(model, vocab, "", "");
    assert_tokens(model, vocab, "a", "a@0-1");
    assert_tokens(model, vocab, "abab", "ab@0-2 ab@2-4");
    assert_tokens(model, vocab, "baba", "ba@0-2 ba@2-4");
    assert_tokens(model, vocab, "abaa", "ab@0-2 aa@2-4");
    assert_tokens(model, vocab, "aaa", "aa@0-2 a@2-3");
    assert_tokens(model, vocab, "aba", "aba@0-3");
    assert_tokens(model, vocab, "axb", "ab@0-3"); // x is left out
    bt_subword_free(model);
    bt_subword_free(NULL);
    bt_vocab_free(vocab);
}

/* "<unk>" waits for adjacent unknowns to be fused, and byte tokens overtake
 * it. */
static void unknown_characters_become_bytes_or_one_token(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("<unk>", "a", "<0xC3>", "<0xA9>");
    bt_bpe_spec spec = { .vocab = vocab, .byte_fallback = true };
    bt_subword_model *model = bpe_create(&spec);
    assert_tokens(model, vocab, "a\u00e9a",
                  "a@0-1 <0xC3>@1-3 <0xA9>@1-3 a@3-4");
    assert_tokens(model, vocab, "xyxa", "<unk>@0-1 <unk>@1-2 <unk>@2-3 a@3-4");
    bt_subword_free(model);
    spec.fuse_unknown = true;
    model = bpe_create(&spec);
    assert_tokens(model, vocab, "xyxa", "<unk>@0-3 a@3-4");
    assert_tokens(model, vocab, "x\u00e9a",
                  "<0xC3>@1-3 <0xA9>@1-3 <unk>@0-1 a@3-4");
    bt_subword_free(model);
    spec.byte_fallback = false;
    model = bpe_create(&spec);
    assert_tokens(model, vocab, "\u00e9\u2603", "<unk>@0-5");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void prefix_and_suffix_are_part_of_a_symbol(void **state)
{
    (void)state;
    bt_vocab *vocab = VOCAB("l", "##o", "##w</w>", "lo", "low</w>", "l</w>");
    const bt_merge_rule merges[] = { { 0, 1, 3, 0 }, { 3, 2, 4, 1 } };
    bt_subword_model *model = bpe_create(&(bt_bpe_spec){ .vocab = vocab,
                                                         .merges = merges,
                                                         .merge_count = 2,
                                                         .unknown = BT_NO_ID,
                                                         .prefix = "##",
                                                         .suffix = "</w>" });
    assert_tokens(model, vocab, "low", "low</w>@0-3");
    assert_tokens(model, vocab, "l", "l</w>@0-1");
    assert_tokens(model, vocab, "loow", "lo@0-2 ##o@2-3 ##w</w>@3-4");
    // "w" does not end this word, and it is dropped with what follows.
    assert_tokens(model, vocab, "low</w>", "lo@0-2");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void a_whole_split_comes_first_when_asked(void **state)
{
    (void)state;
    static const char longer[] = "abababababababababababababababababababababab"
                                 "abababababababababababababababababababababab";
    bt_vocab *vocab = VOCAB("a", "b", "ab", longer);
    bt_bpe_spec spec = { .vocab = vocab,
                         .unknown = BT_NO_ID,
                         .ignore_merges = true };
    bt_subword_model *model = bpe_create(&spec);
    assert_tokens(model, vocab, "ab", "ab@0-2");
    assert_tokens(model, vocab, "aba", "a@0-1 b@1-2 a@2-3");
    bt_subword_workspace work = { 0 };
    assert_int_equal(
        bt_subword_encode(model, longer, strlen(longer), &work, NULL), 0);
    assert_int_equal(work.count, 1);
    bt_subword_workspace_release(&work);
    bt_subword_free(model);
    spec.ignore_merges = false;
    model = bpe_create(&spec);
    assert_tokens(model, vocab, "ab", "a@0-1 b@1-2");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void bytes_are_looked_up_in_their_alphabet(void **state)
{
    (void)state;
    // U+0120 is a space, U+00C3 and U+00A9 the bytes of e with an acute.
    bt_vocab *vocab =
        VOCAB("\u0120", "a", "\u0120a", "\u00c3", "\u00a9", "\u00c3\u00a9");
    const bt_merge_rule merges[] = { { 0, 1, 2, 0 }, { 3, 4, 5, 1 } };
    bt_subword_model *model = bpe_create(&(bt_bpe_spec){ .vocab = vocab,
                                                         .merges = merges,
                                                         .merge_count = 2,
                                                         .unknown = BT_NO_ID,
                                                         .bytelevel = true });
    assert_tokens(model, vocab, " a", "\u0120a@0-2");
    assert_tokens(model, vocab, "\u00e9 a", "\u00c3\u00a9@0-2 \u0120a@2-4");
    assert_tokens(model, vocab, "\xa9\xc3", "\u00a9@0-1 \u00c3@1-2");
    bt_subword_free(model);
    bt_vocab_free(vocab);
}

static void an_impossible_merge_is_refused(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_model *model;
    bt_vocab *vocab = VOCAB("a", "b", "ab");
    const bt_merge_rule merges[] = { { 0, 1, 2, 0 },
                                     { 0, 1, 2, 1 },
                                     { 0, 3, 2, 2 } };
    bt_bpe_spec spec = { .vocab = vocab, .merges = merges, .merge_count = 2 };
    assert_int_equal(bt_bpe_create(&model, &spec, "f", &err), BAUTA_ERR_FORMAT);
    assert_string_equal(err.message,
                        "f: merge 1, of pieces 0 and 1, occurs twice");
    assert_null(model);
    spec.merges = merges + 2;
    spec.merge_count = 1;
    assert_int_equal(bt_bpe_create(&model, &spec, "f", &err), BAUTA_ERR_FORMAT);
    assert_string_equal(err.message, "f: merge 0 is of pieces 0 and 3 to 2; "
                                     "there are 3 pieces");
    bt_vocab_free(vocab);
}

/* ---- Random models against the textbook ---------------------------------- */

enum { MERGES = 60, PIECE = 512, TEXT = 2048 };

typedef struct model {
    bt_vocab *vocab;
    bt_merge_rule merges[MERGES];
    bt_bpe_spec spec;
    bt_subword_model *made;
} model;

/* Add a piece if it is new; returns its id. */
static uint32_t piece_add(bt_vocab *vocab, const char *piece)
{
    bauta_error err;
    uint32_t id = bt_vocab_find(vocab, piece, strlen(piece));
    if (id != UINT32_MAX)
        return id;
    id = (uint32_t)bt_vocab_size(vocab);
    if (bt_vocab_add(vocab, piece, strlen(piece), id, &err))
        fail_msg("%s", err.message);
    return id;
}

static bool merge_known(const model *m, uint32_t left, uint32_t right)
{
    for (size_t i = 0; i < m->spec.merge_count; i++)
        if (m->merges[i].left == left && m->merges[i].right == right)
            return true;
    return false;
}

/* Merges of pieces that are there, in the order of their ranks. */
static void merges_random(model *m, test_random *r)
{
    size_t wanted = test_below(r, MERGES);
    for (size_t turn = 0; turn < 4 * wanted; turn++) {
        char piece[2 * PIECE];
        size_t pieces = bt_vocab_size(m->vocab);
        if (m->spec.merge_count == wanted || pieces < 2)
            break;
        uint32_t left = 1 + (uint32_t)test_below(r, pieces - 1);
        uint32_t right = 1 + (uint32_t)test_below(r, pieces - 1);
        const char *a = bt_vocab_piece(m->vocab, left, NULL);
        const char *b = bt_vocab_piece(m->vocab, right, NULL);
        if (*a == '<' || *b == '<' || merge_known(m, left, right) ||
            strlen(a) + strlen(b) >= PIECE)
            continue;
        snprintf(piece, sizeof(piece), "%s%s", a, b);
        m->merges[m->spec.merge_count] =
            (bt_merge_rule){ left, right, piece_add(m->vocab, piece),
                             (uint32_t)m->spec.merge_count };
        m->spec.merge_count++;
    }
}

static model *model_random(test_random *r)
{
    model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->vocab = VOCAB("<unk>");
    m->spec = (bt_bpe_spec){ .vocab = m->vocab,
                             .merges = m->merges,
                             .unknown = test_below(r, 3) ? 0 : BT_NO_ID,
                             .fuse_unknown = test_below(r, 2),
                             .byte_fallback = test_below(r, 2),
                             .ignore_merges = test_below(r, 4) == 0,
                             .prefix = test_below(r, 4) ? NULL : "b",
                             .suffix = test_below(r, 4) ? NULL : "\u00e9" };
    char letter[16];
    for (int i = 0; i < 12; i++) {
        size_t size = test_below(r, 2) && m->spec.prefix ? 1 : 0;
        letter[0] = 'b';
        if (!text_random(r, letter + size, 1, 1 + test_below(r, 6)))
            continue;
        if (m->spec.suffix && test_below(r, 2))
            strcat(letter, m->spec.suffix);
        piece_add(m->vocab, letter);
    }
    for (unsigned byte = 0; byte < 256; byte++)
        if (test_below(r, 16)) {
            snprintf(letter, sizeof(letter), "<0x%02X>", byte);
            piece_add(m->vocab, letter);
        }
    merges_random(m, r);
    m->made = bpe_create(&m->spec);
    return m;
}

static void model_free(model *m)
{
    bt_subword_free(m->made);
    bt_vocab_free(m->vocab);
    free(m);
}

static size_t symbol_slow(const model *m, char out[16], const char *text,
                          size_t size, uint32_t at, uint32_t length)
{
    return (size_t)snprintf(
        out, 16, "%s%.*s%s", at && m->spec.prefix ? m->spec.prefix : "",
        (int)length, text + at,
        at + length == size && m->spec.suffix ? m->spec.suffix : "");
}

/* The symbols that a text starts as; returns how many. */
static size_t start_slow(const model *m, const char *text, size_t size,
                         bt_token *out)
{
    size_t count = 0;
    bt_token wait = { BT_NO_ID, 0, 0 };
    for (uint32_t i = 0, length; i < size; i += length) {
        length = (uint32_t)bt_utf8_length((unsigned char)text[i]);
        char symbol[16];
        size_t written = symbol_slow(m, symbol, text, size, i, length);
        bt_token t = { bt_vocab_find(m->vocab, symbol, written), i,
                       i + length };
        uint32_t bytes[16] = { 0 };
        bool all = m->spec.byte_fallback;
        for (size_t k = 0; k < written; k++) {
            char name[8];
            snprintf(name, sizeof(name), "<0x%02X>", (unsigned char)symbol[k]);
            bytes[k] = bt_vocab_find(m->vocab, name, 6);
            all = all && bytes[k] != BT_NO_ID;
        }
        if (t.id != BT_NO_ID) {
            if (wait.id != BT_NO_ID)
                out[count++] = wait;
            wait.id = BT_NO_ID;
            out[count++] = t;
        } else if (all) {
            for (size_t k = 0; k < written; k++)
                out[count++] = (bt_token){ bytes[k], i, i + length };
        } else if (m->spec.unknown != BT_NO_ID) {
            bool join = wait.id != BT_NO_ID && m->spec.fuse_unknown;
            if (wait.id != BT_NO_ID && !join)
                out[count++] = wait;
            wait =
                (bt_token){ m->spec.unknown, join ? wait.lo : i, i + length };
        }
    }
    if (wait.id != BT_NO_ID)
        out[count++] = wait;
    return count;
}

/* Merge the pair whose merge comes first, until there is none. */
static size_t merge_slow(const model *m, bt_token *t, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX, where = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (size_t k = 0; k < m->spec.merge_count; k++)
                if (m->merges[k].left == t[i].id &&
                    m->merges[k].right == t[i + 1].id && k < best) {
                    best = k;
                    where = i;
                }
        if (best == SIZE_MAX)
            return count;
        t[where].id = m->merges[best].merged;
        t[where].hi = t[where + 1].hi;
        count--;
        memmove(t + where + 1, t + where + 2, (count - where - 1) * sizeof(*t));
    }
}

static size_t encode_slow(const model *m, const char *text, size_t size,
                          bt_token *out)
{
    uint32_t id = bt_vocab_find(m->vocab, text, size);
    if (m->spec.ignore_merges && size && id != BT_NO_ID) {
        out[0] = (bt_token){ id, 0, (uint32_t)size };
        return 1;
    }
    return merge_slow(m, out, start_slow(m, text, size, out));
}

static void random_models_encode_as_the_textbook_does(void **state)
{
    (void)state;
    static bt_token want[TEXT];
    static char text[TEXT];
    test_random r = test_random_from(test_seed());
    bt_subword_workspace work = { 0 };
    for (int turn = 0; turn < 1500; turn++) {
        model *m = model_random(&r);
        for (int k = 0; k < 12; k++) {
            bauta_error err;
            // Up to 32 symbols and beyond take different code paths.
            size_t size =
                text_random(&r, text, k < 9 ? 12 : 150, 1 + test_below(&r, 8));
            size_t count = encode_slow(m, text, size, want);
            work.count = 0;
            if (bt_subword_encode(m->made, text, size, &work, &err))
                fail_msg("%s", err.message);
            if (work.count != count ||
                memcmp(work.tokens, want, count * sizeof(*want)) != 0)
                fail_msg("turn %d: \"%s\" has %zu tokens, not %zu, or others",
                         turn, text, work.count, count);
        }
        model_free(m);
    }
    bt_subword_workspace_release(&work);
}

/* ---- SentencePiece's kind ------------------------------------------------ */

/* Pieces with scores, some unused; all of them are strings of letters. A
 * symbol is a piece or a letter; two symbols merge when they are a piece
 * together. */
enum { STRINGS = 40 };

typedef struct strings {
    char text[STRINGS][16];
    int score[STRINGS]; /* the rank is its negative */
    bool unused[STRINGS], frozen[STRINGS];
    size_t count; /* including letters that are no piece, after `pieces` */
    size_t pieces;
} strings;

static size_t string_find(const strings *s, const char *text, size_t size,
                          size_t below)
{
    for (size_t i = 0; i < below; i++)
        if (strlen(s->text[i]) == size && memcmp(s->text[i], text, size) == 0)
            return i;
    return SIZE_MAX;
}

static void string_add(strings *s, test_random *r, const char *text)
{
    size_t i = s->count;
    if (!*text || string_find(s, text, strlen(text), i) != SIZE_MAX)
        return;
    snprintf(s->text[i], sizeof(s->text[i]), "%s", text);
    s->score[i] = -(int)test_below(r, 8);
    s->unused[i] = test_below(r, 4) == 0;
    s->frozen[i] = !s->unused[i] && test_below(r, 10) == 0;
    s->count++;
}

static void strings_random(strings *s, test_random *r, size_t letters)
{
    char text[32];
    memset(s, 0, sizeof(*s));
    for (size_t n = test_below(r, 30); n > 0; n--) {
        text_random(r, text, 3, letters);
        string_add(s, r, text);
    }
    s->pieces = s->count;
    static const char *const all[] = { "a", "b", "\u00e9", "c" };
    for (size_t i = 0; i < letters; i++)
        string_add(s, r, all[i]);
    for (size_t i = s->pieces; i < s->count; i++)
        s->unused[i] = s->frozen[i] = false;
}

static size_t characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

/* The merges that make the pieces: every way to split one into two symbols. */
static size_t merges_of(const strings *s, bt_merge_rule *out)
{
    size_t count = 0;
    for (size_t i = 0; i < s->pieces; i++) {
        size_t size = strlen(s->text[i]);
        for (size_t cut = 1; cut < size; cut++) {
            size_t left = string_find(s, s->text[i], cut, s->count);
            size_t right =
                string_find(s, s->text[i] + cut, size - cut, s->count);
            if (left != SIZE_MAX && right != SIZE_MAX)
                out[count++] =
                    (bt_merge_rule){ (uint32_t)left, (uint32_t)right,
                                     (uint32_t)i, (uint32_t)-s->score[i] };
        }
    }
    return count;
}

static bt_subword_model *strings_create(const strings *s, bt_vocab **vocab)
{
    const char *list[STRINGS], *frozen[STRINGS];
    uint32_t unused[STRINGS];
    bt_merge_rule merges[STRINGS * 16];
    bt_bpe_spec spec = { .merges = merges,
                         .unknown = BT_NO_ID,
                         .unused = unused,
                         .user_defined = frozen };
    for (size_t i = 0; i < s->count; i++) {
        list[i] = s->text[i];
        if (s->unused[i])
            unused[spec.unused_count++] = (uint32_t)i;
        if (s->frozen[i])
            frozen[spec.user_defined_count++] = s->text[i];
    }
    *vocab = vocab_of(list, s->count);
    spec.vocab = *vocab;
    spec.merge_count = merges_of(s, merges);
    return bpe_create(&spec);
}

/* A part of the text: [lo, hi). */
typedef struct part {
    size_t lo, hi;
    bool frozen;
} part;

typedef struct slow {
    const strings *strings;
    const char *text;
    part parts[TEXT];
    size_t count;
    size_t cut[STRINGS]; /* where a piece was last formed, or 0 */
} slow;

/* The piece that parts i and i + 1 form; the split is recorded. */
static size_t slow_look(slow *s, size_t i)
{
    const part *p = s->parts + i;
    if (i + 1 >= s->count || p[0].frozen || p[1].frozen)
        return SIZE_MAX;
    size_t piece = string_find(s->strings, s->text + p[0].lo, p[1].hi - p[0].lo,
                               s->strings->pieces);
    if (piece != SIZE_MAX)
        s->cut[piece] = p[0].hi - p[0].lo;
    return piece;
}

static void slow_start(slow *s, size_t size)
{
    s->count = 0;
    for (size_t i = 0, length; i < size; i += length) {
        bool frozen = false;
        length = bt_utf8_length((unsigned char)s->text[i]);
        for (size_t k = size - i; k > 0 && !frozen; k--) {
            size_t piece =
                string_find(s->strings, s->text + i, k, s->strings->pieces);
            frozen = piece != SIZE_MAX && s->strings->frozen[piece];
            length = frozen ? k : length;
        }
        s->parts[s->count++] = (part){ i, i + length, frozen };
    }
}

static void slow_merge(slow *s)
{
    memset(s->cut, 0, sizeof(s->cut));
    for (size_t i = 0; i + 1 < s->count; i++)
        slow_look(s, i);
    for (;;) {
        size_t where = SIZE_MAX;
        int best = -100;
        for (size_t i = 0; i + 1 < s->count; i++) {
            const part *p = s->parts + i;
            size_t piece = string_find(s->strings, s->text + p[0].lo,
                                       p[1].hi - p[0].lo, s->strings->pieces);
            if (piece != SIZE_MAX && !p[0].frozen && !p[1].frozen &&
                s->strings->score[piece] > best) {
                best = s->strings->score[piece];
                where = i;
            }
        }
        if (where == SIZE_MAX)
            return;
        s->parts[where].hi = s->parts[where + 1].hi;
        s->count--;
        memmove(s->parts + where + 1, s->parts + where + 2,
                (s->count - where - 1) * sizeof(part));
        if (where > 0)
            slow_look(s, where - 1);
        slow_look(s, where);
    }
}

/* Write a part, split again where it is an unused piece. */
static size_t slow_write(const slow *s, part p, bt_token *out)
{
    size_t id =
        string_find(s->strings, s->text + p.lo, p.hi - p.lo, s->strings->count);
    if (id == SIZE_MAX)
        return 0;
    if (s->strings->unused[id] && s->cut[id]) {
        part a = { p.lo, p.lo + s->cut[id], false }, b = { a.hi, p.hi, false };
        size_t count = slow_write(s, a, out);
        return count + slow_write(s, b, out + count);
    }
    *out = (bt_token){ (uint32_t)id, (uint32_t)p.lo, (uint32_t)p.hi };
    return 1;
}

static void unused_pieces_are_split_and_frozen_ones_stay(void **state)
{
    (void)state;
    static slow s;
    static char text[TEXT];
    static bt_token want[TEXT];
    strings pieces;
    test_random r = test_random_from(test_seed());
    bt_subword_workspace work = { 0 };
    for (int turn = 0; turn < 3000; turn++) {
        bt_vocab *vocab;
        size_t letters = 1 + test_below(&r, 4);
        strings_random(&pieces, &r, letters);
        bt_subword_model *made = strings_create(&pieces, &vocab);
        s.strings = &pieces;
        s.text = text;
        for (int k = 0; k < 8; k++) {
            bauta_error err;
            size_t size = text_random(&r, text, k < 6 ? 12 : 60, letters);
            size_t count = 0;
            slow_start(&s, size);
            slow_merge(&s);
            for (size_t i = 0; i < s.count; i++)
                count += slow_write(&s, s.parts[i], want + count);
            work.count = 0;
            if (bt_subword_encode(made, text, size, &work, &err))
                fail_msg("%s", err.message);
            if (work.count != count ||
                memcmp(work.tokens, want, count * sizeof(*want)) != 0)
                fail_msg("turn %d: \"%s\" (%zu characters) has %zu tokens, not "
                         "%zu, or others",
                         turn, text, characters(text), work.count, count);
        }
        bt_subword_free(made);
        bt_vocab_free(vocab);
    }
    bt_subword_workspace_release(&work);
}

/* ---- Time and memory ----------------------------------------------------- */

/* "a", "aa", "aaaa" and so on: each merge doubles. */
static bt_subword_model *doubling_create(bt_vocab **vocab)
{
    enum { TIMES = 8 };
    bt_merge_rule merges[TIMES];
    char piece[(1 << TIMES) + 1] = "";
    *vocab = VOCAB("a");
    for (uint32_t i = 0; i < TIMES; i++) {
        memset(piece, 'a', (size_t)2 << i);
        merges[i] = (bt_merge_rule){ i, i, piece_add(*vocab, piece), i };
    }
    return bpe_create(&(bt_bpe_spec){ .vocab = *vocab,
                                      .merges = merges,
                                      .merge_count = TIMES,
                                      .unknown = BT_NO_ID });
}

static void a_megabyte_of_one_letter_takes_linear_time(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    bt_vocab *vocab;
    bauta_error err;
    bt_subword_model *made = doubling_create(&vocab);
    bt_subword_workspace work = { 0 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    clock_t begin = clock();
    if (bt_subword_encode(made, text, SIZE, &work, &err))
        fail_msg("%s", err.message);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    print_message("%.0f ms\n", seconds * 1e3);
    assert_true(seconds < 10); // quadratic would be hours
    assert_int_equal(work.count, SIZE / 256);
    free(text);
    bt_subword_workspace_release(&work);
    bt_subword_free(made);
    bt_vocab_free(vocab);
}

static void a_text_beyond_4_gib_is_refused(void **state)
{
    (void)state;
    bauta_error err;
    bt_vocab *vocab;
    bt_subword_model *made = doubling_create(&vocab);
    bt_subword_workspace work = { 0 };
    assert_int_equal(
        bt_subword_encode(made, "", (size_t)UINT32_MAX, &work, &err),
        BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "a text of 4294967295 bytes is too long "
                                     "to be encoded");
    bt_subword_workspace_release(&work);
    bt_subword_free(made);
    bt_vocab_free(vocab);
}

static void allocation_failure_leaks_nothing(void **state)
{
    (void)state;
    bauta_error err;
    bt_subword_model *made;
    faults_begin();
    bt_vocab *vocab = VOCAB("a", "b", "ab", "c", "abc", "aba");
    const bt_merge_rule merges[] = { { 0, 1, 2, 0 },
                                     { 2, 3, 4, 1 },
                                     { 2, 0, 5, 2 } };
    const uint32_t unused[] = { 4 };
    const char *const frozen[] = { "aba" };
    const bt_bpe_spec spec = { .vocab = vocab,
                               .merges = merges,
                               .merge_count = 3,
                               .unknown = BT_NO_ID,
                               .prefix = "",
                               .suffix = "c",
                               .unused = unused,
                               .unused_count = 1,
                               .user_defined = frozen,
                               .user_defined_count = 1 };
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bt_bpe_create(&made, &spec, "f", &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(made);
        assert_int_equal(faults_live(), live);
    }
    assert_encode_survives(made, "abcabaxab", 9);
    bt_subword_free(made);
    bt_vocab_free(vocab);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_rank_goes_first_and_the_leftmost_of_equals),
        cmocka_unit_test(unknown_characters_become_bytes_or_one_token),
        cmocka_unit_test(prefix_and_suffix_are_part_of_a_symbol),
        cmocka_unit_test(a_whole_split_comes_first_when_asked),
        cmocka_unit_test(bytes_are_looked_up_in_their_alphabet),
        cmocka_unit_test(an_impossible_merge_is_refused),
        cmocka_unit_test(random_models_encode_as_the_textbook_does),
        cmocka_unit_test(unused_pieces_are_split_and_frozen_ones_stay),
        cmocka_unit_test(a_megabyte_of_one_letter_takes_linear_time),
        cmocka_unit_test(a_text_beyond_4_gib_is_refused),
        cmocka_unit_test(allocation_failure_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_training.c - training tokenizers: against slow references,
 * against Hugging Face's trainers, and on unusual texts. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/merge_sort.h"
#include "data.h"
#include "temp_folder.h"
#include "testing.h"
#include "text/learn/tokenizer_trainer.h"
#include "text/learn/unigram_lattice.h"
#include "text/subword/bytelevel.h"

#include <math.h>
#include <string.h>
#include <time.h>

static uint64_t seed;

#define OK(call)                                                     \
    do {                                                             \
        bauta_error err_ = { .message = "" };                        \
        bauta_error *err = &err_;                                    \
        if (call)                                                    \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, err_.message); \
    } while (0)

/* ---- texts ------------------------------------------------------------- */

static bauta_tokenizer_trainer_options options_of(bauta_tokenizer_kind kind,
                                                  size_t pieces)
{
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    o.kind = kind;
    o.vocab_size = pieces;
    return o;
}

static const bauta_tokenizer_kind all_kinds[] = { BAUTA_TOKENIZER_BPE,
                                                  BAUTA_TOKENIZER_WORDPIECE,
                                                  BAUTA_TOKENIZER_UNIGRAM };

static bauta_tokenizer *train_bytes(const bauta_tokenizer_trainer_options *o,
                                    const char *text, size_t size)
{
    bauta_tokenizer *t = NULL;
    OK(bauta_tokenizer_train(&t, o, &text, &size, 1, err));
    return t;
}

static bauta_tokenizer *train(const bauta_tokenizer_trainer_options *o,
                              const char *text)
{
    return train_bytes(o, text, strlen(text));
}

static bool has(const bauta_tokenizer *t, const char *piece)
{
    return bauta_tokenizer_find(t, piece, strlen(piece)) != BAUTA_NO_TOKEN;
}

/* The tokens of a text without a template; the caller frees them. */
static bauta_tokens encode(const bauta_tokenizer *t, const char *text,
                           size_t size)
{
    bauta_tokens tokens;
    bauta_encode_options o = BAUTA_ENCODE_OPTIONS_INIT;
    o.no_special_tokens = true;
    OK(bauta_tokenizer_encode(t, text, size, &o, &tokens, err));
    return tokens;
}

/* Random words of few letters, so that many counts are equal. */
static bt_word_counts *words_random(test_random *r)
{
    bt_word_counts *words;
    size_t letters = 1 + test_below(r, 4), longest = 1 + test_below(r, 24);
    OK(bt_word_counts_create(&words, err));
    for (size_t n = test_below(r, 60) + 1; n > 0; n--) {
        char bytes[32];
        size_t size = 1 + test_below(r, longest);
        for (size_t i = 0; i < size; i++)
            bytes[i] = "a\xC3"
                       "b\xFF"[test_below(r, letters)];
        OK(bt_word_counts_add(words, bytes, size, 1 + test_below(r, 3), err));
    }
    return words;
}

/* ---- merging, slow reference ------------------------------------------- */

enum { SYMBOLS_MAX = 4096, PAIRS_MAX = 2048 };

/* Pieces are bytes, as strings; all pairs are recounted after each merge. */
typedef struct slow {
    struct {
        char bytes[32];
        size_t size;
    } pieces[1024];
    size_t piece_count;
    uint32_t symbols[SYMBOLS_MAX]; /* UINT32_MAX after each word */
    uint64_t counts[SYMBOLS_MAX];
    size_t symbol_count;
} slow;

static void slow_read(slow *s, const bt_word_counts *words,
                      const bt_trained_vocab *l)
{
    size_t count;
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    s->piece_count = 257;
    s->symbol_count = 0;
    for (uint32_t id = 0; id < 257; id++) {
        size_t size;
        const char *piece = bt_vocab_piece(l->vocab, id, &size);
        memset(s->pieces[id].bytes, 0, sizeof(s->pieces[id].bytes));
        if (id)
            assert_true(bt_bytelevel_decode(s->pieces[id].bytes,
                                            &s->pieces[id].size, piece, size));
    }
    for (size_t w = 0; w < count; w++) {
        for (size_t i = 0; i <= list[w].size; i++) {
            uint32_t id = UINT32_MAX;
            for (uint32_t p = 1; i < list[w].size && p < 257; p++)
                if (s->pieces[p].bytes[0] == list[w].bytes[i])
                    id = p;
            assert_true(s->symbol_count < SYMBOLS_MAX);
            s->counts[s->symbol_count] = list[w].count;
            s->symbols[s->symbol_count++] = id;
        }
    }
}

static int slow_compare(const slow *s, uint32_t a, uint32_t b)
{
    // The rest of a piece is 0, and no test has a 0 in a word.
    return memcmp(s->pieces[a].bytes, s->pieces[b].bytes, 32);
}

/* Whether a pair precedes another one of the same frequency. */
static bool slow_first(const slow *s, const uint32_t *a, const uint32_t *b,
                       bool greatest)
{
    if (!greatest)
        return a[0] != b[0] ? a[0] < b[0] : a[1] < b[1];
    int order = slow_compare(s, a[0], b[0]);
    return (order ? order : slow_compare(s, a[1], b[1])) > 0;
}

/* The most frequent pair; returns its count. */
static uint64_t slow_best(const slow *s, uint32_t best[2], bool greatest)
{
    static struct {
        uint32_t pair[2];
        uint64_t count;
    } pairs[PAIRS_MAX];
    size_t count = 0, found = 0;
    for (size_t i = 0; i + 1 < s->symbol_count; i++) {
        const uint32_t *at = s->symbols + i;
        size_t p = 0;
        if (at[0] == UINT32_MAX || at[1] == UINT32_MAX)
            continue;
        while (p < count && memcmp(pairs[p].pair, at, 2 * sizeof(*at)) != 0)
            p++;
        if (p == count) {
            assert_true(count < PAIRS_MAX);
            memcpy(pairs[count].pair, at, 2 * sizeof(*at));
            pairs[count++].count = 0;
        }
        pairs[p].count += s->counts[i];
    }
    for (size_t p = 1; p < count; p++)
        if (pairs[p].count > pairs[found].count ||
            (pairs[p].count == pairs[found].count &&
             slow_first(s, pairs[p].pair, pairs[found].pair, greatest)))
            found = p;
    if (!count)
        return 0;
    memcpy(best, pairs[found].pair, sizeof(pairs[found].pair));
    return pairs[found].count;
}

static void slow_merge(slow *s, const uint32_t pair[2])
{
    size_t kept = 0;
    uint32_t made = (uint32_t)s->piece_count++;
    size_t left = s->pieces[pair[0]].size;
    s->pieces[made] = s->pieces[pair[0]];
    memcpy(s->pieces[made].bytes + left, s->pieces[pair[1]].bytes, 32 - left);
    s->pieces[made].size += s->pieces[pair[1]].size;
    for (size_t i = 0; i < s->symbol_count; i++, kept++) {
        bool here = i + 1 < s->symbol_count && s->symbols[i] == pair[0] &&
                    s->symbols[i + 1] == pair[1];
        s->symbols[kept] = here ? made : s->symbols[i];
        s->counts[kept] = s->counts[i];
        i += here;
    }
    s->symbol_count = kept;
}

static void learns_what_recounting_learns(bool greatest)
{
    test_random r = test_random_from(seed + greatest);
    slow *s = malloc(sizeof(*s));
    for (int round = 0; round < 150; round++) {
        bt_word_counts *words = words_random(&r);
        bt_trained_vocab l;
        bauta_tokenizer_trainer_options o =
            options_of(BAUTA_TOKENIZER_BPE, 257 + test_below(&r, 80));
        o.min_frequency = test_below(&r, 4);
        o.prefer_greatest = greatest;
        OK(bt_learn_bpe(&l, words, &o, err));
        slow_read(s, words, &l);
        for (size_t m = 0;; m++) {
            uint32_t pair[2];
            uint64_t count = slow_best(s, pair, greatest);
            bool more = s->piece_count < o.vocab_size && count &&
                        count >= o.min_frequency;
            assert_int_equal(m < l.merge_count, more);
            if (!more)
                break;
            assert_int_equal(l.merges[m].left, pair[0]);
            assert_int_equal(l.merges[m].right, pair[1]);
            assert_int_equal(l.merges[m].merged, s->piece_count);
            assert_int_equal(l.merges[m].rank, m);
            slow_merge(s, pair);
        }
        bt_trained_vocab_release(&l);
        bt_word_counts_free(words);
    }
    free(s);
}

static void merges_equal_recounting(void **state)
{
    (void)state;
    learns_what_recounting_learns(false);
}

static void pair_scores_equal_recounting(void **state)
{
    (void)state;
    learns_what_recounting_learns(true);
}

/* ---- other trainers ---------------------------------------------------- */

typedef struct lines {
    const char *texts[64];
    size_t lengths[64], count;
} lines;

static lines lines_of(const json_t *list)
{
    lines l = { .count = json_array_size(list) };
    assert_true(l.count <= BT_LEN(l.texts));
    for (size_t i = 0; i < l.count; i++) {
        l.texts[i] = json_string_value(json_array_get(list, i));
        l.lengths[i] = json_string_length(json_array_get(list, i));
    }
    return l;
}

static size_t number(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

static void ids_equal(const bauta_tokenizer *t, const lines *l,
                      const json_t *want)
{
    for (size_t i = 0; i < l->count; i++) {
        bauta_tokens got = encode(t, l->texts[i], l->lengths[i]);
        const json_t *ids = json_array_get(want, i);
        assert_int_equal(got.count, json_array_size(ids));
        for (size_t k = 0; k < got.count; k++)
            assert_int_equal(got.ids[k],
                             json_integer_value(json_array_get(ids, k)));
        bauta_tokens_release(&got);
    }
}

static void case_check(const json_t *one)
{
    bool bpe = !strcmp(json_string_value(json_object_get(one, "kind")), "bpe");
    bauta_tokenizer_trainer_options o =
        options_of(bpe ? BAUTA_TOKENIZER_BPE : BAUTA_TOKENIZER_WORDPIECE,
                   number(one, "pieces"));
    lines l = lines_of(json_object_get(one, "lines"));
    const json_t *want = json_object_get(one, "vocabulary");
    size_t first = bpe ? 257 : 5;
    bauta_tokenizer *t = NULL;
    o.min_frequency = number(one, "least");
    OK(bauta_tokenizer_train(&t, &o, l.texts, l.lengths, l.count, err));
    assert_int_equal(bauta_tokenizer_vocab_size(t),
                     first + json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        assert_string_equal(
            bauta_tokenizer_piece(t, (uint32_t)(first + i), NULL),
            json_string_value(json_array_get(want, i)));
    ids_equal(t, &l, json_object_get(one, "ids"));
    bauta_tokenizer_free(t);
}

static void training_equals_hugging_face(void **state)
{
    (void)state;
    json_t *cases =
        json_load_file(BAUTA_TEST_FIXTURES "/tokenizer_training.json", 0, NULL);
    assert_true(json_array_size(cases) >= 6);
    for (size_t i = 0; i < json_array_size(cases); i++)
        case_check(json_array_get(cases, i));
    json_decref(cases);
}

static char *data_read(const char *relative, size_t *size)
{
    char buffer[1024];
    char *text;
    const char *path = test_data_path(buffer, sizeof(buffer), relative);
    if (!path)
        return NULL;
    OK(bt_file_read(&text, size, path, 1 << 26, err));
    return text;
}

/* The golden file of Hugging Face's course. */
static void a_reference_corpus_gives_its_vocabulary(void **state)
{
    (void)state;
    char path[1024];
    size_t size;
    char *text = data_read("bpe-train-reference/corpus.en", &size);
    if (!text) {
        printf("1 corpus is not there\n");
        skip();
    }
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_BPE, 500);
    o.min_frequency = 1;
    o.prefer_greatest = true;
    bauta_tokenizer *t = train_bytes(&o, text, size);
    json_t *want = json_load_file(
        test_data_path(path, sizeof(path),
                       "bpe-train-reference/train-bpe-reference-vocab.json"),
        0, NULL);
    const char *piece;
    json_t *id;
    assert_int_equal(bauta_tokenizer_vocab_size(t), json_object_size(want));
    json_object_foreach(want, piece, id)
    {
        assert_int_equal(bauta_tokenizer_find(t, piece, strlen(piece)),
                         json_integer_value(id));
    }
    json_decref(want);
    bauta_tokenizer_free(t);
    bt_free(text);
}

/* ---- substrings and lattices ------------------------------------------- */

/* Short words of a few characters of several kinds. */
static bt_word_counts *words_unigram(test_random *r, size_t most,
                                     size_t longest)
{
    static const char *const characters[] = { "a", "b", "\xC3\xA4", "1", "." };
    bt_word_counts *words;
    OK(bt_word_counts_create(&words, err));
    for (size_t n = 1 + test_below(r, most); n > 0; n--) {
        char text[512] = "\xE2\x96\x81";
        for (size_t i = test_below(r, longest); i > 0; i--)
            strcat(text, characters[test_below(r, test_below(r, 4) ? 2 : 5)]);
        OK(bt_word_counts_add(words, text, strlen(text), 1 + test_below(r, 3),
                              err));
    }
    return words;
}

/* How often a string occurs, by looking everywhere. */
static double occurrences(const bt_substrings *s, const uint32_t *string,
                          uint32_t size)
{
    double count = 0;
    for (size_t i = 0; i < s->segment_count; i++)
        for (uint32_t at = s->segments[i].begin;
             at + size <= s->segments[i].end; at++)
            if (memcmp(s->codes + at, string, size * sizeof(*string)) == 0)
                count += s->segments[i].count;
    return count;
}

static bool listed(const bt_substrings *s, const uint32_t *string,
                   uint32_t size)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->list[i].size == size &&
            !memcmp(s->codes + s->suffixes[s->list[i].lo], string,
                    size * sizeof(*string)))
            return true;
    return false;
}

static bool is_letter(uint32_t code)
{
    return code == 'a' || code == 'b' || code == 0xE4;
}

/* Whether a string of letters, with or without a space in front, occurs more
 * often than each that is one character longer. */
static bool candidate(const bt_substrings *s, uint32_t at, uint32_t size)
{
    uint32_t longer[BT_SUBSTRING_MAX + 1];
    memcpy(longer, s->codes + at, size * sizeof(*longer));
    for (uint32_t i = 0; i < size; i++)
        if (!is_letter(longer[i]) && (i || longer[i] != 0x2581))
            return false;
    double count = occurrences(s, longer, size);
    bool maximal = count >= 2;
    for (size_t i = 0; i < s->characters; i++) {
        longer[size] = s->codes[s->suffixes[s->list[i].lo]];
        maximal = maximal && occurrences(s, longer, size + 1) < count;
    }
    return maximal;
}

static void repeated_strings_are_found(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (int round = 0; round < 60; round++) {
        bt_word_counts *words = words_unigram(&r, 12, 20);
        bt_substrings s;
        OK(bt_substrings_init(&s, words, 2, 1000, err));
        for (size_t i = 0; i < s.count; i++) {
            const bt_substring *one = s.list + i;
            double count =
                occurrences(&s, s.codes + s.suffixes[one->lo], one->size);
            assert_true(one->count == count);
            assert_true(i < s.characters ? one->size == 1 : count >= 2);
        }
        for (size_t i = 0; i < s.segment_count; i++)
            for (uint32_t at = s.segments[i].begin; at < s.segments[i].end;
                 at++)
                for (uint32_t size = 2;
                     size <= BT_SUBSTRING_MAX && at + size <= s.segments[i].end;
                     size++)
                    if (candidate(&s, at, size))
                        assert_true(listed(&s, s.codes + at, size));
        bt_substrings_release(&s);
        bt_word_counts_free(words);
    }
}

/* All ways to split a word from `at` on: adds up their probabilities, and those
 * of the ways that use each piece. */
typedef struct segmentations {
    const bt_unigram_lattice *l;
    uint32_t end, path[32];
    size_t depth;
    double sum, *used, best;
} segmentations;

static void segmentations_walk(segmentations *w, uint32_t at, double chance)
{
    if (at == w->end) {
        w->sum += chance;
        w->best = fmax(w->best, chance);
        for (size_t i = 0; i < w->depth; i++)
            w->used[w->path[i]] += chance;
        return;
    }
    for (uint32_t e = w->l->first[at]; e < w->l->first[at + 1]; e++) {
        uint32_t p = w->l->edges[e];
        w->path[w->depth++] = p;
        segmentations_walk(w, at + w->l->sizes[p],
                           chance * w->l->probability[p]);
        w->depth--;
    }
}

static void chances_draw(bt_unigram_lattice *l, test_random *r, double least)
{
    for (size_t p = 0; p < l->pieces; p++) {
        l->score[p] = least * (double)(1 + test_below(r, 1000)) / 1000;
        l->probability[p] = exp(l->score[p]);
    }
}

static void expectation_sums_over_all_segmentations(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (int round = 0; round < 60; round++) {
        bt_word_counts *words = words_unigram(&r, 12, 10);
        bt_substrings s;
        bt_unigram_lattice l;
        OK(bt_substrings_init(&s, words, 2, 1000, err));
        OK(bt_unigram_lattice_init(&l, &s, err));
        chances_draw(&l, &r, -5);
        double *want = calloc(l.pieces, sizeof(double));
        double *got = calloc(l.pieces, sizeof(double));
        for (size_t i = 0; i < s.segment_count; i++) {
            segmentations w = { .l = &l, .end = s.segments[i].end };
            w.used = calloc(l.pieces, sizeof(double));
            segmentations_walk(&w, s.segments[i].begin, 1);
            for (size_t p = 0; p < l.pieces; p++)
                want[p] += s.segments[i].count * w.used[p] / w.sum;
            free(w.used);
        }
        bt_unigram_lattice_expected_counts(&l, got);
        for (size_t p = 0; p < l.pieces; p++)
            assert_true(fabs(got[p] - want[p]) <= 1e-12 * (1 + want[p]));
        free(want);
        free(got);
        bt_unigram_lattice_release(&l);
        bt_substrings_release(&s);
        bt_word_counts_free(words);
    }
}

/* Probabilities of long words underflow a double. The expected counts still
 * cover each position once. */
static void long_words_do_not_underflow(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    bt_word_counts *words;
    bt_substrings s;
    bt_unigram_lattice l;
    enum { LENGTH = 20000 };
    char *text = malloc(LENGTH);
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = "abc"[test_below(&r, 3)];
    OK(bt_word_counts_create(&words, err));
    OK(bt_word_counts_add(words, text, LENGTH, 3, err));
    OK(bt_substrings_init(&s, words, 2, 100000, err));
    OK(bt_unigram_lattice_init(&l, &s, err));
    chances_draw(&l, &r, -25);
    double *got = calloc(l.pieces, sizeof(double)), sum = 0;
    bt_unigram_lattice_expected_counts(&l, got);
    for (size_t p = 0; p < l.pieces; p++)
        sum += got[p] * l.sizes[p];
    assert_true(fabs(sum - 3. * LENGTH) < 1e-6);
    free(got);
    free(text);
    bt_unigram_lattice_release(&l);
    bt_substrings_release(&s);
    bt_word_counts_free(words);
}

static void viterbi_finds_the_best_segmentation(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (int round = 0; round < 60; round++) {
        bt_word_counts *words;
        bt_substrings s;
        bt_unigram_lattice l;
        char text[] = "abababbaabba";
        OK(bt_word_counts_create(&words, err));
        for (size_t i = 0; i + 1 < sizeof(text); i++)
            text[i] = "ab"[test_below(&r, 2)];
        OK(bt_word_counts_add(words, text, strlen(text), 2, err));
        OK(bt_substrings_init(&s, words, 2, 1000, err));
        OK(bt_unigram_lattice_init(&l, &s, err));
        chances_draw(&l, &r, -5);
        double used[64] = { 0 }, counted[64] = { 0 }, score = 0;
        assert_true(l.pieces <= 64);
        segmentations w = { .l = &l, .end = s.segments[0].end, .used = used };
        segmentations_walk(&w, s.segments[0].begin, 1);
        bt_unigram_lattice_best_counts(&l, counted);
        for (size_t p = 0; p < l.pieces; p++)
            score += counted[p] / 2 * l.score[p];
        assert_true(fabs(score - log(w.best)) < 1e-9);
        bt_unigram_lattice_release(&l);
        bt_substrings_release(&s);
        bt_word_counts_free(words);
    }
}

/* ---- Unigram ----------------------------------------------------------- */

static const char story[] =
    "The mask hides the face; it does not hide the eyes. Who wears a mask may "
    "speak: the masked one is nobody, the mask is the face. Maskers and masks, "
    "masquerades and masqueraders, the masked and the unmasked.\n"
    "In Venedig trug man die weisse Bauta, auch ausserhalb des Karnevals; die "
    "Maske, die Masken, der Maskierte, das Maskieren.\n";

static void unigram_keeps_all_characters(void **state)
{
    (void)state;
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_UNIGRAM, 80);
    bauta_tokenizer *t = train(&o, story);
    assert_in_range(bauta_tokenizer_vocab_size(t), 60, 80);
    for (const char *c = story; *c; c++)
        if (*c != ' ' && *c != '\n')
            assert_true(has(t, (char[]){ *c, '\0' }));
    assert_true(has(t, "\xE2\x96\x81"));
    assert_true(has(t, "\xE2\x96\x81the"));
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_UNK), 1);
    bauta_tokens tokens = encode(t, story, strlen(story));
    for (size_t i = 0; i < tokens.count; i++)
        assert_true(tokens.ids[i] >= 4);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
}

static void unigram_scores_are_probabilities(void **state)
{
    (void)state;
    bt_word_counts *words;
    bt_trained_vocab l;
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_UNIGRAM, 60);
    OK(bt_word_counts_create(&words, err));
    OK(bt_word_counts_add(words, "masked", 6, 20, err));
    OK(bt_word_counts_add(words, "unmasked", 8, 10, err));
    OK(bt_word_counts_add(words, "mask", 4, 30, err));
    OK(bt_word_counts_add(words, "under", 5, 7, err));
    OK(bt_learn_unigram(&l, words, &o, err));
    double sum = 0;
    size_t count = bt_vocab_size(l.vocab);
    for (size_t i = 4; i < count; i++) {
        assert_true(l.scores[i] < 0);
        assert_true(i == 4 || l.scores[i] <= l.scores[i - 1]);
        sum += exp(l.scores[i]);
    }
    assert_true(sum > 0.8 && sum <= 1);
    assert_string_equal(bt_vocab_piece(l.vocab, 4, NULL), "mask");
    bt_trained_vocab_release(&l);
    bt_word_counts_free(words);
}

/* ---- any text ---------------------------------------------------------- */

static void special_tokens_come_first_and_are_not_trained_on(void **state)
{
    (void)state;
    static const char *const specials[] = { "<end of text>", "<other>" };
    const char *text = "aab aab aab<end of text>bc<other>aab<end of text>";
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_BPE, 300);
    o.special_tokens = specials;
    o.special_token_count = 2;
    bauta_tokenizer *t = train(&o, text);
    assert_string_equal(bauta_tokenizer_piece(t, 0, NULL), "<end of text>");
    assert_string_equal(bauta_tokenizer_piece(t, 1, NULL), "<other>");
    assert_true(bauta_tokenizer_is_special(t, 0));
    assert_false(bauta_tokenizer_is_special(t, 2));
    assert_true(has(t, "aab"));
    assert_false(has(t, "en"));
    assert_int_equal(bauta_tokenizer_vocab_size(t), 258 + 3);
    bauta_tokens tokens = encode(t, text, strlen(text));
    assert_int_equal(tokens.ids[tokens.count - 1], 0);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
}

static void empty_text_gives_the_alphabet(void **state)
{
    (void)state;
    static const size_t sizes[] = { 257, 5, 4 };
    for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 1000);
        bauta_tokenizer *none = NULL, *empty = train(&o, "");
        OK(bauta_tokenizer_train(&none, &o, NULL, NULL, 0, err));
        assert_int_equal(bauta_tokenizer_vocab_size(none), sizes[k]);
        assert_int_equal(bauta_tokenizer_vocab_size(empty), sizes[k]);
        bauta_tokens tokens = encode(none, "abc", 3);
        assert_int_equal(tokens.count, k == 0 ? 3 : 1);
        bauta_tokens_release(&tokens);
        bauta_tokenizer_free(none);
        bauta_tokenizer_free(empty);
    }
}

static void fails(const bauta_tokenizer_trainer_options *o, const char *text,
                  const char *message)
{
    bauta_tokenizer *t = (bauta_tokenizer *)&seed;
    bauta_error err;
    size_t size = strlen(text);
    assert_int_equal(bauta_tokenizer_train(&t, o, &text, &size, 1, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(t);
    assert_string_equal(err.message, message);
}

static void impossible_options_are_refused(void **state)
{
    (void)state;
    static const char *const empty[] = { "a", "" }, *const wrong[] = { "\xFF" };
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_BPE, 256);
    fails(&o, "ab",
          "a vocabulary of 256 pieces is too small: the special tokens and the "
          "alphabet are 257");
    o.vocab_size = 0;
    fails(&o, "ab", "a vocabulary of 0 pieces; it must have 1 to 2097152");
    o = options_of(BAUTA_TOKENIZER_WORDPIECE, 7);
    fails(&o, "abc",
          "a vocabulary of 7 pieces is too small: the special tokens and the "
          "alphabet are 10");
    o = options_of(BAUTA_TOKENIZER_UNIGRAM, 7);
    fails(&o, "abc",
          "a vocabulary of 7 pieces is too small: the special tokens and the "
          "characters of the texts "
          "are 8");
    o.vocab_size = 3;
    fails(&o, "abc",
          "a vocabulary of 3 pieces is too small: the special tokens and the "
          "alphabet are 4");
    o = options_of(BAUTA_TOKENIZER_BPE, 300);
    o.lowercase = true;
    fails(&o, "abc", "a vocabulary of bytes has no lower case");
    o.lowercase = false;
    o.special_tokens = empty;
    o.special_token_count = 2;
    fails(&o, "abc", "special token 1 is empty");
    o.special_tokens = wrong;
    o.special_token_count = 1;
    fails(&o, "abc", "special token 0 is not UTF-8");
    o.kind = BAUTA_TOKENIZER_UNIGRAM;
    o.special_tokens = empty;
    fails(&o, "abc",
          "<unk> is not among the special tokens, and this kind of vocabulary "
          "needs it");
    o.size = 8;
    bauta_tokenizer *t;
    assert_int_equal(bauta_tokenizer_train(&t, &o, NULL, NULL, 0, NULL),
                     BAUTA_ERR_ARGUMENT);
}

static void bytes_that_are_not_utf8_are_learned_as_they_are(void **state)
{
    (void)state;
    const char text[] = "\xFF\xFE\xFF\xFE x\xFF\xFE \xC3\xC3";
    for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 300);
        bauta_tokenizer *t = train(&o, text);
        assert_int_equal(has(t, "\xC3\xBF\xC3\xBE"), k == 0);
        // The normalizers of both leave U+FFFD out.
        assert_false(has(t, "\xEF\xBF\xBD"));
        bauta_tokenizer_free(t);
    }
}

static void nul_is_a_byte_and_no_character_of_a_piece(void **state)
{
    (void)state;
    const char text[] = "ab\0ab\0ab ab\0ab\0ab";
    for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 300);
        bauta_tokenizer *t = train_bytes(&o, text, sizeof(text) - 1);
        // U+0100 stands for byte 0.
        assert_int_equal(has(t, "\xC4\x80"), k == 0);
        assert_true(has(t, "ab"));
        bauta_tokenizer_free(t);
    }
}

static void lower_case_is_learned_when_asked_for(void **state)
{
    (void)state;
    for (size_t k = 1; k < BT_LEN(all_kinds); k++) {
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 100);
        bauta_tokenizer *t = train(&o, "MASK mask Mask");
        assert_true(has(t, "M"));
        bauta_tokenizer_free(t);
        o.lowercase = true;
        t = train(&o, "MASK mask Mask");
        assert_false(has(t, "M"));
        bauta_tokens tokens = encode(t, "MASK", 4);
        assert_int_equal(tokens.count, 1);
        bauta_tokens_release(&tokens);
        bauta_tokenizer_free(t);
    }
}

/* A megabyte without a space: of one letter, of two, and of random words. */
static void a_word_of_a_megabyte_trains_in_linear_time(void **state)
{
    (void)state;
#ifdef BT_SANITIZED
    enum { SIZE = 1 << 18 };
#else
    enum { SIZE = 1 << 20 };
#endif
    test_random r = test_random_from(seed);
    char *text = malloc(SIZE);
    for (size_t letters = 1; letters <= 26; letters = letters * 5 + 3)
        for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
            bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 1000);
            for (size_t i = 0; i < SIZE; i++)
                text[i] = (char)('a' + test_below(&r, letters));
            clock_t begin = clock();
            bauta_tokenizer *t = train_bytes(&o, text, SIZE);
            // A second or two without sanitizers.
            assert_true(clock() - begin < 120 * CLOCKS_PER_SEC);
            bauta_tokenizer_free(t);
        }
    free(text);
}

/* Longer texts are read in slices, which must not affect the result. */
static void slices_do_not_change_the_words(void **state)
{
    (void)state;
    static const char *const bits[] = {
        "a", "b",        " ",  "  ",           "\n", ".",
        "1", "\xC2\xA0", "'s", "\xE3\x80\x80", "\t"
    };
    test_random r = test_random_from(seed);
    enum { SIZE = 900 << 10 };
    char *text = malloc(SIZE + 8);
    size_t size = 0, count;
    while (size < SIZE) {
        const char *bit = bits[test_below(&r, BT_LEN(bits))];
        memcpy(text + size, bit, strlen(bit));
        size += strlen(bit);
    }
    json_t *json =
        json_loads(bt_trainer_pretokenizer_json(
                       &(bauta_tokenizer_trainer_options){ .size = 0 }),
                   0, NULL);
    bt_pretokenizer *p;
    bt_added_tokens *none;
    bt_word_counts *got;
    bt_splits all = { .list = NULL };
    uint64_t sum = 0;
    OK(bt_pretokenizer_parse(&p, json, "test", err));
    OK(bt_added_tokens_create(&none, NULL, 0, NULL, "test", err));
    OK(bt_word_counts_create(&got, err));
    OK(bt_word_counts_add_text(got, text, size, false, none, NULL, p, err));
    OK(bt_aligned_text_init(&all.text, text, size, 0, err));
    OK(bt_splits_add(&all, (bt_split){ 0, (uint32_t)size, BT_NO_TOKEN, true },
                     err));
    OK(bt_pretokenizer_run(p, &all, err));
    const bt_counted_word *list = bt_word_counts_list(got, &count);
    for (size_t i = 0; i < count; i++)
        sum += list[i].count;
    assert_int_equal(sum, all.count);
    for (size_t i = 0; i < all.count; i++) // takes each word away again
        OK(bt_word_counts_add(got, text + all.list[i].lo,
                              all.list[i].hi - all.list[i].lo, (uint64_t)-1,
                              err));
    list = bt_word_counts_list(got, &count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(list[i].count, 0);
    bt_splits_release(&all);
    bt_word_counts_free(got);
    bt_added_tokens_free(none);
    bt_pretokenizer_free(p);
    json_decref(json);
    free(text);
}

/* ---- the rest ---------------------------------------------------------- */

static bool greater(const void *user, uint32_t a, uint32_t b)
{
    const uint32_t *values = user;
    return values[a] > values[b];
}

static void sorting_is_stable(void **state)
{
    (void)state;
    uint32_t values[1000] = { 0 }, list[1000], spare[1000];
    test_random r = test_random_from(seed);
    for (size_t count = 0; count <= 1000; count += 1 + count / 3) {
        for (uint32_t i = 0; i < count; i++) {
            values[i] = (uint32_t)test_below(&r, 20);
            list[i] = i;
        }
        bt_merge_sort(list, spare, count, greater, values);
        for (size_t i = 1; i < count; i++) {
            uint32_t a = values[list[i - 1]], b = values[list[i]];
            assert_true(a < b || (a == b && list[i - 1] < list[i]));
        }
    }
}

static void words_are_counted_in_order_of_appearance(void **state)
{
    (void)state;
    bt_word_counts *words;
    size_t count;
    OK(bt_word_counts_create(&words, err));
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 5000; i++)
            OK(bt_word_counts_add(words, (const char *)&i, sizeof(i), i, err));
    OK(bt_word_counts_add(words, "", 0, 1, err));
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    assert_int_equal(count, 5001);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_memory_equal(list[i].bytes, &i, sizeof(i));
        assert_int_equal(list[i].count, 2 * i);
    }
    bt_word_counts_free(words);
}

static void a_trained_tokenizer_is_saved_and_loaded(void **state)
{
    (void)state;
    for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
        temp_folder s = temp_folder_create();
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 320);
        bauta_tokenizer *made = train(&o, story), *read = NULL;
        OK(bauta_tokenizer_save(made, s.folder, err));
        assert_int_equal(temp_folder_count(&s), 2);
        OK(bauta_tokenizer_load(&read, s.folder, err));
        for (unsigned name = 0; name < BAUTA_TOKEN_COUNT; name++)
            assert_int_equal(
                bauta_tokenizer_special_token(made, (bauta_special_token)name),
                bauta_tokenizer_special_token(read, (bauta_special_token)name));
        assert_int_equal(bauta_tokenizer_vocab_size(made),
                         bauta_tokenizer_vocab_size(read));
        bauta_tokens a = encode(made, story, strlen(story));
        bauta_tokens b = encode(read, story, strlen(story));
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ids, b.ids, a.count * sizeof(*a.ids));
        bauta_tokens_release(&a);
        bauta_tokens_release(&b);
        bauta_tokenizer_free(made);
        bauta_tokenizer_free(read);
        temp_folder_free(&s);
    }
}

static void progress_note(void *user, size_t done, size_t all)
{
    size_t *last = user;
    assert_true(done >= last[0] && done <= all);
    last[0] = done;
    last[1] = all;
}

static void progress_rises_to_the_end(void **state)
{
    (void)state;
    for (size_t k = 0; k < BT_LEN(all_kinds); k++) {
        size_t last[2] = { 0 };
        bauta_tokenizer_trainer_options o = options_of(all_kinds[k], 320);
        o.progress = progress_note;
        o.user = last;
        bauta_tokenizer_free(train(&o, story));
        assert_true(last[1] > 0);
        assert_int_equal(last[0], last[1]);
    }
}

static void allocation_failure_leaves_no_files(void **state)
{
    (void)state;
    const char *texts[] = { story, "\xFF<|endoftext|>\xFE [UNK] <s>" };
    size_t lengths[] = { strlen(texts[0]), strlen(texts[1]) };
    for (size_t kind = 0; kind < 2 * BT_LEN(all_kinds); kind++) {
        bauta_tokenizer *t = NULL;
        bauta_tokenizer_trainer_options o =
            options_of(all_kinds[kind / 2], 300);
        o.prefer_greatest = kind % 2;
        faults_begin();
        for (size_t k = 0;; k++) {
            size_t live = faults_live();
            faults_arm(k);
            bauta_status status =
                bauta_tokenizer_train(&t, &o, texts, lengths, 2, NULL);
            if (!faults_disarm())
                break;
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_null(t);
            assert_int_equal(faults_live(), live);
        }
        assert_non_null(t);
        bauta_tokenizer_free(t);
        assert_int_equal(faults_end(), 0);
    }
}

/* ---- files ------------------------------------------------------------- */

/* The tokenizer.json of a tokenizer, which is freed. */
static char *json_of(bauta_tokenizer *t, size_t *size)
{
    temp_folder s = temp_folder_create();
    char *text = NULL;
    OK(bauta_tokenizer_save(t, s.folder, err));
    OK(bt_file_read(&text, size, temp_folder_path(&s, "tokenizer.json"),
                    1 << 26, err));
    bauta_tokenizer_free(t);
    temp_folder_free(&s);
    return text;
}

static void same_tokenizers(bauta_tokenizer *a, bauta_tokenizer *b)
{
    size_t size, other;
    char *one = json_of(a, &size), *two = json_of(b, &other);
    assert_int_equal(size, other);
    assert_memory_equal(one, two, size);
    bt_free(one);
    bt_free(two);
}

/* Training from files, in parts, equals training from texts at once. */
static void training_from_files_equals_training_from_texts(void **state)
{
    (void)state;
    enum { SIZE = 700000 };
    static char text[SIZE + 16];
    static const char *const bits[] = { "ab", "abc", "xy",   " ", "\n",
                                        "\t", "  x", "\r\n", "d." };
    test_random r = test_random_from(seed);
    size_t size = 0;
    while (size < SIZE)
        size += (size_t)sprintf(text + size, "%s", bits[test_below(&r, 9)]);
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_write(&s, "text", text, size);
    for (int kind = 0; kind <= BAUTA_TOKENIZER_CHARACTERS; kind++) {
        bauta_tokenizer_trainer_options o =
            options_of((bauta_tokenizer_kind)kind, 300);
        bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
        bauta_tokenizer_trainer *v = NULL;
        bauta_tokenizer *got = NULL;
        how.skip_invalid = kind % 2;
        OK(bauta_tokenizer_trainer_create(&v, &o, err));
        OK(bauta_tokenizer_trainer_add_files(v, &path, 1, &how, err));
        OK(bauta_tokenizer_trainer_train(v, &got, err));
        assert_int_equal(bauta_tokenizer_trainer_bytes(v), size);
        assert_int_equal(bauta_tokenizer_trainer_texts(v), 1);
        same_tokenizers(got, train_bytes(&o, text, size));
        bauta_tokenizer_trainer_free(v);
    }
    temp_folder_free(&s);
}

static void lines_and_columns_are_texts(void **state)
{
    (void)state;
    static const char *const want[] = { "ab ab\n", "ab\n", "cd cd\n", "cd" };
    static const size_t lengths[] = { 6, 3, 6, 2 };
    temp_folder s = temp_folder_create();
    char path[512];
    snprintf(path, sizeof(path), "%s",
             temp_folder_write(&s, "text", "ab ab\nab\ncd cd\ncd", 17));
    const char *columns =
        temp_folder_write(&s, "two", "ab ab\tab\ncd cd\tcd", 17);
    const char *files[] = { path, NULL };
    bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
    bauta_tokenizer_trainer_options o = options_of(BAUTA_TOKENIZER_BPE, 300);
    how.lines = true;
    for (int pairs = 0; pairs < 2; pairs++) {
        bauta_tokenizer_trainer *v = NULL;
        bauta_tokenizer *got = NULL, *all = NULL;
        OK(bauta_tokenizer_trainer_create(&v, &o, err));
        OK(pairs
               ? bauta_tokenizer_trainer_add_pairs(v, columns, NULL, &how, err)
               : bauta_tokenizer_trainer_add_files(v, files, 1, &how, err));
        assert_int_equal(bauta_tokenizer_trainer_texts(v), 4);
        OK(bauta_tokenizer_trainer_train(v, &got, err));
        OK(bauta_tokenizer_train(&all, &o, want, lengths, 4, err));
        same_tokenizers(got, all);
        assert_int_equal(
            bauta_tokenizer_trainer_add_files(v, files, 2, &how, NULL),
            BAUTA_ERR_ARGUMENT);
        bauta_tokenizer_trainer_free(v);
    }
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorting_is_stable),
        cmocka_unit_test(words_are_counted_in_order_of_appearance),
        cmocka_unit_test(slices_do_not_change_the_words),
        cmocka_unit_test(merges_equal_recounting),
        cmocka_unit_test(pair_scores_equal_recounting),
        cmocka_unit_test(training_equals_hugging_face),
        cmocka_unit_test(a_reference_corpus_gives_its_vocabulary),
        cmocka_unit_test(repeated_strings_are_found),
        cmocka_unit_test(expectation_sums_over_all_segmentations),
        cmocka_unit_test(long_words_do_not_underflow),
        cmocka_unit_test(viterbi_finds_the_best_segmentation),
        cmocka_unit_test(unigram_keeps_all_characters),
        cmocka_unit_test(unigram_scores_are_probabilities),
        cmocka_unit_test(special_tokens_come_first_and_are_not_trained_on),
        cmocka_unit_test(empty_text_gives_the_alphabet),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_learned_as_they_are),
        cmocka_unit_test(nul_is_a_byte_and_no_character_of_a_piece),
        cmocka_unit_test(lower_case_is_learned_when_asked_for),
        cmocka_unit_test(a_word_of_a_megabyte_trains_in_linear_time),
        cmocka_unit_test(a_trained_tokenizer_is_saved_and_loaded),
        cmocka_unit_test(progress_rises_to_the_end),
        cmocka_unit_test(allocation_failure_leaves_no_files),
        cmocka_unit_test(training_from_files_equals_training_from_texts),
        cmocka_unit_test(lines_and_columns_are_texts),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

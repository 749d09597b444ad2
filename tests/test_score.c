/* SPDX-License-Identifier: Apache-2.0 */
/* test_score.c - BLEU and chrF, through the API. Expected values are those of
 * sacrebleu 2.6.0 for the same sentences. */
#include "testing.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "data.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define VECTORS "bleu-vectors/"

static void near(const char *name, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9))
        fail_msg("%s: %.17g, not %.17g", name, got, want);
}

/* All of a signature but its end, which names the program. */
static void signature_is(const char *got, const char *want)
{
    const char *version = strstr(want, "|version:");
    size_t length = version ? (size_t)(version - want) : strlen(want);
    if (strncmp(got, want, length) != 0 ||
        strncmp(got + length, "|version:bauta-", 15) != 0)
        fail_msg("\"%s\", not \"%s\"", got, want);
}

/* ---- The vectors --------------------------------------------------------- */

/* Two systems' translations of a newspaper, and the reference. */
enum { LINES = 400 };
typedef struct lines {
    char *text;
    const char *at[LINES];
} lines;

static lines lines_read(const char *name)
{
    char path[512], relative[64];
    lines l = { NULL, { NULL } };
    size_t room = 1 << 20;
    snprintf(relative, sizeof(relative), VECTORS "%s", name);
    assert_non_null(test_data_path(path, sizeof(path), relative));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    l.text = calloc(1, room);
    assert_true(fread(l.text, 1, room - 1, file) > 0);
    fclose(file);
    char *at = l.text;
    for (size_t i = 0; i < LINES; i++) {
        l.at[i] = at;
        at = strchr(at, '\n');
        assert_non_null(at);
        *at++ = '\0';
    }
    return l;
}

static json_t *vectors(void)
{
    char path[512];
    if (!test_data_path(path, sizeof(path), VECTORS "scores.json")) {
        printf("skipped: 27 scores, for there is no " VECTORS "\n");
        skip();
    }
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    return all;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static double number_at(const json_t *object, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(object, key), i));
}

static void bleu_is(const char *name, const json_t *want,
                    const bauta_translations *texts,
                    const bauta_bleu_options *options)
{
    bauta_bleu_score got = BAUTA_BLEU_SCORE_INIT;
    assert_int_equal(bauta_bleu(texts, options, &got, NULL, NULL), BAUTA_OK);
    near(name, got.score, number(want, "score"));
    near("brevity", got.brevity_penalty, number(want, "bp"));
    near("length", (double)got.hypothesis_length, number(want, "sys_len"));
    near("reference", (double)got.reference_length, number(want, "ref_len"));
    for (size_t n = 0; n < 4; n++) {
        near("matches", (double)got.matches[n], number_at(want, "counts", n));
        near("totals", (double)got.totals[n], number_at(want, "totals", n));
        near("precision", got.precisions[n], number_at(want, "precisions", n));
    }
    signature_is(got.signature,
                 json_string_value(json_object_get(want, "signature")));
}

static void chrf_is(const char *name, const json_t *want,
                    const bauta_translations *texts, size_t words)
{
    bauta_chrf_options options = BAUTA_CHRF_OPTIONS_INIT;
    bauta_chrf_score got = BAUTA_CHRF_SCORE_INIT;
    options.word_order = words;
    assert_int_equal(bauta_chrf(texts, &options, &got, NULL, NULL), BAUTA_OK);
    near(name, got.score, number(want, "score"));
    assert_string_equal(got.name, name);
    signature_is(got.signature,
                 json_string_value(json_object_get(want, "signature")));
}

static void a_corpus_scores_as_with_sacrebleu(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bauta_bleu_tokenizer tokenizer;
        bool lowercase;
    } ways[] = {
        { "BLEU|tok:13a", BAUTA_TOKENIZE_13A, false },
        { "BLEU|tok:13a|lc", BAUTA_TOKENIZE_13A, true },
        { "BLEU|tok:none", BAUTA_TOKENIZE_NONE, false },
        { "BLEU|tok:intl", BAUTA_TOKENIZE_INTL, false },
        { "BLEU|tok:char", BAUTA_TOKENIZE_CHAR, false },
    };
    json_t *all = vectors(), *want;
    const char *system;
    lines ref = lines_read("ref.de");
    json_object_foreach(json_object_get(all, "corpus"), system, want)
    {
        lines hyp = lines_read(system);
        bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
        texts.count = LINES;
        texts.hypotheses = hyp.at;
        texts.references = ref.at;
        for (size_t i = 0; i < BT_LEN(ways); i++) {
            bauta_bleu_options options = BAUTA_BLEU_OPTIONS_INIT;
            options.tokenizer = ways[i].tokenizer;
            options.lowercase = ways[i].lowercase;
            bleu_is(ways[i].name, json_object_get(want, ways[i].name), &texts,
                    &options);
        }
        chrf_is("chrF2", json_object_get(want, "chrF2"), &texts, 0);
        chrf_is("chrF2++", json_object_get(want, "chrF2++"), &texts, 2);
        free(hyp.text);
    }
    free(ref.text);
    json_decref(all);
}

static void sentences_score_as_with_sacrebleu(void **state)
{
    (void)state;
    json_t *all = vectors(), *item;
    size_t index;
    bauta_bleu_options effective = BAUTA_BLEU_OPTIONS_INIT;
    bauta_chrf_options words = BAUTA_CHRF_OPTIONS_INIT;
    effective.effective_order = true;
    words.word_order = 2;
    json_array_foreach(json_object_get(all, "sentence"), index, item)
    {
        const char *hyp = json_string_value(json_object_get(item, "hyp"));
        const char *ref = json_string_value(json_object_get(item, "ref"));
        bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
        bauta_bleu_score bleu = BAUTA_BLEU_SCORE_INIT;
        bauta_chrf_score chrf = BAUTA_CHRF_SCORE_INIT;
        double alone;
        texts.count = 1;
        texts.hypotheses = &hyp;
        texts.references = &ref;
        assert_int_equal(bauta_bleu(&texts, &effective, &bleu, &alone, NULL),
                         0);
        near(hyp, bleu.score,
             number(item, "bleu_13a_effective_order_smooth_exp"));
        assert_true(alone == bleu.score);
        assert_int_equal(bauta_chrf(&texts, NULL, &chrf, &alone, NULL), 0);
        near(hyp, chrf.score, number(item, "chrf2"));
        assert_true(alone == chrf.score);
        assert_int_equal(bauta_chrf(&texts, &words, &chrf, NULL, NULL), 0);
        near(hyp, chrf.score, number(item, "chrf2pp"));
    }
    json_decref(all);
}

/* The published vectors give four numbers without their sentences. These
 * sentences have the counts that lead to them. */
static void each_smoothing_is_sacrebleus(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bauta_bleu_smoothing smoothing;
        double want;
    } methods[] = {
        { "exp", BAUTA_SMOOTH_EXP, 11.752701606523267 },
        { "floor", BAUTA_SMOOTH_FLOOR, 6.250434473199144 },
        { "add-k", BAUTA_SMOOTH_ADD_K, 16.89117605559583 },
        { "none", BAUTA_SMOOTH_NONE, 0.0 },
    };
    const char *hyp[] = { "a b x y", "c d" };
    const char *ref[] = { "a b p q r s t", "c p d q r" };
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    texts.count = 2;
    texts.hypotheses = hyp;
    texts.references = ref;
    for (size_t i = 0; i < BT_LEN(methods); i++) {
        bauta_bleu_options options = BAUTA_BLEU_OPTIONS_INIT;
        bauta_bleu_score got = BAUTA_BLEU_SCORE_INIT;
        options.smoothing = methods[i].smoothing;
        assert_int_equal(bauta_bleu(&texts, &options, &got, NULL, NULL), 0);
        near(methods[i].name, got.score, methods[i].want);
    }
}

/* ---- Small cases --------------------------------------------------------- */

/* Two sets of references, of which the second lacks a sentence. */
static const char *const few_hyp[] = { "The cat sat on the mat.",
                                       "ΟΔΟΣ ΣΑΣ, İs 3.5€ – „ja“", "a b c" };
static const char *const few_ref[] = {
    "The cat is on the mat.", "οδος σας, i̇s 3.5 € – „Ja“", "a b c d",
    "A cat sat on a mat .",   "Οδός σας: is 3,5€",         NULL
};

static bauta_translations few(void)
{
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    texts.count = 3;
    texts.hypotheses = few_hyp;
    texts.sets = 2;
    texts.references = few_ref;
    return texts;
}

static const struct {
    bauta_bleu_options options;
    double score, brevity;
    uint64_t matches[7], totals[7];
    const char *signature;
} bleus[] = {
#define SIZE sizeof(bauta_bleu_options)
    { { SIZE, BAUTA_TOKENIZE_13A, BAUTA_SMOOTH_EXP, -1, 4, false, false,
        false },
      32.7133055688988,
      0.8890097654027757,
      { 12, 8, 4, 1 },
      { 17, 14, 11, 8 },
      "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp" },
    { { SIZE, BAUTA_TOKENIZE_13A, BAUTA_SMOOTH_EXP, -1, 4, true, false, false },
      51.199090109109044,
      0.8890097654027757,
      { 16, 12, 6, 2 },
      { 17, 14, 11, 8 },
      "nrefs:var|case:lc|eff:no|tok:13a|smooth:exp" },
    { { SIZE, BAUTA_TOKENIZE_INTL, BAUTA_SMOOTH_EXP, -1, 4, true, true, false },
      84.52261090570597,
      0.951229424500714,
      { 20, 17, 12, 8 },
      { 20, 17, 14, 11 },
      "nrefs:var|case:lc|eff:yes|tok:intl|smooth:exp" },
    { { SIZE, BAUTA_TOKENIZE_CHAR, BAUTA_SMOOTH_EXP, -1, 4, true, false,
        false },
      98.59887563642262,
      1.0,
      { 40, 38, 35, 31 },
      { 41, 38, 35, 32 },
      "nrefs:var|case:lc|eff:no|tok:char|smooth:exp" },
    { { SIZE, BAUTA_TOKENIZE_NONE, BAUTA_SMOOTH_EXP, -1, 4, false, false,
        false },
      28.214660417855164,
      0.8751733190429475,
      { 10, 7, 3, 0 },
      { 15, 12, 9, 6 },
      "nrefs:var|case:mixed|eff:no|tok:none|smooth:exp" },
    { { SIZE, BAUTA_TOKENIZE_13A, BAUTA_SMOOTH_FLOOR, 0.25, 6, false, false,
        false },
      16.93284475540742,
      0.8890097654027757,
      { 12, 8, 4, 1, 0, 0 },
      { 17, 14, 11, 8, 6, 4 },
      "nrefs:var|case:mixed|eff:no|tok:13a|smooth:floor[0.25]" },
    { { SIZE, BAUTA_TOKENIZE_13A, BAUTA_SMOOTH_ADD_K, 2.5, 6, false, false,
        false },
      39.885388155642985,
      0.8890097654027757,
      { 12, 8, 4, 1, 0, 0 },
      { 17, 14, 11, 8, 6, 4 },
      "nrefs:var|case:mixed|eff:no|tok:13a|smooth:add-k[2.50]" },
    { { SIZE, BAUTA_TOKENIZE_NONE, BAUTA_SMOOTH_NONE, -1, 7, false, false,
        false },
      0.0,
      0.8751733190429475,
      { 10, 7, 3, 0, 0, 0, 0 },
      { 15, 12, 9, 6, 4, 2, 0 },
      "nrefs:var|case:mixed|eff:no|tok:none|smooth:none" },
#undef SIZE
};

static void every_option_of_bleu_has_an_effect(void **state)
{
    (void)state;
    bauta_translations texts = few();
    for (size_t i = 0; i < BT_LEN(bleus); i++) {
        bauta_bleu_score got = BAUTA_BLEU_SCORE_INIT;
        assert_int_equal(
            bauta_bleu(&texts, &bleus[i].options, &got, NULL, NULL), 0);
        near(bleus[i].signature, got.score, bleus[i].score);
        near(bleus[i].signature, got.brevity_penalty, bleus[i].brevity);
        for (size_t n = 0; n < 7; n++) {
            assert_int_equal(got.matches[n], bleus[i].matches[n]);
            assert_int_equal(got.totals[n], bleus[i].totals[n]);
        }
        signature_is(got.signature, bleus[i].signature);
    }
}

static const struct {
    bauta_chrf_options options;
    double score;
    const char *name, *signature;
} chrfs[] = {
#define SIZE sizeof(bauta_chrf_options)
    { { SIZE, 6, 0, 2, false, false, false, false },
      46.570855452227335,
      "chrF2",
      "nrefs:var|case:mixed|eff:yes|nc:6|nw:0|space:no" },
    { { SIZE, 6, 2, 2, false, false, false, false },
      47.14215535937099,
      "chrF2++",
      "nrefs:var|case:mixed|eff:yes|nc:6|nw:2|space:no" },
    { { SIZE, 6, 2, 2, true, false, false, false },
      81.11705717239414,
      "chrF2++",
      "nrefs:var|case:lc|eff:yes|nc:6|nw:2|space:no" },
    { { SIZE, 6, 0, 3, false, true, false, false },
      48.711188469256655,
      "chrF3",
      "nrefs:var|case:mixed|eff:yes|nc:6|nw:0|space:yes" },
    { { SIZE, 9, 1, 2, false, false, true, false },
      36.801659385957485,
      "chrF2+",
      "nrefs:var|case:mixed|eff:no|nc:9|nw:1|space:no" },
    { { SIZE, 0, 2, 1, false, false, false, false },
      50.557053744109396,
      "chrF1++",
      "nrefs:var|case:mixed|eff:yes|nc:0|nw:2|space:no" },
#undef SIZE
};

static void every_option_of_chrf_has_an_effect(void **state)
{
    (void)state;
    static const uint64_t matches[] = { 29, 22, 17, 13, 10, 7, 11, 6 };
    static const uint64_t hypothesis[] = { 40, 37, 34, 31, 29, 27, 17, 14 };
    static const uint64_t reference[] = { 41, 38, 35, 32, 29, 27, 19, 16 };
    bauta_translations texts = few();
    for (size_t i = 0; i < BT_LEN(chrfs); i++) {
        bauta_chrf_score got = BAUTA_CHRF_SCORE_INIT;
        assert_int_equal(
            bauta_chrf(&texts, &chrfs[i].options, &got, NULL, NULL), 0);
        near(chrfs[i].signature, got.score, chrfs[i].score);
        assert_string_equal(got.name, chrfs[i].name);
        signature_is(got.signature, chrfs[i].signature);
        if (i != 1)
            continue;
        assert_int_equal(got.orders, 8);
        for (size_t n = 0; n < 8; n++) {
            assert_int_equal(got.matches[n], matches[n]);
            assert_int_equal(got.hypothesis_totals[n], hypothesis[n]);
            assert_int_equal(got.reference_totals[n], reference[n]);
        }
    }
}

static void a_sentence_too_short_scores_by_its_effective_order(void **state)
{
    (void)state;
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    bauta_bleu_options options = BAUTA_BLEU_OPTIONS_INIT;
    bauta_bleu_score got = BAUTA_BLEU_SCORE_INIT;
    texts.count = 1;
    texts.hypotheses = few_hyp + 2;
    texts.references = few_ref + 2;
    assert_int_equal(bauta_bleu(&texts, NULL, &got, NULL, NULL), 0);
    near("whole order", got.score, 0);
    options.effective_order = true;
    assert_int_equal(bauta_bleu(&texts, &options, &got, NULL, NULL), 0);
    near("effective order", got.score, 71.65313105737896);
}

static void lengths_may_be_given_and_any_bytes_are_text(void **state)
{
    (void)state;
    const char *hyp[] = { "a\0b c d\xff e", "x" };
    const char *ref[] = { "a\0b c d\xef\xbf\xbd e", "x y" };
    const size_t hyp_lengths[] = { 10, 1 }, ref_lengths[] = { 12, 1 };
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    bauta_chrf_score got = BAUTA_CHRF_SCORE_INIT;
    texts.count = 2;
    texts.hypotheses = hyp;
    texts.hypothesis_lengths = hyp_lengths;
    texts.references = ref;
    texts.reference_lengths = ref_lengths;
    assert_int_equal(bauta_chrf(&texts, NULL, &got, NULL, NULL), 0);
    assert_int_equal(got.matches[0], 8);
    assert_int_equal(got.reference_totals[0], 8);
    near("equal", got.score, 100);
}

/* ---- Random sentences ---------------------------------------------------- */

enum { WORDS_MAX = 12, SETS = 3, RANDOM_ORDER = 5 };

typedef struct sentence {
    char text[2 * WORDS_MAX + 1];
    size_t words;
} sentence;

/* Words of one letter, few enough to repeat. */
static sentence sentence_draw(test_random *r)
{
    sentence s = { "", test_below(r, WORDS_MAX + 1) };
    size_t letters = 1 + test_below(r, 4);
    for (size_t i = 0; i < s.words; i++) {
        s.text[2 * i] = (char)('a' + test_below(r, letters));
        s.text[2 * i + 1] = ' ';
    }
    return s;
}

/* How often the n-gram at `gram` is in a sentence. */
static size_t occurs(const sentence *s, const char *gram, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i + n <= s->words; i++)
        count += memcmp(s->text + 2 * i, gram, 2 * n) == 0;
    return count;
}

/* N-grams that a sentence shares with references, each counted at its first
 * occurrence: with all of them (BLEU), or with one (chrF). */
static uint64_t shared(const sentence *hyp, const sentence *refs, size_t count,
                       size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + n <= hyp->words; i++) {
        const char *gram = hyp->text + 2 * i;
        sentence before = *hyp;
        size_t most = 0, mine = occurs(hyp, gram, n);
        before.words = i + n - 1;
        if (occurs(&before, gram, n))
            continue;
        for (size_t k = 0; k < count; k++) {
            size_t theirs = occurs(&refs[k], gram, n);
            most = theirs > most ? theirs : most;
        }
        sum += mine < most ? mine : most;
    }
    return sum;
}

static void random_sentence_counts_equal_a_reference(void **state)
{
    test_random *r = *state;
    bauta_bleu_options bleu = BAUTA_BLEU_OPTIONS_INIT;
    bauta_chrf_options chrf = BAUTA_CHRF_OPTIONS_INIT;
    bleu.max_ngram_order = chrf.word_order = chrf.char_order = RANDOM_ORDER;
    for (size_t turn = 0; turn < 2000; turn++) {
        sentence hyp = sentence_draw(r), refs[SETS];
        const char *hyp_text = hyp.text, *ref_texts[SETS];
        bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
        bauta_bleu_score all = BAUTA_BLEU_SCORE_INIT;
        bauta_chrf_score one = BAUTA_CHRF_SCORE_INIT;
        for (size_t k = 0; k < SETS; k++) {
            refs[k] = sentence_draw(r);
            ref_texts[k] = refs[k].text;
        }
        texts.count = 1;
        texts.hypotheses = &hyp_text;
        texts.references = ref_texts;
        assert_int_equal(bauta_chrf(&texts, &chrf, &one, NULL, NULL), 0);
        texts.sets = SETS;
        assert_int_equal(bauta_bleu(&texts, &bleu, &all, NULL, NULL), 0);
        for (size_t n = 1; n <= RANDOM_ORDER; n++) {
            uint64_t want = shared(&hyp, refs, 1, n);
            assert_int_equal(all.matches[n - 1], shared(&hyp, refs, SETS, n));
            assert_int_equal(one.matches[n - 1], want);
            assert_int_equal(one.matches[RANDOM_ORDER + n - 1], want);
        }
    }
}

/* ---- Refusals, and failing allocations ----------------------------------- */

#define REFUSED(call, words)                                          \
    do {                                                              \
        assert_int_equal(call, BAUTA_ERR_ARGUMENT);                   \
        if (!strstr(err.message, words))                              \
            fail_msg("\"%s\" should say \"%s\"", err.message, words); \
    } while (0)

static void arguments_out_of_range_are_an_error(void **state)
{
    (void)state;
    const bauta_translations fine = few();
    const bauta_bleu_options bleu_fine = BAUTA_BLEU_OPTIONS_INIT;
    const bauta_chrf_options chrf_fine = BAUTA_CHRF_OPTIONS_INIT;
    bauta_translations t = fine;
    bauta_bleu_options b = bleu_fine;
    bauta_chrf_options c = chrf_fine;
    bauta_bleu_score bleu = BAUTA_BLEU_SCORE_INIT;
    bauta_chrf_score chrf = BAUTA_CHRF_SCORE_INIT;
    const char *without[3] = { "a", NULL, "c" };
    bauta_error err;
    REFUSED(bauta_bleu(NULL, &b, &bleu, NULL, &err), "texts is NULL");
    REFUSED(bauta_bleu(&t, &b, NULL, NULL, &err), "score is NULL");
    REFUSED(bauta_chrf(&t, &c, NULL, NULL, &err), "score is NULL");
#define TEXTS(change, words)                                     \
    do {                                                         \
        t = fine;                                                \
        change;                                                  \
        REFUSED(bauta_bleu(&t, NULL, &bleu, NULL, &err), words); \
        REFUSED(bauta_chrf(&t, NULL, &chrf, NULL, &err), words); \
    } while (0)
    TEXTS(t.size = 0, "BAUTA_TRANSLATIONS_INIT");
    TEXTS(t.count = 0, "there are no sentences");
    TEXTS(t.sets = 0, "there are 0 sets");
    TEXTS(t.hypotheses = NULL, "hypotheses is NULL");
    TEXTS(t.references = NULL, "references is NULL");
    TEXTS(t.hypotheses = without, "hypothesis 1 is NULL");
    TEXTS((t.references = without, t.sets = 1), "sentence 1 has no reference");
    t = fine;
#define BLEU(change, words)                                    \
    do {                                                       \
        b = bleu_fine;                                         \
        change;                                                \
        REFUSED(bauta_bleu(&t, &b, &bleu, NULL, &err), words); \
    } while (0)
    BLEU(b.size = 1, "BAUTA_BLEU_OPTIONS_INIT");
    BLEU(b.tokenizer = (bauta_bleu_tokenizer)4, "no tokenizer 4");
    BLEU(b.smoothing = (bauta_bleu_smoothing)4, "no smoothing 4");
    BLEU(b.smoothing_value = NAN, "smoothing_value is");
    BLEU(b.smoothing_value = 1e9, "smoothing_value is 1e+09");
    BLEU(b.max_ngram_order = 0, "max_ngram_order is 0");
    BLEU(b.max_ngram_order = BAUTA_NGRAM_MAX + 1,
         "max_ngram_order is 17, not from 1 to 16");
    BLEU(bleu.size = 3, "BAUTA_BLEU_SCORE_INIT");
#define CHRF(change, words)                                    \
    do {                                                       \
        c = chrf_fine;                                         \
        change;                                                \
        REFUSED(bauta_chrf(&t, &c, &chrf, NULL, &err), words); \
    } while (0)
    CHRF(c.size = 1, "BAUTA_CHRF_OPTIONS_INIT");
    CHRF(c.char_order = 17, "17 characters and 0 words");
    CHRF(c.word_order = 17, "6 characters and 17 words");
    CHRF(c.char_order = 0, "neither of characters nor of words");
    CHRF(c.beta = 1001, "beta is 1001");
    CHRF(chrf.size = 3, "BAUTA_CHRF_SCORE_INIT");
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    bauta_translations texts = few();
    bauta_bleu_options options = BAUTA_BLEU_OPTIONS_INIT;
    bauta_chrf_options words = BAUTA_CHRF_OPTIONS_INIT;
    size_t k = 0, faults_seen = 0;
    bauta_error err;
    words.word_order = 2;
    options.lowercase = words.lowercase = true;
    faults_begin();
    for (int way = 0; way < 5; way++) {
        options.tokenizer = (bauta_bleu_tokenizer)(way % 4);
        for (k = 0;; k++) {
            bauta_bleu_score bleu = BAUTA_BLEU_SCORE_INIT;
            bauta_chrf_score chrf = BAUTA_CHRF_SCORE_INIT;
            faults_arm(k);
            bauta_status status =
                way < 4 ? bauta_bleu(&texts, &options, &bleu, NULL, &err)
                        : bauta_chrf(&texts, &words, &chrf, NULL, &err);
            bool failed = faults_disarm();
            assert_int_equal(faults_live(), 0);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (!failed)
                break;
            assert_non_null(strstr(err.message, "out of memory"));
            assert_true(bleu.score == 0 && chrf.score == 0);
        }
        faults_seen += k;
    }
    assert_int_equal(faults_end(), 0);
    printf("%zu allocations failed\n", faults_seen);
    assert_true(faults_seen > 50);
}

/* One sentence of a million equal characters, and one of as many words. */
static void a_long_sentence_takes_linear_time(void **state)
{
    (void)state;
    enum { LENGTH = 1000000 };
    char *text = malloc(LENGTH + 1);
    const char *both;
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    bauta_bleu_score bleu = BAUTA_BLEU_SCORE_INIT;
    bauta_chrf_score chrf = BAUTA_CHRF_SCORE_INIT;
    bauta_chrf_options words = BAUTA_CHRF_OPTIONS_INIT;
    words.word_order = 2;
    clock_t start = clock();
    assert_non_null(text);
    both = text;
    texts.count = 1;
    texts.hypotheses = texts.references = &both;
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < LENGTH; i++)
            text[i] = turn && i % 2 ? ' ' : 'a';
        text[LENGTH] = '\0';
        assert_int_equal(bauta_bleu(&texts, NULL, &bleu, NULL, NULL), 0);
        assert_int_equal(bauta_chrf(&texts, &words, &chrf, NULL, NULL), 0);
        near("BLEU of itself", bleu.score, turn ? 100 : 0);
        near("chrF++ of itself", chrf.score, 100);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("%.2f s\n", seconds);
    assert_true(seconds < 60);
    free(text);
}

/* Scored in parts, sentences give the score of all together. */
static void parts_add_up(void **state)
{
    (void)state;
    const char *hyp[] = { "a b c d e", "the cat sat on a mat", "", "x y z" };
    const char *ref[] = { "a b x d e", "the cat sat on the mat", "q", "x y" };
    bauta_bleu_options bleu = BAUTA_BLEU_OPTIONS_INIT;
    bauta_chrf_options chrf = BAUTA_CHRF_OPTIONS_INIT;
    bauta_bleu_score whole = BAUTA_BLEU_SCORE_INIT, sum = BAUTA_BLEU_SCORE_INIT;
    bauta_chrf_score both = BAUTA_CHRF_SCORE_INIT, part = BAUTA_CHRF_SCORE_INIT;
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    texts.count = 4;
    texts.hypotheses = hyp;
    texts.references = ref;
    assert_int_equal(bauta_bleu(&texts, &bleu, &whole, NULL, NULL), 0);
    assert_int_equal(bauta_chrf(&texts, &chrf, &both, NULL, NULL), 0);
    bleu.accumulate = chrf.accumulate = true;
    for (size_t i = 0; i < 4; i += texts.count) {
        texts.count = i == 1 ? 2 : 1;
        texts.hypotheses = hyp + i;
        texts.references = ref + i;
        assert_int_equal(bauta_bleu(&texts, &bleu, &sum, NULL, NULL), 0);
        assert_int_equal(bauta_chrf(&texts, &chrf, &part, NULL, NULL), 0);
    }
    assert_memory_equal(&sum, &whole, sizeof(sum));
    assert_memory_equal(&part, &both, sizeof(part));
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_corpus_scores_as_with_sacrebleu),
        cmocka_unit_test(sentences_score_as_with_sacrebleu),
        cmocka_unit_test(each_smoothing_is_sacrebleus),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(every_option_of_bleu_has_an_effect),
        cmocka_unit_test(every_option_of_chrf_has_an_effect),
        cmocka_unit_test(a_sentence_too_short_scores_by_its_effective_order),
        cmocka_unit_test(lengths_may_be_given_and_any_bytes_are_text),
        cmocka_unit_test_prestate(random_sentence_counts_equal_a_reference,
                                  &random),
        cmocka_unit_test(arguments_out_of_range_are_an_error),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_long_sentence_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

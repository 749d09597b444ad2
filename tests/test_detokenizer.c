/* SPDX-License-Identifier: Apache-2.0 */
/* test_detokenizer.c - from tokens back to text, at once or as a stream, as
 * Hugging Face's library and SentencePiece do it; and the configs that are
 * refused. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "testing.h"
#include "text/detokenize/detokenizer.h"
#include "text/subword/bytelevel.h"

#include <string.h>

/* ---- Decoding ------------------------------------------------------------ */

static bt_detokenizer_chain *decoding_of(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    bt_detokenizer_chain *decoding;
    bauta_error err;
    if (!json)
        fail_msg("%s is no JSON", text);
    if (bt_detokenizer_chain_parse(&decoding, json, "some.json", &err))
        fail_msg("%s: %s", text, err.message);
    json_decref(json);
    return decoding;
}

static bt_detokenizer_stream *stream_of(const bt_detokenizer_chain *decoding)
{
    bt_detokenizer_stream *stream;
    bauta_error err;
    if (bt_detokenizer_stream_create(&stream, decoding, &err))
        fail_msg("%s", err.message);
    return stream;
}

/* Push a piece; the output is appended to `text`. */
static void push(bt_detokenizer_stream *stream, const char *piece, char *text)
{
    bauta_error err;
    size_t size;
    bauta_status status =
        piece ? bt_detokenizer_stream_push(stream, piece, strlen(piece), &err)
              : bt_detokenizer_stream_finish(stream, &err);
    if (status)
        fail_msg("%s", err.message);
    const char *more = bt_detokenizer_stream_take(stream, &size);
    assert_int_equal(strlen(more), size);
    strcat(text, more);
}

/* Push all pieces, NULL-terminated, taking the text after each one; then again,
 * taking it at the end. */
static void check(const bt_detokenizer_chain *decoding,
                  const char *const *pieces, size_t count, const char *want,
                  const char *name)
{
    static char got[1 << 16];
    bt_detokenizer_stream *stream = stream_of(decoding);
    bauta_error err;
    size_t size;
    got[0] = '\0';
    for (size_t i = 0; i < count; i++)
        push(stream, pieces[i], got);
    push(stream, NULL, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s: want \"%s\", got \"%s\"", name, want, got);
    bt_detokenizer_stream_take(stream, &size);
    assert_int_equal(size, 0);

    bt_detokenizer_stream_reset(stream);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bt_detokenizer_stream_push(stream, pieces[i],
                                                    strlen(pieces[i]), &err),
                         0);
    assert_int_equal(bt_detokenizer_stream_finish(stream, &err), 0);
    if (strcmp(bt_detokenizer_stream_take(stream, &size), want) != 0)
        fail_msg("%s: another text at once", name);
    bt_detokenizer_stream_free(stream);
}

/* ---- Results of the library ---------------------------------------------- */

#define BYTELEVEL                                                         \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":" \
    "true,\"use_regex\":true}"
#define METASPACE(scheme)                                 \
    "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"," \
    "\"prepend_scheme\":\"" scheme "\"}"
#define FALLBACK "{\"type\":\"ByteFallback\"}"
#define FUSE "{\"type\":\"Fuse\"}"
#define WORDPIECE(cleanup) \
    "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":" cleanup "}"
#define BPE(suffix) "{\"type\":\"BPEDecoder\",\"suffix\":\"" suffix "\"}"
#define STRIP(content, start, stop)                                    \
    "{\"type\":\"Strip\",\"content\":\"" content "\",\"start\":" start \
    ",\"stop\":" stop "}"
#define REPLACE(string, content)                                     \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" string "\"}," \
    "\"content\":\"" content "\"}"
#define REGEX(regex, content)                                      \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" regex "\"}," \
    "\"content\":\"" content "\"}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define LLAMA                                             \
    SEQUENCE(REPLACE("\u2581", " ") "," FALLBACK "," FUSE \
                                    "," STRIP(" ", "1", "0"))

enum { PIECES = 12 };

/* Values of tokenizers 0.23.3. */
static const struct {
    const char *name, *json;
    const char *pieces[PIECES];
    const char *text;
} cases[] = {
    { "none", "null", { "a", "b", "", "c" }, "a b  c" },
    { "nothing", "null", { NULL }, "" },
    { "bytelevel", BYTELEVEL, { "\u0120a", "\u00C3", "\u00A9" }, " a\u00E9" },
    { "bytelevel_other_character",
      BYTELEVEL,
      { "\u0120a", "\u0120\u6F22", "\u00C3\u0124",
        "\u00C3"
        "a" },
      " a\u0120\u6F22\u00C2\uFFFD"
      "a" },
    { "bytelevel_two_subparts",
      BYTELEVEL,
      { "\u00E2\u0124", "\u00F0", "\u0141", "\u013A" },
      "\uFFFD\uFFFD" },
    { "bytelevel_nothing", BYTELEVEL, { NULL }, "" },
    { "metaspace_first_token_loses_all",
      METASPACE("always"),
      { "\u2581\u2581"
        "a\u2581"
        "b",
        "\u2581"
        "c" },
      "ab c" },
    { "metaspace_never",
      METASPACE("never"),
      { "\u2581"
        "a" },
      " a" },
    { "metaspace_first",
      METASPACE("first"),
      { "\u2581"
        "a",
        "\u2581"
        "b\u2581" },
      "a b " },
    { "metaspace_by_default",
      "{\"type\":\"Metaspace\",\"replacement\":\"_\"}",
      { "_a", "_b" },
      "a b" },
    { "fallback",
      FALLBACK,
      { "<0xE2>", "<0x96>", "<0x81>", "a", "b", "<0x+A>", "<0x4a>", "<0x4>",
        "<0x0g>" },
      "\u2581"
      "ab\nJ<0x4><0x0g>" },
    { "fallback_of_half_a_character",
      FALLBACK,
      { "<0xE2>", "<0x96>", "a" },
      "\uFFFD\uFFFD"
      "a" },
    { "llama",
      LLAMA,
      { "\u2581\u2581"
        "a",
        "<0xC3>", "<0xA9>", "\u2581" },
      " a\u00E9 " },
    { "wordpiece",
      WORDPIECE("false"),
      { "##a", "##b", "c", ".", "##" },
      "##ab c ." },
    { "wordpiece_cleanup_is_of_each_token",
      WORDPIECE("true"),
      { "##a", "##b", "c", ".", "'", " ' ", "do not", "n't", "x 's", "##." },
      "##ab c. ' ' don'tn't x's." },
    { "wordpiece_cleanup_of_all",
      SEQUENCE(FUSE "," WORDPIECE("true")),
      { "I do not ' m", "n't", " ' ' ' ", " n' n't" },
      "I don't'mn't''' n'n't" },
    { "bpe", BPE("</w>"), { "a</w></w>b", "c</w>" }, "a  bc" },
    { "bpe_empty_suffix", BPE(""), { "ab", "", "cd" }, " a b  cd" },
    { "bpe_of_one_token",
      SEQUENCE(FUSE "," BPE("</w>")),
      { "a</w>", "b</w>" },
      "ab" },
    { "strip", STRIP(" ", "1", "0"), { "  a", "  " }, " a " },
    { "strip_both",
      STRIP(" ", "1", "2"),
      { "   ", "  a   b    " },
      " a   b  " },
    { "strip_behind_bytelevel",
      SEQUENCE(BYTELEVEL "," STRIP(" ", "1", "1")),
      { "\u0120"
        "a",
        "b", "\u0120" },
      "ab" },
    { "replace", REPLACE("ab", "X"), { "aab", "abab", "a", "b" }, "aXXXab" },
    { "replace_across_tokens",
      SEQUENCE(FUSE "," REPLACE("aab", "X")),
      { "a", "a", "a", "ba", "a" },
      "aXaa" },
    { "replace_the_empty_string",
      REPLACE("", "X"),
      { "a\u00E9"
        "b",
        "" },
      "XaX\u00E9XbX" },
    { "regex", REGEX("b*", "X"), { "abb\u00E9", "" }, "XaX\u00E9X" },
    { "regex_across_tokens",
      SEQUENCE(FUSE "," REGEX("a+", "X")),
      { "a", "ab", "a" },
      "XbX" },
    { "sequence_of_none", SEQUENCE(""), { "a", "b" }, "ab" },
    { "nested", SEQUENCE(SEQUENCE(FUSE) "," SEQUENCE("")), { "a", "b" }, "ab" },
};

static void pieces_decode_as_in_hugging_face(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bt_detokenizer_chain *decoding = decoding_of(cases[i].json);
        size_t count = 0;
        while (count < PIECES && cases[i].pieces[count])
            count++;
        check(decoding, cases[i].pieces, count, cases[i].text, cases[i].name);
        bt_detokenizer_chain_free(decoding);
    }
}

/* Here the library panics (Strip), or gives up a whole run of bytes for one
 * invalid byte (ByteFallback). */
static void pieces_the_library_cannot_decode_are_decoded(void **state)
{
    (void)state;
    bt_detokenizer_chain *decoding = decoding_of(STRIP(" ", "1", "2"));
    const char *blanks[] = { " ", "", "  ", "    " };
    check(decoding, blanks, 4, " ", "strip");
    bt_detokenizer_chain_free(decoding);
    decoding = decoding_of(FALLBACK);
    const char *bytes[] = { "<0x41>", "<0xE2>", "<0xC3>", "<0xA9>",
                            "<0xF0>", "<0x9F>", "<0x42>" };
    check(decoding, bytes, 7,
          "A\uFFFD\u00E9\uFFFD\uFFFD"
          "B",
          "fallback");
    bt_detokenizer_chain_free(decoding);
}

/* Values of sentencepiece 0.2. */
static void pieces_decode_as_in_sentencepiece(void **state)
{
    (void)state;
    static const struct {
        bool dummy, extra;
        const char *text;
    } kinds[] = {
        { false, false, "  a b\u2581\uFFFD c" },
        { true, false, " a b\u2581\uFFFD c" },
        { false, true, "a b\u2581\uFFFD c" },
        { true, true, "a b\u2581\uFFFD c" },
    };
    const char *pieces[] = { "\u2581",
                             "\u2581"
                             "a",
                             "\u2581"
                             "b",
                             "<0xE2>",
                             "<0x96>",
                             "<0x81>",
                             "<0xE2>",
                             "\u2581c" };
    for (size_t i = 0; i < BT_LEN(kinds); i++) {
        bt_detokenizer_chain *decoding;
        assert_int_equal(bt_detokenizer_chain_sentencepiece(
                             &decoding, kinds[i].dummy, kinds[i].extra, NULL),
                         0);
        check(decoding, pieces, 8, kinds[i].text, "sentencepiece");
        bt_detokenizer_chain_free(decoding);
    }
}

static void a_stream_keeps_nul(void **state)
{
    (void)state;
    bt_detokenizer_chain *decoding = decoding_of(FUSE);
    bt_detokenizer_stream *stream = stream_of(decoding);
    size_t size;
    assert_int_equal(bt_detokenizer_stream_push(stream, "a\0b", 3, NULL), 0);
    assert_memory_equal(bt_detokenizer_stream_take(stream, &size), "a\0b", 4);
    assert_int_equal(size, 3);
    bt_detokenizer_stream_free(stream);
    bt_detokenizer_chain_free(decoding);
    bt_detokenizer_stream_free(NULL);
    bt_detokenizer_chain_free(NULL);
}

/* ---- Streams ------------------------------------------------------------- */

/* The output after each piece, and at the end. */
static void check_steps(const char *json, const char *const *pieces,
                        const char *const *texts, size_t count)
{
    bt_detokenizer_chain *decoding = decoding_of(json);
    bt_detokenizer_stream *stream = stream_of(decoding);
    for (size_t i = 0; i <= count; i++) {
        char got[256] = "";
        push(stream, i < count ? pieces[i] : NULL, got);
        if (strcmp(got, texts[i]) != 0)
            fail_msg("%s, piece %zu: want \"%s\", got \"%s\"", json, i,
                     texts[i], got);
    }
    bt_detokenizer_stream_free(stream);
    bt_detokenizer_chain_free(decoding);
}

static void text_is_emitted_as_soon_as_possible(void **state)
{
    (void)state;
    check_steps(BYTELEVEL,
                (const char *[]){ "a", "b\u00C3", "\u00A9", "\u00F0", "c" },
                (const char *[]){ "a", "b", "\u00E9", "",
                                  "\uFFFD"
                                  "c",
                                  "" },
                5);
    check_steps(LLAMA,
                (const char *[]){ "\u2581"
                                  "a",
                                  "<0xC3>", "<0xA9>", "<0xE2>", "\u2581" },
                (const char *[]){ "a", "", "\u00E9", "", "\uFFFD ", "" }, 5);
    check_steps(BPE("</w>"), (const char *[]){ "a", "b</w>", "c</w>" },
                (const char *[]){ "a", "b", " c", "" }, 3);
    check_steps(SEQUENCE(FUSE "," STRIP(" ", "0", "2")),
                (const char *[]){ "a ", " ", " ", "b", " " },
                (const char *[]){ "a", "", " ", "  b", "", "" }, 5);
    check_steps(SEQUENCE(FUSE "," REPLACE("aab", "X")),
                (const char *[]){ "ca", "a", "a", "b", "a" },
                (const char *[]){ "c", "", "a", "X", "", "a" }, 5);
}

/* ---- A slow reference ---------------------------------------------------- */

/* Tokens as the library holds them: all at once, a list of strings. */
typedef struct list {
    char *at[64];
    size_t count;
} list;

static void list_put(list *l, const char *bytes, size_t size)
{
    char *copy = malloc(size + 1);
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    assert_true(l->count < BT_LEN(l->at));
    l->at[l->count++] = copy;
}

static void list_empty(list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->at[i]);
    l->count = 0;
}

static void list_join(const list *l, char *out, const char *between)
{
    out[0] = '\0';
    for (size_t i = 0; i < l->count; i++) {
        strcat(out, i ? between : "");
        strcat(out, l->at[i]);
    }
}

static void replace_all(char **token, const char *needle, const char *content)
{
    static char out[1 << 16];
    const char *from = *token, *hit;
    out[0] = '\0';
    for (; (hit = strstr(from, needle)); from = hit + strlen(needle)) {
        strncat(out, from, (size_t)(hit - from));
        strcat(out, content);
    }
    strcat(out, from);
    free(*token);
    *token = strdup(out);
}

static void slow_wordpiece(list *l, const char *prefix, bool cleanup)
{
    static const char *const tidy[] = {
        " .",  ".",  " ?",   "?",   " !",   "!",   " ,",      ",",
        " ' ", "'",  " n't", "n't", " 'm",  "'m",  " do not", " don't",
        " 's", "'s", " 've", "'ve", " 're", "'re",
    };
    for (size_t i = 0; i < l->count; i++) {
        char *token = l->at[i];
        size_t n = strlen(prefix);
        if (i) {
            bool has = strncmp(token, prefix, n) == 0;
            char *made = malloc(strlen(token) + 2);
            sprintf(made, "%s%s", has ? "" : " ", has ? token + n : token);
            free(token);
            l->at[i] = made;
        }
        for (size_t k = 0; cleanup && k < BT_LEN(tidy); k += 2)
            replace_all(&l->at[i], tidy[k], tidy[k + 1]);
    }
}

static void slow_fuse(list *l)
{
    static char out[1 << 16];
    list_join(l, out, "");
    list_empty(l);
    list_put(l, out, strlen(out));
}

static void slow_strip(list *l, char content, size_t start, size_t stop)
{
    for (size_t i = 0; i < l->count; i++) {
        char *token = l->at[i];
        size_t size = strlen(token), lo = 0, hi = size;
        while (lo < size && lo < start && token[lo] == content)
            lo++;
        while (hi > lo && size - hi < stop && token[hi - 1] == content)
            hi--;
        memmove(token, token + lo, hi - lo);
        token[hi - lo] = '\0';
    }
}

/* Append text with U+FFFD for each byte, or for each maximal subpart, that is
 * not part of a character. Two or three bytes are a subpart if more bytes could
 * complete a character. */
static void put_lossy(char *out, const char *bytes, bool subparts)
{
    size_t size = strlen(bytes), length, at = strlen(out);
    for (size_t i = 0; i < size; i += length) {
        uint32_t code = bt_utf8_decode(bytes + i, size - i, &length);
        at += bt_utf8_encode(out + at, code);
        for (size_t n = 2; subparts && n <= 3 && i + n <= size; n++) {
            char more[] = "\x80\x80\x80\x80";
            size_t whole;
            memcpy(more, bytes + i, n);
            bt_utf8_decode(more, 4, &whole);
            if (whole > n && length < n)
                length = n;
        }
    }
    out[at] = '\0';
}

static void slow_fallback(list *l)
{
    list made = { .count = 0 };
    for (size_t i = 0; i < l->count;) {
        char run[64] = "", text[256] = "";
        unsigned byte;
        char end;
        for (; i < l->count && strlen(l->at[i]) == 6 &&
               sscanf(l->at[i], "<0x%2X%c", &byte, &end) == 2 && end == '>';
             i++)
            strncat(run, &(char){ (char)byte }, 1);
        if (*run) {
            put_lossy(text, run, false);
            list_put(&made, text, strlen(text));
        } else {
            list_put(&made, l->at[i], strlen(l->at[i]));
            i++;
        }
    }
    list_empty(l);
    *l = made;
}

static void slow_bytelevel(list *l)
{
    static char bytes[1 << 16], out[1 << 16];
    bytes[0] = out[0] = '\0';
    for (size_t i = 0; i < l->count; i++) {
        char token[4096] = "";
        const char *c = l->at[i];
        size_t length, left = strlen(c);
        int byte = 0;
        for (; left && byte < 256; c += length, left -= length) {
            uint32_t code = bt_utf8_decode(c, left, &length);
            for (byte = 0; byte < 256; byte++)
                if (bt_bytelevel_char((unsigned char)byte) == code)
                    break;
            strncat(token, &(char){ (char)byte }, 1);
        }
        strcat(bytes, byte < 256 ? token : l->at[i]);
    }
    put_lossy(out, bytes, true);
    list_empty(l);
    list_put(l, out, strlen(out));
}

/* Draw a decoder: append its JSON, and apply it to the list. */
static void step_draw(test_random *r, char *json, list *l)
{
    static const char *const needles[] = { "\u2581", "a",    "ab",
                                           "aab",    "abab", " ",
                                           "##",     "</w>", "\u2581\u2582" };
    static const char *const contents[] = { "", " ", "X", "ba", "\u2581" };
    const char *needle = needles[test_below(r, BT_LEN(needles))];
    const char *content = contents[test_below(r, BT_LEN(contents))];
    char *at = json + strlen(json);
    size_t start = test_below(r, 3), stop = test_below(r, 3);
    bool flag = test_below(r, 2);
    switch (test_below(r, 8)) {
    case 0:
        strcpy(at, BYTELEVEL);
        slow_bytelevel(l);
        break;
    case 1:
        strcpy(at, FALLBACK);
        slow_fallback(l);
        break;
    case 2:
        strcpy(at, FUSE);
        slow_fuse(l);
        break;
    case 3:
        sprintf(at, METASPACE("%s"), flag ? "never" : "first");
        for (size_t i = 0; i < l->count; i++)
            replace_all(&l->at[i], "\u2581", i || flag ? " " : "");
        break;
    case 4:
        sprintf(at, "{\"type\":\"WordPiece\",\"prefix\":\"%s\",\"cleanup\":%s}",
                needle, flag ? "true" : "false");
        slow_wordpiece(l, needle, flag);
        break;
    case 5:
        sprintf(at, BPE("%s"), needle);
        for (size_t i = 0; i < l->count; i++)
            replace_all(&l->at[i], needle, i + 1 < l->count ? " " : "");
        break;
    case 6:
        sprintf(at, STRIP(" ", "%zu", "%zu"), start, stop);
        slow_strip(l, ' ', start, stop);
        break;
    default:
        sprintf(at, REPLACE("%s", "%s"), needle, content);
        for (size_t i = 0; i < l->count; i++)
            replace_all(&l->at[i], needle, content);
    }
}

static void piece_draw(test_random *r, list *l)
{
    static const char *const parts[] = {
        "a",      "b",      " ",      "\u2581", "\u2582", "\u0120", "\u00C3",
        "\u00A9", "\u00E2", "\u0124", "\u00F0", "\u0141", "\u013A", "\u6F22",
        "#",      "##",     "</w>",   "'",      ".",      "n't",    " do not",
    };
    static const char *const bytes[] = { "41", "E2", "96", "81", "F0", "9f",
                                         "98", "80", "C3", "A9", "FF" };
    char piece[128] = "";
    if (test_below(r, 5) == 0)
        sprintf(piece, "<0x%s>", bytes[test_below(r, BT_LEN(bytes))]);
    else
        for (size_t n = test_below(r, 6); n; n--)
            strcat(piece, parts[test_below(r, BT_LEN(parts))]);
    list_put(l, piece, strlen(piece));
}

static void random_streams_equal_a_slow_reference(void **state)
{
    test_random *r = *state;
    enum { ROUNDS = 20000 };
    static char json[1 << 14], want[1 << 16];
    for (int round = 0; round < ROUNDS; round++) {
        list pieces = { .count = 0 }, slow = { .count = 0 };
        for (size_t n = test_below(r, 9); n; n--)
            piece_draw(r, &pieces);
        for (size_t i = 0; i < pieces.count; i++)
            list_put(&slow, pieces.at[i], strlen(pieces.at[i]));
        strcpy(json, "{\"type\":\"Sequence\",\"decoders\":[");
        for (size_t n = test_below(r, 5), i = 0; i < n; i++) {
            strcat(json, i ? "," : "");
            step_draw(r, json, &slow);
        }
        strcat(json, "]}");
        list_join(&slow, want, "");
        bt_detokenizer_chain *decoding = decoding_of(json);
        check(decoding, (const char *const *)pieces.at, pieces.count, want,
              json);
        bt_detokenizer_chain_free(decoding);
        list_empty(&slow);
        list_empty(&pieces);
    }
}

/* ---- Refusals ------------------------------------------------------------ */

static const struct {
    const char *json, *message;
} malformed[] = {
    { "1", "a decoder has no \"type\"" },
    { "{}", "a decoder has no \"type\"" },
    { "{\"type\":1}", "a decoder has no \"type\"" },
    { "{\"type\":\"Byte\"}", "an unknown type: Byte" },
    { "{\"type\":\"CTC\",\"pad_token\":\"x\"}", "CTC, which is for speech" },
    { "{\"type\":\"Sequence\"}", "a Sequence has no list of decoders" },
    { SEQUENCE("1"), "a decoder has no \"type\"" },
    { "{\"type\":\"Metaspace\"}", "a string is missing: replacement" },
    { "{\"type\":\"Metaspace\",\"replacement\":\"__\"}",
      "not a single character: replacement" },
    { "{\"type\":\"Metaspace\",\"replacement\":\"\"}",
      "not a single character: replacement" },
    { METASPACE("bogus"), "no prepend_scheme of Metaspace: bogus" },
    { "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":"
      "false}",
      "add_prefix_space of Metaspace contradicts always" },
    { "{\"type\":\"WordPiece\",\"cleanup\":true}",
      "a string is missing: prefix" },
    { "{\"type\":\"WordPiece\",\"prefix\":\"\"}",
      "a boolean is missing: cleanup" },
    { "{\"type\":\"BPEDecoder\"}", "a string is missing: suffix" },
    { STRIP("", "0", "0"), "not a single character: content" },
    { STRIP(" ", "-1", "0"), "a count is missing: start" },
    { STRIP(" ", "1", "1.5"), "a count is missing: stop" },
    { "{\"type\":\"Replace\",\"content\":\"\"}", "a string is missing: Regex" },
    { "{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"\"}",
      "a string is missing: Regex" },
    { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}",
      "a string is missing: content" },
    { REGEX("(", ""), "some.json" },
    { SEQUENCE(REPLACE("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") "," REPLACE(
          "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
      "more than 1024 times longer" },
};

static void check_refused(json_t *json, const char *message)
{
    bt_detokenizer_chain *decoding;
    bauta_error err;
    assert_non_null(json);
    assert_int_equal(
        bt_detokenizer_chain_parse(&decoding, json, "some.json", &err),
        BAUTA_ERR_FORMAT);
    assert_null(decoding);
    if (!strstr(err.message, message) || !strstr(err.message, "some.json"))
        fail_msg("\"%s\" should say \"%s\"", err.message, message);
    assert_int_equal(
        bt_detokenizer_chain_parse(&decoding, json, "some.json", NULL),
        BAUTA_ERR_FORMAT);
    json_decref(json);
}

static void malformed_input_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(malformed); i++)
        check_refused(json_loads(malformed[i].json, JSON_DECODE_ANY, NULL),
                      malformed[i].message);
    json_t *deep = json_pack("{s:s}", "type", "Fuse");
    for (int i = 0; i < 17; i++)
        deep = json_pack("{s:s, s:[o]}", "type", "Sequence", "decoders", deep);
    check_refused(deep, "more than 16 deep");
    json_t *steps = json_array();
    for (int i = 0; i < 257; i++)
        json_array_append_new(steps, json_pack("{s:s}", "type", "Fuse"));
    check_refused(
        json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps),
        "more than 256 steps");
    char *needle = calloc(1, 65537);
    memset(needle, 'x', 65536);
    check_refused(
        json_pack("{s:s, s:s}", "type", "BPEDecoder", "suffix", needle),
        "longer than 65535 bytes");
    free(needle);
}

/* Malformed pieces do no harm. */
static void any_bytes_may_be_pushed(void **state)
{
    test_random *r = *state;
    bauta_error err;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bt_detokenizer_chain *decoding = decoding_of(cases[i].json);
        bt_detokenizer_stream *stream = stream_of(decoding);
        for (int n = 0; n < 200; n++) {
            char piece[8];
            size_t size = test_below(r, sizeof(piece) + 1);
            for (size_t k = 0; k < size; k++)
                piece[k] = (char)test_u32(r);
            if (bt_detokenizer_stream_push(stream, piece, size, &err))
                fail_msg("%s", err.message);
        }
        assert_int_equal(bt_detokenizer_stream_finish(stream, &err), 0);
        bt_detokenizer_stream_free(stream);
        bt_detokenizer_chain_free(decoding);
    }
}

/* ---- Memory -------------------------------------------------------------- */

static bauta_status decode_all(size_t i, const json_t *json)
{
    bt_detokenizer_chain *decoding;
    bt_detokenizer_stream *stream = NULL;
    bauta_error err;
    bauta_status status =
        bt_detokenizer_chain_parse(&decoding, json, "some.json", &err);
    if (!status)
        status = bt_detokenizer_stream_create(&stream, decoding, &err);
    for (size_t k = 0; k < PIECES && cases[i].pieces[k] && !status; k++)
        status = bt_detokenizer_stream_push(stream, cases[i].pieces[k],
                                            strlen(cases[i].pieces[k]), &err);
    if (!status)
        status = bt_detokenizer_stream_finish(stream, &err);
    bt_detokenizer_stream_free(stream);
    bt_detokenizer_chain_free(decoding);
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    faults_begin();
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        json_t *json = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        for (size_t k = 0;; k++) {
            faults_arm(k);
            bauta_status status = decode_all(i, json);
            bool failed = faults_disarm();
            assert_int_equal(faults_live(), 0);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (!failed)
                break;
        }
        json_decref(json);
    }
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_decode_as_in_hugging_face),
        cmocka_unit_test(pieces_the_library_cannot_decode_are_decoded),
        cmocka_unit_test(pieces_decode_as_in_sentencepiece),
        cmocka_unit_test(a_stream_keeps_nul),
        cmocka_unit_test(text_is_emitted_as_soon_as_possible),
        cmocka_unit_test_prestate(random_streams_equal_a_slow_reference,
                                  &random),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test_prestate(any_bytes_may_be_pushed, &random),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* subword_fixtures.h - shared by the tests of the subword models: vocabularies
 * from lists, and tokens as text, "piece@lo-hi piece@lo-hi". */
#ifndef BT_TEST_SUBWORD_FIXTURES_H
#define BT_TEST_SUBWORD_FIXTURES_H

#include "allocation_faults.h"
#include "base/error.h"
#include "bauta.h"
#include "testing.h"
#include "text/subword/subword_model.h"

#include <string.h>

static inline bt_vocab *vocab_of(const char *const *pieces, size_t count)
{
    bt_vocab *vocab;
    bauta_error err;
    if (bt_vocab_create(&vocab, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < count; i++)
        if (bt_vocab_add(vocab, pieces[i], strlen(pieces[i]), (uint32_t)i,
                         &err))
            fail_msg("%s", err.message);
    return vocab;
}
#define VOCAB(...)                                          \
    vocab_of((const char *const[]){ __VA_ARGS__ },          \
             sizeof((const char *const[]){ __VA_ARGS__ }) / \
                 sizeof(const char *))

static inline void tokens_write(char *out, size_t room, const bt_vocab *vocab,
                                const bt_token *tokens, size_t count)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *piece = bt_vocab_piece(vocab, tokens[i].id, NULL);
        assert_non_null(piece);
        used +=
            (size_t)snprintf(out + used, room - used, "%s%s@%u-%u",
                             i ? " " : "", piece, tokens[i].lo, tokens[i].hi);
        assert_true(used < room);
    }
}

/* Encode a text and compare; the model and vocabulary stay alive. */
static inline void assert_tokens(const bt_subword_model *model,
                                 const bt_vocab *vocab, const char *text,
                                 const char *want)
{
    static char got[1 << 16];
    bt_subword_workspace work = { 0 };
    bauta_error err;
    if (bt_subword_encode(model, text, strlen(text), &work, &err))
        fail_msg("\"%s\": %s", text, err.message);
    tokens_write(got, sizeof(got), vocab, work.tokens, work.count);
    assert_string_equal(got, want);
    bt_subword_workspace_release(&work);
}

/* A text of up to `most` of the first `letters` of these characters, which
 * take one to four bytes. */
static inline size_t text_random(test_random *r, char *out, size_t most,
                                 size_t letters)
{
    static const char *const alphabet[] = { "a", "b",      "\u00e9",
                                            "c", "\u2603", "\U0001d11e",
                                            "d", "e" };
    size_t size = 0;
    for (size_t n = test_below(r, most + 1); n > 0; n--) {
        const char *letter = alphabet[test_below(r, letters)];
        memcpy(out + size, letter, strlen(letter));
        size += strlen(letter);
    }
    out[size] = '\0';
    return size;
}

/* Every allocation of encoding a text fails once; existing output is left
 * alone. */
static inline void assert_encode_survives(const bt_subword_model *model,
                                          const char *text, size_t size)
{
    bauta_error err;
    for (size_t k = 0;; k++) {
        bt_subword_workspace work = { 0 };
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bt_subword_encode(model, text, size, &work, &err);
        bool failed = faults_disarm();
        if (failed) {
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_int_equal(work.count, 0);
        }
        bt_subword_workspace_release(&work);
        assert_int_equal(faults_live(), live);
        if (!failed)
            break;
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* test_vocab.c - pieces and their ids, and the trie that finds pieces. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/memory.h"
#include "bauta.h"
#include "testing.h"
#include "text/subword/trie.h"
#include "text/subword/vocab.h"

#include <string.h>
#include <time.h>

static bt_vocab *vocab_create(void)
{
    bt_vocab *vocab;
    bauta_error err;
    if (bt_vocab_create(&vocab, &err))
        fail_msg("%s", err.message);
    return vocab;
}

static void add(bt_vocab *vocab, const char *piece, size_t size, uint32_t id)
{
    bauta_error err;
    if (bt_vocab_add(vocab, piece, size, id, &err))
        fail_msg("%s", err.message);
}

/* ---- Both directions ----------------------------------------------------- */

static void pieces_are_any_bytes_and_ids_have_gaps(void **state)
{
    (void)state;
    size_t size;
    bt_vocab *vocab = vocab_create();
    assert_int_equal(bt_vocab_size(vocab), 0);
    add(vocab, "a\0b", 3, 7);
    add(vocab, "a", 1, 2);
    add(vocab, "", 0, 4);
    add(vocab, "\xff\x80", 2, 0);
    assert_int_equal(bt_vocab_size(vocab), 8);
    assert_int_equal(bt_vocab_find(vocab, "a\0b", 3), 7);
    assert_int_equal(bt_vocab_find(vocab, "a", 1), 2);
    assert_int_equal(bt_vocab_find(vocab, "", 0), 4);
    assert_int_equal(bt_vocab_find(vocab, "\xff\x80", 2), 0);
    assert_int_equal(bt_vocab_find(vocab, "a\0", 2), UINT32_MAX);
    assert_null(bt_vocab_piece(vocab, 1, &size));
    assert_null(bt_vocab_piece(vocab, 8, NULL));
    assert_memory_equal(bt_vocab_piece(vocab, 7, &size), "a\0b", 4);
    assert_int_equal(size, 3);
    assert_string_equal(bt_vocab_piece(vocab, 4, &size), "");
    assert_int_equal(size, 0);
    bt_vocab_free(vocab);
    bt_vocab_free(NULL);
}

static void duplicate_pieces_are_refused_by_name(void **state)
{
    (void)state;
    bauta_error err;
    bt_vocab *vocab = vocab_create();
    add(vocab, "dog", 3, 1);
    assert_int_equal(bt_vocab_add(vocab, "dog", 3, 2, &err), BAUTA_ERR_FORMAT);
    assert_string_equal(err.message, "piece \"dog\" has the ids 1 and 2");
    assert_int_equal(bt_vocab_add(vocab, "cat", 3, 1, &err), BAUTA_ERR_FORMAT);
    assert_string_equal(err.message, "pieces \"dog\" and \"cat\" have id 1");
    assert_int_equal(bt_vocab_add(vocab, "cat", 3, BT_VOCAB_MAX, &err),
                     BAUTA_ERR_FORMAT);
    assert_string_equal(err.message,
                        "piece \"cat\" has the id 2097152; the limit is "
                        "2097151");
    assert_int_equal(bt_vocab_size(vocab), 2);
    add(vocab, "cat", 3, BT_VOCAB_MAX - 1);
    assert_int_equal(bt_vocab_size(vocab), BT_VOCAB_MAX);
    bt_vocab_free(vocab);
}

/* Piece number i of a set in which none is a prefix of another. */
static size_t piece_write(char out[64], test_random *r, size_t i)
{
    size_t size = (size_t)snprintf(out, 64, "%zx.", i);
    for (size_t more = test_below(r, 40); more > 0; more--)
        out[size++] = (char)test_u32(r);
    return size;
}

static void many_pieces_are_found_quickly(void **state)
{
    (void)state;
    enum { MANY = 1 << 18 };
    char piece[64];
    size_t size;
    bt_vocab *vocab = vocab_create();
    test_random r = test_random_from(test_seed());
    clock_t begin = clock();
    for (size_t i = 0; i < MANY; i++)
        add(vocab, piece, piece_write(piece, &r, i), (uint32_t)(i ^ 5));
    print_message("%d pieces added in %.0f ms\n", MANY,
                  1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC);
    r = test_random_from(test_seed());
    for (size_t i = 0; i < MANY; i++) {
        size_t written = piece_write(piece, &r, i);
        assert_int_equal(bt_vocab_find(vocab, piece, written), i ^ 5);
        assert_memory_equal(bt_vocab_piece(vocab, (uint32_t)(i ^ 5), &size),
                            piece, written);
        assert_int_equal(size, written);
        assert_int_equal(bt_vocab_find(vocab, piece, written - 1), UINT32_MAX);
    }
    bt_vocab_free(vocab);
}

static void allocation_failure_leaves_the_vocabulary_unchanged(void **state)
{
    (void)state;
    bauta_error err;
    bt_vocab *vocab = NULL;
    faults_begin();
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status = bt_vocab_create(&vocab, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), 0);
    }
    for (uint32_t id = 0; id < 600; id++)
        for (size_t k = 0;; k++) {
            char piece[16];
            size_t size = (size_t)snprintf(piece, sizeof(piece), "p%u", id);
            faults_arm(k);
            bauta_status status = bt_vocab_add(vocab, piece, size, id, &err);
            if (!faults_disarm()) {
                assert_int_equal(status, BAUTA_OK);
                break;
            }
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_int_equal(bt_vocab_find(vocab, piece, size), UINT32_MAX);
            assert_int_equal(bt_vocab_size(vocab), id);
        }
    assert_int_equal(bt_vocab_find(vocab, "p599", 4), 599);
    bt_vocab_free(vocab);
    assert_int_equal(faults_end(), 0);
}

/* ---- The trie ------------------------------------------------------------ */

/* The longest piece at the beginning of a text, by trying all lengths. */
static size_t longest_slow(const bt_vocab *vocab, const char *text, size_t size,
                           uint32_t *id)
{
    for (; size > 0; size--) {
        *id = bt_vocab_find(vocab, text, size);
        if (*id != UINT32_MAX)
            break;
    }
    return size;
}

static void the_longest_piece_is_found(void **state)
{
    (void)state;
    bauta_error err;
    test_random r = test_random_from(test_seed());
    for (int turn = 0; turn < 500; turn++) {
        bt_trie trie;
        bt_vocab *vocab = vocab_create();
        char text[16];
        // Few letters: one to a few branches; many: the sort for many.
        size_t letters = turn % 2 ? 3 : 256, pieces = test_below(&r, 400);
        for (uint32_t id = 0; id < pieces; id++) {
            size_t size = test_below(&r, 7);
            for (size_t i = 0; i < size; i++)
                text[i] = (char)test_below(&r, letters);
            if (bt_vocab_find(vocab, text, size) == UINT32_MAX)
                add(vocab, text, size, id);
        }
        if (bt_trie_init_vocab(&trie, vocab, NULL, SIZE_MAX, "t", &err))
            fail_msg("%s", err.message);
        for (int k = 0; k < 100; k++) {
            uint32_t want_id = 0, id = 0;
            for (size_t i = 0; i < sizeof(text); i++)
                text[i] = (char)test_below(&r, letters);
            size_t want = longest_slow(vocab, text, sizeof(text), &want_id);
            size_t got = bt_trie_longest_prefix(&trie, text, sizeof(text), &id);
            assert_int_equal(got, want);
            if (want)
                assert_int_equal(id, want_id);
        }
        bt_trie_release(&trie);
        bt_vocab_free(vocab);
    }
}

static void hidden_pieces_are_not_in_the_trie(void **state)
{
    (void)state;
    bauta_error err;
    bt_trie trie;
    uint32_t id = 99;
    bt_vocab *vocab = vocab_create();
    add(vocab, "ab", 2, 0);
    add(vocab, "a", 1, 1);
    if (bt_trie_init_vocab(&trie, vocab, (const unsigned char *)"\1\0",
                           SIZE_MAX, "t", &err))
        fail_msg("%s", err.message);
    assert_int_equal(bt_trie_longest_prefix(&trie, "abc", 3, &id), 1);
    assert_int_equal(id, 1);
    bt_trie_release(&trie);
    bt_vocab_free(vocab);
}

static void a_trie_without_memory_is_empty(void **state)
{
    (void)state;
    bauta_error err;
    bt_trie trie;
    faults_begin();
    bt_vocab *vocab = vocab_create();
    for (uint32_t id = 0; id < 100; id++) {
        char piece[16];
        size_t size = (size_t)snprintf(piece, sizeof(piece), "%u", id);
        add(vocab, piece, size, id);
    }
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bt_trie_init_vocab(&trie, vocab, NULL, SIZE_MAX, "t", &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
    }
    bt_trie_release(&trie);
    bt_vocab_free(vocab);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_any_bytes_and_ids_have_gaps),
        cmocka_unit_test(duplicate_pieces_are_refused_by_name),
        cmocka_unit_test(many_pieces_are_found_quickly),
        cmocka_unit_test(allocation_failure_leaves_the_vocabulary_unchanged),
        cmocka_unit_test(the_longest_piece_is_found),
        cmocka_unit_test(hidden_pieces_are_not_in_the_trie),
        cmocka_unit_test(a_trie_without_memory_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

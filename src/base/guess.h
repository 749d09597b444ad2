/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - "did you mean": the known word closest to a misspelt one.
 *
 *     bt_guess suggestion = bt_guess_of(word);
 *     for (...)
 *         bt_guess_try(&suggestion, known);
 *     bt_fail(err, status, "there is no \"%s\"%s%s%s", word,
 *             BT_DID_YOU_MEAN(suggestion, "\"")); */
#ifndef BT_GUESS_H
#define BT_GUESS_H

#include <stddef.h>

/* The best candidate so far, within a third of the word's length. */
typedef struct bt_guess {
    const char *word;
    const char *best; /* NULL: none is close */
    size_t distance;  /* of best; at first, one more than is accepted */
} bt_guess;

bt_guess bt_guess_of(const char *word);
void bt_guess_try(bt_guess *suggestion, const char *known);

/* Three arguments for "%s%s%s" at the end of a message. */
#define BT_DID_YOU_MEAN(suggestion, quote)            \
    (suggestion).best ? "; did you mean " quote : "", \
        (suggestion).best ? (suggestion).best : "",   \
        (suggestion).best ? quote "?" : ""

#endif

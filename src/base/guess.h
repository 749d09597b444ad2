/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - "did you mean": which of the words that are known a word was most
 * likely meant to be.
 *
 *     bt_guess guess = bt_guess_of(word);
 *     for (...)
 *         bt_guess_try(&guess, known);
 *     bt_fail(err, status, "there is no \"%s\"%s%s%s", word,
 *             BT_DID_YOU_MEAN(guess, "\"")); */
#ifndef BT_GUESS_H
#define BT_GUESS_H

#include <stddef.h>

/* The best word so far, of those that differ by less than a third. */
typedef struct bt_guess {
    const char *word;
    const char *best; /* NULL: none came near */
    size_t off;
} bt_guess;

bt_guess bt_guess_of(const char *word);
void bt_guess_try(bt_guess *guess, const char *known);

/* Three arguments for "%s%s%s" at the end of a sentence. */
#define BT_DID_YOU_MEAN(guess, quote)            \
    (guess).best ? "; did you mean " quote : "", \
        (guess).best ? (guess).best : "", (guess).best ? quote "?" : ""

#endif

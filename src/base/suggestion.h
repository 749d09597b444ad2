/* SPDX-License-Identifier: Apache-2.0 */
/* suggestion.h - "did you mean": the known word closest to a misspelt one.
 *
 *     bt_suggestion suggestion = bt_suggestion_for(word);
 *     for (...)
 *         bt_suggestion_try(&suggestion, known);
 *     bt_fail(err, status, "there is no \"%s\"%s%s%s", word,
 *             BT_DID_YOU_MEAN(suggestion, "\"")); */
#ifndef BT_SUGGESTION_H
#define BT_SUGGESTION_H

#include <stddef.h>

/* The best candidate so far, within two edits or a third of the word's length.
 * bauta_closest_word() tries the words of a list. */
typedef struct bt_suggestion {
    const char *word;
    const char *best; /* NULL: none is close */
    size_t distance;  /* of best; at first, one more than is accepted */
} bt_suggestion;

bt_suggestion bt_suggestion_for(const char *word);
void bt_suggestion_try(bt_suggestion *suggestion, const char *known);

/* Three arguments for "%s%s%s" at the end of a message. */
#define BT_DID_YOU_MEAN(suggestion, quote)            \
    (suggestion).best ? "; did you mean " quote : "", \
        (suggestion).best ? (suggestion).best : "",   \
        (suggestion).best ? quote "?" : ""

#endif

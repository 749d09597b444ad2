/* SPDX-License-Identifier: Apache-2.0 */
/* suggestion.c - the closest known word; see suggestion.h. */
#include "base/suggestion.h"

#include "base/size.h"
#include "bauta.h"

#include <string.h>

enum { WORD_MAX = 48 };

/* Levenshtein distance: insertions, deletions and substitutions. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1];
    size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            size_t other = bt_size_min(above, row[j - 1]) + 1;
            row[j] = bt_size_min(other, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[n];
}

bt_suggestion bt_suggestion_for(const char *word)
{
    size_t length = strlen(word);
    return (bt_suggestion){
        word, NULL, length > WORD_MAX ? 0 : bt_size_max(length / 3, 2) + 1
    };
}

void bt_suggestion_try(bt_suggestion *suggestion, const char *known)
{
    if (suggestion->distance == 0 || strlen(known) > WORD_MAX)
        return;
    size_t distance = edit_distance(suggestion->word, known);
    if (distance < suggestion->distance) {
        suggestion->distance = distance;
        suggestion->best = known;
    }
}

const char *bauta_closest_word(const char *word, const char *const *words,
                               size_t count)
{
    if (!word || !words)
        return NULL;
    bt_suggestion suggestion = bt_suggestion_for(word);
    for (size_t i = 0; i < count; i++)
        if (words[i])
            bt_suggestion_try(&suggestion, words[i]);
    return suggestion.best;
}

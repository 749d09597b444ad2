/* SPDX-License-Identifier: Apache-2.0 */
/* generate_words.c - bauta generate: what ends a text, and what may not come.
 * The folder's own stay beside those of the command line. */
#include "cli.h"
#include "generate.h"

#include <stdlib.h>
#include <string.h>

static int stops_make(wordlist *list, const settings *s,
                      bauta_generate_options *how)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < how->stop_count && !failed; i++)
        failed = words_add(VERB, &list->stops, how->stops[i]);
    for (size_t i = 0; i < s->stops.count && !failed; i++)
        failed = words_add(VERB, &list->stops, s->stops.at[i]);
    how->stops = list->stops.at;
    how->stop_count = list->stops.count;
    return failed;
}

/* A text as it is written, unless it is there already. */
static int bad_add(wordlist *list, const loaded *l, const char *text)
{
    ids tokens;
    int failed =
        ids_read(&tokens, l, "--bad-words", text, strlen(text), IDS_BARE);
    if (!failed && tokens.count == 0)
        failed = cli_fail(VERB, "--bad-words: '%s' has no tokens", text);
    bool there = false;
    for (size_t i = list->bad_own; i < list->bad_count && !failed; i++)
        there |= list->bad[i].count == tokens.count &&
                 memcmp(list->bad[i].tokens, tokens.at,
                        tokens.count * sizeof(*tokens.at)) == 0;
    if (failed || there)
        free(tokens.at);
    else
        list->bad[list->bad_count++] = (bauta_word){ tokens.count, tokens.at };
    return failed;
}

/* A word has other tokens behind a space than where a text or line begins. */
static int bad_add_both(wordlist *list, const loaded *l, const char *text)
{
    size_t size = strlen(text) + 1;
    char *spaced = malloc(size + 1);
    if (!spaced)
        return cli_fail(VERB, "out of memory");
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    int failed = bad_add(list, l, text);
    if (!failed)
        failed = bad_add(list, l, spaced);
    free(spaced);
    return failed;
}

static int bad_make(wordlist *list, const settings *s, const loaded *l,
                    bauta_generate_options *how)
{
    int failed = CLI_OK;
    list->bad =
        calloc(how->word_count + 2 * s->bad.count + 1, sizeof(*list->bad));
    if (!list->bad)
        return cli_fail(VERB, "out of memory");
    for (size_t i = 0; i < how->word_count; i++)
        list->bad[i] = how->words[i];
    list->bad_own = list->bad_count = how->word_count;
    for (size_t i = 0; i < s->bad.count && !failed; i++)
        failed = bad_add_both(list, l, s->bad.at[i]);
    how->words = list->bad;
    how->word_count = list->bad_count;
    return failed;
}

int wordlist_make(wordlist *list, const settings *s, const loaded *l,
                  bauta_generate_options *how)
{
    int failed = stops_make(list, s, how);
    return failed ? failed : bad_make(list, s, l, how);
}

void wordlist_release(wordlist *list)
{
    for (size_t i = list->bad_own; i < list->bad_count; i++)
        free((void *)(uintptr_t)list->bad[i].tokens);
    free(list->bad);
    words_release(&list->stops);
}

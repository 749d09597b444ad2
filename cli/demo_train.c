/* SPDX-License-Identifier: Apache-2.0 */
/* demo_train.c - bauta demo: calls of `bauta train`, as one could type them. */
#include "cli.h"
#include "demo.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { WORDS_MAX = 64, TEXT_MAX = 6 * DEMO_PATH };

/* The words of a command; `text` holds them, one behind the other. */
typedef struct command {
    char *words[WORDS_MAX + 1];
    char text[TEXT_MAX];
    size_t used;
    int count;
} command;

static void word_add(command *c, const char *folder, const char *word,
                     size_t length)
{
    size_t room = TEXT_MAX - c->used;
    char *to = c->text + c->used;
    int size = snprintf(to, room, "%s%s%.*s", folder, *folder ? "/" : "",
                        (int)length, word);
    if (size < 0 || (size_t)size >= room || c->count == WORDS_MAX)
        return; // the lists below are shorter than that
    c->used += (size_t)size + 1;
    c->words[c->count++] = to;
}

/* Words with spaces between them; those that are no options get the folder
 * before them, where one is given. */
static void words_add(command *c, const char *folder, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        word_add(c, *words == '-' ? "" : folder, words, length);
        words += length;
        words += strspn(words, " ");
    }
}

static void number_add(command *c, const char *name, uint64_t value)
{
    char number[32];
    snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
    words_add(c, "", name);
    words_add(c, "", number);
}

static void command_say(const command *c)
{
    size_t column = (size_t)printf("  $ bauta");
    for (int i = 0; i < c->count; i++) {
        // An option stays with its value.
        bool option = *c->words[i] == '-' && i + 1 < c->count;
        size_t size =
            strlen(c->words[i]) + (option ? strlen(c->words[i + 1]) + 1 : 0);
        if (option && column + size > 76)
            column = (size_t)printf(" \\\n     ") - 3;
        column += (size_t)printf(" %s", c->words[i]);
    }
    printf("\n\n");
    fflush(stdout);
}

/* A Ctrl-C in a run saves and stops; it ends the demo, too. */
static int stopped_check(const training *t, const char *folder)
{
    char last[DEMO_PATH + 128];
    struct stat found;
    snprintf(last, sizeof(last), "%s/%s/step-%08zu", folder, t->name, t->steps);
    return stat(last, &found) == 0 ? CLI_OK : cli_fail("demo", "stopped");
}

int training_run(const training *t, const char *folder)
{
    static command c;
    c = (command){ .count = 0 };
    words_add(&c, "", "train");
    words_add(&c, "", t->options);
    number_add(&c, "--steps", t->steps);
    number_add(&c, "--seed", t->seed);
    words_add(&c, folder, t->files);
    words_add(&c, "", "--out");
    words_add(&c, folder, t->name);
    command_say(&c);
    int failed = train_main(c.count, c.words);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    return failed ? failed : stopped_check(t, folder);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* demo_train.c - bauta demo: the corpus as files, and calls of `bauta train`,
 * printed as a user could type them. */
#include "../cli/cli.h"
#include "demo.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the corpus -------------------------------------------------------- */

int corpus_draw(corpus *c, const demo_sizes *s, uint64_t seed)
{
    *c = (corpus){ 0 };
    if (pairs_draw(&c->all, s->valid + s->held + s->train, seed))
        return cli_fail("demo", "out of memory");
    c->valid = c->all.at;
    c->held = c->valid + s->valid;
    c->train = c->held + s->held;
    return CLI_OK;
}

void corpus_release(corpus *c)
{
    pairs_release(&c->all);
}

typedef void line_fn(FILE *file, const pair *p);

static void both_write(FILE *file, const pair *p)
{
    fprintf(file, "%s\t%s\n", p->english, p->german);
}

/* Sentences of the text end in a full stop or question mark. */
static void german_write_line(FILE *file, const pair *p)
{
    bool ended = strchr(".?", p->german[strlen(p->german) - 1]);
    fprintf(file, "%s%s\n", p->german, ended ? "" : ".");
}

static int file_write(const char *folder, const char *name, line_fn *line,
                      const pair *from, size_t count)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    for (size_t i = 0; file && i < count; i++)
        line(file, &from[i]);
    bool good = file && !ferror(file);
    if (file && fclose(file))
        good = false;
    return good ? CLI_OK : cli_fail("demo", "%s: %s", path, strerror(errno));
}

int corpus_write(const corpus *c, const demo_sizes *s, const char *folder)
{
    int failed =
        file_write(folder, "train.tsv", both_write, c->train, s->train);
    if (!failed)
        failed =
            file_write(folder, "valid.tsv", both_write, c->valid, s->valid);
    if (!failed)
        failed =
            file_write(folder, "held-out.tsv", both_write, c->held, s->held);
    if (!failed)
        failed = file_write(folder, "german.txt", german_write_line, c->train,
                            s->train);
    return failed;
}

/* ---- bauta train ------------------------------------------------------- */

enum { WORDS_MAX = 64, TEXT_MAX = 6 * DEMO_PATH };

/* A command; `text` holds its words, packed back to back. */
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
        return; // no command is that long
    c->used += (size_t)size + 1;
    c->words[c->count++] = to;
}

/* Append words separated by spaces; file names get the folder as prefix. */
static void string_list_add(command *c, const char *folder, const char *words)
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
    string_list_add(c, "", name);
    string_list_add(c, "", number);
}

static void command_print(const command *c)
{
    size_t column = (size_t)printf("  $ bauta");
    for (int i = 0; i < c->count; i++) {
        // Keep an option and its value on one line.
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

/* Ctrl-C saves and stops a run; it ends the demo, too. */
static int stopped_check(const training *t, const char *folder)
{
    char last[DEMO_PATH + 128];
    struct stat found;
    snprintf(last, sizeof(last), "%s/%s/step-%08zu", folder, t->name, t->steps);
    return stat(last, &found) == 0 ? CLI_OK : cli_fail("demo", "stopped");
}

int training_call(const training *t, const char *folder)
{
    static command c;
    c = (command){ .count = 0 };
    string_list_add(&c, "", "train");
    string_list_add(&c, "", t->options);
    number_add(&c, "--steps", t->steps);
    number_add(&c, "--seed", t->seed);
    string_list_add(&c, folder, t->files);
    string_list_add(&c, "", "--out");
    string_list_add(&c, folder, t->name);
    command_print(&c);
    int failed = train_main(c.count, c.words);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    return failed ? failed : stopped_check(t, folder);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* demo_corpus.c - bauta demo: pairs of the grammar, split, as files. */
#include "cli.h"
#include "demo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int corpus_draw(corpus *c, const sizes *s, uint64_t seed)
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

/* A text ends its sentences. */
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

int corpus_write(const corpus *c, const sizes *s, const char *folder)
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

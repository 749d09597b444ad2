/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_split.c - texts of a file, shared out over processes.
 *
 * Texts do not depend on each other, so these ranks need not talk: each works
 * on a contiguous part of the file, and what they print is put together in the
 * order of the ranks, which is that of the texts. */
#include "cli.h"
#include "ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS_MAX = 64 };

static text_part part = { 0, 1 };

text_part ranks_part(void)
{
    return part;
}

/* What a process prints, in files without a name. */
typedef struct printed {
    pid_t pid;
    FILE *out, *errors;
} printed;

static bool copy(FILE *from, FILE *to)
{
    char buffer[1 << 16];
    size_t bytes;
    rewind(from);
    while ((bytes = fread(buffer, 1, sizeof(buffer), from)) > 0)
        if (fwrite(buffer, 1, bytes, to) != bytes)
            return false;
    return !ferror(from);
}

static bool has_line(FILE *in, const char *line)
{
    char *other = NULL;
    size_t room = 0;
    bool found = false;
    rewind(in);
    while (!found && getline(&other, &room, in) > 0)
        found = strcmp(other, line) == 0;
    free(other);
    return found;
}

/* Messages of a rank, without those that rank 0 has, too. */
static void errors_print(FILE *from, FILE *first)
{
    char *line = NULL;
    size_t room = 0;
    rewind(from);
    while (getline(&line, &room, from) > 0)
        if (from == first || !has_line(first, line))
            fputs(line, stderr);
    free(line);
}

static int all_wait(const char *verb, printed *ranks, size_t count)
{
    int code = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        int status;
        while (waitpid(ranks[i].pid, &status, 0) < 0 && errno == EINTR)
            ;
        bool good = copy(ranks[i].out, stdout);
        errors_print(ranks[i].errors, ranks[0].errors);
        if (WIFSIGNALED(status))
            code = cli_fail(verb, "rank %zu was ended by signal %d", i,
                            WTERMSIG(status));
        else if (!good)
            code = cli_fail(verb, "cannot copy the result of rank %zu: %s", i,
                            strerror(errno));
        else if (!code)
            code = WEXITSTATUS(status);
    }
    return code ? code : cli_finish(verb);
}

static void part_become(size_t rank, size_t count, const printed *self)
{
    part = (text_part){ rank, count };
    dup2(fileno(self->out), STDOUT_FILENO);
    dup2(fileno(self->errors), STDERR_FILENO);
}

bool ranks_split(const char *verb, size_t count, const char *file, int *code)
{
    printed ranks[PARTS_MAX] = { 0 };
    size_t started = 0;
    if (count <= 1)
        return false;
    *code = CLI_OK;
    if (count > PARTS_MAX)
        *code = cli_usage(verb, "--ranks is %zu, not from 1 to %d", count,
                          (int)PARTS_MAX);
    else if (!file || strcmp(file, "-") == 0)
        *code = cli_usage(verb, "--ranks needs texts from a file");
    fflush(stdout);
    for (; !*code && started < count; started++) {
        printed *p = &ranks[started];
        p->out = tmpfile();
        p->errors = tmpfile();
        p->pid = p->out && p->errors ? fork() : -1;
        if (p->pid == 0) {
            part_become(started, count, p);
            return false;
        }
        if (p->pid < 0) {
            *code = cli_fail(verb, "cannot start rank %zu: %s", started,
                             strerror(errno));
            break;
        }
    }
    int ended = all_wait(verb, ranks, started);
    *code = *code ? *code : ended;
    for (size_t i = 0; i < PARTS_MAX; i++) {
        if (ranks[i].out)
            fclose(ranks[i].out);
        if (ranks[i].errors)
            fclose(ranks[i].errors);
    }
    return true;
}

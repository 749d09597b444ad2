/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c - messages of the verbs; see cli.h. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const char *const cli_isas[] = { "c", "avx2", "avx512", NULL };

struct cli_speaker cli_speaker;

static void message_print(const char *verb, const char *format, va_list args)
{
    FILE *to = cli_speaker.errors ? cli_speaker.errors : stderr;
    va_list again;
    va_copy(again, args);
    int used = snprintf(cli_speaker.last, sizeof(cli_speaker.last), "%s",
                        cli_speaker.name);
    vsnprintf(cli_speaker.last + used, sizeof(cli_speaker.last) - (size_t)used,
              format, again);
    va_end(again);
    fprintf(to, verb ? "bauta %s: %s" : "bauta: %s%s", verb ? verb : "",
            cli_speaker.name);
    vfprintf(to, format, args);
    fputc('\n', to);
}

int cli_usage(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_print(verb, format, args);
    va_end(args);
    fprintf(cli_speaker.errors ? cli_speaker.errors : stderr,
            "Try 'bauta %s%s--help'.\n", verb ? verb : "", verb ? " " : "");
    return CLI_USAGE;
}

int cli_fail(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message_print(verb, format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_warn(const char *verb, const char *lines)
{
    while (*lines) {
        int length = (int)strcspn(lines, "\n");
        fprintf(stderr, "bauta %s: warning: %.*s\n", verb, length, lines);
        lines += length + (lines[length] == '\n');
    }
}

int cli_finish(const char *verb)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_OK;
    return cli_fail(verb, "cannot write the result: %s", strerror(errno));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* chat_loop.c - what the user types: messages and commands; see
 * conversation.h. */
#include "conversation.h"

#include "cli.h"
#include "line_editor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char manual[] =
    "Type a message; a \\ at the end of a line continues it. Ctrl-C ends an "
    "answer,\nCtrl-D or /exit the program.\n"
    "  /system TEXT  set the system message; without TEXT remove it\n"
    "  /tool TEXT    answer a call of a tool, with the role \"tool\"\n"
    "  /regen        answer the last message again\n"
    "  /undo         remove the last message and its answer\n"
    "  /clear        forget the conversation, but not the system message\n"
    "  /show         print the prompt that the chat template makes\n"
    "  /save FILE    write the messages as JSON\n"
    "  /load FILE    read them\n"
    "  /help         print this text\n"
    "A message that begins with / is written with //.\n";

/* ---- commands ---------------------------------------------------------- */

/* A command. `text` is what follows its name. */
typedef int command_fn(conversation *c, const char *text);

static int help_run(conversation *c, const char *text)
{
    (void)c;
    (void)text;
    fputs(manual, stderr);
    return CLI_OK;
}

static int system_run(conversation *c, const char *text)
{
    conversation_set_system(c, text);
    return CLI_OK;
}

static int tool_run(conversation *c, const char *text)
{
    conversation_add(c, "tool", text, strlen(text));
    return conversation_answer(c);
}

static int undo_run(conversation *c, const char *text)
{
    (void)text;
    return conversation_undo(c) ? CLI_OK
                                : cli_fail(VERB, "there is no message yet");
}

/* The message stays, so the answer is another one: its seed is new. */
static int regen_run(conversation *c, const char *text)
{
    size_t count = json_array_size(c->messages);
    const json_t *last = json_array_get(c->messages, count ? count - 1 : 0);
    const char *role = json_string_value(json_object_get(last, "role"));
    (void)text;
    if (!role || strcmp(role, "assistant") != 0)
        return cli_fail(VERB, "there is no answer yet");
    json_array_remove(c->messages, count - 1);
    return conversation_answer(c);
}

static int clear_run(conversation *c, const char *text)
{
    (void)text;
    conversation_clear(c);
    return CLI_OK;
}

static int show_run(conversation *c, const char *text)
{
    (void)text;
    return conversation_print(c);
}

static int save_run(conversation *c, const char *text)
{
    return *text ? conversation_save(c, text)
                 : cli_fail(VERB, "/save needs a file");
}

static int load_run(conversation *c, const char *text)
{
    return *text ? conversation_load(c, text)
                 : cli_fail(VERB, "/load needs a file");
}

static const struct {
    const char *name;
    command_fn *run; /* NULL: the end */
} commands[] = {
    { "/help", help_run },   { "/system", system_run }, { "/tool", tool_run },
    { "/regen", regen_run }, { "/undo", undo_run },     { "/clear", clear_run },
    { "/show", show_run },   { "/save", save_run },     { "/load", load_run },
    { "/exit", NULL },       { "/quit", NULL },
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* *ends becomes true after /exit. */
static int command_run(conversation *c, const char *line, bool *ends)
{
    size_t length = strcspn(line, " ");
    const char *text = line + length + strspn(line + length, " ");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strlen(commands[i].name) != length ||
            strncmp(commands[i].name, line, length) != 0)
            continue;
        *ends = !commands[i].run;
        return *ends ? CLI_OK : commands[i].run(c, text);
    }
    return cli_fail(VERB, "there is no command '%.*s'; see /help", (int)length,
                    line);
}

/* ---- the loop ---------------------------------------------------------- */

/* Lines that end in \ are continued. The text is for free(); NULL at the end of
 * input, and after a failure, which *failed tells. */
static char *message_read(line_editor *e, int *failed)
{
    char *text = NULL;
    size_t length = 0;
    for (bool more = true; more;) {
        line_status status = line_read(e, length ? "... " : "> ");
        if (status == LINE_FAILED)
            *failed = cli_fail(VERB, "standard input: %s", strerror(errno));
        if (status == LINE_INTERRUPTED) {
            fputs("(Ctrl-D to exit)\n", stderr);
            length = 0;
            continue;
        }
        if (status != LINE_OK && !(status == LINE_END && text && length))
            break;
        more = status == LINE_OK && e->length && e->line[e->length - 1] == '\\';
        size_t take = status == LINE_OK ? e->length - more : 0;
        char *longer = realloc(text, length + take + 2);
        if (!longer) {
            *failed = cli_fail(VERB, "out of memory");
            break;
        }
        text = longer;
        if (take)
            memcpy(text + length, e->line, take);
        length += take;
        if (more)
            text[length++] = '\n';
        text[length] = '\0';
        if (!more)
            return text;
    }
    free(text);
    return NULL;
}

static int line_run(conversation *c, const char *text, bool *ends)
{
    if (text[0] == '/' && text[1] != '/')
        return command_run(c, text, ends);
    text += text[0] == '/';
    conversation_add(c, "user", text, strlen(text));
    return conversation_answer(c);
}

/* At a terminal a failure is reported and the conversation goes on, unless
 * stdout is closed. */
int chat_loop(conversation *c)
{
    line_editor e;
    bool typed = isatty(0), ends = false;
    int failed = CLI_OK;
    char *text;
    line_editor_init(&e);
    if (typed && !c->how->quiet)
        fputs("/help prints the commands, Ctrl-D ends.\n", stderr);
    while (!failed && !ends && (text = message_read(&e, &failed))) {
        if (*text)
            failed = line_run(c, text, &ends);
        free(text);
        if (typed && !ferror(stdout))
            failed = CLI_OK;
        if (!typed && answer_interrupted())
            break;
    }
    line_editor_release(&e);
    return failed;
}

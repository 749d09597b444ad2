/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - bauta generate: what its files share.
 *
 *   generate.c          the verb, and many prompts at once
 *   generate_options.c  the command line, --help, the settings in words
 *   generate_words.c    what ends a text, and what may not come
 *   generate_speak.c    one prompt, whose text is shown as it comes; and a
 *                       person who types them */
#ifndef GENERATE_H
#define GENERATE_H

#include "stream.h"

#define VERB "generate"

typedef struct settings {
    words rest;  /* the folder, and the prompt */
    words stops; /* live as long as the requests */
    words bad;   /* as they were given */
    const char *file, *prompts;
    bauta_generate_options wish; /* what was given of it, see `has` */
    struct {
        bool temperature, top_k, top_p, min_p, repeat, seed, max, min, beams,
            penalty, early, no_repeat, window;
    } has;
    loaded_wish model;
    int early;
    bool greedy, sample, ignore_end, logprobs, echo, json, quiet, help;
    stream_limits limits;
} settings;

int settings_read(settings *s, int argc, char **argv);
int generate_help(void);
/* The folder's settings with those that were given. Returns CLI_OK, or a
 * status after a sentence. */
int settings_apply(const settings *s, const loaded *l,
                   bauta_generate_options *how);

/* The folder's stops and words, and those of the command line behind them: what
 * options point to. */
typedef struct wordlist {
    words stops;
    bauta_word *bad;
    size_t bad_count, bad_own; /* of them the first are the folder's */
} wordlist;

/* Returns CLI_OK, or a status after a sentence. Release in any case. */
int wordlist_make(wordlist *list, const settings *s, const loaded *l,
                  bauta_generate_options *how);
void wordlist_release(wordlist *list);

/* Where the model's context ended a text, or was left behind by it: a line of
 * advice on stderr. `count` tokens are there, the prompt's among them. */
void context_say(const bauta_generate_options *how, const loaded *l,
                 bauta_finish finish, size_t count);
/* One line on stderr. */
void settings_say(const bauta_generate_options *how, const loaded *l);

typedef struct speaker {
    const settings *s;
    const loaded *model;
    const bauta_generate_options *how;
} speaker;

/* One prompt. */
int speak(const speaker *s, const char *text, size_t length);
/* Prompts from a person, until there are no more. */
int converse(const speaker *s);
/* From the first Ctrl-C on the text that is being made ends; a second one
 * ends the program. */
void interrupts_catch(void);
/* Where there was one, die of it after all, so that a shell's loop ends. */
void interrupts_pass_on(void);

/* "\n" and "\\" in a line to what they stand for, in place; returns the new
 * length. And back, onto stdout. */
size_t line_unescape(char *line, size_t length);
void line_print(const char *text, size_t length);
/* A result as a line of JSON. */
int result_json(const bauta_generate_options *how, const bauta_result *r,
                const char *prompt, size_t length, double seconds);

#endif

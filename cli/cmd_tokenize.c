/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tokenize.c - bauta tokenize: encode texts to token ids, or decode. */
#include "tokenize.h"

#include "cli.h"
#include "lines.h"
#include "text_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char verb[] = "tokenize";

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta tokenize TOKENIZER [TEXT] [options]\n"
    "\n"
    "Print the token ids of TEXT, or of each line of files or of standard\n"
    "input. TOKENIZER is a model folder, a tokenizer.json, a SentencePiece\n"
    "model or a vocab.txt.\n"
    "\n"
    "input\n"
    "  -m, --model T  TOKENIZER, as an option\n"
    "  --file FILE    read FILE instead of TEXT; may be repeated, - is "
    "standard\n"
    "                 input\n"
    "  --lines        each line is a text (default, except with --count)\n"
    "  --whole        each file is a text (default with --count)\n"
    "  --pair TEXT    second text of a pair\n"
    "\n"
    "output\n"
    "  --pieces       tokens as the vocabulary writes them\n"
    "  --offsets      one token per line: id, start and end in bytes, piece; "
    "an\n"
    "                 empty line after each text\n"
    "  --count        number of tokens and bytes, per file and in total\n"
    "  --decode       read ids and print their text\n"
    "  --json         one JSON object per line, with everything\n"
    "\n"
    "encoding\n"
    "  --bare         no special tokens around the text, such as [CLS], [SEP]\n"
    "  --literal      treat special tokens in the text as plain characters\n"
    "  --specials     --decode: print special tokens, too\n"
    "  --target       use the target side of a translation tokenizer\n"
    "  --             no options follow\n"
    "  --help         print this text\n"
    "\n"
    "examples\n"
    "  bauta tokenize models/gpt2 'Hello world'\n"
    "  bauta tokenize models/bert 'Who?' --pair 'Me.' --pieces\n"
    "  bauta tokenize models/gpt2 --count --file a.txt --file b.txt\n"
    "  bauta tokenize models/gpt2 <a.txt | bauta tokenize models/gpt2 "
    "--decode\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(verb);
}

static int options_check(const options *o)
{
    if (!o->tokenizer)
        return cli_usage(verb, "the tokenizer is missing");
    if (o->rest.count > 2)
        return cli_usage(verb, "more than one text: '%s' and '%s'",
                         o->rest.at[1], o->rest.at[2]);
    if (o->text && o->files.count)
        return cli_usage(verb, "both a text and files");
    if (o->second && !o->text)
        return cli_usage(verb, "--pair needs a first text");
    if (o->second && o->form == FORM_TEXT)
        return cli_usage(verb, "--pair and --decode exclude each other");
    return CLI_OK;
}

static int options_read(options *o, int argc, char **argv)
{
    const option table[] = {
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--file", OPTION_STRINGS, &o->files, NULL, 0, 0, NULL },
        { "--lines", OPTION_CONSTANT, &o->unit, NULL, UNIT_LINE, 0, NULL },
        { "--whole", OPTION_CONSTANT, &o->unit, NULL, UNIT_FILE, 0, NULL },
        { "--pair", OPTION_STRING, &o->second, NULL, 0, 0, NULL },
        { "--pieces", OPTION_CONSTANT, &o->form, NULL, FORM_PIECES, 0, NULL },
        { "--offsets", OPTION_CONSTANT, &o->form, NULL, FORM_OFFSETS, 0, NULL },
        { "--count", OPTION_CONSTANT, &o->form, NULL, FORM_COUNT, 0, NULL },
        { "--decode", OPTION_CONSTANT, &o->form, NULL, FORM_TEXT, 0, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--bare", OPTION_FLAG, &o->bare, NULL, 0, 0, NULL },
        { "--literal", OPTION_FLAG, &o->literal, NULL, 0, 0, NULL },
        { "--specials", OPTION_FLAG, &o->specials, NULL, 0, 0, NULL },
        { "--target", OPTION_FLAG, &o->target, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(verb, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->rest);
    if (usage || o->help)
        return usage;
    o->tokenizer = o->rest.count > 0 ? o->rest.at[0] : NULL;
    o->text = o->rest.count > 1 ? o->rest.at[1] : NULL;
    if (o->text && strcmp(o->text, "-") == 0 && !o->second) {
        usage = string_list_add(verb, &o->files, o->text); // standard input
        o->text = NULL;
        if (usage)
            return usage;
    }
    if (!o->unit)
        o->unit = o->form == FORM_COUNT ? UNIT_FILE : UNIT_LINE;
    return options_check(o);
}

/* ---- one text ---------------------------------------------------------- */

enum { WHOLE_FILE = -1 }; /* as a line number */

typedef struct job {
    const options *o;
    const bauta_tokenizer *tokenizer;
    token_count count; /* of the current file */
    size_t line;       /* of it, or WHOLE_FILE */
    uint32_t *ids;
    size_t id_room;
    bauta_error err;
} job;

/* Print a message with its place. */
static int job_fail(const job *j, const char *message)
{
    if (!j->count.name)
        return cli_fail(verb, "%s", message);
    if (j->line == (size_t)WHOLE_FILE)
        return cli_fail(verb, "%s: %s", j->count.name, message);
    return cli_fail(verb, "%s: line %zu: %s", j->count.name, j->line, message);
}

static int id_add(job *j, size_t *count, unsigned long long id)
{
    if (*count == j->id_room) {
        size_t room = 2 * j->id_room + 64;
        uint32_t *grown = realloc(j->ids, room * sizeof(*grown));
        if (!grown)
            return job_fail(j, "out of memory");
        j->ids = grown;
        j->id_room = room;
    }
    j->ids[(*count)++] = (uint32_t)id;
    return CLI_OK;
}

/* Parse numbers separated by blanks, commas or brackets. */
static int ids_parse(job *j, const char *text, size_t length, size_t *count)
{
    static const char between[] = " \t\r\n,[]";
    const char *at = text + strspn(text, between);
    int failed = CLI_OK;
    *count = 0;
    while (at < text + length && !failed) {
        char *end, message[64];
        errno = 0;
        unsigned long long id = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || id > UINT32_MAX ||
            (*end && !strchr(between, *end))) {
            snprintf(message, sizeof(message), "'%.20s' is no id", at);
            return job_fail(j, message);
        }
        failed = id_add(j, count, id);
        at = end + strspn(end, between);
    }
    return failed;
}

static int text_decode(job *j, const char *text, size_t length)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    size_t count;
    char *decoded;
    int failed = ids_parse(j, text, length, &count);
    if (failed)
        return failed;
    how.keep_special_tokens = j->o->specials;
    how.source = !j->o->target;
    if (bauta_tokenizer_decode(j->tokenizer, j->ids, count, &how, &decoded,
                               &length, &j->err))
        return job_fail(j, j->err.message);
    text_print(decoded, length, j->o);
    bauta_text_free(decoded);
    return CLI_OK;
}

static int text_encode(job *j, const char *text, size_t length)
{
    const options *o = j->o;
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    how.no_special_tokens = o->bare;
    how.split_special_tokens = o->literal;
    how.target = o->target;
    bauta_status status =
        o->second ? bauta_tokenizer_encode_pair(j->tokenizer, text, length,
                                                o->second, strlen(o->second),
                                                &how, &tokens, &j->err)
                  : bauta_tokenizer_encode(j->tokenizer, text, length, &how,
                                           &tokens, &j->err);
    if (status)
        return job_fail(j, j->err.message);
    j->count.tokens += tokens.count;
    j->count.bytes += length + (o->second ? strlen(o->second) : 0);
    if (o->form != FORM_COUNT)
        tokens_print(j->tokenizer, &tokens, o);
    bauta_tokens_release(&tokens);
    return CLI_OK;
}

/* The text is NUL-terminated. */
static int text_run(job *j, const char *text, size_t length)
{
    return j->o->form == FORM_TEXT ? text_decode(j, text, length)
                                   : text_encode(j, text, length);
}

/* ---- files ------------------------------------------------------------- */

static int file_run(job *j, const char *name)
{
    text_input in;
    const char *text;
    size_t length;
    int failed = text_input_open(&in, verb, NULL, 0, name);
    bool whole = j->o->unit == UNIT_FILE;
    j->count = (token_count){ .name = in.name };
    j->line = 0;
    while (
        !failed && j->line != (size_t)WHOLE_FILE &&
        (whole ? text_input_read_all : text_input_next)(&in, &text, &length)) {
        j->line = whole ? (size_t)WHOLE_FILE : in.number;
        failed = in.error[0] ? cli_fail(verb, "%s", in.error)
                             : text_run(j, text, length);
    }
    return text_input_close(&in) ? CLI_FAILED : failed;
}

static int files_run(job *j)
{
    static const char *const standard[] = { "-" };
    const options *o = j->o;
    size_t count = o->files.count ? o->files.count : 1;
    int failed = CLI_OK;
    token_count all = { .name = "total" };
    for (size_t i = 0; i < count && !failed; i++) {
        failed = file_run(j, o->files.count ? o->files.at[i] : standard[0]);
        if (failed)
            break;
        all.tokens += j->count.tokens;
        all.bytes += j->count.bytes;
        if (o->form == FORM_COUNT)
            count_print(&j->count, o);
    }
    if (!failed && count > 1 && o->form == FORM_COUNT)
        count_print(&all, o);
    return failed;
}

static int argument_run(job *j)
{
    int failed = text_check(verb, "the text", j->o->text);
    return failed ? failed : text_run(j, j->o->text, strlen(j->o->text));
}

/* ---- the verb ---------------------------------------------------------- */

static int tokenize(const options *o)
{
    job j = { .o = o };
    bauta_tokenizer *tokenizer;
    if (bauta_tokenizer_load(&tokenizer, o->tokenizer, &j.err))
        return cli_fail(verb, "%s", j.err.message);
    j.tokenizer = tokenizer;
    int failed = CLI_OK;
    if (o->second)
        failed = text_check(verb, "--pair", o->second);
    if (!failed)
        failed = o->text ? argument_run(&j) : files_run(&j);
    if (!failed && o->text && o->form == FORM_COUNT)
        count_print(&j.count, o);
    free(j.ids);
    bauta_tokenizer_free(tokenizer);
    return failed ? failed : cli_finish(verb);
}

int tokenize_main(int argc, char **argv)
{
    options o = { .form = FORM_IDS };
    int status = options_read(&o, argc, argv);
    if (!status)
        status = o.help ? help() : tokenize(&o);
    string_list_release(&o.files);
    string_list_release(&o.rest);
    return status;
}

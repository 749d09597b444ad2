/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_fill.c - bauta fill: predict masked tokens. */
#include "cli.h"
#include "json_output.h"
#include "opened_model.h"
#include "text_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "fill"

/* ---- the command line -------------------------------------------------- */

typedef struct settings {
    string_list rest; /* the folder, and texts */
    const char *file;
    size_t top;
    model_options model;
    bool json, help;
} settings;

static const char help_text[] =
    "usage: bauta fill MODEL [TEXT]... [options]\n"
    "\n"
    "Predict the most likely tokens for each mask in TEXT, or in each line of "
    "a\n"
    "file or of standard input. MODEL is the folder of an encoder-only model\n"
    "(BERT, RoBERTa) or of a training run. A mask is written [MASK] or "
    "<mask>,\n"
    "whatever the tokenizer has. Several masks in a text are predicted\n"
    "independently of each other.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  MODEL, as an option\n"
    "  --file FILE      texts, one per line; - is standard input\n"
    "  --top N          candidates per mask (default 5)\n"
    "  --json           one JSON object per line: text, and for each mask the\n"
    "                   candidates with token, probability and sentence\n"
    "  --tokenizer T    folder or file, if MODEL has none\n"
    "  --device D       cpu (default), cuda or cuda:N: the GPU with this\n"
    "                   number\n"
    "  --dtype T        compute in float32 (default), or on a GPU in bfloat16\n"
    "  --weights W      on the CPU: store matrices as float32 (default),\n"
    "                   bfloat16 or int8\n"
    "  --threads N      0: one per core (default); does not change results\n"
    "  --               no options follow\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta fill models/bert 'My [MASK] lord, I am your servant.'\n"
    "  bauta fill models/roberta --top 1 --json <gaps.txt\n"
    "  bauta fill models/bert --device cpu <gaps.txt # or cuda\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--top", OPTION_SIZE, &s->top, NULL, 1, 1000, NULL },
        MODEL_OPTIONS(s),
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    return usage || s->help ? usage : model_args_check(VERB, &s->rest, s->file);
}

/* ---- a text ------------------------------------------------------------ */

typedef struct candidate {
    uint32_t token;
    double probability;
} candidate;

/* The masks of a text and their candidates. */
typedef struct gap_list {
    size_t count, top;
    size_t *rows;          /* (count) */
    uint32_t *ids;         /* (count, top) */
    double *probabilities; /* (count, top) */
} gap_list;

typedef struct filler {
    const settings *s;
    opened_model model;
    text_input in;
    const char *mask; /* as the vocabulary writes it */
    uint32_t mask_id;
    char place[512];
} filler;

/* Replace both spellings of a mask by the one that the tokenizer has. */
static char *masks_rewrite(const char *text, size_t length, const char *mask,
                           size_t *out_length)
{
    static const char *const ways[] = { "[MASK]", "<mask>" };
    size_t size = strlen(mask) > 6 ? strlen(mask) : 6, at = 0;
    char *out = malloc((length / 6 + 1) * size + length + 1);
    for (size_t i = 0; out && i < length;) {
        bool gap = false;
        for (int w = 0; w < 2; w++)
            gap = gap || (length - i >= 6 && !memcmp(text + i, ways[w], 6));
        if (gap) {
            memcpy(out + at, mask, strlen(mask));
            at += strlen(mask);
            i += 6;
        } else {
            out[at++] = text[i++];
        }
    }
    *out_length = at;
    return out;
}

/* The text with one mask replaced, without the special tokens around it, and
 * with the other masks. */
static char *sentence(const filler *f, const bauta_tokens *tokens, size_t gap,
                      uint32_t token, size_t *length, bauta_error *err)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    const bauta_tokenizer *t = f->model.tokenizer;
    uint32_t *kept = calloc(tokens->count, sizeof(*kept));
    size_t count = 0;
    char *text = NULL;
    how.keep_special_tokens = true;
    for (size_t i = 0; kept && i < tokens->count; i++) {
        uint32_t id = tokens->ids[i];
        if (i == gap)
            kept[count++] = token;
        else if (id == f->mask_id || !bauta_tokenizer_is_special(t, id))
            kept[count++] = id;
    }
    snprintf(err->message, sizeof(err->message), "out of memory");
    if (kept)
        bauta_tokenizer_decode(t, kept, count, &how, &text, length, err);
    free(kept);
    return text;
}

static json_t *candidate_json(const candidate *c, const char *word,
                              size_t word_length, const char *text,
                              size_t length)
{
    return json_pack("{s:I, s:o, s:f, s:o}", "token", (json_int_t)c->token,
                     "text", json_text(word, word_length), "probability",
                     c->probability, "sentence", json_text(text, length));
}

/* One line of the table, or one object of the list. */
static int candidate_show(const filler *f, const bauta_tokens *tokens,
                          size_t gap, const candidate *c, json_t *list)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    bauta_error err;
    char *word = NULL;
    size_t word_length = 0, length = 0;
    int failed = CLI_OK;
    how.keep_special_tokens = true;
    char *text = sentence(f, tokens, gap, c->token, &length, &err);
    if (!text || bauta_tokenizer_decode(f->model.tokenizer, &c->token, 1, &how,
                                        &word, &word_length, &err))
        failed = cli_fail(VERB, "%s", err.message);
    else if (list)
        json_array_append_new(
            list, candidate_json(c, word, word_length, text, length));
    else
        printf("  %.4f  %-14.*s  %.*s\n", c->probability, (int)word_length,
               word, (int)length, text);
    bauta_text_free(word);
    bauta_text_free(text);
    return failed;
}

/* The candidates of gap `index`. */
static int gap_show(const filler *f, const bauta_tokens *tokens,
                    const gap_list *g, size_t index, json_t *gaps)
{
    json_t *list = gaps ? json_array() : NULL;
    int failed = CLI_OK;
    for (size_t i = index * g->top; i < (index + 1) * g->top && !failed; i++) {
        candidate c = { g->ids[i], g->probabilities[i] };
        failed = candidate_show(f, tokens, g->rows[index], &c, list);
    }
    if (gaps)
        json_array_append_new(gaps, list);
    return failed;
}

static int gaps_show(const filler *f, const bauta_tokens *tokens,
                     const gap_list *g, const char *text, size_t length)
{
    json_t *gaps = f->s->json ? json_array() : NULL;
    int failed = CLI_OK;
    if (!gaps) {
        fwrite(text, 1, length, stdout);
        putchar('\n');
    }
    for (size_t i = 0; i < g->count && !failed; i++) {
        if (!gaps && g->count > 1)
            printf(" mask %zu\n", i + 1);
        failed = gap_show(f, tokens, g, i, gaps);
    }
    if (failed || !gaps) {
        json_decref(gaps);
        return failed;
    }
    return json_line(VERB, json_pack("{s:o, s:o}", "text",
                                     json_text(text, length), "gaps", gaps));
}

/* Find the masks of a text, and room for their candidates. */
static int gaps_find(gap_list *g, const filler *f, const bauta_tokens *tokens)
{
    size_t vocabulary = bauta_model_vocab_size(f->model.model);
    size_t known = bauta_tokenizer_vocab_size(f->model.tokenizer);
    g->top = f->s->top < known ? f->s->top : known;
    g->top = g->top < vocabulary ? g->top : vocabulary;
    g->rows = calloc(tokens->count + 1, sizeof(*g->rows));
    for (size_t i = 0; g->rows && i < tokens->count; i++)
        if (tokens->ids[i] == f->mask_id)
            g->rows[g->count++] = i;
    g->ids = calloc(g->count + 1, g->top * sizeof(*g->ids));
    g->probabilities = calloc(g->count + 1, g->top * sizeof(double));
    if (!g->rows || !g->ids || !g->probabilities)
        return cli_fail(VERB, "%s: out of memory for %zu tokens", f->place,
                        tokens->count);
    return g->count ? CLI_OK
                    : cli_fail(VERB, "%s: the text has no mask token, %s",
                               f->place, f->mask);
}

static int gaps_fill(gap_list *g, filler *f, const bauta_tokens *tokens)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_top_tokens_options how = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    bauta_error err;
    size_t vocabulary = bauta_model_vocab_size(f->model.model);
    size_t known = bauta_tokenizer_vocab_size(f->model.tokenizer);
    batch.count = 1;
    batch.lengths = &tokens->count;
    batch.ids = tokens->ids;
    batch.token_types = tokens->types;
    how.top_k = g->top;
    how.vocab_size = known < vocabulary ? known : vocabulary;
    if (bauta_model_top_tokens(f->model.context, f->model.model, &batch, NULL,
                               g->rows, g->count, &how, g->ids,
                               g->probabilities, &err))
        return cli_fail(VERB, "%s: %s", f->place, err.message);
    return CLI_OK;
}

static int text_fill(filler *f, const char *text, size_t length)
{
    bauta_tokens tokens;
    bauta_error err;
    gap_list g = { 0 };
    size_t marked_length;
    char *marked = masks_rewrite(text, length, f->mask, &marked_length);
    if (!marked)
        return cli_fail(VERB, "out of memory");
    bauta_status status = bauta_tokenizer_encode(
        f->model.tokenizer, marked, marked_length, NULL, &tokens, &err);
    free(marked);
    if (status)
        return cli_fail(VERB, "%s: %s", f->place, err.message);
    int failed = gaps_find(&g, f, &tokens);
    if (!failed)
        failed = gaps_fill(&g, f, &tokens);
    if (!failed)
        failed = gaps_show(f, &tokens, &g, text, length);
    free(g.rows);
    free(g.ids);
    free(g.probabilities);
    bauta_tokens_release(&tokens);
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

static int filler_open(filler *f)
{
    const settings *s = f->s;
    int failed = opened_model_open(&f->model, VERB, s->rest.at[0], &s->model,
                                   BAUTA_ENCODER_ONLY);
    if (failed)
        return failed;
    f->mask_id =
        bauta_tokenizer_special_token(f->model.tokenizer, BAUTA_TOKEN_MASK);
    f->mask = bauta_tokenizer_piece(f->model.tokenizer, f->mask_id, NULL);
    if (!f->mask)
        return cli_fail(VERB, "the tokenizer of %s has no mask token",
                        s->rest.at[0]);
    return CLI_OK;
}

/* A text that fails is reported, and the others are filled. */
static int fill(filler *f)
{
    const char *text;
    size_t length;
    int failed = CLI_OK;
    while (text_input_next(&f->in, &text, &length)) {
        text_input_place(&f->in, f->in.number, f->place, sizeof(f->place));
        if (f->in.error[0] ? cli_fail(VERB, "%s", f->in.error)
                           : text_fill(f, text, length))
            failed = CLI_FAILED;
        if (cli_finish(VERB))
            return CLI_FAILED;
    }
    return failed;
}

int fill_main(int argc, char **argv)
{
    settings s = { .top = 5 };
    filler f = { .s = &s, .in = { .file = NULL } };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help) {
        string_list_release(&s.rest);
        return help();
    }
    if (!failed)
        failed = text_input_open(&f.in, VERB, s.rest.at + 1, s.rest.count - 1,
                                 s.file);
    if (!failed)
        failed = filler_open(&f);
    if (!failed)
        failed = fill(&f);
    if (text_input_close(&f.in))
        failed = CLI_FAILED;
    opened_model_close(&f.model);
    string_list_release(&s.rest);
    return failed;
}

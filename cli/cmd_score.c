/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_score.c - bauta score: BLEU and chrF of translations. */
#include "cli.h"
#include "json_output.h"
#include "lines.h"
#include "options.h"

#include <bauta.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Metrics, each by the bit of its column. */
enum { BLEU = 1, CHRF = 2, CHRF_WORDS = 4, COLUMNS = 3 };

typedef struct options {
    string_list rest;
    const char *hypotheses; /* NULL: stdin */
    string_list references;
    int metrics;
    bauta_bleu_tokenizer tokenizer;
    bauta_bleu_smoothing smoothing;
    bool lowercase, sentence, json, help;
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta score --ref FILE [--ref FILE]... [HYP] [options]\n"
    "       bauta score --perplexity MODEL FILE...   ('--perplexity --help')\n"
    "\n"
    "Score translations against references, one sentence per line: line i of\n"
    "HYP with line i of every FILE. Without HYP, or if it is '-', they are\n"
    "read from standard input. The scores are those of sacrebleu, 0 to 100.\n"
    "\n"
    "options\n"
    "  --ref FILE       references; several files are several sets\n"
    "  --metric M       bleu, chrf (chrF2), chrf++ (chrF2++) or all (default)\n"
    "  --tokenize T     for BLEU: 13a (default), intl, char or none\n"
    "  --smooth S       for BLEU: exp (default), floor, add-k or none\n"
    "  --lowercase      ignore case\n"
    "  --sentence       one line per sentence instead of a corpus score, with\n"
    "                   one column per metric\n"
    "  --json           print one JSON object, with all counts\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta score --ref test.de output.de\n"
    "  bauta score --ref test.de --metric bleu --tokenize intl <output.de\n"
    "  bauta score --ref a.de --ref b.de output.de --sentence\n"
    "  bauta score --ref test.de output.de --json | jq .bleu.score\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish("score");
}

/* In the order of the columns; the last one is all of them. */
static const char *const metrics[] = { "bleu", "chrf", "chrf++", "all", NULL };

static int options_read(options *o, int argc, char **argv)
{
    static const char *const tokenizers[] = { "13a", "intl", "char", "none",
                                              NULL };
    static const char *const smoothings[] = { "exp", "floor", "add-k", "none",
                                              NULL };
    static const int columns[] = { BLEU, CHRF, CHRF_WORDS,
                                   BLEU | CHRF | CHRF_WORDS };
    static const bauta_bleu_tokenizer tokenizer_of[] = { BAUTA_TOKENIZE_13A,
                                                         BAUTA_TOKENIZE_INTL,
                                                         BAUTA_TOKENIZE_CHAR,
                                                         BAUTA_TOKENIZE_NONE };
    static const bauta_bleu_smoothing smoothing_of[] = { BAUTA_SMOOTH_EXP,
                                                         BAUTA_SMOOTH_FLOOR,
                                                         BAUTA_SMOOTH_ADD_K,
                                                         BAUTA_SMOOTH_NONE };
    int metric = 3, tokenizer = 0, smoothing = 0;
    bool perplexity; // for the table; perplexity_main() handles it
    const option table[] = {
        { "--ref", OPTION_STRINGS, &o->references, NULL, 0, 0, NULL },
        { "--metric", OPTION_CHOICE, &metric, NULL, 0, 0, metrics },
        { "--tokenize", OPTION_CHOICE, &tokenizer, NULL, 0, 0, tokenizers },
        { "--smooth", OPTION_CHOICE, &smoothing, NULL, 0, 0, smoothings },
        { "--lowercase", OPTION_FLAG, &o->lowercase, NULL, 0, 0, NULL },
        { "--sentence", OPTION_FLAG, &o->sentence, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--perplexity", OPTION_FLAG, &perplexity, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse("score", table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->rest);
    if (usage || o->help)
        return usage;
    if (o->rest.count > 1)
        return cli_usage("score", "more than one file to score: '%s' and '%s'",
                         o->rest.at[0], o->rest.at[1]);
    if (o->references.count == 0)
        return cli_usage("score", "the references are missing: --ref FILE");
    if (o->rest.count && strcmp(o->rest.at[0], "-") != 0)
        o->hypotheses = o->rest.at[0];
    o->metrics = columns[metric];
    o->tokenizer = tokenizer_of[tokenizer];
    o->smoothing = smoothing_of[smoothing];
    return CLI_OK;
}

/* ---- the files --------------------------------------------------------- */

typedef struct input {
    lines hypotheses;
    lines *references; /* (sets) */
    size_t sets;
    const char **texts; /* (sets, LINES_MAX) */
    size_t *lengths;
    bauta_translations all; /* the current lines */
} input;

static void input_close(input *in)
{
    lines_close(&in->hypotheses);
    for (size_t s = 0; in->references && s < in->sets; s++)
        lines_close(&in->references[s]);
    free(in->references);
    free(in->texts);
    free(in->lengths);
}

static int input_open(input *in, const options *o)
{
    size_t room = o->references.count * LINES_MAX;
    in->sets = o->references.count;
    in->references = calloc(o->references.count, sizeof(*in->references));
    in->texts = calloc(room, sizeof(*in->texts));
    in->lengths = calloc(room, sizeof(*in->lengths));
    if (!in->references || !in->texts || !in->lengths)
        return cli_fail("score", "out of memory");
    int status = lines_open(&in->hypotheses, "score",
                            o->hypotheses ? o->hypotheses : "-");
    for (size_t s = 0; s < o->references.count && !status; s++)
        status = lines_open(&in->references[s], "score", o->references.at[s]);
    return status;
}

/* Combine the current lines of all files. */
static void input_join(input *in)
{
    size_t count = in->hypotheses.count;
    for (size_t s = 0; s < in->sets; s++) {
        memcpy(in->texts + s * count, in->references[s].at,
               count * sizeof(*in->texts));
        memcpy(in->lengths + s * count, in->references[s].lengths,
               count * sizeof(*in->lengths));
    }
    in->all = (bauta_translations)BAUTA_TRANSLATIONS_INIT;
    in->all.count = count;
    in->all.hypotheses = in->hypotheses.at;
    in->all.hypothesis_lengths = in->hypotheses.lengths;
    in->all.sets = in->sets;
    in->all.references = in->texts;
    in->all.reference_lengths = in->lengths;
}

/* Read to the end, to count the lines for a message. */
static int lines_count(lines *l, size_t *count)
{
    int status = CLI_OK;
    while (!status && l->count)
        status = lines_next(l);
    *count = bauta_text_file_lines(l->file);
    return status;
}

static int lengths_differ(input *in, lines *reference)
{
    lines *hyp = &in->hypotheses;
    size_t count, other;
    int status = lines_count(hyp, &count);
    if (!status)
        status = lines_count(reference, &other);
    if (status)
        return status;
    return cli_fail("score", "%s has %zu lines, %s has %zu", hyp->name, count,
                    reference->name, other);
}

/* Read the next lines of all files; none at the end. */
static int input_next(input *in)
{
    lines *hyp = &in->hypotheses;
    int status = lines_next(hyp);
    for (size_t s = 0; s < in->sets && !status; s++)
        status = lines_next(&in->references[s]);
    if (!status && !bauta_text_file_lines(hyp->file))
        return cli_fail("score", "%s: the file is empty", hyp->name);
    for (size_t s = 0; s < in->sets && !status; s++)
        if (in->references[s].count != hyp->count)
            status = lengths_differ(in, &in->references[s]);
    if (!status)
        input_join(in);
    return status;
}

/* ---- the scores -------------------------------------------------------- */

typedef struct result {
    bauta_bleu_score bleu;
    bauta_chrf_score chrf[2];   /* chrF2 and chrF2++ */
    double *sentences[COLUMNS]; /* (room), of --sentence */
    size_t count, room;
} result;

static bauta_status score_bleu(result *r, const input *in, const options *o,
                               double *sentences, bauta_error *err)
{
    bauta_bleu_options how = BAUTA_BLEU_OPTIONS_INIT;
    how.tokenizer = o->tokenizer;
    how.smoothing = o->smoothing;
    how.lowercase = o->lowercase;
    how.effective_order = o->sentence;
    how.accumulate = true;
    return bauta_bleu(&in->all, &how, &r->bleu, sentences, err);
}

static bauta_status score_chrf(result *r, const input *in, const options *o,
                               int which, double *sentences, bauta_error *err)
{
    bauta_chrf_options how = BAUTA_CHRF_OPTIONS_INIT;
    how.word_order = which ? 2 : 0;
    how.lowercase = o->lowercase;
    how.accumulate = true;
    return bauta_chrf(&in->all, &how, &r->chrf[which], sentences, err);
}

/* Room for the scores of the current lines. */
static int sentences_reserve(result *r, const options *o, size_t more)
{
    if (!o->sentence || r->count + more <= r->room)
        return CLI_OK;
    r->room = 2 * (r->count + more);
    for (int c = 0; c < COLUMNS; c++) {
        if (!(o->metrics & 1 << c))
            continue;
        double *larger = realloc(r->sentences[c], r->room * sizeof(*larger));
        if (!larger)
            return cli_fail("score", "out of memory");
        r->sentences[c] = larger;
    }
    return CLI_OK;
}

/* Add the current lines to the scores. */
static int score_add(result *r, const input *in, const options *o)
{
    bauta_error err;
    bauta_status status = BAUTA_OK;
    if (sentences_reserve(r, o, in->all.count))
        return CLI_FAILED;
    for (int c = 0; c < COLUMNS && !status; c++) {
        double *to = r->sentences[c] ? r->sentences[c] + r->count : NULL;
        if (o->metrics & 1 << c)
            status = c == 0 ? score_bleu(r, in, o, to, &err)
                            : score_chrf(r, in, o, c - 1, to, &err);
    }
    r->count += in->all.count;
    return status ? cli_fail("score", "%s", err.message) : CLI_OK;
}

static int score_all(result *r, const options *o)
{
    input in = { .sets = 0 };
    int status = input_open(&in, o);
    if (!status)
        status = input_next(&in);
    while (!status && in.all.count) {
        status = score_add(r, &in, o);
        if (!status)
            status = input_next(&in);
    }
    input_close(&in);
    return status;
}

/* ---- text -------------------------------------------------------------- */

static void bleu_print(const bauta_bleu_score *s)
{
    double length = (double)s->hypothesis_length;
    double reference = (double)s->reference_length;
    printf("BLEU|%s = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f "
           "hyp_len = %.0f ref_len = %.0f)\n",
           s->signature, s->score, s->precisions[0], s->precisions[1],
           s->precisions[2], s->precisions[3], s->brevity_penalty,
           reference > 0 ? length / reference : 0, length, reference);
}

static void sentences_print(const result *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const char *between = "";
        for (int c = 0; c < COLUMNS; c++)
            if (r->sentences[c]) {
                printf("%s%.2f", between, r->sentences[c][i]);
                between = "\t";
            }
        putchar('\n');
    }
}

static void text_print(const result *r, const options *o)
{
    if (o->sentence) {
        sentences_print(r);
        return;
    }
    if (o->metrics & BLEU)
        bleu_print(&r->bleu);
    for (int w = 0; w < 2; w++)
        if (o->metrics & CHRF << w)
            printf("%s|%s = %.2f\n", r->chrf[w].name, r->chrf[w].signature,
                   r->chrf[w].score);
}

/* ---- JSON -------------------------------------------------------------- */

static json_t *counts_json(const uint64_t *counts, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer((json_int_t)counts[i]));
    return list;
}

static json_t *reals_json(const double *reals, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(reals[i]));
    return list;
}

static json_t *bleu_json(const bauta_bleu_score *s)
{
    return json_pack(
        "{s:f, s:s, s:o, s:o, s:o, s:f, s:I, s:I}", "score", s->score,
        "signature", s->signature, "matches", counts_json(s->matches, 4),
        "totals", counts_json(s->totals, 4), "precisions",
        reals_json(s->precisions, 4), "brevity", s->brevity_penalty,
        "hypothesis_length", (json_int_t)s->hypothesis_length,
        "reference_length", (json_int_t)s->reference_length);
}

static json_t *chrf_json(const bauta_chrf_score *s)
{
    return json_pack("{s:f, s:s, s:s, s:o, s:o, s:o}", "score", s->score,
                     "name", s->name, "signature", s->signature, "matches",
                     counts_json(s->matches, s->orders), "hypothesis_totals",
                     counts_json(s->hypothesis_totals, s->orders),
                     "reference_totals",
                     counts_json(s->reference_totals, s->orders));
}

static int json_print(const result *r, const options *o)
{
    json_t *all = json_pack("{s:I}", "lines", (json_int_t)r->count);
    for (int c = 0; c < COLUMNS; c++) {
        if (!(o->metrics & 1 << c))
            continue;
        json_t *one = c == 0 ? bleu_json(&r->bleu) : chrf_json(&r->chrf[c - 1]);
        if (o->sentence)
            json_object_set_new(one, "sentences",
                                reals_json(r->sentences[c], r->count));
        if (json_object_set_new(all, metrics[c], one)) {
            json_decref(all);
            return cli_fail("score", "out of memory");
        }
    }
    return json_indented("score", all);
}

/* ---- the verb ---------------------------------------------------------- */

static int score(const options *o)
{
    result r = { .bleu = BAUTA_BLEU_SCORE_INIT,
                 .chrf = { BAUTA_CHRF_SCORE_INIT, BAUTA_CHRF_SCORE_INIT } };
    int status = score_all(&r, o);
    if (!status && o->json)
        status = json_print(&r, o);
    else if (!status)
        text_print(&r, o);
    for (int c = 0; c < COLUMNS; c++)
        free(r.sentences[c]);
    return status ? status : cli_finish("score");
}

int score_main(int argc, char **argv)
{
    options o = { .metrics = 0 };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--perplexity") == 0)
            return perplexity_main(argc, argv);
    int status = options_read(&o, argc, argv);
    if (!status)
        status = o.help ? help() : score(&o);
    string_list_release(&o.references);
    string_list_release(&o.rest);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_embed.c - bauta embed: embed texts as vectors. */
#include "cli.h"
#include "json_output.h"
#include "npy.h"
#include "opened_model.h"
#include "ranks.h"
#include "text_input.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "embed"

/* ---- the command line -------------------------------------------------- */

/* In the order of bauta_pooling. */
static const char *const poolings[] = { "mean", "cls", "last", NULL };

typedef struct settings {
    string_list rest; /* the folder, and texts */
    const char *file, *npy;
    model_options model;
    int pooling;
    size_t ranks;
    bool normalize, similarity, json, help;
} settings;

static const char help_text[] =
    "usage: bauta embed MODEL [TEXT]... [options]\n"
    "\n"
    "Embed TEXT, or each line of a file or of standard input, as a vector: "
    "the\n"
    "last hidden states of its tokens, pooled. MODEL is the folder of a model\n"
    "of any kind; of an encoder-decoder the encoder is used. Prints one JSON\n"
    "object per line, in order: text, tokens (their number), embedding.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  MODEL, as an option\n"
    "  --file FILE      texts, one per line; - is standard input\n"
    "  --pooling P      mean (default) of all tokens, cls (the first token) "
    "or\n"
    "                   last (the last token)\n"
    "  --normalize      scale to length 1 (default)\n"
    "  --no-normalize   do not scale\n"
    "  --npy FILE       write a float32 .npy file instead, one row per text\n"
    "  --similarity     print the cosine similarity of all pairs instead, one\n"
    "                   row per text\n"
    "  --json           one JSON object per line, the default; with\n"
    "                   --similarity a single object\n"
    "  --tokenizer T    folder or file, if MODEL has none\n"
    "  --device D       cpu (default), cuda or cuda:N: the GPU with this\n"
    "                   number\n"
    "  --dtype T        compute in float32 (default), or on a GPU in bfloat16\n"
    "  --weights W      on the CPU: store matrices as float32 (default),\n"
    "                   bfloat16 or int8\n"
    "  --threads N      0: one per core (default); does not change results\n"
    "  --ranks N        share the lines of --file out over N processes; does\n"
    "                   not change results\n"
    "  --               no options follow\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta embed models/bert 'a king' 'a queen' --similarity\n"
    "  bauta embed models/bert --file lines.txt --npy lines.npy\n"
    "  bauta embed models/bert <lines.txt | jq -c .embedding\n"
    "  bauta embed models/bert --device cpu --file lines.txt # or cuda\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--pooling", OPTION_CHOICE, &s->pooling, NULL, 0, 0, poolings },
        { "--normalize", OPTION_FLAG, &s->normalize, NULL, 0, 0, NULL },
        { "--no-normalize", OPTION_NO_FLAG, &s->normalize, NULL, 0, 0, NULL },
        { "--npy", OPTION_STRING, &s->npy, NULL, 0, 0, NULL },
        { "--similarity", OPTION_FLAG, &s->similarity, NULL, 0, 0, NULL },
        { "--ranks", OPTION_SIZE, &s->ranks, NULL, 0, 1e9, NULL },
        MODEL_OPTIONS(s),
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    if (usage || s->help)
        return usage;
    if (s->npy && s->similarity)
        return cli_usage(VERB, "--npy and --similarity exclude each other");
    if (s->ranks > 1 && (s->npy || s->similarity))
        return cli_usage(VERB, "%s and --ranks exclude each other",
                         s->npy ? "--npy" : "--similarity");
    return model_args_check(VERB, &s->rest, s->file);
}

/* ---- a batch of texts -------------------------------------------------- */

enum { BATCH_TEXTS = 64, BATCH_TOKENS = 2048 };

typedef struct embedder {
    const settings *s;
    opened_model model;
    text_input in;
    npy *out;
    size_t width;
    char *lines[BATCH_TEXTS]; /* of the current batch */
    size_t line_lengths[BATCH_TEXTS], lengths[BATCH_TEXTS], count, rows;
    uint32_t *ids;
    size_t id_room;
    float *vectors; /* (vector_count, width); --similarity keeps those of
                       earlier batches */
    size_t vector_count, vector_room;
} embedder;

/* Grow an array to `count` elements; on NULL it is unchanged. */
static void *grown(void *at, size_t *room, size_t count, size_t size)
{
    if (count <= *room)
        return at;
    size_t more = count + count / 2;
    void *larger = realloc(at, more * size);
    if (larger)
        *room = more;
    return larger;
}

/* Embed the batch; *vectors receives (count, width) of them. */
static int vectors_compute(embedder *e, const float **vectors)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_embed_options how = BAUTA_EMBED_OPTIONS_INIT;
    bauta_error err;
    size_t before = e->s->similarity ? e->vector_count : 0;
    float *all = grown(e->vectors, &e->vector_room,
                       (before + e->count) * e->width, sizeof(float));
    if (!all)
        return cli_fail(VERB, "out of memory");
    e->vectors = all;
    e->vector_count = before + e->count;
    *vectors = e->vectors + before * e->width;
    batch.count = e->count;
    batch.lengths = e->lengths;
    batch.ids = e->ids;
    how.pooling = (bauta_pooling)e->s->pooling;
    how.normalize = e->s->normalize;
    if (bauta_model_embed(e->model.context, e->model.model, &batch, &how,
                          e->vectors + before * e->width, &err))
        return cli_fail(VERB, "%s", err.message);
    return CLI_OK;
}

static int vector_show(embedder *e, size_t index, const float *vector)
{
    if (e->s->similarity)
        return CLI_OK;
    if (e->out)
        return npy_row(e->out, vector)
                   ? CLI_OK
                   : cli_fail(VERB, "%s: %s", e->s->npy, strerror(errno));
    return json_line(
        VERB, json_pack("{s:o, s:I, s:o}", "text",
                        json_text(e->lines[index], e->line_lengths[index]),
                        "tokens", (json_int_t)e->lengths[index], "embedding",
                        json_floats(vector, e->width)));
}

static int batch_run(embedder *e)
{
    const float *vectors = NULL;
    int failed = e->count ? vectors_compute(e, &vectors) : CLI_OK;
    for (size_t i = 0; i < e->count && !failed; i++)
        failed = vector_show(e, i, vectors + i * e->width);
    for (size_t i = 0; i < e->count; i++)
        free(e->lines[i]);
    e->count = e->rows = 0;
    return failed ? failed : cli_finish(VERB);
}

static int batch_add(embedder *e, const char *text, size_t length,
                     const token_ids *tokens)
{
    char *line = malloc(length + 1);
    uint32_t *all =
        grown(e->ids, &e->id_room, e->rows + tokens->count, sizeof(*e->ids));
    if (all)
        e->ids = all;
    if (!line || !all) {
        free(line);
        return cli_fail(VERB, "out of memory");
    }
    memcpy(line, text, length);
    memcpy(e->ids + e->rows, tokens->at, tokens->count * sizeof(*e->ids));
    e->lines[e->count] = line;
    e->line_lengths[e->count] = length;
    e->lengths[e->count++] = tokens->count;
    e->rows += tokens->count;
    return CLI_OK;
}

static int text_add(embedder *e, const char *text, size_t length)
{
    char place[512];
    bool pairs = bauta_model_kind_of(e->model.model) == BAUTA_ENCODER_DECODER;
    size_t positions = bauta_model_max_positions(e->model.model);
    token_ids tokens;
    text_input_place(&e->in, e->in.number, place, sizeof(place));
    int failed = encode_text(&tokens, &e->model, place, text, length,
                             pairs ? ENDING_EOS : ENDING_OPEN);
    if (!failed && tokens.count > positions)
        failed = cli_fail(VERB,
                          "%s: the text has %zu tokens, but the model has "
                          "only %zu positions",
                          place, tokens.count, positions);
    if (!failed &&
        (e->count == BATCH_TEXTS || e->rows + tokens.count > BATCH_TOKENS))
        failed = batch_run(e);
    if (!failed)
        failed = batch_add(e, text, length, &tokens);
    free(tokens.at);
    return failed;
}

/* ---- cosine similarity ------------------------------------------------- */

static double cosine(const float *a, const float *b, size_t width)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (size_t d = 0; d < width; d++) {
        ab += (double)a[d] * (double)b[d];
        aa += (double)a[d] * (double)a[d];
        bb += (double)b[d] * (double)b[d];
    }
    return aa > 0.0 && bb > 0.0 ? ab / sqrt(aa * bb) : 0.0;
}

static int cosines_print(const embedder *e)
{
    json_t *rows = e->s->json ? json_array() : NULL;
    for (size_t i = 0; i < e->vector_count; i++) {
        json_t *row = rows ? json_array() : NULL;
        for (size_t j = 0; j < e->vector_count; j++) {
            double c = cosine(e->vectors + i * e->width,
                              e->vectors + j * e->width, e->width);
            if (row)
                json_array_append_new(row, json_real(c));
            else
                printf("%s%.4f", j ? "\t" : "", c);
        }
        if (rows)
            json_array_append_new(rows, row);
        else
            putchar('\n');
    }
    return rows ? json_line(VERB, json_pack("{s:o}", "similarity", rows))
                : CLI_OK;
}

/* ---- the verb ---------------------------------------------------------- */

static int embedder_open(embedder *e)
{
    const settings *s = e->s;
    int failed = opened_model_open(&e->model, VERB, s->rest.at[0], &s->model,
                                   MODEL_KIND_ANY);
    if (failed)
        return failed;
    e->width = bauta_model_hidden_size(e->model.model);
    if (s->npy && !(e->out = npy_open(s->npy, e->width)))
        return cli_fail(VERB, "%s: %s", s->npy, strerror(errno));
    return CLI_OK;
}

static int embed(embedder *e)
{
    const char *text;
    size_t length;
    int failed = CLI_OK;
    while (!failed && (text_input_ready(&e->in) || !(failed = batch_run(e))) &&
           text_input_next(&e->in, &text, &length))
        failed = e->in.error[0] ? cli_fail(VERB, "%s", e->in.error)
                                : text_add(e, text, length);
    // Texts before one that failed are still printed.
    if (batch_run(e) || e->in.failed)
        failed = CLI_FAILED;
    if (!failed && e->s->similarity)
        failed = cosines_print(e);
    if (e->out && !npy_close(e->out, !failed) && !failed)
        failed = cli_fail(VERB, "%s: %s", e->s->npy, strerror(errno));
    e->out = NULL;
    return failed ? failed : cli_finish(VERB);
}

int embed_main(int argc, char **argv)
{
    settings s = { .normalize = true };
    embedder e = { .s = &s, .in = { .file = NULL } };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help) {
        string_list_release(&s.rest);
        return help();
    }
    if (!failed && ranks_split(VERB, s.ranks, s.file, &failed)) {
        string_list_release(&s.rest);
        return failed;
    }
    if (!failed)
        failed = text_input_open(&e.in, VERB, s.rest.at + 1, s.rest.count - 1,
                                 s.file);
    if (!failed)
        failed = embedder_open(&e);
    if (!failed)
        failed = embed(&e);
    if (e.out)
        npy_close(e.out, false);
    text_input_close(&e.in);
    free(e.ids);
    free(e.vectors);
    opened_model_close(&e.model);
    string_list_release(&s.rest);
    return failed;
}

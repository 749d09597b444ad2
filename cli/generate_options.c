/* SPDX-License-Identifier: Apache-2.0 */
/* generate_options.c - bauta generate: the command line and the generation
 * options. */
#include "cli.h"
#include "generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { TOKENS_DEFAULT = 256 }; /* new tokens, if nothing sets a limit */

static const char help_text[] =
    "usage: bauta generate MODEL [PROMPT] [options]\n"
    "\n"
    "Continue PROMPT and print the text as it is generated. MODEL is the\n"
    "folder of a decoder-only model (GPT-2, Llama, Mistral, Qwen) or of a\n"
    "training run. Without PROMPT, standard input is the prompt, without its\n"
    "final newline; if that is a terminal, every line typed is a prompt:\n"
    "Ctrl-C ends a text, Ctrl-D the program. The options in effect and\n"
    "statistics go to standard error.\n"
    "\n"
    "input and output\n"
    "  -m, --model DIR             MODEL, as an option\n"
    "  -p, --prompt TEXT           PROMPT, as an option\n"
    "  --file FILE                 read the prompt from FILE; - is standard\n"
    "                              input\n"
    "  --prompts FILE              many prompts, one per line, in which \\n\n"
    "                              stands for a newline; generated in a\n"
    "                              batch, printed in order, one per line\n"
    "  --echo                      print the prompt before the text\n"
    "  --logprobs                  print one line per token instead: id,\n"
    "                              log-probability, token\n"
    "  --json                      one JSON object per line: prompt, text,\n"
    "                              tokens, logprobs, finish, prompt_tokens,\n"
    "                              new_tokens, seconds\n"
    "  --ranks N                   share the lines of --prompts out over N\n"
    "                              processes; does not change results\n"
    "  --quiet                     nothing on standard error but errors\n"
    "\n"
    "decoding (defaults are those of generation_config.json)\n"
    "  -n, --max-tokens N          new tokens (default 256); 0: as many as\n"
    "                              fit\n"
    "  --min-tokens N              no EOS before N new tokens\n"
    "  --sliding-window N          every layer sees the last N tokens only,\n"
    "                              so that a text can outgrow the model's\n"
    "                              context; needs rotary positions (Llama,\n"
    "                              Mistral, Qwen)\n"
    "  --stop TEXT                 end before TEXT; may be repeated\n"
    "  --bad-words TEXT            never generate TEXT; may be repeated\n"
    "  --ignore-eos                do not end at an EOS token\n"
    "  --greedy                    always take the most likely token\n"
    "  --do-sample                 sample; so do the next five options\n"
    "  --temp X                    temperature; 0 is --greedy (default 1)\n"
    "  --top-k N                   sample from the N most likely tokens; 0:\n"
    "                              from all (default 50)\n"
    "  --top-p X                   sample from the most likely tokens with a\n"
    "                              total probability of X; 1: from all\n"
    "  --min-p X                   sample from tokens at least X times as\n"
    "                              likely as the most likely; 0: from all\n"
    "  --seed N                    same seed, same text (default: random)\n"
    "  --repeat-penalty X          above 1, tokens that occurred become less\n"
    "                              likely\n"
    "  --presence-penalty X        subtract X from the logits of tokens that\n"
    "                              occur in the new text (default 0)\n"
    "  --frequency-penalty X       the same for each time they occur (default\n"
    "                              0)\n"
    "  --logit-bias ID+X           add X to the logit of token ID; ID-X\n"
    "                              subtracts it; may be repeated\n"
    "  --no-repeat-ngram-size N    no sequence of N tokens occurs twice\n"
    "  --num-beams N               beam search with N beams\n"
    "  --num-return-sequences N    print the N best texts\n"
    "  --length-penalty X          positive values favour longer texts\n"
    "                              (default 1)\n"
    "  --early-stopping S          no (default), yes or never: when to stop\n"
    "                              the beam search\n"
    "\n"
    "execution\n"
    "  --tokenizer T               folder or file, if MODEL has none\n"
    "  --device D                  cpu (default), cuda or cuda:N: the GPU\n"
    "                              with this number\n"
    "  --dtype T                   compute in float32 (default), or on a GPU\n"
    "                              in bfloat16\n"
    "  --weights W                 on the CPU: store matrices as float32\n"
    "                              (default), bfloat16 or int8; smaller is\n"
    "                              faster\n"
    "  --sequences N               --prompts: sequences that run together\n"
    "                              (default 32)\n"
    "  --cache-mb N                limit of the KV cache in MiB; 0: none\n"
    "  --threads N                 0: one per core (default); does not\n"
    "                              change results\n"
    "  --                          no options follow\n"
    "  --help                      print this text\n"
    "\n"
    "examples\n"
    "  bauta generate models/gpt2 'Once upon a time'\n"
    "  bauta generate models/gpt2 --temp 0.8 --top-p 0.95 --seed 7 'The mask'\n"
    "  bauta generate runs/shakespeare\n"
    "  bauta generate models/gpt2 --prompts prompts.txt --json >texts.jsonl\n"
    "  bauta generate models/gpt2 --device cpu 'The mask' # or cuda\n";

int generate_help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

/* ---- the command line -------------------------------------------------- */

static int settings_check(const settings *s)
{
    int ways = (s->rest.count > 1) + (s->file != NULL) + (s->prompts != NULL);
    bool samples = s->do_sample || s->has.seed || s->has.top_k ||
                   s->has.top_p || s->has.min_p ||
                   (s->has.temperature && s->sampling.temperature > 0.0f);
    if (s->rest.count == 0)
        return cli_usage(VERB, "the model's folder is missing");
    if (s->rest.count > 2)
        return cli_usage(VERB, "more than one prompt: '%s' and '%s'",
                         s->rest.at[1], s->rest.at[2]);
    if (ways > 1)
        return cli_usage(VERB, "more than one of PROMPT, --file and --prompts");
    if (s->greedy && samples)
        return cli_usage(VERB, "--greedy and sampling options exclude each "
                               "other");
    if (s->logprobs && s->search.has_beams && s->search.num_beams > 1 &&
        !s->json)
        return cli_usage(VERB, "--logprobs prints a single text; with "
                               "--num-beams ask for --json");
    return CLI_OK;
}

int settings_read(settings *s, int argc, char **argv)
{
    bauta_generate_options *g = &s->sampling;
    const option table[] = {
        { "--prompt", OPTION_PROMPT, NULL, NULL, 0, 0, NULL },
        { "--prompts", OPTION_STRING, &s->prompts, NULL, 0, 0, NULL },
        { "--echo", OPTION_FLAG, &s->echo, NULL, 0, 0, NULL },
        { "--logprobs", OPTION_FLAG, &s->logprobs, NULL, 0, 0, NULL },
        { "--quiet", OPTION_FLAG, &s->quiet, NULL, 0, 0, NULL },
        { "--ranks", OPTION_SIZE, &s->ranks, NULL, 0, 1e9, NULL },
        { "--min-tokens", OPTION_SIZE, &g->min_new_tokens, &s->has.min_tokens,
          0, 1e9, NULL },
        { "--sliding-window", OPTION_SIZE, &g->sliding_window,
          &s->has.sliding_window, 1, 1e9, NULL },
        { "--stop", OPTION_STRINGS, &s->stops, NULL, 0, 0, NULL },
        { "--bad-words", OPTION_STRINGS, &s->bad_words, NULL, 0, 0, NULL },
        { "--ignore-eos", OPTION_FLAG, &s->ignore_eos, NULL, 0, 0, NULL },
        { "--greedy", OPTION_FLAG, &s->greedy, NULL, 0, 0, NULL },
        { "--do-sample", OPTION_FLAG, &s->do_sample, NULL, 0, 0, NULL },
        { "--temp", OPTION_FLOAT, &g->temperature, &s->has.temperature, 0, 1e6,
          NULL },
        { "--top-k", OPTION_SIZE, &g->top_k, &s->has.top_k, 0, 1e9, NULL },
        { "--top-p", OPTION_FLOAT, &g->top_p, &s->has.top_p, 0, 1, NULL },
        { "--min-p", OPTION_FLOAT, &g->min_p, &s->has.min_p, 0, 1, NULL },
        { "--seed", OPTION_SEED, &g->seed, &s->has.seed, 0, 0, NULL },
        { "--repeat-penalty", OPTION_FLOAT, &g->repetition_penalty,
          &s->has.repetition_penalty, 0.01, 100, NULL },
        { "--presence-penalty", OPTION_FLOAT, &g->presence_penalty,
          &s->has.presence_penalty, -100, 100, NULL },
        { "--frequency-penalty", OPTION_FLOAT, &g->frequency_penalty,
          &s->has.frequency_penalty, -100, 100, NULL },
        { "--logit-bias", OPTION_STRINGS, &s->biases, NULL, 0, 0, NULL },
        SEARCH_OPTIONS(s),
        MODEL_OPTIONS(s),
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    return usage || s->help ? usage : settings_check(s);
}

/* ---- generation options ------------------------------------------------ */

static uint64_t seed_choose(void)
{
    uint32_t seed;
    if (getentropy(&seed, sizeof(seed)) != 0)
        seed = (uint32_t)time(NULL);
    return seed;
}

static void sampling_apply(const settings *s, bauta_generate_options *out)
{
    if (s->has.temperature)
        out->temperature = s->sampling.temperature;
    if (s->has.top_k)
        out->top_k = s->sampling.top_k;
    if (s->has.top_p)
        out->top_p = s->sampling.top_p;
    if (s->has.min_p)
        out->min_p = s->sampling.min_p;
    if (s->do_sample || s->has.temperature || s->has.top_k || s->has.top_p ||
        s->has.min_p || s->has.seed)
        out->do_sample = true;
    if (s->greedy || (s->has.temperature && s->sampling.temperature == 0.0f)) {
        out->do_sample = false;
        out->temperature = 1.0f;
    }
    out->seed = s->has.seed ? s->sampling.seed : seed_choose();
}

int settings_apply(const settings *s, const opened_model *m,
                   bauta_generate_options *out)
{
    bauta_error err;
    *out = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(out, m->model, &err))
        return cli_fail(VERB, "%s", err.message);
    sampling_apply(s, out);
    if (s->has.repetition_penalty)
        out->repetition_penalty = s->sampling.repetition_penalty;
    if (s->has.presence_penalty)
        out->presence_penalty = s->sampling.presence_penalty;
    if (s->has.frequency_penalty)
        out->frequency_penalty = s->sampling.frequency_penalty;
    if (s->has.min_tokens)
        out->min_new_tokens = s->sampling.min_new_tokens;
    if (!s->search.has_max && !out->max_new_tokens && !out->max_length)
        out->max_new_tokens = TOKENS_DEFAULT;
    if (s->ignore_eos)
        out->eos_token_count = 0;
    if (s->has.sliding_window)
        out->sliding_window = s->sampling.sliding_window;
    if (out->sliding_window && !bauta_model_rotary(m->model))
        return cli_fail(VERB,
                        "--sliding-window needs a model with rotary positions; "
                        "%s has a table of %zu positions",
                        m->folder, bauta_model_max_positions(m->model));
    return search_options_apply(VERB, &s->search, out);
}

/* Print ", name value" unless the value has no effect. */
static void real_print(const char *name, float value, float neutral)
{
    if (value != neutral)
        fprintf(stderr, ", %s %g", name, (double)value);
}

static void whole_print(const char *name, size_t value, size_t neutral)
{
    if (value != neutral)
        fprintf(stderr, ", %s %zu", name, value);
}

void context_note(const bauta_generate_options *options, const opened_model *m,
                  bauta_finish finish, size_t count)
{
    size_t context = bauta_model_max_positions(m->model);
    bool rotary = bauta_model_rotary(m->model);
    if (finish == BAUTA_FINISH_CONTEXT)
        fprintf(stderr,
                "note: the text ended because the model's context of %zu "
                "tokens is full; %s\n",
                context,
                rotary ? "use -n N for more, best with --sliding-window"
                       : "use a shorter prompt, or a model with a longer "
                         "context");
    else if (rotary && !options->sliding_window && count > context + 1)
        fprintf(stderr,
                "note: the text is longer than the model's context of %zu "
                "tokens; --sliding-window %zu limits what a token sees to "
                "it\n",
                context, context);
}

void settings_print(const bauta_generate_options *options,
                    const opened_model *m)
{
    fprintf(stderr, "settings: %s", options->do_sample ? "sampling" : "greedy");
    if (options->do_sample) {
        fprintf(stderr, ", seed %" PRIu64 ", temperature %g", options->seed,
                (double)options->temperature);
        whole_print("top-k", options->top_k, 0);
        real_print("top-p", options->top_p, 1.0f);
        real_print("min-p", options->min_p, 0.0f);
    }
    real_print("repeat-penalty", options->repetition_penalty, 1.0f);
    real_print("presence-penalty", options->presence_penalty, 0.0f);
    real_print("frequency-penalty", options->frequency_penalty, 0.0f);
    whole_print("no-repeat-ngram-size", options->no_repeat_ngram_size, 0);
    whole_print("num-beams", options->num_beams, 1);
    if (options->num_beams > 1)
        real_print("length-penalty", options->length_penalty, 1.0f);
    whole_print("min-tokens", options->min_new_tokens, 0);
    whole_print("max-tokens", options->max_new_tokens, 0);
    whole_print("max-length", options->max_length, 0);
    whole_print("sliding-window", options->sliding_window, 0);
    fprintf(stderr, "; ");
    if (device_is_cpu(&m->options->device))
        fprintf(stderr, "%s, ", weight_formats[bauta_model_dtype(m->model)]);
    device_print(&m->options->device, m->context);
    fprintf(stderr, "\n");
}

/* ---- stop strings and banned token sequences --------------------------- */

static int stops_init(token_filters *f, const settings *s,
                      bauta_generate_options *out)
{
    int failed = CLI_OK;
    for (size_t i = 0; i < out->stop_string_count && !failed; i++)
        failed = string_list_add(VERB, &f->stops, out->stop_strings[i]);
    for (size_t i = 0; i < s->stops.count && !failed; i++)
        failed = string_list_add(VERB, &f->stops, s->stops.at[i]);
    out->stop_strings = f->stops.at;
    out->stop_string_count = f->stops.count;
    return failed;
}

/* Add the tokens of a text, unless they are there already. */
static int bad_word_add(token_filters *f, const opened_model *m,
                        const char *text)
{
    token_ids tokens;
    int failed =
        encode_text(&tokens, m, "--bad-words", text, strlen(text), ENDING_NONE);
    if (!failed && tokens.count == 0)
        failed = cli_fail(VERB, "--bad-words: '%s' has no tokens", text);
    bool known = false;
    for (size_t i = f->bad_borrowed; i < f->bad_count && !failed; i++)
        known |= f->bad_words[i].count == tokens.count &&
                 memcmp(f->bad_words[i].tokens, tokens.at,
                        tokens.count * sizeof(*tokens.at)) == 0;
    if (failed || known)
        free(tokens.at);
    else
        f->bad_words[f->bad_count++] =
            (bauta_token_seq){ tokens.count, tokens.at };
    return failed;
}

/* A word has other tokens after a space than at the start of a text. */
static int bad_word_add_both(token_filters *f, const opened_model *m,
                             const char *text)
{
    size_t size = strlen(text) + 1;
    char *spaced = malloc(size + 1);
    if (!spaced)
        return cli_fail(VERB, "out of memory");
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    int failed = bad_word_add(f, m, text);
    if (!failed)
        failed = bad_word_add(f, m, spaced);
    free(spaced);
    return failed;
}

static int bad_words_init(token_filters *f, const settings *s,
                          const opened_model *m, bauta_generate_options *out)
{
    int failed = CLI_OK;
    f->bad_words = calloc(out->bad_word_count + 2 * s->bad_words.count + 1,
                          sizeof(*f->bad_words));
    if (!f->bad_words)
        return cli_fail(VERB, "out of memory");
    for (size_t i = 0; i < out->bad_word_count; i++)
        f->bad_words[i] = out->bad_words[i];
    f->bad_borrowed = f->bad_count = out->bad_word_count;
    for (size_t i = 0; i < s->bad_words.count && !failed; i++)
        failed = bad_word_add_both(f, m, s->bad_words.at[i]);
    out->bad_words = f->bad_words;
    out->bad_word_count = f->bad_count;
    return failed;
}

/* ID+X or ID-X, as in llama.cpp. */
static int bias_read(bauta_token_bias *out, const char *text, size_t vocab)
{
    char *sign = NULL, *end = NULL;
    unsigned long long id = strtoull(text, &sign, 10);
    if (*text >= '0' && *text <= '9' && (*sign == '+' || *sign == '-'))
        out->bias = strtof(sign, &end);
    if (!end || end == sign || *end || !isfinite(out->bias))
        return cli_fail(VERB,
                        "--logit-bias is '%s', not a token id with + or "
                        "- and a number, as in 15043+1 or 15043-2.5",
                        text);
    if (id >= vocab)
        return cli_fail(VERB, "--logit-bias %s: there are %zu tokens", text,
                        vocab);
    out->token = (uint32_t)id;
    return CLI_OK;
}

/* Sorted by token; of two for one token the later counts. */
static void bias_insert(bauta_token_bias *all, size_t *count,
                        bauta_token_bias bias)
{
    size_t at = 0;
    while (at < *count && all[at].token < bias.token)
        at++;
    if (at == *count || all[at].token != bias.token) {
        memmove(all + at + 1, all + at, (*count - at) * sizeof(*all));
        ++*count;
    }
    all[at] = bias;
}

static int biases_init(token_filters *f, const settings *s,
                       const opened_model *m, bauta_generate_options *out)
{
    int failed = CLI_OK;
    size_t count = 0;
    f->biases = calloc(s->biases.count + 1, sizeof(*f->biases));
    if (!f->biases)
        return cli_fail(VERB, "out of memory");
    for (size_t i = 0; i < s->biases.count && !failed; i++) {
        bauta_token_bias bias = { 0, 0 };
        failed =
            bias_read(&bias, s->biases.at[i], bauta_model_vocab_size(m->model));
        if (!failed)
            bias_insert(f->biases, &count, bias);
    }
    out->logit_bias = f->biases;
    out->logit_bias_count = count;
    return failed;
}

int token_filters_init(token_filters *f, const settings *s,
                       const opened_model *m, bauta_generate_options *out)
{
    int failed = stops_init(f, s, out);
    if (!failed)
        failed = biases_init(f, s, m, out);
    return failed ? failed : bad_words_init(f, s, m, out);
}

void token_filters_release(token_filters *f)
{
    for (size_t i = f->bad_borrowed; i < f->bad_count; i++)
        free((void *)(uintptr_t)f->bad_words[i].tokens);
    free(f->bad_words);
    free(f->biases);
    string_list_release(&f->stops);
}

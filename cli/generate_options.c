/* SPDX-License-Identifier: Apache-2.0 */
/* generate_options.c - bauta generate: its command line and settings. */
#include "cli.h"
#include "generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

enum { TOKENS_DEFAULT = 256 }; /* where neither says how many */

static const char help_text[] =
    "usage: bauta generate MODEL [PROMPT] [options]\n"
    "\n"
    "Print the text that goes on from PROMPT, as it is made. MODEL is the "
    "folder of\n"
    "a decoder-only model (GPT-2, Llama, Mistral, Qwen), or of a training "
    "run.\n"
    "Without PROMPT it is standard input, less a newline at its end; and where "
    "that\n"
    "is a terminal, each line that is typed is a prompt: Ctrl-C ends a text, "
    "Ctrl-D\n"
    "the program. What was set, and how fast it was, is told on standard "
    "error.\n"
    "\n"
    "what is read and written\n"
    "  -m, --model DIR       MODEL, as an option\n"
    "  -p, --prompt TEXT     PROMPT, as an option\n"
    "  --file FILE           the prompt; - is standard input\n"
    "  --prompts FILE        many prompts, a line each, in which \\n is a "
    "newline;\n"
    "                        made at once, printed in order, a line each\n"
    "  --echo                print the prompt before the text\n"
    "  --logprobs            a line for each token instead: id, "
    "log-probability,\n"
    "                        piece\n"
    "  --json                a JSON object a line: prompt, text, tokens, "
    "logprobs,\n"
    "                        finish, prompt_tokens, new_tokens, seconds\n"
    "  --quiet               neither settings nor figures on standard error\n"
    "\n"
    "how tokens are chosen (defaults are what generation_config.json says)\n"
    "  -n, --max-tokens N    new ones, at most (default 256); 0: as many as "
    "fit\n"
    "  --min-tokens N        no end before so many\n"
    "  --sliding-window N    every layer sees the last N tokens only, so a "
    "text "
    "may\n"
    "                        become longer than the model's context; for "
    "models "
    "with\n"
    "                        rotary positions (Llama, Mistral, Qwen)\n"
    "  --stop TEXT           end before TEXT; may be given again\n"
    "  --bad-words TEXT      TEXT may not come; may be given again\n"
    "  --ignore-eos          a token that ends the text does not\n"
    "  --greedy              always the likeliest\n"
    "  --sample              draw; so do the next five options\n"
    "  --temp X              temperature; 1: as the model says, 0: --greedy\n"
    "  --top-k N             draw from the N likeliest; 0: from all (default "
    "50)\n"
    "  --top-p X             from the likeliest whose sum is X; 1: from all\n"
    "  --min-p X             from those at least X times the likeliest; 0: "
    "all\n"
    "  --seed N              same seed, same text (default: another each "
    "time)\n"
    "  --repeat-penalty X    above 1: what has been said becomes less likely\n"
    "  --no-repeat-ngram N   no N tokens in a row twice\n"
    "  --beams N             beam search with N beams\n"
    "  --nbest N             print the N best of them\n"
    "  --length-penalty X    above 0 favours longer ones (default 1)\n"
    "  --early-stopping S    no (default), yes or never: when beams end\n"
    "\n"
    "the machine\n"
    "  --tokenizer T         a folder or file, where MODEL has none\n"
    "  --weights W           float32 (default), bfloat16 or int8: how "
    "matrices\n"
    "                        are held; fewer bytes are faster\n"
    "  --sequences N         --prompts: so many run at once (default 32)\n"
    "  --cache-mb N          keys and values, at most; 0: no limit\n"
    "  --threads N           0: one per core (default); changes no result\n"
    "  --                    what follows is no option\n"
    "  --help                this text\n"
    "\n"
    "examples\n"
    "  bauta generate models/gpt2 'Once upon a time'\n"
    "  bauta generate models/gpt2 --temp 0.8 --top-p 0.95 --seed 7 'The "
    "mask'\n"
    "  bauta generate runs/shakespeare\n"
    "  bauta generate models/gpt2 --prompts prompts.txt --json >texts.jsonl\n";

int generate_help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

/* ---- the command line -------------------------------------------------- */

static int settings_check(const settings *s)
{
    int ways = (s->rest.count > 1) + (s->file != NULL) + (s->prompts != NULL);
    bool draws = s->sample || s->has.seed || s->has.top_k || s->has.top_p ||
                 s->has.min_p ||
                 (s->has.temperature && s->wish.temperature > 0.0f);
    if (s->rest.count == 0)
        return cli_usage(VERB, "the model's folder is missing");
    if (s->rest.count > 2)
        return cli_usage(VERB, "more than one prompt: '%s' and '%s'",
                         s->rest.at[1], s->rest.at[2]);
    if (ways > 1)
        return cli_usage(VERB, "more than one of PROMPT, --file and --prompts");
    if (s->greedy && draws)
        return cli_usage(VERB, "--greedy takes the likeliest, and another "
                               "option draws: either, not both");
    if (s->logprobs && s->has.beams && s->wish.beams > 1 && !s->json)
        return cli_usage(VERB, "--logprobs are of one text; with --beams ask "
                               "for --json");
    return CLI_OK;
}

int settings_read(settings *s, int argc, char **argv)
{
    static const char *const endings[] = { "no", "yes", "never", NULL };
    bauta_generate_options *w = &s->wish;
    const option table[] = {
        { "--prompt", OPTION_PROMPT, NULL, NULL, 0, 0, NULL },
        { "--prompts", OPTION_TEXT, &s->prompts, NULL, 0, 0, NULL },
        { "--echo", OPTION_ON, &s->echo, NULL, 0, 0, NULL },
        { "--logprobs", OPTION_ON, &s->logprobs, NULL, 0, 0, NULL },
        { "--quiet", OPTION_ON, &s->quiet, NULL, 0, 0, NULL },
        { "--max-tokens", OPTION_WHOLE, &w->max_tokens, &s->has.max, 0, 1e9,
          NULL },
        { "--min-tokens", OPTION_WHOLE, &w->min_tokens, &s->has.min, 0, 1e9,
          NULL },
        { "--sliding-window", OPTION_WHOLE, &w->sliding_window, &s->has.window,
          1, 1e9, NULL },
        { "--stop", OPTION_TEXTS, &s->stops, NULL, 0, 0, NULL },
        { "--bad-words", OPTION_TEXTS, &s->bad, NULL, 0, 0, NULL },
        { "--ignore-eos", OPTION_ON, &s->ignore_end, NULL, 0, 0, NULL },
        { "--greedy", OPTION_ON, &s->greedy, NULL, 0, 0, NULL },
        { "--sample", OPTION_ON, &s->sample, NULL, 0, 0, NULL },
        { "--temp", OPTION_REAL, &w->temperature, &s->has.temperature, 0, 1e6,
          NULL },
        { "--top-k", OPTION_WHOLE, &w->top_k, &s->has.top_k, 0, 1e9, NULL },
        { "--top-p", OPTION_REAL, &w->top_p, &s->has.top_p, 0, 1, NULL },
        { "--min-p", OPTION_REAL, &w->min_p, &s->has.min_p, 0, 1, NULL },
        { "--seed", OPTION_SEED, &w->seed, &s->has.seed, 0, 0, NULL },
        { "--repeat-penalty", OPTION_REAL, &w->repetition_penalty,
          &s->has.repeat, 0.01, 100, NULL },
        { "--no-repeat-ngram", OPTION_WHOLE, &w->no_repeat, &s->has.no_repeat,
          0, 1e6, NULL },
        { "--beams", OPTION_WHOLE, &w->beams, &s->has.beams, 1, 1024, NULL },
        { "--nbest", OPTION_WHOLE, &w->nbest, NULL, 1, 1024, NULL },
        { "--length-penalty", OPTION_REAL, &w->length_penalty, &s->has.penalty,
          -100, 100, NULL },
        { "--early-stopping", OPTION_CHOICE, &s->early, &s->has.early, 0, 0,
          endings },
        { "--sequences", OPTION_WHOLE, &s->limits.sequences, NULL, 1, 4096,
          NULL },
        { "--cache-mb", OPTION_WHOLE, &s->limits.cache_mb, NULL, 0, 1e9, NULL },
        LOADED_OPTIONS(s, &s->model),
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    return usage || s->help ? usage : settings_check(s);
}

/* ---- settings ---------------------------------------------------------- */

static uint64_t seed_choose(void)
{
    uint32_t seed;
    if (getentropy(&seed, sizeof(seed)) != 0)
        seed = (uint32_t)time(NULL);
    return seed;
}

static void draw_apply(const settings *s, bauta_generate_options *how)
{
    if (s->has.temperature)
        how->temperature = s->wish.temperature;
    if (s->has.top_k)
        how->top_k = s->wish.top_k;
    if (s->has.top_p)
        how->top_p = s->wish.top_p;
    if (s->has.min_p)
        how->min_p = s->wish.min_p;
    if (s->sample || s->has.temperature || s->has.top_k || s->has.top_p ||
        s->has.min_p || s->has.seed)
        how->sample = true;
    if (s->greedy || (s->has.temperature && s->wish.temperature == 0.0f)) {
        how->sample = false;
        how->temperature = 1.0f;
    }
    how->seed = s->has.seed ? s->wish.seed : seed_choose();
}

static void search_apply(const settings *s, bauta_generate_options *how)
{
    if (s->has.repeat)
        how->repetition_penalty = s->wish.repetition_penalty;
    if (s->has.no_repeat)
        how->no_repeat = s->wish.no_repeat;
    if (s->has.beams)
        how->beams = s->wish.beams;
    if (s->has.penalty)
        how->length_penalty = s->wish.length_penalty;
    if (s->has.early)
        how->early = (bauta_early)s->early;
    how->nbest = s->wish.nbest;
}

static void length_apply(const settings *s, bauta_generate_options *how)
{
    if (s->has.min)
        how->min_tokens = s->wish.min_tokens;
    if (s->has.max) {
        how->max_tokens = s->wish.max_tokens;
        how->max_length = 0; // as transformers: new tokens have precedence
    } else if (!how->max_tokens && !how->max_length) {
        how->max_tokens = TOKENS_DEFAULT;
    }
    if (s->ignore_end)
        how->end_count = 0;
}

int settings_apply(const settings *s, const loaded *l,
                   bauta_generate_options *how)
{
    bauta_error err;
    *how = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(how, l->model, &err))
        return cli_fail(VERB, "%s", err.message);
    draw_apply(s, how);
    search_apply(s, how);
    length_apply(s, how);
    if (s->has.window)
        how->sliding_window = s->wish.sliding_window;
    if (how->sliding_window && !bauta_model_rotary(l->model))
        return cli_fail(VERB,
                        "--sliding-window needs a model with rotary positions; "
                        "%s has a table of %zu positions, where its texts end",
                        l->folder, bauta_model_positions(l->model));
    if (how->nbest > how->beams)
        return cli_usage(VERB,
                         "--nbest is %zu, and there are only %zu beams; "
                         "--beams N makes more",
                         how->nbest, how->beams);
    return CLI_OK;
}

/* ", name value" where it is not what does nothing. */
static void real_say(const char *name, float value, float nothing)
{
    if (value != nothing)
        fprintf(stderr, ", %s %g", name, (double)value);
}

static void whole_say(const char *name, size_t value, size_t nothing)
{
    if (value != nothing)
        fprintf(stderr, ", %s %zu", name, value);
}

void context_say(const bauta_generate_options *how, const loaded *l,
                 bauta_finish finish, size_t count)
{
    size_t context = bauta_model_positions(l->model);
    bool rotary = bauta_model_rotary(l->model);
    if (finish == BAUTA_FINISH_CONTEXT)
        fprintf(stderr,
                "note: the text fills the model's context of %zu tokens and "
                "ends there; %s\n",
                context,
                rotary ? "-n N lets it become longer, best with "
                         "--sliding-window"
                       : "a shorter prompt leaves more room, and a model that "
                         "was trained with a longer context writes more");
    else if (rotary && !how->sliding_window && count > context + 1)
        fprintf(stderr,
                "note: the text is longer than the %zu tokens that the model "
                "was made for; --sliding-window %zu keeps what a token sees "
                "within them\n",
                context, context);
}

void settings_say(const bauta_generate_options *how, const loaded *l)
{
    fprintf(stderr, "settings: %s", how->sample ? "drawn" : "the likeliest");
    if (how->sample) {
        fprintf(stderr, ", seed %" PRIu64 ", temperature %g", how->seed,
                (double)how->temperature);
        whole_say("top-k", how->top_k, 0);
        real_say("top-p", how->top_p, 1.0f);
        real_say("min-p", how->min_p, 0.0f);
    }
    real_say("repeat-penalty", how->repetition_penalty, 1.0f);
    whole_say("no-repeat-ngram", how->no_repeat, 0);
    whole_say("beams", how->beams, 1);
    if (how->beams > 1)
        real_say("length-penalty", how->length_penalty, 1.0f);
    whole_say("min-tokens", how->min_tokens, 0);
    whole_say("max-tokens", how->max_tokens, 0);
    whole_say("max-length", how->max_length, 0);
    whole_say("sliding-window", how->sliding_window, 0);
    fprintf(stderr, "; %s, %d %s, %s\n",
            loaded_weights[bauta_model_weights(l->model)],
            bauta_context_threads(l->context),
            bauta_context_threads(l->context) == 1 ? "thread" : "threads",
            bauta_context_isa(l->context));
}

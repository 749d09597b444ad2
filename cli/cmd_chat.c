/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_chat.c - bauta chat: talk with a model. */
#include "cli.h"
#include "conversation.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

typedef struct settings {
    string_list rest; /* the folder, and the message */
    string_list stops;
    chat_options chat;
    bauta_generate_options sampling; /* those of its fields that `has` names */
    struct {
        bool max_tokens, temperature, top_k, top_p, min_p, seed,
            repetition_penalty;
    } has;
    model_options model;
    bool greedy, help;
} settings;

static const char help_text[] =
    "usage: bauta chat MODEL [MESSAGE] [options]\n"
    "\n"
    "Talk with a decoder-only model through the chat template in its folder.\n"
    "MESSAGE is answered and the program ends. Without it every line of\n"
    "standard input is a message, and the model sees the whole conversation.\n"
    "On a terminal lines can be edited, Up and Down recall earlier ones, and\n"
    "Ctrl-C ends an answer. Lines that begin with / are commands, such as\n"
    "/system, /regen, /undo, /clear, /save and /load; /help lists them.\n"
    "Answers go to standard output, everything else to standard error.\n"
    "\n"
    "options\n"
    "  -m, --model DIR       MODEL, as an option\n"
    "  -p, --prompt TEXT     MESSAGE, as an option\n"
    "  --system TEXT         the system message, which comes first\n"
    "  --tools FILE          definitions of tools, a JSON array, for the\n"
    "                        template; /tool answers a call\n"
    "  --json                one JSON object per answer: role, content,\n"
    "                        finish, prompt_tokens, cached_tokens, new_tokens\n"
    "  --quiet               nothing on standard error but errors\n"
    "\n"
    "decoding (defaults are those of generation_config.json)\n"
    "  -n, --max-tokens N    tokens of an answer (default: as many as fit)\n"
    "  --stop TEXT           end an answer before TEXT; may be repeated\n"
    "  --greedy              always take the most likely token\n"
    "  --temp X              temperature; 0 is --greedy (default 1)\n"
    "  --top-k N             sample from the N most likely tokens; 0: all\n"
    "  --top-p X             sample from the most likely tokens with a total\n"
    "                        probability of X; 1: from all\n"
    "  --min-p X             sample from tokens at least X times as likely as\n"
    "                        the most likely; 0: from all\n"
    "  --seed N              same seed, same answers (default: random)\n"
    "  --repeat-penalty X    above 1, tokens that occurred become less likely\n"
    "  --presence-penalty X  subtract X from the logits of tokens that occur\n"
    "                        in the answer (default 0)\n"
    "  --frequency-penalty X\n"
    "                        the same for each time they occur (default 0)\n"
    "\n"
    "execution\n"
    "  --tokenizer T         folder or file, if MODEL has none\n"
    "  --device D            cpu (default), cuda or cuda:N: the GPU with this\n"
    "                        number\n"
    "  --dtype T             compute in float32 (default), or on a GPU in\n"
    "                        bfloat16\n"
    "  --weights W           on the CPU: store matrices as float32 (default),\n"
    "                        bfloat16 or int8; smaller is faster\n"
    "  --cache-mb N          limit of the KV cache in MiB; 0: none\n"
    "  --threads N           0: one per core (default); does not change\n"
    "                        results\n"
    "  --                    no options follow\n"
    "  --help                print this text\n"
    "\n"
    "examples\n"
    "  bauta chat models/qwen3\n"
    "  bauta chat models/qwen3 'Who hides behind the mask?' -n 20\n"
    "  bauta chat models/qwen3 --system 'Answer in one word.' <lines.txt\n";

static int settings_read(settings *s, int argc, char **argv)
{
    bauta_generate_options *g = &s->sampling;
    const option table[] = {
        { "--prompt", OPTION_PROMPT, NULL, NULL, 0, 0, NULL },
        { "--system", OPTION_STRING, &s->chat.system, NULL, 0, 0, NULL },
        { "--tools", OPTION_STRING, &s->chat.tools_file, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &s->chat.json, NULL, 0, 0, NULL },
        { "--quiet", OPTION_FLAG, &s->chat.quiet, NULL, 0, 0, NULL },
        { "--max-tokens", OPTION_SIZE, &g->max_new_tokens, &s->has.max_tokens,
          0, 1e9, NULL },
        { "--stop", OPTION_STRINGS, &s->stops, NULL, 0, 0, NULL },
        { "--greedy", OPTION_FLAG, &s->greedy, NULL, 0, 0, NULL },
        { "--temp", OPTION_FLOAT, &g->temperature, &s->has.temperature, 0, 1e6,
          NULL },
        { "--top-k", OPTION_SIZE, &g->top_k, &s->has.top_k, 0, 1e9, NULL },
        { "--top-p", OPTION_FLOAT, &g->top_p, &s->has.top_p, 0, 1, NULL },
        { "--min-p", OPTION_FLOAT, &g->min_p, &s->has.min_p, 0, 1, NULL },
        { "--seed", OPTION_SEED, &g->seed, &s->has.seed, 0, 0, NULL },
        { "--repeat-penalty", OPTION_FLOAT, &g->repetition_penalty,
          &s->has.repetition_penalty, 0.01, 100, NULL },
        { "--presence-penalty", OPTION_FLOAT, &g->presence_penalty, NULL, -100,
          100, NULL },
        { "--frequency-penalty", OPTION_FLOAT, &g->frequency_penalty, NULL,
          -100, 100, NULL },
        { "--tokenizer", OPTION_STRING, &s->model.tokenizer, NULL, 0, 0, NULL },
        { "--weights", OPTION_CHOICE, &s->model.weights, NULL, 0, 0,
          weight_formats },
        { "--cache-mb", OPTION_SIZE, &s->chat.cache_mb, NULL, 0, 1 << 30,
          NULL },
        DEVICE_OPTIONS(&s->model.device),
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &s->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    if (usage || s->help)
        return usage;
    if (s->rest.count == 0)
        return cli_usage(VERB, "the model's folder is missing");
    if (s->rest.count > 2)
        return cli_usage(VERB, "more than one message: '%s' and '%s'",
                         s->rest.at[1], s->rest.at[2]);
    s->chat.message = s->rest.count > 1 ? s->rest.at[1] : NULL;
    return device_check(VERB, &s->model.device);
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
    const bauta_generate_options *own = &s->sampling;
    if (s->has.temperature)
        out->temperature = own->temperature;
    if (s->has.top_k)
        out->top_k = own->top_k;
    if (s->has.top_p)
        out->top_p = own->top_p;
    if (s->has.min_p)
        out->min_p = own->min_p;
    if (s->has.temperature || s->has.top_k || s->has.top_p || s->has.min_p ||
        s->has.seed)
        out->do_sample = true;
    if (s->greedy || (s->has.temperature && own->temperature == 0.0f)) {
        out->do_sample = false;
        out->temperature = 1.0f;
    }
    out->seed = s->has.seed ? own->seed : seed_choose();
    if (s->has.repetition_penalty)
        out->repetition_penalty = own->repetition_penalty;
    out->presence_penalty = own->presence_penalty;
    out->frequency_penalty = own->frequency_penalty;
}

/* The folder's stop strings follow those of the command line. */
static int options_apply(settings *s, const opened_model *m,
                         bauta_generate_options *out)
{
    bauta_error err;
    int failed = CLI_OK;
    *out = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(out, m->model, &err))
        return cli_fail(VERB, "%s", err.message);
    sampling_apply(s, out);
    out->num_beams = 1; // an answer is printed as it comes
    out->num_return_sequences = 0;
    if (s->has.max_tokens) {
        out->max_new_tokens = s->sampling.max_new_tokens;
        out->max_length = 0;
    }
    for (size_t i = 0; i < out->stop_string_count && !failed; i++)
        failed = string_list_add(VERB, &s->stops, out->stop_strings[i]);
    out->stop_strings = s->stops.at;
    out->stop_string_count = s->stops.count;
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

static int chat(settings *s)
{
    opened_model model;
    conversation c = { 0 };
    bauta_generate_options options;
    int failed = opened_model_open(&model, VERB, s->rest.at[0], &s->model,
                                   BAUTA_DECODER_ONLY);
    if (!failed)
        failed = options_apply(s, &model, &options);
    if (!failed)
        failed = conversation_open(&c, &s->chat, &model, &options);
    if (!failed) {
        answer_interrupts_catch();
        if (s->chat.message) {
            conversation_add(&c, "user", s->chat.message,
                             strlen(s->chat.message));
            failed = conversation_answer(&c);
        } else {
            failed = chat_loop(&c);
        }
    }
    conversation_close(&c);
    opened_model_close(&model);
    return failed ? failed : cli_finish(VERB);
}

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

int chat_main(int argc, char **argv)
{
    settings s = { .sampling = BAUTA_GENERATE_OPTIONS_INIT };
    int failed = settings_read(&s, argc, argv);
    if (!failed)
        failed = s.help ? help() : chat(&s);
    string_list_release(&s.rest);
    string_list_release(&s.stops);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* train_help.c - bauta train --help. */
#include "cli.h"
#include "train.h"

static const char *const text[] = {
    "usage: bauta train --preset NAME --tokenizer T --out RUN FILE... "
    "[options]\n"
    "       bauta train --from DIR --out RUN FILE... [options]\n"
    "       bauta train --resume RUN\n"
    "\n"
    "Train a model on texts, or on pairs of sentences to translate. RUN gets "
    "a\n"
    "folder for each checkpoint, which is a model folder; the links 'last' "
    "and\n"
    "'best'; metrics.jsonl; and events for TensorBoard. Ctrl-C saves and "
    "stops,\n"
    "--resume goes on, and the result is the same bits as without a stop.\n"
    "\n"
    "the model\n"
    "  --preset NAME         a new one; the names are below\n"
    "  --from DIR            go on with a Hugging Face folder\n"
    "  --tokenizer T         a folder or file; or bytes, chars; or bpe:N,\n"
    "                        wordpiece:N, unigram:N, learned from the texts\n"
    "                        (default with --from: the one in DIR)\n"
    "  --set KEY=VALUE       another value in the preset's config.json\n"
    "\n"
    "the texts\n"
    "  FILE...               each file is a text; with --lines each line; "
    "plain\n"
    "                        or gzip, - is standard input\n"
    "  --source F --target F pairs: line i of both\n"
    "  --pairs F             pairs: two columns with a tab between them\n"
    "  --valid FILE          to validate on; may be given again\n"
    "  --valid-source F --valid-target F, --valid-pairs F\n"
    "  --valid-share X       instead: the last X of the texts, such as 0.1\n"
    "  --skip-bad            leave bad lines out instead of stopping\n"
    "\n",
    "learning (defaults are the preset's)\n"
    "  --steps N             how many\n"
    "  --batch-size N        sequences of a step; 0: by --batch-tokens\n"
    "  --batch-tokens N      tokens of a step, of the longer side\n"
    "  --accumulate N        so many batches are one step\n"
    "  --pass-tokens N       tokens that run at once, which bounds memory\n"
    "  --context N           the longest sequence\n"
    "  --learning-rate X     --min-learning-rate X, --warmup N\n"
    "  --schedule S          constant, linear, cosine or inverse-sqrt\n"
    "  --beta1 X --beta2 X --epsilon X --weight-decay X\n"
    "  --clip X              the largest norm of all gradients; 0: any\n"
    "  --dropout X           --label-smoothing X\n"
    "  --objective O         auto, causal, seq2seq, masked or prefix\n"
    "  --mask-rate X         masked: the share of tokens that is hidden; of\n"
    "                        those, --mask-random X and --mask-kept X\n"
    "  --mode M              parallel (teacher forcing), sequential, free\n"
    "                        (the model reads itself) or scheduled, which\n"
    "                        does so for a share: --sampled X\n"
    "  --ema X               validate by a moving average of the weights,\n"
    "                        and write it as RUN/average at the end\n"
    "  --seed N              same seed, same bits\n"
    "\n"
    "the run\n"
    "  --out RUN             its folder\n"
    "  --resume RUN          go on where it stopped; needs no other option\n"
    "  --eval-every N        validate each N steps (default 250)\n"
    "  --eval-tokens N       on at most N tokens; 0: all (default)\n"
    "  --save-every N        a checkpoint each N steps (default: eval-every)\n"
    "  --keep K              checkpoints to keep, beside the best (default "
    "3)\n"
    "  --patience K          stop after K validations without a better one\n"
    "  --average K           at the end, RUN/average: the mean of the last K\n"
    "  --threads N           0: one per core; changes no bit\n"
    "  --isa S               c, avx2 or avx512; changes no bit, either\n"
    "  --no-audit            do not look for leaks before the first step\n"
    "  --audit               try all promises then, as 'bauta audit' does\n"
    "  --dry-run             only say what would be done, and how long\n"
    "  --compare-modes       only run one batch in three modes, and compare\n"
    "  --json                the result as one JSON object\n"
    "\n",
};

static const char examples[] =
    "\n"
    "examples\n"
    "  bauta train --preset gpt2-tiny --tokenizer chars --valid-share 0.1 \\\n"
    "      --out runs/shakespeare input.txt\n"
    "  bauta train --preset transformer-tiny --tokenizer unigram:8000 \\\n"
    "      --source train.en --target train.de --valid-source val.en \\\n"
    "      --valid-target val.de --average 10 --keep 10 --out runs/en-de\n"
    "  bauta train --from models/gpt2 --steps 200 --learning-rate 3e-5 \\\n"
    "      --out runs/tuned notes.txt\n"
    "  bauta train --resume runs/shakespeare\n";

int train_help(void)
{
    const char *name, *summary;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        fputs(text[i], stdout);
    printf("presets\n");
    for (size_t i = 0; (name = bauta_preset_name(i, &summary)); i++)
        printf("  %-18s %s\n", name, summary);
    fputs(examples, stdout);
    return cli_finish(VERB);
}

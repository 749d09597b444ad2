/* SPDX-License-Identifier: Apache-2.0 */
/* attention_weights.h - rows of weights as transformers 5 gives them with
 * output_attentions, from the model folders of the tree: for the tokens 3, 4,
 * ... 8 as the source (or as the text), and 9, 10, ... 13 as the target. */
/* clang-format off */
#ifndef BT_DATA_LOOK_H
#define BT_DATA_LOOK_H

#include "bauta.h"

static const struct {
    const char *folder;
    bauta_attention_kind at;
    size_t layer, head, row;
    float want[6];
} known_rows[] = {
    { "models/bart", BAUTA_ATTENTION_ENCODER, 0, 0, 3,
      { 0.9813216f, 0.0007170843f, 0.01334737f,
        0.0009316217f, 0.003609413f, 7.285847e-05f } },
    { "models/bart", BAUTA_ATTENTION_ENCODER, 1, 1, 5,
      { 0.1054459f, 0.6308131f, 0.1049232f,
        0.02099761f, 0.07646519f, 0.06135504f } },
    { "models/bart", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.2172626f, 0.2960601f, 0.2463608f,
        0.2403165f, 0, 0 } },
    { "models/bart", BAUTA_ATTENTION_DECODER, 1, 1, 4,
      { 0.1335714f, 0.1534155f, 0.4721841f,
        0.1432335f, 0.09759547f, 0 } },
    { "models/bart", BAUTA_ATTENTION_CROSS, 0, 0, 3,
      { 0.09217511f, 0.05244219f, 0.3037777f,
        0.1708652f, 0.2602274f, 0.1205124f } },
    { "models/bart", BAUTA_ATTENTION_CROSS, 1, 1, 4,
      { 0.09836778f, 0.1862825f, 0.1408416f,
        0.08981504f, 0.3320767f, 0.1526165f } },
    { "models/gpt2-odd", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.05315167f, 0.2572435f, 0.5157871f,
        0.1738177f, 0, 0 } },
    { "models/gpt2-odd", BAUTA_ATTENTION_DECODER, 1, 2, 5,
      { 0.1661018f, 0.14176f, 0.1726432f,
        0.1716304f, 0.1606139f, 0.1872505f } },
    { "models/llama-odd", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.4288279f, 0.07465506f, 0.3581428f,
        0.1383742f, 0, 0 } },
    { "models/llama-odd", BAUTA_ATTENTION_DECODER, 1, 2, 5,
      { 0.03359038f, 0.4585735f, 0.09452866f,
        0.07333816f, 0.151271f, 0.1886983f } },
    { "models/qwen2", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.06551877f, 0.08365438f, 0.2318277f,
        0.6189991f, 0, 0 } },
    { "models/qwen2", BAUTA_ATTENTION_DECODER, 1, 1, 5,
      { 0.3652242f, 0.3069054f, 0.05962527f,
        0.007373303f, 0.211548f, 0.04932393f } },
    { "models/qwen2-window3", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.3560923f, 0.1138084f, 0.205306f,
        0.3247933f, 0, 0 } },
    { "models/qwen2-window3", BAUTA_ATTENTION_DECODER, 1, 1, 5,
      { 0, 0, 0,
        0.2390736f, 0.3350568f, 0.4258695f } },
    { "models/qwen3", BAUTA_ATTENTION_DECODER, 0, 0, 3,
      { 0.6058746f, 0.1032171f, 0.2306182f,
        0.06029001f, 0, 0 } },
    { "models/qwen3", BAUTA_ATTENTION_DECODER, 1, 1, 5,
      { 0.1997893f, 0.08635198f, 0.1828505f,
        0.05841251f, 0.3765036f, 0.09609213f } },
    { "models/roberta", BAUTA_ATTENTION_ENCODER, 0, 0, 3,
      { 0.1934769f, 0.242203f, 0.1395673f,
        0.04780511f, 0.1894532f, 0.1874946f } },
    { "models/roberta", BAUTA_ATTENTION_ENCODER, 1, 1, 5,
      { 0.03712043f, 0.5563374f, 0.05456742f,
        0.1340139f, 0.07350585f, 0.144455f } },
};

#endif

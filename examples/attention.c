/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention under three masks, in parallel and incrementally.
 *
 * Query t matches key t - 2, if the mask shows that key. The values are the
 * identity matrix, so the outputs of attention are its weights. Each document
 * is then decoded token by token through a KV cache, which must give the same
 * bits. The exit status is 1 if it does not. */
#include <bauta.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 12, DIM = 32 };

static bauta_error err;
static bauta_context *context;
static bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
static float q[TOKENS][DIM], k[TOKENS][DIM], v[TOKENS][TOKENS];
static bool colour, all_same = true;

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "attention: %s\n", err.message);
        exit(1);
    }
}

/* Sinusoidal position encoding, as in the original Transformer: the dot product
 * of two rows is largest if their positions are equal. */
static void encode_position(float row[DIM], float position)
{
    for (int d = 0; d < DIM; d += 2) {
        float frequency = 1.6f * powf(0.1f, (float)d / DIM);
        row[d] = sinf(position * frequency);
        row[d + 1] = cosf(position * frequency);
    }
}

/* Print one row of the mask and its weights, as colours or as tenths. A hidden
 * key has no weight at all and is printed as '.'. */
static void draw(const char *mask, const float *weights)
{
    static const int shades[] = { 53, 90, 126, 162, 198, 210, 222 };
    for (int j = 0; j < TOKENS; j++)
        printf(" %c", mask[j]);
    printf("    ");
    for (int j = 0; j < TOKENS; j++) {
        int tenths = weights[j] < 0.9f ? (int)(weights[j] * 10) : 9;
        if (mask[j] == '.')
            printf(" .");
        else if (colour)
            printf("\033[48;5;%dm  \033[0m", shades[tenths * 7 / 10]);
        else
            printf(" %d", tenths);
    }
    printf("\n");
}

/* Decode one document token by token through a KV cache and compare the outputs
 * with those of the parallel pass, where it started at token `start`. */
static void decode(const bauta_mask *mask, size_t start, float want[][TOKENS])
{
    bauta_kv_cache *cache;
    check(bauta_kv_cache_create(&cache, &shape, TOKENS, &err));
    for (size_t i = 0; i < bauta_mask_queries(mask); i++) {
        size_t t = start + i;
        bauta_plan *step;
        float out[TOKENS];
        check(bauta_kv_cache_append(cache, &shape, 1, k[t], v[t], &err));
        check(bauta_plan_create(&step, mask, i, 1, &err));
        check(bauta_attention_cached(context, step, &shape, q[t], cache, out,
                                     NULL, &err));
        all_same = all_same && memcmp(out, want[t], sizeof(out)) == 0;
        bauta_plan_free(step);
    }
    bauta_kv_cache_free(cache);
}

/* Pack the masks of documents, run attention over the batch, print mask and
 * weights, and check incremental decoding. Frees the masks. */
static void show(const char *title, bauta_mask *parts[], size_t documents)
{
    bauta_mask *mask;
    bauta_plan *plan;
    char text[TOKENS * (TOKENS + 1) + 1];
    float out[TOKENS][TOKENS];

    check(bauta_mask_pack(&mask, documents, (const bauta_mask **)parts, &err));
    check(bauta_plan_create(&plan, mask, 0, TOKENS, &err));
    check(bauta_attention_forward(context, plan, &shape, q[0], k[0], v[0],
                                  out[0], NULL, &err));
    printf("%s, %d of %d pairs visible\n", title, (int)bauta_mask_pairs(mask),
           TOKENS * TOKENS);
    bauta_mask_text(mask, text, sizeof(text));
    for (int i = 0; i < TOKENS; i++)
        draw(text + i * (TOKENS + 1), out[i]);
    for (size_t d = 0, start = 0; d < documents; d++) {
        decode(parts[d], start, out);
        start += bauta_mask_queries(parts[d]);
        bauta_mask_free(parts[d]);
    }
    printf(" Incremental decoding: %s.\n\n",
           all_same ? "same bits" : "DIFFERENT BITS");
    bauta_plan_free(plan);
    bauta_mask_free(mask);
}

int main(void)
{
    const char *no_colour = getenv("NO_COLOR");
    bauta_mask *causal, *window, *packed[2];

    colour = isatty(1) && !(no_colour && *no_colour);
    shape.head_dim = DIM;
    shape.value_dim = TOKENS;
    for (int t = 0; t < TOKENS; t++) {
        encode_position(q[t], (float)(t - 2));
        encode_position(k[t], (float)t);
        v[t][t] = 1.0f;
    }
    check(bauta_context_create(&context, NULL, &err));
    check(bauta_mask_causal(&causal, TOKENS, TOKENS, &err));
    check(bauta_mask_window(&window, TOKENS, TOKENS, 4, &err));
    check(bauta_mask_causal(&packed[0], 5, 5, &err));
    check(bauta_mask_causal(&packed[1], TOKENS - 5, TOKENS - 5, &err));

    printf("Rows are queries, columns are keys. Left: the mask. Right: the\n"
           "attention weights%s. '.' is hidden.\n\n",
           colour ? "" : ", in tenths");
    show("Causal", &causal, 1);
    show("Window of 4", &window, 1);
    show("Two packed documents", packed, 2);
    bauta_context_free(context);
    return all_same ? 0 : 1;
}

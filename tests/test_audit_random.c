/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit_random.c - audits of random models under random masks pass; and
 * the leaks reported for a mask equal those computed from its matrix.
 *
 * BAUTA_AUDITS sets the number of models; a soak may use 1000. */
#include "audit_fixtures.h"
#include "mask_model.h"

static uint64_t seed;

/* ---- random models and masks --------------------------------------------- */

static size_t pick(test_random *r, const size_t *from, size_t count)
{
    return from[test_below(r, count)];
}

/* A config with random layers, heads, widths and windows. */
static const char *random_config(test_random *r, char *text, size_t size)
{
    static const size_t layers[] = { 1, 2, 3, 4 }, groups[] = { 1, 2, 4 };
    size_t dim = 4 * (1 + test_below(r, 4)), heads = pick(r, groups, 3);
    size_t width = dim * heads, n = pick(r, layers, 4);
    size_t kv = heads / pick(r, groups, heads == 4 ? 3 : heads);
    size_t window = 1 + test_below(r, 12);
    switch (test_below(r, 5)) {
    case 0:
        snprintf(text, size,
                 "{\"model_type\": \"gpt2\", \"n_embd\": %zu, \"n_head\": %zu, "
                 "\"n_layer\": %zu, \"vocab_size\": 24, \"n_positions\": 96}",
                 width, heads, n);
        break;
    case 1:
    case 2:
        snprintf(text, size,
                 "{\"model_type\": \"%s\", \"hidden_size\": %zu, "
                 "\"num_attention_heads\": %zu, \"num_key_value_heads\": %zu, "
                 "\"num_hidden_layers\": %zu, \"intermediate_size\": 20, "
                 "\"vocab_size\": 24, \"max_position_embeddings\": 96, "
                 "\"rms_norm_eps\": 1e-05, \"sliding_window\": %zu}",
                 test_below(r, 2) ? "mistral" : "llama", width, heads,
                 kv ? kv : 1, n, window);
        break;
    case 3:
        snprintf(text, size,
                 "{\"model_type\": \"bert\", \"hidden_size\": %zu, "
                 "\"num_attention_heads\": %zu, \"num_hidden_layers\": %zu, "
                 "\"intermediate_size\": 20, \"vocab_size\": 24, "
                 "\"max_position_embeddings\": 96, \"pad_token_id\": 1}",
                 width, heads, n);
        break;
    default:
        snprintf(text, size,
                 "{\"model_type\": \"marian\", \"d_model\": %zu, "
                 "\"encoder_layers\": %zu, \"decoder_layers\": %zu, "
                 "\"encoder_attention_heads\": %zu, "
                 "\"decoder_attention_heads\": %zu, \"encoder_ffn_dim\": 20, "
                 "\"decoder_ffn_dim\": 20, \"vocab_size\": 24, "
                 "\"max_position_embeddings\": 96, \"pad_token_id\": 23, "
                 "\"decoder_start_token_id\": 23, \"scale_embedding\": true}",
                 width, n, pick(r, layers, 3), heads, heads);
    }
    return text;
}

static void random_side(subject *s, side *x, test_random *r, size_t count,
                        bool decoder)
{
    size_t lengths[SEQUENCES], longest = 0;
    bool padded = test_below(r, 3) == 0;
    for (size_t i = 0; i < count; i++) {
        lengths[i] =
            test_below(r, 8) ? 1 + test_below(r, 20) : test_below(r, 80);
        longest = lengths[i] > longest ? lengths[i] : longest;
    }
    if (!lengths[0])
        longest = lengths[0] = 1;
    side_init(x, r, count, lengths, padded ? longest + test_below(r, 4) : 0,
              bauta_model_vocab_size(s->model));
    for (size_t i = 0; i < count; i++)
        x->prefixes[i] = test_below(r, lengths[i] + 1);
    if (decoder && test_below(r, 3) == 0)
        x->batch.prefix_lengths = x->prefixes;
}

static bauta_mask *drawn(test_random *r, size_t rows, size_t keys)
{
    model m;
    bauta_mask *mask = random_mask(r, rows, keys, 2, &m);
    model_free(&m);
    return mask;
}

static void random_subject(subject *s, test_random *r)
{
    char config[640];
    bauta_error err;
    size_t count = 1 + test_below(r, SEQUENCES);
    *s = (subject){ .context = context_make(1 + (int)test_below(r, 2)) };
    if (bauta_model_create(&s->model, random_config(r, config, sizeof(config)),
                           test_u32(r), &err))
        fail_msg("%s: %s", config, err.message);
    random_side(s, &s->source, r, count, false);
    random_side(s, &s->target, r, count, true);
    if (test_below(r, 2))
        s->source.mask = drawn(r, s->source.rows, s->source.rows);
    if (test_below(r, 2))
        s->target.mask = drawn(r, s->target.rows, s->target.rows);
    if (test_below(r, 2) &&
        bauta_model_kind_of(s->model) == BAUTA_ENCODER_DECODER)
        s->target.cross = drawn(r, s->target.rows, s->source.rows);
    s->source.batch.mask = s->source.mask;
    s->target.batch.mask = s->target.mask;
    s->target.batch.cross_mask = s->target.cross;
}

static void random_models_and_masks_pass(void **state)
{
    const char *asked = getenv("BAUTA_AUDITS");
    size_t count = asked ? strtoul(asked, NULL, 10) : 24;
    test_random r = test_random_from(seed);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        subject s;
        char name[64];
        snprintf(name, sizeof(name), "random model %zu", i);
        random_subject(&s, &r);
        must_pass(&s, 12, seed, name);
        subject_release(&s);
    }
}

/* ---- masks alone ----------------------------------------------------------
 */

static void mask_leaks_equal_those_of_the_matrix(void **state)
{
    test_random r = test_random_from(seed);
    (void)state;
    for (size_t n = 0; n < 200; n++) {
        size_t size = 1 + test_below(&r, 40), layers = test_below(&r, 4);
        model m[4], reach = model_create(size, size), allowed;
        bauta_mask *masks[4], *may = random_mask(&r, size, size, 2, &allowed);
        bauta_leak leak = { 99, 99, 99 };
        bool leaks, want = false;
        bauta_leak first = { 0, 0, 0 };
        for (size_t i = 0; i < size; i++)
            *model_at(&reach, i, i) = 1;
        for (size_t l = 0; l < layers; l++) {
            masks[l] = random_mask(&r, size, size, 1, &m[l]);
            model next = model_create(size, size);
            for (size_t i = 0; i < size; i++)
                *model_at(&m[l], i, i) = 1;
            model_compose(&next, &m[l], &reach);
            model_free(&reach);
            reach = next;
            for (size_t p = 0; p < size * size && !want; p++)
                if (reach.visible[p] && !allowed.visible[p]) {
                    want = true;
                    first = (bauta_leak){ l, p / size, p % size };
                }
        }
        assert_int_equal(bauta_audit_masks((const bauta_mask *const *)masks,
                                           layers, may, &leaks, &leak, NULL),
                         0);
        assert_int_equal(leaks, want);
        if (want)
            assert_memory_equal(&leak, &first, sizeof(leak));
        for (size_t l = 0; l < layers; l++) {
            bauta_mask_free(masks[l]);
            model_free(&m[l]);
        }
        bauta_mask_free(may);
        model_free(&reach);
        model_free(&allowed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models_and_masks_pass),
        cmocka_unit_test(mask_leaks_equal_those_of_the_matrix),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_limits.c - public calls with enums out of range, counts that no
 * memory holds, and NULL inside arrays. Each is an error with a message, never
 * a crash or a hang. Each case runs in its own process. */
#include "bauta.h"
#include "tiny_models.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* Shared fixtures of the cases. */
static struct {
    bauta_context *context;
    bauta_model *gpt2, *llama, *marian;
    bauta_tokenizer *bytes;
    bauta_corpus *corpus;
    bauta_mask *mask; /* (4, 4) */
} w;

static const uint32_t *ids; /* (8) before memory that cannot be read */
static const char *const words[] = { "a", NULL };

typedef bauta_status case_fn(bauta_error *err);
#define CASE(name) static bauta_status name(bauta_error *err)

/* ---- enums -----------------------------------------------------------------
 */

static bauta_status train(bauta_train_options *o, bauta_error *err)
{
    bauta_trainer *trainer;
    bauta_status status = bauta_trainer_create(&trainer, w.context, w.gpt2,
                                               w.bytes, w.corpus, o, err);
    bauta_trainer_free(trainer);
    return status;
}

CASE(train_objective)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.objective = (bauta_objective)99;
    return train(&o, err);
}

CASE(train_mode)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.mode = (bauta_train_mode)99;
    return train(&o, err);
}

CASE(train_schedule)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.lr_scheduler_type = (bauta_schedule)99;
    return train(&o, err);
}

CASE(gradients_mode)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_trainer *trainer;
    double loss;
    assert_int_equal(bauta_trainer_create(&trainer, w.context, w.gpt2, w.bytes,
                                          w.corpus, &o, err),
                     0);
    return bauta_trainer_gradients(trainer, (bauta_train_mode)99, &loss, err);
}

CASE(vocabulary_kind)
{
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_tokenizer *out;
    const size_t length = 1;
    o.kind = (bauta_tokenizer_kind)99;
    return bauta_tokenizer_train(&out, &o, words, &length, 1, err);
}

static bauta_translations one_pair(void)
{
    static const char *const text[] = { "a b c" };
    bauta_translations t = BAUTA_TRANSLATIONS_INIT;
    t.count = 1;
    t.hypotheses = t.references = text;
    return t;
}

static bauta_status bleu(const bauta_translations *t,
                         const bauta_bleu_options *o, bauta_error *err)
{
    bauta_bleu_score score = BAUTA_BLEU_SCORE_INIT;
    return bauta_bleu(t, o, &score, NULL, err);
}

CASE(bleu_tokenizer)
{
    bauta_bleu_options o = BAUTA_BLEU_OPTIONS_INIT;
    bauta_translations t = one_pair();
    o.tokenizer = (bauta_bleu_tokenizer)99;
    return bleu(&t, &o, err);
}

CASE(bleu_smoothing)
{
    bauta_bleu_options o = BAUTA_BLEU_OPTIONS_INIT;
    bauta_translations t = one_pair();
    o.smoothing = (bauta_bleu_smoothing)99;
    return bleu(&t, &o, err);
}

static bauta_request request_of(const bauta_generate_options *o)
{
    bauta_request r = BAUTA_REQUEST_INIT;
    r.tokens = ids;
    r.count = 4;
    r.options = o;
    return r;
}

static bauta_status generate(const bauta_model *model, const bauta_request *r,
                             bauta_error *err)
{
    bauta_result *result;
    bauta_status status =
        bauta_generate(w.context, model, NULL, r, &result, err);
    bauta_result_free(result);
    return status;
}

CASE(generate_early)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.early_stopping = (bauta_early_stopping)99;
    return generate(w.gpt2, &r, err);
}

static bauta_batch batch_of(size_t count)
{
    static const size_t lengths[] = { 4, 4 };
    bauta_batch b = BAUTA_BATCH_INIT;
    b.count = count;
    b.lengths = lengths;
    b.ids = ids;
    return b;
}

static bauta_status selection(bauta_attention_weights *l, size_t count,
                              bauta_error *err)
{
    static float weights[64];
    bauta_batch b = batch_of(1);
    l->weights = weights;
    return bauta_model_attention_weights(w.context, w.gpt2, NULL, &b, NULL, l,
                                         count, err);
}

CASE(attention_weights_of)
{
    bauta_attention_weights l = BAUTA_ATTENTION_WEIGHTS_INIT;
    l.attention = (bauta_attention_kind)99;
    l.rows = 4;
    return selection(&l, 1, err);
}

CASE(attention_rows)
{
    bauta_attention_weights l = BAUTA_ATTENTION_WEIGHTS_INIT;
    l.first = 2;
    l.rows = SIZE_MAX - 1;
    return selection(&l, 1, err);
}

CASE(picture_at)
{
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.attention = (bauta_attention_kind)99;
    p.rows = p.columns = 4;
    p.mask = w.mask;
    return bauta_picture_save("/nonexistent/x.svg", &p, 1, NULL, err);
}

CASE(picture_labels)
{
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.rows = p.columns = 4;
    p.mask = w.mask;
    static const char *const labels[] = { "a", "b", NULL, "d" };
    p.row_labels = labels;
    return bauta_picture_save("/nonexistent/x.svg", &p, 1, NULL, err);
}

CASE(picture_count)
{
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.rows = p.columns = 4;
    p.mask = w.mask;
    return bauta_picture_save("/nonexistent/x.svg", &p, SIZE_MAX / 2, NULL,
                              err);
}

CASE(weights_type)
{
    return bauta_model_pack(w.llama, (bauta_dtype)99, err);
}

CASE(audit_checks)
{
    bauta_audit_options o = BAUTA_AUDIT_OPTIONS_INIT;
    bauta_batch b = batch_of(1);
    bauta_audit *audit;
    o.checks = UINT32_C(1) << 31;
    return bauta_audit_create(&audit, w.context, w.gpt2, NULL, &b, &o, err);
}

CASE(embed_pooling)
{
    bauta_embed_options o = BAUTA_EMBED_OPTIONS_INIT;
    bauta_batch b = batch_of(1);
    float vectors[64];
    o.pooling = (bauta_pooling)99;
    return bauta_model_embed(w.context, w.gpt2, &b, &o, vectors, err);
}

CASE(perplexity_objective)
{
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    o.objective = (bauta_objective)99;
    return bauta_perplexity(w.context, w.gpt2, NULL, w.corpus, &o, &result,
                            err);
}

/* ---- counts ----------------------------------------------------------------
 */

CASE(embed_beyond_memory)
{
    bauta_batch b = batch_of(SIZE_MAX / 2);
    float vectors[64];
    b.lengths = NULL;
    b.stride = 4;
    return bauta_model_embed(w.context, w.gpt2, &b, NULL, vectors, err);
}

CASE(top_tokens_beyond_memory)
{
    bauta_batch b = batch_of(1);
    size_t row = 0;
    uint32_t top[5];
    double probabilities[5];
    return bauta_model_top_tokens(w.context, w.gpt2, NULL, &b, &row,
                                  SIZE_MAX / 2, NULL, top, probabilities, err);
}

CASE(top_tokens_of_too_many)
{
    bauta_top_tokens_options o = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    bauta_batch b = batch_of(1);
    size_t row = 0;
    uint32_t top[5];
    double probabilities[5];
    o.top_k = SIZE_MAX;
    return bauta_model_top_tokens(w.context, w.gpt2, NULL, &b, &row, 1, &o, top,
                                  probabilities, err);
}

CASE(run_minutes)
{
    bauta_train_options t = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    bauta_trainer *trainer;
    bauta_run *run;
    assert_int_equal(bauta_trainer_create(&trainer, w.context, w.gpt2, w.bytes,
                                          w.corpus, &t, err),
                     0);
    assert_int_equal(bauta_run_open(&run, ".", false, err), 0);
    o.max_minutes = (double)NAN;
    bauta_status status = bauta_run_train(run, trainer, NULL, &o, NULL, err);
    bauta_run_free(run);
    return status;
}

CASE(perplexity_beyond_memory)
{
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    o.context_length = SIZE_MAX;
    return bauta_perplexity(w.context, w.llama, NULL, w.corpus, &o, &result,
                            err);
}

CASE(prompt_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    r.count = SIZE_MAX;
    return generate(w.llama, &r, err);
}

CASE(prompt_beyond_positions)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    r.count = SIZE_MAX / 4;
    return generate(w.gpt2, &r, err);
}

CASE(source_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.decoder_start_token_id = 1;
    r.source = ids;
    r.source_count = SIZE_MAX / 2;
    return generate(w.marian, &r, err);
}

CASE(target_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.decoder_start_token_id = 1;
    r.source = ids;
    r.source_count = 2;
    r.count = SIZE_MAX;
    return generate(w.marian, &r, err);
}

CASE(beams_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.num_beams = SIZE_MAX / 2;
    return generate(w.gpt2, &r, err);
}

CASE(word_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_token_seq word = { SIZE_MAX / 2, NULL };
    word.tokens = ids;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.bad_words = &word;
    o.bad_word_count = 1;
    return generate(w.gpt2, &r, err);
}

CASE(words_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_token_seq word = { 1, NULL };
    word.tokens = ids;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.bad_words = &word;
    o.bad_word_count = SIZE_MAX / 2;
    return generate(w.gpt2, &r, err);
}

CASE(stops_beyond_memory)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.stop_strings = words;
    o.stop_string_count = SIZE_MAX / 2;
    return generate(w.gpt2, &r, err);
}

CASE(stop_null)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = request_of(&o);
    o.max_new_tokens = 2;
    o.stop_strings = words;
    o.stop_string_count = 2;
    return generate(w.gpt2, &r, err);
}

CASE(keep_beyond_memory)
{
    bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *g;
    o.cached_sequences = SIZE_MAX / 2;
    return bauta_generator_create(&g, w.context, w.gpt2, NULL, &o, err);
}

CASE(bleu_sets)
{
    bauta_translations t = one_pair();
    t.sets = (size_t)UINT32_MAX - 1;
    t.count = (SIZE_MAX / t.sets) + 2; // their product wraps around
    return bleu(&t, NULL, err);
}

CASE(bleu_count)
{
    bauta_translations t = one_pair();
    t.count = SIZE_MAX / 4;
    return bleu(&t, NULL, err);
}

CASE(bleu_length)
{
    bauta_translations t = one_pair();
    const size_t length = SIZE_MAX;
    t.hypothesis_lengths = &length;
    return bleu(&t, NULL, err);
}

CASE(chrf_sets)
{
    bauta_translations t = one_pair();
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    t.sets = (size_t)UINT32_MAX - 1;
    t.count = (SIZE_MAX / t.sets) + 2;
    return bauta_chrf(&t, NULL, &score, NULL, err);
}

CASE(chrf_beta)
{
    bauta_translations t = one_pair();
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    bauta_chrf_options o = BAUTA_CHRF_OPTIONS_INIT;
    o.beta = SIZE_MAX;
    return bauta_chrf(&t, &o, &score, NULL, err);
}

static bauta_status forward(const bauta_batch *b, bauta_error *err)
{
    static float logits[8 * 40];
    bauta_outputs out = BAUTA_OUTPUTS_INIT;
    out.logits = logits;
    return bauta_model_forward(w.context, w.llama, NULL, b, &out, err);
}

CASE(batch_packed)
{
    bauta_batch b = batch_of((size_t)1 << 63);
    return forward(&b, err);
}

CASE(batch_padded)
{
    bauta_batch b = batch_of((size_t)1 << 63);
    b.lengths = NULL;
    b.stride = 4;
    return forward(&b, err);
}

CASE(batch_wraps)
{
    bauta_batch b = batch_of(((size_t)1 << 62) + 1);
    b.lengths = NULL;
    b.stride = 4;
    return forward(&b, err);
}

CASE(lengths_wrap)
{
    bauta_batch b = batch_of(2);
    const size_t lengths[] = { SIZE_MAX - 3, 8 };
    b.lengths = lengths;
    return forward(&b, err);
}

CASE(mask_lengths_count)
{
    bauta_mask *mask;
    const size_t lengths[] = { 1 };
    return bauta_mask_lengths(&mask, (size_t)1 << 62, 4, 4, lengths, lengths,
                              err);
}

CASE(mask_documents_count)
{
    bauta_mask *mask;
    const size_t lengths[] = { 1 };
    return bauta_mask_documents(&mask, (size_t)1 << 62, lengths, NULL, err);
}

CASE(mask_documents_sum)
{
    bauta_mask *mask;
    const size_t lengths[] = { SIZE_MAX, 2 };
    return bauta_mask_documents(&mask, 2, lengths, NULL, err);
}

CASE(mask_pack_null)
{
    bauta_mask *mask;
    const bauta_mask *const masks[] = { w.mask, NULL };
    return bauta_mask_pack(&mask, 2, masks, err);
}

CASE(mask_pack_count)
{
    bauta_mask *mask;
    const bauta_mask *const masks[] = { w.mask };
    return bauta_mask_pack(&mask, (size_t)1 << 62, masks, err);
}

CASE(mask_dense_size)
{
    bauta_mask *mask;
    const unsigned char visible[] = { 1 };
    return bauta_mask_dense(&mask, (size_t)1 << 40, 4, visible, err);
}

CASE(audit_mask_null)
{
    const bauta_mask *const masks[] = { w.mask, NULL };
    bool leaks;
    return bauta_audit_masks(masks, 2, w.mask, &leaks, NULL, err);
}

CASE(plan_rows)
{
    bauta_plan *plan;
    return bauta_plan_create(&plan, w.mask, 2, SIZE_MAX - 1, err);
}

CASE(cache_capacity)
{
    bauta_kv_cache *cache;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    return bauta_kv_cache_create(&cache, &shape, SIZE_MAX / 2, err);
}

CASE(corpus_add_count)
{
    bauta_corpus *corpus;
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    return bauta_corpus_add(corpus, ids, SIZE_MAX / 2, NULL, 0, err);
}

CASE(corpus_source_null)
{
    bauta_corpus *corpus;
    assert_int_equal(bauta_corpus_create(&corpus, NULL), 0);
    return bauta_corpus_add(corpus, ids, 2, NULL, 3, err);
}

CASE(train_texts_null)
{
    bauta_tokenizer *out;
    const size_t lengths[] = { 1, 1 };
    return bauta_tokenizer_train(&out, NULL, words, lengths, 2, err);
}

CASE(train_texts_count)
{
    bauta_tokenizer *out;
    const size_t length = 1;
    return bauta_tokenizer_train(&out, NULL, words, &length, SIZE_MAX / 2, err);
}

CASE(attention_weights_count)
{
    bauta_attention_weights l = BAUTA_ATTENTION_WEIGHTS_INIT;
    l.rows = 4;
    return selection(&l, SIZE_MAX / 2, err);
}

CASE(encode_null)
{
    bauta_tokens tokens;
    return bauta_tokenizer_encode(w.bytes, NULL, 3, NULL, &tokens, err);
}

CASE(characters_null)
{
    bauta_tokenizer *out;
    return bauta_tokenizer_characters(&out, NULL, 3, err);
}

CASE(decode_null)
{
    char *text;
    size_t length;
    return bauta_tokenizer_decode(w.bytes, NULL, 3, NULL, &text, &length, err);
}

CASE(context_threads)
{
    bauta_options o = BAUTA_OPTIONS_INIT;
    bauta_context *context;
    o.threads = -1;
    return bauta_context_create(&context, &o, err);
}

CASE(tensor_index)
{
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    return bauta_model_tensor(w.gpt2, SIZE_MAX, &tensor, err);
}

CASE(tensor_name)
{
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    return bauta_model_find_tensor(w.gpt2, "", &tensor, err);
}

CASE(step_batches_count)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_train_batch batch = BAUTA_TRAIN_BATCH_INIT;
    bauta_trainer *trainer;
    assert_int_equal(
        bauta_trainer_create(&trainer, w.context, w.gpt2, NULL, NULL, &o, err),
        0);
    return bauta_trainer_step_batch(trainer, &batch, SIZE_MAX / 2, NULL, err);
}

CASE(step_batch_rows)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_train_batch batch = BAUTA_TRAIN_BATCH_INIT;
    bauta_batch b = batch_of((size_t)1 << 63);
    bauta_trainer *trainer;
    batch.target = &b;
    batch.labels = ids;
    assert_int_equal(
        bauta_trainer_create(&trainer, w.context, w.gpt2, NULL, NULL, &o, err),
        0);
    return bauta_trainer_step_batch(trainer, &batch, 1, NULL, err);
}

CASE(logprobs_rows)
{
    bauta_batch b = batch_of(((size_t)1 << 62) + 1);
    float logprobs[8];
    b.lengths = NULL;
    b.stride = 4;
    return bauta_model_logprobs(w.context, w.llama, NULL, &b, ids, logprobs,
                                err);
}

CASE(optimizer_rate)
{
    bauta_optimizer_options o = BAUTA_OPTIMIZER_OPTIONS_INIT;
    bauta_optimizer *optimizer;
    o.learning_rate = -1;
    return bauta_optimizer_create(&optimizer, w.context, w.gpt2, &o, err);
}

static bauta_status append(size_t sequence, size_t tokens, size_t count,
                           bauta_error *err)
{
    bauta_decode_session *session;
    bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
    size_t first;
    assert_int_equal(
        bauta_decode_session_create(&session, w.context, w.llama, NULL), 0);
    assert_int_equal(bauta_decode_session_open(session, NULL, 0, &first, NULL),
                     0);
    input.sequence = sequence;
    input.tokens = ids;
    input.count = tokens;
    return bauta_decode_session_append(session, &input, count, err);
}

CASE(append_sequence)
{
    return append(SIZE_MAX, 1, 1, err);
}

CASE(append_count)
{
    return append(0, 1, SIZE_MAX / 2, err);
}

CASE(append_tokens)
{
    return append(0, SIZE_MAX / 2, 1, err);
}

CASE(append_nothing)
{
    return append(0, 0, 1, err);
}

CASE(session_source)
{
    bauta_decode_session *session;
    size_t first;
    assert_int_equal(
        bauta_decode_session_create(&session, w.context, w.marian, NULL), 0);
    return bauta_decode_session_open(session, ids, SIZE_MAX / 2, &first, err);
}

CASE(reach_layers)
{
    bauta_mask *mask;
    return bauta_mask_reach(&mask, NULL, SIZE_MAX, err);
}

CASE(specials_null)
{
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_tokenizer *out;
    const size_t length = 1;
    o.special_tokens = words;
    o.special_token_count = 2;
    return bauta_tokenizer_train(&out, &o, words, &length, 1, err);
}

CASE(decode_count)
{
    char *text;
    size_t length;
    const uint32_t none[] = { UINT32_MAX };
    return bauta_tokenizer_decode(w.bytes, none, 1, NULL, &text, &length, err);
}

CASE(average_null)
{
    return bauta_model_average("/nonexistent/out", words, 2, err);
}

CASE(attention_heads)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_plan *plan;
    static float numbers[4096];
    shape.heads = SIZE_MAX / 64;
    assert_int_equal(bauta_plan_create(&plan, w.mask, 0, 4, NULL), 0);
    return bauta_attention_forward(w.context, plan, &shape, numbers, numbers,
                                   numbers, numbers, NULL, err);
}

CASE(attention_stride)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_plan *plan;
    static float numbers[4096];
    shape.q_token = SIZE_MAX / 2;
    assert_int_equal(bauta_plan_create(&plan, w.mask, 0, 4, NULL), 0);
    return bauta_attention_forward(w.context, plan, &shape, numbers, numbers,
                                   numbers, numbers, NULL, err);
}

#define ROW(name)   \
    {               \
#name, name \
    }
static const struct {
    const char *name;
    case_fn *run;
} cases[] = {
    ROW(train_objective),
    ROW(train_mode),
    ROW(train_schedule),
    ROW(gradients_mode),
    ROW(vocabulary_kind),
    ROW(bleu_tokenizer),
    ROW(bleu_smoothing),
    ROW(generate_early),
    ROW(attention_weights_of),
    ROW(attention_rows),
    ROW(picture_at),
    ROW(picture_labels),
    ROW(picture_count),
    ROW(weights_type),
    ROW(audit_checks),
    ROW(embed_pooling),
    ROW(perplexity_objective),
    ROW(embed_beyond_memory),
    ROW(top_tokens_beyond_memory),
    ROW(top_tokens_of_too_many),
    ROW(perplexity_beyond_memory),
    ROW(run_minutes),
    ROW(prompt_beyond_memory),
    ROW(prompt_beyond_positions),
    ROW(source_beyond_memory),
    ROW(target_beyond_memory),
    ROW(beams_beyond_memory),
    ROW(word_beyond_memory),
    ROW(words_beyond_memory),
    ROW(stops_beyond_memory),
    ROW(stop_null),
    ROW(keep_beyond_memory),
    ROW(bleu_sets),
    ROW(bleu_count),
    ROW(bleu_length),
    ROW(chrf_sets),
    ROW(chrf_beta),
    ROW(batch_packed),
    ROW(batch_padded),
    ROW(batch_wraps),
    ROW(lengths_wrap),
    ROW(mask_lengths_count),
    ROW(mask_documents_count),
    ROW(mask_documents_sum),
    ROW(mask_pack_null),
    ROW(mask_pack_count),
    ROW(mask_dense_size),
    ROW(audit_mask_null),
    ROW(plan_rows),
    ROW(cache_capacity),
    ROW(corpus_add_count),
    ROW(corpus_source_null),
    ROW(train_texts_null),
    ROW(specials_null),
    ROW(decode_count),
    ROW(average_null),
    ROW(attention_heads),
    ROW(attention_stride),
    ROW(train_texts_count),
    ROW(attention_weights_count),
    ROW(encode_null),
    ROW(characters_null),
    ROW(decode_null),
    ROW(context_threads),
    ROW(tensor_index),
    ROW(tensor_name),
    ROW(step_batches_count),
    ROW(step_batch_rows),
    ROW(logprobs_rows),
    ROW(optimizer_rate),
    ROW(append_sequence),
    ROW(append_count),
    ROW(append_tokens),
    ROW(append_nothing),
    ROW(session_source),
    ROW(reach_layers),
};

/* Run in a child process: 0 if the call fails as it should. */
static int run_in_child(case_fn *run, char *message, size_t size)
{
    int pipes[2], status = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bauta_error err = { BAUTA_OK, "" };
        alarm(20);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        bauta_status got = run(&err);
        ssize_t done = write(pipes[1], err.message, strlen(err.message));
        bool refused = got == err.status && err.message[0] && done > 0 &&
                       (got == BAUTA_ERR_ARGUMENT || got == BAUTA_ERR_NOMEM);
        _exit(refused ? 0 : 1 + (int)got);
    }
    close(pipes[1]);
    ssize_t length = read(pipes[0], message, size - 1);
    message[length > 0 ? length : 0] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void each_bad_argument_is_an_error(void **state)
{
    size_t wrong = 0;
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        char message[512];
        int got = run_in_child(cases[i].run, message, sizeof(message));
        if (got)
            print_error("%s: %s %d, \"%s\"\n", cases[i].name,
                        got < 0 ? "signal" : "result", got < 0 ? -got : got,
                        message);
        wrong += got != 0;
    }
    printf("%zu cases\n", BT_LEN(cases));
    assert_int_equal(wrong, 0);
}

/* Getters without a status return the value documented for bad arguments. */
static void getters_accept_any_enum(void **state)
{
    (void)state;
    assert_int_equal(bauta_model_heads(w.gpt2, (bauta_attention_kind)99), 0);
    assert_int_equal(
        bauta_tokenizer_special_token(w.bytes, (bauta_special_token)99),
        BAUTA_NO_TOKEN);
    assert_non_null(bauta_status_text((bauta_status)99));
    assert_non_null(bauta_model_kind_text((bauta_model_kind)99));
    assert_non_null(bauta_finish_text((bauta_finish)99));
    assert_non_null(bauta_check_name((bauta_check)99));
    assert_non_null(bauta_check_text((bauta_check)99));
    assert_int_equal(bauta_model_sliding_window(w.gpt2, SIZE_MAX), 0);
    assert_null(bauta_preset_name(SIZE_MAX, NULL));
    assert_null(bauta_closest_word(NULL, NULL, 3));
    assert_null(bauta_closest_word("word", NULL, 3));
    assert_null(bauta_closest_word("word", (const char *[]){ NULL }, 1));
    assert_null(bauta_tokenizer_piece(w.bytes, UINT32_MAX, NULL));
}

static void ids_make(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(two != MAP_FAILED);
    assert_int_equal(mprotect(two + page, page, PROT_NONE), 0);
    uint32_t *at = (uint32_t *)(void *)(two + page) - 8;
    for (uint32_t i = 0; i < 8; i++)
        at[i] = i + 1;
    ids = at;
}

static int fixture_make(void **state)
{
    bauta_options one = BAUTA_OPTIONS_INIT;
    (void)state;
    one.threads = 1; // threads do not survive a fork
    ids_make();
    if (bauta_context_create(&w.context, &one, NULL) ||
        bauta_model_create(&w.gpt2, tinies[0].config, 1, NULL) ||
        bauta_model_create(&w.llama, tinies[1].config, 1, NULL) ||
        bauta_model_create(&w.marian, tinies[7].config, 1, NULL) ||
        bauta_tokenizer_bytes(&w.bytes, NULL) ||
        bauta_corpus_create(&w.corpus, NULL) ||
        bauta_corpus_add(w.corpus, ids, 8, NULL, 0, NULL) ||
        bauta_mask_causal(&w.mask, 4, 4, NULL))
        return 1;
    return 0;
}

static int fixture_free(void **state)
{
    (void)state;
    bauta_mask_free(w.mask);
    bauta_corpus_free(w.corpus);
    bauta_tokenizer_free(w.bytes);
    bauta_model_free(w.marian);
    bauta_model_free(w.llama);
    bauta_model_free(w.gpt2);
    bauta_context_free(w.context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bad_argument_is_an_error),
        cmocka_unit_test(getters_accept_any_enum),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_free);
}

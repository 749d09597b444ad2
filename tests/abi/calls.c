/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - a call for each sized struct. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, VOCABULARY = 257, HEAD = 8 };

static struct {
    const char *folder;
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_mask *mask;
    bauta_plan *plan;
    bauta_corpus *corpus;
    bauta_batch batch; /* of this program's own size */
    size_t lengths[2];
    uint32_t ids[ROWS], labels[ROWS];
    float logits[ROWS * VOCABULARY];
    char path[2][512];
} world;

static const char text[] = "the cat sat on the mat, and the dog sat on the "
                           "cat; the mat sat still";

static bauta_error err;

static void must(bauta_status status)
{
    if (status) {
        fprintf(stderr, "abi: %s\n", err.message);
        exit(1);
    }
}

static uint64_t digest(uint64_t before, const void *bytes, size_t size)
{
    const unsigned char *b = bytes;
    uint64_t h = before ? before : UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t digest_text(uint64_t before, const char *string)
{
    return digest(before, string, strlen(string));
}

static uint64_t digest_file(const char *path)
{
    static char bytes[1 << 16];
    uint64_t h = 0;
    FILE *file = fopen(path, "rb");
    for (size_t n; file && (n = fread(bytes, 1, sizeof(bytes), file)) > 0;)
        h = digest(h, bytes, n);
    if (file)
        fclose(file);
    return h;
}

static abi_outcome outcome(bauta_status status, uint64_t computed)
{
    abi_outcome o = { .status = status, .digest = status ? 0 : computed };
    if (status)
        memcpy(o.message, err.message, sizeof(o.message));
    return o;
}

/* An array of two such structs, packed with the size that they say. */
static void *two_of(const void *sized)
{
    size_t size;
    memcpy(&size, sized, sizeof(size));
    if (size < sizeof(size) || size > 4096)
        return NULL;
    char *both = malloc(2 * size);
    if (both) {
        memcpy(both, sized, size);
        memcpy(both + size, sized, size);
    }
    return both;
}

/* ---- the world --------------------------------------------------------- */

static void file_write(char *path, size_t size, const char *name,
                       const char *content)
{
    snprintf(path, size, "%s/%s", world.folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fputs(content, file) < 0 || fclose(file)) {
        fprintf(stderr, "abi: cannot write %s\n", path);
        exit(1);
    }
}

void abi_calls_begin(const char *folder)
{
    char *config = NULL;
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 1;
    options.isa = "c";
    world.folder = folder;
    must(bauta_context_create(&world.context, &options, &err));
    must(bauta_tokenizer_bytes(&world.tokenizer, &err));
    must(bauta_preset(&config, NULL, "gpt2-tiny", world.tokenizer,
                      "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, "
                      "\"n_positions\": 32}",
                      &err));
    must(bauta_model_create(&world.model, config, 1, &err));
    bauta_text_free(config);
    must(bauta_mask_causal(&world.mask, ROWS, ROWS, &err));
    must(bauta_plan_create(&world.plan, world.mask, 0, ROWS, &err));
    must(bauta_corpus_create(&world.corpus, &err));
    for (uint32_t i = 0; i < ROWS; i++) {
        world.ids[i] = (uint32_t)text[i];
        world.labels[i] = (uint32_t)text[i + 1];
    }
    for (int i = 0; i < 8; i++)
        must(bauta_corpus_add(world.corpus, world.ids, ROWS, NULL, 0, &err));
    bauta_batch batch = BAUTA_BATCH_INIT;
    world.lengths[0] = 4;
    world.lengths[1] = 2;
    batch.count = 2;
    batch.lengths = world.lengths;
    batch.ids = world.ids;
    world.batch = batch;
    file_write(world.path[0], sizeof(world.path[0]), "text", "a cat\na mat\n");
    snprintf(world.path[1], sizeof(world.path[1]), "%s/page.html", folder);
}

void abi_calls_end(void)
{
    remove(world.path[0]);
    remove(world.path[1]);
    bauta_corpus_free(world.corpus);
    bauta_plan_free(world.plan);
    bauta_mask_free(world.mask);
    bauta_model_free(world.model);
    bauta_tokenizer_free(world.tokenizer);
    bauta_context_free(world.context);
}

/* ---- contexts and attention -------------------------------------------- */

static void options_fill(void *sized)
{
    bauta_options o = BAUTA_OPTIONS_INIT;
    o.threads = 2;
    o.isa = "c";
    o.device = "cpu";
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome options_run(void *sized)
{
    bauta_context *context;
    bauta_status status = bauta_context_create(&context, sized, &err);
    if (status)
        return outcome(status, 0);
    int threads = bauta_context_threads(context);
    uint64_t h = digest_text(0, bauta_context_isa(context));
    h = digest(h, &threads, sizeof(threads));
    h = digest_text(h, bauta_context_device(context));
    bauta_context_free(context);
    return outcome(status, h);
}

static void shape_fill(void *sized)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.head_dim = HEAD;
    shape.scale = 0.5f;
    shape.q_token = 2 * HEAD + 1;
    shape.out_token = 2 * HEAD;
    memcpy(sized, &shape, sizeof(shape));
}

static abi_outcome shape_run(void *sized)
{
    static float x[8 * ROWS * 64], out[8 * ROWS * 64];
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
        x[i] = (float)(i % 13) / 13;
    memset(out, 0, sizeof(out));
    bauta_status status = bauta_attention_forward(
        world.context, world.plan, sized, x, x, x, out, NULL, &err);
    return outcome(status, digest(0, out, sizeof(out)));
}

static void bias_fill(void *sized)
{
    static const float slopes[] = { 0.5f, 0.25f };
    static const uint32_t positions[ROWS] = { 3, 1, 4, 1, 5, 2 };
    bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
    bias.softcap = 2;
    bias.slopes = slopes;
    bias.positions = positions;
    memcpy(sized, &bias, sizeof(bias));
}

static abi_outcome bias_run(void *sized)
{
    bauta_attention_shape shape;
    shape_fill(&shape);
    shape.bias = sized;
    return shape_run(&shape);
}

/* ---- models ------------------------------------------------------------ */

static void tensor_fill(void *sized)
{
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    memcpy(sized, &tensor, sizeof(tensor));
}

static abi_outcome tensor_run(void *sized)
{
    return outcome(bauta_model_tensor(world.model, 1, sized, &err), 0);
}

static uint64_t tensor_show(const void *sized)
{
    const bauta_tensor *t = sized;
    uint64_t h = digest_text(0, t->name);
    h = digest(h, t->shape, sizeof(t->shape));
    h = digest(h, t->data, t->count * sizeof(float));
    return h + (t->writable == t->data) + (t->gradient != NULL);
}

static abi_outcome forward(const void *batch, const void *outputs)
{
    memset(world.logits, 0, sizeof(world.logits));
    bauta_status status = bauta_model_forward(world.context, world.model, NULL,
                                              batch, outputs, &err);
    return outcome(status, digest(0, world.logits, sizeof(world.logits)));
}

static void batch_fill(void *sized)
{
    static const size_t prefixes[2] = { 2, 1 };
    bauta_batch batch = world.batch;
    batch.mask = world.mask;
    batch.prefix_lengths = prefixes;
    memcpy(sized, &batch, sizeof(batch));
}

static abi_outcome batch_run(void *sized)
{
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = world.logits;
    abi_outcome o = forward(sized, &outputs);
    o.digest += bauta_batch_rows(sized);
    return o;
}

static void outputs_fill(void *sized)
{
    static float states[2 * ROWS * 16];
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.logits = world.logits;
    outputs.decoder_states = states;
    memcpy(sized, &outputs, sizeof(outputs));
}

static abi_outcome outputs_run(void *sized)
{
    return forward(&world.batch, sized);
}

static void loss_fill(void *sized)
{
    static const uint64_t keys[ROWS] = { 9, 8, 7, 6, 5, 4 };
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    options.label_smoothing = 0.1f;
    options.weight = 0.5;
    options.dropout = 0.25f;
    options.seed = 3;
    options.target_keys = keys;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome loss_run(void *sized)
{
    double loss = 0;
    bauta_status status =
        bauta_model_loss(world.context, world.model, NULL, &world.batch,
                         world.labels, sized, &loss, NULL, &err);
    must(bauta_model_zero_gradients(world.model, &err));
    return outcome(status, digest(0, &loss, sizeof(loss)));
}

static float weights[ROWS * ROWS];

static void weights_fill(void *sized)
{
    bauta_attention_weights request = BAUTA_ATTENTION_WEIGHTS_INIT;
    request.head = 1;
    request.first = 1;
    request.rows = 3;
    request.weights = weights;
    memcpy(sized, &request, sizeof(request));
}

static abi_outcome weights_run(void *sized)
{
    void *both = two_of(sized);
    memset(weights, 0, sizeof(weights));
    bauta_status status = bauta_model_attention_weights(
        world.context, world.model, NULL, &world.batch, NULL,
        both ? both : sized, both ? 2 : 1, &err);
    free(both);
    return outcome(status, digest(0, weights, sizeof(weights)));
}

static void embed_fill(void *sized)
{
    bauta_embed_options options = BAUTA_EMBED_OPTIONS_INIT;
    options.pooling = BAUTA_POOLING_LAST;
    options.normalize = true;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome embed_run(void *sized)
{
    float embeddings[2 * 16] = { 0 };
    bauta_status status = bauta_model_embed(
        world.context, world.model, &world.batch, sized, embeddings, &err);
    return outcome(status, digest(0, embeddings, sizeof(embeddings)));
}

static void top_fill(void *sized)
{
    bauta_top_tokens_options options = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    options.top_k = 3;
    options.vocab_size = 200;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome top_run(void *sized)
{
    static const size_t rows[2] = { 1, 5 };
    uint32_t ids[2 * VOCABULARY] = { 0 };
    double probabilities[2 * VOCABULARY] = { 0 };
    bauta_status status =
        bauta_model_top_tokens(world.context, world.model, NULL, &world.batch,
                               rows, 2, sized, ids, probabilities, &err);
    return outcome(status, digest(digest(0, ids, sizeof(ids)), probabilities,
                                  sizeof(probabilities)));
}

static void input_fill(void *sized)
{
    bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
    input.tokens = world.ids;
    input.count = 3;
    input.logits = world.logits;
    memcpy(sized, &input, sizeof(input));
}

static abi_outcome input_run(void *sized)
{
    bauta_decode_session *session = NULL;
    size_t sequence;
    memset(world.logits, 0, sizeof(world.logits));
    must(bauta_decode_session_create(&session, world.context, world.model,
                                     &err));
    must(bauta_decode_session_open(session, NULL, 0, &sequence, &err));
    bauta_status status = bauta_decode_session_append(session, sized, 1, &err);
    uint64_t h = digest(0, world.logits, sizeof(world.logits));
    h += bauta_decode_session_tokens(session, sequence);
    bauta_decode_session_free(session);
    return outcome(status, h);
}

/* ---- text -------------------------------------------------------------- */

static void encode_fill(void *sized)
{
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    options.split_special_tokens = true;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome encode_run(void *sized)
{
    static const char with_end[] = "a<|endoftext|>";
    bauta_tokens tokens;
    bauta_status status = bauta_tokenizer_encode(
        world.tokenizer, with_end, sizeof(with_end) - 1, sized, &tokens, &err);
    uint64_t h = digest(0, tokens.ids, tokens.count * sizeof(*tokens.ids));
    bauta_tokens_release(&tokens);
    return outcome(status, h);
}

static void decode_fill(void *sized)
{
    bauta_decode_options options = BAUTA_DECODE_OPTIONS_INIT;
    options.keep_special_tokens = true;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome decode_run(void *sized)
{
    static const uint32_t ids[] = { 'a', 256, 'b' };
    char *decoded = NULL;
    bauta_status status = bauta_tokenizer_decode(world.tokenizer, ids, 3, sized,
                                                 &decoded, NULL, &err);
    uint64_t h = status ? 0 : digest_text(0, decoded);
    bauta_text_free(decoded);
    return outcome(status, h);
}

static void corpus_fill(void *sized)
{
    bauta_corpus_options options = BAUTA_CORPUS_OPTIONS_INIT;
    options.lines = true;
    options.memory_bytes = 1 << 20;
    memcpy(sized, &options, sizeof(options));
}

static abi_outcome corpus_run(void *sized)
{
    const char *files[] = { world.path[0] };
    bauta_corpus *corpus = NULL;
    bauta_status status =
        bauta_corpus_load(&corpus, world.tokenizer, files, 1, sized, &err);
    size_t documents = status ? 0 : bauta_corpus_documents(corpus);
    bauta_corpus_free(corpus);
    return outcome(status, documents);
}

static void learn_fill(void *sized)
{
    static const char *const special[] = { "<a>", "<b>" };
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    o.vocab_size = 262;
    o.special_tokens = special;
    o.special_token_count = 2;
    o.min_frequency = 3;
    o.prefer_greatest = true;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome learn_run(void *sized)
{
    const char *texts[] = { text };
    size_t length = sizeof(text) - 1;
    bauta_tokenizer *made = NULL;
    bauta_status status =
        bauta_tokenizer_train(&made, sized, texts, &length, 1, &err);
    uint64_t h = 0;
    for (uint32_t id = 0; !status && id < bauta_tokenizer_vocab_size(made);
         id++)
        h = digest_text(h, bauta_tokenizer_piece(made, id, NULL));
    bauta_tokenizer_free(made);
    return outcome(status, h);
}

/* ---- training ---------------------------------------------------------- */

static void train_fill(void *sized)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.seed = 5;
    o.batch_tokens = 16;
    o.dropout = 0.1f;
    o.max_steps = 4;
    o.warmup_steps = 1;
    o.lr_scheduler_type = BAUTA_SCHEDULE_LINEAR;
    o.ema_decay = 0.9;
    memcpy(sized, &o, sizeof(o));
}

/* A copy of the weights of the model. */
static float **weights_copy(void)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    size_t count = bauta_model_tensor_count(world.model);
    float **copy = calloc(count, sizeof(*copy));
    for (size_t i = 0; i < count; i++) {
        must(bauta_model_tensor(world.model, i, &t, &err));
        copy[i] = malloc(t.count * sizeof(float));
        memcpy(copy[i], t.data, t.count * sizeof(float));
    }
    return copy;
}

/* A digest of the weights, which are then again what they were. */
static uint64_t weights_restore(float **copy)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    uint64_t h = 0;
    for (size_t i = 0; i < bauta_model_tensor_count(world.model); i++) {
        bauta_error ignored;
        bauta_model_tensor(world.model, i, &t, &ignored);
        h = digest(h, t.data, t.count * sizeof(float));
        memcpy(t.writable, copy[i], t.count * sizeof(float));
        free(copy[i]);
    }
    free(copy);
    return h;
}

/* One step, after which the model is again what it was. */
static bauta_status step(const void *options, void *report)
{
    bauta_trainer *trainer = NULL;
    float **copy = weights_copy();
    bauta_status status =
        bauta_trainer_create(&trainer, world.context, world.model,
                             world.tokenizer, world.corpus, options, &err);
    if (!status)
        status = bauta_trainer_step(trainer, report, &err);
    bauta_trainer_free(trainer);
    weights_restore(copy);
    return status;
}

static abi_outcome train_run(void *sized)
{
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_status status = step(sized, &report);
    uint64_t h = digest(0, &report.loss, sizeof(report.loss));
    h = digest(h, &report.learning_rate, sizeof(report.learning_rate));
    return outcome(status, digest(h, &report.tokens, sizeof(report.tokens)));
}

static void report_fill(void *sized)
{
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    memcpy(sized, &report, sizeof(report));
}

static abi_outcome report_run(void *sized)
{
    bauta_train_options options;
    train_fill(&options);
    return outcome(step(&options, sized), 0);
}

static uint64_t report_show(const void *sized)
{
    const bauta_train_report *r = sized;
    uint64_t h = digest(0, &r->loss, sizeof(r->loss));
    h = digest(h, &r->grad_norm, sizeof(r->grad_norm));
    return h + r->step + r->counted + r->tokens + r->updated;
}

static void preset_fill(void *sized)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome preset_run(void *sized)
{
    char *config = NULL;
    bauta_status status =
        bauta_preset(&config, sized, "gpt2-char", world.tokenizer, NULL, &err);
    bauta_text_free(config);
    return outcome(status, 0);
}

static uint64_t preset_show(const void *sized)
{
    const bauta_train_options *o = sized;
    uint64_t h = digest(0, &o->learning_rate, sizeof(o->learning_rate));
    h = digest(h, &o->weight_decay, sizeof(o->weight_decay));
    return h + o->max_steps + o->warmup_steps + o->batch_tokens;
}

static void train_batch_fill(void *sized)
{
    static const float label_weights[ROWS] = { 1, -1, 2, 0.5f, 1, 1 };
    static const uint64_t keys[ROWS] = { 3, 1, 4, 1, 5, 9 };
    bauta_train_batch b = BAUTA_TRAIN_BATCH_INIT;
    b.target = &world.batch;
    b.labels = world.labels;
    b.label_weights = label_weights;
    b.target_keys = keys;
    memcpy(sized, &b, sizeof(b));
}

static abi_outcome train_batch_run(void *sized)
{
    bauta_train_options options;
    bauta_trainer *trainer = NULL;
    void *both = two_of(sized);
    float **copy = weights_copy();
    train_fill(&options);
    must(bauta_trainer_create(&trainer, world.context, world.model, NULL, NULL,
                              &options, &err));
    bauta_status status = bauta_trainer_step_batch(trainer, both ? both : sized,
                                                   both ? 2 : 1, NULL, &err);
    bauta_trainer_free(trainer);
    free(both);
    return outcome(status, weights_restore(copy));
}

static bool decay_none(void *user, const bauta_tensor *tensor)
{
    (void)user;
    return tensor->rank == 1;
}

static void optimizer_fill(void *sized)
{
    bauta_optimizer_options o = BAUTA_OPTIMIZER_OPTIONS_INIT;
    o.learning_rate = 0.01;
    o.adam_beta2 = 0.9;
    o.weight_decay = 0.5;
    o.max_grad_norm = 0.1;
    o.decay = decay_none;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome optimizer_run(void *sized)
{
    bauta_optimizer *optimizer = NULL;
    double loss;
    float **copy = weights_copy();
    must(bauta_model_zero_gradients(world.model, &err));
    must(bauta_model_loss(world.context, world.model, NULL, &world.batch,
                          world.labels, NULL, &loss, NULL, &err));
    bauta_status status = bauta_optimizer_create(&optimizer, world.context,
                                                 world.model, sized, &err);
    if (!status)
        status = bauta_optimizer_step(optimizer, NULL, &err);
    bauta_optimizer_free(optimizer);
    bauta_error ignored;
    bauta_model_zero_gradients(world.model, &ignored);
    return outcome(status, weights_restore(copy));
}

static void perplexity_fill(void *sized)
{
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    o.objective = BAUTA_OBJECTIVE_CAUSAL;
    o.context_length = 4;
    o.stride = 3;
    o.max_tokens = 20;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome perplexity_run(void *sized)
{
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    bauta_status status =
        bauta_perplexity(world.context, world.model, world.tokenizer,
                         world.corpus, sized, &result, &err);
    uint64_t h = digest(0, &result.total_loss, sizeof(result.total_loss));
    return outcome(status, h + result.tokens + result.stride);
}

static void measured_fill(void *sized)
{
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    memcpy(sized, &result, sizeof(result));
}

static abi_outcome measured_run(void *sized)
{
    return outcome(bauta_perplexity(world.context, world.model, NULL,
                                    world.corpus, NULL, sized, &err),
                   0);
}

static uint64_t measured_show(const void *sized)
{
    const bauta_perplexity_result *r = sized;
    uint64_t h = digest(0, &r->loss, sizeof(r->loss));
    h = digest(h, &r->total_loss, sizeof(r->total_loss));
    return h + r->tokens + r->context_length + r->stride;
}

/* A run of four steps in a folder that is gone afterwards. */
static bauta_status run_four(const void *run_options, void *result, uint64_t *h)
{
    char folder[600], command[700];
    bauta_train_options options;
    bauta_trainer *trainer = NULL;
    bauta_run *run = NULL;
    float **copy = weights_copy();
    snprintf(folder, sizeof(folder), "%s/run", world.folder);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    train_fill(&options);
    must(bauta_trainer_create(&trainer, world.context, world.model,
                              world.tokenizer, world.corpus, &options, &err));
    must(bauta_run_open(&run, folder, true, &err));
    bauta_status status =
        bauta_run_train(run, trainer, world.corpus, run_options, result, &err);
    *h = bauta_trainer_steps(trainer);
    bauta_run_free(run);
    bauta_trainer_free(trainer);
    *h += weights_restore(copy);
    if (system(command)) {
        fprintf(stderr, "abi: cannot remove %s\n", folder);
        exit(1);
    }
    return status;
}

static void run_options_fill(void *sized)
{
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    o.max_steps = 3;
    o.eval_steps = 2;
    o.save_total_limit = 1;
    o.early_stopping_patience = 5;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome run_options_run(void *sized)
{
    uint64_t h;
    bauta_status status = run_four(sized, NULL, &h);
    return outcome(status, h);
}

static void run_result_fill(void *sized)
{
    bauta_run_result result = BAUTA_RUN_RESULT_INIT;
    memcpy(sized, &result, sizeof(result));
}

static abi_outcome run_result_run(void *sized)
{
    uint64_t h;
    return outcome(run_four(NULL, sized, &h), 0);
}

static uint64_t run_result_show(const void *sized)
{
    const bauta_run_result *r = sized;
    uint64_t h = digest(0, &r->loss, sizeof(r->loss));
    h = digest(h, &r->eval_loss, sizeof(r->eval_loss));
    return h + r->step + r->saved_step;
}

/* ---- scores, pictures, audits ------------------------------------------ */

static const char *const hypotheses[] = { "the cat sat", "On a Mat" };
static const char *const references[] = { "the cat sat", "on a mat", "a cat",
                                          "on the mat" };

static void texts_fill(void *sized)
{
    bauta_translations t = BAUTA_TRANSLATIONS_INIT;
    t.count = 2;
    t.hypotheses = hypotheses;
    t.sets = 2;
    t.references = references;
    memcpy(sized, &t, sizeof(t));
}

static abi_outcome texts_run(void *sized)
{
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    bauta_status status = bauta_chrf(sized, NULL, &score, NULL, &err);
    return outcome(status, digest(0, &score.score, sizeof(score.score)));
}

static void bleu_fill(void *sized)
{
    bauta_bleu_options o = BAUTA_BLEU_OPTIONS_INIT;
    o.tokenizer = BAUTA_TOKENIZE_CHAR;
    o.smoothing = BAUTA_SMOOTH_FLOOR;
    o.smoothing_value = 0.25;
    o.max_ngram_order = 3;
    o.lowercase = true;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome bleu_run(void *sized)
{
    bauta_translations t;
    bauta_bleu_score score = BAUTA_BLEU_SCORE_INIT;
    texts_fill(&t);
    bauta_status status = bauta_bleu(&t, sized, &score, NULL, &err);
    return outcome(status, digest(digest_text(0, score.signature), &score.score,
                                  sizeof(score.score)));
}

static void bleu_score_fill(void *sized)
{
    bauta_bleu_score score = BAUTA_BLEU_SCORE_INIT;
    memcpy(sized, &score, sizeof(score));
}

static abi_outcome bleu_score_run(void *sized)
{
    bauta_translations t;
    texts_fill(&t);
    return outcome(bauta_bleu(&t, NULL, sized, NULL, &err), 0);
}

static uint64_t bleu_score_show(const void *sized)
{
    const bauta_bleu_score *s = sized;
    uint64_t h =
        digest(digest_text(0, s->signature), &s->score, sizeof(s->score));
    return digest(h, s->matches, sizeof(s->matches)) + s->reference_length;
}

static void chrf_fill(void *sized)
{
    bauta_chrf_options o = BAUTA_CHRF_OPTIONS_INIT;
    o.char_order = 4;
    o.word_order = 2;
    o.beta = 1;
    o.lowercase = true;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome chrf_run(void *sized)
{
    bauta_translations t;
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    texts_fill(&t);
    bauta_status status = bauta_chrf(&t, sized, &score, NULL, &err);
    return outcome(status, digest(digest_text(0, score.signature), &score.score,
                                  sizeof(score.score)));
}

static void chrf_score_fill(void *sized)
{
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    memcpy(sized, &score, sizeof(score));
}

static abi_outcome chrf_score_run(void *sized)
{
    bauta_translations t;
    texts_fill(&t);
    return outcome(bauta_chrf(&t, NULL, sized, NULL, &err), 0);
}

static uint64_t chrf_score_show(const void *sized)
{
    const bauta_chrf_score *s = sized;
    uint64_t h = digest(digest_text(0, s->name), &s->score, sizeof(s->score));
    return digest(h, s->matches, sizeof(s->matches)) + s->orders;
}

static void picture_fill(void *sized)
{
    static const char *const labels[] = { "a", "b", "c", "d", "e", "f" };
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.title = "a mask";
    p.attention = BAUTA_ATTENTION_CROSS;
    p.layer = 1;
    p.rows = p.columns = ROWS;
    p.mask = world.mask;
    p.row_labels = labels;
    memcpy(sized, &p, sizeof(p));
}

static abi_outcome picture_save(const void *pictures, size_t count,
                                const void *options)
{
    remove(world.path[1]);
    bauta_status status =
        bauta_picture_save(world.path[1], pictures, count, options, &err);
    return outcome(status, digest_file(world.path[1]));
}

static abi_outcome picture_run(void *sized)
{
    void *both = two_of(sized);
    abi_outcome o = picture_save(both ? both : sized, both ? 2 : 1, NULL);
    free(both);
    return o;
}

static void sheet_fill(void *sized)
{
    bauta_picture_options o = BAUTA_PICTURE_OPTIONS_INIT;
    o.title = "the sheet";
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome sheet_run(void *sized)
{
    bauta_picture picture;
    picture_fill(&picture);
    return picture_save(&picture, 1, sized);
}

static void audit_fill(void *sized)
{
    bauta_audit_options o = BAUTA_AUDIT_OPTIONS_INIT;
    o.checks = 1u << BAUTA_CHECK_TOKENS;
    o.probes = 2;
    o.seed = 7;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome audit_run(void *sized)
{
    bauta_audit *audit = NULL;
    uint64_t h = 0;
    bauta_status status = bauta_audit_create(&audit, world.context, world.model,
                                             NULL, &world.batch, sized, &err);
    for (size_t i = 0; !status && i < bauta_audit_findings(audit); i++) {
        const bauta_finding *f = bauta_audit_finding(audit, i);
        h = digest(h, &f->compared, sizeof(f->compared));
        h = digest_text(h, f->message) + f->verdict;
    }
    bauta_audit_free(audit);
    return outcome(status, h);
}

/* ---- generation -------------------------------------------------------- */

static abi_outcome generated(const void *request)
{
    bauta_result *result = NULL;
    bauta_status status = bauta_generate(
        world.context, world.model, world.tokenizer, request, &result, &err);
    uint64_t h = 0;
    for (size_t i = 0; !status && i < result->count; i++) {
        const bauta_hypothesis *one = result->hypotheses[i];
        h = digest(h, one->tokens, one->count * sizeof(*one->tokens));
        h = digest(h, one->logprobs, one->count * sizeof(*one->logprobs));
        h = digest(h, &one->score, sizeof(one->score)) + one->text_length;
    }
    if (!status)
        h += result->tag + result->prompt_tokens;
    bauta_result_free(result);
    return outcome(status, h);
}

static void generate_fill(void *sized)
{
    static const uint32_t word[] = { 'a', 'b' };
    static const bauta_token_seq bad[] = { { 2, word } };
    static const char *const stops[] = { "zzz" };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    o.max_new_tokens = 5;
    o.repetition_penalty = 1.1f;
    o.do_sample = true;
    o.top_k = 40;
    o.seed = 11;
    o.eos_token_count = 1;
    o.eos_token_ids[0] = 256;
    o.stop_strings = stops;
    o.stop_string_count = 1;
    o.bad_words = bad;
    o.bad_word_count = 1;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome generate_run(void *sized)
{
    char json[2048];
    bauta_request request = BAUTA_REQUEST_INIT;
    request.tokens = world.ids;
    request.count = ROWS;
    request.options = sized;
    abi_outcome o = generated(&request);
    bauta_generate_options_json(sized, json, sizeof(json));
    o.digest = digest_text(o.digest, json);
    return o;
}

static void load_fill(void *sized)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome load_run(void *sized)
{
    return outcome(bauta_generate_options_load(sized, world.model, &err), 0);
}

static uint64_t load_show(const void *sized)
{
    const bauta_generate_options *o = sized;
    return o->top_k + o->num_beams + o->eos_token_count + o->eos_token_ids[0];
}

static void request_fill(void *sized)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    request.tokens = world.ids;
    request.count = ROWS;
    request.tag = 77;
    memcpy(sized, &request, sizeof(request));
}

static abi_outcome request_run(void *sized)
{
    return generated(sized);
}

static void generator_fill(void *sized)
{
    bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
    o.max_sequences = 2;
    o.max_batched_tokens = 2;
    o.cache_bytes = 1 << 20;
    o.cached_sequences = 1;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome generator_run(void *sized)
{
    bauta_generator *generator = NULL;
    bauta_request request;
    size_t left = 1, steps = 0;
    request_fill(&request);
    bauta_status status = bauta_generator_create(
        &generator, world.context, world.model, world.tokenizer, sized, &err);
    if (!status)
        status = bauta_generator_add(generator, &request, &err);
    for (; !status && left; steps++)
        status = bauta_generator_step(generator, &left, &err);
    bauta_generator_free(generator);
    return outcome(status, steps);
}

/* ---- series -------------------------------------------------------------- */

enum { SERIES_ROWS = 24, HORIZON = 3 };

/* A table of one column, and its codec; NULL if they cannot be made. */
static bauta_series *series_make(bauta_series_codec **codec)
{
    double values[SERIES_ROWS];
    bauta_series *series = NULL;
    for (int t = 0; t < SERIES_ROWS; t++)
        values[t] = t + t % 4 * t % 7;
    must(bauta_series_create(&series, values, SERIES_ROWS, 1, &err));
    if (codec)
        must(bauta_series_codec_create(
            codec, (const bauta_series *const[]){ series }, 1, NULL, &err));
    return series;
}

static void series_fill(void *sized)
{
    static const char *const columns[] = { "b" };
    bauta_series_options o = BAUTA_SERIES_OPTIONS_INIT;
    o.date = "month";
    o.columns = columns;
    o.column_count = 1;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome series_run(void *sized)
{
    char path[512];
    bauta_series *series = NULL;
    file_write(path, sizeof(path), "table.csv",
               "month,a,b\n2024-01,1,4\n2024-02,2,5\n2024-03,3,6\n");
    bauta_status status = bauta_series_load(&series, path, sized, &err);
    uint64_t h = status ? 0 : digest_text(0, bauta_series_name(series, 0));
    h += status ? 0 : bauta_series_columns(series);
    bauta_series_free(series);
    return outcome(status, h);
}

static void codec_fill(void *sized)
{
    bauta_series_codec_options o = BAUTA_SERIES_CODEC_OPTIONS_INIT;
    o.season = 4;
    o.bins = 32;
    o.holdout = 2;
    o.calendar = BAUTA_SERIES_CALENDAR_NONE;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome codec_run(void *sized)
{
    uint32_t tokens[SERIES_ROWS * 2];
    size_t count = 0;
    bauta_series_codec *codec = NULL;
    bauta_series *series = series_make(NULL);
    bauta_status status = bauta_series_codec_create(
        &codec, (const bauta_series *const[]){ series }, 1, sized, &err);
    if (!status)
        status =
            bauta_series_encode(codec, series, 0, SERIES_ROWS, tokens,
                                sizeof(tokens) / sizeof(*tokens), &count, &err);
    uint64_t h = digest(0, tokens, count * sizeof(*tokens));
    bauta_series_codec_free(codec);
    bauta_series_free(series);
    return outcome(status, h);
}

static void forecast_fill(void *sized)
{
    bauta_forecast_options o = BAUTA_FORECAST_OPTIONS_INIT;
    o.rows = SERIES_ROWS - 4;
    o.horizon = HORIZON;
    o.samples = 4;
    o.temperature = 0.5f;
    o.seed = 9;
    memcpy(sized, &o, sizeof(o));
}

static abi_outcome forecast_run(void *sized)
{
    bauta_series_codec *codec = NULL;
    bauta_forecast *forecast = NULL;
    bauta_series *series = series_make(&codec);
    bauta_status status = bauta_forecast_create(
        &forecast, world.context, world.model, codec, series, sized, &err);
    uint64_t h = 0;
    size_t count = status ? 0
                          : bauta_forecast_samples(forecast) *
                                bauta_forecast_horizon(forecast);
    for (size_t i = 0; i < count; i++) {
        // The last bits may differ without optimization.
        float value = (float)bauta_forecast_paths(forecast, 0)[i];
        h = digest(h, &value, sizeof(value));
    }
    bauta_forecast_free(forecast);
    bauta_series_codec_free(codec);
    bauta_series_free(series);
    return outcome(status, h);
}

static const double medians[HORIZON] = { 4, 5, 7 }, truths[] = { 4, 6, 6 };

static void forecast_score_fill(void *sized)
{
    bauta_forecast_score score = BAUTA_FORECAST_SCORE_INIT;
    memcpy(sized, &score, sizeof(score));
}

static abi_outcome forecast_score_run(void *sized)
{
    const double history[] = { 1, 2, 2, 3 }, half = 0.5;
    return outcome(bauta_forecast_evaluate(history, 4, 1, &half, 1, medians,
                                           truths, HORIZON, sized, &err),
                   0);
}

static uint64_t forecast_score_show(const void *sized)
{
    const bauta_forecast_score *s = sized;
    return digest(digest(0, &s->mase, sizeof(s->mase)),
                  &s->weighted_quantile_loss, sizeof(double));
}

static void chart_fill(void *sized)
{
    bauta_chart c = BAUTA_CHART_INIT;
    c.title = "a chart";
    c.history = truths;
    c.history_count = c.horizon = HORIZON;
    c.quantile_count = 1;
    c.quantiles = medians;
    c.truth = truths;
    c.first = "Monday";
    c.last = "Saturday";
    c.begin = "Thursday";
    memcpy(sized, &c, sizeof(c));
}

static abi_outcome chart_run(void *sized)
{
    char path[512];
    void *both = two_of(sized);
    snprintf(path, sizeof(path), "%s/chart.png", world.folder);
    remove(path);
    bauta_status status =
        bauta_chart_save(path, both ? both : sized, both ? 2 : 1, &err);
    free(both);
    return outcome(status, digest_file(path));
}

#define READ(type, prefix)                                            \
    {                                                                 \
#type, sizeof(type), false, prefix##_fill, prefix##_run, NULL \
    }
#define WRITTEN(type, prefix)                                                 \
    {                                                                         \
#type, sizeof(type), true, prefix##_fill, prefix##_run, prefix##_show \
    }

const abi_call abi_calls[] = {
    READ(bauta_options, options),
    READ(bauta_attention_shape, shape),
    READ(bauta_attention_bias, bias),
    WRITTEN(bauta_tensor, tensor),
    READ(bauta_batch, batch),
    READ(bauta_outputs, outputs),
    READ(bauta_loss_options, loss),
    READ(bauta_attention_weights, weights),
    READ(bauta_embed_options, embed),
    READ(bauta_top_tokens_options, top),
    READ(bauta_decode_input, input),
    READ(bauta_encode_options, encode),
    READ(bauta_decode_options, decode),
    READ(bauta_corpus_options, corpus),
    READ(bauta_tokenizer_trainer_options, learn),
    READ(bauta_train_options, train),
    WRITTEN(bauta_train_options, preset),
    WRITTEN(bauta_train_report, report),
    READ(bauta_train_batch, train_batch),
    READ(bauta_optimizer_options, optimizer),
    READ(bauta_perplexity_options, perplexity),
    WRITTEN(bauta_perplexity_result, measured),
    READ(bauta_run_options, run_options),
    WRITTEN(bauta_run_result, run_result),
    READ(bauta_translations, texts),
    READ(bauta_bleu_options, bleu),
    WRITTEN(bauta_bleu_score, bleu_score),
    READ(bauta_chrf_options, chrf),
    WRITTEN(bauta_chrf_score, chrf_score),
    READ(bauta_picture, picture),
    READ(bauta_picture_options, sheet),
    READ(bauta_audit_options, audit),
    READ(bauta_generate_options, generate),
    WRITTEN(bauta_generate_options, load),
    READ(bauta_request, request),
    READ(bauta_generator_options, generator),
    READ(bauta_series_options, series),
    READ(bauta_series_codec_options, codec),
    READ(bauta_forecast_options, forecast),
    WRITTEN(bauta_forecast_score, forecast_score),
    READ(bauta_chart, chart),
};
const size_t abi_call_count = sizeof(abi_calls) / sizeof(abi_calls[0]);

/* SPDX-License-Identifier: Apache-2.0 */
/* test_folder_malformed.c - malformed model folders: each is refused with a
 * message, quickly, in little memory, and without a leak. */
#include "base/memory.h"
#include "bauta.h"
#include "tiny_models.h"

#include <stdatomic.h>
#include <time.h>

enum { SECONDS = 1, PEAK_BYTES = 64 << 20 };

/* ---- memory -------------------------------------------------------------- */

/* Bytes in use and their peak; a header before each block holds its size. */
static struct {
    atomic_size_t live, peak;
} use;

static void *use_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    size_t whole = (size + align + align - 1) / align * align;
    unsigned char *memory = aligned_alloc(align, whole);
    if (!memory)
        return NULL;
    memcpy(memory, &size, sizeof(size));
    size_t live = atomic_fetch_add(&use.live, size) + size;
    if (live > atomic_load(&use.peak))
        atomic_store(&use.peak, live);
    return memory + align;
}

static void use_free(void *user, void *memory)
{
    size_t size;
    unsigned char *block = (unsigned char *)memory - BT_ALIGN;
    (void)user;
    memcpy(&size, block, sizeof(size));
    atomic_fetch_sub(&use.live, size);
    free(block);
}

/* ---- one folder ---------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static size_t refused; /* so far */

/* Loading fails, both read-only and trainable, with a message that contains
 * `what`. */
static void assert_refused_as(const char *path, const char *what,
                              bauta_status as)
{
    static const bauta_allocator allocator = { use_alloc, use_free, NULL };
    for (int trainable = 0; trainable < 2; trainable++) {
        bauta_error err = { .message = "" };
        bauta_model *model = NULL;
        bauta_allocator_set(&allocator);
        atomic_store(&use.peak, 0);
        double start = seconds();
        bauta_status status = bauta_model_load(&model, path, trainable, &err);
        double took = seconds() - start;
        bauta_model_free(model);
        bauta_allocator_set(NULL);
        if (!status)
            fail_msg("was loaded, not refused: %s", what);
        if (!strstr(err.message, what))
            fail_msg("says \"%s\", not \"%s\"", err.message, what);
        assert_true(status == as || status == BAUTA_ERR_UNSUPPORTED);
        assert_true(took < SECONDS);
        assert_true(atomic_load(&use.peak) < PEAK_BYTES);
        assert_int_equal(atomic_load(&use.live), 0);
        for (const char *c = err.message; *c; c++)
            assert_true((unsigned char)*c >= 0x20);
    }
    refused++;
}

/* A file was read and is wrong. */
static void assert_refused(const char *path, const char *what)
{
    assert_refused_as(path, what, BAUTA_ERR_FORMAT);
}

/* A file is missing, or is none that can be read. */
static void assert_unreadable(const char *path, const char *what)
{
    assert_refused_as(path, what, BAUTA_ERR_IO);
}

static const tiny *tiny_named(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, name) == 0)
            return &tinies[i];
    fail_msg("no family %s", name);
    return NULL;
}

/* ---- configs ------------------------------------------------------------- */

/* A config in which one text is replaced by another. */
static const struct {
    const char *family, *from, *to, *message;
} configs[] = {
    // Missing.
    { "gpt2", "\"n_embd\": 16, ", "", "config.json: n_embd is missing" },
    { "gpt2", "\"n_head\": 2, ", "", "n_head is missing" },
    { "gpt2", "\"n_layer\": 2, ", "", "n_layer is missing" },
    { "gpt2", "\"vocab_size\": 40, ", "", "vocab_size is missing" },
    { "gpt2", "\"n_positions\": 96, ", "", "n_positions is missing" },
    { "gpt2", "\"model_type\": \"gpt2\", ", "", "model_type is not given" },
    { "llama", "\"hidden_size\": 16, ", "", "hidden_size is missing" },
    { "llama", "\"intermediate_size\": 24, ", "",
      "intermediate_size is missing" },
    { "llama", "\"num_hidden_layers\": 3, ", "",
      "num_hidden_layers is missing" },
    { "bert", "\"max_position_embeddings\": 98, ", "",
      "max_position_embeddings is missing" },
    { "marian", "\"decoder_layers\": 3, ", "", "decoder_layers is missing" },
    { "marian", "\"encoder_ffn_dim\": 24, ", "", "encoder_ffn_dim is missing" },
    { "bart", "\"d_model\": 16, ", "", "d_model is missing" },
    // Of another type.
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": \"16\"",
      "n_embd is not a whole number" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 16.0",
      "n_embd is not a whole number" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": [16]",
      "n_embd is not a whole number" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": null", "n_embd is missing" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": true",
      "n_embd is not a whole number" },
    { "gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": 2",
      "model_type is not a string" },
    { "gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": null",
      "model_type is null" },
    { "gpt2", "[\"GPT2LMHeadModel\"]", "\"GPT2LMHeadModel\"",
      "architectures is not a list" },
    { "gpt2", "[\"GPT2LMHeadModel\"]", "[7]", "architectures is [7]" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 2, \"tie_word_embeddings\": 1",
      "tie_word_embeddings is neither true nor false" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"small\"",
      "rms_norm_eps is not a number" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rope_parameters\": [1]",
      "rope_parameters is not an object" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rope_scaling\": 3",
      "rope_scaling is not an object" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rope_theta\": \"10000\"",
      "rope_theta is not a number" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"hidden_act\": {}",
      "hidden_act is not a string" },
    { "mistral", "\"sliding_window\": 4", "\"sliding_window\": \"4\"",
      "sliding_window is not a whole number" },
    { "qwen2", "\"use_sliding_window\": true", "\"use_sliding_window\": 1",
      "use_sliding_window is neither true nor false" },
    // Out of range.
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 0", "n_embd is 0" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": -16",
      "n_embd is not a whole number" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 4294967296",
      "n_embd is not a whole number from 0 to 2147483647" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 99999999999999999999", "line 1" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 0", "n_head is 0" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 3",
      "3 heads do not divide a width of 16" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 32", "heads of 0 columns" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 0", "n_layer is 0" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 4097", "more than 4096 layers" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 2147483647",
      "more than 4096 layers" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 4096",
      "tensor transformer.h.2.ln_1.weight is missing" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 2, \"n_inner\": 0",
      "a feed-forward part of 0 columns" },
    { "gpt2", "\"vocab_size\": 40", "\"vocab_size\": 2147483647",
      "tensor transformer.wte.weight is 40 x 16, not 2147483647 x 16" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 2147483646",
      "heads of 1073741823 columns" },
    { "llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 0",
      "0 key heads do not divide 4 heads" },
    { "llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
      "3 key heads do not divide 4 heads" },
    { "llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 8",
      "8 key heads do not divide 4 heads" },
    { "llama", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 2147483647, \"head_dim\": 256",
      "2 key heads do not divide 2147483647 heads" },
    { "llama", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 4, \"head_dim\": 3",
      "an even number of columns, not 3" },
    { "llama", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 4, \"head_dim\": 258",
      "heads of 258 columns; 1 to 256 are supported" },
    { "llama", "1e-05", "-1", "an epsilon of -1" },
    { "llama", "1e-05", "1e300", "an epsilon of inf" },
    { "llama", "1e-05", "1e999", "line 1" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rope_theta\": 0",
      "a rope_theta of 0" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"rope_theta\": -1e4",
      "a rope_theta of -10000" },
    { "roberta", "\"pad_token_id\": 1", "\"pad_token_id\": 500",
      "pad_token_id is 500, which leaves no positions after it" },
    { "bert", "\"pad_token_id\": 1", "\"pad_token_id\": -1",
      "pad_token_id is not a whole number" },
    { "marian", "\"max_position_embeddings\": 96",
      "\"max_position_embeddings\": 2147483647",
      "2147483647 sinusoidal positions of 16 columns are too many" },
    { "marian", "\"max_position_embeddings\": 96",
      "\"max_position_embeddings\": 1048577", "are too many" },
    { "bart", "\"max_position_embeddings\": 96",
      "\"max_position_embeddings\": 2147483647",
      "tensor model.encoder.embed_positions.weight is 98 x 16" },
    // Not supported.
    { "gpt2", "\"gpt2\"", "\"mamba\"",
      "model_type is \"mamba\", which is not among gpt2 llama" },
    { "gpt2", "\"gpt2\"", "\"GPT2\"", "model_type is \"GPT2\"" },
    { "gpt2", "\"gpt2\"", "\"\"", "model_type is \"\"" },
    { "gpt2", "GPT2LMHeadModel", "GPT2ForSequenceClassification",
      "which is not among GPT2LMHeadModel" },
    { "gpt2", "GPT2LMHeadModel", "LlamaForCausalLM", "architectures is" },
    { "gpt2", "\"n_head\": 2",
      "\"n_head\": 2, \"activation_function\": \"relu6\"",
      "activation_function is \"relu6\", which is not a known activation" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 2, \"add_cross_attention\": true",
      "add_cross_attention is true, which is not supported" },
    { "gpt2", "\"n_head\": 2",
      "\"n_head\": 2, \"scale_attn_by_inverse_layer_idx\": true",
      "scale_attn_by_inverse_layer_idx is true" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"attention_bias\": true",
      "attention_bias is true" },
    { "llama", "\"rms_norm_eps\": 1e-05", "\"mlp_bias\": true",
      "mlp_bias is true" },
    { "llama", "\"rms_norm_eps\": 1e-05",
      "\"rope_scaling\": {\"rope_type\": \"yarn\"}",
      "rope_type is \"yarn\", which is not among default, llama3" },
    { "llama", "\"rms_norm_eps\": 1e-05",
      "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}",
      "is not given, which is not among default, llama3" },
    { "llama", "\"rms_norm_eps\": 1e-05",
      "\"rope_scaling\": {\"rope_type\": \"llama3\"}", "factor is missing" },
    { "llama", "\"rms_norm_eps\": 1e-05",
      "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 0, "
      "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
      "\"original_max_position_embeddings\": 32}",
      "rope scaling by 0 between 1 and 4" },
    { "llama", "\"rms_norm_eps\": 1e-05",
      "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
      "\"low_freq_factor\": 4, \"high_freq_factor\": 4, "
      "\"original_max_position_embeddings\": 32}",
      "rope scaling by 8 between 4 and 4" },
    { "bert", "\"pad_token_id\": 1",
      "\"position_embedding_type\": \"relative_key\"",
      "only absolute is supported" },
    { "bert", "\"pad_token_id\": 1", "\"is_decoder\": true",
      "is_decoder is true" },
    { "marian", "\"scale_embedding\": true",
      "\"scale_embedding\": true, \"normalize_before\": true",
      "normalize_before is true" },
    { "marian", "\"scale_embedding\": true", "\"decoder_vocab_size\": 41",
      "decoder_vocab_size is 41, which differs from vocab_size" },
    { "marian", "\"scale_embedding\": true",
      "\"share_encoder_decoder_embeddings\": false",
      "share_encoder_decoder_embeddings is false" },
    { "marian", "\"decoder_attention_heads\": 2",
      "\"decoder_attention_heads\": 4",
      "which differs from encoder_attention_heads" },
    { "qwen3", "\"head_dim\": 8", "\"head_dim\": 8, \"attention_bias\": true",
      "attention_bias is true" },
    // Sizes that do not match the weights.
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 18",
      "tensor transformer.wte.weight is 40 x 16, not 40 x 18" },
    { "gpt2", "\"n_positions\": 96", "\"n_positions\": 95",
      "tensor transformer.wpe.weight is 96 x 16, not 95 x 16" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 1",
      "tensor transformer.h.1.attn.c_attn.bias is not expected" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": 3",
      "tensor transformer.h.2.ln_1.weight is missing" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 2, \"n_inner\": 7",
      "mlp.c_fc.weight is 16 x 64, not 16 x 7" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 2, \"tie_word_embeddings\": false",
      "tensor lm_head.weight is missing" },
    { "llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4",
      "k_proj.weight is 8 x 16, not 16 x 16" },
    { "llama", "\"llama\"", "\"qwen2\"",
      "architectures is [\"LlamaForCausalLM\"], which is not among" },
    { "mistral", "\"mistral\"", "\"qwen2\"", "q_proj.bias is missing" },
    { "bert", "\"pad_token_id\": 1",
      "\"pad_token_id\": 1, \"type_vocab_size\": 3",
      "token_type_embeddings.weight is 2 x 16, not 3 x 16" },
    { "marian", "\"vocab_size\": 40", "\"vocab_size\": 41",
      "tensor model.shared.weight is 40 x 16, not 41 x 16" },
};

/* The config with its first `from` replaced. */
static void config_write(const char *path, const char *config, const char *from,
                         const char *to)
{
    char text[4096];
    const char *at = strstr(config, from);
    if (!at)
        fail_msg("%s is not in %s", from, config);
    int length = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - config),
                          config, to, at + strlen(from));
    assert_true(length > 0 && (size_t)length < sizeof(text));
    tiny_file(path, "config.json", text, (size_t)length);
}

static void configs_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    static char paths[BT_LEN(tinies)][512];
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        tiny_write(&s, &tinies[i], paths[i]);
    for (size_t i = 0; i < BT_LEN(configs); i++) {
        const tiny *t = tiny_named(configs[i].family);
        const char *path = paths[t - tinies];
        config_write(path, t->config, configs[i].from, configs[i].to);
        assert_refused(path, configs[i].message);
        tiny_file(path, "config.json", t->config, strlen(t->config));
    }
    temp_folder_free(&s);
}

/* ---- files --------------------------------------------------------------- */

static const struct {
    const char *text, *message;
} texts[] = {
    { "", "config.json: line" },
    { "{", "config.json: line 1" },
    { "[]", "is not a JSON object" },
    { "\"gpt2\"", "is not a JSON object" },
    { "null", "is not a JSON object" },
    { "{\"model_type\": \"gpt2\"} {}", "config.json: line 1" },
    { "{\"model_type\": \"gpt2\", \"model_type\": \"bert\"}", "duplicate" },
    { "{\"a\": \"\xff\"}", "config.json: line 1" },
    { "{\"a\": \"\\u0000\"}", "config.json: line 1" },
    { "{\"a\": 1,}", "config.json: line 1" },
    { "{'a': 1}", "config.json: line 1" },
    { "{\"a\": NaN}", "config.json: line 1" },
};

static void config_texts_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512];
    tiny_write(&s, &tinies[0], path);
    for (size_t i = 0; i < BT_LEN(texts); i++) {
        tiny_file(path, "config.json", texts[i].text, strlen(texts[i].text));
        assert_refused(path, texts[i].message);
    }
    size_t size = 3 << 20;
    char *large = malloc(size);
    assert_non_null(large);
    memset(large, ' ', size);
    tiny_file(path, "config.json", large, size);
    assert_refused(path, "has 3145728 bytes; the limit is");
    memset(large, '[', 1 << 20);
    tiny_file(path, "config.json", large, 1 << 20); // deeper than any stack
    assert_refused(path, "config.json: line 1");
    free(large);
    temp_folder_free(&s);
}

static void config_never_cut_is_loaded(const char *path, const char *config)
{
    for (size_t cut = 1; cut + 1 < strlen(config); cut += 11) {
        tiny_file(path, "config.json", config, cut);
        assert_refused(path, "config.json: line 1");
    }
}

static void truncated_configs_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512];
    tiny_write(&s, &tinies[1], path);
    config_never_cut_is_loaded(path, tinies[1].config);
    temp_folder_free(&s);
}

/* Other things where a file should be. */
static void folders_without_their_files_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512], file[600];
    assert_unreadable(temp_folder_path(&s, "nowhere"),
                      "nowhere: there is no such folder");
    tiny_write(&s, &tinies[0], path);
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    assert_int_equal(remove(file), 0);
    assert_unreadable(path, "there is neither model.safetensors nor");
    tiny_file(path, "pytorch_model.bin", "x", 1);
    assert_refused(path, "pytorch_model.bin is pickled and not read");
    assert_int_equal(mkdir(file, 0777), 0);
    assert_unreadable(path, "model.safetensors: is a folder");
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(mkfifo(file, 0666), 0);
    assert_unreadable(path, "model.safetensors: is special");
    assert_int_equal(remove(file), 0);
    snprintf(file, sizeof(file), "%s/config.json", path);
    assert_refused(file, "config.json: is a file, not a model folder");
    assert_int_equal(remove(file), 0);
    assert_int_equal(mkfifo(file, 0666), 0);
    assert_unreadable(path, "config.json: is special");
    temp_folder_free(&s);
}

/* ---- weights ------------------------------------------------------------- */

typedef void weights_fn(tiny_weights *w);

static bt_stored_tensor *weight(tiny_weights *w, const char *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->tensors[i].name, name) == 0)
            return &w->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

#define WEIGHT "transformer.h.1.mlp.c_fc.weight" /* 16 x 64 */

static void drop_first(tiny_weights *w)
{
    free((void *)(uintptr_t)w->tensors[0].data);
    memmove(w->tensors, w->tensors + 1, --w->count * sizeof(w->tensors[0]));
}

static void drop_last(tiny_weights *w)
{
    free((void *)(uintptr_t)w->tensors[--w->count].data);
}

static void drop_all(tiny_weights *w)
{
    tiny_weights_release(w);
}

static void add_one(tiny_weights *w, const char *name)
{
    float *data = calloc(1, sizeof(float));
    assert_non_null(data);
    w->tensors[w->count++] = (bt_stored_tensor){ .name = name,
                                                 .dtype = BAUTA_FLOAT32,
                                                 .rank = 1,
                                                 .shape = { 1 },
                                                 .data = data,
                                                 .bytes = sizeof(float) };
}

static void add_unknown(tiny_weights *w)
{
    add_one(w, "transformer.h.0.adapter.weight");
}

static void add_layer(tiny_weights *w)
{
    add_one(w, "transformer.h.2.ln_1.weight");
}

static void add_empty_name(tiny_weights *w)
{
    add_one(w, "");
}

static void add_odd_name(tiny_weights *w)
{
    add_one(w, "a\nb");
}

static void rename_one(tiny_weights *w)
{
    weight(w, WEIGHT)->name = "transformer.h.1.mlp.c_fc.wait";
}

static void turn(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->shape[0] = 64;
    t->shape[1] = 16;
}

static void flatten(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->rank = 1;
    t->shape[0] = 16 * 64;
}

static void deepen(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->rank = 3;
    t->shape[2] = 1;
}

static void deepest(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->rank = 8;
    for (size_t i = 2; i < 8; i++)
        t->shape[i] = 1;
}

static void scalar(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->rank = 0;
    t->bytes = 4;
}

static void empty(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->shape[1] = 0;
    t->bytes = 0;
}

static void bias_as_matrix(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, "transformer.ln_f.bias");
    t->rank = 2;
    t->shape[0] = 1;
    t->shape[1] = 16;
}

static void bias_too_short(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, "transformer.ln_f.bias");
    t->shape[0] = 15;
    t->bytes = 60;
}

static void typed(tiny_weights *w, bauta_dtype dtype)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->dtype = dtype;
    t->shape[1] = 64 * sizeof(float) / bt_dtype_size(dtype);
}

static void type_i32(tiny_weights *w)
{
    weight(w, WEIGHT)->dtype = BAUTA_INT32;
}

static void type_u32(tiny_weights *w)
{
    weight(w, WEIGHT)->dtype = BAUTA_UINT32;
}

/* Of the right shape, with half of the bytes in use. */
static void type_f64(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, "transformer.wpe.weight");
    float *more = calloc(2 * 96 * 16, sizeof(float));
    assert_non_null(more);
    free((void *)(uintptr_t)t->data);
    t->data = more;
    t->dtype = BAUTA_FLOAT64;
    t->bytes *= 2;
}

static void type_u8(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->dtype = BAUTA_UINT8;
    t->bytes = 16 * 64;
}

static void type_bool(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->dtype = BAUTA_BOOL;
    t->bytes = 16 * 64;
}

static void type_f8(tiny_weights *w)
{
    bt_stored_tensor *t = weight(w, WEIGHT);
    t->dtype = BAUTA_FLOAT8_E4M3;
    t->bytes = 16 * 64;
}

static void type_bf16_wide(tiny_weights *w)
{
    typed(w, BAUTA_BFLOAT16);
}

static const struct {
    weights_fn *spoil;
    const char *message;
} weights[] = {
    { drop_first, "tensor transformer.wte.weight is missing" },
    { drop_last, "tensor transformer.ln_f.bias is missing" },
    { drop_all, "tensor transformer.wte.weight is missing" },
    { add_unknown, "tensor transformer.h.0.adapter.weight is not expected in a "
                   "model of type gpt2" },
    { add_layer, "tensor transformer.h.2.ln_1.weight is not expected" },
    { add_empty_name, "tensor  is not expected" },
    { add_odd_name, "tensor a?b is not expected" },
    { rename_one, "tensor " WEIGHT " is missing" },
    { turn, "tensor " WEIGHT " is 64 x 16, not 16 x 64" },
    { flatten, "tensor " WEIGHT " is 1024, not 16 x 64" },
    { deepen, "tensor " WEIGHT " is 16 x 64 x 1, not 16 x 64" },
    { deepest, "tensor " WEIGHT " is 16 x 64 x 1 x 1 x 1" },
    { scalar, "tensor " WEIGHT " is a single number, not 16 x 64" },
    { empty, "tensor " WEIGHT " is 16 x 0, not 16 x 64" },
    { bias_as_matrix, "tensor transformer.ln_f.bias is 1 x 16, not 16" },
    { bias_too_short, "tensor transformer.ln_f.bias is 15, not 16" },
    { type_i32, "tensor " WEIGHT " has the type I32" },
    { type_u32, "tensor " WEIGHT " has the type U32" },
    { type_f64, "tensor transformer.wpe.weight has the type F64" },
    { type_u8, "tensor " WEIGHT " has the type U8" },
    { type_bool, "tensor " WEIGHT " has the type BOOL" },
    { type_f8, "tensor " WEIGHT " has the type F8_E4M3" },
    { type_bf16_wide, "tensor " WEIGHT " is 16 x 128, not 16 x 64" },
};

static void weights_are_refused(void **state)
{
    (void)state;
    static tiny_weights w;
    temp_folder s = temp_folder_create();
    char path[512], file[600];
    tiny_write(&s, &tinies[0], path);
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    for (size_t i = 0; i < BT_LEN(weights); i++) {
        bauta_error err;
        tiny_weights_init(&w, path);
        weights[i].spoil(&w);
        if (bt_safetensors_write(file, w.tensors, w.count, NULL, 0, &err))
            fail_msg("case %zu: %s", i, err.message);
        assert_refused(path, weights[i].message);
        tiny_weights_release(&w);
    }
    temp_folder_free(&s);
}

/* A file truncated anywhere, and one with trailing bytes. */
static void truncated_weights_are_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512], file[600];
    static char bytes[1 << 16];
    tiny_write(&s, &tinies[0], path);
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    FILE *from = fopen(file, "rb");
    assert_non_null(from);
    size_t size = fread(bytes, 1, sizeof(bytes), from);
    fclose(from);
    assert_true(size > 1000 && size < sizeof(bytes) - 4);
    for (size_t cut = 0; cut < size; cut += cut < 16 ? 1 : 997) {
        tiny_file(path, "model.safetensors", bytes, cut);
        assert_refused(path, "model.safetensors: ");
    }
    tiny_file(path, "model.safetensors", bytes, size + 4);
    assert_refused(path, "bytes of data, its tensors only");
    temp_folder_free(&s);
}

/* ---- many tensors -------------------------------------------------------- */

/* 60,000 known tensors and one unknown: finding it takes no longer than reading
 * them. */
static void many_unknown_tensors_are_refused_quickly(void **state)
{
    (void)state;
    enum { LAYERS = 4096, WIDTH = 2 };
    temp_folder s = temp_folder_create();
    const char *path = s.folder;
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 2, \"n_head\": 1, "
        "\"n_inner\": 1, \"n_layer\": 4096, \"vocab_size\": 1, "
        "\"n_positions\": 1}";
    static const struct {
        const char *name;
        unsigned rank;
        size_t shape[2];
    } parts[] = {
        { "ln_1.weight", 1, { 2 } },           { "ln_1.bias", 1, { 2 } },
        { "attn.c_attn.weight", 2, { 2, 6 } }, { "attn.c_attn.bias", 1, { 6 } },
        { "attn.c_proj.weight", 2, { 2, 2 } }, { "attn.c_proj.bias", 1, { 2 } },
        { "ln_2.weight", 1, { 2 } },           { "ln_2.bias", 1, { 2 } },
        { "mlp.c_fc.weight", 2, { 2, 1 } },    { "mlp.c_fc.bias", 1, { 1 } },
        { "mlp.c_proj.weight", 2, { 1, 2 } },  { "mlp.c_proj.bias", 1, { 2 } },
    };
    static const float zeros[16];
    size_t count = 0, most = LAYERS * BT_LEN(parts) + 5;
    bt_stored_tensor *tensors = calloc(most, sizeof(*tensors));
    char(*names)[48] = calloc(most, sizeof(*names));
    assert_true(tensors && names);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t p = 0; p < BT_LEN(parts); p++, count++) {
            snprintf(names[count], 48, "transformer.h.%zu.%s", l,
                     parts[p].name);
            tensors[count] = (bt_stored_tensor){ .name = names[count],
                                                 .dtype = BAUTA_FLOAT32,
                                                 .rank = parts[p].rank,
                                                 .data = zeros };
            memcpy(tensors[count].shape, parts[p].shape,
                   sizeof(parts[p].shape));
            tensors[count].bytes = bt_stored_tensor_bytes(
                BAUTA_FLOAT32, parts[p].rank, parts[p].shape);
        }
    static const struct {
        const char *name;
        unsigned rank;
        size_t rows, columns;
    } rest[] = { { "transformer.wte.weight", 2, 1, 2 },
                 { "transformer.wpe.weight", 2, 1, 2 },
                 { "transformer.ln_f.weight", 1, 2, 1 },
                 { "transformer.ln_f.bias", 1, 2, 1 },
                 { "zzz", 1, 2, 1 } };
    for (size_t i = 0; i < BT_LEN(rest); i++)
        tensors[count++] =
            (bt_stored_tensor){ .name = rest[i].name,
                                .dtype = BAUTA_FLOAT32,
                                .rank = rest[i].rank,
                                .shape = { rest[i].rows, rest[i].columns },
                                .data = zeros,
                                .bytes = 8 };
    char file[600];
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    tiny_file(path, "config.json", config, strlen(config));
    assert_int_equal(bt_safetensors_write(file, tensors, count, NULL, 0, NULL),
                     0);
    assert_refused(path, "tensor zzz is not expected");
    free(tensors);
    free(names);
    temp_folder_free(&s);
}

/* ---- valid folders ------------------------------------------------------- */

/* The valid folders from which all malformed ones are derived. */
static void unmodified_folders_load(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512];
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *model = NULL;
        bauta_error err;
        tiny_write(&s, &tinies[i], path);
        if (bauta_model_load(&model, path, false, &err))
            fail_msg("%s", err.message);
        bauta_model_free(model);
    }
    temp_folder_free(&s);
}

static void at_least_a_hundred_folders_were_refused(void **state)
{
    (void)state;
    printf("%zu folders refused\n", refused);
    assert_true(refused >= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unmodified_folders_load),
        cmocka_unit_test(configs_are_refused),
        cmocka_unit_test(config_texts_are_refused),
        cmocka_unit_test(truncated_configs_are_refused),
        cmocka_unit_test(folders_without_their_files_are_refused),
        cmocka_unit_test(weights_are_refused),
        cmocka_unit_test(truncated_weights_are_refused),
        cmocka_unit_test(many_unknown_tensors_are_refused_quickly),
        cmocka_unit_test(at_least_a_hundred_folders_were_refused),
    };
    return cmocka_run_group_tests_name("folder_malformed", tests, NULL, NULL);
}

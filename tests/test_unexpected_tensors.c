/* SPDX-License-Identifier: Apache-2.0 */
/* test_unexpected_tensors.c - nothing of a file is ignored silently: every
 * stored tensor is used, refused, or named in a warning. */
#include "bauta.h"
#include "tiny_models.h"

#include <math.h>

static const tiny *tiny_of(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, name) == 0)
            return &tinies[i];
    fail_msg("%s", name);
    return NULL;
}

/* ---- files with an additional tensor ------------------------------------- */

typedef enum content {
    COPY,      /* of another tensor of the file */
    COPY_BF16, /* the same, rounded to 16 bits and back in the other one */
    CHANGED,   /* a copy with one number changed */
    SINES,     /* sinusoidal positions, shifted by a quarter */
    ZEROS,
    COUNTS,   /* 0, 1, 2, ... */
    TRIANGLE, /* of ones */
    ONES
} content;

typedef struct extra_tensor {
    const char *name;
    const char *of; /* of a copy; else NULL */
    content content;
    bauta_dtype dtype;
    unsigned rank;
    size_t shape[4];
} extra_tensor;

static const bt_stored_tensor *find(const tiny_weights *w, const char *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->names[i], name) == 0)
            return &w->tensors[i];
    fail_msg("%s", name);
    return NULL;
}

static void *filled(const extra_tensor *s, size_t bytes,
                    const bt_stored_tensor *of)
{
    unsigned char *data = calloc(bytes ? bytes : 1, 1);
    float *floats = (float *)(void *)data;
    assert_non_null(data);
    size_t n = s->shape[s->rank ? s->rank - 1 : 0];
    size_t count = bytes / bt_dtype_size(s->dtype);
    for (size_t i = 0; i < count; i++) {
        if (s->content == SINES)
            floats[i] = sinf((float)i + 0.25f);
        else if (s->content == COUNTS)
            ((int64_t *)(void *)data)[i] = (int64_t)(i % n);
        else if (s->content == TRIANGLE)
            data[i] = i % n <= i / n;
        else if (s->content == ONES)
            data[i] = 1;
    }
    if (s->content == COPY || s->content == CHANGED)
        memcpy(data, of->data, bytes);
    if (s->content == CHANGED)
        floats[count - 1] += 1.0f;
    if (s->content == COPY_BF16)
        bt_convert_from_f32(data, BAUTA_BFLOAT16, of->data, count);
    return data;
}

/* A folder of a family whose file has one additional tensor. */
static void extra_tensor_write(temp_folder *scr, const tiny *t,
                               const extra_tensor *s, char path[512])
{
    static tiny_weights w;
    char file[600];
    snprintf(path, 512, "%s", temp_folder_path(scr, t->name));
    mkdir(path, 0777);
    tiny_file(path, "config.json", t->config, strlen(t->config));
    tiny_weights_init(&w, path);
    bt_stored_tensor more = { .name = s->name,
                              .dtype = s->dtype,
                              .rank = s->rank };
    const bt_stored_tensor *of = s->of ? find(&w, s->of) : NULL;
    if (of)
        more.rank = of->rank;
    memcpy(more.shape, of ? of->shape : s->shape, 4 * sizeof(size_t));
    more.bytes = bt_stored_tensor_bytes(s->dtype, more.rank, more.shape);
    more.data = filled(s, more.bytes, of);
    if (s->content == COPY_BF16) // the original is exact in 16 bits
        bt_convert_f32((float *)(uintptr_t)of->data, more.data, BAUTA_BFLOAT16,
                       of->bytes / sizeof(float));
    w.tensors[w.count++] = more;
    int length = snprintf(file, sizeof(file), "%s/model.safetensors", path);
    assert_true(length > 0 && (size_t)length < sizeof(file));
    assert_int_equal(
        bt_safetensors_write(file, w.tensors, w.count, NULL, 0, NULL), 0);
    tiny_weights_release(&w);
}

/* ---- results ------------------------------------------------------------- */

static const struct {
    const char *family;
    extra_tensor tensor;
    bauta_status status;
    const char *message; /* the error, or the warnings, contains this */
} cases[] = {
    { "gpt2",
      { "lm_head.weight",
        "transformer.wte.weight",
        COPY,
        BAUTA_FLOAT32,
        2,
        { 0 } },
      BAUTA_OK,
      "" },
    { "gpt2",
      { "lm_head.weight",
        "transformer.wte.weight",
        COPY_BF16,
        BAUTA_BFLOAT16,
        2,
        { 0 } },
      BAUTA_OK,
      "" },
    { "gpt2",
      { "lm_head.weight",
        "transformer.wte.weight",
        CHANGED,
        BAUTA_FLOAT32,
        2,
        { 0 } },
      BAUTA_OK,
      "gpt2: lm_head.weight differs from transformer.wte.weight although "
      "tie_word_embeddings is true; the stored head is used" },
    { "gpt2",
      { "lm_head.weight", NULL, ZEROS, BAUTA_FLOAT32, 2, { 39, 16 } },
      BAUTA_ERR_FORMAT,
      "lm_head.weight is 39 x 16, not 40 x 16" },
    { "roberta",
      { "lm_head.decoder.weight",
        "roberta.embeddings.word_embeddings.weight",
        CHANGED,
        BAUTA_FLOAT32,
        2,
        { 0 } },
      BAUTA_OK,
      "lm_head.decoder.weight differs" },
    { "bert",
      { "cls.predictions.decoder.bias",
        "cls.predictions.bias",
        COPY,
        BAUTA_FLOAT32,
        1,
        { 0 } },
      BAUTA_OK,
      "" },
    { "bert",
      { "cls.predictions.decoder.bias",
        "cls.predictions.bias",
        CHANGED,
        BAUTA_FLOAT32,
        1,
        { 0 } },
      BAUTA_ERR_UNSUPPORTED,
      "cls.predictions.decoder.bias differs from cls.predictions.bias" },
    { "bert",
      { "bert.pooler.dense.weight", NULL, ZEROS, BAUTA_FLOAT32, 2, { 16, 16 } },
      BAUTA_OK,
      "bert: 1 tensor of the file is not used: bert.pooler.dense.weight" },
    { "bert",
      { "bert.embeddings.position_ids",
        NULL,
        COUNTS,
        BAUTA_INT64,
        2,
        { 1, 98 } },
      BAUTA_OK,
      "" },
    { "bert",
      { "bert.embeddings.position_ids",
        NULL,
        ZEROS,
        BAUTA_INT64,
        2,
        { 1, 98 } },
      BAUTA_OK,
      "not used: bert.embeddings.position_ids" },
    { "gpt2",
      { "transformer.h.0.attn.bias",
        NULL,
        TRIANGLE,
        BAUTA_UINT8,
        4,
        { 1, 1, 96, 96 } },
      BAUTA_OK,
      "" },
    { "gpt2",
      { "transformer.h.0.attn.bias",
        NULL,
        ONES,
        BAUTA_BOOL,
        4,
        { 1, 1, 96, 96 } },
      BAUTA_OK,
      "not used: transformer.h.0.attn.bias" },
    { "gpt2",
      { "transformer.h.1.attn.masked_bias",
        NULL,
        ZEROS,
        BAUTA_FLOAT32,
        0,
        { 0 } },
      BAUTA_OK,
      "" },
    { "llama",
      { "model.layers.0.self_attn.rotary_emb.inv_freq",
        NULL,
        ZEROS,
        BAUTA_FLOAT32,
        1,
        { 2 } },
      BAUTA_OK,
      "not used: model.layers.0.self_attn.rotary_emb.inv_freq" },
    { "llama",
      { "model.embed_positions.weight",
        NULL,
        ZEROS,
        BAUTA_FLOAT32,
        2,
        { 96, 16 } },
      BAUTA_ERR_UNSUPPORTED,
      "model.embed_positions.weight is not expected" },
    { "bart",
      { "model.encoder.embed_tokens.weight",
        "model.shared.weight",
        COPY,
        BAUTA_FLOAT32,
        2,
        { 0 } },
      BAUTA_OK,
      "" },
    { "marian",
      { "model.decoder.embed_tokens.weight",
        "model.shared.weight",
        CHANGED,
        BAUTA_FLOAT32,
        2,
        { 0 } },
      BAUTA_ERR_UNSUPPORTED,
      "model.decoder.embed_tokens.weight differs from model.shared.weight" },
    { "marian",
      { "model.encoder.embed_positions.weight",
        NULL,
        SINES,
        BAUTA_FLOAT32,
        2,
        { 96, 16 } },
      BAUTA_OK,
      "" },
    { "marian",
      { "model.encoder.embed_positions.weight",
        NULL,
        ZEROS,
        BAUTA_FLOAT32,
        2,
        { 95, 16 } },
      BAUTA_ERR_FORMAT,
      "model.encoder.embed_positions.weight is 95 x 16, not 96 x 16" },
};

static void each_tensor_is_used_refused_or_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        temp_folder s = temp_folder_create();
        char path[512];
        bauta_error err = { BAUTA_OK, "" };
        extra_tensor_write(&s, tiny_of(cases[i].family), &cases[i].tensor,
                           path);
        for (int trainable = 0; trainable < 2; trainable++) {
            bauta_model *model = NULL;
            bauta_status status =
                bauta_model_load(&model, path, trainable, &err);
            const char *text =
                status ? err.message : bauta_model_warnings(model);
            bool named = *cases[i].message
                             ? strstr(text, cases[i].message) != NULL
                             : !*text;
            if (status != cases[i].status || !named)
                fail_msg("%s, %s: status %d, \"%s\"", cases[i].family,
                         cases[i].tensor.name, status, text);
            bauta_model_free(model);
        }
        temp_folder_free(&s);
    }
}

/* ---- used tensors -------------------------------------------------------- */

enum { ROWS = 7, VOCAB = 40, WIDTH = 16 };

static void forward(const char *path, float *logits, float *embedded,
                    bauta_model **keep)
{
    static const uint32_t ids[ROWS] = { 3, 1, 4, 1, 5, 9, 2 };
    static const size_t length = ROWS;
    static float states[3 * ROWS * WIDTH];
    bauta_context *context;
    bauta_model *model;
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs out = BAUTA_OUTPUTS_INIT;
    batch.count = 1;
    batch.lengths = &length;
    batch.ids = ids;
    assert_int_equal(bauta_context_create(&context, NULL, NULL), 0);
    if (bauta_model_load(&model, path, false, &err))
        fail_msg("%s", err.message);
    bool encoder = bauta_model_kind_of(model) != BAUTA_DECODER_ONLY;
    out.logits = logits;
    out.encoder_states = encoder ? states : NULL;
    if (bauta_model_forward(context, model, encoder ? &batch : NULL, &batch,
                            &out, &err))
        fail_msg("%s", err.message);
    if (embedded)
        memcpy(embedded, states, ROWS * WIDTH * sizeof(float));
    bauta_context_free(context);
    if (keep)
        *keep = model;
    else
        bauta_model_free(model);
}

/* The head differs in the last column of the last token only. */
static void a_stored_head_is_used(void **state)
{
    static float tied[ROWS * VOCAB], own[ROWS * VOCAB], saved[ROWS * VOCAB];
    const extra_tensor changed = { "lm_head.weight",
                                   "transformer.wte.weight",
                                   CHANGED,
                                   BAUTA_FLOAT32,
                                   2,
                                   { 0 } };
    temp_folder s = temp_folder_create();
    char path[512], copy[512];
    bauta_model *model;
    (void)state;
    tiny_write(&s, tiny_of("gpt2"), path);
    forward(path, tied, NULL, NULL);
    extra_tensor_write(&s, tiny_of("gpt2"), &changed, path);
    forward(path, own, NULL, &model);
    for (size_t i = 0; i < ROWS * VOCAB; i++)
        assert_true((own[i] == tied[i]) == (i % VOCAB != VOCAB - 1));
    // The saved model is the same.
    snprintf(copy, sizeof(copy), "%s", temp_folder_path(&s, "copy"));
    assert_int_equal(bauta_model_save(model, copy, NULL), 0);
    bauta_model_free(model);
    forward(copy, saved, NULL, NULL);
    assert_memory_equal(saved, own, sizeof(own));
    temp_folder_free(&s);
}

static void stored_positions_are_used(void **state)
{
    static float plain[ROWS * WIDTH], own[ROWS * WIDTH], logits[ROWS * VOCAB],
        again[ROWS * VOCAB];
    const extra_tensor sines = { "model.encoder.embed_positions.weight",
                                 NULL,
                                 SINES,
                                 BAUTA_FLOAT32,
                                 2,
                                 { 96, WIDTH } };
    temp_folder s = temp_folder_create();
    char path[512], copy[512];
    bauta_model *model;
    (void)state;
    tiny_write(&s, tiny_of("marian"), path);
    forward(path, logits, plain, NULL);
    extra_tensor_write(&s, tiny_of("marian"), &sines, path);
    forward(path, logits, own, &model);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        // token x 4 + position, of which only the position differs
        double t = (double)(i / WIDTH), c = (double)(i % WIDTH);
        double angle = t / pow(10000, 2 * fmod(c, WIDTH / 2) / WIDTH);
        double computed = c < WIDTH / 2 ? sin(angle) : cos(angle);
        double stored = (double)sinf((float)i + 0.25f);
        assert_true(fabs((double)own[i] - (double)plain[i] -
                         (stored - computed)) < 1e-5);
    }
    snprintf(copy, sizeof(copy), "%s", temp_folder_path(&s, "copy"));
    assert_int_equal(bauta_model_save(model, copy, NULL), 0);
    assert_int_equal(bauta_model_pack(model, BAUTA_FLOAT32, NULL), 0);
    bauta_model_free(model);
    forward(copy, again, NULL, NULL);
    assert_memory_equal(again, logits, sizeof(logits));
    // A table is loaded as it is: training does not change it.
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    size_t found = 0;
    assert_int_equal(bauta_model_load(&model, path, true, NULL), 0);
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        assert_int_equal(bauta_model_tensor(model, i, &tensor, NULL), 0);
        if (strstr(tensor.name, "embed_positions")) {
            assert_null(tensor.gradient);
            found++;
        }
    }
    assert_int_equal(found, 1);
    bauta_model_free(model);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_is_used_refused_or_named),
        cmocka_unit_test(a_stored_head_is_used),
        cmocka_unit_test(stored_positions_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

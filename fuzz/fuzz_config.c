/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_config.c - any bytes as the config.json of a model, of each family.
 *
 * A folder with this config and no weights is refused with a message. If the
 * config is of a small model, one is created or refused; a model describes
 * itself as JSON and runs some tokens. */
#include "model/model_store.h"
#include "temp_folder.h"

#include <jansson.h>

static void folder_load(const uint8_t *bytes, size_t size)
{
    static const char none[] = "\2\0\0\0\0\0\0\0{}";
    bauta_model *model;
    bauta_error err = { 0 };
    if (temp_folder_make())
        temp_folder_put("model.safetensors", none, sizeof(none) - 1);
    temp_folder_put("config.json", bytes, size);
    bauta_status status =
        bauta_model_load(&model, temp_folder_root, false, &err);
    must(!model);
    must_refuse(status, &err);
}

static bool stack_small(const bt_stack_config *stack)
{
    return stack->layers <= 4 && stack->ffn_dim <= 64 && stack->heads <= 8 &&
           stack->kv_heads <= 8;
}

/* Whether the config describes a model small enough to be created quickly. */
static bool small(const char *text, size_t size)
{
    bt_config_reader *config;
    bt_model_config model_config = { 0 };
    if (bt_config_reader_parse(&config, text, size, NULL))
        return false;
    const bt_family *family = bt_family_find(config);
    if (family)
        family->read_config(&model_config, config);
    bool fits =
        family && !bt_config_reader_status(config, NULL) &&
        stack_small(&model_config.encoder) &&
        stack_small(&model_config.decoder) && model_config.vocab_size <= 256 &&
        model_config.width <= 64 && model_config.head_dim <= 64 &&
        model_config.max_positions <= 256 && model_config.token_types <= 8 &&
        model_config.position_offset <= 256;
    bt_config_reader_free(config);
    return fits;
}

static void describe(const bauta_model *model)
{
    size_t length = bauta_model_describe(model, NULL, 0);
    char *text = malloc(length + 1);
    must(text && bauta_model_describe(model, text, length + 1) == length);
    json_t *object = json_loadb(text, length, 0, NULL);
    must(json_is_object(object));
    json_decref(object);
    free(text);
}

/* Three tokens, or none if the vocabulary is smaller. */
static void forward(const bauta_model *model)
{
    static bauta_context *context;
    const bauta_options options = { .size = sizeof(options), .threads = 1 };
    const uint32_t ids[] = { 1, 0, 2 };
    const size_t length = 3;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err = { 0 };
    size_t vocabulary = bauta_model_vocab_size(model);
    batch.count = 1;
    batch.lengths = &length;
    batch.ids = ids;
    outputs.logits = malloc(3 * vocabulary * sizeof(float));
    must(outputs.logits != NULL);
    must(context || !bauta_context_create(&context, &options, NULL));
    bool encoder = bauta_model_encoder_layers(model) > 0;
    bool decoder = bauta_model_decoder_layers(model) > 0;
    bauta_status status =
        bauta_model_forward(context, model, encoder ? &batch : NULL,
                            decoder ? &batch : NULL, &outputs, &err);
    if (status)
        must_refuse(status, &err);
    free(outputs.logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_model *model;
    bauta_error err = { 0 };
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, bytes, size);
    text[size] = '\0';
    folder_load(bytes, size);
    if (small(text, strlen(text))) {
        bauta_status status = bauta_model_create(&model, text, 1, &err);
        if (status) {
            must_refuse(status, &err);
        } else {
            describe(model);
            forward(model);
        }
        bauta_model_free(model);
    }
    free(text);
    return 0;
}

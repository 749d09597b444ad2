/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shard_index.c - any bytes as a model.safetensors.index.json.
 *
 * Beside it are a config and two shards, one.safetensors and two.safetensors,
 * which hold the tensors of a small GPT-2. The index is refused with a message,
 * or the model has all of its parameters. */
#include "formats/safetensors.h"
#include "temp_folder.h"

enum { TENSORS_MAX = 64, PARAMETERS = 428 };

static const char config[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 4, \"n_head\": 1, \"n_layer\": 1, "
    "\"vocab_size\": 40, \"n_positions\": 4}";

static void shard_write(const char *name, const bt_safetensors *file,
                        size_t first, size_t end)
{
    bt_stored_tensor tensors[TENSORS_MAX];
    for (size_t i = first; i < end; i++)
        tensors[i - first] = *bt_safetensors_at(file, i);
    must(!bt_safetensors_write(temp_folder_path(name), tensors, end - first,
                               NULL, 0, NULL));
}

static void shards_write(void)
{
    bauta_model *model;
    bt_safetensors *file;
    char whole[128];
    must(!bauta_model_create(&model, config, 1, NULL));
    must(bauta_model_parameter_count(model) == PARAMETERS);
    snprintf(whole, sizeof(whole), "%s", temp_folder_path("whole"));
    must(!bauta_model_save(model, whole, NULL));
    bauta_model_free(model);
    must(!bt_safetensors_open(
        &file, temp_folder_path("whole/model.safetensors"), NULL));
    size_t count = bt_safetensors_count(file);
    must(count > 2 && count <= TENSORS_MAX);
    shard_write("one.safetensors", file, 0, count / 2);
    shard_write("two.safetensors", file, count / 2, count);
    bt_safetensors_free(file);
    temp_folder_put("config.json", config, sizeof(config) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_model *model;
    bauta_error err = { 0 };
    if (temp_folder_make())
        shards_write();
    temp_folder_put("model.safetensors.index.json", bytes, size);
    bauta_status status =
        bauta_model_load(&model, temp_folder_root, false, &err);
    must(!model == !!status);
    if (status)
        must_refuse(status, &err);
    else
        must(bauta_model_parameter_count(model) == PARAMETERS);
    bauta_model_free(model);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* model_digests.c - verifying a model against the digests of its checkpoint.
 *
 * A checkpoint's trainer.json has digests of the weights and the config. A
 * folder without a trainer.json is not verified. */
#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"
#include "formats/json.h"
#include "formats/run_folder.h"
#include "model/api.h"

uint64_t bt_model_weights_digest(const bauta_model *model, const float *weights)
{
    uint64_t digest = 1;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const bt_named_tensor *e = &model->tensors[i];
        const bt_tensor *t = e->tensor;
        digest = bt_digest_bytes(digest, e->name, strlen(e->name));
        digest = bt_digest_mix(digest, t->rows);
        digest =
            bt_digest_bytes(digest, bt_model_tensor_data(model, e, weights),
                            t->rows * t->columns * sizeof(float));
    }
    return digest;
}

/* Over the config as it would be saved, independent of whitespace and the order
 * of keys. */
bauta_status bt_model_config_digest(uint64_t *digest, const bauta_model *model,
                                    bauta_error *err)
{
    char *text;
    bauta_status status =
        bt_config_reader_save(&text, model->store->reader, "", err);
    if (status)
        return status;
    json_t *config;
    (void)bt_json_parse_object(&config, text, strlen(text), 0, "config.json",
                               NULL);
    (void)json_object_del(config, "architectures");
    char *plain = bt_json_dump(config, JSON_COMPACT | JSON_SORT_KEYS |
                                           JSON_REAL_PRECISION(17));
    if (plain)
        *digest = bt_digest_bytes(1, plain, strlen(plain));
    else
        status = bt_fail_memory(err, "a model's config", strlen(text));
    bt_free(plain);
    json_decref(config);
    bt_free(text);
    return status;
}

bauta_status bt_model_has_digests(bool *has, const char *folder,
                                  bauta_error *err)
{
    json_t *record;
    bauta_status status = bt_trainer_record_open(&record, folder, err);
    *has = !status && record;
    json_decref(record);
    return status;
}

bauta_status bt_model_verify(const bauta_model *model, const char *folder,
                             bauta_error *err)
{
    json_t *record;
    uint64_t config;
    bauta_status status = bt_trainer_record_open(&record, folder, err);
    if (status || !record)
        return status;
    const json_t *digests = json_object_get(record, "digests");
    status = bt_model_config_digest(&config, model, err);
    if (!status)
        status = bt_digest_check(digests, "config", config, folder,
                                 "config.json", err);
    if (!status)
        status = bt_digest_check(
            digests, "weights",
            bt_model_weights_digest(model, model->store->weights.memory),
            folder, "model.safetensors", err);
    json_decref(record);
    return status;
}

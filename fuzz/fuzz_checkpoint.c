/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_checkpoint.c - any bytes as a trainer.json.
 *
 * They are refused with a message that names the file, or are valid. An object
 * to which a checksum is added reads back the same; and whatever its contents,
 * it is read as the record of a run or refused with a message. */
#include "base/error.h"
#include "base/memory.h"
#include "formats/sealed_json.h"
#include "train/checkpoint.h"

#include <stdlib.h>
#include <string.h>

static const char path[] = "trainer.json";

static void must(bool fine)
{
    if (!fine)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A constant trainer against which records are checked. */
static const bauta_trainer *trainer_of(void)
{
    static bauta_trainer *trainer;
    bauta_context *context;
    bauta_model *model;
    bauta_corpus *corpus;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    const uint32_t tokens[] = { 1, 2, 3 };
    if (trainer)
        return trainer;
    must(!bauta_context_create(&context, NULL, NULL));
    must(!bauta_model_create(&model,
                             "{\"model_type\": \"gpt2\", \"n_embd\": 4, "
                             "\"n_head\": 1, \"n_layer\": 1, \"vocab_size\": "
                             "4, \"n_positions\": 4}",
                             1, NULL));
    must(!bauta_corpus_create(&corpus, NULL));
    must(!bauta_corpus_add(corpus, tokens, 3, NULL, 0, NULL));
    must(!bauta_trainer_create(&trainer, context, model, NULL, corpus, &options,
                               NULL));
    return trainer;
}

static void record_read(const json_t *object)
{
    bt_train_progress progress;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status =
        bt_trainer_record_read(&progress, object, trainer_of(), path, &err);
    must(status == err.status);
    if (status)
        must(strstr(err.message, path) != NULL);
    else
        must(progress.updates <= progress.step &&
             progress.epoch <= progress.step);
}

static void seal_round_trip(json_t *object)
{
    char *text;
    json_t *again;
    bauta_error err;
    (void)json_object_del(object, "seal");
    json_t *plain = json_deep_copy(object);
    bauta_status status = bt_sealed_json_text(&text, object, path, &err);
    must(!status || status == BAUTA_ERR_ARGUMENT); // it may be too long
    if (!status) {
        must(!bt_sealed_json_parse(&again, text, strlen(text), path, &err));
        must(json_equal(again, plain));
        json_decref(again);
    }
    bt_free(text);
    json_decref(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    json_t *object;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status =
        bt_sealed_json_parse(&object, (const char *)bytes, size, path, &err);
    must(!object == !!status && status == err.status);
    if (status)
        must(status == BAUTA_ERR_FORMAT && strstr(err.message, path));
    json_decref(object);

    object =
        json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(object)) {
        record_read(object);
        seal_round_trip(object);
    }
    json_decref(object);
    return 0;
}

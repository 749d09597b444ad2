/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_run_notes.c - any bytes as the trainer.json of a run's checkpoint, and
 * an object as the notes that the program left in one.
 *
 * The file is skipped or refused with a message, unless it is valid. Notes in a
 * valid one come back unchanged, and the program reads settings from them or
 * refuses them with a message. */
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/train.h"
#include "formats/sealed_json.h"
#include "temp_folder.h"

static bool checkpoint_whole(const void *bytes, size_t size, char **notes)
{
    char *last;
    char step[128];
    bauta_error err = { 0 };
    if (temp_folder_make())
        must(!mkdir(temp_folder_path("step-00000003"), 0700));
    temp_folder_put("step-00000003/trainer.json", bytes, size);
    must(!bauta_run_last(&last, temp_folder_root, &err));
    snprintf(step, sizeof(step), "%s", temp_folder_path("step-00000003"));
    must(!last || !strcmp(last, step));
    bauta_status status = bauta_checkpoint_notes(notes, step, &err);
    must(!last == !!status);
    if (status)
        must_refuse(status, &err);
    bauta_text_free(last);
    return !status;
}

static void settings_take(const json_t *notes)
{
    settings s = SETTINGS_INIT;
    const json_t *from = json_object_get(notes, "settings");
    if (!json_is_object(from))
        return;
    int status = settings_from_json(&s, from, "run");
    must(status == CLI_OK || status == CLI_FAILED);
    settings_release(&s);
}

static void notes_round_trip(json_t *object)
{
    char *text, *notes = NULL;
    bauta_error err;
    json_t *record = json_pack("{s:i, s:O}", "format", 1, "notes", object);
    must(record != NULL);
    if (!bt_sealed_json_text(&text, record, "trainer.json", &err)) {
        must(checkpoint_whole(text, strlen(text), &notes) && notes);
        json_t *again = json_loads(notes, 0, NULL);
        must(json_equal(again, object));
        settings_take(again);
        json_decref(again);
        bauta_text_free(notes);
    }
    bt_free(text);
    json_decref(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *notes = NULL;
    checkpoint_whole(bytes, size, &notes);
    bauta_text_free(notes);
    json_t *object =
        json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(object))
        notes_round_trip(object);
    json_decref(object);
    return 0;
}

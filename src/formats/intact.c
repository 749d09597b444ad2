/* SPDX-License-Identifier: Apache-2.0 */
/* intact.c - files of a checkpoint against the digests in its trainer.json. */
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/run.h"
#include "formats/sealed.h"

#include <inttypes.h>
#include <stdio.h>

bauta_status bt_record_open(json_t **out, const char *folder, bauta_error *err)
{
    *out = NULL;
    bauta_status status = BAUTA_OK;
    char *path = bt_path_join(folder, "trainer.json");
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(folder));
    if (bt_file_exists(path))
        status = bt_sealed_read(out, path, err);
    bt_free(path);
    return status;
}

bauta_status bt_intact_check(const json_t *digests, const char *key,
                             uint64_t is, const char *folder, const char *file,
                             bauta_error *err)
{
    char text[17];
    const char *was = json_string_value(json_object_get(digests, key));
    snprintf(text, sizeof(text), "%016" PRIx64, is);
    if (!was || strcmp(was, text) == 0)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s/%s: is damaged or was changed: trainer.json has "
                   "another digest of it (delete that to load it anyway)",
                   bt_path_tail(folder), file);
}

static bauta_status file_check(const json_t *files, const char *folder,
                               const char *name, bauta_error *err)
{
    bt_file_map map;
    if (!json_object_get(files, name))
        return BAUTA_OK;
    char *path = bt_path_join(folder, name);
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(folder));
    bauta_status status = bt_file_map_init(&map, path, err);
    if (!status)
        status = bt_intact_check(files, name,
                                 bt_digest_bytes(1, map.bytes, map.size),
                                 folder, name, err);
    bt_file_map_release(&map);
    bt_free(path);
    return status;
}

bauta_status bt_tokenizer_files_check(const char *folder, bauta_error *err)
{
    json_t *record;
    bauta_status status = bt_record_open(&record, folder, err);
    const json_t *files = json_object_get(record, "files");
    for (size_t i = 0; !status && bt_tokenizer_names[i]; i++)
        status = file_check(files, folder, bt_tokenizer_names[i], err);
    json_decref(record);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_files.c - the files of a checkpoint: removing them, and checking
 * them against the digests in trainer.json.
 *
 * A folder is removed only if all files in it are ones that bauta writes there:
 * a folder with a file of the user's is left alone. Links are not followed. */
#include "base/atomic_directory.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/run_folder.h"
#include "formats/sealed_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const bt_tokenizer_names[] = {
    "tokenizer.json",    "tokenizer_config.json",
    "vocab.json",        "special_tokens_map.json",
    "merges.txt",        "added_tokens.json",
    "encoder.json",      "vocab.bpe",
    "tokenizer.model",   "spiece.model",
    "source.spm",        "target.spm",
    "target_vocab.json", "vocab.txt",
    "series.json",       NULL,
};

static const char *const checkpoint_names[] = {
    "config.json",           "generation_config.json", "model.safetensors",
    "optimizer.safetensors", "trainer.json",           NULL,
};

bool bt_is_temporary_name(const char *name, const char *ending)
{
    static const char start[] = ".bauta-", digits[] = "0123456789";
    if (strncmp(name, start, sizeof(start) - 1) != 0)
        return false;
    name += sizeof(start) - 1;
    size_t process = strspn(name, digits);
    if (process == 0 || name[process] != '-')
        return false;
    name += process + 1;
    size_t count = strspn(name, digits);
    return count > 0 && strcmp(name + count, ending) == 0;
}

static bool is_listed(const char *name, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Whether a name is a regular file that bauta writes into checkpoints. */
static bool is_ours(int folder, const char *name)
{
    struct stat is;
    return (is_listed(name, checkpoint_names) ||
            is_listed(name, bt_tokenizer_names) ||
            bt_is_temporary_name(name, ".tmp")) &&
           fstatat(folder, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(is.st_mode);
}

static bauta_status fail_errno(bauta_error *err, const char *path)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: cannot remove it: %s",
                   bt_path_tail(path), strerror(errno));
}

static bauta_status ours_check(DIR *entries, const char *path, bauta_error *err)
{
    for (struct dirent *e; (e = readdir(entries));)
        if (is_entry(e->d_name) && !is_ours(dirfd(entries), e->d_name))
            return bt_fail(err, BAUTA_ERR_IO,
                           "%s: is not removed, because bauta did not write "
                           "'%s' in it",
                           bt_path_tail(path), bt_quote(e->d_name).text);
    rewinddir(entries);
    return BAUTA_OK;
}

/* trainer.json is removed first: without it, what is left is not taken for a
 * checkpoint. */
static bauta_status files_remove(DIR *entries, const char *path,
                                 bauta_error *err)
{
    int folder = dirfd(entries);
    if (unlinkat(folder, "trainer.json", 0) != 0 && errno != ENOENT)
        return fail_errno(err, path);
    for (struct dirent *e; (e = readdir(entries));)
        if (is_entry(e->d_name) && unlinkat(folder, e->d_name, 0) != 0 &&
            errno != ENOENT)
            return fail_errno(err, path);
    return BAUTA_OK;
}

bauta_status bt_checkpoint_remove(int parent, const char *name,
                                  const char *path, bauta_error *err)
{
    DIR *entries = bt_directory_open(parent, name);
    if (!entries && errno == ENOENT)
        return BAUTA_OK;
    if (!entries && (errno == ELOOP || errno == ENOTDIR))
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: is not removed, because it is not a folder",
                       bt_path_tail(path));
    if (!entries)
        return fail_errno(err, path);
    bauta_status status = ours_check(entries, path, err);
    if (!status)
        status = files_remove(entries, path, err);
    closedir(entries);
    if (!status && unlinkat(parent, name, AT_REMOVEDIR) != 0)
        status = fail_errno(err, path);
    return status;
}

bauta_status bauta_checkpoint_remove(const char *folder, bauta_error *err)
{
    BT_NEED(folder, err);
    int parent;
    const char *name;
    char *path = bt_path_strip_slashes(folder);
    if (!path)
        return bt_fail_memory(err, "the name of a folder", strlen(folder) + 1);
    bauta_status status = bt_path_open_parent(&parent, &name, path, err);
    if (!status) {
        status = bt_checkpoint_remove(parent, name, path, err);
        close(parent);
    }
    bt_free(path);
    return status;
}

/* ---- digests ----------------------------------------------------------- */

bauta_status bt_trainer_record_open(json_t **out, const char *folder,
                                    bauta_error *err)
{
    *out = NULL;
    bauta_status status = BAUTA_OK;
    char *path = bt_path_join(folder, "trainer.json");
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(folder));
    if (bt_file_exists(path))
        status = bt_sealed_json_read(out, path, err);
    bt_free(path);
    return status;
}

bauta_status bt_digest_check(const json_t *digests, const char *key,
                             uint64_t is, const char *folder, const char *file,
                             bauta_error *err)
{
    char text[17];
    const char *was = json_string_value(json_object_get(digests, key));
    snprintf(text, sizeof(text), "%016" PRIx64, is);
    if (!was || strcmp(was, text) == 0)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_FORMAT,
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
        status = bt_digest_check(files, name,
                                 bt_digest_bytes(1, map.bytes, map.size),
                                 folder, name, err);
    bt_file_map_release(&map);
    bt_free(path);
    return status;
}

bauta_status bt_tokenizer_files_check(const char *folder, bauta_error *err)
{
    json_t *record;
    bauta_status status = bt_trainer_record_open(&record, folder, err);
    const json_t *files = json_object_get(record, "files");
    for (size_t i = 0; !status && bt_tokenizer_names[i]; i++)
        status = file_check(files, folder, bt_tokenizer_names[i], err);
    json_decref(record);
    return status;
}

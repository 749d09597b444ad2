/* SPDX-License-Identifier: Apache-2.0 */
/* run_folder.c - finding the checkpoints of a run. */
#include "formats/run_folder.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/sealed_json.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct checkpoint {
    uint64_t number;
    char name[32];
} checkpoint;

typedef struct checkpoint_list {
    checkpoint *list;
    size_t count, room;
} checkpoint_list;

/* Whether a name is step-<number>. */
static bool name_read(checkpoint *out, const char *name)
{
    static const char start[] = "step-";
    size_t length = strlen(name), digits = length - (sizeof(start) - 1);
    if (strncmp(name, start, sizeof(start) - 1) != 0 || digits == 0 ||
        digits > 18)
        return false;
    out->number = 0;
    for (const char *at = name + sizeof(start) - 1; *at; at++) {
        if (*at < '0' || *at > '9')
            return false;
        out->number = out->number * 10 + (uint64_t)(*at - '0');
    }
    memcpy(out->name, name, length + 1);
    return true;
}

static bauta_status entries_list(checkpoint_list *l, DIR *entries,
                                 const char *run, bauta_error *err)
{
    for (;;) {
        checkpoint found;
        errno = 0;
        struct dirent *e = readdir(entries);
        if (!e && errno)
            return bt_fail(err, BAUTA_ERR_IO, "%s: cannot list it: %s",
                           bt_path_tail(run), strerror(errno));
        if (!e)
            return BAUTA_OK;
        if (!name_read(&found, e->d_name))
            continue;
        if (BT_ARRAY_RESERVE(l->list, l->room, l->count, 1))
            return bt_fail_memory(err, "a list of checkpoints", sizeof(found));
        l->list[l->count++] = found;
    }
}

/* The largest number first. */
static int compare(const void *a, const void *b)
{
    uint64_t x = ((const checkpoint *)a)->number;
    uint64_t y = ((const checkpoint *)b)->number;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* *out stays NULL for an incomplete checkpoint. */
static bauta_status complete_check(char **out, const char *run,
                                   const char *name, bauta_error *err)
{
    json_t *object = NULL;
    char *folder = bt_path_join(run, name);
    char *path = folder ? bt_path_join(folder, "trainer.json") : NULL;
    bauta_status status = path ? bt_sealed_json_read(&object, path, err)
                               : bt_fail_memory(err, "the name of a file", 0);
    json_decref(object);
    bt_free(path);
    if (!status)
        *out = folder;
    else
        bt_free(folder);
    return status == BAUTA_ERR_NOMEM ? status : BAUTA_OK;
}

bauta_status bt_run_last_checkpoint(char **out, const char *run,
                                    bauta_error *err)
{
    checkpoint_list l = { 0 };
    *out = NULL;
    DIR *entries = opendir(run);
    if (!entries && errno == ENOENT)
        return BAUTA_OK;
    if (!entries)
        return bt_fail(err, BAUTA_ERR_IO, "%s: cannot list it: %s",
                       bt_path_tail(run), strerror(errno));
    bauta_status status = entries_list(&l, entries, run, err);
    closedir(entries);
    if (l.count)
        qsort(l.list, l.count, sizeof(*l.list), compare);
    for (size_t i = 0; !status && !*out && i < l.count; i++)
        status = complete_check(out, run, l.list[i].name, err);
    bt_free(l.list);
    return status;
}

static bool holds(const char *folder, const char *name, bool *failed)
{
    char *path = bt_path_join(folder, name);
    bool is = path && bt_file_exists(path);
    *failed |= !path;
    bt_free(path);
    return is;
}

bauta_status bt_run_resolve(char **out, const char *folder, bauta_error *err)
{
    bool failed = false;
    *out = NULL;
    bool itself = holds(folder, "config.json", &failed);
    bool best = !itself && holds(folder, "best", &failed);
    // Opening the folder later reports an error if it does not exist.
    if (!failed && !itself && !best &&
        bt_run_last_checkpoint(out, folder, err) == BAUTA_ERR_NOMEM)
        return BAUTA_ERR_NOMEM;
    size_t size = strlen(folder) + 1;
    if (!failed && !*out) {
        *out = best ? bt_path_join(folder, "best") : bt_alloc(size);
        if (*out && !best)
            memcpy(*out, folder, size);
    }
    return *out ? BAUTA_OK : bt_fail_memory(err, "the name of a folder", size);
}

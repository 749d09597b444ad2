/* SPDX-License-Identifier: Apache-2.0 */
/* average_models.c - checkpoint averaging: the mean of several models' weights.
 *
 * Sums are in double and in the given order. The mean of equal weights is
 * exactly those weights. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/run_folder.h"
#include "model/api.h"

#include <string.h>

/* ---- the mean ------------------------------------------------------------ */

static bauta_status same_check(const bauta_model *a, const bauta_model *b,
                               const char *folder, bauta_error *err)
{
    bool same = a->store->family == b->store->family &&
                a->tensor_count == b->tensor_count;
    for (size_t i = 0; same && i < a->tensor_count; i++) {
        const bt_named_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        same = strcmp(x->name, y->name) == 0 &&
               x->tensor->rows == y->tensor->rows &&
               x->tensor->columns == y->tensor->columns;
        if (!same)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: tensor %s differs from that of the first model",
                           bt_path_tail(folder), bt_quote(y->name).text);
    }
    return same ? BAUTA_OK
                : bt_fail(err, BAUTA_ERR_ARGUMENT,
                          "%s: the model is of another kind than the first",
                          bt_path_tail(folder));
}

static void mean_set(bauta_model *const *models, size_t count)
{
    for (size_t i = 0; i < models[0]->tensor_count; i++) {
        const bt_tensor *to = models[0]->tensors[i].tensor;
        float *data = bt_tensor_host(to);
        for (size_t j = 0; j < to->rows * to->columns; j++) {
            double sum = 0.0;
            for (size_t m = 0; m < count; m++) {
                const float *from =
                    bt_tensor_host(models[m]->tensors[i].tensor);
                sum += (double)from[j];
            }
            data[j] = (float)(sum / (double)count);
        }
    }
}

/* ---- the folder ---------------------------------------------------------- */

/* Copy a file if it is there. */
static bauta_status file_copy(const bt_atomic_directory *to, const char *folder,
                              const char *name, bauta_error *err)
{
    bt_file_map map;
    bauta_status status = BAUTA_OK;
    char *path = bt_path_join(folder, name);
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(folder));
    if (bt_file_exists(path)) {
        status = bt_file_map_init(&map, path, err);
        if (!status)
            status =
                bt_atomic_directory_write(to, name, map.bytes, map.size, err);
        bt_file_map_release(&map);
    }
    bt_free(path);
    return status;
}

static bauta_status tokenizer_copy(const bt_atomic_directory *to,
                                   const char *folder, bauta_error *err)
{
    char *resolved;
    bauta_status status = bt_run_resolve(&resolved, folder, err);
    for (size_t i = 0; !status && bt_tokenizer_names[i]; i++)
        status = file_copy(to, resolved, bt_tokenizer_names[i], err);
    bt_free(resolved);
    return status;
}

static bauta_status mean_write(const char *out, const bauta_model *model,
                               const char *first, bauta_error *err)
{
    bt_atomic_directory *to;
    bauta_status status = bt_atomic_directory_create(&to, out, err);
    if (status)
        return status;
    status = bt_model_write(model, model->store->weights.memory, to, err);
    if (!status)
        status = tokenizer_copy(to, first, err);
    if (!status)
        status = bt_atomic_directory_commit(to, err);
    bt_atomic_directory_free(to);
    return status;
}

bauta_status bauta_model_average(const char *out, const char *const *folders,
                                 size_t count, bauta_error *err)
{
    BT_NEED(out, err);
    BT_NEED(folders, err);
    if (count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are no models to average");
    BT_NEED_COUNT("folders", count, sizeof(*folders), err);
    for (size_t i = 0; i < count; i++)
        if (!folders[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "folders[%zu] is NULL", i);
    bauta_status status = BAUTA_OK;
    bauta_model **models = bt_alloc_zero(count, sizeof(*models));
    if (!models)
        return bt_fail_memory(err, "a list of models", count * sizeof(*models));
    for (size_t i = 0; !status && i < count; i++) {
        status = bauta_model_load(&models[i], folders[i], i == 0, err);
        if (!status)
            status = same_check(models[0], models[i], folders[i], err);
    }
    if (!status) {
        mean_set(models, count);
        status = mean_write(out, models[0], folders[0], err);
    }
    for (size_t i = 0; i < count; i++)
        bauta_model_free(models[i]);
    bt_free(models);
    return status;
}

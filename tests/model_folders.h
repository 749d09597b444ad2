/* SPDX-License-Identifier: Apache-2.0 */
/* model_folders.h - the model folders that tests use: one of each family in the
 * tree, written by tools/make-model-fixtures.py, and those of the data
 * folder. */
#ifndef BT_TEST_MODEL_FOLDERS_H
#define BT_TEST_MODEL_FOLDERS_H

#include "base/error.h"
#include "data.h"
#include "model/model_store.h"
#include "testing.h"
#include "train/optimizer.h"

static const struct {
    const char *path;
    bool tree; /* in the tree, or else in the data folder */
} test_folders[] = {
    { "models/gpt2-odd", true },
    { "models/llama-odd", true },
    { "models/qwen2", true },
    { "models/qwen2-window3", true },
    { "models/qwen3", true },
    { "models/roberta", true },
    { "models/bart", true },
    { "models/t5", true },
    { "models/t5-v1.1", true },
    { "models/gemma2", true },
    { "models/gemma3", true },
    { "models/mpt", true },
    { "hf-tiny-random/gpt2", false },
    { "hf-tiny-random/gpt2-nopad", false },
    { "hf-tiny-random/llama-gqa", false },
    { "hf-tiny-random/llama3-rope-tied", false },
    { "hf-tiny-random/mistral-sliding-window4", false },
    { "hf-tiny-random/bert-mlm", false },
    { "hf-tiny-random/marian", false },
    { "hf-tiny-random/t5-gated-gelu", false },
    { "stories260K-hf", false },
    { "gpt-nano-sort-hf", false },
};

/* The path of a folder, or NULL if the data folder is missing. */
static inline const char *test_folder_path(char *buffer, size_t size,
                                           size_t index)
{
    return (test_folders[index].tree ? test_tree_path : test_data_path)(
        buffer, size, test_folders[index].path);
}

/* All parameters of a folder that are trained, as an optimizer takes them. */
typedef struct trained {
    bt_parameter all[256];
    size_t count;
} trained;

static inline void trained_add(void *user, const char *name, bt_tensor *t,
                               int rank)
{
    trained *l = user;
    (void)name;
    (void)rank;
    assert_true(l->count < BT_LEN(l->all));
    if (t->requires_grad)
        l->all[l->count++] = (bt_parameter){ .tensor = t, .decay = true };
}

static inline void trained_collect(trained *l, bt_model_store *folder)
{
    bt_model_store_visit(folder, &(bt_tensor_visitor){ trained_add, l });
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* subword_model.c - the workspace of the subword models. */
#include "text/subword/subword_model.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

void bt_subword_workspace_release(bt_subword_workspace *work)
{
    bt_free(work->tokens);
    bt_free(work->scratch);
    memset(work, 0, sizeof(*work));
}

bauta_status bt_subword_reserve_tokens(bt_subword_workspace *work, size_t more,
                                       bauta_error *err)
{
    if (BT_ARRAY_RESERVE(work->tokens, work->capacity, work->count, more))
        return bt_fail_memory(
            err, "tokens",
            bt_size_mul(bt_size_add(work->count, more), sizeof(bt_token)));
    return BAUTA_OK;
}

bauta_status bt_subword_append(bt_subword_workspace *work, bt_token token,
                               bauta_error *err)
{
    bauta_status status = bt_subword_reserve_tokens(work, 1, err);
    if (!status)
        work->tokens[work->count++] = token;
    return status;
}

bauta_status bt_subword_reserve_scratch(bt_subword_workspace *work, size_t size,
                                        bauta_error *err)
{
    if (size <= work->scratch_size)
        return BAUTA_OK;
    // Grow by half, so that increasing sizes do not allocate each time.
    size_t larger = bt_size_max(
        size, bt_size_add(work->scratch_size, work->scratch_size / 2));
    void *scratch = bt_alloc(larger);
    if (!scratch)
        return bt_fail_memory(err, "encoding a text", larger);
    bt_free(work->scratch);
    work->scratch = scratch;
    work->scratch_size = larger;
    return BAUTA_OK;
}

bauta_status bt_fail_unknown_token(bauta_error *err, const char *text,
                                   size_t size)
{
    char start[2 * sizeof(bt_quoted)] = ""; // longer than bt_quote() shows
    memcpy(start, text, bt_size_min(size, sizeof(start) - 1));
    return bt_fail(
        err, BAUTA_ERR_ARGUMENT,
        "\"%s\" is not in the vocabulary, which has no unknown token",
        bt_quote(start).text);
}

bauta_status bt_subword_encode(const bt_subword_model *model, const char *split,
                               size_t size, bt_subword_workspace *work,
                               bauta_error *err)
{
    size_t count = work->count;
    if (size >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a text of %zu bytes is too long to be encoded", size);
    bauta_status status = model->encode(model, split, size, work, err);
    if (status)
        work->count = count;
    return status;
}

void bt_subword_free(bt_subword_model *model)
{
    if (model)
        model->free(model);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - why the logits of a request are not finite: its tokens run once
 * more, and the first layer that gives NaN or infinity is named. */
#include "decode/request.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* The tokens that one beam has read. */
static void beam_read(const bt_request *r, size_t beam, uint32_t *ids)
{
    memcpy(ids, r->ids, r->prompt * sizeof(*ids));
    if (r->made)
        bt_trail_read(&r->trail,
                      r->options.beams > 1 ? r->search.open[beam].node
                                           : (uint32_t)(r->made - 1),
                      r->made, ids + r->prompt, NULL);
}

static bauta_batch batch_of(const uint32_t *ids, const size_t *count)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = 1;
    batch.lengths = count;
    batch.ids = ids;
    return batch;
}

static bauta_status beam_check(const bt_request *r, bauta_context *context,
                               const bauta_model *model, const uint32_t *ids,
                               bauta_error *err)
{
    size_t count = r->prompt + r->made;
    bauta_batch source = batch_of(r->source, &r->source_count);
    bauta_batch target = batch_of(ids, &count);
    bauta_mask *window = NULL;
    bauta_status status = BAUTA_OK;
    if (r->options.sliding_window)
        status = bauta_mask_window(&window, count, count,
                                   r->options.sliding_window, err);
    target.mask = window;
    if (!status)
        status = bauta_model_check_finite(
            context, model, r->source_count ? &source : NULL, &target, err);
    bauta_mask_free(window);
    return status;
}

bauta_status bt_request_explain(bt_request *r, bauta_context *context,
                                const bauta_model *model, bauta_error *err)
{
    size_t at = r->prompt + r->made;
    bauta_error why;
    bauta_status status = BAUTA_OK;
    uint32_t *ids = bt_alloc(bt_size_mul(at, sizeof(*ids)));
    if (!ids)
        return bt_fail_memory(err, "tokens", at);
    for (size_t b = 0; b < bt_request_open(r) && !status; b++) {
        beam_read(r, b, ids);
        status = beam_check(r, context, model, ids, &why);
    }
    bt_free(ids);
    if (status == BAUTA_ERR_NOT_FINITE)
        bt_fail(&r->failure, status,
                "the logits after token %zu are not finite: %s", at,
                why.message);
    else if (status)
        return bt_fail(err, status, "%s", why.message);
    r->explained = true;
    return BAUTA_OK;
}

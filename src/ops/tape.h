/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - operations recorded as they run, to be walked backwards.
 *
 * A step of training is: rewind, run the ops of ops.h (each computes its
 * output and leaves a record), then bt_tape_backward(), which visits the
 * records from the last to the first and lets gradients flow. With recording
 * off the same ops run and leave nothing: that is inference.
 *
 * Activations are matrices with a row a token; a batch is more rows. All
 * memory of a step (outputs, records, gradients) is taken from the tape and
 * given back at once by rewinding. Blocks are kept, so that from the second
 * step of a shape on nothing is allocated.
 *
 * Errors stick: after the first failure (out of memory, shapes that do not fit)
 * every further op returns NULL at once, and bt_tape_status() tells what it
 * was. So a model is written without a check behind every op. */
#ifndef BT_TAPE_H
#define BT_TAPE_H

#include "bauta.h"
#include "ops/cpu.h"

/* A matrix, rows `stride` apart. What ops make is dense; a parameter may be a
 * part of a larger one. Parameters have the same form; their gradient lies
 * beside them, with the same stride, and is added to from step to step. */
typedef struct bt_tensor {
    size_t rows, columns, stride;
    float *data;
    float *grad; /* NULL until a gradient flows here */
    bool wants;  /* a gradient: a parameter, or made from one */
    /* The same numbers, or nearly so, in panels, for a parameter that is only
     * read; `data` is then NULL. */
    const struct bt_compact *compact;
} bt_tensor;

typedef struct bt_tape bt_tape;

/* What an op leaves behind: called with its saved data when the gradients of
 * all that was made from its output are complete. */
typedef void bt_backward_fn(bt_tape *tape, void *saved);

bauta_status bt_tape_create(bt_tape **out, const bt_kernels *kernels,
                            int threads, bauta_error *err);
void bt_tape_free(bt_tape *tape);

/* Forget everything that was recorded and every tensor that was handed out,
 * and forget a failure. */
void bt_tape_rewind(bt_tape *tape, bool recording);

/* Walk the records backwards. Whoever wants gradients has put one somewhere,
 * as the loss does. */
bauta_status bt_tape_backward(bt_tape *tape, bauta_error *err);

bauta_status bt_tape_status(const bt_tape *tape, bauta_error *err);
bool bt_tape_recording(const bt_tape *tape);
/* Bytes that the tape holds: its peak. */
size_t bt_tape_bytes(const bt_tape *tape);

/* ---- for ops ----------------------------------------------------------- */

const bt_kernels *bt_tape_kernels(const bt_tape *tape);
int bt_tape_threads(const bt_tape *tape);

/* Fail once; later failures are not the cause. Returns NULL, so that an op can
 * `return bt_tape_fail(...)`. */
void *bt_tape_fail(bt_tape *tape, bauta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory until the next rewind; NULL (and a failed tape) when there is none. */
void *bt_tape_take(bt_tape *tape, size_t count, size_t size);
/* An output, not initialised; `wants` when an input does and we record. NULL
 * when the tape has failed. */
bt_tensor *bt_tape_output(bt_tape *tape, size_t rows, size_t columns,
                          bool wants);
/* Leave a record, unless recording is off. `saved` is the tape's memory. */
void bt_tape_record(bt_tape *tape, bt_backward_fn *backward, void *saved);

/* Where the gradient of a tensor goes, or NULL when it wants none. *add tells
 * whether to add to what is there or, when this is the first to come, to write
 * over what is not initialised. */
float *bt_tape_grad(bt_tape *tape, bt_tensor *tensor, bool *add);

/* Kernels, threads and workspace for one op, and the workspace alone. */
bt_cpu bt_tape_cpu(bt_tape *tape);
bt_arena *bt_tape_workspace(bt_tape *tape);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - reverse-mode automatic differentiation: operations are recorded as
 * they run and differentiated in reverse order.
 *
 * A training step is: rewind, run the ops of ops.h (each computes its output
 * and leaves a record), then bt_tape_backward(), which visits the records from
 * last to first and propagates gradients. With recording off the same ops run
 * without records: that is inference.
 *
 * Activations are matrices with one row per token; a batch is more rows. All
 * memory of a step (outputs, records, gradients) is allocated from the tape and
 * freed at once by rewinding. The tape keeps its blocks, so from the second
 * step of a shape on nothing is allocated.
 *
 * Errors are sticky: after the first failure (out of memory, a shape mismatch)
 * every op returns NULL at once, and bt_tape_status() returns the error. So a
 * model needs no check after every op. */
#ifndef BT_TAPE_H
#define BT_TAPE_H

#include "backend/cpu/cpu.h"
#include "bauta.h"

/* A matrix with rows `stride` apart. Outputs of ops are dense; a parameter may
 * be a view of some columns of a larger one. The gradient of a parameter has
 * the same stride and accumulates from step to step. */
typedef struct bt_tensor {
    size_t rows, columns, stride;
    float *data;
    float *grad;        /* NULL until there is a gradient */
    bool requires_grad; /* requires a gradient: a parameter, or computed from
                           one */
    /* Packed weights of a parameter that is only read, possibly rounded; `data`
     * is then NULL. */
    const struct bt_packed_weight *packed;
} bt_tensor;

typedef struct bt_tape bt_tape;

/* An op's backward function, called with its saved data once the gradient of
 * its output is complete. */
typedef void bt_backward_fn(bt_tape *tape, void *saved);

bauta_status bt_tape_create(bt_tape **out, const bt_kernels *kernels,
                            int threads, bauta_error *err);
void bt_tape_free(bt_tape *tape);

/* Discard all records, tensors and a failure. */
void bt_tape_rewind(bt_tape *tape, bool recording);

/* Run the records in reverse order. The caller, or the loss, has set a gradient
 * to start from. */
bauta_status bt_tape_backward(bt_tape *tape, bauta_error *err);

bauta_status bt_tape_status(const bt_tape *tape, bauta_error *err);
bool bt_tape_recording(const bt_tape *tape);
/* Bytes that the tape holds: its peak so far. */
size_t bt_tape_bytes(const bt_tape *tape);

/* ---- For ops ----------------------------------------------------------- */

const bt_kernels *bt_tape_kernels(const bt_tape *tape);
int bt_tape_threads(const bt_tape *tape);

/* Record the first failure; later ones are ignored. Returns NULL, so that an op
 * can `return bt_tape_fail(...)`. */
void *bt_tape_fail(bt_tape *tape, bauta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory until the next rewind; NULL, and the tape fails, if there is none. */
void *bt_tape_alloc(bt_tape *tape, size_t count, size_t size);
/* An uninitialised output. `wants`: some input requires a gradient; ignored
 * when recording is off. NULL if the tape has failed. */
bt_tensor *bt_tape_output(bt_tape *tape, size_t rows, size_t columns,
                          bool wants);
/* Add a record unless recording is off. `saved` is memory of the tape. */
void bt_tape_record(bt_tape *tape, bt_backward_fn *backward, void *saved);

/* The gradient buffer of a tensor, or NULL if it requires none. *add: add to
 * it; else this is the first gradient and the buffer is uninitialised. */
float *bt_tape_grad(bt_tape *tape, bt_tensor *tensor, bool *add);

/* Kernels, threads and workspace for one op, and the workspace alone. */
bt_cpu bt_tape_cpu(bt_tape *tape);
bt_arena *bt_tape_workspace(bt_tape *tape);

#endif

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
 * step of a shape on nothing is allocated. Tensors are in memory of the
 * stream's backend, and everything else is in host memory.
 *
 * Errors are sticky: after the first failure (out of memory, a shape mismatch)
 * every op returns NULL at once, and bt_tape_status() returns the error. So a
 * model needs no check after every op. */
#ifndef BT_TAPE_H
#define BT_TAPE_H

#include "backend/backend.h"

typedef struct bt_tape bt_tape;

/* An op's backward function, called with its saved data once the gradient of
 * its output is complete. */
typedef void bt_backward_fn(bt_tape *tape, void *saved);

/* The stream must outlive the tape. */
bauta_status bt_tape_create(bt_tape **out, bt_stream *stream, bauta_error *err);
void bt_tape_free(bt_tape *tape);

/* Discard all records, tensors and a failure. */
void bt_tape_rewind(bt_tape *tape, bool recording);

/* Run the records in reverse order. The caller, or the loss, has set a gradient
 * to start from. Afterwards parameters and other tensors that no op has made
 * have gradients; those of outputs are discarded on the way. */
bauta_status bt_tape_backward(bt_tape *tape, bauta_error *err);

bauta_status bt_tape_status(const bt_tape *tape, bauta_error *err);
bool bt_tape_recording(const bt_tape *tape);
bt_stream *bt_tape_stream(const bt_tape *tape);
/* Bytes that the tape holds: its peak so far. */
size_t bt_tape_bytes(const bt_tape *tape);

/* Host memory until the next rewind; NULL, and the tape fails, if there is
 * none. */
void *bt_tape_alloc(bt_tape *tape, size_t count, size_t size);

/* A dense tensor with the contents of host memory, which must stay valid and
 * unchanged until the tape is rewound: a backend that is visible to the host
 * does not copy it, and the others copy it once. NULL if the tape has failed.
 */
bt_tensor *bt_tape_input(bt_tape *tape, bauta_dtype dtype, size_t rows,
                         size_t columns, const void *from);
/* The contents of a dense tensor in host memory, valid until the tape is
 * rewound; the tensor's own memory if that is visible to the host. NULL if the
 * tape has failed. */
const void *bt_tape_read(bt_tape *tape, const bt_tensor *tensor);
/* The same converted to float32. */
const float *bt_tape_read_f32(bt_tape *tape, const bt_tensor *tensor);

/* ---- For ops ----------------------------------------------------------- */

/* Record the first failure; later ones are ignored. Returns NULL, so that an op
 * can `return bt_tape_fail(...)`. */
void *bt_tape_fail(bt_tape *tape, bauta_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An uninitialised output of the stream's type. `wants`: some input requires a
 * gradient; ignored when recording is off. NULL if the tape has failed. */
bt_tensor *bt_tape_output(bt_tape *tape, size_t rows, size_t columns,
                          bool wants);
/* `count` columns of an output, from `first` on, as a tensor; their gradient is
 * a part of that of the whole. */
bt_tensor *bt_tape_columns(bt_tape *tape, bt_tensor *whole, size_t first,
                           size_t count);
/* An uninitialised tensor of any type, without a gradient. */
bt_tensor *bt_tape_scratch(bt_tape *tape, bauta_dtype dtype, size_t rows,
                           size_t columns);
/* Add a record unless recording is off. `saved` is memory of the tape. `y` is
 * the op's output: its gradient is discarded once `backward` has run, and its
 * memory reused. NULL: the op has none. */
void bt_tape_record(bt_tape *tape, bt_backward_fn *backward, void *saved,
                    bt_tensor *y);

/* Make sure that a tensor has a gradient; false if it requires none, or if the
 * tape has failed. *add: add to it; else this is the first gradient and it is
 * uninitialised. */
bool bt_tape_grad(bt_tape *tape, bt_tensor *tensor, bool *add);
/* In a backward function: let `to`, of the same shape, have the gradient of the
 * op's output `from` instead of a copy. False, and nothing is changed, if `to`
 * requires none or has one, or if the gradient is not the tape's memory. */
bool bt_tape_pass_grad(const bt_tape *tape, bt_tensor *from, bt_tensor *to);
/* In a backward function: let `to` read the gradient of `from`, of the same
 * shape, which is the tape's, instead of a copy. Whichever is asked for by
 * bt_tape_grad() first gets a copy then; if one is discarded before, the other
 * has it alone. False, and nothing is changed, if `to` requires no gradient or
 * has one, or if two others share one. */
bool bt_tape_share_grad(bt_tape *tape, bt_tensor *from, bt_tensor *to);
/* In a backward function: reuse the memory of a scratch tensor for gradients.
 * NULL is allowed. */
void bt_tape_release(bt_tape *tape, const bt_tensor *tensor);

/* Run an operation of the backend: BT_TAPE_RUN(tape, norm, &args). False, and
 * the tape has failed, if it fails or if the backend has no such operation. */
#define BT_TAPE_RUN(tape, op, args)                                          \
    bt_tape_check(tape,                                                      \
                  bt_tape_stream(tape)->backend->op                          \
                      ? bt_tape_stream(tape)->backend->op(                   \
                            bt_tape_stream(tape), args, bt_tape_error(tape)) \
                      : bt_unsupported(bt_tape_stream(tape), BT_OP_##op,     \
                                       bt_tape_stream(tape)->dtype,          \
                                       bt_tape_error(tape)))
/* Fail with the status and the message in bt_tape_error() unless it is OK. */
bool bt_tape_check(bt_tape *tape, bauta_status status);
bauta_error *bt_tape_error(bt_tape *tape);

#endif

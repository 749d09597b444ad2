/* SPDX-License-Identifier: Apache-2.0 */
/* step_graph.h - steps that are recorded once and replayed as CUDA graphs.
 *
 * A step of decoding queues some hundred small kernels, and queueing one costs
 * the host more time than the GPU needs to run it. So whatever a thread queues
 * on a stream between the begin and the end of a step is recorded. When a step
 * of the same kind has queued the same sequence twice, it is cut into parts of
 * growing length, and each part becomes a graph. Where the GPU was still busy
 * with the step before, it is one part: no time is lost before it is complete.
 *
 * In the steps that follow the host code runs as ever. Its launches are not
 * issued but compared with the recorded ones; where only arguments or the grid
 * differ, the graph is patched. As soon as all launches of a part are known,
 * its graph is launched, while the host goes on with the next part. On the
 * first launch that does not fit, what is known of the current part is issued
 * one by one, the graphs are dropped, and the step goes on without them. So a
 * replayed step runs what was asked for, always.
 *
 * Uploads of a step go through pinned memory that the graphs read. All uploads
 * of a part happen at its beginning, by one kernel; so the destination of an
 * upload may not be used earlier in the step. No kernel that is queued after an
 * upload starts before it is done, so kernels may read uploads before they wait
 * for the kernel before them. */
#ifndef BT_CUDA_STEP_GRAPH_H
#define BT_CUDA_STEP_GRAPH_H

#include "backend/cuda/launch.h"
#include "bauta.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The steps of one stream. */
typedef struct bt_cuda_steps bt_cuda_steps;

/* For the current device; NULL when memory runs out. */
bt_cuda_steps *bt_cuda_steps_create(void);
/* Nothing that was queued may still run. */
void bt_cuda_steps_free(bt_cuda_steps *steps);

/* Begin a step of this thread on a queue. Steps of one kind are expected to
 * queue the same sequence. Returns false, and nothing has begun, if the thread
 * is in a step already. */
bool bt_cuda_step_begin(bt_cuda_steps *steps, void *queue, uint64_t kind);
/* Queue what is left, and end it. Returns a cudaError_t. */
int bt_cuda_step_end(bt_cuda_steps *steps);

/* Whether this thread is in a step on the queue; and a number that no other
 * step of the stream has, or 0 outside of steps. */
bool bt_cuda_stepping(const void *queue);
uint64_t bt_cuda_step_number(void);

/* ---- What a step queues: for the functions that queue things ------------- */

/* These are for a thread that is in a step, and return a cudaError_t. */
int bt_cuda_step_kernel(const bt_cuda_kernel *kernel, void *const *args,
                        const size_t *sizes, size_t count);
int bt_cuda_step_fill(void *to, int value, size_t bytes);
/* *done: the upload is left to a graph. Otherwise the caller queues it. */
int bt_cuda_step_upload(void *to, const void *from, size_t bytes, bool *done);
/* The caller waits next for what was queued. */
int bt_cuda_step_wait(void);

/* Memory is about to be freed: queue everything, and finish this step without
 * graphs. Does nothing outside of steps. */
void bt_cuda_step_leave(void);
/* The stream has waited for all its work; */
void bt_cuda_steps_waited(bt_cuda_steps *steps);
/* or for that of the steps up to this number. The memory that the graphs of a
 * kind of step read is written again once the last step of it is done. */
void bt_cuda_steps_done(bt_cuda_steps *steps, uint64_t number);
/* The number of the last step that has begun; 0: there was none. */
uint64_t bt_cuda_steps_last(const bt_cuda_steps *steps);

/* ---- Statistics ---------------------------------------------------------- */

typedef struct bt_cuda_step_counts {
    size_t steps;    /* in all */
    size_t replayed; /* by graphs from begin to end */
    size_t graphs;   /* that were made */
    size_t patched;  /* kernels whose arguments were others */
    size_t left;     /* replays that did not fit */
} bt_cuda_step_counts;

bt_cuda_step_counts bt_cuda_steps_counts(const bt_cuda_steps *steps);

/* ---- In step_copy.cu ----------------------------------------------------- */

enum { BT_STEP_COPIES = 12 };

typedef struct bt_cuda_step_copies {
    struct {
        void *to;
        const void *from; /* pinned memory */
        size_t bytes;
    } item[BT_STEP_COPIES];
} bt_cuda_step_copies;

/* A kernel that makes `count` copies from its only argument, which is of the
 * type above. */
bt_cuda_kernel bt_cuda_step_copy(size_t count);

/* Of graphs in general: the node that a stream captured last; other arguments
 * for the kernel of a node. They return a cudaError_t. */
int bt_cuda_captured_node(void *stream, void **node);
int bt_cuda_patch_kernel(void *exec, void *node, const bt_cuda_kernel *kernel,
                         void *const *args);

#ifdef __cplusplus
}
#endif

#endif

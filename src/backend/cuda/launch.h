/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - starting kernels.
 *
 * Kernels that run in a step of decoding start here and not by <<<>>>, so that
 * a step can be recorded and replayed as CUDA graphs (step_graph.h). */
#ifndef BT_CUDA_LAUNCH_H
#define BT_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When a kernel starts. An early one may start while the kernel before it still
 * runs (programmatic dependent launch), so it calls grid_dependency_wait()
 * before it reads what that one writes, and before it writes at all. */
typedef enum bt_cuda_start {
    BT_START_AFTER,         /* when all that was queued before is done */
    BT_START_EARLY_IN_STEP, /* early between step_begin and step_end */
    BT_START_EARLY
} bt_cuda_start;

typedef struct bt_cuda_kernel {
    const void *function;
    unsigned grid[3], threads;
    unsigned cluster; /* blocks of a cluster; 0: there are none */
    bt_cuda_start start;
    size_t shared;       /* bytes of dynamic shared memory */
    size_t shared_limit; /* that any launch of the function has; 0: `shared` */
} bt_cuda_kernel;

enum { BT_LAUNCH_ARGS = 12 };

/* Queue a kernel on `queue` (a cudaStream_t), or leave it to the step that is
 * being replayed there. `count` arguments of these sizes, at most
 * BT_LAUNCH_ARGS. Returns a cudaError_t. */
int bt_cuda_launch(const bt_cuda_kernel *kernel, void *const *args,
                   const size_t *sizes, size_t count, void *queue);

/* Two kernels in a row with the same arguments, which are one launch: a CUDA
 * graph takes a third of the host's time of two launches. Zeros at first, and
 * for one stream at a time. */
typedef struct bt_cuda_pair {
    const void *function; /* the first one that the graph is for */
    void *graph, *exec, *nodes[2];
    bool used, failed; /* it was launched before; there is no graph */
} bt_cuda_pair;

/* As bt_cuda_launch() of one and then the other, which it is without a pair. */
int bt_cuda_launch_pair(bt_cuda_pair *pair, const bt_cuda_kernel *kernels,
                        void *const *args, const size_t *sizes, size_t count,
                        void *queue);
void bt_cuda_pair_release(bt_cuda_pair *pair);

/* Queue a kernel in any case; `early` as above. */
int bt_cuda_launch_now(const bt_cuda_kernel *kernel, void *const *args,
                       bool early, void *queue);

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include <cuda_runtime.h>

template <class... P>
static inline cudaError_t launch_values(const bt_cuda_kernel &kernel,
                                        void *queue, P... values)
{
    void *const args[] = { (void *)&values... };
    const size_t sizes[] = { sizeof(values)... };
    static_assert(sizeof...(P) <= BT_LAUNCH_ARGS, "arguments of a kernel");
    return (cudaError_t)bt_cuda_launch(&kernel, args, sizes, sizeof...(P),
                                       queue);
}

/* As kernel<<<grid, threads, shared, queue>>>(args...). */
template <class... P, class... A>
static inline cudaError_t
launch_kernel(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared,
              bt_cuda_start start, void *queue, const A &...args)
{
    bt_cuda_kernel how = {};
    how.function = (const void *)kernel;
    how.grid[0] = grid.x;
    how.grid[1] = grid.y;
    how.grid[2] = grid.z;
    how.threads = threads;
    how.start = start;
    how.shared = shared;
    return launch_values<P...>(how, queue, args...);
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* step_graph.c - recording steps, making graphs of them, and replaying. */
#include "backend/cuda/step_graph.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum {
    RECORDS = 64,     /* kinds of steps that are remembered */
    PARTS = 16,       /* of a step */
    FIRST_PART = 7,   /* nodes of the first part; */
    PART_GROWTH = 8,  /* each one after it has so many times more */
    VALUE_ALIGN = 16, /* of arguments */
    STAGED_ALIGN = 256,
    MISSES = 6, /* in a row, after which a kind is not recorded */
    REST = 64   /* for so many steps */
};

/* Sequences of nodes: what one call queued. */
typedef enum node_kind { KERNEL, UPLOAD, FILL, WAIT } node_kind;

typedef struct step_node {
    node_kind kind;
    size_t values_end; /* of this node and those before, in bytes */
    /* KERNEL: */
    bt_cuda_kernel kernel;
    size_t count;                /* of arguments */
    uint32_t at[BT_LAUNCH_ARGS]; /* where they are in `values`, */
    uint32_t size[BT_LAUNCH_ARGS];
    cudaGraphNode_t node; /* of the part's graph */
    bool changed;         /* the graph has other arguments */
    /* UPLOAD and FILL: */
    void *to;
    size_t bytes;
    int value;           /* FILL */
    size_t staged, room; /* UPLOAD: where it is in the staging memory */
    size_t copy;         /* which one of the part's copies it is */
} step_node;

/* Nodes [first, end) as a graph. */
typedef struct step_part {
    size_t first, end;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t copy_count;
    bt_cuda_step_copies copies;
    cudaGraphNode_t copy_node;
    bool changed, copies_changed; /* something is to be patched */
} step_part;

typedef struct step_record {
    uint64_t kind, used; /* used 0: there is none */
    step_node *nodes;
    size_t count, capacity;
    unsigned char *values; /* arguments of all kernels */
    size_t value_capacity;
    step_part *parts;       /* (PARTS) once there were graphs */
    size_t part_count;      /* 0: there are no graphs */
    unsigned char *staging; /* pinned memory of all uploads */
    size_t staged;
    uint64_t launched; /* the last step that launched its graphs */
    size_t misses, rest;
} step_record;

typedef enum step_mode {
    PLAIN,  /* launches are issued, and that is all */
    RECORD, /* they are issued and recorded */
    REPLAY  /* they are compared with the record */
} step_mode;

struct bt_cuda_steps {
    cudaStream_t capture; /* for making graphs */
    step_record records[RECORDS];
    uint64_t done; /* the last step that is known to be done */
    bt_cuda_step_counts counts;
    /* The current step: */
    void *queue;
    uint64_t number;
    step_mode mode;
    step_record *record;
    size_t next, part;
    bool busy;         /* recorded while the one before ran: nothing is gained
                          by an early start, so it is one part */
    bool changed;      /* the record is not what it was before */
    bool after_kernel; /* what was issued last is a kernel */
    int error;         /* the first one of bt_cuda_step_leave() */
};

/* The step that this thread is in. A stream belongs to one thread, and those
 * who queue kernels know the queue only. */
static _Thread_local bt_cuda_steps *current;

/* ---- Memory -------------------------------------------------------------- */

static void parts_release(step_record *r)
{
    for (size_t i = 0; i < r->part_count; i++) {
        if (r->parts[i].exec)
            cudaGraphExecDestroy(r->parts[i].exec);
        if (r->parts[i].graph)
            cudaGraphDestroy(r->parts[i].graph);
    }
    r->part_count = 0;
}

/* Wait until the stream has read the staging memory of a record. */
static void staging_wait(bt_cuda_steps *s, const step_record *r)
{
    if (!r->staging || r->launched <= s->done || !s->queue)
        return;
    cudaStreamSynchronize((cudaStream_t)s->queue);
    bt_cuda_steps_waited(s);
}

static void record_release(bt_cuda_steps *s, step_record *r)
{
    staging_wait(s, r);
    parts_release(r);
    bt_free(r->parts);
    bt_free(r->nodes);
    bt_free(r->values);
    cudaFreeHost(r->staging);
    *r = (step_record){ 0 };
}

bt_cuda_steps *bt_cuda_steps_create(void)
{
    bt_cuda_steps *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return NULL;
    if (cudaStreamCreateWithFlags(&s->capture, cudaStreamNonBlocking)) {
        cudaGetLastError();
        bt_free(s);
        return NULL;
    }
    return s;
}

void bt_cuda_steps_free(bt_cuda_steps *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < RECORDS; i++)
        record_release(s, &s->records[i]);
    cudaStreamDestroy(s->capture);
    bt_free(s);
}

bt_cuda_step_counts bt_cuda_steps_counts(const bt_cuda_steps *s)
{
    return s ? s->counts : (bt_cuda_step_counts){ 0 };
}

/* ---- Issuing nodes ------------------------------------------------------- */

static void args_of(const step_record *r, const step_node *n, void **args)
{
    for (size_t i = 0; i < n->count; i++)
        args[i] = r->values + n->at[i];
}

static cudaError_t issue_kernel(const step_record *r, const step_node *n,
                                bool early, void *queue)
{
    void *args[BT_LAUNCH_ARGS];
    args_of(r, n, args);
    return (cudaError_t)bt_cuda_launch_now(&n->kernel, args, early, queue);
}

/* One after the other. */
static cudaError_t issue(bt_cuda_steps *s, const step_node *n)
{
    bool early = s->after_kernel && n->kernel.start != BT_START_AFTER;
    const step_record *r = s->record;
    s->after_kernel = n->kind == KERNEL;
    switch (n->kind) {
    case KERNEL:
        return issue_kernel(r, n, early, s->queue);
    case UPLOAD:
        return cudaMemcpyAsync(n->to, r->staging + n->staged, n->bytes,
                               cudaMemcpyHostToDevice, (cudaStream_t)s->queue);
    case FILL:
        return cudaMemsetAsync(n->to, n->value, n->bytes,
                               (cudaStream_t)s->queue);
    default:
        return cudaSuccess;
    }
}

/* ---- Recording ----------------------------------------------------------- */

/* Give up on the record, not on the step. */
static void record_drop(bt_cuda_steps *s)
{
    parts_release(s->record);
    s->record->count = 0;
    s->changed = true;
    s->mode = PLAIN;
}

/* The node that comes next if it is of this kind, else a new one there; NULL
 * when memory runs out. */
static step_node *record_node(bt_cuda_steps *s, node_kind kind, bool same)
{
    step_record *r = s->record;
    size_t at = s->next++;
    if (at < r->count && r->nodes[at].kind == kind && same)
        return &r->nodes[at];
    r->count = at;
    s->changed = true;
    if (BT_ARRAY_RESERVE(r->nodes, r->capacity, r->count, 1)) {
        record_drop(s);
        return NULL;
    }
    size_t end = at ? r->nodes[at - 1].values_end : 0;
    r->nodes[at] = (step_node){ .kind = kind, .values_end = end };
    r->count++;
    return &r->nodes[at];
}

/* Whether a kernel can take the place of a recorded one, with a patch. */
static bool kernel_fits(const step_node *n, const bt_cuda_kernel *k,
                        const size_t *sizes, size_t count)
{
    if (n->kind != KERNEL || n->kernel.function != k->function ||
        n->kernel.cluster != k->cluster || n->kernel.start != k->start ||
        n->count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (n->size[i] != sizes[i])
            return false;
    return true;
}

/* Room for the arguments of a new node. */
static bool values_place(step_record *r, step_node *n, const size_t *sizes,
                         size_t count)
{
    size_t end = n->values_end;
    n->count = count;
    for (size_t i = 0; i < count; i++) {
        n->at[i] = (uint32_t)end;
        n->size[i] = (uint32_t)sizes[i];
        end += bt_size_round(sizes[i], VALUE_ALIGN);
    }
    if (BT_ARRAY_RESERVE(r->values, r->value_capacity, n->values_end,
                         end - n->values_end))
        return false;
    n->values_end = end;
    return true;
}

static void record_kernel(bt_cuda_steps *s, const bt_cuda_kernel *kernel,
                          void *const *args, const size_t *sizes, size_t count)
{
    step_record *r = s->record;
    bool fits = s->next < r->count &&
                kernel_fits(&r->nodes[s->next], kernel, sizes, count);
    step_node *n = record_node(s, KERNEL, fits);
    if (n && !fits && !values_place(r, n, sizes, count)) {
        record_drop(s);
        return;
    }
    if (!n)
        return;
    n->kernel = *kernel;
    for (size_t i = 0; i < count; i++)
        memcpy(r->values + n->at[i], args[i], sizes[i]);
}

/* ---- Making graphs ------------------------------------------------------- */

/* The node that was captured last. */
int bt_cuda_captured_node(void *stream, void **node)
{
    cudaStream_t capture = (cudaStream_t)stream;
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *last = NULL;
    const cudaGraphEdgeData *edges = NULL;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(capture, &status, NULL, NULL,
                                                 &last, &edges, &count);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v3(
        capture, &status, NULL, NULL, &last, &edges, &count);
#endif
    if (!error && count != 1)
        error = cudaErrorStreamCaptureInvalidated;
    if (!error)
        *node = last[0];
    return error;
}

static cudaError_t capture_copies(const bt_cuda_steps *s, step_part *part)
{
    bt_cuda_kernel kernel = bt_cuda_step_copy(part->copy_count);
    void *args[] = { &part->copies };
    cudaError_t error =
        (cudaError_t)bt_cuda_launch_now(&kernel, args, false, s->capture);
    return error ? error
                 : (cudaError_t)bt_cuda_captured_node(
                       s->capture, (void **)&part->copy_node);
}

static cudaError_t capture_nodes(const bt_cuda_steps *s, step_part *part)
{
    step_record *r = s->record;
    cudaError_t error = cudaSuccess;
    bool after_kernel = false;
    if (part->copy_count) // the kernel after it starts when it is done
        error = capture_copies(s, part);
    for (size_t i = part->first; i < part->end && !error; i++) {
        step_node *n = &r->nodes[i];
        if (n->kind == UPLOAD)
            continue;
        if (n->kind == FILL) {
            error = cudaMemsetAsync(n->to, n->value, n->bytes, s->capture);
            after_kernel = false;
            continue;
        }
        error = issue_kernel(r, n,
                             after_kernel && n->kernel.start != BT_START_AFTER,
                             s->capture);
        after_kernel = true;
        if (!error)
            error = (cudaError_t)bt_cuda_captured_node(s->capture,
                                                       (void **)&n->node);
        n->changed = false;
    }
    return error;
}

static cudaError_t part_capture(const bt_cuda_steps *s, step_part *part)
{
    cudaError_t error =
        cudaStreamBeginCapture(s->capture, cudaStreamCaptureModeThreadLocal);
    if (error)
        return error;
    error = capture_nodes(s, part);
    cudaError_t ended = cudaStreamEndCapture(s->capture, &part->graph);
    if (!error)
        error = ended;
    return error ? error : cudaGraphInstantiate(&part->exec, part->graph, 0);
}

/* An upload becomes one of the part's copies. */
static void part_add_copy(step_record *r, step_part *part, step_node *n)
{
    n->copy = part->copy_count++;
    part->copies.item[n->copy].to = n->to;
    part->copies.item[n->copy].from = r->staging + n->staged;
    part->copies.item[n->copy].bytes = n->bytes;
}

/* Cut the record into parts, the first of which has `most` nodes. False if
 * there are too many. */
static bool parts_cut(step_record *r, size_t most)
{
    size_t at = 0;
    for (r->part_count = 0; at < r->count;) {
        if (r->nodes[at].kind == WAIT) {
            at++;
            continue;
        }
        if (r->part_count == PARTS)
            return false;
        step_part *part = &r->parts[r->part_count++];
        *part = (step_part){ .first = at };
        for (; at < r->count && at - part->first < most; at++) {
            step_node *n = &r->nodes[at];
            if (n->kind == WAIT ||
                (n->kind == UPLOAD && part->copy_count == BT_STEP_COPIES))
                break;
            if (n->kind == UPLOAD)
                part_add_copy(r, part, n);
        }
        part->end = at;
        most = bt_size_mul(most, PART_GROWTH);
    }
    return true;
}

/* Pinned memory for all uploads, each with room to grow. */
static cudaError_t staging_place(bt_cuda_steps *s, step_record *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->count; i++) {
        step_node *n = &r->nodes[i];
        if (n->kind != UPLOAD)
            continue;
        n->staged = bytes;
        n->room = bt_size_round(2 * n->bytes, STAGED_ALIGN);
        bytes += n->room;
    }
    if (bytes <= r->staged)
        return cudaSuccess;
    staging_wait(s, r);
    cudaFreeHost(r->staging);
    r->staged = 0;
    cudaError_t error = cudaMallocHost((void **)&r->staging, bytes);
    if (error)
        r->staging = NULL;
    else
        r->staged = bytes;
    return error;
}

/* Without graphs, where something fails, the step still works. */
static void graphs_make(bt_cuda_steps *s)
{
    step_record *r = s->record;
    if (!r->parts)
        r->parts = bt_alloc_zero(PARTS, sizeof(*r->parts));
    cudaError_t error =
        r->parts ? staging_place(s, r) : cudaErrorMemoryAllocation;
    bool cut = !error && parts_cut(r, s->busy ? SIZE_MAX : FIRST_PART);
    for (size_t i = 0; i < r->part_count && cut && !error; i++)
        error = part_capture(s, &r->parts[i]);
    if (!error && cut) {
        s->counts.graphs += r->part_count;
        return;
    }
    cudaGetLastError();
    parts_release(r);
    r->rest = SIZE_MAX;
}

/* ---- Replaying ----------------------------------------------------------- */

int bt_cuda_patch_kernel(void *exec, void *node, const bt_cuda_kernel *k,
                         void *const *args)
{
    struct cudaKernelNodeParams params = {
        .func = (void *)(uintptr_t)k->function,
        .gridDim = { k->grid[0], k->grid[1], k->grid[2] },
        .blockDim = { k->threads, 1, 1 },
        .sharedMemBytes = (unsigned)k->shared,
        .kernelParams = (void **)(uintptr_t)args, // copied, not changed
    };
    return cudaGraphExecKernelNodeSetParams((cudaGraphExec_t)exec,
                                            (cudaGraphNode_t)node, &params);
}

static cudaError_t part_patch(bt_cuda_steps *s, step_part *part)
{
    step_record *r = s->record;
    cudaError_t error = cudaSuccess;
    if (part->copies_changed) {
        bt_cuda_kernel kernel = bt_cuda_step_copy(part->copy_count);
        void *args[] = { &part->copies };
        error = (cudaError_t)bt_cuda_patch_kernel(part->exec, part->copy_node,
                                                  &kernel, args);
    }
    for (size_t i = part->first; i < part->end && part->changed && !error;
         i++) {
        step_node *n = &r->nodes[i];
        void *args[BT_LAUNCH_ARGS];
        if (n->kind != KERNEL || !n->changed)
            continue;
        args_of(r, n, args);
        error = (cudaError_t)bt_cuda_patch_kernel(part->exec, n->node,
                                                  &n->kernel, args);
        n->changed = false;
        s->counts.patched++;
    }
    part->changed = part->copies_changed = false;
    return error;
}

/* A node was accepted; launch the part if it was the last one. */
static cudaError_t replay_next(bt_cuda_steps *s)
{
    step_record *r = s->record;
    step_part *part = &r->parts[s->part];
    if (++s->next < part->end)
        return cudaSuccess;
    cudaError_t error = part_patch(s, part);
    if (!error)
        error = cudaGraphLaunch(part->exec, (cudaStream_t)s->queue);
    r->launched = s->number;
    s->after_kernel = false;
    s->part++;
    return error;
}

/* Go on without graphs: issue what the current part has so far. */
static cudaError_t replay_leave(bt_cuda_steps *s)
{
    step_record *r = s->record;
    cudaError_t error = cudaSuccess;
    size_t first = s->part < r->part_count ? r->parts[s->part].first : s->next;
    if (first > s->next)
        first = s->next; // only a wait precedes the part
    for (size_t i = first; i < s->next && !error; i++)
        error = issue(s, &r->nodes[i]);
    r->launched = s->number;
    parts_release(r);
    s->mode = RECORD;
    s->changed = true;
    s->counts.left++;
    return error;
}

/* The node that comes next, unless the current part is over. */
static step_node *replay_node(bt_cuda_steps *s)
{
    step_record *r = s->record;
    return s->next < r->count ? &r->nodes[s->next] : NULL;
}

/* Take over what differs. */
static void kernel_update(bt_cuda_steps *s, step_node *n,
                          const bt_cuda_kernel *kernel, void *const *args)
{
    step_record *r = s->record;
    bool same =
        memcmp(n->kernel.grid, kernel->grid, sizeof(kernel->grid)) == 0 &&
        n->kernel.threads == kernel->threads &&
        n->kernel.shared == kernel->shared;
    n->kernel = *kernel;
    for (size_t i = 0; i < n->count; i++) {
        unsigned char *value = r->values + n->at[i];
        if (memcmp(value, args[i], n->size[i]) == 0)
            continue;
        memcpy(value, args[i], n->size[i]);
        same = false;
    }
    if (same)
        return;
    n->changed = true;
    r->parts[s->part].changed = true;
}

/* ---- What a step queues -------------------------------------------------- */

int bt_cuda_step_kernel(const bt_cuda_kernel *kernel, void *const *args,
                        const size_t *sizes, size_t count)
{
    bt_cuda_steps *s = current;
    cudaError_t error = cudaSuccess;
    if (s->mode == REPLAY) {
        step_node *n = replay_node(s);
        if (n && kernel_fits(n, kernel, sizes, count)) {
            kernel_update(s, n, kernel, args);
            return replay_next(s);
        }
        error = replay_leave(s);
    }
    if (s->mode == RECORD)
        record_kernel(s, kernel, args, sizes, count);
    bool early = s->after_kernel && kernel->start != BT_START_AFTER;
    s->after_kernel = true;
    return error ? (int)error
                 : bt_cuda_launch_now(kernel, args, early, s->queue);
}

int bt_cuda_step_fill(void *to, int value, size_t bytes)
{
    bt_cuda_steps *s = current;
    cudaError_t error = cudaSuccess;
    step_node *n = s->mode == PLAIN ? NULL : replay_node(s);
    bool same = n && n->kind == FILL && n->to == to && n->value == value &&
                n->bytes == bytes;
    if (s->mode == REPLAY) {
        if (same)
            return replay_next(s);
        error = replay_leave(s);
    }
    if (s->mode == RECORD && (n = record_node(s, FILL, same))) {
        n->to = to;
        n->value = value;
        n->bytes = bytes;
    }
    s->after_kernel = false;
    if (!error)
        error = cudaMemsetAsync(to, value, bytes, (cudaStream_t)s->queue);
    return error;
}

/* Whether an upload can take the place of a recorded one. */
static bool upload_fits(const step_node *n, size_t bytes)
{
    return n && n->kind == UPLOAD && bytes <= n->room;
}

int bt_cuda_step_upload(void *to, const void *from, size_t bytes, bool *done)
{
    bt_cuda_steps *s = current;
    cudaError_t error = cudaSuccess;
    step_node *n = s->mode == PLAIN ? NULL : replay_node(s);
    *done = false;
    if (s->mode == REPLAY) {
        if (upload_fits(n, bytes)) {
            step_part *part = &s->record->parts[s->part];
            memcpy(s->record->staging + n->staged, from, bytes);
            part->copies_changed |= n->to != to || n->bytes != bytes;
            part->copies.item[n->copy].to = n->to = to;
            part->copies.item[n->copy].bytes = n->bytes = bytes;
            *done = true;
            return replay_next(s);
        }
        error = replay_leave(s);
    }
    if (s->mode == RECORD &&
        (n = record_node(s, UPLOAD, n && n->kind == UPLOAD))) {
        n->to = to;
        n->bytes = bytes;
    }
    s->after_kernel = false;
    return error;
}

int bt_cuda_step_wait(void)
{
    bt_cuda_steps *s = current;
    cudaError_t error = cudaSuccess;
    step_node *n = s->mode == PLAIN ? NULL : replay_node(s);
    bool same = n && n->kind == WAIT;
    if (s->mode == REPLAY && same)
        s->next++; // it is between parts
    else if (s->mode == REPLAY)
        error = replay_leave(s);
    if (s->mode == RECORD)
        record_node(s, WAIT, same);
    s->after_kernel = false;
    return error;
}

void bt_cuda_step_leave(void)
{
    bt_cuda_steps *s = current;
    if (!s || s->mode != REPLAY)
        return;
    int error = replay_leave(s);
    s->error = s->error ? s->error : error;
}

void bt_cuda_steps_waited(bt_cuda_steps *s)
{
    if (s) // the rest of the current one is still to come
        bt_cuda_steps_done(s, s->number - (current == s));
}

void bt_cuda_steps_done(bt_cuda_steps *s, uint64_t number)
{
    if (s && number > s->done)
        s->done = number;
}

uint64_t bt_cuda_steps_last(const bt_cuda_steps *s)
{
    return s ? s->number : 0;
}

/* ---- Steps --------------------------------------------------------------- */

bool bt_cuda_stepping(const void *queue)
{
    return current && current->queue == queue;
}

uint64_t bt_cuda_step_number(void)
{
    return current ? current->number : 0;
}

/* The record of a kind, or a new one in place of the one that was used least
 * recently. */
static step_record *record_of(bt_cuda_steps *s, uint64_t kind)
{
    step_record *oldest = &s->records[0];
    for (size_t i = 0; i < RECORDS; i++) {
        step_record *r = &s->records[i];
        if (r->used && r->kind == kind)
            return r;
        if (r->used < oldest->used)
            oldest = r;
    }
    record_release(s, oldest);
    oldest->kind = kind;
    return oldest;
}

bool bt_cuda_step_begin(bt_cuda_steps *s, void *queue, uint64_t kind)
{
    if (current)
        return false;
    current = s;
    s->queue = queue;
    s->number = ++s->counts.steps;
    s->record = record_of(s, kind);
    s->record->used = s->number;
    s->next = s->part = 0;
    s->changed = s->after_kernel = false;
    s->error = 0;
    s->mode = RECORD;
    s->busy = false;
    if (s->record->part_count) {
        s->mode = REPLAY;
        staging_wait(s, s->record);
    } else if (s->record->rest) {
        s->record->rest -= s->record->rest != SIZE_MAX;
        s->mode = PLAIN;
    } else {
        s->busy = cudaStreamQuery((cudaStream_t)queue) == cudaErrorNotReady;
    }
    return true;
}

/* The sequence was another one than the last time. */
static void record_missed(step_record *r)
{
    if (++r->misses < MISSES)
        return;
    r->misses = 0;
    r->rest = REST;
}

int bt_cuda_step_end(bt_cuda_steps *s)
{
    if (current != s)
        return cudaSuccess;
    step_record *r = s->record;
    bool complete = s->next == r->count;
    cudaError_t error = (cudaError_t)s->error;
    if (s->mode == REPLAY && !complete && !error)
        error = replay_leave(s);
    if (s->mode == REPLAY) {
        s->counts.replayed++;
        r->misses = 0;
    } else if (s->mode == RECORD && complete && !s->changed && !error) {
        graphs_make(s);
    } else if (s->mode == RECORD) {
        r->count = s->next;
        record_missed(r);
    }
    current = NULL;
    return error;
}

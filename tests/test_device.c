/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - the choice of a device, and the calls for GPUs as far as they
 * can be tested without one: over a table whose GPU is host memory and whose
 * kernels only record that they were called. tests/cuda/check_device.c tests
 * the rest. */
#include "allocation_faults.h"
#include "base/error.h"
#include "runtime/context.h"
#include "testing.h"

#include <string.h>

static bauta_error err;

#define REFUSED(call, status, words)                    \
    do {                                                \
        err.message[0] = '\0';                          \
        assert_int_equal(call, status);                 \
        if (!strstr(err.message, words))                \
            fail_msg("%s: \"%s\"", words, err.message); \
    } while (0)

static bauta_context *context_with(const char *device)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    options.threads = 1;
    options.device = device;
    if (bauta_context_create(&context, &options, &err))
        fail_msg("%s", err.message);
    return context;
}

/* ---- choosing tokens --------------------------------------------------- */

static void a_context_uses_the_cpu_by_default(void **state)
{
    static const char *const names[] = { NULL, "cpu" };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bauta_context *context = context_with(names[i]);
        assert_string_equal(bauta_context_device(context), "cpu");
        bauta_context_free(context);
    }
}

static void options_of_an_older_header_are_accepted(void **state)
{
    struct {
        size_t size;
        int threads;
        const char *isa;
        const char *after;
    } old = { 3 * sizeof(size_t), 2, "c", "this is not read" };
    bauta_context *context = NULL;
    (void)state;
    assert_int_equal(bauta_context_create(
                         &context, (const bauta_options *)(void *)&old, &err),
                     BAUTA_OK);
    assert_int_equal(bauta_context_threads(context), 2);
    assert_string_equal(bauta_context_isa(context), "c");
    assert_string_equal(bauta_context_device(context), "cpu");
    bauta_context_free(context);
    for (size_t size = 0; size < 64; size++) {
        bauta_options options = BAUTA_OPTIONS_INIT;
        options.size = size;
        if (size >= 2 * sizeof(size_t) && size % sizeof(size_t) == 0)
            continue; // the size of some struct; see test_sized.c
        REFUSED(bauta_context_create(&context, &options, &err),
                BAUTA_ERR_ARGUMENT, "options.size");
        assert_null(context);
    }
}

static void unknown_devices_are_named(void **state)
{
    static const char *const names[] = {
        "",
        "gpu",
        "CUDA",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda: 1",
        "cuda:1 ",
        "cuda:0x1",
        "cuda0",
        "cpu:0",
        "cuda:1:2",
        "cud",
        "cuda:99999999999999999999",
        "a very long name of a device, of which only the beginning is quoted"
    };
    (void)state;
    for (size_t i = 0; i < BT_LEN(names); i++) {
        bauta_options options = BAUTA_OPTIONS_INIT;
        bauta_context *context = NULL;
        options.device = names[i];
        char quoted[16];
        snprintf(quoted, sizeof(quoted), "\"%s", names[i]);
        REFUSED(bauta_context_create(&context, &options, &err),
                BAUTA_ERR_ARGUMENT, quoted);
        assert_null(context);
    }
}

static void a_missing_gpu_is_an_error(void **state)
{
    static const char *const names[] = { "cuda:99", "cuda", "cuda:0" };
    size_t count = bauta_gpu_count();
    (void)state;
    if (!bt_gpu_table())
        assert_int_equal(count, 0);
    for (size_t i = 0; i < (count ? 1 : BT_LEN(names)); i++) {
        bauta_options options = BAUTA_OPTIONS_INIT;
        bauta_context *context = NULL;
        options.device = names[i];
        REFUSED(bauta_context_create(&context, &options, &err),
                BAUTA_ERR_UNSUPPORTED,
                bt_gpu_table() ? "GPU" : "built without CUDA");
        assert_null(context);
    }
}

/* Without a GPU every call of CUDA's runtime fails, which is how its errors can
 * be tested here. */
static void a_runtime_error_has_its_own_status(void **state)
{
    const bt_gpu *gpu = bt_gpu_table();
    void *memory = &memory;
    int before;
    (void)state;
    if (!gpu || bauta_gpu_count())
        skip();
    REFUSED(gpu->enter(0, &before, &err), BAUTA_ERR_DEVICE, "use the GPU");
    REFUSED(gpu->alloc(&memory, 4, &err), BAUTA_ERR_DEVICE, "allocate on");
    assert_null(memory);
    REFUSED(gpu->wait(NULL, &err), BAUTA_ERR_DEVICE, "work failed");
}

/* ---- a table for the tests --------------------------------------------- */

static struct {
    int entered, device; /* nesting depth, and the current device */
    int forward, backward, decode;
    size_t sequences, rows; /* of the last step */
    bool full;              /* no more memory on the GPU */
    int updated;            /* plans in bfloat16 */
    bool fail_update;
    bool early_reads; /* of the last pages in bfloat16 */
} fake;

static bauta_status fake_enter(int device, int *before, bauta_error *e)
{
    (void)e;
    *before = fake.device;
    fake.device = device;
    fake.entered++;
    return BAUTA_OK;
}

static void fake_leave(int before)
{
    fake.device = before;
    fake.entered--;
}

static bauta_status fake_alloc(void **out, size_t bytes, bauta_error *e)
{
    assert_int_equal(fake.device, 3);
    if (fake.full)
        return bt_fail(e, BAUTA_ERR_NOMEM, "out of the GPU's memory");
    *out = malloc(bytes + 1);
    return BAUTA_OK;
}

static bauta_status fake_copy(void *to, const void *from, size_t bytes,
                              bool to_gpu, void *stream, bauta_error *e)
{
    (void)to_gpu;
    (void)stream;
    (void)e;
    memcpy(to, from, bytes);
    return BAUTA_OK;
}

static bauta_status fake_wait(void *stream, bauta_error *e)
{
    (void)e;
    assert_true(stream == &fake || stream == NULL); // NULL: until it is set
    return BAUTA_OK;
}

#define IGNORE(a, b, c) \
    do {                \
        (void)(a);      \
        (void)(b);      \
        (void)(c);      \
    } while (0)

static bauta_status fake_plan(bt_cuda_plan **out,
                              const bauta_attention_shape *shape, bool backward,
                              bauta_error *e)
{
    (void)backward;
    if (shape->head_dim % 8)
        return bt_fail(e, BAUTA_ERR_UNSUPPORTED, "no kernel");
    *out = bt_alloc(8);
    return *out ? BAUTA_OK : bt_fail_memory(e, "a plan", 8);
}

static bauta_status fake_update(bt_cuda_plan *plan, const bauta_mask *mask,
                                size_t first, size_t rows, size_t tile_rows,
                                void *stream, bauta_error *e)
{
    IGNORE(plan, tile_rows, stream);
    assert_true(first + rows <= bauta_mask_queries(mask));
    if (fake.fail_update)
        return bt_fail(e, BAUTA_ERR_NOMEM, "no memory for a plan");
    fake.updated++;
    return BAUTA_OK;
}

static void fake_plan_free(bt_cuda_plan *plan)
{
    bt_free(plan);
}

static bauta_status fake_rows(bt_cuda_rows **out, const bauta_mask *mask,
                              size_t first, size_t rows, bauta_error *e)
{
    assert_true(first + rows <= bauta_mask_queries(mask));
    *out = bt_alloc(8);
    return *out ? BAUTA_OK : bt_fail_memory(e, "rows", 8);
}

static void fake_rows_free(bt_cuda_rows *rows)
{
    bt_free(rows);
}

static bauta_status fake_forward(bt_cuda_plan *plan,
                                 const bauta_attention_shape *shape,
                                 const uint16_t *q, const uint16_t *k,
                                 const uint16_t *v, uint16_t *out, float *lse,
                                 void *stream, bauta_error *e)
{
    IGNORE(plan, shape, q);
    IGNORE(k, v, out);
    IGNORE(lse, stream, e);
    fake.forward += fake.device == 3;
    return BAUTA_OK;
}

static bauta_status fake_backward(bt_cuda_plan *plan,
                                  const bauta_attention_shape *shape,
                                  const uint16_t *q, const uint16_t *k,
                                  const uint16_t *v, const uint16_t *out,
                                  const float *lse, const uint16_t *dout,
                                  uint16_t *dq, uint16_t *dk, uint16_t *dv,
                                  void *stream, bauta_error *e)
{
    IGNORE(plan, shape, q);
    IGNORE(k, v, out);
    IGNORE(lse, dout, dq);
    IGNORE(dk, dv, stream);
    (void)e;
    fake.backward += fake.device == 3;
    return BAUTA_OK;
}

static bauta_status fake_forward_f32(const bt_cuda_rows *rows,
                                     const bauta_attention_shape *shape,
                                     const float *q, const float *k,
                                     const float *v, float *out, float *lse,
                                     void *stream, bauta_error *e)
{
    IGNORE(rows, shape, q);
    IGNORE(k, v, out);
    IGNORE(lse, stream, e);
    fake.forward += fake.device == 3;
    return BAUTA_OK;
}

static bauta_status
fake_backward_f32(const bt_cuda_rows *rows, const bauta_attention_shape *shape,
                  const float *q, const float *k, const float *v,
                  const float *out, const float *lse, const float *dout,
                  float *dq, float *dk, float *dv, void *stream, bauta_error *e)
{
    IGNORE(rows, shape, q);
    IGNORE(k, v, out);
    IGNORE(lse, dout, dq);
    IGNORE(dk, dv, stream);
    (void)e;
    fake.backward += fake.device == 3;
    return BAUTA_OK;
}

static bauta_status fake_decode_create(bt_cuda_decode **out,
                                       const bauta_attention_shape *shape,
                                       size_t page_keys, bauta_error *e)
{
    (void)shape;
    (void)page_keys;
    *out = bt_alloc(8);
    return *out ? BAUTA_OK : bt_fail_memory(e, "decoding", 8);
}

static void fake_decode_free(bt_cuda_decode *decode)
{
    bt_free(decode);
}

static bauta_status fake_step(bt_cuda_decode *decode,
                              const bt_decode_sequence *sequences, size_t count,
                              void *stream, bauta_error *e)
{
    IGNORE(decode, stream, e);
    fake.sequences = count;
    fake.rows = 0;
    for (size_t i = 0; i < count; i++)
        fake.rows += sequences[i].rows;
    return BAUTA_OK;
}

static bauta_status fake_decode(bt_cuda_decode *decode,
                                const bauta_attention_shape *shape,
                                const uint16_t *q, const bt_cuda_pages *pages,
                                uint16_t *out, float *lse, void *stream,
                                bauta_error *e)
{
    IGNORE(decode, shape, q);
    IGNORE(out, lse, stream);
    (void)e;
    fake.decode += pages->page_keys == 64 && fake.device == 3;
    fake.early_reads = pages->early_reads;
    return BAUTA_OK;
}

static bauta_status fake_step_f32(bt_cuda_rows **out,
                                  const bt_decode_sequence *sequences,
                                  size_t count, size_t page_keys,
                                  bauta_error *e)
{
    IGNORE(sequences, count, page_keys);
    *out = bt_alloc(8);
    return *out ? BAUTA_OK : bt_fail_memory(e, "rows", 8);
}

static bauta_status fake_decode_f32(const bt_cuda_rows *rows,
                                    const bauta_attention_shape *shape,
                                    const float *q, const bt_cuda_pages *pages,
                                    float *out, float *lse, void *stream,
                                    bauta_error *e)
{
    IGNORE(rows, shape, q);
    IGNORE(out, lse, stream);
    (void)e;
    fake.decode += pages->page_keys == 64 && fake.device == 3;
    return BAUTA_OK;
}

static const bt_gpu table = {
    .enter = fake_enter,
    .leave = fake_leave,
    .alloc = fake_alloc,
    .free = free,
    .copy = fake_copy,
    .wait = fake_wait,
    .plan_create = fake_plan,
    .plan_update = fake_update,
    .plan_free = fake_plan_free,
    .forward_bf16 = fake_forward,
    .backward_bf16 = fake_backward,
    .rows_create = fake_rows,
    .rows_free = fake_rows_free,
    .forward_f32 = fake_forward_f32,
    .backward_f32 = fake_backward_f32,
    .decode_create = fake_decode_create,
    .decode_free = fake_decode_free,
    .decode_step = fake_step,
    .decode_bf16 = fake_decode,
    .rows_of_step = fake_step_f32,
    .decode_f32 = fake_decode_f32,
};

/* A context with the GPU "cuda:3" of the table. Its stream is one of another
 * backend than the CPU. */
static bauta_context *fake_context(void)
{
    static bt_backend other;
    bauta_context *context = context_with("cpu");
    memset(&fake, 0, sizeof(fake));
    other = bt_cpu_backend;
    other.name = "cuda";
    context->stream->backend = &other;
    strcpy(context->stream->device, "cuda:3");
    context->gpu = &table;
    context->device = 3;
    strcpy(context->device_name, "cuda:3");
    return context;
}

/* ---- every call for GPUs, once ----------------------------------------- */

typedef struct gpu_fixture {
    bauta_context *context;
    bauta_mask *mask;
    bauta_attention_shape shape;
    bauta_gpu_plan *plan[2]; /* forward alone; both, float32 */
    bauta_gpu_decode_plan *decode;
    bauta_gpu_pages pages;
    uint32_t page[1];
    bauta_gpu_sequence sequence;
    float x[64];
} gpu_fixture;

static bauta_status plan_make(gpu_fixture *s, bauta_gpu_plan **plan,
                              bauta_dtype type, bool backward)
{
    return bauta_gpu_plan_create(plan, s->context, s->mask, 0, 8, &s->shape,
                                 type, backward, &err);
}

static gpu_fixture gpu_fixture_make(void)
{
    gpu_fixture s = { .context = fake_context(),
                      .shape = BAUTA_ATTENTION_SHAPE_INIT,
                      .sequence = BAUTA_GPU_SEQUENCE_INIT,
                      .pages = BAUTA_GPU_PAGES_INIT };
    assert_int_equal(bauta_mask_causal(&s.mask, 8, 8, &err), 0);
    assert_int_equal(plan_make(&s, &s.plan[0], BAUTA_BFLOAT16, false), 0);
    assert_int_equal(plan_make(&s, &s.plan[1], BAUTA_FLOAT32, true), 0);
    assert_int_equal(bauta_gpu_decode_plan_create(&s.decode, s.context,
                                                  &s.shape, 64, BAUTA_BFLOAT16,
                                                  &err),
                     0);
    s.sequence.mask = s.mask;
    s.sequence.first = 7;
    s.sequence.rows = 1;
    return s;
}

static void gpu_fixture_free(gpu_fixture *s)
{
    bauta_gpu_plan_free(s->plan[0]);
    bauta_gpu_plan_free(s->plan[1]);
    bauta_gpu_decode_plan_free(s->decode);
    bauta_mask_free(s->mask);
    bauta_context_free(s->context);
    assert_int_equal(fake.entered, 0);
    assert_int_equal(fake.device, 0);
}

static bauta_status forward(gpu_fixture *s, bauta_gpu_plan *plan)
{
    return bauta_gpu_attention_forward(s->context, plan, &s->shape, s->x, s->x,
                                       s->x, s->x, NULL, &err);
}

static bauta_status backward(gpu_fixture *s, bauta_gpu_plan *plan)
{
    return bauta_gpu_attention_backward(s->context, plan, &s->shape, s->x, s->x,
                                        s->x, s->x, s->x, s->x, s->x, s->x,
                                        s->x, &err);
}

static bauta_status step(gpu_fixture *s)
{
    s->sequence.block_table = s->page;
    return bauta_gpu_decode_plan_update(s->context, s->decode, &s->sequence, 1,
                                        &err);
}

static bauta_status decode(gpu_fixture *s)
{
    s->pages.pages = 1;
    s->pages.k = s->pages.v = s->x;
    return bauta_gpu_attention_decode(s->context, s->decode, &s->shape, s->x,
                                      &s->pages, s->x, NULL, &err);
}

static void gpu_calls_reach_the_kernels_on_their_device(void **state)
{
    gpu_fixture s = gpu_fixture_make();
    void *memory = NULL;
    char text[4] = "";
    (void)state;
    assert_int_equal(bauta_gpu_alloc(s.context, &memory, 4, &err), 0);
    assert_int_equal(bauta_gpu_upload(s.context, memory, "abc", 4, &err), 0);
    assert_int_equal(bauta_gpu_download(s.context, text, memory, 4, &err), 0);
    assert_string_equal(text, "abc");
    assert_int_equal(bauta_gpu_upload(s.context, NULL, NULL, 0, &err), 0);
    bauta_gpu_free(s.context, memory);
    bauta_gpu_free(s.context, NULL);
    assert_int_equal(bauta_gpu_stream_set(s.context, &fake, &err), 0);
    assert_int_equal(bauta_gpu_synchronize(s.context, &err), 0);
    assert_int_equal(forward(&s, s.plan[0]), 0);
    assert_int_equal(forward(&s, s.plan[1]), 0);
    assert_int_equal(backward(&s, s.plan[1]), 0);
    assert_int_equal(step(&s), 0);
    assert_int_equal(decode(&s), 0);
    assert_int_equal(fake.forward, 2);
    assert_int_equal(fake.backward, 1);
    assert_int_equal(fake.decode, 1);
    gpu_fixture_free(&s);
}

static bauta_status update(gpu_fixture *s, size_t i, size_t first, size_t rows)
{
    return bauta_gpu_plan_update(s->context, s->plan[i], s->mask, first, rows,
                                 &err);
}

static void a_plan_can_be_updated(void **state)
{
    gpu_fixture s = gpu_fixture_make();
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(update(&s, i, 2, 3), 0);
        assert_int_equal(forward(&s, s.plan[i]), 0);
        REFUSED(update(&s, i, 6, 3), BAUTA_ERR_ARGUMENT, "rows 6 to 9");
        assert_int_equal(forward(&s, s.plan[i]), 0); // as it was
    }
    assert_int_equal(fake.updated, 2); // created, updated
    fake.fail_update = true;
    REFUSED(update(&s, 0, 0, 8), BAUTA_ERR_NOMEM, "no memory");
    REFUSED(forward(&s, s.plan[0]), BAUTA_ERR_ARGUMENT, "update failed");
    fake.fail_update = false;
    assert_int_equal(update(&s, 0, 0, 8), 0);
    assert_int_equal(forward(&s, s.plan[0]), 0);
    REFUSED(bauta_gpu_plan_update(s.context, NULL, s.mask, 0, 8, &err),
            BAUTA_ERR_ARGUMENT, "plan is NULL");
    gpu_fixture_free(&s);
}

/* Structs of a caller with an older or a newer header: the last field is not
 * there, or there is one more. */
static void structs_of_other_sizes_are_taken(void **state)
{
    struct {
        bauta_gpu_sequence known;
        uint64_t added;
    } newer[2] = { { BAUTA_GPU_SEQUENCE_INIT, 0 },
                   { BAUTA_GPU_SEQUENCE_INIT, 0 } };
    struct {
        bauta_gpu_pages known;
        uint64_t added;
    } pages = { BAUTA_GPU_PAGES_INIT, 0 };
    gpu_fixture s = gpu_fixture_make();
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        newer[i].known = s.sequence;
        newer[i].known.size = sizeof(newer[i]);
        newer[i].known.block_table = s.page;
    }
#define STEP \
    bauta_gpu_decode_plan_update(s.context, s.decode, &newer[0].known, 2, &err)
    assert_int_equal(STEP, 0);
    assert_int_equal(fake.sequences, 2);
    assert_int_equal(fake.rows, 2);
    newer[1].added = 1;
    REFUSED(STEP, BAUTA_ERR_ARGUMENT, "sequences[1]: a field at byte 40 of 48");
    newer[1].known.size -= sizeof(size_t);
    REFUSED(STEP, BAUTA_ERR_ARGUMENT, "sequences[1].size is 40");
#undef STEP
    s.sequence.size = offsetof(bauta_gpu_sequence, block_table);
    REFUSED(step(&s), BAUTA_ERR_ARGUMENT, "no pages"); // its default is NULL
    s.sequence.size = sizeof(s.sequence);
    assert_int_equal(step(&s), 0);

    pages.known.pages = 1;
    pages.known.k = pages.known.v = s.x;
    pages.known.size = sizeof(pages);
#define DECODE                                                     \
    bauta_gpu_attention_decode(s.context, s.decode, &s.shape, s.x, \
                               &pages.known, s.x, NULL, &err)
    assert_int_equal(DECODE, 0);
    assert_false(fake.early_reads);
    pages.known.early_reads = true;
    assert_int_equal(DECODE, 0);
    assert_true(fake.early_reads);
    pages.added = 1;
    REFUSED(DECODE, BAUTA_ERR_ARGUMENT, "pages: a field at byte");
    pages.known.size = offsetof(bauta_gpu_pages, page_keys); // by default 64
    assert_int_equal(DECODE, 0);
    assert_false(fake.early_reads); // its default, too
#undef DECODE
    s.shape.size = offsetof(bauta_attention_shape, scale);
    assert_int_equal(forward(&s, s.plan[0]), 0);
    gpu_fixture_free(&s);
}

static void gpu_calls_refuse_a_cpu_context(void **state)
{
    gpu_fixture s = gpu_fixture_make();
    bauta_context *gpu = s.context, *cpu = context_with(NULL);
    bauta_gpu_plan *plan = NULL;
    bauta_gpu_decode_plan *decoding = NULL;
    void *memory = s.x;
    (void)state;
    s.context = cpu;
#define CPU(call) REFUSED(call, BAUTA_ERR_UNSUPPORTED, "context is for the CPU")
    CPU(bauta_gpu_alloc(cpu, &memory, 4, &err));
    assert_null(memory);
    CPU(bauta_gpu_upload(cpu, s.x, s.x, 4, &err));
    CPU(bauta_gpu_download(cpu, s.x, s.x, 4, &err));
    CPU(bauta_gpu_synchronize(cpu, &err));
    CPU(bauta_gpu_stream_set(cpu, NULL, &err));
    CPU(plan_make(&s, &plan, BAUTA_FLOAT32, false));
    assert_null(plan);
    CPU(forward(&s, s.plan[0]));
    CPU(backward(&s, s.plan[1]));
    CPU(bauta_gpu_decode_plan_create(&decoding, cpu, &s.shape, 64,
                                     BAUTA_BFLOAT16, &err));
    assert_null(decoding);
    CPU(step(&s));
    CPU(decode(&s));
    if (!bt_gpu_table())
        assert_non_null(strstr(err.message, "built without CUDA"));
    bauta_gpu_free(cpu, NULL);
    REFUSED(bauta_gpu_synchronize(NULL, &err), BAUTA_ERR_ARGUMENT, "NULL");
    bauta_context_free(cpu);
    s.context = gpu;
    gpu_fixture_free(&s);
}

#define SMALL_MODEL                                             \
    "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2, " \
    "\"n_layer\": 1, \"vocab_size\": 11, \"n_positions\": 16}"

static void other_calls_refuse_a_gpu_context(void **state)
{
    gpu_fixture s = gpu_fixture_make();
    bauta_plan *plan = NULL;
    bauta_kv_cache *cache = NULL;
    bauta_generator *generator = NULL;
    bauta_trainer *trainer = NULL;
    bauta_audit *audit = NULL;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_model *model = NULL;
    bauta_context *gpu = s.context;
    const size_t length = 1;
    float *x = s.x;
    double loss;
    (void)state;
    batch.count = 1;
    batch.lengths = &length;
    batch.ids = s.page;
    assert_int_equal(bauta_plan_create(&plan, s.mask, 0, 8, &err), 0);
    assert_int_equal(bauta_kv_cache_create(&cache, &s.shape, 8, &err), 0);
    assert_int_equal(bauta_model_create(&model, SMALL_MODEL, 1, &err), 0);
#define GPU(call) REFUSED(call, BAUTA_ERR_UNSUPPORTED, "cuda:3")
    GPU(bauta_attention_forward(gpu, plan, &s.shape, x, x, x, x, x, &err));
    GPU(bauta_attention_backward(gpu, plan, &s.shape, x, x, x, x, x, x, x, x, x,
                                 &err));
    GPU(bauta_attention_cached(gpu, plan, &s.shape, x, cache, x, x, &err));
    // A model on the CPU does not fit the context.
#define MODEL(call) REFUSED(call, BAUTA_ERR_ARGUMENT, "on \"cuda:3\"")
    MODEL(bauta_model_forward(gpu, model, NULL, &batch, &outputs, &err));
    MODEL(bauta_model_loss(gpu, model, NULL, &batch, s.page, NULL, &loss, NULL,
                           &err));
    MODEL(bauta_model_attention_weights(gpu, model, NULL, &batch, &outputs,
                                        NULL, 0, &err));
    MODEL(bauta_generator_create(&generator, gpu, model, NULL, NULL, &err));
    MODEL(
        bauta_trainer_create(&trainer, gpu, model, NULL, NULL, &options, &err));
    MODEL(bauta_audit_create(&audit, gpu, model, NULL, &batch, NULL, &err));
    bauta_model_free(model);
    bauta_kv_cache_free(cache);
    bauta_plan_free(plan);
    gpu_fixture_free(&s);
}

static void bad_arguments_are_errors(void **state)
{
    gpu_fixture s = gpu_fixture_make();
    bauta_gpu_plan *plan = NULL;
    bauta_gpu_decode_plan *decoding = NULL;
    bauta_gpu_sequence none = BAUTA_GPU_SEQUENCE_INIT;
    bauta_attention_shape other = s.shape;
    bauta_mask *wide = NULL;
    (void)state;
#define WRONG(call, words) REFUSED(call, BAUTA_ERR_ARGUMENT, words)
    WRONG(plan_make(&s, &plan, (bauta_dtype)2, false), "dtype is 2");
    WRONG(bauta_gpu_plan_create(&plan, s.context, s.mask, 5, 4, &s.shape,
                                BAUTA_FLOAT32, false, &err),
          "rows 5 to 9");
    WRONG(bauta_gpu_plan_create(&plan, s.context, s.mask, SIZE_MAX, 2, &s.shape,
                                BAUTA_FLOAT32, false, &err),
          "of a mask of 8");
    WRONG(bauta_gpu_plan_create(&plan, s.context, NULL, 0, 8, &s.shape,
                                BAUTA_FLOAT32, false, &err),
          "mask is NULL");
    other.heads = UINT16_MAX;
    assert_int_equal(bauta_mask_all(&wide, 1, 40000, &err), 0);
    REFUSED(bauta_gpu_plan_create(&plan, s.context, wide, 0, 1, &other,
                                  BAUTA_FLOAT32, false, &err),
            BAUTA_ERR_UNSUPPORTED, "32 bits");
    assert_null(plan);
    bauta_mask_free(wide);
    WRONG(forward(&s, NULL), "plan is NULL");
    WRONG(backward(&s, s.plan[0]), "forward pass only");
    WRONG(decode(&s), "bauta_gpu_decode_plan_update");
    none.mask = s.mask;
    WRONG(bauta_gpu_decode_plan_update(s.context, s.decode, &none, 1, &err),
          "sequence 0");
    none.block_table = s.page;
    none.first = 9;
    WRONG(bauta_gpu_decode_plan_update(s.context, s.decode, &none, 1, &err),
          "rows 9 to 9");
    assert_int_equal(step(&s), 0);
    s.pages.page_keys = 128;
    WRONG(decode(&s), "128 keys");
    s.pages.size = 1;
    WRONG(decode(&s), "pages.size");
    s.shape.heads = 2;
    WRONG(forward(&s, s.plan[0]), "2 over 2");
    WRONG(decode(&s), "2 over 2");
    s.shape.heads = 1;
    s.context->device = 2;
    WRONG(forward(&s, s.plan[0]), "\"cuda:3\"");
    WRONG(step(&s), "\"cuda:3\"");
    s.context->device = 3;
    s.shape.out_token = 8;
    WRONG(forward(&s, s.plan[0]), "out_token");
    s.shape.out_token = 0;
    s.shape.k_token = 8;
    WRONG(backward(&s, s.plan[1]), "k_token");
    s.shape.size = 0;
    WRONG(forward(&s, s.plan[0]), "shape.size");
    WRONG(bauta_gpu_decode_plan_create(&decoding, s.context, &s.shape, 64,
                                       BAUTA_BFLOAT16, &err),
          "shape.size");
    WRONG(bauta_gpu_upload(s.context, NULL, s.x, 4, &err), "to is NULL");
    fake.full = true;
    void *memory = s.x;
    REFUSED(bauta_gpu_alloc(s.context, &memory, 4, &err), BAUTA_ERR_NOMEM,
            "memory");
    gpu_fixture_free(&s);
}

static void allocation_failure_leaks_nothing(void **state)
{
    gpu_fixture s = { .shape = BAUTA_ATTENTION_SHAPE_INIT };
    (void)state;
    faults_begin();
    s.context = fake_context();
    assert_int_equal(bauta_mask_causal(&s.mask, 8, 8, &err), 0);
    for (int what = 0; what < 5; what++)
        for (size_t k = 0;; k++) {
            bauta_gpu_plan *plan = NULL;
            bauta_gpu_decode_plan *decoding = NULL;
            bauta_context *cpu = NULL;
            bauta_dtype type = (bauta_dtype)(what % 2);
            bauta_status status;
            size_t live = faults_live();
            faults_arm(k);
            if (what < 2)
                status = plan_make(&s, &plan, type, true);
            else if (what < 4)
                status = bauta_gpu_decode_plan_create(&decoding, s.context,
                                                      &s.shape, 64, type, &err);
            else
                status = bauta_context_create(&cpu, NULL, &err);
            if (!faults_disarm()) {
                assert_int_equal(status, BAUTA_OK);
                bauta_gpu_plan_free(plan);
                bauta_gpu_decode_plan_free(decoding);
                bauta_context_free(cpu);
                break;
            }
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_non_null(strstr(err.message, "memory"));
            assert_int_equal(faults_live(), live);
        }
    bauta_mask_free(s.mask);
    bauta_context_free(s.context);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_uses_the_cpu_by_default),
        cmocka_unit_test(options_of_an_older_header_are_accepted),
        cmocka_unit_test(unknown_devices_are_named),
        cmocka_unit_test(a_missing_gpu_is_an_error),
        cmocka_unit_test(a_runtime_error_has_its_own_status),
        cmocka_unit_test(gpu_calls_reach_the_kernels_on_their_device),
        cmocka_unit_test(a_plan_can_be_updated),
        cmocka_unit_test(structs_of_other_sizes_are_taken),
        cmocka_unit_test(gpu_calls_refuse_a_cpu_context),
        cmocka_unit_test(other_calls_refuse_a_gpu_context),
        cmocka_unit_test(bad_arguments_are_errors),
        cmocka_unit_test(allocation_failure_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

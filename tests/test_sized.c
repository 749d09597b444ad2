/* SPDX-License-Identifier: Apache-2.0 */
/* test_sized.c - structs of older and newer callers.
 *
 * Each sized struct of the interface goes through its call, from abi/calls.c,
 * cut off at every field and extended by a field. The layouts come from the
 * headers, through abi/fields.sh. */
#include "abi/calls.h"
#include "base/error.h"
#include "base/sized.h"
#include "temp_folder.h"
#include "testing.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- layouts ------------------------------------------------------------- */

enum { ROOM = 2048, MORE = sizeof(uint64_t) };

typedef struct layout {
    const char *type;
    size_t size;
    unsigned char init[ROOM]; /* the INIT value */
    size_t ends[64];          /* where the struct could have ended before */
    size_t count;
} layout;

static layout layouts[64];
static size_t layout_count;

static void layout_begin(const char *type, const void *init, size_t size)
{
    layout *l = &layouts[layout_count++];
    assert_true(layout_count <= BT_LEN(layouts) && size <= ROOM);
    *l = (layout){ .type = type, .size = size };
    memcpy(l->init, init, size);
}

/* A struct could have ended before a field if its size was then a whole number
 * of words, as every sizeof of it is, and it had a field beside `size`. */
static void layout_field(size_t offset)
{
    layout *l = &layouts[layout_count - 1];
    if (offset % sizeof(size_t) == 0 && offset >= 2 * sizeof(size_t))
        l->ends[l->count++] = offset;
}

static void layouts_read(void)
{
#define STRUCT(struct_) \
    {                   \
        bool sized = false;
#define SIZED(struct_, init)  \
    {                         \
        bool sized = true;    \
        struct_ value = init; \
        layout_begin(#struct_, &value, sizeof(value));
#define FIELD(struct_, field) \
    if (sized)                \
        layout_field(offsetof(struct_, field));
#define END(struct_) }
#define ENUM(name)
#include "abi_fields.h"
}

static const layout *layout_of(const char *type)
{
    for (size_t i = 0; i < layout_count; i++)
        if (strcmp(layouts[i].type, type) == 0)
            return &layouts[i];
    fail_msg("%s is not a sized struct of the headers", type);
    return NULL;
}

/* `size` bytes whose end is the end of what may be touched. */
typedef struct edge {
    unsigned char *at;
    void *pages;
    size_t page;
} edge;

static edge edge_create(const void *from, size_t size)
{
    edge e = { .page = (size_t)sysconf(_SC_PAGESIZE) };
    assert_true(size <= e.page);
    e.pages = mmap(NULL, 2 * e.page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(e.pages != MAP_FAILED);
    e.at = (unsigned char *)e.pages + e.page - size;
    memcpy(e.at, from, size);
    memcpy(e.at, &size, sizeof(size));
    assert_int_equal(mprotect(e.at + size, e.page, PROT_NONE), 0);
    return e;
}

static void edge_free(edge *e)
{
    munmap(e->pages, 2 * e->page);
}

/* ---- every struct through its call --------------------------------------- */

static void same(const abi_call *call, const char *what, size_t size,
                 abi_outcome want, abi_outcome got)
{
    if (want.status != got.status || want.digest != got.digest ||
        strcmp(want.message, got.message) != 0)
        fail_msg("%s, %s %zu bytes: status %d, %s (%llx), not %d, %s (%llx)",
                 call->name, what, size, (int)got.status, got.message,
                 (unsigned long long)got.digest, (int)want.status, want.message,
                 (unsigned long long)want.digest);
}

/* A struct that ends at `end` gives what a whole one gives whose other fields
 * have their defaults. */
static void input_cut(const abi_call *call, const unsigned char *init,
                      const unsigned char *filled, size_t end)
{
    _Alignas(16) unsigned char whole[ROOM];
    memcpy(whole, init, call->size);
    memcpy(whole + sizeof(size_t), filled + sizeof(size_t),
           end - sizeof(size_t));
    abi_outcome want = call->run(whole);
    edge e = edge_create(filled, end);
    same(call, "cut to", end, want, call->run(e.at));
    edge_free(&e);
}

/* Of a struct that ends at `end` that much is filled, and no more. */
static void output_cut(const abi_call *call, const unsigned char *filled,
                       size_t end)
{
    _Alignas(16) unsigned char whole[ROOM];
    memcpy(whole, filled, call->size);
    assert_int_equal(call->run(whole).status, BAUTA_OK);
    edge e = edge_create(filled, end);
    assert_int_equal(call->run(e.at).status, BAUTA_OK);
    assert_memory_equal(e.at, &end, sizeof(end)); // the size is kept
    assert_memory_equal(e.at + sizeof(end), whole + sizeof(end),
                        end - sizeof(end));
    edge_free(&e);
}

static void older_structs_are_completed_with_defaults(void **state)
{
    (void)state;
    size_t cuts = 0;
    for (size_t i = 0; i < abi_call_count; i++) {
        const abi_call *call = &abi_calls[i];
        _Alignas(16) unsigned char filled[ROOM];
        const layout *l = layout_of(call->name);
        assert_int_equal(l->size, call->size);
        memset(filled, 0, sizeof(filled));
        call->fill(filled);
        for (size_t k = 0; k < l->count; k++, cuts++)
            if (call->output)
                output_cut(call, filled, l->ends[k]);
            else
                input_cut(call, l->init, filled, l->ends[k]);
        // The whole one works, or the others would have shown nothing.
        abi_outcome o = call->run(filled);
        if (o.status)
            fail_msg("%s: %s", call->name, o.message);
    }
    printf("%zu structs cut off at %zu fields\n", abi_call_count, cuts);
}

static void newer_structs_are_taken_unless_the_rest_is_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < abi_call_count; i++) {
        const abi_call *call = &abi_calls[i];
        _Alignas(16) unsigned char filled[ROOM];
        char place[48];
        memset(filled, 0, sizeof(filled));
        call->fill(filled);
        edge e = edge_create(filled, call->size + MORE);
        abi_outcome more = call->run(e.at);
        call->fill(filled);
        same(call, "grown to", call->size + MORE, call->run(filled), more);

        e.at[call->size + 3] = 1; // any byte of it
        abi_outcome set = call->run(e.at);
        if (call->output) { // it may hold anything and keeps it
            assert_int_equal(set.status, BAUTA_OK);
            assert_int_equal(e.at[call->size + 3], 1);
            assert_int_equal(e.at[call->size + 2], 0);
        } else {
            snprintf(place, sizeof(place), "byte %zu of %zu is set", call->size,
                     call->size + MORE);
            assert_int_equal(set.status, BAUTA_ERR_ARGUMENT);
            if (!strstr(set.message, place))
                fail_msg("%s: \"%s\" lacks \"%s\"", call->name, set.message,
                         place);
        }
        edge_free(&e);
    }
}

static void sizes_that_no_struct_has_are_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0,    1,    sizeof(size_t), 20,
                                    4097, 8192, SIZE_MAX,       SIZE_MAX - 7 };
    for (size_t i = 0; i < abi_call_count; i++)
        for (size_t k = 0; k < BT_LEN(sizes); k++) {
            const abi_call *call = &abi_calls[i];
            _Alignas(16) unsigned char filled[ROOM];
            char says[64];
            memset(filled, 0, sizeof(filled));
            call->fill(filled);
            memcpy(filled, &sizes[k], sizeof(sizes[k]));
            abi_outcome o = call->run(filled);
            snprintf(says, sizeof(says), "size is %zu, which no version",
                     sizes[k]);
            assert_int_equal(o.status, BAUTA_ERR_ARGUMENT);
            if (!strstr(o.message, says) || !strstr(o.message, "_INIT"))
                fail_msg("%s: \"%s\"", call->name, o.message);
        }
}

/* The structs without a call here are for GPUs; tests/test_device.c has them.
 */
static void every_struct_of_the_headers_has_a_call(void **state)
{
    (void)state;
    assert_true(layout_count > 20);
    for (size_t i = 0; i < layout_count; i++) {
        const char *type = layouts[i].type;
        bool found = strncmp(type, "bauta_gpu_", 10) == 0;
        for (size_t k = 0; !found && k < abi_call_count; k++)
            found = strcmp(abi_calls[k].name, type) == 0;
        if (!found)
            fail_msg("abi/calls.c has no call for %s", type);
    }
}

/* ---- arrays -------------------------------------------------------------- */

static void elements_have_the_size_of_the_first(void **state)
{
    (void)state;
    bauta_gpu_sequence all[3] = { BAUTA_GPU_SEQUENCE_INIT,
                                  BAUTA_GPU_SEQUENCE_INIT,
                                  BAUTA_GPU_SEQUENCE_INIT };
    bauta_gpu_sequence got;
    bauta_error err;
    for (size_t i = 0; i < 3; i++)
        all[i].rows = i;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(BT_SIZED_ELEMENT(&got, BAUTA_GPU_SEQUENCE_INIT, all, i,
                                          "all", &err),
                         BAUTA_OK);
        assert_int_equal(got.rows, i);
    }
    all[2].size -= sizeof(size_t);
    assert_int_equal(
        BT_SIZED_ELEMENT(&got, BAUTA_GPU_SEQUENCE_INIT, all, 2, "all", &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "all[2].size is"));
    // The copy is of the library's size, whatever that of the caller's is.
    assert_int_equal(
        BT_SIZED_READ(&got, BAUTA_GPU_SEQUENCE_INIT, &all[2], "all", &err),
        BAUTA_OK);
    assert_int_equal(got.size, sizeof(got));
}

static temp_folder files;

static int group_begin(void **state)
{
    (void)state;
    layouts_read();
    files = temp_folder_create();
    abi_calls_begin(files.folder);
    return 0;
}

static int group_end(void **state)
{
    (void)state;
    abi_calls_end();
    temp_folder_free(&files);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_structs_are_completed_with_defaults),
        cmocka_unit_test(newer_structs_are_taken_unless_the_rest_is_set),
        cmocka_unit_test(sizes_that_no_struct_has_are_refused),
        cmocka_unit_test(every_struct_of_the_headers_has_a_call),
        cmocka_unit_test(elements_have_the_size_of_the_first),
    };
    return cmocka_run_group_tests_name("sized", tests, group_begin, group_end);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* checking.h - shared by all checks of the GPU kernels: counting failures,
 * bfloat16, and copies to and from the device.
 *
 * With --quick a check runs a few small cases of every sort: enough for a tool
 * that watches every access and slows them down a hundred times. With --race
 * and a head size it runs still fewer, of that size alone, where it knows of
 * it. */
#ifndef BT_TEST_CUDA_CHECKING_H
#define BT_TEST_CUDA_CHECKING_H

#include "base/error.h"
#include "testing.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

static size_t failures, checks;
static test_random random_stream;
static bool quick;
static size_t race_head; /* 0: not --race */

#define FAIL(...)                         \
    do {                                  \
        if (failures++ < 40) {            \
            printf("FAIL: " __VA_ARGS__); \
            printf("\n");                 \
            fflush(stdout);               \
        }                                 \
    } while (0)

static inline void check_begin(int argc, char **argv)
{
    quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc == 3 && strcmp(argv[1], "--race") == 0)
        race_head = (size_t)strtoul(argv[2], NULL, 10);
    if (argc > 1 && !quick && !race_head) {
        printf("usage: %s [--quick | --race HEAD]\n", argv[0]);
        exit(2);
    }
    random_stream = test_random_from(test_seed());
    fflush(stdout);
}

static inline int check_end(void)
{
    printf("%zu checks, %zu failures\n", checks, failures);
    return failures != 0;
}

static inline void need(bauta_status status, const bauta_error *err)
{
    if (status) {
        printf("FAIL: %s\n", err->message);
        exit(1);
    }
}

static inline void need_cuda(cudaError_t status, const char *what)
{
    if (status) {
        printf("FAIL: %s: %s\n", what, cudaGetErrorString(status));
        exit(1);
    }
}

static inline size_t below(size_t limit)
{
    return test_below(&random_stream, limit);
}

static inline void *to_device(const void *from, size_t bytes)
{
    void *memory = NULL;
    need_cuda(cudaMalloc(&memory, bytes ? bytes : 16), "cudaMalloc");
    if (bytes)
        need_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    return memory;
}

/* ---- bfloat16 ---------------------------------------------------------- */

static inline float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint16_t to_bf16(float value) // finite values only
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t *random_bf16(size_t count, float width)
{
    uint16_t *x = malloc(count * 2 + 1);
    for (size_t i = 0; i < count; i++)
        x[i] = to_bf16(width * test_float(&random_stream));
    return x;
}

enum { POISON_NANS = 2 }; /* the first ones are NaN */

static const uint16_t poisons[] = {
    0x7fc0, /* NaN */
    0xffff, /* NaN, all bits */
    0x7f80, /* +infinity */
    0xff80, /* -infinity */
    0x7f7f, /* largest */
    0xff7f, /* smallest */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - for each sized struct of the interface, a call that takes it, and
 * what came of it. Public headers only: tests/test_sized.c runs these calls
 * with structs of other sizes, and tests/abi/client.c runs them where program
 * and library were compiled against different headers. */
#ifndef BT_ABI_CALLS_H
#define BT_ABI_CALLS_H

#include <bauta.h>

typedef struct abi_outcome {
    bauta_status status;
    char message[256];
    uint64_t digest; /* of what the call computed */
} abi_outcome;

typedef struct abi_call {
    const char *name; /* "bauta_batch" */
    size_t size;
    bool output; /* the call fills the struct; else it reads it */
    /* Start from INIT and set fields so that the call does something. */
    void (*fill)(void *sized);
    abi_outcome (*run)(void *sized);
    /* A digest of the fields that the call filled, in a struct of full size. */
    uint64_t (*show)(const void *sized);
} abi_call;

extern const abi_call abi_calls[];
extern const size_t abi_call_count;

/* The files that the calls write are in `folder`, which exists. Ends the
 * program with a message if something fails. */
void abi_calls_begin(const char *folder);
void abi_calls_end(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - selects the kernels that this machine can run. */
#include "backend/cpu/kernels/kernels.h"

#include "backend/cpu/kernels/x86/x86.h"

#include <string.h>

#define REFERENCE(name) .name = bt_##name##_f32_c,
static const bt_kernels reference = { .isa = "c", BT_KERNEL_MAP(REFERENCE) };

/* All tables that this machine can run, from the reference to the best. */
static size_t present(const bt_kernels *tables[3])
{
    size_t count = 0;
    tables[count++] = &reference;
    return count + bt_kernels_x86(tables + count);
}

const bt_kernels *bt_kernels_get(const char *isa)
{
    const bt_kernels *tables[3];
    size_t count = present(tables);
    if (!isa)
        return tables[count - 1];
    for (size_t i = 0; i < count; i++)
        if (strcmp(tables[i]->isa, isa) == 0)
            return tables[i];
    return NULL;
}

size_t bt_kernels_names(const char *names[], size_t capacity)
{
    const bt_kernels *tables[3];
    size_t count = present(tables);
    for (size_t i = 0; i < count && i < capacity; i++)
        names[i] = tables[i]->isa;
    return count;
}

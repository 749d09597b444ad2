/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - which kernels run on this machine. */
#include "kernels/kernels.h"

#include "kernels/x86/x86.h"

#include <string.h>

static const bt_kernels reference = {
    .isa = "c",
    .exp = bt_exp_f32_c,
    .row_max = bt_row_max_f32_c,
    .row_exp_sum = bt_row_exp_sum_f32_c,
    .transpose = bt_transpose_f32_c,
    .attention_forward = bt_attention_forward_f32_c,
    .attention_backward = bt_attention_backward_f32_c,
    .gemm_columns = bt_gemm_columns_f32_c,
};

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

/* SPDX-License-Identifier: Apache-2.0 */
/* dump.c - print the layout of the interface: the size of every struct, offset
 * and size of every field, the value of every constant. tests/lint/abi.sh
 * compares it with tests/data/abi.txt. */
#include <bauta.h>

#include <stdio.h>

#define STRUCT(type) printf("struct %s %zu\n", #type, sizeof(type));
#define SIZED(type, init) printf("sized %s %zu\n", #type, sizeof(type));
#define FIELD(type, field)                                                \
    printf("field %s.%s %zu %zu\n", #type, #field, offsetof(type, field), \
           sizeof(((type *)0)->field));
#define END(type)
#define ENUM(name) printf("enum %s %lld\n", #name, (long long)(name));

int main(void)
{
    if (sizeof(void *) != 8 || sizeof(long) != 8)
        return 77; // the file is for 64-bit systems
#include "abi_fields.h"
    return 0;
}

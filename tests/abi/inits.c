/* SPDX-License-Identifier: Apache-2.0 */
/* inits.c - print every BAUTA_..._INIT value, field by field. It is C and C++:
 * tests/lint/header.sh compares what both print. */
#include <bauta.h>

#include <stdio.h>
#include <string.h>

static void bytes_print(const char *field, const void *value, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)value;
    printf("  %s ", field);
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    printf("\n");
}

#define STRUCT(type)                      \
    {                                     \
        type value;                       \
        memset(&value, 0, sizeof(value)); \
        printf("%s\n", #type);
#define SIZED(type, init)  \
    {                      \
        type value = init; \
        printf("%s %zu\n", #init, sizeof(value));
#define FIELD(type, field) \
    bytes_print(#field, &value.field, sizeof(value.field));
#define END(type) }
#define ENUM(name)

int main(void)
{
#include "abi_fields.h"
    // The other value of a type.
    bauta_train_options tuned = BAUTA_FINETUNE_OPTIONS_INIT;
    bytes_print("BAUTA_FINETUNE_OPTIONS_INIT", &tuned, sizeof(tuned));
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_mask_parse.c - any bytes as a mask expression.
 *
 * The first two bytes are the sizes. Either the text is refused with a message
 * that names the column, or NOT of it is the mask's complement. */
#include "bauta.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool fine)
{
    if (!fine)
        abort();
}

static void complement_holds(const char *text, const bauta_mask *mask)
{
    size_t queries = bauta_mask_queries(mask), keys = bauta_mask_keys(mask);
    size_t length = strlen(text);
    char *negated = malloc(length + 4);
    bauta_mask *other;
    bauta_error err;
    must(negated != NULL);
    negated[0] = '!';
    negated[1] = '(';
    memcpy(negated + 2, text, length);
    strcpy(negated + 2 + length, ")");
    if (bauta_mask_parse(&other, negated, queries, keys, &err) == BAUTA_OK)
        must(bauta_mask_pairs(mask) + bauta_mask_pairs(other) ==
             (uint64_t)queries * keys);
    else // it may now be nested too deep
        must(strstr(err.message, "nested deeper") != NULL);
    bauta_mask_free(other);
    free(negated);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_mask *mask;
    bauta_error err;
    if (size < 2 || size > 4096)
        return 0;
    char *text = malloc(size - 1);
    must(text != NULL);
    memcpy(text, bytes + 2, size - 2);
    text[size - 2] = '\0';
    size_t queries = bytes[0] % 32, keys = bytes[1] % 32;
    if (bauta_mask_parse(&mask, text, queries, keys, &err) == BAUTA_OK)
        complement_holds(text, mask);
    else
        must(!mask && err.status == BAUTA_ERR_ARGUMENT &&
             strncmp(err.message, "column ", 7) == 0);
    bauta_mask_free(mask);
    free(text);
    return 0;
}

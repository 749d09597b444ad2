/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - any bytes as a safetensors file.
 *
 * Either they are refused with a message that names the file, or every tensor
 * can be found and read, and the header that we would write for them describes
 * the same tensors. */
#include "base/error.h"
#include "base/memory.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

static const char path[] = "input.safetensors";

static void must(bool fine)
{
    if (!fine)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Every byte is part of the input, and each float can be read. */
static void tensor_read(const bt_stored_tensor *t, const uint8_t *bytes,
                        size_t size)
{
    const uint8_t *data = t->data;
    must(data >= bytes && t->bytes <= (size_t)(bytes + size - data));
    must(bt_stored_tensor_bytes(t->dtype, t->rank, t->shape) == t->bytes);
    size_t element = bt_dtype_size(t->dtype);
    for (size_t at = 0; at < t->bytes; at += element) {
        float x;
        uint8_t back[8];
        if (bt_convert_f32(&x, data + at, t->dtype, 1))
            must(bt_convert_from_f32(back, t->dtype, &x, 1) &&
                 (x != x || !memcmp(back, data + at, element)));
    }
}

static void same(const bt_stored_tensor *x, const bt_stored_tensor *y)
{
    must(!strcmp(x->name, y->name) && x->dtype == y->dtype);
    must(x->rank == y->rank && x->bytes == y->bytes);
    must(!memcmp(x->shape, y->shape, x->rank * sizeof(*x->shape)));
}

/* The tensors, written to memory and read again. */
static void round_trip(const bt_safetensors *file, size_t data_size)
{
    size_t count = bt_safetensors_count(file), size;
    unsigned char *header;
    bt_safetensors *again;
    bauta_error err;
    const bt_stored_tensor **order = malloc((count + 1) * sizeof(*order));
    must(order != NULL);
    for (size_t i = 0; i < count; i++)
        order[i] = bt_safetensors_at(file, i);
    must(!bt_safetensors_header(&header, &size, path, order, count, NULL, 0,
                                &err));
    unsigned char *whole = malloc(size + data_size);
    must(whole != NULL);
    memcpy(whole, header, size);
    memset(whole + size, 0, data_size);
    must(!bt_safetensors_parse(&again, path, whole, size + data_size, &err));
    must(bt_safetensors_count(again) == count);
    for (size_t i = 0; i < count; i++)
        same(bt_safetensors_at(file, i), bt_safetensors_at(again, i));
    bt_safetensors_free(again);
    free(whole);
    bt_free(header);
    free(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bt_safetensors *file;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status = bt_safetensors_parse(&file, path, bytes, size, &err);
    if (status) {
        must(!file && status == err.status);
        must(status == BAUTA_ERR_FORMAT && strstr(err.message, path));
        return 0;
    }
    size_t data_size = 0;
    for (size_t i = 0; i < bt_safetensors_count(file); i++) {
        const bt_stored_tensor *t = bt_safetensors_at(file, i);
        must(bt_safetensors_find(file, t->name) == t);
        tensor_read(t, bytes, size);
        data_size += t->bytes;
    }
    must(!bt_safetensors_find(file, "no tensor has this name, one hopes"));
    bt_safetensors_metadata(file, "format");
    round_trip(file, data_size);
    bt_safetensors_free(file);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - finding the data folder and reading tensors; see data.h.
 *
 *     8 bytes   length of the header, little endian
 *     header    JSON: {"name": {"dtype", "shape", "data_offsets": [from, to]}}
 *     bytes     the tensors; offsets count from here
 *
 * The test data is little endian, as are the machines that the tests run on. */
#include "data.h"

#include "base/size.h"
#include "tensor/tensor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path_in(const char *folder, char *buffer, size_t size,
                           const char *relative)
{
    int length = snprintf(buffer, size, "%s/%s", folder, relative);
    FILE *file = NULL;
    if (length >= 0 && (size_t)length < size)
        file = fopen(buffer, "rb");
    if (!file)
        return NULL;
    fclose(file);
    return buffer;
}

const char *test_data_path(char *buffer, size_t size, const char *relative)
{
    const char *folder = getenv("BAUTA_DATA");
    return path_in(folder ? folder : BAUTA_TEST_DATA, buffer, size, relative);
}

const char *test_tree_path(char *buffer, size_t size, const char *relative)
{
    return path_in(BAUTA_TEST_TREE, buffer, size, relative);
}

struct tensors {
    unsigned char *bytes; /* the whole file */
    size_t size, start;   /* where the tensors begin */
    json_t *header;
};

static unsigned char *file_read(const char *path, size_t *size)
{
    unsigned char *bytes = NULL;
    FILE *file = fopen(path, "rb");
    long end = -1;
    if (file && fseek(file, 0, SEEK_END) == 0)
        end = ftell(file);
    if (end >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = malloc((size_t)end + 1);
    if (bytes && fread(bytes, 1, (size_t)end, file) != (size_t)end) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
    *size = bytes ? (size_t)end : 0;
    return bytes;
}

tensors *tensors_load(const char *path)
{
    uint64_t length;
    tensors *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    file->bytes = file_read(path, &file->size);
    if (file->size < sizeof(length))
        goto failed;
    memcpy(&length, file->bytes, sizeof(length));
    if (length > file->size - sizeof(length))
        goto failed;
    file->start = sizeof(length) + (size_t)length;
    file->header = json_loadb((const char *)file->bytes + sizeof(length),
                              (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(file->header))
        return file;
failed:
    tensors_free(file);
    return NULL;
}

void tensors_free(tensors *file)
{
    if (!file)
        return;
    json_decref(file->header);
    free(file->bytes);
    free(file);
}

bool tensors_have(const tensors *file, const char *name)
{
    return json_object_get(file->header, name) != NULL;
}

/* Element `index` of a list of sizes; false when it is not one. */
static bool size_at(const json_t *list, size_t index, size_t *size)
{
    const json_t *item = json_array_get(list, index);
    json_int_t value = json_integer_value(item);
    *size = value > 0 ? (size_t)value : 0;
    return json_is_integer(item) && value >= 0;
}

/* The type of a name, and the bytes of an element. */
static tensor_type type_of(const json_t *name, size_t *bytes)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = { [TENSOR_F32] = { "F32", 4 },
                  [TENSOR_BOOL] = { "BOOL", 1 },
                  [TENSOR_I64] = { "I64", 8 } };
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < TENSOR_OTHER; i++)
        if (!strcmp(text, types[i].name)) {
            *bytes = types[i].bytes;
            return (tensor_type)i;
        }
    *bytes = 0;
    return TENSOR_OTHER;
}

static bool shape_read(tensor *t, const json_t *shape)
{
    t->rank = json_array_size(shape);
    t->count = 1;
    if (!json_is_array(shape) || t->rank > TENSOR_RANK_MAX)
        return false;
    for (size_t i = 0; i < t->rank; i++) {
        if (!size_at(shape, i, &t->dims[i]))
            return false;
        t->count = bt_size_mul(t->count, t->dims[i]);
    }
    return true;
}

/* Copy the elements. Their range must lie within the file and match the
 * shape. */
static bool data_read(tensor *t, const tensors *file, const json_t *offsets,
                      size_t element)
{
    size_t from, to, room = file->size - file->start;
    if (!size_at(offsets, 0, &from) || !size_at(offsets, 1, &to))
        return false;
    if (from > to || to > room || to - from != bt_size_mul(t->count, element))
        return false;
    t->data = malloc(bt_size_max(to - from, 1));
    if (!t->data)
        return false;
    memcpy(t->data, file->bytes + file->start + from, to - from);
    return true;
}

/* Widen float16 to float32. */
static bool half_widen(tensor *t)
{
    float *wide = malloc(bt_size_max(t->count, 1) * sizeof(float));
    if (!wide || !bt_convert_f32(wide, t->data, BAUTA_FLOAT16, t->count)) {
        free(wide);
        return false;
    }
    free(t->data);
    t->data = wide;
    t->type = TENSOR_F32;
    return true;
}

bool tensor_read(tensor *out, const tensors *file, const char *name)
{
    size_t element;
    const json_t *entry = json_object_get(file->header, name);
    tensor t = { .type = type_of(json_object_get(entry, "dtype"), &element) };
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    t.half = type && !strcmp(type, "F16");
    bool fine = entry && shape_read(&t, json_object_get(entry, "shape"));
    if (fine && (t.half || t.type != TENSOR_OTHER))
        fine = data_read(&t, file, json_object_get(entry, "data_offsets"),
                         t.half ? 2 : element);
    if (fine && t.half)
        fine = half_widen(&t);
    if (!fine)
        free(t.data);
    *out = fine ? t : (tensor){ .type = TENSOR_OTHER };
    return fine;
}

void tensor_release(tensor *t)
{
    free(t->data);
    *t = (tensor){ .type = TENSOR_OTHER };
}

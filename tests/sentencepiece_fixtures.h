/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_fixtures.h - SentencePiece models for tests: the files of the
 * tree, and models written here, field by field. */
#ifndef BT_TEST_SENTENCEPIECE_FIXTURES_H
#define BT_TEST_SENTENCEPIECE_FIXTURES_H

#include "testing.h"

#include "base/file.h"
#include "base/memory.h"
#include "data.h"
#include "formats/sentencepiece_proto.h"

#include <jansson.h>
#include <string.h>

/* ---- Files --------------------------------------------------------------- */

typedef struct spm_file {
    char *bytes;
    size_t size;
} spm_file;

static inline spm_file spm_read(const char *path)
{
    spm_file file;
    bauta_error err;
    if (bt_file_read(&file.bytes, &file.size, path, 64 << 20, &err))
        fail_msg("%s", err.message);
    return file;
}

static inline spm_file spm_tree(const char *name)
{
    char path[512], relative[128];
    snprintf(relative, sizeof(relative), "sentencepiece/%s", name);
    assert_non_null(test_tree_path(path, sizeof(path), relative));
    return spm_read(path);
}

/* The expected results under a name, of SentencePiece and Hugging Face; for
 * json_decref(). */
static inline json_t *spm_expected(const char *name)
{
    spm_file file = spm_tree("expect.json");
    json_t *all = json_loadb(file.bytes, file.size, 0, NULL);
    json_t *rows = json_incref(json_object_get(all, name));
    assert_true(json_array_size(rows) > 0);
    json_decref(all);
    bt_free(file.bytes);
    return rows;
}

/* The bytes that a key holds in hexadecimal; for free(). */
static inline spm_file spm_hex(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    assert_non_null(text);
    spm_file out = { malloc(strlen(text) / 2 + 1), strlen(text) / 2 };
    assert_non_null(out.bytes);
    for (size_t i = 0; i < out.size; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        out.bytes[i] = (char)byte;
    }
    out.bytes[out.size] = 0;
    return out;
}

/* Whether ids are those of a JSON array. */
static inline void spm_assert_ids(const char *what, const json_t *row,
                                  const uint32_t *ids, size_t count,
                                  const json_t *want)
{
    bool same = count == json_array_size(want);
    for (size_t i = 0; same && i < count; i++)
        same = ids[i] == json_integer_value(json_array_get(want, i));
    if (same)
        return;
    char *text = json_dumps(row, 0);
    printf("%s: %s\n  got:", what, text);
    for (size_t i = 0; i < count; i++)
        printf(" %u", ids[i]);
    free(text);
    fail_msg("%s: other ids than expected", what);
}

/* ---- Writing ------------------------------------------------------------- */

typedef struct spm_model {
    unsigned char bytes[1 << 16];
    size_t size;
} spm_model;

static inline void spm_put(spm_model *m, const void *bytes, size_t size)
{
    assert_true(sizeof(m->bytes) - m->size >= size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static inline void spm_varint(spm_model *m, uint64_t value)
{
    for (; value > 127; value >>= 7)
        spm_put(m, &(unsigned char){ (unsigned char)(value | 128) }, 1);
    spm_put(m, &(unsigned char){ (unsigned char)value }, 1);
}

static inline void spm_data(spm_model *m, unsigned field, const void *bytes,
                            size_t size)
{
    spm_varint(m, field << 3 | 2);
    spm_varint(m, size);
    spm_put(m, bytes, size);
}

static inline void spm_number(spm_model *m, unsigned field, uint64_t value)
{
    spm_varint(m, field << 3);
    spm_varint(m, value);
}

static inline void spm_piece(spm_model *m, const char *text, float score,
                             bt_piece_type type)
{
    static spm_model body;
    body.size = 0;
    spm_data(&body, 1, text, strlen(text));
    spm_varint(&body, 2 << 3 | 5);
    spm_put(&body, &score, sizeof(score)); // on a little-endian machine
    spm_number(&body, 3, type);
    spm_data(m, 1, body.bytes, body.size);
}

/* A message of one number: trainer_spec is 2, normalizer_spec 3. */
static inline void spm_spec(spm_model *m, unsigned spec, unsigned field,
                            uint64_t value)
{
    static spm_model body;
    body.size = 0;
    spm_number(&body, field, value);
    spm_data(m, spec, body.bytes, body.size);
}

#endif

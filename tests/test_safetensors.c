/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - files of tensors: written files read back the same,
 * files of other programs are read and rewritten byte for byte, and malformed
 * ones are refused. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "data.h"
#include "formats/safetensors.h"
#include "temp_folder.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* ---- Files in memory ----------------------------------------------------- */

typedef struct bytes {
    unsigned char *at;
    size_t size;
} bytes;

/* A header and so many bytes of data, in a block of just that size. */
static bytes file_of(const char *header, size_t length, size_t data)
{
    bytes b = { malloc(8 + length + data), 8 + length + data };
    for (int i = 0; i < 8; i++)
        b.at[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(b.at + 8, header, length);
    memset(b.at + 8 + length, 0x3f, data);
    return b;
}

static bytes file_load(const char *path)
{
    char *text;
    bytes b;
    bauta_error err;
    if (bt_file_read(&text, &b.size, path, 1 << 26, &err))
        fail_msg("%s", err.message);
    b.at = memcpy(malloc(b.size + 1), text, b.size);
    bt_free(text);
    return b;
}

static bytes fixture(const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", BAUTA_TEST_FIXTURES, name);
    return file_load(path);
}

static bt_safetensors *parsed(bytes b)
{
    bt_safetensors *file;
    bauta_error err;
    if (bt_safetensors_parse(&file, "memory", b.at, b.size, &err))
        fail_msg("%s", err.message);
    return file;
}

/* ---- Valid input --------------------------------------------------------- */

static void tensors_are_read_by_name(void **state)
{
    (void)state;
    bytes b = fixture("unaligned.safetensors");
    bt_safetensors *file = parsed(b);
    assert_int_equal(bt_safetensors_count(file), 2);
    const bt_stored_tensor *x = bt_safetensors_find(file, "x");
    assert_non_null(x);
    assert_ptr_equal(bt_safetensors_at(file, 1), x);
    assert_int_equal(x->dtype, BAUTA_FLOAT32);
    assert_int_equal(x->rank, 1);
    assert_int_equal(x->shape[0], 3);
    assert_int_equal(x->bytes, 12);
    assert_ptr_equal((const unsigned char *)x->data + 12, b.at + b.size);
    assert_int_not_equal(((const unsigned char *)x->data - b.at) % 4, 0);
    float values[3], half;
    assert_true(bt_convert_f32(values, x->data, x->dtype, 3));
    assert_true(values[0] == 0.1f && values[1] == -2 && values[2] == 3e38f);
    const bt_stored_tensor *h = bt_safetensors_find(file, "half");
    assert_true(bt_convert_f32(&half, h->data, h->dtype, 1) && half == 1.5f);
    assert_null(bt_safetensors_find(file, "y"));
    assert_null(bt_safetensors_find(file, ""));
    assert_null(bt_safetensors_metadata(file, "format"));
    bt_safetensors_free(file);
    bt_safetensors_free(NULL);
    free(b.at);
}

/* Copies of a file's list, in another order than the file's. */
static bt_stored_tensor *tensors_of(const bt_safetensors *file)
{
    size_t count = bt_safetensors_count(file);
    bt_stored_tensor *list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++)
        list[count - 1 - i] = *bt_safetensors_at(file, i);
    return list;
}

/* Write the tensors that were read, and compare the bytes. */
static void check_rewritten(bytes b, const bt_metadata *metadata, size_t count)
{
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "again.safetensors");
    bauta_error err;
    bt_safetensors *file = parsed(b), *again;
    bt_stored_tensor *list = tensors_of(file);
    if (bt_safetensors_write(path, list, bt_safetensors_count(file), metadata,
                             count, &err))
        fail_msg("%s", err.message);
    bytes written = file_load(path);
    assert_int_equal(written.size, b.size);
    assert_memory_equal(written.at, b.at, b.size);
    assert_int_equal(bt_safetensors_open(&again, path, &err), BAUTA_OK);
    assert_int_equal(bt_safetensors_count(again), bt_safetensors_count(file));
    bt_safetensors_free(again);
    bt_safetensors_free(file);
    free(list);
    free(written.at);
    temp_folder_free(&s);
}

static void reference_files_are_rewritten_byte_for_byte(void **state)
{
    (void)state;
    static const bt_metadata text = { "key", "line\n\"text\" \xc3\xa9" };
    bytes types = fixture("types.safetensors");
    bytes names = fixture("names.safetensors");
    bytes empty = fixture("empty.safetensors");
    check_rewritten(types, NULL, 0);
    check_rewritten(names, &text, 1);
    check_rewritten(empty, &text, 0);

    bt_safetensors *file = parsed(names);
    assert_string_equal(bt_safetensors_metadata(file, "key"), text.value);
    assert_null(bt_safetensors_metadata(file, "format"));
    assert_non_null(bt_safetensors_find(file, ""));
    assert_int_equal(bt_safetensors_find(file, "scalar")->rank, 0);
    assert_int_equal(bt_safetensors_find(file, "nothing")->bytes, 0);
    assert_non_null(bt_safetensors_find(
        file, "tab \t line \n bell \x07 escape \x1b delete \x7f"));
    bt_safetensors_free(file);
    file = parsed(types);
    assert_int_equal(bt_safetensors_count(file), 2 * BT_DTYPE_COUNT);
    assert_string_equal(bt_safetensors_metadata(file, "format"), "pt");
    bt_safetensors_free(file);
    free(types.at);
    free(names.at);
    free(empty.at);
}

static void random_tensors_round_trip(void **state)
{
    test_random *r = *state;
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "random.safetensors");
    enum { ROUNDS = 20, MOST = 40 };
    static unsigned char data[4096];
    char names[MOST][32];
    bt_stored_tensor list[MOST];
    bauta_error err;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)test_u32(r);
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = test_below(r, MOST + 1);
        for (size_t i = 0; i < count; i++) {
            bt_stored_tensor *t = list + i;
            snprintf(names[i], sizeof(names[i]), "%c.%zu.\"%c",
                     (char)('a' + test_below(r, 26)), i,
                     (char)(1 + test_below(r, 126)));
            *t = (bt_stored_tensor){ .name = names[i],
                                     .dtype = (bauta_dtype)test_below(
                                         r, BT_DTYPE_COUNT),
                                     .rank = (unsigned)test_below(r, 5),
                                     .data = data + test_below(r, 1000) };
            for (unsigned d = 0; d < t->rank; d++)
                t->shape[d] = test_below(r, 4);
            t->bytes = bt_stored_tensor_bytes(t->dtype, t->rank, t->shape);
        }
        if (bt_safetensors_write(path, list, count, NULL, 0, &err))
            fail_msg("%s", err.message);
        bt_safetensors *file;
        if (bt_safetensors_open(&file, path, &err))
            fail_msg("%s", err.message);
        assert_int_equal(bt_safetensors_count(file), count);
        for (size_t i = 0; i < count; i++) {
            const bt_stored_tensor *t = list + i;
            const bt_stored_tensor *got = bt_safetensors_find(file, t->name);
            assert_non_null(got);
            assert_int_equal(got->dtype, t->dtype);
            assert_int_equal(got->rank, t->rank);
            assert_int_equal(got->bytes, t->bytes);
            assert_memory_equal(got->shape, t->shape, sizeof(t->shape));
            assert_memory_equal(got->data, t->data, t->bytes);
            // The header is padded and types are sorted, so all are aligned.
            assert_int_equal((uintptr_t)got->data % bt_dtype_size(t->dtype), 0);
        }
        bt_safetensors_free(file);
    }
    assert_int_equal(temp_folder_count(&s), 1);
    temp_folder_free(&s);
}

/* Files that transformers wrote: read, and written again, they are the same. */
static void files_of_transformers_are_rewritten_byte_for_byte(void **state)
{
    (void)state;
    static const char *const names[] = {
        "hf-tiny-random/llama-gqa-bf16/model.safetensors",
        "hf-tiny-random/llama-gqa/model.safetensors",
        "hf-tiny-random/marian/model.safetensors",
        "hf-tiny-random/t5-gated-gelu/model.safetensors",
        "hf-tiny-random/bert-mlm/model.safetensors",
        "stories260K-hf/model.safetensors",
        "gpt-nano-sort-hf/model.safetensors",
        "models/bert-shakespeare/model.safetensors",
        "models/gpt2-shakespeare/model.safetensors",
        "models/marian-m30k/model.safetensors",
    };
    size_t found = 0;
    for (size_t i = 0; i < BT_LEN(names); i++) {
        char path[1024];
        if (!test_data_path(path, sizeof(path), names[i]))
            continue;
        bytes b = file_load(path);
        check_rewritten(b, NULL, 0);
        free(b.at);
        found++;
    }
    printf("%zu of %zu files found\n", found, BT_LEN(names));
    if (!found)
        skip();
}

/* ---- Malformed input ----------------------------------------------------- */

#define U8(n, from, to) \
    "{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" from "," to "]}"
#define A(text) "{\"a\":" text "}"
#define DTYPE(text) \
    A("{\"dtype\":" text ",\"shape\":[4],\"data_offsets\":[0,4]}")
#define SHAPE(text) \
    A("{\"dtype\":\"U8\",\"shape\":" text ",\"data_offsets\":[0,4]}")
#define PLACE(text) \
    A("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" text "}")
#define META(text) "{\"__metadata__\":" text ",\"a\":" U8("4", "0", "4") "}"

/* Headers, the bytes of data after them, and the expected message. */
static const struct {
    const char *name, *header;
    size_t data;
    const char *message;
} malformed[] = {
    { "no_header", "", 0, "does not begin with '{'" },
    { "no_header_but_data", "", 4, "does not begin with '{'" },
    { "only_space", "  ", 0, "does not begin with '{'" },
    { "space_first", " {}", 0, "does not begin with '{'" },
    { "bom_first", "\xef\xbb\xbf{}", 0, "does not begin with '{'" },
    { "an_array", "[]", 0, "does not begin with '{'" },
    { "a_number", "1", 0, "does not begin with '{'" },
    { "a_string", "\"a\"", 0, "does not begin with '{'" },
    { "null", "null", 0, "does not begin with '{'" },
    { "not_closed", "{", 0, "key is expected" },
    { "not_closed_after_member", "{\"a\":" U8("4", "0", "4"), 4,
      "'}' or ',' is expected" },
    { "closed_twice", "{}}", 0, "something follows" },
    { "text_follows", "{} x", 0, "something follows" },
    { "nul_follows", "{}\0", 0, NULL },
    { "two_objects", "{}{}", 0, "something follows" },
    { "comma_first", "{,\"a\":" U8("4", "0", "4") "}", 4, "key is expected" },
    { "comma_last", "{\"a\":" U8("4", "0", "4") ",}", 4, "key is expected" },
    { "comma_only", "{,}", 0, "key is expected" },
    { "two_commas",
      "{\"a\":" U8("4", "0", "4") ",,\"b\":" U8("0", "4", "4") "}", 4,
      "key is expected" },
    { "no_comma", "{\"a\":" U8("4", "0", "4") "\"b\":" U8("0", "4", "4") "}", 4,
      "'}' or ',' is expected" },
    { "no_colon", "{\"a\"" U8("4", "0", "4") "}", 4, "':' is expected" },
    { "no_value", "{\"a\":}", 0, "byte" },
    { "no_key", "{:1}", 0, "key is expected" },
    { "key_not_text", "{1:" U8("4", "0", "4") "}", 4, "key is expected" },
    { "key_bare", "{a:" U8("4", "0", "4") "}", 4, "key is expected" },
    { "key_single_quotes", "{'a':" U8("4", "0", "4") "}", 4,
      "key is expected" },
    { "key_not_closed", "{\"a", 0, "premature end" },
    { "key_with_line", "{\"a\n\":" U8("4", "0", "4") "}", 4, "control" },
    { "key_with_control", "{\"a\x01\":" U8("4", "0", "4") "}", 4, "control" },
    { "key_with_nul_escaped", "{\"a\\u0000\":" U8("4", "0", "4") "}", 4,
      "\\u0000" },
    { "key_bad_escape", "{\"\\x\":" U8("4", "0", "4") "}", 4, "escape" },
    { "key_short_escape", "{\"\\u12\":" U8("4", "0", "4") "}", 4, "escape" },
    { "key_lone_surrogate", "{\"\\ud800\":" U8("4", "0", "4") "}", 4,
      "escape" },
    { "key_low_surrogate", "{\"\\udc00\":" U8("4", "0", "4") "}", 4, "escape" },
    { "key_not_utf8", "{\"\xff\":" U8("4", "0", "4") "}", 4, "not UTF-8" },
    { "key_overlong_utf8", "{\"\xc0\x80\":" U8("4", "0", "4") "}", 4,
      "not UTF-8" },
    { "key_cut_utf8", "{\"\xe4\xbb\":" U8("4", "0", "4") "}", 4, "not UTF-8" },
    { "key_surrogate_utf8", "{\"\xed\xa0\x80\":" U8("4", "0", "4") "}", 4,
      "not UTF-8" },
    { "comment", "{/**/}", 0, "key is expected" },
    { "vertical_tab", "{\v}", 0, "key is expected" },
    { "nan", "{\"a\":NaN}", 0, "byte" },
    { "tensor_null", A("null"), 0, "\"a\" is not described" },
    { "tensor_number", A("4"), 0, "\"a\" is not described" },
    { "tensor_text", A("\"U8\""), 0, "\"a\" is not described" },
    { "tensor_list", A("[]"), 0, "\"a\" is not described" },
    { "tensor_empty", A("{}"), 0, "\"a\"" },
    { "tensor_empty_long_header",
      "{\"a\":{}                                              }", 0,
      "\"a\" has no dtype" },
    { "tensor_not_closed", "{\"a\":{\"dtype\":\"U8\"", 0, "byte" },
    { "dtype_missing", A("{\"shape\":[4],\"data_offsets\":[0,4], \"x\":null}"),
      4, "has no dtype" },
    { "dtype_number", DTYPE("1"), 4, "has no dtype" },
    { "dtype_null", DTYPE("null"), 4, "has no dtype" },
    { "dtype_list", DTYPE("[\"U8\"]"), 4, "has no dtype" },
    { "dtype_unknown", DTYPE("\"F31\""), 4, "unknown dtype \"F31\"" },
    { "dtype_small", DTYPE("\"u8\""), 4, "unknown dtype \"u8\"" },
    { "dtype_empty", DTYPE("\"\""), 4, "unknown dtype \"\"" },
    { "dtype_with_space", DTYPE("\"U8 \""), 4, "unknown dtype \"U8 \"" },
    { "dtype_long",
      DTYPE(
          "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""),
      4, "..." },
    { "dtype_control", DTYPE("\"\\u001b\""), 4, "unknown dtype \"?\"" },
    { "dtype_twice",
      A("{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],"
        "\"data_offsets\":[0,4]}"),
      4, "duplicate" },
    { "shape_missing",
      A("{\"dtype\":\"U8\",\"data_offsets\":[0,4],\"shap\":[4]}"), 4,
      "has no shape" },
    { "shape_null", SHAPE("null"), 4, "has no shape" },
    { "shape_number", SHAPE("4"), 4, "has no shape" },
    { "shape_object", SHAPE("{}"), 4, "has no shape" },
    { "shape_negative", SHAPE("[-4]"), 4, "no size at dimension 0" },
    { "shape_two_negatives", SHAPE("[-2,-2]"), 4, "no size at dimension 0" },
    { "shape_minus_zero",
      A("{\"dtype\":\"U8\",\"shape\":[-0],\"data_offsets\":[0,0]}"), 0,
      "minus" },
    { "place_minus_zero", PLACE("[-0,4]"), 4, "minus" },
    { "shape_real", SHAPE("[4.0]"), 4, "no size at dimension 0" },
    { "shape_exponent", SHAPE("[4e0]"), 4, "no size at dimension 0" },
    { "shape_text", SHAPE("[\"4\"]"), 4, "no size at dimension 0" },
    { "shape_null_inside", SHAPE("[4,null]"), 4, "no size at dimension 1" },
    { "shape_true", SHAPE("[4,true]"), 4, "no size at dimension 1" },
    { "shape_nested", SHAPE("[[4]]"), 4, "no size at dimension 0" },
    { "shape_leading_zero", SHAPE("[04]"), 4, "byte" },
    { "shape_plus", SHAPE("[+4]"), 4, "byte" },
    { "shape_hexadecimal", SHAPE("[0x4]"), 4, "byte" },
    { "shape_comma_last", SHAPE("[4,]"), 4, "byte" },
    { "shape_2_to_64", SHAPE("[18446744073709551616]"), 4, "too big" },
    { "shape_2_to_63", SHAPE("[9223372036854775808]"), 4, "too big" },
    { "shape_wraps_to_4", SHAPE("[4611686018427387905,4]"), 4, "too large" },
    { "shape_wraps_to_0", SHAPE("[4294967296,4294967296]"), 0, NULL },
    { "shape_too_large_times_0",
      A("{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],"
        "\"data_offsets\":[0,0]}"),
      0, "too large" },
    { "shape_times_dtype_wraps",
      A("{\"dtype\":\"F64\",\"shape\":[2305843009213693952],"
        "\"data_offsets\":[0,0]}"),
      0, "too large" },
    { "shape_rank_9", SHAPE("[1,1,1,1,1,1,1,1,4]"), 4, "has rank 9" },
    { "shape_larger_than_place", SHAPE("[5]"), 4, "needs 5 bytes and has 4" },
    { "shape_smaller_than_place", SHAPE("[3]"), 4, "needs 3 bytes and has 4" },
    { "shape_zero", SHAPE("[0]"), 4, "needs 0 bytes and has 4" },
    { "shape_scalar", SHAPE("[]"), 4, "needs 1 bytes and has 4" },
    { "place_missing",
      A("{\"dtype\":\"U8\",\"shape\":[4],\"dataoffsets\":[0,4]}"), 4,
      "has no pair" },
    { "place_null", PLACE("null"), 4, "has no pair" },
    { "place_number", PLACE("4"), 4, "has no pair" },
    { "place_empty", PLACE("[]"), 4, "has no pair" },
    { "place_one", PLACE("[0]"), 4, "has no pair" },
    { "place_three", PLACE("[0,4,4]"), 4, "has no pair" },
    { "place_object", PLACE("{\"0\":0,\"1\":4}"), 4, "has no pair" },
    { "place_negative", PLACE("[-4,0]"), 4, "has no pair" },
    { "place_real", PLACE("[0.0,4]"), 4, "has no pair" },
    { "place_text", PLACE("[\"0\",\"4\"]"), 4, "has no pair" },
    { "place_reversed", PLACE("[4,0]"), 4, "bytes 4 to 0" },
    { "place_behind_the_end", PLACE("[4,8]"), 4, "bytes 4 to 8 of 4" },
    { "place_longer_than_file", PLACE("[0,4]"), 3, "bytes 0 to 4 of 3" },
    { "place_without_data", PLACE("[0,4]"), 0, "bytes 0 to 4 of 0" },
    { "place_huge", PLACE("[0,9223372036854775807]"), 4, "of 4 bytes" },
    { "place_huge_both", PLACE("[9223372036854775803,9223372036854775807]"), 4,
      "of 4 bytes" },
    { "place_2_to_64", PLACE("[0,18446744073709551620]"), 4, "too big" },
    { "extra_key",
      A("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":0}"), 4,
      "more than dtype, shape" },
    { "hole_first", A(U8("4", "1", "5")), 5, "begins at byte 1" },
    { "hole_between",
      "{\"a\":" U8("2", "0", "2") ",\"b\":" U8("2", "3", "5") "}", 5,
      "\"b\" begins at byte 3" },
    { "hole_last", A(U8("4", "0", "4")), 5, "5 bytes of data" },
    { "data_without_tensors", "{}", 1, "1 bytes of data" },
    { "overlap", "{\"a\":" U8("3", "0", "3") ",\"b\":" U8("2", "2", "4") "}", 4,
      "\"b\" begins at byte 2" },
    { "same_place", "{\"a\":" U8("4", "0", "4") ",\"b\":" U8("4", "0", "4") "}",
      4, "begins at byte 0" },
    { "one_inside_the_other",
      "{\"a\":" U8("4", "0", "4") ",\"b\":" U8("2", "1", "3") "}", 4,
      "\"b\" begins at byte 1" },
    { "empty_inside_another",
      "{\"a\":" U8("4", "0", "4") ",\"b\":" U8("0", "2", "2") "}", 4,
      "\"b\" begins at byte 2" },
    { "name_twice", "{\"a\":" U8("4", "0", "4") ",\"a\":" U8("4", "4", "8") "}",
      8, "\"a\" is there twice" },
    { "name_twice_escaped",
      "{\"a\":" U8("4", "0", "4") ",\"\\u0061\":" U8("4", "4", "8") "}", 8,
      "\"a\" is there twice" },
    { "name_twice_empty",
      "{\"a\":" U8("0", "0", "0") ",\"a\":" U8("0", "0", "0") "}", 0,
      "\"a\" is there twice" },
    { "metadata_null", META("null"), 4, "__metadata__ is not an object" },
    { "metadata_text", META("\"pt\""), 4, "__metadata__ is not an object" },
    { "metadata_list", META("[]"), 4, "__metadata__ is not an object" },
    { "metadata_number_inside", META("{\"a\":1}"), 4, "\"a\" is not a string" },
    { "metadata_null_inside", META("{\"a\":null}"), 4,
      "\"a\" is not a string" },
    { "metadata_object_inside", META("{\"a\":{}}"), 4,
      "\"a\" is not a string" },
    { "metadata_key_twice", META("{\"a\":\"1\",\"a\":\"1\"}"), 4, "duplicate" },
    { "metadata_twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
      "two __metadata__" },
    { "metadata_not_closed", "{\"__metadata__\":{", 0, "byte" },
};

static void check_refused(const char *name, const char *path, bytes b,
                          const char *message)
{
    bt_safetensors *file = (bt_safetensors *)1;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status = bt_safetensors_parse(&file, path, b.at, b.size, &err);
    if (status != BAUTA_ERR_FORMAT || err.status != status || file)
        fail_msg("%s: is not refused (%d)", name, status);
    if (!strstr(err.message, path) ||
        (message && !strstr(err.message, message)))
        fail_msg("%s: \"%s\" should name %s and say \"%s\"", name, err.message,
                 path, message ? message : "");
    if (strpbrk(err.message, "\n\t\x1b"))
        fail_msg("%s: \"%s\" is not printable", name, err.message);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void malformed_input_is_an_error(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    double start = seconds();
    for (size_t i = 0; i < BT_LEN(malformed); i++) {
        const char *name = malformed[i].name, *header = malformed[i].header;
        size_t length = strlen(header) + !strcmp(name, "nul_follows");
        bytes b = file_of(header, length, malformed[i].data);
        check_refused(name, "some.safetensors", b, malformed[i].message);
        // Read from a file it is the same.
        bt_safetensors *file;
        bauta_error err;
        const char *path = temp_folder_write(&s, "x.safetensors", b.at, b.size);
        assert_int_equal(bt_safetensors_open(&file, path, &err),
                         BAUTA_ERR_FORMAT);
        assert_null(file);
        assert_non_null(strstr(err.message, "x.safetensors: "));
        assert_int_equal(bt_safetensors_open(&file, path, NULL),
                         BAUTA_ERR_FORMAT);
        free(b.at);
    }
    printf("%zu malformed headers in %.3f s\n", BT_LEN(malformed),
           seconds() - start);
    temp_folder_free(&s);
}

static void the_length_of_the_header_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t length;
        const char *message;
    } lengths[] = {
        { "one_more_than_there_is", 3, "a header of 3 bytes in a file of 10" },
        { "all_with_the_length", 10, "a header of 10 bytes" },
        { "just_too_large", 100000001, "a header of 100000001 bytes" },
        { "2_to_31", 1u << 31, "a header of 2147483648 bytes" },
        { "2_to_63", 1ull << 63, "a header of 9223372036854775808 bytes" },
        { "wraps_around", UINT64_MAX - 5, "a header of 18446744073709551610" },
        { "largest", UINT64_MAX, "a header of 18446744073709551615 bytes" },
        { "none", 0, "does not begin with" },
        { "one", 1, "key is expected" },
    };
    for (size_t i = 0; i < BT_LEN(lengths); i++) {
        bytes b = file_of("{}", 2, 0);
        for (int k = 0; k < 8; k++)
            b.at[k] = (unsigned char)(lengths[i].length >> 8 * k);
        check_refused(lengths[i].name, "x", b, lengths[i].message);
        free(b.at);
    }
    for (size_t size = 0; size < 8; size++) {
        bytes b = { calloc(1, size + 1), size };
        check_refused("short", "x", b, "is not a safetensors file");
        free(b.at);
    }
}

/* Every truncated file is refused, and every change of one byte of its header
 * is refused or harmless. */
static void truncated_and_changed_files_do_not_crash(void **state)
{
    (void)state;
    bytes b = fixture("names.safetensors");
    bt_safetensors *file;
    bauta_error err;
    size_t accepted = 0, tried = 0;
    for (size_t size = 0; size < b.size; size++) {
        bytes cut = { malloc(size + 1), size };
        memcpy(cut.at, b.at, size);
        check_refused("cut", "x", cut, NULL);
        free(cut.at);
    }
    for (size_t i = 0; i < b.size - 32; i++) // up to the data
        for (unsigned flip = 1; flip < 256; flip++, tried++) {
            b.at[i] ^= (unsigned char)flip;
            if (bt_safetensors_parse(&file, "x", b.at, b.size, &err)) {
                assert_non_null(strstr(err.message, "x: "));
            } else {
                accepted++; // another letter in a name, for example
                bt_safetensors_free(file);
            }
            b.at[i] ^= (unsigned char)flip;
        }
    printf("%zu changed bytes, of which %zu are harmless\n", tried, accepted);
    free(b.at);
}

static void a_path_that_is_no_file_is_named(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bt_safetensors *file;
    bauta_error err;
    const char *path = temp_folder_path(&s, "missing.safetensors");
    assert_int_equal(bt_safetensors_open(&file, path, &err), BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "missing.safetensors: cannot open"));
    assert_int_equal(bt_safetensors_open(&file, s.folder, &err), BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "is a folder"));
    temp_folder_free(&s);
}

static void unreadable_tensors_are_not_written(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "x.safetensors");
    bauta_error err;
    const char data[8] = { 0 };
    const bt_stored_tensor fine = { "a", BAUTA_UINT8, 1, { 8 }, data, 8 };
    const bt_metadata twice[] = { { "k", "1" }, { "k", "2" } };
    bt_stored_tensor t[2] = { fine, fine };
#define REFUSED(count, metadata, text)                                       \
    do {                                                                     \
        assert_int_equal(                                                    \
            bt_safetensors_write(path, t, count, metadata, 2, &err),         \
            BAUTA_ERR_ARGUMENT);                                             \
        assert_int_equal(err.status, BAUTA_ERR_ARGUMENT);                    \
        if (!strstr(err.message, text) || !strstr(err.message, "x.safeten")) \
            fail_msg("\"%s\" should say \"%s\"", err.message, text);         \
        assert_int_equal(temp_folder_count(&s), 0);                          \
        t[0] = fine;                                                         \
    } while (0)
    REFUSED(2, NULL, "is there twice");
    REFUSED(1, twice, "duplicate");
    t[0].name = "not UTF-8 \xff";
    REFUSED(1, NULL, "is not UTF-8");
    t[0].name = NULL;
    REFUSED(1, NULL, "no name");
    t[0].name = "__metadata__";
    REFUSED(1, NULL, "two __metadata__");
    t[0].bytes = 7;
    REFUSED(1, NULL, "needs 8 bytes and has 7");
    t[0].shape[0] = SIZE_MAX;
    REFUSED(1, NULL, "too big");
    t[0].rank = BT_RANK_MAX + 1;
    REFUSED(1, NULL, "rank 9");
    t[0].dtype = (bauta_dtype)BT_DTYPE_COUNT;
    REFUSED(1, NULL, "dtype 15");
    t[0].data = NULL;
    REFUSED(1, NULL, "no data");
#undef REFUSED
    temp_folder_free(&s);
}

/* ---- Memory -------------------------------------------------------------- */

static void each_allocation_may_fail(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bytes b = fixture("types.safetensors");
    const char *path = temp_folder_path(&s, "x.safetensors");
    bt_safetensors *file, *again;
    bauta_error err;
    size_t k;
    faults_begin();
    for (k = 0;; k++) {
        faults_arm(k);
        bauta_status status =
            bt_safetensors_parse(&file, "x", b.at, b.size, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(file);
        assert_int_equal(faults_live(), 0);
    }
    assert_int_equal(k, 2); // the object and its block
    size_t live = faults_live();
    bt_stored_tensor *list = tensors_of(file);
    for (k = 0;; k++) {
        faults_arm(k);
        bauta_status status = bt_safetensors_write(
            path, list, bt_safetensors_count(file), NULL, 0, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
        assert_int_equal(temp_folder_count(&s), 0);
    }
    assert_int_equal(bt_safetensors_open(&again, path, &err), BAUTA_OK);
    bt_safetensors_free(again);
    bt_safetensors_free(file);
    assert_int_equal(faults_end(), 0);
    free(list);
    free(b.at);
    temp_folder_free(&s);
}

/* Text after text, up to a size. */
static bytes repeated(const char *first, const char *again, size_t size)
{
    size_t at = strlen(first), step = strlen(again);
    char *header = malloc(size);
    memcpy(header, first, at);
    for (; at + step <= size; at += step)
        memcpy(header + at, again, step);
    memset(header + at, ' ', size - at);
    bytes b = file_of(header, size, 0);
    free(header);
    return b;
}

/* As many tensors as fit, each with a name of its own. */
static bytes many_tensors(size_t size)
{
    char *header = malloc(size + 128);
    size_t at = 0;
    for (unsigned i = 0; at + 64 < size; i++)
        at += (size_t)snprintf(header + at, 128, "%c\"%x\":" U8("0", "0", "0"),
                               i ? ',' : '{', i);
    header[at++] = '}';
    bytes b = file_of(header, at, 0);
    free(header);
    return b;
}

/* How many KiB the process grows by when it reads a file. A child process
 * measures it, since the peak size of a process never decreases. */
static long growth(bytes b, bauta_status want)
{
    int pipes[2];
    long kib = -1;
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
#ifdef __GLIBC__
    malloc_trim(0); // free heap memory would not count
#endif
    pid_t child = fork();
    if (child == 0) {
        struct rusage before, after;
        bt_safetensors *file;
        getrusage(RUSAGE_SELF, &before);
        bauta_status status =
            bt_safetensors_parse(&file, "x", b.at, b.size, NULL);
        getrusage(RUSAGE_SELF, &after);
        kib = status == want ? after.ru_maxrss - before.ru_maxrss : -2;
        if (write(pipes[1], &kib, sizeof(kib)) < 0)
            _exit(1);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(read(pipes[0], &kib, sizeof(kib)), sizeof(kib));
    close(pipes[0]);
    close(pipes[1]);
    return kib;
}

/* A file makes the reader allocate at most 64 MiB and its own size (which, with
 * the mapping, makes twice its size), whatever its header says. */
static void a_header_cannot_cause_overallocation(void **state)
{
    (void)state;
#ifdef BT_SANITIZED
    enum { SIZE = 4 << 20 }; // how much memory is not checked here
#else
    enum { SIZE = 24 << 20 };
#endif
    const struct {
        const char *name;
        bytes b;
        bauta_status want;
    } files[] = {
        { "empty lists", repeated("{\"a\":[", "[],", SIZE), BAUTA_ERR_FORMAT },
        { "empty objects", repeated("{\"a\":[", "{},", SIZE),
          BAUTA_ERR_FORMAT },
        { "numbers", repeated("{\"a\":[", "0,", SIZE), BAUTA_ERR_FORMAT },
        { "braces", repeated("{", "{", SIZE), BAUTA_ERR_FORMAT },
        { "nesting", repeated("{\"a\":", "[", SIZE), BAUTA_ERR_FORMAT },
        { "a long name", repeated("{\"", "x", SIZE), BAUTA_ERR_FORMAT },
        { "metadata", repeated("{\"__metadata__\":{\"a\":\"", "x", SIZE),
          BAUTA_ERR_FORMAT },
        { "space", repeated("{", " ", SIZE), BAUTA_ERR_FORMAT },
        { "tensors", many_tensors(SIZE), BAUTA_OK },
    };
    for (size_t i = 0; i < BT_LEN(files); i++) {
        double start = seconds();
        long kib = growth(files[i].b, files[i].want);
        printf("%s: %ld KiB, %.2f s\n", files[i].name, kib, seconds() - start);
        assert_true(kib >= 0);
#ifndef BT_SANITIZED
        assert_true(kib <= (64 << 10) + (long)(files[i].b.size >> 10));
#endif
        free(files[i].b.at);
    }
}

static void more_tensors_than_the_limit_are_refused(void **state)
{
    (void)state;
    bytes b = many_tensors((size_t)BT_TENSORS_MAX * 64);
    bt_safetensors *file;
    bauta_error err;
    assert_int_equal(bt_safetensors_parse(&file, "x", b.at, b.size, &err),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "one more than 524288"));
    free(b.at);
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read_by_name),
        cmocka_unit_test(reference_files_are_rewritten_byte_for_byte),
        cmocka_unit_test_prestate(random_tensors_round_trip, &random),
        cmocka_unit_test(files_of_transformers_are_rewritten_byte_for_byte),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test(the_length_of_the_header_is_checked),
        cmocka_unit_test(truncated_and_changed_files_do_not_crash),
        cmocka_unit_test(a_path_that_is_no_file_is_named),
        cmocka_unit_test(unreadable_tensors_are_not_written),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_header_cannot_cause_overallocation),
        cmocka_unit_test(more_tensors_than_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c - the weights of a folder, whole and in shards. */
#include "allocation_faults.h"
#include "base/error.h"
#include "data.h"
#include "formats/weight_files.h"
#include "temp_folder.h"

#include <sys/stat.h>

#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static const float numbers[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

/* A file of float32 vectors: a of two elements, b of three and so on. */
static void file_make(temp_folder *s, const char *name, const char *letters)
{
    char names[26][2];
    bt_stored_tensor list[26] = { { .name = NULL } };
    size_t count = strlen(letters);
    bauta_error err;
    for (size_t i = 0; i < count; i++) {
        size_t length = (size_t)(letters[i] - 'a' + 2);
        names[i][0] = letters[i];
        names[i][1] = '\0';
        list[i] =
            (bt_stored_tensor){ names[i], BAUTA_FLOAT32,         1, { length },
                                numbers,  length * sizeof(float) };
    }
    if (bt_safetensors_write(temp_folder_path(s, name), list, count, NULL, 0,
                             &err))
        fail_msg("%s", err.message);
}

static void index_make(temp_folder *s, const char *text)
{
    temp_folder_write(s, INDEX, text, strlen(text));
}

static const char fine_index[] =
    "{\"metadata\": {\"total_size\": 56},\n \"weight_map\": {\"a\": \"" ONE
    "\", \"c\": \"" TWO "\", \"b\": \"" ONE "\"}}\n";

static temp_folder sharded(const char *index)
{
    temp_folder s = temp_folder_create();
    file_make(&s, ONE, "ab");
    file_make(&s, TWO, "c");
    index_make(&s, index);
    return s;
}

static void check_abc(const bt_weight_files *weights)
{
    assert_int_equal(bt_weight_files_count(weights), 3);
    for (size_t i = 0; i < 3; i++) {
        char name[] = { (char)('a' + i), '\0' };
        const bt_stored_tensor *t = bt_weight_files_find(weights, name);
        assert_non_null(t);
        assert_ptr_equal(bt_weight_files_at(weights, i), t);
        assert_int_equal(t->shape[0], i + 2);
        assert_memory_equal(t->data, numbers, t->bytes);
    }
    assert_null(bt_weight_files_find(weights, "d"));
    assert_null(bt_weight_files_find(weights, ""));
}

static void one_file_equals_shards(void **state)
{
    (void)state;
    bt_weight_files *weights;
    bauta_error err;
    temp_folder s = sharded(fine_index);
    if (bt_weight_files_open(&weights, s.folder, &err))
        fail_msg("%s", err.message);
    check_abc(weights);
    bt_weight_files_free(weights);
    // Where both are, the one file is taken, as transformers does.
    file_make(&s, "model.safetensors", "cab");
    index_make(&s, "nonsense");
    if (bt_weight_files_open(&weights, s.folder, &err))
        fail_msg("%s", err.message);
    check_abc(weights);
    bt_weight_files_free(weights);
    bt_weight_files_free(NULL);
    temp_folder_free(&s);
}

static void check_refused(temp_folder *s, bauta_status want, const char *file,
                          const char *message)
{
    bt_weight_files *weights = (bt_weight_files *)1;
    bauta_error err = { BAUTA_OK, "" };
    assert_int_equal(bt_weight_files_open(&weights, s->folder, &err), want);
    assert_null(weights);
    assert_int_equal(err.status, want);
    if (!strstr(err.message, file) || !strstr(err.message, message))
        fail_msg("\"%s\" should name %s and say \"%s\"", err.message, file,
                 message);
    assert_int_equal(bt_weight_files_open(&weights, s->folder, NULL), want);
}

#define MAP(members) "{\"weight_map\": {" members "}}"
#define AB "\"a\": \"" ONE "\", \"b\": \"" ONE "\""
#define C "\"c\": \"" TWO "\""

static void a_malformed_index_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *name, *index, *file, *message;
    } cases[] = {
        { "empty", "", INDEX, "an object is expected" },
        { "a_list", "[]", INDEX, "an object is expected" },
        { "not_closed", "{", INDEX, "key is expected" },
        { "no_map", "{}", INDEX, "no weight_map" },
        { "no_map_but_metadata", "{\"metadata\": {}}", INDEX, "no weight_map" },
        { "map_null", "{\"weight_map\": null}", INDEX, "object is expected" },
        { "map_list", "{\"weight_map\": []}", INDEX, "object is expected" },
        { "map_not_closed", "{\"weight_map\": {", INDEX, "key is expected" },
        { "map_twice", "{\"weight_map\": {}, \"weight_map\": {}}", INDEX,
          "two weight_map" },
        { "text_follows", MAP(AB ", " C) "x", INDEX, "something follows" },
        { "metadata_broken", "{\"metadata\": {", INDEX, "byte" },
        { "name_twice", MAP(AB ", " C ", " C), INDEX, "\"c\" is there twice" },
        { "not_in_its_shard", MAP(AB ", \"c\": \"" ONE "\""), INDEX,
          "\"c\" is not in its file " ONE },
        { "nowhere", MAP(AB ", " C ", \"d\": \"" TWO "\""), INDEX,
          "\"d\" is not in its file " TWO },
        { "shard_missing", MAP(AB ", \"c\": \"other.safetensors\""),
          "other.safetensors", "No such file" },
        { "shard_malformed", MAP("\"a\": \"" INDEX "\""), INDEX,
          "safetensors file" },
        { "shard_is_a_folder", MAP("\"a\": \"folder\""), "folder",
          "is a folder" },
        { "not_listed", MAP("\"a\": \"" ONE "\", " C), INDEX,
          "does not list tensor \"b\" of " ONE },
        { "path_absolute", MAP("\"a\": \"/etc/passwd\""), INDEX,
          "\"a\" has \"/etc/passwd\" for a file name" },
        { "path_up", MAP("\"a\": \"../" ONE "\""), INDEX, "for a file name" },
        { "path_up_only", MAP("\"a\": \"..\""), INDEX, "for a file name" },
        { "path_here", MAP("\"a\": \".\""), INDEX, "for a file name" },
        { "path_within", MAP("\"a\": \"x/" ONE "\""), INDEX,
          "for a file name" },
        { "path_empty", MAP("\"a\": \"\""), INDEX, "for a file name" },
        { "path_number", MAP("\"a\": 1"), INDEX, "(no text)" },
        { "path_null", MAP("\"a\": null"), INDEX, "(no text)" },
        { "path_nul", MAP("\"a\": \"x\\u0000y\""), INDEX, "\\u0000" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        temp_folder s = sharded(cases[i].index);
        mkdir(temp_folder_path(&s, "folder"), 0700);
        // A shard that is missing or a folder cannot be read; the others were.
        bool read = strcmp(cases[i].name, "shard_missing") != 0 &&
                    strcmp(cases[i].name, "shard_is_a_folder") != 0;
        check_refused(&s, read ? BAUTA_ERR_FORMAT : BAUTA_ERR_IO, cases[i].file,
                      cases[i].message);
        temp_folder_free(&s);
    }
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    temp_folder s = sharded(fine_index);
    file_make(&s, TWO, "ac");
    check_refused(&s, BAUTA_ERR_FORMAT, INDEX, "\"a\" of " TWO);
    temp_folder_free(&s);
}

static void a_folder_without_weights_gives_advice(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    bt_weight_files *weights;
    check_refused(&s, BAUTA_ERR_IO, s.folder,
                  "neither model.safetensors nor " INDEX);
    temp_folder_write(&s, "pytorch_model.bin", "x", 1);
    check_refused(&s, BAUTA_ERR_UNSUPPORTED, "pytorch_model.bin",
                  "from_pretrained(dir).save_pretrained(dir2, "
                  "safe_serialization=True)");
    assert_int_equal(
        bt_weight_files_open(&weights, temp_folder_path(&s, "missing"), &err),
        BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "missing: No such file"));
    temp_folder_free(&s);
    s = temp_folder_create();
    temp_folder_write(&s, "pytorch_model.bin.index.json", "x", 1);
    check_refused(&s, BAUTA_ERR_UNSUPPORTED, "pytorch_model.bin.index.json",
                  "safe_serialization=True)");
    temp_folder_free(&s);
}

static void many_shards_are_found(void **state)
{
    (void)state;
    enum { SHARDS = 26 };
    temp_folder s = temp_folder_create();
    bt_weight_files *weights;
    bauta_error err;
    char name[64], letter[2] = "", index[SHARDS * 40] = "{\"weight_map\":{";
    for (int i = 0; i < SHARDS; i++) {
        // Neither names nor letters come in their order.
        letter[0] = (char)('a' + i * 7 % SHARDS);
        snprintf(name, sizeof(name), "s%d", i * 11 % SHARDS);
        bt_stored_tensor t = { letter, BAUTA_FLOAT32,   0,
                               { 0 },  numbers + i % 8, 4 };
        assert_int_equal(bt_safetensors_write(temp_folder_path(&s, name), &t, 1,
                                              NULL, 0, &err),
                         BAUTA_OK);
        size_t at = strlen(index);
        snprintf(index + at, sizeof(index) - at, "%s\"%s\":\"%s\"",
                 i ? "," : "", letter, name);
    }
    strcat(index, "}}");
    index_make(&s, index);
    if (bt_weight_files_open(&weights, s.folder, &err))
        fail_msg("%s", err.message);
    assert_int_equal(bt_weight_files_count(weights), SHARDS);
    for (int i = 0; i < SHARDS; i++) {
        letter[0] = (char)('a' + i * 7 % SHARDS);
        const bt_stored_tensor *t = bt_weight_files_find(weights, letter);
        assert_non_null(t);
        assert_memory_equal(t->data, numbers + i % 8, 4);
    }
    bt_weight_files_free(weights);
    temp_folder_free(&s);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    temp_folder shards = sharded(fine_index), single = temp_folder_create();
    file_make(&single, "model.safetensors", "cab");
    const char *folders[] = { shards.folder, single.folder };
    bauta_error err;
    for (size_t i = 0; i < 2; i++) {
        bt_weight_files *weights;
        size_t k = 0;
        faults_begin();
        for (;; k++) {
            faults_arm(k);
            bauta_status status =
                bt_weight_files_open(&weights, folders[i], &err);
            if (!faults_disarm())
                break;
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_null(weights);
            assert_int_equal(faults_live(), 0);
        }
        assert_true(k > 5);
        check_abc(weights);
        bt_weight_files_free(weights);
        assert_int_equal(faults_end(), 0);
    }
    temp_folder_free(&shards);
    temp_folder_free(&single);
}

/* Folders that transformers wrote. */
static void folders_of_transformers_are_opened(void **state)
{
    (void)state;
    static const struct {
        const char *file; /* one that the folder has */
        const char *tensor;
        bauta_dtype dtype;
        size_t rows, columns;
    } folders[] = {
        { "hf-tiny-random/llama-gqa-bf16/model.safetensors",
          "model.embed_tokens.weight", BAUTA_BFLOAT16, 96, 32 },
        { "hf-tiny-random/llama-gqa-sharded/" INDEX,
          "model.layers.1.mlp.down_proj.weight", BAUTA_FLOAT32, 32, 88 },
        { "stories260K-hf/model.safetensors", "model.embed_tokens.weight",
          BAUTA_FLOAT32, 512, 64 },
        { "models/gpt2-shakespeare/model.safetensors", "transformer.wte.weight",
          BAUTA_BFLOAT16, 2048, 192 },
    };
    size_t found = 0;
    for (size_t i = 0; i < BT_LEN(folders); i++) {
        char path[1024];
        bt_weight_files *weights;
        bauta_error err;
        if (!test_data_path(path, sizeof(path), folders[i].file))
            continue;
        found++;
        *strrchr(path, '/') = '\0';
        if (bt_weight_files_open(&weights, path, &err))
            fail_msg("%s", err.message);
        const bt_stored_tensor *t =
            bt_weight_files_find(weights, folders[i].tensor);
        if (!t)
            fail_msg("%s: no %s", path, folders[i].tensor);
        assert_int_equal(t->dtype, folders[i].dtype);
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->shape[0], folders[i].rows);
        assert_int_equal(t->shape[1], folders[i].columns);
        bt_weight_files_free(weights);
    }
    printf("%zu of %zu folders found\n", found, BT_LEN(folders));
    if (!found)
        skip();
}

/* The same model in shards and in one file, tensor by tensor. */
static void a_sharded_model_equals_the_whole_one(void **state)
{
    (void)state;
    char whole_path[1024], shards_path[1024];
    bt_weight_files *whole, *shards;
    bauta_error err;
    if (!test_data_path(whole_path, sizeof(whole_path),
                        "hf-tiny-random/llama-gqa/model.safetensors") ||
        !test_data_path(shards_path, sizeof(shards_path),
                        "hf-tiny-random/llama-gqa-sharded/" INDEX))
        skip();
    *strrchr(whole_path, '/') = *strrchr(shards_path, '/') = '\0';
    assert_int_equal(bt_weight_files_open(&whole, whole_path, &err), BAUTA_OK);
    assert_int_equal(bt_weight_files_open(&shards, shards_path, &err),
                     BAUTA_OK);
    assert_int_equal(bt_weight_files_count(shards),
                     bt_weight_files_count(whole));
    for (size_t i = 0; i < bt_weight_files_count(whole); i++) {
        const bt_stored_tensor *x = bt_weight_files_at(whole, i);
        const bt_stored_tensor *y = bt_weight_files_at(shards, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    bt_weight_files_free(whole);
    bt_weight_files_free(shards);
}

static void pickled_weights_of_transformers_are_refused(void **state)
{
    (void)state;
    char path[1024];
    bt_weight_files *weights;
    bauta_error err;
    if (!test_data_path(path, sizeof(path),
                        "hf-tiny-random/gpt2-pytorch-bin/pytorch_model.bin"))
        skip();
    *strrchr(path, '/') = '\0';
    assert_int_equal(bt_weight_files_open(&weights, path, &err),
                     BAUTA_ERR_UNSUPPORTED);
    printf("%s\n", err.message);
    assert_non_null(strstr(err.message, "safe_serialization=True)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_equals_shards),
        cmocka_unit_test(a_malformed_index_is_an_error),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(a_folder_without_weights_gives_advice),
        cmocka_unit_test(many_shards_are_found),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(folders_of_transformers_are_opened),
        cmocka_unit_test(a_sharded_model_equals_the_whole_one),
        cmocka_unit_test(pickled_weights_of_transformers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

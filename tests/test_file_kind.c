/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_kind.c - files and folders of another kind: the message says what
 * they are and what to do. */
#include "bauta.h"
#include "tiny_models.h"

static void assert_says(bauta_status status, const bauta_error *err,
                        const char *what)
{
    if (!status)
        fail_msg("was loaded, not refused: %s", what);
    if (!strstr(err->message, what))
        fail_msg("says \"%s\", not \"%s\"", err->message, what);
}

static void model_says(const char *path, const char *what)
{
    bauta_error err = { .message = "" };
    bauta_model *model = NULL;
    assert_says(bauta_model_load(&model, path, false, &err), &err, what);
}

static void tokenizer_says(const char *path, const char *what)
{
    bauta_error err = { .message = "" };
    bauta_tokenizer *tokenizer = NULL;
    assert_says(bauta_tokenizer_load(&tokenizer, path, &err), &err, what);
}

#define TAR_ZEROS 257
#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *bytes;
    size_t size, at; /* zeros before them */
    const char *message;
} files[] = {
    { BYTES("GGUF\3\0\0\0\2\0\0\0\0\0\0\0"), 0, "is a GGUF file" },
    { BYTES("version https://git-lfs.github.com/spec/v1\n"
            "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca"
            "24d17e2393\nsize 548105171\n"),
      0, "is a Git LFS pointer and not the file itself: run 'git lfs pull'" },
    { BYTES("\x1f\x8b\x08\0\0\0\0\0\0\3"), 0, "is compressed with gzip" },
    { BYTES("BZh91AY&SY"), 0, "is compressed with bzip2" },
    { BYTES("\xfd"
            "7zXZ\0\0\4"),
      0, "is compressed with xz" },
    { BYTES("\x28\xb5\x2f\xfd\4\0\0\0\0\0"), 0, "is compressed with zstd" },
    { BYTES("PK\3\4\x14\0\0\0\0\0"), 0, "is a zip archive: unpack it first" },
    { BYTES("PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0"
            "archive/data.pkl"),
      0, "is a pickled PyTorch file" },
    { BYTES("\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20j\xa8P\x19."), 0,
      "is a pickled PyTorch file" },
    { BYTES("\x80\4\x95\0\0\0\0\0\0\0\0"), 0, "is a pickled PyTorch file" },
    { BYTES("ustar\0"), TAR_ZEROS, "is a tar archive" },
    { BYTES("\x08\x08\x12\x07pytorch\x1a\0052.0.1"), 0, "is an ONNX file" },
    { BYTES("\x89HDF\r\n\x1a\n\0\0\0\0"), 0, "is an HDF5 file" },
    { BYTES("<!doctype html><title>Log in</title>"), 0, "is a web page" },
};

/* Each as each file of a folder, and as the path itself. */
static void foreign_files_are_recognised(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char folder[512], path[600];
    char bytes[512];
    tiny_write(&s, &tinies[0], folder);
    static const char *const names[] = { "model.safetensors", "tokenizer.json",
                                         "config.json" };
    for (size_t n = 0; n < BT_LEN(names); n++)
        for (size_t i = 0; i < BT_LEN(files); i++) {
            memset(bytes, 0, sizeof(bytes));
            memcpy(bytes + files[i].at, files[i].bytes, files[i].size);
            tiny_file(folder, names[n], bytes, files[i].at + files[i].size);
            snprintf(path, sizeof(path), "%s/%s", folder, names[n]);
            if (n == 1) {
                tokenizer_says(folder, files[i].message);
                tokenizer_says(path, files[i].message);
            } else {
                model_says(folder, files[i].message);
                model_says(path, files[i].message);
            }
        }
    temp_folder_free(&s);
}

/* Valid files still load, and damaged ones still give their own message. */
static void own_files_are_not_foreign(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char folder[512], path[600];
    bauta_error err;
    bauta_model *model = NULL;
    tiny_write(&s, &tinies[0], folder);
    assert_int_equal(bauta_model_load(&model, folder, false, &err), BAUTA_OK);
    bauta_model_free(model);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    model_says(path, "is a file of weights: give the folder that it is in");
    tiny_file(folder, "model.safetensors", "12345678{}", 10);
    model_says(folder, "is truncated or not a safetensors file");
    temp_folder_free(&s);
}

static void errors_of_folders_without_a_config_name_their_contents(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char folder[512];
    snprintf(folder, sizeof(folder), "%s/other", s.folder);
    model_says(folder, "other: there is no such folder");
    assert_int_equal(mkdir(folder, 0777), 0);
    model_says(folder, "other: is an empty folder");
    tiny_file(folder, "b.txt", "x", 1);
    model_says(folder,
               "is not a model folder: it has no config.json, but b.txt");
    tiny_file(folder, "a.txt", "x", 1);
    tiny_file(folder, "d.txt", "x", 1);
    tiny_file(folder, "c.txt", "x", 1);
    tiny_file(folder, "e.txt", "x", 1);
    model_says(folder, "but a.txt, b.txt, c.txt and 2 more");
    tiny_file(folder, "model.Q4_K_M.gguf", "GGUF", 4);
    model_says(folder, "but model.Q4_K_M.gguf, a.txt, b.txt and 3 more; GGUF "
                       "is for llama.cpp");
    tiny_file(folder, "config.json", tinies[0].config,
              strlen(tinies[0].config));
    model_says(folder, "there is neither model.safetensors nor "
                       "model.safetensors.index.json, but model.Q4_K_M.gguf");
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_files_are_recognised),
        cmocka_unit_test(own_files_are_not_foreign),
        cmocka_unit_test(
            errors_of_folders_without_a_config_name_their_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

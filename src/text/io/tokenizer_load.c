/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_load.c - loading a tokenizer: the formats, and which files of a
 * folder they use. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/file_kind.h"
#include "formats/run_folder.h"
#include "text/io/tokenizer_config.h"
#include "text/io/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Formats ------------------------------------------------------------- */

/* Files of a format, in the order of its loader. */
enum { FORMAT_FILES = 4 };

typedef struct file_contents {
    char *bytes[FORMAT_FILES];
    size_t size[FORMAT_FILES];
} file_contents;

static bauta_status load_json(bauta_tokenizer **out,
                              const bt_tokenizer_config *f,
                              const file_contents *c, const char *const *names,
                              bauta_error *err)
{
    (void)f;
    return bt_tokenizer_parse_json(out, c->bytes[0], c->size[0], names[0], err);
}

static bauta_status load_marian(bauta_tokenizer **out,
                                const bt_tokenizer_config *f,
                                const file_contents *c,
                                const char *const *names, bauta_error *err)
{
    bt_marian_files files = { .source = c->bytes[0],
                              .source_size = c->size[0],
                              .target = c->bytes[1],
                              .target_size = c->size[1],
                              .vocab = c->bytes[2],
                              .vocab_size = c->size[2] };
    if (bt_tokenizer_config_bool(f, "separate_vocabs", false)) {
        files.target_vocab = c->bytes[3];
        files.target_vocab_size = c->size[3];
    }
    return bt_tokenizer_parse_marian(out, &files, names[2], err);
}

static bauta_status load_gpt2(bauta_tokenizer **out,
                              const bt_tokenizer_config *f,
                              const file_contents *c, const char *const *names,
                              bauta_error *err)
{
    bt_tokenizer_json document;
    bt_tokenizer_config assumed = *f;
    bauta_status status = bt_tokenizer_json_init_gpt2(
        &document, c->bytes[0], c->size[0], c->bytes[1], c->size[1], names[0],
        names[1], err);
    if (f->class == &bt_tokenizer_class_none)
        assumed.class = bt_tokenizer_class_of("gpt2");
    if (!status)
        status = bt_tokenizer_config_build(out, &document, &assumed, err);
    bt_tokenizer_json_release(&document);
    return status;
}

static bauta_status load_bert(bauta_tokenizer **out,
                              const bt_tokenizer_config *f,
                              const file_contents *c, const char *const *names,
                              bauta_error *err)
{
    bt_tokenizer_json document;
    bt_tokenizer_config assumed = *f;
    bauta_status status = bt_tokenizer_json_init_bert(
        &document, c->bytes[0], c->size[0],
        bt_tokenizer_config_bool(f, "do_lower_case", true), names[0], err);
    if (f->class == &bt_tokenizer_class_none)
        assumed.class = bt_tokenizer_class_of("bert");
    if (!status)
        status = bt_tokenizer_config_build(out, &document, &assumed, err);
    bt_tokenizer_json_release(&document);
    return status;
}

static bauta_status load_sentencepiece(bauta_tokenizer **out,
                                       const bt_tokenizer_config *f,
                                       const file_contents *c,
                                       const char *const *names,
                                       bauta_error *err)
{
    bauta_status status = bt_tokenizer_parse_sentencepiece(
        out, c->bytes[0], c->size[0], names[0], err);
    if (status || (f->class == &bt_tokenizer_class_none && !f->config))
        return status;
    bt_tokenizer_config_apply_special_tokens(*out, f);
    return bt_tokenizer_config_complete_sentencepiece(*out, f, names[0], err);
}

typedef struct format {
    const char *files[FORMAT_FILES];
    size_t needed; /* how many of the files are required */
    bauta_status (*load)(bauta_tokenizer **out, const bt_tokenizer_config *f,
                         const file_contents *c, const char *const *names,
                         bauta_error *err);
} format;

static const format formats[] = {
    { { "tokenizer.json" }, 1, load_json },
    { { "source.spm", "target.spm", "vocab.json", "target_vocab.json" },
      3,
      load_marian },
    { { "vocab.json", "merges.txt" }, 2, load_gpt2 },
    { { "encoder.json", "vocab.bpe" }, 2, load_gpt2 },
    { { "tokenizer.model" }, 1, load_sentencepiece },
    { { "spiece.model" }, 1, load_sentencepiece },
    { { "vocab.txt" }, 1, load_bert },
};

/* ---- Folders ------------------------------------------------------------- */

static bauta_status folder_has(bool *has, const char *path, const char *name,
                               bauta_error *err)
{
    char *joined = bt_path_join(path, name);
    if (!joined)
        return bt_fail_memory(err, "a path", strlen(path));
    *has = bt_file_exists(joined);
    bt_free(joined);
    return BAUTA_OK;
}

/* The first format whose files exist; *out is NULL if there is none. */
static bauta_status folder_format(const format **out, const char *path,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *out = NULL;
    for (size_t i = 0; !status && !*out && i < BT_LEN(formats); i++) {
        bool all = true;
        for (size_t j = 0; !status && all && j < formats[i].needed; j++)
            status = folder_has(&all, path, formats[i].files[j], err);
        if (all)
            *out = &formats[i];
    }
    return status;
}

/* Store the files in the tokenizer, for saving. */
static void store_files(bauta_tokenizer *t, file_contents *c,
                        const format *from)
{
    for (size_t i = 0; i < FORMAT_FILES; i++) {
        if (c->bytes[i])
            bt_tokenizer_store_file(t, from->files[i], c->bytes[i], c->size[i]);
        c->bytes[i] = NULL;
    }
}

/* Store the files that only describe the tokens. */
static bauta_status store_extras(bauta_tokenizer *t, const char *path,
                                 bauta_error *err)
{
    static const char *const extras[] = { "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json", "series.json" };
    for (size_t i = 0; i < BT_LEN(extras); i++) {
        char *bytes;
        size_t size;
        bauta_status status = bt_tokenizer_folder_read(
            &bytes, &size, path, extras[i], BT_TOKENIZER_CONFIG_MAX, err);
        if (status)
            return status;
        if (bytes)
            bt_tokenizer_store_file(t, extras[i], bytes, size);
    }
    return BAUTA_OK;
}

/* After a failure: if one of the files is recognized as another kind of file,
 * say so. */
static bauta_status explain_failure(bauta_status status, const char *folder,
                                    const format *from, bauta_error *err)
{
    for (size_t i = 0; status && i < FORMAT_FILES && from->files[i]; i++) {
        char *path = bt_path_join(folder, from->files[i]);
        if (path)
            bt_file_kind_explain(status, path, err);
        bt_free(path);
    }
    return status;
}

static bauta_status folder_load(bauta_tokenizer **out,
                                const bt_tokenizer_config *f,
                                const format *from, bauta_error *err)
{
    file_contents c = { 0 };
    bauta_tokenizer *tokenizer = NULL;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < FORMAT_FILES && from->files[i]; i++)
        status = bt_tokenizer_folder_read(&c.bytes[i], &c.size[i], f->path,
                                          from->files[i], BT_TOKENIZER_FILE_MAX,
                                          err);
    if (!status)
        status =
            explain_failure(from->load(&tokenizer, f, &c, from->files, err),
                            f->path, from, err);
    if (!status) {
        bt_tokenizer_config_apply_special_tokens(tokenizer, f);
        store_files(tokenizer, &c, from);
        status = store_extras(tokenizer, f->path, err);
    }
    for (size_t i = 0; i < FORMAT_FILES; i++)
        bt_free(c.bytes[i]);
    if (status)
        bauta_tokenizer_free(tokenizer);
    else
        *out = tokenizer;
    return status;
}

static bauta_status load_format(bauta_tokenizer **out, const char *path,
                                const format *from, bauta_error *err)
{
    bt_tokenizer_config f;
    if (!from)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s has no tokenizer.json and no other file that a "
                       "tokenizer is made from",
                       bt_path_tail(path));
    bauta_status status = bt_tokenizer_files_check(path, err);
    if (status)
        return status;
    status = bt_tokenizer_config_init(&f, path, err);
    if (!status)
        status = folder_load(out, &f, from, err);
    json_decref(f.config);
    return status;
}

/* The folder of a run means one of its checkpoints. */
static bauta_status load_folder(bauta_tokenizer **out, const char *path,
                                bauta_error *err)
{
    const format *from;
    char *checkpoint;
    bauta_status status = folder_format(&from, path, err);
    if (status)
        return status;
    if (from)
        return load_format(out, path, from, err);
    status = bt_run_resolve(&checkpoint, path, err);
    if (!status)
        status = folder_format(&from, checkpoint, err);
    if (!status)
        status = load_format(out, checkpoint, from, err);
    bt_free(checkpoint);
    return status;
}

/* ---- Files --------------------------------------------------------------- */

static bauta_status load_file(bauta_tokenizer **out, const char *path,
                              bauta_error *err)
{
    static const bt_tokenizer_config no_config = { "", NULL,
                                                   &bt_tokenizer_class_none };
    file_contents c = { 0 };
    const format *from = bt_ends_with(path, ".json")  ? &formats[0]
                         : bt_ends_with(path, ".txt") ? &formats[6]
                                                      : &formats[4];
    bauta_status status =
        bt_file_read(&c.bytes[0], &c.size[0], path, BT_TOKENIZER_FILE_MAX, err);
    if (!status)
        status = bt_file_kind_explain(
            from->load(out, &no_config, &c, &path, err), path, err);
    if (!status)
        store_files(*out, &c, from);
    bt_free(c.bytes[0]);
    return status;
}

bauta_status bauta_tokenizer_load(bauta_tokenizer **out, const char *path,
                                  bauta_error *err)
{
    struct stat about;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(path, err);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return load_folder(out, path, err);
    return load_file(out, path, err);
}

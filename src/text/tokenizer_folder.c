/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_folder.c - which files of a folder make the tokenizer, and what
 * tokenizer_config.json says beside them.
 *
 * A tokenizer.json says everything itself. With the older formats the class of
 * the tokenizer decides what is put around a text and which tokens are special;
 * tokenizer_config.json names it, or else the model_type of config.json. */
#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/run.h"
#include "text/document.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what the folder says ---------------------------------------------- */

static const char *const name_keys[BAUTA_TOKEN_NAMES] = {
    [BAUTA_TOKEN_BOS] = "bos_token",   [BAUTA_TOKEN_EOS] = "eos_token",
    [BAUTA_TOKEN_UNK] = "unk_token",   [BAUTA_TOKEN_PAD] = "pad_token",
    [BAUTA_TOKEN_CLS] = "cls_token",   [BAUTA_TOKEN_SEP] = "sep_token",
    [BAUTA_TOKEN_MASK] = "mask_token",
};

/* How the classes of tokenizers differ. */
typedef struct family {
    const char *class;      /* as transformers calls it, without "Fast" */
    const char *model_type; /* of config.json */
    const char *names[BAUTA_TOKEN_NAMES]; /* unless the folder says otherwise */
    bool bos, eos;                        /* put around a text */
    bool cls;  /* [CLS] A [SEP] B [SEP] is put around */
    bool pair; /* as RoBERTa: <s> A </s></s> B </s> */
} family;

static const family families[] = {
    { "GPT2Tokenizer",
      "gpt2",
      { "<|endoftext|>", "<|endoftext|>", "<|endoftext|>" },
      .bos = false },
    { "RobertaTokenizer",
      "roberta",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .pair = true },
    { "BartTokenizer",
      "bart",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .pair = true },
    { "BertTokenizer",
      "bert",
      { NULL, NULL, "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]" },
      .cls = true },
    { "LlamaTokenizer", "llama", { "<s>", "</s>", "<unk>" }, .bos = true },
    { "T5Tokenizer", "t5", { NULL, "</s>", "<unk>", "<pad>" }, .eos = true },
    { "AlbertTokenizer",
      "albert",
      { "[CLS]", "[SEP]", "<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]" },
      .cls = true },
    { "MarianTokenizer",
      "marian",
      { NULL, "</s>", "<unk>", "<pad>" },
      .eos = true },
};
static const family no_family = { 0 };

typedef struct folder {
    const char *path;
    json_t *config; /* tokenizer_config.json; NULL where there is none */
    const family *family;
} folder;

/* A file of the folder, with a NUL behind it; NULL, without a failure, where
 * there is none. */
static bauta_status file_read(char **out, size_t *size, const char *path,
                              const char *name, bauta_error *err)
{
    *out = NULL;
    *size = 0;
    char *joined = bt_path_join(path, name);
    if (!joined)
        return bt_fail_memory(err, "a path", strlen(path));
    bauta_status status = BAUTA_OK;
    if (bt_file_exists(joined))
        status = bt_file_read(out, size, joined, BT_TOKENIZER_FILE_MAX, err);
    bt_free(joined);
    return status;
}

static bauta_status json_read(json_t **out, const char *path, const char *name,
                              bauta_error *err)
{
    char *text;
    size_t size;
    *out = NULL;
    bauta_status status = file_read(&text, &size, path, name, err);
    if (!status && text)
        status = bt_document_read(out, text, size, name, err);
    bt_free(text);
    return status;
}

static bool same_class(const char *class, const char *is)
{
    size_t n = strlen(is);
    return class && !strncmp(class, is, n) &&
           (!class[n] || !strcmp(class + n, "Fast"));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bauta_status folder_init(folder *f, const char *path, bauta_error *err)
{
    json_t *model = NULL;
    *f = (folder){ .path = path, .family = &no_family };
    bauta_status status =
        json_read(&f->config, path, "tokenizer_config.json", err);
    if (!status)
        status = json_read(&model, path, "config.json", err);
    const char *class = text_of(f->config, "tokenizer_class");
    const char *type = text_of(model, "model_type");
    for (size_t i = 0; i < BT_LEN(families); i++)
        if (class ? same_class(class, families[i].class)
                  : type && !strcmp(type, families[i].model_type))
            f->family = &families[i];
    json_decref(model);
    return status;
}

/* What a folder calls its token of a name: a string, or an object that holds
 * it; NULL where it has none. */
static const char *folder_name(const folder *f, bauta_token_name name)
{
    const json_t *value = json_object_get(f->config, name_keys[name]);
    if (!value)
        return f->family->names[name];
    if (json_is_object(value))
        value = json_object_get(value, "content");
    return json_string_value(value);
}

/* A switch of tokenizer_config.json. */
static bool folder_flag(const folder *f, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(f->config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static void names_set(bauta_tokenizer *t, const folder *f)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_NAMES; i++) {
        const char *piece = folder_name(f, (bauta_token_name)i);
        uint32_t id =
            piece ? bt_vocab_find(t->vocab, piece, strlen(piece)) : BT_NO_ID;
        if (id != BT_NO_ID)
            t->names[i] = id;
    }
}

/* ---- the older formats, completed -------------------------------------- */

/* Add a token to a document, unless it is there. */
static int document_add(json_t *document, const char *content, json_int_t id,
                        bool special, bool lstrip, bool rstrip,
                        bool single_word, bool normalized)
{
    json_t *list = json_object_get(document, "added_tokens"), *entry;
    size_t i;
    json_array_foreach(list, i, entry) if (!strcmp(text_of(entry, "content"),
                                                   content)) return 0;
    return json_array_append_new(
        list,
        json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content", content,
                  "special", special, "lstrip", lstrip, "rstrip", rstrip,
                  "single_word", single_word, "normalized", normalized));
}

/* added_tokens_decoder: {"50256": {"content": "<|endoftext|>", ...}, ...} */
static int document_add_decoder(json_t *document, const json_t *tokens)
{
    const char *key;
    json_t *t;
    json_object_foreach((json_t *)tokens, key, t)
    {
        const char *content = text_of(t, "content");
        if (content &&
            document_add(document, content, (json_int_t)strtoll(key, NULL, 10),
                         json_is_true(json_object_get(t, "special")),
                         json_is_true(json_object_get(t, "lstrip")),
                         json_is_true(json_object_get(t, "rstrip")),
                         json_is_true(json_object_get(t, "single_word")),
                         json_is_true(json_object_get(t, "normalized"))))
            return -1;
    }
    return 0;
}

/* added_tokens.json: {"<|endoftext|>": 50256, ...} */
static int document_add_object(json_t *document, const json_t *tokens)
{
    const char *content;
    json_t *id;
    json_object_foreach(
        (json_t *)tokens, content,
        id) if (document_add(document, content, json_integer_value(id), false,
                             false, false, false, true)) return -1;
    return 0;
}

static json_int_t document_id(const json_t *document, const char *piece)
{
    const json_t *vocab =
        json_object_get(json_object_get(document, "model"), "vocab");
    const json_t *id = piece ? json_object_get(vocab, piece) : NULL;
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

static int document_add_names(json_t *document, const folder *f)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_NAMES; i++) {
        const char *piece = folder_name(f, (bauta_token_name)i);
        json_int_t id = document_id(document, piece);
        if (id >= 0 && document_add(document, piece, id, true,
                                    i == BAUTA_TOKEN_MASK && f->family->pair,
                                    false, false, false))
            return -1;
    }
    return 0;
}

/* [CLS] and [SEP], where the family has them. */
static int document_around(json_t *document, const folder *f)
{
    const char *cls = folder_name(f, BAUTA_TOKEN_CLS);
    const char *sep = folder_name(f, BAUTA_TOKEN_SEP);
    json_int_t cls_id = document_id(document, cls);
    json_int_t sep_id = document_id(document, sep);
    if (!(f->family->cls || f->family->pair) || cls_id < 0 || sep_id < 0)
        return 0;
    return json_object_set_new(
        document, "post_processor",
        json_pack("{s:s,s:[sI],s:[sI]}", "type",
                  f->family->pair ? "RobertaProcessing" : "BertProcessing",
                  "sep", sep, sep_id, "cls", cls, cls_id));
}

/* Takes the document. */
static bauta_status document_finish(bauta_tokenizer **out, json_t *document,
                                    const folder *f, const char *name,
                                    bauta_error *err)
{
    json_t *added = NULL;
    bauta_status status = json_read(&added, f->path, "added_tokens.json", err);
    if (!status &&
        (document_add_decoder(
             document, json_object_get(f->config, "added_tokens_decoder")) ||
         document_add_names(document, f) ||
         document_add_object(document, added) || document_around(document, f)))
        status = bt_fail_memory(err, "added tokens", 0);
    json_decref(added);
    if (!status)
        status = bt_document_tokenizer(out, document, name, err);
    json_decref(document);
    return status;
}

/* ---- one loader a format ----------------------------------------------- */

/* Files of a format, in the order in which its loader takes them. */
enum { FORMAT_FILES = 4 };

typedef struct contents {
    char *bytes[FORMAT_FILES];
    size_t size[FORMAT_FILES];
} contents;

static bauta_status load_json(bauta_tokenizer **out, const folder *f,
                              const contents *c, const char *const *names,
                              bauta_error *err)
{
    (void)f;
    return bt_tokenizer_parse_json(out, c->bytes[0], c->size[0], names[0], err);
}

static bauta_status load_marian(bauta_tokenizer **out, const folder *f,
                                const contents *c, const char *const *names,
                                bauta_error *err)
{
    bt_marian_files files = { .source = c->bytes[0],
                              .source_size = c->size[0],
                              .target = c->bytes[1],
                              .target_size = c->size[1],
                              .vocab = c->bytes[2],
                              .vocab_size = c->size[2] };
    if (folder_flag(f, "separate_vocabs", false)) {
        files.target_vocab = c->bytes[3];
        files.target_vocab_size = c->size[3];
    }
    return bt_tokenizer_parse_marian(out, &files, names[2], err);
}

static bauta_status load_gpt2(bauta_tokenizer **out, const folder *f,
                              const contents *c, const char *const *names,
                              bauta_error *err)
{
    json_t *document;
    folder assumed = *f;
    bauta_status status =
        bt_document_gpt2(&document, c->bytes[0], c->size[0], c->bytes[1],
                         c->size[1], names[0], names[1], err);
    if (f->family == &no_family)
        assumed.family = &families[0];
    if (!status)
        status = document_finish(out, document, &assumed, names[0], err);
    return status;
}

static bauta_status load_bert(bauta_tokenizer **out, const folder *f,
                              const contents *c, const char *const *names,
                              bauta_error *err)
{
    json_t *document;
    folder assumed = *f;
    bauta_status status =
        bt_document_bert(&document, c->bytes[0], c->size[0],
                         folder_flag(f, "do_lower_case", true), names[0], err);
    for (size_t i = 0; i < BT_LEN(families) && f->family == &no_family; i++)
        if (!strcmp(families[i].model_type, "bert"))
            assumed.family = &families[i];
    if (!status)
        status = document_finish(out, document, &assumed, names[0], err);
    return status;
}

/* What the family puts around a text, and which tokens it finds in one. */
static bauta_status sentencepiece_finish(bauta_tokenizer *t, const folder *f,
                                         const char *path, bauta_error *err)
{
    bt_added_token tokens[BAUTA_TOKEN_NAMES];
    size_t count = 0, before = 0, behind = 0;
    uint32_t first = t->names[BAUTA_TOKEN_BOS],
             last = t->names[BAUTA_TOKEN_EOS];
    bauta_status status = BAUTA_OK;
    for (unsigned i = 0; i < BAUTA_TOKEN_NAMES && !status; i++) {
        const char *piece = folder_name(f, (bauta_token_name)i);
        if (!piece || t->names[i] == BT_NO_ID)
            continue;
        tokens[count++] = (bt_added_token){ .content = piece,
                                            .size = strlen(piece),
                                            .id = t->names[i],
                                            .special = true };
        status = bt_tokenizer_mark(t, t->names[i], err);
    }
    if (f->family->cls) {
        first = t->names[BAUTA_TOKEN_CLS];
        last = t->names[BAUTA_TOKEN_SEP];
    }
    before = f->family->cls || folder_flag(f, "add_bos_token", f->family->bos);
    behind = f->family->cls || folder_flag(f, "add_eos_token", f->family->eos);
    bt_added_free(t->added);
    t->added = NULL;
    bt_template_release(&t->single);
    bt_template_release(&t->pair);
    if (!status)
        status =
            bt_added_create(&t->added, tokens, count, t->normalizer, path, err);
    if (!status)
        status = bt_template_around(&t->single, &t->pair, &first,
                                    first == BT_NO_ID ? 0 : before, &last,
                                    last == BT_NO_ID ? 0 : behind, err);
    return status;
}

static bauta_status load_sentencepiece(bauta_tokenizer **out, const folder *f,
                                       const contents *c,
                                       const char *const *names,
                                       bauta_error *err)
{
    bauta_status status = bt_tokenizer_parse_sentencepiece(
        out, c->bytes[0], c->size[0], names[0], err);
    if (status || (f->family == &no_family && !f->config))
        return status;
    names_set(*out, f);
    return sentencepiece_finish(*out, f, names[0], err);
}

typedef struct format {
    const char *files[FORMAT_FILES];
    size_t needed; /* the first so many must be there */
    bauta_status (*load)(bauta_tokenizer **out, const folder *f,
                         const contents *c, const char *const *names,
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

/* ---- the folder -------------------------------------------------------- */

static bool folder_has(const char *path, const char *name)
{
    char *joined = bt_path_join(path, name);
    bool there = joined && bt_file_exists(joined);
    bt_free(joined);
    return there;
}

static const format *folder_format(const char *path)
{
    for (size_t i = 0; i < BT_LEN(formats); i++) {
        bool all = true;
        for (size_t j = 0; j < formats[i].needed; j++)
            all = all && folder_has(path, formats[i].files[j]);
        if (all)
            return &formats[i];
    }
    return NULL;
}

/* The tokenizer keeps what it was made from. */
static void contents_keep(bauta_tokenizer *t, contents *c, const format *from)
{
    for (size_t i = 0; i < FORMAT_FILES; i++) {
        if (c->bytes[i])
            bt_tokenizer_keep(t, from->files[i], c->bytes[i], c->size[i]);
        c->bytes[i] = NULL;
    }
}

/* Files that only say more of the tokens. */
static bauta_status extras_keep(bauta_tokenizer *t, const char *path,
                                bauta_error *err)
{
    static const char *const extras[] = { "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json" };
    for (size_t i = 0; i < BT_LEN(extras); i++) {
        char *bytes;
        size_t size;
        bauta_status status = file_read(&bytes, &size, path, extras[i], err);
        if (status)
            return status;
        if (bytes)
            bt_tokenizer_keep(t, extras[i], bytes, size);
    }
    return BAUTA_OK;
}

static bauta_status folder_load(bauta_tokenizer **out, const folder *f,
                                const format *from, bauta_error *err)
{
    contents c = { 0 };
    bauta_tokenizer *made = NULL;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < FORMAT_FILES && from->files[i]; i++)
        status =
            file_read(&c.bytes[i], &c.size[i], f->path, from->files[i], err);
    if (!status)
        status = from->load(&made, f, &c, from->files, err);
    if (!status) {
        names_set(made, f);
        contents_keep(made, &c, from);
        status = extras_keep(made, f->path, err);
    }
    for (size_t i = 0; i < FORMAT_FILES; i++)
        bt_free(c.bytes[i]);
    if (status)
        bauta_tokenizer_free(made);
    else
        *out = made;
    return status;
}

static bauta_status load_folder(bauta_tokenizer **out, const char *path,
                                bauta_error *err)
{
    folder f;
    const format *from = folder_format(path);
    if (!from)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s has no tokenizer.json and no other file that a "
                       "tokenizer is made from",
                       bt_path_tail(path));
    bauta_status status = folder_init(&f, path, err);
    if (!status)
        status = folder_load(out, &f, from, err);
    json_decref(f.config);
    return status;
}

/* ---- one file ---------------------------------------------------------- */

static bool ends_with(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && !strcmp(path + n - m, ending);
}

static bauta_status load_file(bauta_tokenizer **out, const char *path,
                              bauta_error *err)
{
    static const folder nowhere = { "", NULL, &no_family };
    contents c = { 0 };
    const format *from = ends_with(path, ".json")  ? &formats[0]
                         : ends_with(path, ".txt") ? &formats[6]
                                                   : &formats[4];
    bauta_status status =
        bt_file_read(&c.bytes[0], &c.size[0], path, BT_TOKENIZER_FILE_MAX, err);
    if (!status)
        status = from->load(out, &nowhere, &c, &path, err);
    if (!status)
        contents_keep(*out, &c, from);
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
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return load_file(out, path, err);
    if (folder_format(path))
        return load_folder(out, path, err);
    char *meant;
    bauta_status status = bt_run_resolve(&meant, path, err);
    if (!status)
        status = load_folder(out, meant, err);
    bt_free(meant);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* marian_tokenizer.c - the tokenizers of Marian's translation models.
 *
 * Each side has a SentencePiece model that splits the text into pieces, whose
 * ids are in vocab.json. Text that the model does not know is looked up there
 * as well. A language code (">>de<<") at the start of a text is one token: the
 * normalizer does not change it, and since all other text starts with a space
 * after normalization, the code is recognized by the start of the text. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/io/sentencepiece_tokenizer.h"
#include "text/io/tokenizer_json.h"

#include <string.h>

/* ---- From pieces to ids -------------------------------------------------- */

typedef struct marian {
    bt_subword_model base;
    bt_subword_model *pieces;
    const bt_vocab *vocab;
    uint32_t piece_unknown; /* of the SentencePiece model */
    uint32_t unknown;       /* of vocab.json */
    bool codes;
    uint32_t ids[]; /* by piece */
} marian;

/* The length of the language code at the start of a split, or 0. */
static size_t code_size(const char *split, size_t size)
{
    if (size < 4 || memcmp(split, ">>", 2) != 0)
        return 0;
    for (size_t end = 4; end <= size; end++)
        if (memcmp(split + end - 2, "<<", 2) == 0)
            return end;
    return 0;
}

static uint32_t find_id(const marian *model, const char *text, size_t size)
{
    uint32_t id = bt_vocab_find(model->vocab, text, size);
    return id == BT_NO_ID ? model->unknown : id;
}

static bauta_status marian_encode(const bt_subword_model *base,
                                  const char *split, size_t size,
                                  bt_subword_workspace *work, bauta_error *err)
{
    const marian *model = (const marian *)base;
    bauta_status status = BAUTA_OK;
    uint32_t code = model->codes ? (uint32_t)code_size(split, size) : 0;
    if (code > 0)
        status = bt_subword_append(
            work, (bt_token){ find_id(model, split, code), 0, code }, err);
    size_t begin = work->count;
    if (!status && size > code)
        status = bt_subword_encode(model->pieces, split + code, size - code,
                                   work, err);
    for (size_t i = begin; i < work->count; i++) {
        bt_token *t = work->tokens + i;
        t->lo += code;
        t->hi += code;
        t->id = t->id == model->piece_unknown
                    ? find_id(model, split + t->lo, t->hi - t->lo)
                    : model->ids[t->id];
    }
    return status;
}

static void marian_free(bt_subword_model *base)
{
    marian *model = (marian *)base;
    bt_subword_free(model->pieces);
    bt_free(model);
}

/* Takes `pieces`, even on failure. */
static bauta_status marian_create(bauta_tokenizer *t, bt_subword_model *pieces,
                                  const bt_sentencepiece *from,
                                  bauta_error *err)
{
    size_t size = sizeof(marian) + from->count * sizeof(uint32_t);
    marian *model = bt_alloc_zero(1, size);
    if (!model) {
        bt_subword_free(pieces);
        return bt_fail_memory(err, "the ids of pieces", size);
    }
    model->base = (bt_subword_model){ marian_encode, marian_free };
    model->pieces = pieces;
    model->vocab = t->vocab;
    model->piece_unknown = from->unknown;
    model->unknown = t->special_ids[BAUTA_TOKEN_UNK];
    model->codes = from->add_dummy_prefix && !from->whitespace_suffix;
    for (size_t i = 0; i < from->count; i++)
        model->ids[i] = find_id(model, from->pieces[i].text.bytes,
                                from->pieces[i].text.size);
    t->model = &model->base;
    return BAUTA_OK;
}

/* ---- vocab.json ---------------------------------------------------------- */

static bauta_status vocab_read(bt_vocab **out, const char *text, size_t size,
                               const char *path, bauta_error *err)
{
    bt_json_reader json = bt_json_reader_init(path, text, size);
    bauta_status status = bt_vocab_create(out, err);
    if (!status)
        status = bt_tokenizer_json_vocab(*out, &json, err);
    return status ? status : bt_json_expect_end(&json, err);
}

/* ---- Special tokens ------------------------------------------------------ */

static const struct {
    const char *text;
    bauta_special_token name;
    bool needed;
} specials[] = { { "</s>", BAUTA_TOKEN_EOS, true },
                 { "<unk>", BAUTA_TOKEN_UNK, true },
                 { "<pad>", BAUTA_TOKEN_PAD, false } };

/* Set the special tokens, which are added tokens too. */
static bauta_status specials_fill(bauta_tokenizer *t, const char *path,
                                  bauta_error *err)
{
    bt_added_token tokens[BT_LEN(specials)];
    size_t count = 0;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < BT_LEN(specials); i++) {
        const char *text = specials[i].text;
        uint32_t id = bt_vocab_find(t->vocab, text, strlen(text));
        t->special_ids[specials[i].name] = id;
        if (id == BT_NO_ID && specials[i].needed)
            return bt_fail(err, BAUTA_ERR_FORMAT, "%s: has no \"%s\"",
                           bt_path_tail(path), text);
        if (id == BT_NO_ID)
            continue;
        tokens[count++] = (bt_added_token){
            .content = text, .size = strlen(text), .id = id, .special = true
        };
        status = bt_tokenizer_mark_special(t, id, err);
    }
    if (!status)
        status = bt_added_tokens_create(&t->added_tokens, tokens, count, NULL,
                                        path, err);
    return status;
}

static bauta_status model_fill(bauta_tokenizer *t, const bt_sentencepiece *from,
                               const char *path, bauta_error *err)
{
    bt_subword_model *pieces = NULL;
    bauta_status status = bt_sentencepiece_check(from, path, err);
    if (!status)
        status = bt_sentencepiece_vocab(&t->model_vocab, from, path, err);
    if (!status)
        status = bt_sentencepiece_normalizer(
            &t->normalizer, from, t->model_vocab,
            from->add_dummy_prefix && !from->whitespace_suffix, path, err);
    if (!status)
        status =
            bt_sentencepiece_subword(&pieces, from, t->model_vocab, path, err);
    if (!status)
        status = marian_create(t, pieces, from, err);
    return status;
}

/* ---- Decoding ------------------------------------------------------------ */

/* As in transformers: each U+2581 becomes a space, and spaces at the ends of
 * the text are removed. Written as a decoder of a tokenizer.json. */
static bauta_status detokenizer_fill(bauta_tokenizer *t,
                                     const bt_sentencepiece *from,
                                     const char *path, bauta_error *err)
{
    const char *first = from->byte_fallback ? "ByteFallback" : "Fuse";
    json_t *json = json_pack(
        "{s:s, s:[{s:s}, {s:s, s:{s:s}, s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}",
        "type", "Sequence", "decoders", "type", first, "type", "Replace",
        "pattern", "String", "\xE2\x96\x81", "content", " ", "type", "Fuse",
        "type", "Strip", "content", " ", "start", INT32_MAX, "stop", INT32_MAX);
    if (!json)
        return bt_fail_memory(err, "a decoder", 1);
    bauta_status status =
        bt_detokenizer_chain_parse(&t->detokenizer, json, path, err);
    json_decref(json);
    return status;
}

/* Control pieces of the model are special tokens if vocab.json has them. */
static bauta_status controls_mark(bauta_tokenizer *t,
                                  const bt_sentencepiece *from,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < from->count; i++) {
        const bt_piece *p = from->pieces + i;
        if (p->type != BT_PIECE_CONTROL)
            continue;
        uint32_t id = bt_vocab_find(t->vocab, p->text.bytes, p->text.size);
        if (id != BT_NO_ID)
            status = bt_tokenizer_mark_special(t, id, err);
    }
    return status;
}

/* ---- Source and target --------------------------------------------------- */

typedef struct side {
    const char *model, *vocab;
    size_t model_size, vocab_size;
    const char *model_path, *vocab_path;
} side;

static bauta_status side_fill(bauta_tokenizer *t, const side *s,
                              bauta_error *err)
{
    bt_sentencepiece from;
    bauta_status status = bt_sentencepiece_parse(&from, s->model, s->model_size,
                                                 s->model_path, err);
    if (!status)
        status =
            vocab_read(&t->vocab, s->vocab, s->vocab_size, s->vocab_path, err);
    if (!status)
        status = specials_fill(t, s->vocab_path, err);
    if (!status)
        status = model_fill(t, &from, s->model_path, err);
    if (!status)
        status = controls_mark(t, &from, err);
    if (!status)
        status = detokenizer_fill(t, &from, s->model_path, err);
    bt_sentencepiece_release(&from);
    if (!status)
        status = bt_template_wrap(&t->single, &t->pair, NULL, 0,
                                  &t->special_ids[BAUTA_TOKEN_EOS], 1, err);
    return status;
}

static bauta_status side_create(bauta_tokenizer **out, const side *s,
                                bauta_error *err)
{
    bauta_tokenizer *tokenizer = NULL;
    *out = NULL;
    bauta_status status = bt_tokenizer_create(&tokenizer, err);
    if (!status)
        status = side_fill(tokenizer, s, err);
    if (status) {
        bauta_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return BAUTA_OK;
}

bauta_status bt_tokenizer_parse_marian(bauta_tokenizer **out,
                                       const bt_marian_files *files,
                                       const char *path, bauta_error *err)
{
    bool separate = files->target_vocab != NULL;
    const side source = { files->source,     files->vocab, files->source_size,
                          files->vocab_size, "source.spm", path };
    const side target = {
        files->target,
        separate ? files->target_vocab : files->vocab,
        files->target_size,
        separate ? files->target_vocab_size : files->vocab_size,
        "target.spm",
        separate ? "target_vocab.json" : path
    };
    bauta_tokenizer *tokenizer = NULL;
    *out = NULL;
    bauta_status status = side_create(&tokenizer, &source, err);
    if (!status)
        status = side_create(&tokenizer->target, &target, err);
    if (status) {
        bauta_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return BAUTA_OK;
}

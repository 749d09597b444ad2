/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_trainer.c - training a tokenizer: count words, learn pieces, write
 * a tokenizer.json, load it. */
#include "text/learn/tokenizer_trainer.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "formats/json.h"
#include "text/unicode.h"

#include <string.h>

/* ---- Options ------------------------------------------------------------- */

static bauta_status special_check(const char *token, size_t number,
                                  bauta_error *err)
{
    if (!token || !*token)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "special token %zu is %s",
                       number, token ? "empty" : "NULL");
    if (bt_utf8_valid_prefix(token, strlen(token)) != strlen(token))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "special token %zu is not UTF-8", number);
    return BAUTA_OK;
}

/* WordPiece and Unigram need an unknown token. */
static bauta_status
specials_check(const bauta_tokenizer_trainer_options *options, bauta_error *err)
{
    static const char *const unknown[] = {
        [BAUTA_TOKENIZER_WORDPIECE] = "[UNK]",
        [BAUTA_TOKENIZER_UNIGRAM] = "<unk>",
    };
    size_t count;
    const char *const *list = bt_trainer_special_tokens(options, &count);
    bool known = options->kind == BAUTA_TOKENIZER_BPE;
    for (size_t i = 0; i < count; i++) {
        bauta_status status = special_check(list[i], i, err);
        if (status)
            return status;
        known = known || strcmp(list[i], unknown[options->kind]) == 0;
    }
    if (known)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s is not among the special tokens, and this kind of "
                   "vocabulary needs it",
                   unknown[options->kind]);
}

static bauta_status
options_check(const bauta_tokenizer_trainer_options *options, bauta_error *err)
{
    if (options->kind == BAUTA_TOKENIZER_CHARACTERS)
        return BAUTA_OK;
    if ((unsigned)options->kind > BAUTA_TOKENIZER_UNIGRAM)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no kind %d of vocabulary", (int)options->kind);
    if (options->vocab_size < 1 || options->vocab_size > BT_VOCAB_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a vocabulary of %zu pieces; it must have 1 to %d",
                       options->vocab_size, BT_VOCAB_MAX);
    if (options->lowercase && options->kind == BAUTA_TOKENIZER_BPE)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a vocabulary of bytes has no lower case");
    return specials_check(options, err);
}

/* ---- Training ------------------------------------------------------------ */

/* The steps before the model, as in the finished tokenizer. */
typedef struct steps {
    bt_added_tokens *specials;
    bt_normalizer *normalizer;
    bt_pretokenizer *pretokenizer;
} steps;

static void steps_release(steps *s)
{
    bt_added_tokens_free(s->specials);
    bt_pretokenizer_free(s->pretokenizer);
    bt_normalizer_free(s->normalizer);
}

static bauta_status
specials_create(bt_added_tokens **out,
                const bauta_tokenizer_trainer_options *options,
                bauta_error *err)
{
    size_t count;
    const char *const *list = bt_trainer_special_tokens(options, &count);
    bt_added_token *tokens = bt_alloc(bt_size_mul(count, sizeof(*tokens)));
    if (!tokens)
        return bt_fail_memory(err, "special tokens", count * sizeof(*tokens));
    for (size_t i = 0; i < count; i++)
        tokens[i] = (bt_added_token){ .content = list[i],
                                      .size = strlen(list[i]),
                                      .id = (uint32_t)i,
                                      .special = true };
    bauta_status status =
        bt_added_tokens_create(out, tokens, count, NULL, "tokenizer.json", err);
    bt_free(tokens);
    return status;
}

static json_t *json_of(const char *text)
{
    bt_json_reader json = bt_json_reader_init("", text, strlen(text));
    json_t *value;
    (void)bt_json_read_value(&json, &value, NULL);
    return value;
}

static bauta_status steps_init(steps *s,
                               const bauta_tokenizer_trainer_options *options,
                               bauta_error *err)
{
    json_t *normalizer = json_of(bt_trainer_normalizer_json(options));
    json_t *pretokenizer = json_of(bt_trainer_pretokenizer_json(options));
    bauta_status status = BAUTA_OK;
    if (!normalizer || !pretokenizer)
        status = bt_fail_memory(err, "the steps of a tokenizer", 0);
    if (!status)
        status = bt_normalizer_parse(&s->normalizer, normalizer,
                                     "tokenizer.json", err);
    if (!status)
        status = bt_pretokenizer_parse(&s->pretokenizer, pretokenizer,
                                       "tokenizer.json", err);
    if (!status)
        status = specials_create(&s->specials, options, err);
    json_decref(normalizer);
    json_decref(pretokenizer);
    return status;
}

static bauta_status learn(bt_trained_vocab *out, const bt_word_counts *words,
                          const bauta_tokenizer_trainer_options *options,
                          bauta_error *err)
{
    switch (options->kind) {
    case BAUTA_TOKENIZER_WORDPIECE:
        return bt_learn_wordpiece(out, words, options, err);
    case BAUTA_TOKENIZER_UNIGRAM:
        return bt_learn_unigram(out, words, options, err);
    default:
        return bt_learn_bpe(out, words, options, err);
    }
}

/* Write the result and load it as any tokenizer.json. */
static bauta_status load(bauta_tokenizer **out, const bt_trained_vocab *learned,
                         const bauta_tokenizer_trainer_options *options,
                         bauta_error *err)
{
    char *text = NULL;
    size_t size;
    bauta_status status =
        bt_trained_vocab_json(&text, &size, learned, options, err);
    return status ? status : bt_tokenizer_create_json(out, text, size, err);
}

/* ---- Public functions ---------------------------------------------------- */

struct bauta_tokenizer_trainer {
    bauta_tokenizer_trainer_options options;
    steps steps;
    bt_word_counts *words;
    uint64_t *characters; /* CHARACTERS: the set of the texts */
    size_t texts;
    uint64_t bytes;
};

static bauta_status vocabulary_init(bauta_tokenizer_trainer *v,
                                    bauta_error *err)
{
    bauta_status status = options_check(&v->options, err);
    if (!status && v->options.kind == BAUTA_TOKENIZER_CHARACTERS) {
        v->characters =
            bt_alloc_zero(BT_CHAR_SET_WORDS, sizeof(*v->characters));
        return v->characters
                   ? BAUTA_OK
                   : bt_fail_memory(err, "a vocabulary", BT_CHAR_SET_WORDS * 8);
    }
    if (!status)
        status = steps_init(&v->steps, &v->options, err);
    return status ? status : bt_word_counts_create(&v->words, err);
}

bauta_status
bauta_tokenizer_trainer_create(bauta_tokenizer_trainer **out,
                               const bauta_tokenizer_trainer_options *options,
                               bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bauta_tokenizer_trainer *trainer = bt_alloc_zero(1, sizeof(*trainer));
    if (!trainer)
        return bt_fail_memory(err, "a vocabulary", sizeof(*trainer));
    bauta_status status =
        BT_SIZED_READ(&trainer->options, BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT,
                      options, "options", err);
    if (!status)
        status = vocabulary_init(trainer, err);
    if (status)
        bauta_tokenizer_trainer_free(trainer);
    else
        *out = trainer;
    return status;
}

void bauta_tokenizer_trainer_free(bauta_tokenizer_trainer *v)
{
    if (!v)
        return;
    steps_release(&v->steps);
    bt_word_counts_free(v->words);
    bt_free(v->characters);
    bt_free(v);
}

bauta_status bt_tokenizer_trainer_add_part(bauta_tokenizer_trainer *v,
                                           const char *text, size_t size,
                                           bool continues, bauta_error *err)
{
    v->texts += !continues;
    v->bytes += size;
    if (v->characters) {
        bt_char_set_add(v->characters, text, size);
        return BAUTA_OK;
    }
    return bt_word_counts_add_text(v->words, text, size, continues,
                                   v->steps.specials, v->steps.normalizer,
                                   v->steps.pretokenizer, err);
}

bool bt_tokenizer_trainer_takes_parts(const bauta_tokenizer_trainer *v)
{
    return v->characters || bt_added_tokens_local(v->steps.specials);
}

bauta_status bauta_tokenizer_trainer_add(bauta_tokenizer_trainer *v,
                                         const char *text, size_t length,
                                         bauta_error *err)
{
    BT_NEED(v, err);
    if (length)
        BT_NEED(text, err);
    return bt_tokenizer_trainer_add_part(v, text ? text : "", length, false,
                                         err);
}

uint64_t bauta_tokenizer_trainer_bytes(const bauta_tokenizer_trainer *v)
{
    return v->bytes;
}

size_t bauta_tokenizer_trainer_texts(const bauta_tokenizer_trainer *v)
{
    return v->texts;
}

bauta_status bauta_tokenizer_trainer_train(const bauta_tokenizer_trainer *v,
                                           bauta_tokenizer **out,
                                           bauta_error *err)
{
    bt_trained_vocab learned = { .vocab = NULL };
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(v, err);
    if (v->characters)
        return bt_tokenizer_create_characters(out, v->characters, err);
    bauta_status status = learn(&learned, v->words, &v->options, err);
    if (!status)
        status = load(out, &learned, &v->options, err);
    bt_trained_vocab_release(&learned);
    return status;
}

static bauta_status texts_check(const char *const *texts, const size_t *lengths,
                                size_t count, bauta_error *err)
{
    if (count && (!texts || !lengths))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is NULL",
                       texts ? "lengths" : "texts");
    BT_NEED_COUNT("texts", count, sizeof(*texts), err);
    for (size_t i = 0; i < count; i++)
        if (!texts[i] && lengths[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "texts[%zu] is NULL", i);
    return BAUTA_OK;
}

bauta_status
bauta_tokenizer_train(bauta_tokenizer **out,
                      const bauta_tokenizer_trainer_options *options,
                      const char *const *texts, const size_t *lengths,
                      size_t count, bauta_error *err)
{
    bauta_tokenizer_trainer *v = NULL;
    BT_NEED(out, err);
    *out = NULL;
    bauta_status status = texts_check(texts, lengths, count, err);
    if (!status)
        status = bauta_tokenizer_trainer_create(&v, options, err);
    for (size_t i = 0; !status && i < count; i++)
        status = bauta_tokenizer_trainer_add(v, texts[i], lengths[i], err);
    if (!status)
        status = bauta_tokenizer_trainer_train(v, out, err);
    bauta_tokenizer_trainer_free(v);
    return status;
}

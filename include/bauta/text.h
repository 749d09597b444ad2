/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/text.h - tokenizers, training of tokenizers, text files, and chat
 * templates. */
#ifndef BAUTA_TEXT_H
#define BAUTA_TEXT_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tokenizers -------------------------------------------------------- */

/* A tokenizer converts text to token ids and back, with the ids of the original
 * implementation: Hugging Face's tokenizers library for a tokenizer.json,
 * SentencePiece for its models.
 *
 * Text is UTF-8. An invalid byte is no error: it counts as U+FFFD, and
 * byte-level tokenizers (GPT-2) preserve it. */
typedef struct bauta_tokenizer bauta_tokenizer;

/* Load from a model folder, which must contain one of these, in this order of
 * preference:
 *
 *     tokenizer.json
 *     source.spm, target.spm, vocab.json        Marian
 *     vocab.json, merges.txt                    GPT-2, RoBERTa
 *     encoder.json, vocab.bpe                   GPT-2 as first published
 *     tokenizer.model, spiece.model             SentencePiece
 *     vocab.txt                                 BERT
 *
 * Special tokens are read from tokenizer_config.json. The folder of a training
 * run stands for its model, as in bauta_model_load(). Or load from one file: a
 * tokenizer.json, a vocab.txt, or a SentencePiece model, which then adds no
 * special tokens. */
BAUTA_API bauta_status bauta_tokenizer_load(bauta_tokenizer **out,
                                            const char *path, bauta_error *err);
/* The 256 bytes: token b is byte b; token 256 is <|endoftext|>, which ends a
 * text. */
BAUTA_API bauta_status bauta_tokenizer_bytes(bauta_tokenizer **out,
                                             bauta_error *err);
/* The distinct characters of a text in the order of their code points, followed
 * by <unk>, for every other character, and <|endoftext|>, which ends a text. */
BAUTA_API bauta_status bauta_tokenizer_characters(bauta_tokenizer **out,
                                                  const char *text,
                                                  size_t length,
                                                  bauta_error *err);
BAUTA_API void bauta_tokenizer_free(bauta_tokenizer *tokenizer);

/* Write the files that the tokenizer was loaded from into an existing folder;
 * for a tokenizer made by this library, tokenizer.json and
 * tokenizer_config.json. */
BAUTA_API bauta_status bauta_tokenizer_save(const bauta_tokenizer *tokenizer,
                                            const char *folder,
                                            bauta_error *err);

/* 1 + the largest id. */
BAUTA_API size_t bauta_tokenizer_vocab_size(const bauta_tokenizer *tokenizer);
/* A token as it is written in the vocabulary, NUL-terminated and valid as long
 * as the tokenizer. NULL if no token has this id. *length may be NULL. */
BAUTA_API const char *bauta_tokenizer_piece(const bauta_tokenizer *tokenizer,
                                            uint32_t id, size_t *length);
/* The id of such a piece, or BAUTA_NO_TOKEN. */
BAUTA_API uint32_t bauta_tokenizer_find(const bauta_tokenizer *tokenizer,
                                        const char *piece, size_t length);
#define BAUTA_NO_TOKEN UINT32_MAX

/* Special tokens; not every tokenizer has each. */
typedef enum bauta_special_token {
    BAUTA_TOKEN_BOS,  /* begins a text */
    BAUTA_TOKEN_EOS,  /* ends a text */
    BAUTA_TOKEN_UNK,  /* replaces text that the vocabulary lacks */
    BAUTA_TOKEN_PAD,  /* padding */
    BAUTA_TOKEN_CLS,  /* begins a text for BERT */
    BAUTA_TOKEN_SEP,  /* ends a text for BERT */
    BAUTA_TOKEN_MASK, /* replaces a masked token */
    BAUTA_TOKEN_COUNT
} bauta_special_token;

/* The id of a special token, or BAUTA_NO_TOKEN. */
BAUTA_API uint32_t bauta_tokenizer_special_token(
    const bauta_tokenizer *tokenizer, bauta_special_token name);
/* Whether decoding skips this token by default. */
BAUTA_API bool bauta_tokenizer_is_special(const bauta_tokenizer *tokenizer,
                                          uint32_t id);

typedef struct bauta_encode_options {
    size_t size;
    bool no_special_tokens;    /* add no special tokens around the text */
    bool split_special_tokens; /* "</s>" in the text is four characters, not the
                                  special token */
    bool target;               /* encode as the target of a translation */
} bauta_encode_options;
#define BAUTA_ENCODE_OPTIONS_INIT \
    BAUTA_INIT(bauta_encode_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_encode_options, BAUTA_NO_DEFAULTS)

/* The tokens of a text. Token i covers bytes starts[i] to ends[i] - 1 of the
 * text; both are 0 for a special token that was added. */
typedef struct bauta_tokens {
    size_t count;
    uint32_t *ids;
    uint32_t *types; /* 0, or the type of the second text of a pair */
    size_t *starts, *ends;
} bauta_tokens;

/* Encode a text; `options` may be NULL. Release the tokens in any case; on
 * failure there are none. */
BAUTA_API bauta_status
bauta_tokenizer_encode(const bauta_tokenizer *tokenizer, const char *text,
                       size_t length, const bauta_encode_options *options,
                       bauta_tokens *tokens, bauta_error *err);
/* Encode a pair of texts for BERT. Offsets count from the beginning of the text
 * that the token belongs to. */
BAUTA_API bauta_status bauta_tokenizer_encode_pair(
    const bauta_tokenizer *tokenizer, const char *first, size_t first_length,
    const char *second, size_t second_length,
    const bauta_encode_options *options, bauta_tokens *tokens,
    bauta_error *err);
BAUTA_API void bauta_tokens_release(bauta_tokens *tokens);

/* The characters of a text that the vocabulary lacks: `count` of them, the
 * first of which is bytes `start` to `end` - 1. */
typedef struct bauta_unknown {
    size_t count;
    size_t start, end;
} bauta_unknown;
/* Characters that became the unknown token or, with a tokenizer that has none,
 * no token at all. Text removed by a normalizer is not counted. */
BAUTA_API bauta_unknown bauta_tokens_unknown(const bauta_tokenizer *tokenizer,
                                             const bauta_tokens *tokens,
                                             const char *text, size_t length);

typedef struct bauta_decode_options {
    size_t size;
    bool keep_special_tokens; /* keep special tokens, as written in the
                                 vocabulary */
    bool source;              /* decode as the source of a translation */
} bauta_decode_options;
#define BAUTA_DECODE_OPTIONS_INIT \
    BAUTA_INIT(bauta_decode_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_decode_options, BAUTA_NO_DEFAULTS)

/* Decode tokens; `options` may be NULL. The text is NUL-terminated, may contain
 * NUL, and is released with bauta_text_free(). It is UTF-8: invalid bytes
 * become U+FFFD. An id without a token is an error. */
BAUTA_API bauta_status
bauta_tokenizer_decode(const bauta_tokenizer *tokenizer, const uint32_t *ids,
                       size_t count, const bauta_decode_options *options,
                       char **text, size_t *length, bauta_error *err);
BAUTA_API void bauta_text_free(char *text);

/* A detokenizer decodes token by token, for streaming. Text is returned as soon
 * as it cannot change: half a character waits for the rest. The concatenated
 * results equal bauta_tokenizer_decode(). The tokenizer must outlive it. */
typedef struct bauta_detokenizer bauta_detokenizer;
BAUTA_API bauta_status bauta_detokenizer_create(
    bauta_detokenizer **out, const bauta_tokenizer *tokenizer,
    const bauta_decode_options *options, bauta_error *err);
BAUTA_API void bauta_detokenizer_free(bauta_detokenizer *detokenizer);
/* *text is NUL-terminated and valid until the next call. */
BAUTA_API bauta_status bauta_detokenizer_push(bauta_detokenizer *detokenizer,
                                              uint32_t id, const char **text,
                                              size_t *length, bauta_error *err);
/* Return the pending text and reset the detokenizer for a new text. */
BAUTA_API bauta_status bauta_detokenizer_finish(bauta_detokenizer *detokenizer,
                                                const char **text,
                                                size_t *length,
                                                bauta_error *err);

/* ---- Text files -------------------------------------------------------- */

/* Everything that reads text from files, in the library and in the program,
 * follows these rules:
 *
 *   - Text is UTF-8. Invalid bytes and NUL are an error that names file, line
 *     and byte.
 *   - A line ends with LF or CR LF; the last one may lack it.
 *   - gzip is recognized by its first bytes and decompressed while reading, if
 *     the library was built with zlib. Other compressed files and UTF-16 are
 *     rejected by name.
 *   - "-" is standard input; "./-" is a file of that name. Pipes work like
 *     files.
 *   - Files are streamed and may be larger than memory. A line that must be
 *     held as a whole has at most 64 MiB.
 *
 * Read either line by line or in parts, not both. */
typedef struct bauta_text_file bauta_text_file;
BAUTA_API bauta_status bauta_text_file_open(bauta_text_file **out,
                                            const char *path, bauta_error *err);
BAUTA_API void bauta_text_file_free(bauta_text_file *file);
/* The next line without its end, NUL-terminated and valid until the next call;
 * *text is NULL after the last one. After an error in a line the next call
 * continues with the following line. *length may be NULL. */
BAUTA_API bauta_status bauta_text_file_line(bauta_text_file *file,
                                            const char **text, size_t *length,
                                            bauta_error *err);
/* The next part of the text, of any size, split between characters and not
 * NUL-terminated; *part is NULL at the end. Valid until the next call. */
BAUTA_API bauta_status bauta_text_file_part(bauta_text_file *file,
                                            const char **part, size_t *length,
                                            bauta_error *err);
/* The number of lines read so far. */
BAUTA_API size_t bauta_text_file_lines(const bauta_text_file *file);
/* Whether a line can be read without waiting for a pipe or a terminal. */
BAUTA_API bool bauta_text_file_ready(const bauta_text_file *file);

/* How files of text become documents; used here and by bauta/train.h. */
typedef struct bauta_corpus_options {
    size_t size;
    bool lines;          /* each line is a document, empty lines are skipped;
                            else each file is one */
    bool skip_invalid;   /* skip and count invalid lines or files instead of
                            failing */
    size_t memory_bytes; /* tokens kept in memory, and as much for each list of
                            documents or sequences; 0: 32 MiB */
} bauta_corpus_options;
#define BAUTA_CORPUS_OPTIONS_INIT \
    BAUTA_INIT(bauta_corpus_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_corpus_options, BAUTA_NO_DEFAULTS)

/* ---- Training a tokenizer ---------------------------------------------- */

typedef enum bauta_tokenizer_kind {
    BAUTA_TOKENIZER_BPE,       /* byte-level BPE, as GPT-2 */
    BAUTA_TOKENIZER_WORDPIECE, /* as BERT */
    BAUTA_TOKENIZER_UNIGRAM,   /* as SentencePiece */
    BAUTA_TOKENIZER_CHARACTERS /* as bauta_tokenizer_characters(); the other
                                  options are ignored */
} bauta_tokenizer_kind;

typedef struct bauta_tokenizer_trainer_options {
    size_t size;
    bauta_tokenizer_kind kind;
    size_t vocab_size;                 /* 8000 */
    const char *const *special_tokens; /* ids 0, 1, ...; NULL: <|endoftext|> for
                                          BPE; [PAD], [UNK], [CLS], [SEP],
                                          [MASK] for WordPiece; <pad>, <unk>,
                                          <s>, </s> for Unigram */
    size_t special_token_count;
    size_t min_frequency; /* of a pair; 2 */
    bool lowercase;       /* WordPiece and Unigram: lowercase first */
    bool prefer_greatest; /* break ties between pairs by the greatest bytes
                             instead of the oldest pair */
    void (*progress)(void *user, size_t done, size_t all); /* or NULL */
    void *user;
} bauta_tokenizer_trainer_options;
#define BAUTA_TOKENIZER_TRAINER_OPTIONS_DEFAULTS(X) \
    X(vocab_size, 8000) X(min_frequency, 2)
#define BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT    \
    BAUTA_INIT(bauta_tokenizer_trainer_options, \
               BAUTA_TOKENIZER_TRAINER_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_tokenizer_trainer_options,
            BAUTA_TOKENIZER_TRAINER_OPTIONS_DEFAULTS)

/* Train a tokenizer on texts. Special tokens in a text separate it and are not
 * learned from. The result is a function of texts and options; with too little
 * text the vocabulary is smaller than vocab_size. */
BAUTA_API bauta_status bauta_tokenizer_train(
    bauta_tokenizer **out, const bauta_tokenizer_trainer_options *options,
    const char *const *texts, const size_t *lengths, size_t count,
    bauta_error *err);

/* The same for texts that arrive one after another. Only the distinct words are
 * kept, so memory grows with their number. The options' arrays must outlive the
 * trainer. */
typedef struct bauta_tokenizer_trainer bauta_tokenizer_trainer;
BAUTA_API bauta_status bauta_tokenizer_trainer_create(
    bauta_tokenizer_trainer **out,
    const bauta_tokenizer_trainer_options *options, bauta_error *err);
BAUTA_API void bauta_tokenizer_trainer_free(bauta_tokenizer_trainer *trainer);
BAUTA_API bauta_status
bauta_tokenizer_trainer_add(bauta_tokenizer_trainer *trainer, const char *text,
                            size_t length, bauta_error *err);
/* Text files and pairs of them, which may be larger than memory: with
 * options.lines each line is a text, else each file; of pairs, each line of
 * either side. `options` may be NULL. */
BAUTA_API bauta_status bauta_tokenizer_trainer_add_files(
    bauta_tokenizer_trainer *trainer, const char *const *files, size_t count,
    const bauta_corpus_options *options, bauta_error *err);
BAUTA_API bauta_status bauta_tokenizer_trainer_add_pairs(
    bauta_tokenizer_trainer *trainer, const char *source, const char *target,
    const bauta_corpus_options *options, bauta_error *err);
/* How much was added. */
BAUTA_API uint64_t
bauta_tokenizer_trainer_bytes(const bauta_tokenizer_trainer *trainer);
BAUTA_API size_t
bauta_tokenizer_trainer_texts(const bauta_tokenizer_trainer *trainer);
/* Train a tokenizer; the trainer is unchanged. */
BAUTA_API bauta_status
bauta_tokenizer_trainer_train(const bauta_tokenizer_trainer *trainer,
                              bauta_tokenizer **out, bauta_error *err);

/* ---- Chat templates ---------------------------------------------------- */

/* A chat template turns the messages of a chat into the text of a prompt. It is
 * written in the language of Jinja 2 and comes with the model; the result is
 * that of transformers' apply_chat_template(). Templates may come from
 * anywhere: they can read nothing but their variables, and the time and memory
 * of a rendering are limited (SECURITY.md). docs/chat-templates.md lists what
 * they may use. A template is immutable: threads may share it. */
typedef struct bauta_chat_template bauta_chat_template;

/* Parse a template: the text of a chat_template.jinja. BAUTA_ERR_FORMAT and the
 * line for a syntax error; BAUTA_ERR_UNSUPPORTED for tags that chat templates
 * do not use, such as include. */
BAUTA_API bauta_status bauta_chat_template_create(bauta_chat_template **out,
                                                  const char *text, size_t size,
                                                  bauta_error *err);
/* The template of a model folder: chat_template.jinja, or else "chat_template"
 * of tokenizer_config.json. A model may have several, of which `name` chooses
 * one; NULL is "default". BAUTA_ERR_UNSUPPORTED if the folder has none of this
 * name. The special tokens of the folder become variables: bos_token, eos_token
 * and so on. */
BAUTA_API bauta_status bauta_chat_template_load(bauta_chat_template **out,
                                                const char *folder,
                                                const char *name,
                                                bauta_error *err);
BAUTA_API void bauta_chat_template_free(bauta_chat_template *chat_template);

/* Render a template. `variables` is a JSON object of `size` bytes: "messages",
 * which are objects with "role" and "content"; "add_generation_prompt"; and
 * what else the template uses, such as "tools". "strftime_now" is the time that
 * the function of this name takes for now, as "2026-11-16T12:34:56"; without it
 * that is the local time. The text is NUL-terminated and is released with
 * bauta_text_free(); `length` may be NULL. BAUTA_ERR_ARGUMENT if the template
 * refuses the messages, with its reason, or fails. */
BAUTA_API bauta_status bauta_chat_template_render(
    const bauta_chat_template *chat_template, const char *variables,
    size_t size, char **text, size_t *length, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif

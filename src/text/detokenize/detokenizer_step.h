/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_step.h - the steps of a detokenizer.
 *
 * A step gets each token in one or more chunks, with `end` set for the last
 * one, and a call at the end of the tokens. It emits its output to the next
 * step. Text that a step holds back is in its state, one for each stream:
 *
 *     step           waits for                        and holds
 *     JOIN           -                                -
 *     LITERAL        the rest of a partial match      a count
 *     PREFIX         the same, at a token's start     a count
 *     STRIP          another character                a count
 *     FUSE           -                                -
 *     SUFFIX         another token                    a token's end
 *     REGEX          the token's end                  the token
 *     BYTELEVEL      the end of token and character   the token
 *     BYTE_FALLBACK  the end of a character           a few bytes
 *     DUMMY_PREFIX   -                                -
 *
 * Chunks end at the end of a character, as pieces are whole characters. If they
 * are not, a character is not recognized, but nothing worse happens. */
#ifndef BT_DETOKENIZER_STEP_H
#define BT_DETOKENIZER_STEP_H

#include "text/detokenize/detokenizer.h"
#include "text/regex.h"

typedef enum bt_detokenizer_step_kind {
    BT_DETOKENIZE_JOIN,    /* a space between tokens */
    BT_DETOKENIZE_LITERAL, /* replace a string */
    BT_DETOKENIZE_PREFIX, /* remove it from a token's start; else add a space */
    BT_DETOKENIZE_STRIP,  /* remove characters at a token's ends */
    BT_DETOKENIZE_FUSE,   /* join all tokens */
    BT_DETOKENIZE_SUFFIX, /* marks become spaces; none in the last token */
    BT_DETOKENIZE_REGEX,  /* replace matches of a regular expression */
    BT_DETOKENIZE_BYTELEVEL, /* from the byte-level alphabet to text, one token
                              */
    BT_DETOKENIZE_BYTE_FALLBACK, /* <0xXX> pieces become text */
    BT_DETOKENIZE_DUMMY_PREFIX,  /* SentencePiece: remove the first U+2581 */
    BT_DETOKENIZE_KINDS
} bt_detokenizer_step_kind;

/* Marks a space, or nothing in the last token, for SUFFIX: not a byte of
 * UTF-8. */
#define BT_DETOKENIZE_MARK "\xFF"

typedef struct bt_detokenizer_step {
    bt_detokenizer_step_kind kind;
    char *needle; /* the string to find; STRIP: the character */
    size_t needle_size;
    uint16_t *borders; /* LITERAL: (needle_size + 1) the failure table of Knuth,
                          Morris and Pratt */
    char *content;     /* the replacement */
    size_t content_size;
    bt_regex *regex;    /* REGEX; NULL: the empty string */
    size_t start, stop; /* STRIP: the most characters to remove */
    bool not_first;     /* LITERAL: nothing replaces it in the first token */
    bool match_empty;   /* REGEX: also in empty tokens */
    bool all_leading;   /* DUMMY_PREFIX: of all tokens until there is text */
} bt_detokenizer_step;

enum { BT_DETOKENIZE_STRING_MAX = UINT16_MAX };

struct bt_detokenizer_chain {
    bt_detokenizer_step *steps;
    size_t count, room;
};

typedef struct bt_detokenizer_step_state {
    char *held; /* bytes that are held back */
    size_t held_size, held_room;
    char piece[8];   /* BYTE_FALLBACK: the start of a token */
    size_t matched;  /* LITERAL, PREFIX: bytes of the needle that are held;
                        STRIP: characters; BYTE_FALLBACK: bytes in `piece` */
    size_t stripped; /* STRIP: characters removed from the start */
    bool inside;     /* past the start of a token */
    bool later;      /* not the first token; BYTE_FALLBACK: a run is open */
    bt_regex_matcher *matcher;
} bt_detokenizer_step_state;

struct bt_detokenizer_stream {
    const bt_detokenizer_chain *chain;
    bt_detokenizer_step_state *states; /* (steps) */
    char *text;                        /* the decoded text, NUL-terminated */
    size_t size, room;
    bool taken;       /* the next push starts with an empty text */
    bauta_error *err; /* of the current call */
};

/* Pass text on to the step after number `at`, or to the text after the last. */
bauta_status bt_detokenizer_emit(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size, bool end);
/* Hold text back in the state of a step. */
bauta_status bt_detokenizer_hold(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size);

typedef bauta_status bt_detokenizer_feed_fn(bt_detokenizer_stream *stream,
                                            size_t at, const char *bytes,
                                            size_t size, bool end);
typedef bauta_status bt_detokenizer_finish_fn(bt_detokenizer_stream *stream,
                                              size_t at);

bt_detokenizer_feed_fn bt_detokenize_join, bt_detokenize_literal,
    bt_detokenize_prefix, bt_detokenize_strip, bt_detokenize_fuse,
    bt_detokenize_suffix, bt_detokenize_regex, bt_detokenize_bytelevel,
    bt_detokenize_byte_fallback, bt_detokenize_dummy_prefix;
bt_detokenizer_finish_fn bt_detokenize_fuse_finish, bt_detokenize_suffix_finish,
    bt_detokenize_bytelevel_finish, bt_detokenize_byte_fallback_finish;

#endif

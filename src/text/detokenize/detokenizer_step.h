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

typedef enum bt_filter_kind {
    BT_STEP_JOIN,      /* a space between tokens */
    BT_STEP_LITERAL,   /* replace a string */
    BT_STEP_PREFIX,    /* remove it from a token's start; else add a space */
    BT_STEP_STRIP,     /* remove characters at a token's ends */
    BT_STEP_FUSE,      /* join all tokens */
    BT_STEP_LAST,      /* marks become spaces; none in the last token */
    BT_STEP_WHOLE,     /* replace matches of a regular expression */
    BT_STEP_BYTELEVEL, /* from the byte-level alphabet to text, one token */
    BT_STEP_BYTES,     /* <0xXX> pieces become text */
    BT_STEP_OPENING,   /* SentencePiece: remove the first U+2581 */
    BT_STEP_KINDS
} bt_filter_kind;

/* Marks a space, or nothing in the last token, for SUFFIX: not a byte of
 * UTF-8. */
#define BT_STEP_MARK "\xFF"

typedef struct bt_filter {
    bt_filter_kind kind;
    char *needle; /* the string to find; STRIP: the character */
    size_t needle_size;
    uint16_t *borders; /* LITERAL: (needle_size + 1) the failure table of Knuth,
                          Morris and Pratt */
    char *content;     /* the replacement */
    size_t content_size;
    bt_pattern *pattern; /* REGEX; NULL: the empty string */
    size_t start, stop;  /* STRIP: the most characters to remove */
    bool not_first;      /* LITERAL: nothing replaces it in the first token */
    bool empty_too;      /* REGEX: also in empty tokens */
    bool all;            /* DUMMY_PREFIX: of all tokens until there is text */
} bt_filter;

enum { BT_STEP_STRING_MAX = UINT16_MAX };

struct bt_decoding {
    bt_filter *steps;
    size_t count, room;
};

typedef struct bt_filter_state {
    char *held; /* bytes that are held back */
    size_t held_size, held_room;
    char piece[8];  /* BYTE_FALLBACK: the start of a token */
    size_t matched; /* LITERAL, PREFIX: bytes of the needle that are held;
                       STRIP: characters; BYTE_FALLBACK: bytes in `piece` */
    size_t cut;     /* STRIP: characters removed from the start */
    bool inside;    /* past the start of a token */
    bool later;     /* not the first token; BYTE_FALLBACK: a run is open */
    bt_matcher *matcher;
} bt_filter_state;

struct bt_stream {
    const bt_decoding *decoding;
    bt_filter_state *states; /* (steps) */
    char *text;              /* the decoded text, NUL-terminated */
    size_t size, room;
    bool taken;       /* the next push starts with an empty text */
    bauta_error *err; /* of the current call */
};

/* Pass text on to the step after number `at`, or to the text after the last. */
bauta_status bt_filter_next(bt_stream *stream, size_t at, const char *bytes,
                            size_t size, bool end);
/* Hold text back in the state of a step. */
bauta_status bt_filter_hold(bt_stream *stream, size_t at, const char *bytes,
                            size_t size);

typedef bauta_status bt_filter_feed_fn(bt_stream *stream, size_t at,
                                       const char *bytes, size_t size,
                                       bool end);
typedef bauta_status bt_filter_finish_fn(bt_stream *stream, size_t at);

bt_filter_feed_fn bt_filter_join, bt_filter_literal, bt_filter_prefix,
    bt_filter_strip, bt_filter_fuse, bt_filter_last, bt_filter_whole,
    bt_filter_bytelevel, bt_filter_bytes, bt_filter_opening;
bt_filter_finish_fn bt_filter_fuse_finish, bt_filter_last_finish,
    bt_filter_bytelevel_finish, bt_filter_bytes_finish;

#endif

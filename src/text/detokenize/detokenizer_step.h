/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_step.h - the filters that a decoder is a chain of.
 *
 * A step is fed tokens, each in one chunk or several, of which the last says
 * that the token ends there; and once, that no more tokens come. What it makes
 * of them it feeds to the next step. Whatever a step keeps until later is in
 * its state, of which each stream has its own:
 *
 *     step       waits for                        and keeps
 *     JOIN       -                                -
 *     LITERAL    the rest of what may be a match  a count
 *     PREFIX     the same, at a token's start     a count
 *     STRIP      what is not to be cut            a count
 *     FUSE       -                                -
 *     LAST       another token                    a token's end
 *     WHOLE      the token's end                  the token
 *     BYTELEVEL  the token's end, half characters the token
 *     BYTES      half characters                  a few bytes
 *     OPENING    -                                -
 *
 * Chunks end where characters do, as pieces are whole characters. Where they
 * are not, nothing worse happens than that a character is not recognised. */
#ifndef BT_DETOKENIZER_STEP_H
#define BT_DETOKENIZER_STEP_H

#include "text/detokenize/detokenizer.h"
#include "text/regex.h"

typedef enum bt_filter_kind {
    BT_STEP_JOIN,      /* a space between tokens */
    BT_STEP_LITERAL,   /* a string is replaced */
    BT_STEP_PREFIX,    /* goes where a token begins with it, else a space */
    BT_STEP_STRIP,     /* characters are cut from a token's ends */
    BT_STEP_FUSE,      /* all tokens become one */
    BT_STEP_LAST,      /* marks become spaces, but go in the last token */
    BT_STEP_WHOLE,     /* what a pattern matches is replaced */
    BT_STEP_BYTELEVEL, /* the alphabet of bytes becomes text, all one token */
    BT_STEP_BYTES,     /* <0xXX> becomes text */
    BT_STEP_OPENING,   /* SentencePiece: the first U+2581 goes */
    BT_STEP_KINDS
} bt_filter_kind;

/* What stands, on its way to LAST, for a space or nothing: no byte of UTF-8. */
#define BT_STEP_MARK "\xFF"

typedef struct bt_filter {
    bt_filter_kind kind;
    char *needle; /* what is looked for; STRIP: the character */
    size_t needle_size;
    uint16_t *borders; /* LITERAL: (needle_size + 1) of each beginning of the
                          needle, how much of its end is a beginning, too */
    char *content;     /* what comes in its place */
    size_t content_size;
    bt_pattern *pattern; /* WHOLE; NULL: the empty string */
    size_t start, stop;  /* STRIP: how many characters at most */
    bool not_first;      /* LITERAL: in the first token nothing comes */
    bool empty_too;      /* WHOLE: also in empty tokens */
    bool all;            /* OPENING: of each token until there is text */
} bt_filter;

enum { BT_STEP_STRING_MAX = UINT16_MAX };

struct bt_decoding {
    bt_filter *steps;
    size_t count, room;
};

typedef struct bt_filter_state {
    char *held; /* bytes that wait */
    size_t held_size, held_room;
    char piece[8];  /* BYTES: the beginning of a token */
    size_t matched; /* LITERAL, PREFIX: bytes of the needle that wait; STRIP:
                       characters; BYTES: bytes in `piece` */
    size_t cut;     /* STRIP: characters cut from the start */
    bool inside;    /* a token has begun, and its start has been dealt with */
    bool later;     /* this is not the first token; BYTES: a run is open */
    bt_matcher *matcher;
} bt_filter_state;

struct bt_stream {
    const bt_decoding *decoding;
    bt_filter_state *states; /* (steps) */
    char *text;              /* what has been decoded, with a NUL behind */
    size_t size, room;
    bool taken;       /* it has been: the next push begins anew */
    bauta_error *err; /* of the call that is under way */
};

/* Feed the step behind number `at`; behind the last one is the text. */
bauta_status bt_filter_next(bt_stream *stream, size_t at, const char *bytes,
                            size_t size, bool end);
/* Append to what a step holds. */
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

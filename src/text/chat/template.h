/* SPDX-License-Identifier: Apache-2.0 */
/* template.h - the syntax tree of a chat template, and the limits.
 *
 * A chat template turns messages into the text of a prompt. Models ship it in
 * the language of Jinja 2. Templates come from anywhere, so each limit here
 * bounds what a hostile one can take; SECURITY.md has the table. */
#ifndef BT_CHAT_TEMPLATE_H
#define BT_CHAT_TEMPLATE_H

#include "bauta.h"
#include "text/chat/pool.h"

enum {
    BT_CHAT_TEXT_MAX = 1 << 20,       /* bytes of a template */
    BT_CHAT_NODES_MAX = 1 << 17,      /* nodes of its syntax tree */
    BT_CHAT_TREE_MAX = 32 << 20,      /* bytes of that tree */
    BT_CHAT_NESTING_MAX = 100,        /* blocks, brackets, operators */
    BT_CHAT_VARIABLES_MAX = 64 << 20, /* bytes of JSON */
    BT_CHAT_DEPTH_MAX = 1000,         /* nested evaluations or values */
    BT_CHAT_MEMORY_MAX = 256 << 20,   /* bytes of the values of a rendering */
    BT_CHAT_OUTPUT_MAX = 64 << 20,    /* bytes of text */
    BT_CHAT_WORK_MAX = 1 << 29,       /* bytes and items that are touched */
    BT_CHAT_RANGE_MAX = 100000,       /* items of range(), as in Jinja */
    BT_CHAT_NAME_MAX = 256,           /* bytes of a name */
    BT_CHAT_ARGUMENTS_MAX = 64,       /* arguments of a call */
};

/* Immutable text. Names, literals and values share this type. */
typedef struct bt_chat_string {
    const char *bytes;
    size_t size;
    struct bt_chat_growth *growth; /* NULL, or room to append: value.h */
} bt_chat_string;

typedef enum bt_chat_node_kind {
    /* Statements; `next` is the following one. */
    BT_CHAT_TEXT,         /* string */
    BT_CHAT_OUTPUT,       /* {{ a }} */
    BT_CHAT_IF,           /* if a: b, else c */
    BT_CHAT_FOR,          /* for a in b: c, else d */
    BT_CHAT_SET,          /* set a = b */
    BT_CHAT_SET_BLOCK,    /* set a: c, through the filters b */
    BT_CHAT_MACRO,        /* macro string(a): c */
    BT_CHAT_CALL_BLOCK,   /* call(a) b: c */
    BT_CHAT_FILTER_BLOCK, /* filter b: c */
    BT_CHAT_WITH,         /* with a (SET nodes): c; without a: generation */
    BT_CHAT_BREAK,
    BT_CHAT_CONTINUE,
    /* Expressions. */
    BT_CHAT_NAME,      /* string */
    BT_CHAT_LITERAL,   /* string */
    BT_CHAT_INTEGER,   /* integer */
    BT_CHAT_REAL,      /* real */
    BT_CHAT_TRUE,      /* and the other constants */
    BT_CHAT_FALSE,     /* */
    BT_CHAT_NONE,      /* */
    BT_CHAT_LIST,      /* [a, ...] */
    BT_CHAT_TUPLE,     /* (a, ...) */
    BT_CHAT_DICT,      /* {a: b, ...}, a list of PAIR nodes */
    BT_CHAT_PAIR,      /* a: b */
    BT_CHAT_ATTRIBUTE, /* a.string */
    BT_CHAT_ITEM,      /* a[b] */
    BT_CHAT_SLICE,     /* a[b:c:d] */
    BT_CHAT_CALL,      /* a(b), a list of ARGUMENT nodes */
    BT_CHAT_ARGUMENT,  /* a, string=a, *a, **a */
    BT_CHAT_FILTER,    /* a|string(b); without a, the text of the block */
    BT_CHAT_TEST,      /* a is string(b) */
    BT_CHAT_NOT,       /* not a */
    BT_CHAT_AND,       /* a and b */
    BT_CHAT_OR,        /* a or b */
    BT_CHAT_CONDITION, /* a if b else c */
    BT_CHAT_UNARY,     /* operation a */
    BT_CHAT_BINARY,    /* a operation b */
    BT_CHAT_COMPARE,   /* a operation b operation ..., b a list of COMPARED */
    BT_CHAT_COMPARED,  /* operation a */
    BT_CHAT_SELECTED,  /* items a of a loop, if b */
} bt_chat_node_kind;

typedef enum bt_chat_operation {
    BT_CHAT_NO_OPERATION,
    BT_CHAT_ADD,
    BT_CHAT_SUBTRACT,
    BT_CHAT_MULTIPLY,
    BT_CHAT_DIVIDE,
    BT_CHAT_FLOOR_DIVIDE,
    BT_CHAT_MODULO,
    BT_CHAT_POWER,
    BT_CHAT_CONCATENATE,
    BT_CHAT_EQUAL,
    BT_CHAT_NOT_EQUAL,
    BT_CHAT_LESS,
    BT_CHAT_LESS_EQUAL,
    BT_CHAT_GREATER,
    BT_CHAT_GREATER_EQUAL,
    BT_CHAT_IN,
    BT_CHAT_NOT_IN,
    BT_CHAT_SPREAD_LIST, /* *a */
    BT_CHAT_SPREAD_DICT, /* **a */
} bt_chat_operation;

/* Names that the body of a macro mentions. */
enum {
    BT_CHAT_MENTIONS_VARARGS = 1,
    BT_CHAT_MENTIONS_KWARGS = 2,
    BT_CHAT_MENTIONS_CALLER = 4,
};

typedef struct bt_chat_node {
    uint8_t kind;      /* bt_chat_node_kind */
    uint8_t operation; /* bt_chat_operation; of a macro, what it mentions */
    uint32_t line;
    struct bt_chat_node *a, *b, *c, *d;
    struct bt_chat_node *next; /* in a list of nodes */
    union {
        const bt_chat_string *string;
        int64_t integer;
        double real;
    };
} bt_chat_node;

/* Parse a template into `pool`. `text` must outlive the tree, is UTF-8 and has
 * newlines as LF. A syntax error is BAUTA_ERR_FORMAT and names the line. */
bauta_status bt_chat_parse(bt_chat_node **out, bt_chat_pool *pool,
                           const char *text, size_t size, bauta_error *err);

#endif

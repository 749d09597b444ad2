/* SPDX-License-Identifier: Apache-2.0 */
/* value.h - the values of a chat template, which behave as Python's do.
 *
 * Everything is immutable except a namespace() and a loop, and lives in the
 * pool of its rendering. */
#ifndef BT_CHAT_VALUE_H
#define BT_CHAT_VALUE_H

#include "formats/json.h"
#include "text/chat/template.h"

typedef enum bt_chat_kind {
    BT_CHAT_KIND_ABSENT, /* an argument that was not given; never a value */
    BT_CHAT_KIND_UNDEFINED,
    BT_CHAT_KIND_NONE,
    BT_CHAT_KIND_BOOLEAN,
    BT_CHAT_KIND_INTEGER,
    BT_CHAT_KIND_REAL,
    BT_CHAT_KIND_STRING,
    BT_CHAT_KIND_LIST,
    BT_CHAT_KIND_DICT,
    BT_CHAT_KIND_NAMESPACE, /* also a dict */
    BT_CHAT_KIND_MACRO,
    BT_CHAT_KIND_FUNCTION,
    BT_CHAT_KIND_METHOD,
    BT_CHAT_KIND_LOOP,
} bt_chat_kind;

/* What kind of list; Python tells them apart. */
typedef enum bt_chat_list_form {
    BT_CHAT_FORM_LIST,
    BT_CHAT_FORM_TUPLE,
    BT_CHAT_FORM_RANGE,
    BT_CHAT_FORM_KEYS,
    BT_CHAT_FORM_VALUES,
    BT_CHAT_FORM_ITEMS,
    BT_CHAT_FORM_GENERATOR, /* of a filter: it can be read once */
} bt_chat_list_form;

/* Why something is undefined, for the message. */
typedef enum bt_chat_undefined_form {
    BT_CHAT_FORM_NAME,      /* no variable has this name */
    BT_CHAT_FORM_ATTRIBUTE, /* a value of kind `owner` has no such member */
    BT_CHAT_FORM_UNSAFE,    /* the sandbox hides this member */
    BT_CHAT_FORM_PARAMETER, /* a macro's parameter was not given */
} bt_chat_undefined_form;

typedef struct bt_chat_value {
    uint8_t kind;  /* bt_chat_kind */
    uint8_t form;  /* of a list, an undefined value or a function */
    uint8_t owner; /* of an undefined value: the bt_chat_kind */
    bool markup;   /* of a string: "safe", so that + escapes the other side */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const bt_chat_string *string; /* also the name of what is undefined */
        struct bt_chat_list *list;
        struct bt_chat_dict *dict;
        const struct bt_chat_macro *macro;
        const struct bt_chat_method *method;
        struct bt_chat_loop *loop;
    };
} bt_chat_value;

typedef struct bt_chat_list {
    bt_chat_value *items;
    size_t count;
    bool consumed;         /* a generator that was read */
    const int64_t *bounds; /* of range(): start, stop and step, or NULL */
} bt_chat_list;

typedef struct bt_chat_entry {
    bt_chat_value key, value;
} bt_chat_entry;

/* In the order of insertion. Lookups are linear, since dicts of chats are
 * small; they are counted as work. */
typedef struct bt_chat_dict {
    bt_chat_entry *entries;
    size_t count, capacity;
} bt_chat_dict;

typedef struct bt_chat_method {
    bt_chat_value self;
    unsigned id; /* in methods.c */
} bt_chat_method;

typedef struct bt_chat_scope bt_chat_scope;
typedef struct bt_chat_macro {
    const bt_chat_node *node; /* MACRO or CALL_BLOCK */
    bt_chat_scope *scope;     /* in which it was defined */
} bt_chat_macro;

typedef struct bt_chat_render bt_chat_render;

/* ---- Simple values ------------------------------------------------------- */

static inline bt_chat_value bt_chat_none(void)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_NONE };
}

static inline bt_chat_value bt_chat_boolean(bool is)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_BOOLEAN, .boolean = is };
}

static inline bt_chat_value bt_chat_integer(int64_t number)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_INTEGER, .integer = number };
}

static inline bt_chat_value bt_chat_real(double number)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_REAL, .real = number };
}

static inline bt_chat_value bt_chat_text(const bt_chat_string *string)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_STRING, .string = string };
}

static inline bt_chat_value bt_chat_undefined(bt_chat_undefined_form form,
                                              uint8_t owner,
                                              const bt_chat_string *name)
{
    return (bt_chat_value){ .kind = BT_CHAT_KIND_UNDEFINED,
                            .form = (uint8_t)form,
                            .owner = owner,
                            .string = name };
}

/* An integer or a boolean, which counts as 0 or 1. */
static inline bool bt_chat_as_integer(const bt_chat_value *v, int64_t *out)
{
    if (v->kind == BT_CHAT_KIND_BOOLEAN)
        *out = v->boolean;
    else if (v->kind == BT_CHAT_KIND_INTEGER)
        *out = v->integer;
    return v->kind == BT_CHAT_KIND_BOOLEAN || v->kind == BT_CHAT_KIND_INTEGER;
}

static inline bool bt_chat_as_real(const bt_chat_value *v, double *out)
{
    int64_t integer = 0;
    bool whole = bt_chat_as_integer(v, &integer);
    *out = whole ? (double)integer : v->kind == BT_CHAT_KIND_REAL ? v->real : 0;
    return whole || v->kind == BT_CHAT_KIND_REAL;
}

static inline bool bt_chat_is_string(const bt_chat_value *v)
{
    return v->kind == BT_CHAT_KIND_STRING;
}

bool bt_chat_string_is(const bt_chat_string *string, const char *text);
bool bt_chat_string_equal(const bt_chat_string *a, const bt_chat_string *b);
/* Where `what` begins in a string, from byte `from` on; SIZE_MAX: nowhere. */
size_t bt_chat_string_find(const bt_chat_string *in, size_t from,
                           const bt_chat_string *what);
bool bt_chat_truth(const bt_chat_value *v);
/* Python's name of the type: "str", "dict", ... */
const char *bt_chat_type_name(const bt_chat_value *v);
/* Characters of a string. */
size_t bt_chat_characters(const bt_chat_string *string);

/* ---- Values in the pool; they fail when it is full ----------------------- */

bauta_status bt_chat_string_make(bt_chat_render *r, bt_chat_value *out,
                                 const char *bytes, size_t size);
/* Bytes that live as long as the rendering. */
bauta_status bt_chat_string_refer(bt_chat_render *r, bt_chat_value *out,
                                  const char *bytes, size_t size);
/* A part of a string; it stays "safe". */
bauta_status bt_chat_string_part(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *of, size_t begin,
                                 size_t size);
/* a + b. Appending to the last result takes only the size of b. */
bauta_status bt_chat_string_append(bt_chat_render *r, bt_chat_value *out,
                                   const bt_chat_string *a,
                                   const bt_chat_string *b);
/* A list of `count` items to be filled in. */
bauta_status bt_chat_list_make(bt_chat_render *r, bt_chat_value *out,
                               bt_chat_list_form form, size_t count);
bauta_status bt_chat_pair_make(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *a, const bt_chat_value *b);
bauta_status bt_chat_dict_make(bt_chat_render *r, bt_chat_value *out,
                               bt_chat_kind kind, size_t capacity);
bauta_status bt_chat_dict_set(bt_chat_render *r, bt_chat_dict *dict,
                              const bt_chat_value *key,
                              const bt_chat_value *value);
/* The value of a key, or NULL. A key that cannot be hashed is an error. */
bauta_status bt_chat_dict_find(bt_chat_render *r, const bt_chat_dict *dict,
                               const bt_chat_value *key,
                               const bt_chat_value **out);
/* The value of a key that is a string, or NULL. */
const bt_chat_value *bt_chat_dict_get(const bt_chat_dict *dict,
                                      const bt_chat_string *key);
/* A JSON value, which must outlive the rendering. */
bauta_status bt_chat_from_json(bt_chat_render *r, bt_chat_value *out,
                               const json_t *json);
/* What a loop over a value visits, as a list: characters, keys or items.
 * Undefined values have none. A generator is consumed. */
bauta_status bt_chat_iterate(bt_chat_render *r, const bt_chat_value *v,
                             bt_chat_list **out);

/* ---- Comparisons --------------------------------------------------------- */

bauta_status bt_chat_equal(bt_chat_render *r, const bt_chat_value *a,
                           const bt_chat_value *b, bool *equal);
/* *order is -1, 0 or 1, and 2 if one is NaN; an error for values that Python
 * does not order. */
bauta_status bt_chat_order(bt_chat_render *r, const bt_chat_value *a,
                           const bt_chat_value *b, int *order);
/* a in b. */
bauta_status bt_chat_contains(bt_chat_render *r, const bt_chat_value *a,
                              const bt_chat_value *b, bool *contains);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* render.h - one rendering of a chat template: its state, and the parts of the
 * interpreter.
 *
 *     evaluate.c     expressions
 *     execute.c      statements, scopes, macros, loops
 *     operators.c    arithmetic
 *     members.c      attributes, items, slices
 *     methods.c      "text".upper() and the like
 *     filters.c      text|upper; list_filters.c has those on lists
 *     predicates.c   x is defined
 *     functions.c    range(), namespace(), raise_exception(), strftime_now()
 *     value_text.c   values as text and as JSON
 *     format.c       "%s" % x and "{}".format(x) */
#ifndef BT_CHAT_RENDER_H
#define BT_CHAT_RENDER_H

#include "base/error.h"
#include "text/chat/value.h"

#include <time.h>

struct bt_chat_render {
    bt_chat_pool pool;
    char *text; /* the output; temporary strings are built at its end */
    size_t size, capacity;
    uint64_t work;  /* done so far */
    unsigned depth; /* of nested evaluations */
    uint32_t line;  /* of the template, for messages */
    struct tm now;  /* for strftime_now() */
    const bt_chat_dict *variables;
    bt_chat_scope *scope;
    bt_chat_value block; /* the text that a filter block works on */
    bauta_error *err;
};

/* The arguments of a call. */
typedef struct bt_chat_arguments {
    const bt_chat_value *values; /* positional */
    size_t count;
    const bt_chat_entry *named; /* keys are strings */
    size_t named_count;
} bt_chat_arguments;

/* ---- Limits and messages ------------------------------------------------- */

/* "chat template, line 3: ...", with BAUTA_ERR_ARGUMENT. */
bauta_status bt_chat_fail(bt_chat_render *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Untrusted text for a message. */
bt_quoted bt_chat_quote(const bt_chat_string *string);
/* An undefined value was used: the message says why it is undefined. */
bauta_status bt_chat_fail_undefined(bt_chat_render *r, const bt_chat_value *v);
/* Count work; fails beyond BT_CHAT_WORK_MAX. */
bauta_status bt_chat_work(bt_chat_render *r, size_t units);
/* Count one more level; the caller lowers r->depth again, also on failure. */
bauta_status bt_chat_enter(bt_chat_render *r);
/* Memory of the pool, or an error. */
bauta_status bt_chat_alloc(bt_chat_render *r, void **out, size_t size);

/* ---- Output -------------------------------------------------------------- */

bauta_status bt_chat_put(bt_chat_render *r, const char *bytes, size_t size);
bauta_status bt_chat_put_text(bt_chat_render *r, const char *text);
bauta_status bt_chat_put_code(bt_chat_render *r, uint32_t code);
bauta_status bt_chat_put_fill(bt_chat_render *r, const char *bytes, size_t size,
                              size_t times);
/* Make everything after `begin` a string and remove it from the output. */
bauta_status bt_chat_take(bt_chat_render *r, size_t begin, bt_chat_value *out);

/* str(v) and repr(v) to the output. */
bauta_status bt_chat_put_value(bt_chat_render *r, const bt_chat_value *v);
bauta_status bt_chat_put_repr(bt_chat_render *r, const bt_chat_value *v);
/* str(v); a string is itself. */
bauta_status bt_chat_stringify(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *v);
/* The text with &, <, >, ' and " escaped, unless it is "safe". */
bauta_status bt_chat_escape(bt_chat_render *r, bt_chat_value *out,
                            const bt_chat_value *v);

/* json.dumps() with these arguments; ABSENT or none is the default. */
typedef struct bt_chat_json_options {
    bool ascii, sort_keys;
    const bt_chat_value *indent, *separators;
} bt_chat_json_options;
bauta_status bt_chat_put_json(bt_chat_render *r, const bt_chat_value *v,
                              const bt_chat_json_options *options);

/* ---- Formats ------------------------------------------------------------- */

/* format % arguments, where a tuple is several. */
bauta_status bt_chat_format_percent(bt_chat_render *r, bt_chat_value *out,
                                    const bt_chat_string *format,
                                    const bt_chat_value *arguments);
/* format.format(...). */
bauta_status bt_chat_format_braces(bt_chat_render *r, bt_chat_value *out,
                                   const bt_chat_string *format,
                                   const bt_chat_arguments *arguments);
/* A time as strftime() in English. */
bauta_status bt_chat_put_time(bt_chat_render *r, const bt_chat_string *format);

/* ---- Operators and members ----------------------------------------------- */

bauta_status bt_chat_binary(bt_chat_render *r, bt_chat_operation operation,
                            const bt_chat_value *a, const bt_chat_value *b,
                            bt_chat_value *out);
bauta_status bt_chat_negate(bt_chat_render *r, bt_chat_operation sign,
                            const bt_chat_value *a, bt_chat_value *out);
/* v.name and v[key]: undefined if there is none. */
bauta_status bt_chat_attribute(bt_chat_render *r, bt_chat_value *out,
                               const bt_chat_value *v,
                               const bt_chat_string *name);
bauta_status bt_chat_item(bt_chat_render *r, bt_chat_value *out,
                          const bt_chat_value *v, const bt_chat_value *key);
/* "a.b.0", as the attributes of filters are written. */
bauta_status bt_chat_path(bt_chat_render *r, bt_chat_value *out,
                          const bt_chat_value *v, const bt_chat_value *path);
/* v[start:stop:step]; bounds may be ABSENT or none. */
bauta_status bt_chat_slice(bt_chat_render *r, bt_chat_value *out,
                           const bt_chat_value *v, const bt_chat_value *start,
                           const bt_chat_value *stop,
                           const bt_chat_value *step);
/* Of characters `first` to `last` - 1: their bytes. */
void bt_chat_character_range(const bt_chat_string *s, size_t first, size_t last,
                             size_t *begin, size_t *size);
/* Attributes of a loop; ABSENT if there is none. */
bauta_status bt_chat_loop_attribute(bt_chat_render *r, bt_chat_value *out,
                                    struct bt_chat_loop *loop,
                                    const bt_chat_string *name);

/* How often a loop has run, and what changed() got last. */
size_t bt_chat_loop_index(const struct bt_chat_loop *loop);
bt_chat_value *bt_chat_loop_changed(struct bt_chat_loop *loop);

/* ---- Calls --------------------------------------------------------------- */

/* Distribute arguments to parameters: `names` separated by spaces, those from
 * '[' on optional. Values that were not given are ABSENT. `what` is named in
 * messages. */
enum { BT_CHAT_PARAMETERS_MAX = 6 };
bauta_status bt_chat_bind(bt_chat_render *r, const char *what,
                          const char *names, const bt_chat_arguments *arguments,
                          bt_chat_value bound[BT_CHAT_PARAMETERS_MAX]);

/* Calls of a filter or a method: its parameters are bound. */
typedef struct bt_chat_call {
    bt_chat_value self; /* left of "|" or "." */
    bt_chat_value bound[BT_CHAT_PARAMETERS_MAX];
    const bt_chat_arguments *arguments; /* all of them, as given */
} bt_chat_call;
typedef bauta_status bt_chat_call_fn(bt_chat_render *r, const bt_chat_call *c,
                                     bt_chat_value *out);
typedef struct bt_chat_builtin {
    const char *name;
    const char *parameters; /* as for bt_chat_bind(), or "*" for any */
    bt_chat_call_fn *call;
} bt_chat_builtin;

/* Filters on lists, in list_filters.c; the table ends with a NULL name. */
extern const bt_chat_builtin bt_chat_list_filters[];

bauta_status bt_chat_builtin_call(bt_chat_render *r,
                                  const bt_chat_builtin *builtin,
                                  const bt_chat_value *self,
                                  const bt_chat_arguments *arguments,
                                  bt_chat_value *out);
bool bt_chat_has_filter(const bt_chat_string *name);
bauta_status bt_chat_filter(bt_chat_render *r, const bt_chat_string *name,
                            const bt_chat_value *v,
                            const bt_chat_arguments *arguments,
                            bt_chat_value *out);
bool bt_chat_has_test(const bt_chat_string *name);
bauta_status bt_chat_test(bt_chat_render *r, const bt_chat_string *name,
                          const bt_chat_value *v,
                          const bt_chat_arguments *arguments, bool *is);
/* A method of a string, list or dict; ABSENT if there is none. */
bauta_status bt_chat_method_find(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *self,
                                 const bt_chat_string *name);
bauta_status bt_chat_method_call(bt_chat_render *r,
                                 const bt_chat_method *method,
                                 const bt_chat_arguments *arguments,
                                 bt_chat_value *out);
/* A function that every template can call; ABSENT if there is none. */
bt_chat_value bt_chat_function_find(const bt_chat_string *name);
bauta_status bt_chat_function_call(bt_chat_render *r,
                                   const bt_chat_value *function,
                                   const bt_chat_arguments *arguments,
                                   bt_chat_value *out);
/* Call any value. */
bauta_status bt_chat_call_value(bt_chat_render *r, const bt_chat_value *callee,
                                const bt_chat_arguments *arguments,
                                bt_chat_value *out);
/* A macro; its text is the result. */
bauta_status bt_chat_macro_call(bt_chat_render *r, const bt_chat_macro *macro,
                                const bt_chat_arguments *arguments,
                                bt_chat_value *out);

/* A replaced by B in a text, at most `most` times. */
bauta_status bt_chat_replace(bt_chat_render *r, bt_chat_value *out,
                             const bt_chat_string *text,
                             const bt_chat_string *from,
                             const bt_chat_string *to, size_t most);
/* Without the characters of `set` at its ends, or without white space if that
 * is NULL. */
enum { BT_CHAT_LEFT = 1, BT_CHAT_RIGHT = 2 };
bauta_status bt_chat_strip(bt_chat_render *r, bt_chat_value *out,
                           const bt_chat_value *text, const bt_chat_string *set,
                           unsigned sides);
/* Upper case, lower case, Python's title(), capitalize(), Jinja's title. */
typedef enum bt_chat_case {
    BT_CHAT_UPPER,
    BT_CHAT_LOWER,
    BT_CHAT_TITLE,
    BT_CHAT_CAPITALIZE,
    BT_CHAT_WORDS
} bt_chat_case;
bauta_status bt_chat_change_case(bt_chat_render *r, bt_chat_value *out,
                                 const bt_chat_value *text, bt_chat_case to);

/* ---- Programs ------------------------------------------------------------ */

bauta_status bt_chat_evaluate(bt_chat_render *r, const bt_chat_node *node,
                              bt_chat_value *out);
/* The arguments of a call, in the pool. */
bauta_status bt_chat_evaluate_arguments(bt_chat_render *r,
                                        const bt_chat_node *list,
                                        bt_chat_arguments *out);
/* The value of a name. */
bauta_status bt_chat_lookup(bt_chat_render *r, const bt_chat_string *name,
                            bt_chat_value *out);
/* A whole template. */
bauta_status bt_chat_run(bt_chat_render *r, const bt_chat_node *program);

#endif

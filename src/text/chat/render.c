/* SPDX-License-Identifier: Apache-2.0 */
/* render.c - limits, messages and output of a rendering. */
#include "text/chat/render.h"

#include "base/array.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bauta_status bt_chat_fail(bt_chat_render *r, const char *format, ...)
{
    char what[220];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return bt_fail(r->err, BAUTA_ERR_ARGUMENT, "chat template, line %u: %s",
                   (unsigned)r->line, what);
}

bt_quoted bt_chat_quote(const bt_chat_string *string)
{
    char start[80] = { 0 };
    size_t size = string->size;
    memcpy(start, string->bytes, size < sizeof(start) ? size : 79);
    return bt_quote(start);
}

bauta_status bt_chat_fail_undefined(bt_chat_render *r, const bt_chat_value *v)
{
    bt_quoted name = bt_chat_quote(v->string);
    bt_chat_value owner = { .kind = v->owner };
    switch (v->form) {
    case BT_CHAT_FORM_ATTRIBUTE:
        return bt_chat_fail(r, "a %s has no member \"%s\"",
                            bt_chat_type_name(&owner), name.text);
    case BT_CHAT_FORM_UNSAFE:
        return bt_chat_fail(r,
                            "\"%s\" of a %s changes it, which templates "
                            "must not do",
                            name.text, bt_chat_type_name(&owner));
    case BT_CHAT_FORM_PARAMETER:
        return bt_chat_fail(r, "the parameter \"%s\" was not given", name.text);
    default:
        return bt_chat_fail(r, "\"%s\" is undefined", name.text);
    }
}

bauta_status bt_chat_work(bt_chat_render *r, size_t units)
{
    r->work += units;
    if (r->work > BT_CHAT_WORK_MAX)
        return bt_chat_fail(r, "rendering takes more than %d steps",
                            BT_CHAT_WORK_MAX);
    return BAUTA_OK;
}

bauta_status bt_chat_enter(bt_chat_render *r)
{
    if (r->depth++ >= BT_CHAT_DEPTH_MAX)
        return bt_chat_fail(r, "nested more than %d deep", BT_CHAT_DEPTH_MAX);
    return BAUTA_OK;
}

bauta_status bt_chat_alloc(bt_chat_render *r, void **out, size_t size)
{
    *out = bt_chat_pool_alloc(&r->pool, size);
    if (*out)
        return BAUTA_OK;
    if (r->pool.full)
        return bt_chat_fail(r, "values take more than %d MiB",
                            BT_CHAT_MEMORY_MAX >> 20);
    return bt_fail_memory(r->err, "values of a chat template", size);
}

bauta_status bt_chat_put(bt_chat_render *r, const char *bytes, size_t size)
{
    bauta_status status = bt_chat_work(r, size);
    if (status)
        return status;
    if (size > BT_CHAT_OUTPUT_MAX - r->size)
        return bt_chat_fail(r, "the text has more than %d MiB",
                            BT_CHAT_OUTPUT_MAX >> 20);
    if (BT_ARRAY_RESERVE(r->text, r->capacity, r->size, size + 1))
        return bt_fail_memory(r->err, "the text of a chat", r->size + size);
    if (size)
        memcpy(r->text + r->size, bytes, size);
    r->size += size;
    return BAUTA_OK;
}

bauta_status bt_chat_put_text(bt_chat_render *r, const char *text)
{
    return bt_chat_put(r, text, strlen(text));
}

bauta_status bt_chat_put_code(bt_chat_render *r, uint32_t code)
{
    char bytes[4];
    size_t size = bt_utf8_encode(bytes, code);
    return bt_chat_put(r, bytes, size);
}

bauta_status bt_chat_put_fill(bt_chat_render *r, const char *bytes, size_t size,
                              size_t times)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < times && size && !status; i++)
        status = bt_chat_put(r, bytes, size);
    return status;
}

bauta_status bt_chat_take(bt_chat_render *r, size_t begin, bt_chat_value *out)
{
    const char *from = r->text ? r->text + begin : "";
    bauta_status status = bt_chat_string_make(r, out, from, r->size - begin);
    r->size = begin;
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - messages through the chat template; see chat.h.
 *
 * BAUTA_CHAT_TEMPLATES is defined by CMake if bauta/text.h has templates. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

/* An array of objects with a role, and content of strings or parts. */
static bool messages_check(const json_t *body, failure *f)
{
    const json_t *messages = field(body, "messages"), *message;
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return fail(f, 400, "messages", NULL,
                    "messages must be an array of objects, not empty");
    json_array_foreach(messages, i, message)
    {
        const json_t *content = field(message, "content");
        if (!json_is_object(message) ||
            !json_is_string(json_object_get(message, "role")))
            return fail(f, 400, "messages", NULL,
                        "messages[%zu] must be an object with a role", i);
        if (content && !json_is_string(content) && !json_is_array(content))
            return fail(f, 400, "messages", NULL,
                        "messages[%zu]: content must be a string or an array",
                        i);
    }
    if (field(body, "tools") && !json_is_array(field(body, "tools")))
        return fail(f, 400, "tools", NULL, "tools must be an array");
    return true;
}

#ifdef BAUTA_CHAT_TEMPLATES

struct chat_renderer {
    bauta_chat_template *template; /* or NULL */
    bauta_error err;               /* why there is none */
};

chat_renderer *chat_load(const opened_model *model)
{
    chat_renderer *c = calloc(1, sizeof(*c));
    if (c)
        (void)bauta_chat_template_load(&c->template, model->folder, NULL,
                                       &c->err);
    return c;
}

void chat_free(chat_renderer *c)
{
    if (c)
        bauta_chat_template_free(c->template);
    free(c);
}

bool chat_ready(const chat_renderer *c)
{
    return c && c->template;
}

/* Content in parts, of which only texts are supported, becomes one string. */
static bool content_join(json_t *message, failure *f)
{
    const json_t *content = json_object_get(message, "content"), *part;
    buffer text = { 0 };
    size_t i;
    if (!json_is_array(content))
        return true;
    json_array_foreach(content, i, part)
    {
        const json_t *piece = json_object_get(part, "text");
        if (!json_is_string(piece)) {
            buffer_release(&text);
            return fail(f, 400, "messages", "unsupported",
                        "only content of type text is supported");
        }
        buffer_add(&text, json_string_value(piece), json_string_length(piece));
    }
    json_object_set_new(message, "content",
                        json_stringn(text.at ? text.at : "", text.length));
    buffer_release(&text);
    return true;
}

/* The names that a template knows: those of transformers. */
static json_t *variables_make(const json_t *body, failure *f)
{
    json_t *extra = field(body, "chat_template_kwargs"), *message;
    json_t *all = json_is_object(extra) ? json_copy(extra) : json_object();
    json_t *messages = json_deep_copy(field(body, "messages"));
    bool good = true;
    size_t i;
    json_array_foreach(messages, i, message) good =
        good && content_join(message, f);
    json_object_set_new(all, "messages", messages);
    if (field(body, "tools"))
        json_object_set(all, "tools", field(body, "tools"));
    if (!json_object_get(all, "add_generation_prompt"))
        json_object_set_new(all, "add_generation_prompt", json_true());
    if (good)
        return all;
    json_decref(all);
    return NULL;
}

bool chat_render(const chat_renderer *c, const json_t *body, buffer *out,
                 failure *f)
{
    bauta_error err;
    char *text = NULL;
    size_t length = 0;
    if (!messages_check(body, f))
        return false;
    if (!chat_ready(c))
        return fail(f, 400, "messages", "no_chat_template",
                    "%s; use /v1/completions for a model without a chat "
                    "template",
                    c ? c->err.message : "out of memory");
    json_t *all = variables_make(body, f);
    if (!all)
        return false;
    char *json = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    bool failed =
        !json || bauta_chat_template_render(c->template, json, strlen(json),
                                            &text, &length, &err);
    free(json);
    if (failed)
        return fail(f, 400, "messages", "chat_template", "%s",
                    json ? err.message : "out of memory");
    buffer_add(out, text, length);
    bauta_text_free(text);
    return true;
}

#else

chat_renderer *chat_load(const opened_model *model)
{
    (void)model;
    return NULL;
}

void chat_free(chat_renderer *c)
{
    (void)c;
}

bool chat_ready(const chat_renderer *c)
{
    (void)c;
    return false;
}

bool chat_render(const chat_renderer *c, const json_t *body, buffer *out,
                 failure *f)
{
    (void)c;
    (void)out;
    if (!messages_check(body, f))
        return false;
    return fail(f, 501, NULL, "unsupported",
                "this build has no chat templates; use /v1/completions");
}

#endif

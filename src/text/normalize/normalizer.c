/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.c - reading and running the steps; see normalizer.h. */
#include "text/normalize/normalizer.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/normalize/normalizer_step.h"
#include "text/step_json.h"

#include <string.h>

struct bt_normalizer {
    bt_normalizer_step *steps;
    size_t count, room;
    bool strips, global; /* one of the steps is BT_NORMALIZER_LOCAL_STRIP,
                            BT_NORMALIZER_GLOBAL */
};

typedef struct normalizer_parser {
    bt_normalizer *out;
    const char *path;
    bauta_error *err;
} normalizer_parser;

static const struct {
    const char *type;
    bt_normalizer_step_parse_fn *parse;
    bt_normalizer_scope locality;
} kinds[] = {
    { "NFC", bt_normalizer_step_nfc, BT_NORMALIZER_LOCAL },
    { "NFD", bt_normalizer_step_nfd, BT_NORMALIZER_LOCAL },
    { "NFKC", bt_normalizer_step_nfkc, BT_NORMALIZER_LOCAL },
    { "NFKD", bt_normalizer_step_nfkd, BT_NORMALIZER_LOCAL },
    { "Lowercase", bt_normalizer_step_lowercase, BT_NORMALIZER_LOCAL },
    { "Strip", bt_normalizer_step_strip, BT_NORMALIZER_LOCAL_STRIP },
    { "StripAccents", bt_normalizer_step_strip_accents, BT_NORMALIZER_LOCAL },
    { "Nmt", bt_normalizer_step_nmt, BT_NORMALIZER_LOCAL },
    { "BertNormalizer", bt_normalizer_step_bert, BT_NORMALIZER_LOCAL },
    { "Replace", bt_normalizer_step_replace, BT_NORMALIZER_GLOBAL },
    { "Prepend", bt_normalizer_step_prepend, BT_NORMALIZER_GLOBAL },
    { "Precompiled", bt_normalizer_step_precompiled, BT_NORMALIZER_GLOBAL },
};

static bauta_status normalizer_create(bt_normalizer **out, bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    return *out ? BAUTA_OK : bt_fail_memory(err, "a normalizer", sizeof(**out));
}

void bt_normalizer_free(bt_normalizer *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->count; i++)
        if (normalizer->steps[i].free)
            normalizer->steps[i].free(normalizer->steps[i].data);
    bt_free(normalizer->steps);
    bt_free(normalizer);
}

/* A zeroed slot for one more step; count it when it is filled. */
static bauta_status step_slot(bt_normalizer *n, bt_normalizer_step **step,
                              const char *path, bauta_error *err)
{
    if (n->count == BT_STEPS_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the normalizer has more than %d steps",
                       bt_path_tail(path), BT_STEPS_MAX);
    if (BT_ARRAY_RESERVE(n->steps, n->room, n->count, 1))
        return bt_fail_memory(err, "a normalizer", sizeof(**step));
    *step = &n->steps[n->count];
    **step = (bt_normalizer_step){ .run = NULL };
    return BAUTA_OK;
}

static bauta_status step_add(normalizer_parser *p,
                             bt_normalizer_step_parse_fn *parse,
                             const json_t *json)
{
    bt_normalizer_step *step = NULL;
    bauta_status status = step_slot(p->out, &step, p->path, p->err);
    if (!status)
        status = parse(step, json, p->path, p->err);
    p->out->count += !status;
    return status;
}

/* Replace with this pattern turns a run of spaces into one; no other Replace is
 * known to be local. */
static bool collapses_spaces(const json_t *json)
{
    const char *regex = json_string_value(
        json_object_get(json_object_get(json, "pattern"), "Regex"));
    const char *content = json_string_value(json_object_get(json, "content"));
    return regex && content && strcmp(regex, " {2,}") == 0 &&
           strcmp(content, " ") == 0;
}

static bauta_status step_parse(void *user, const char *type, const json_t *json)
{
    normalizer_parser *p = user;
    for (size_t i = 0; i < BT_LEN(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) {
            p->out->strips |= kinds[i].locality == BT_NORMALIZER_LOCAL_STRIP;
            p->out->global |= kinds[i].locality == BT_NORMALIZER_GLOBAL &&
                              !collapses_spaces(json);
            return step_add(p, kinds[i].parse, json);
        }
    return bt_fail(p->err, BAUTA_ERR_FORMAT,
                   "%s: the normalizer \"%s\" is unknown",
                   bt_path_tail(p->path), bt_quote(type).text);
}

bauta_status bt_normalizer_parse(bt_normalizer **out, const json_t *json,
                                 const char *path, bauta_error *err)
{
    *out = NULL;
    if (!json || json_is_null(json))
        return BAUTA_OK;
    normalizer_parser p = { NULL, path, err };
    bt_step_reader reader = { "normalizer", "normalizers", path, step_parse, &p,
                              err };
    bauta_status status = normalizer_create(&p.out, err);
    if (!status)
        status = bt_steps_parse(&reader, json);
    if (status)
        bt_normalizer_free(p.out);
    else
        *out = p.out;
    return status;
}

bauta_status
bt_normalizer_sentencepiece(bt_normalizer **out,
                            const bt_sentencepiece_normalizer_spec *spec,
                            const char *path, bauta_error *err)
{
    bt_normalizer_step *step = NULL;
    bauta_status status = normalizer_create(out, err);
    if (!status)
        status = step_slot(*out, &step, path, err);
    if (!status)
        status = bt_normalizer_step_sentencepiece(step, spec, path, err);
    if (!status) {
        (*out)->count = 1;
        (*out)->global = true;
        return BAUTA_OK;
    }
    bt_normalizer_free(*out);
    *out = NULL;
    return status;
}

bt_normalizer_scope bt_normalizer_scope_of(const bt_normalizer *normalizer)
{
    if (!normalizer)
        return BT_NORMALIZER_LOCAL;
    return normalizer->global   ? BT_NORMALIZER_GLOBAL
           : normalizer->strips ? BT_NORMALIZER_LOCAL_STRIP
                                : BT_NORMALIZER_LOCAL;
}

bauta_status bt_normalizer_fail_size(size_t size, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the normalizer makes more than %zu bytes of a text of %zu",
                   bt_normalizer_size_limit(size), size);
}

bauta_status bt_normalizer_run(const bt_normalizer *normalizer,
                               bt_aligned_text *text, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t count = normalizer ? normalizer->count : 0, size = text->size;
    for (size_t i = 0; !status && i < count; i++) {
        const bt_normalizer_step *step = &normalizer->steps[i];
        status = step->run(step, text, err);
        if (!status && text->size > bt_normalizer_size_limit(size))
            status = bt_normalizer_fail_size(size, err);
    }
    return status;
}

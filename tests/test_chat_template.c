/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat_template.c - chat templates: snippets whose text Jinja made
 * (tests/data/chat_templates.json), the templates of 56 public models if the
 * data folder is there, malformed and hostile templates, the limits, folders,
 * and allocations that fail. */
#include "allocation_faults.h"
#include "data.h"
#include "temp_folder.h"
#include "text/chat/template.h"

#include <bauta.h>

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- Helpers ------------------------------------------------------------- */

/* Parse and render; *text for bauta_text_free(), NULL on failure. */
static bauta_status render_bytes(const char *text, size_t size,
                                 const char *variables, char **out,
                                 bauta_error *err)
{
    bauta_chat_template *t;
    *out = NULL;
    bauta_status status = bauta_chat_template_create(&t, text, size, err);
    assert_int_equal(!t, status != BAUTA_OK);
    if (!status)
        status = bauta_chat_template_render(t, variables, strlen(variables),
                                            out, NULL, err);
    assert_int_equal(!*out, status != BAUTA_OK);
    bauta_chat_template_free(t);
    return status;
}

static bauta_status render(const char *text, const char *variables, char **out,
                           bauta_error *err)
{
    return render_bytes(text, strlen(text), variables, out, err);
}

static void renders(const char *text, const char *variables, const char *want)
{
    char *got;
    bauta_error err;
    if (render(text, variables, &got, &err))
        fail_msg("%s: %s", text, err.message);
    assert_string_equal(got, want);
    bauta_text_free(got);
}

static void refuses(const char *text, bauta_status status, const char *message)
{
    char *got;
    bauta_error err;
    assert_int_equal(render(text, "{}", &got, &err), status);
    assert_string_equal(err.message, message);
}

/* One case: the text, or a failure if `want` is NULL. */
static void case_check(const char *name, const char *text,
                       const char *variables, const char *want)
{
    char *got;
    bauta_error err = { 0 };
    bauta_status status = render(text, variables, &got, &err);
    if (!want && !status)
        fail_msg("%s is accepted, and gives \"%s\"", name, got);
    if (want && status)
        fail_msg("%s: %s", name, err.message);
    if (want && strcmp(got, want))
        fail_msg("%s gives \"%s\" instead of \"%s\"", name, got, want);
    bauta_text_free(got);
}

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static json_t *json_read(const char *path)
{
    json_error_t err;
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &err);
    if (!json)
        fail_msg("%s: %s", path, err.text);
    return json;
}

static json_t *cases_read(char **variables)
{
    char path[1024];
    json_t *file =
        json_read(test_tree_path(path, sizeof(path), "chat_templates.json"));
    *variables = json_dumps(json_object_get(file, "variables"), 0);
    assert_non_null(*variables);
    return file;
}

/* ---- Texts that Jinja made ----------------------------------------------- */

static void snippets_give_the_text_of_jinja(void **state)
{
    (void)state;
    char *variables;
    json_t *file = cases_read(&variables), *one;
    size_t i;
    json_array_foreach(json_object_get(file, "cases"), i, one)
    {
        const char *text = string_of(one, "template");
        // A text with NUL is compared up to it.
        case_check(text, text, variables, string_of(one, "text"));
    }
    printf("%zu snippets\n", i);
    free(variables);
    json_decref(file);
}

/* The variables of a golden. */
static char *golden_variables(const json_t *file, const json_t *one)
{
    const json_t *messages = json_object_get(
        json_object_get(file, "conversations"), string_of(one, "conversation"));
    json_t *v = json_pack(
        "{s:O, s:O, s:s, s:s, s:s, s:s, s:O}", "messages", messages,
        "add_generation_prompt", json_object_get(one, "add_generation_prompt"),
        "bos_token", "<s>", "eos_token", "</s>", "pad_token", "<pad>",
        "unk_token", "<unk>", "strftime_now", json_object_get(file, "now"));
    assert_non_null(v);
    if (json_is_true(json_object_get(one, "tools")))
        json_object_set(v, "tools", json_object_get(file, "tools"));
    char *text = json_dumps(v, 0);
    json_decref(v);
    return text;
}

static char *file_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void public_models_give_the_text_of_transformers(void **state)
{
    (void)state;
    char path[1024], name[512];
    json_t *file, *golden, *one;
    size_t i, k, count = 0;
    if (!test_data_path(path, sizeof(path), "chat-templates/goldens.json")) {
        printf("skipped: 1008 texts of 56 templates, which are in the data "
               "folder\n");
        return;
    }
    file = json_read(path);
    json_array_foreach(json_object_get(file, "goldens"), i, golden)
    {
        const char *template = string_of(golden, "template");
        snprintf(name, sizeof(name), "chat-templates/templates/%s", template);
        char *text = file_read(test_data_path(path, sizeof(path), name));
        json_array_foreach(json_object_get(golden, "cases"), k, one)
        {
            char *variables = golden_variables(file, one);
            snprintf(name, sizeof(name), "%s, %s, case %zu", template,
                     string_of(one, "conversation"), k);
            case_check(name, text, variables, string_of(one, "text"));
            free(variables);
            count++;
        }
        free(text);
    }
    printf("%zu texts of %zu templates\n", count, i);
    json_decref(file);
}

/* ---- Variables and results ----------------------------------------------- */

static void text_may_contain_nul(void **state)
{
    (void)state;
    bauta_chat_template *t;
    char *text;
    size_t length;
    static const char template[] = "a\0{{ x }}",
                      variables[] = "{\"x\": \"b\\u0000c\"}";
    assert_int_equal(
        bauta_chat_template_create(&t, template, sizeof(template) - 1, NULL),
        BAUTA_OK);
    assert_int_equal(bauta_chat_template_render(t, variables, strlen(variables),
                                                &text, &length, NULL),
                     BAUTA_OK);
    assert_int_equal(length, 5);
    assert_memory_equal(text, "a\0b\0c", 6);
    bauta_text_free(text);
    bauta_chat_template_free(t);
}

static void tools_are_none_unless_given(void **state)
{
    (void)state;
    renders("{{ tools }} {{ documents }} {{ add_generation_prompt }}", "{}",
            "None None False");
    renders("{{ tools }} {{ documents }} {{ add_generation_prompt }}",
            "{\"tools\": [1], \"documents\": 2, \"add_generation_prompt\": "
            "true}",
            "[1] 2 True");
}

static void the_time_is_now_or_given(void **state)
{
    (void)state;
    char year[16], *text;
    bauta_error err;
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(year, sizeof(year), "%Y", &local);
    assert_int_equal(render("{{ strftime_now('%Y') }}", "{}", &text, &err),
                     BAUTA_OK);
    // The year may change between the two calls.
    assert_true(labs(strtol(text, NULL, 10) - strtol(year, NULL, 10)) <= 1);
    bauta_text_free(text);
    renders("{{ strftime_now('%A %d %B %Y, %j') }}",
            "{\"strftime_now\": \"2024-02-29T23:59:59\"}",
            "Thursday 29 February 2024, 060");
    assert_int_equal(render("x", "{\"strftime_now\": \"now\"}", &text, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(render("x", "{\"strftime_now\": 5}", &text, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        render("x", "{\"strftime_now\": \"2024-13-01T00:00:00\"}", &text, &err),
        BAUTA_ERR_ARGUMENT);
}

static void variables_must_be_an_object(void **state)
{
    (void)state;
    static const char *const wrong[] = { "",     "[]",   "{",
                                         "{} x", "null", "{\"a\": 1e999}" };
    char *text;
    bauta_error err;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(render("x", wrong[i], &text, &err), BAUTA_ERR_FORMAT);
}

static void null_arguments_are_errors(void **state)
{
    (void)state;
    bauta_chat_template *t;
    char *text;
    bauta_error err;
    assert_int_equal(bauta_chat_template_create(NULL, "", 0, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_create(&t, NULL, 0, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_load(NULL, ".", NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_load(&t, NULL, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bauta_chat_template_render(NULL, "{}", 2, &text, NULL, &err),
        BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_create(&t, "", 0, NULL), BAUTA_OK);
    assert_int_equal(bauta_chat_template_render(t, NULL, 2, &text, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_render(t, "{}", 2, NULL, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    bauta_chat_template_free(t);
    bauta_chat_template_free(NULL);
}

/* ---- Messages ------------------------------------------------------------ */

static void errors_name_the_line(void **state)
{
    (void)state;
    refuses("a\n{{ b.c }}", BAUTA_ERR_ARGUMENT,
            "chat template, line 2: \"b\" is undefined");
    refuses("{{ {}.b.c }}", BAUTA_ERR_ARGUMENT,
            "chat template, line 1: a dict has no member \"b\"");
    refuses("{{ raise_exception('roles must\nalternate') }}",
            BAUTA_ERR_ARGUMENT, "chat template, line 1: roles must?alternate");
    refuses("{{ [].append(1) }}", BAUTA_ERR_ARGUMENT,
            "chat template, line 1: \"append\" of a list changes it, which "
            "templates must not do");
    refuses("\n\n{% if %}{% endif %}", BAUTA_ERR_FORMAT,
            "chat template, line 3: unexpected \"%}\" in an expression");
    refuses("{% if x %}\n", BAUTA_ERR_FORMAT,
            "chat template, line 1: unexpected end inside a block");
    refuses("{% include 'x' %}", BAUTA_ERR_UNSUPPORTED,
            "chat template, line 1: \"include\" is not supported");
    refuses("{{ x|nope }}", BAUTA_ERR_ARGUMENT,
            "chat template, line 1: there is no filter \"nope\"");
    refuses("\xff", BAUTA_ERR_FORMAT,
            "the chat template is not UTF-8 at byte 0");
}

/* ---- Limits -------------------------------------------------------------- */

/* The seconds that rendering takes, which must fail with this message. */
static void is_limited(const char *text, const char *message)
{
    char *got;
    bauta_error err = { 0 };
    clock_t begin = clock();
    bauta_status status = render(text, "{}", &got, &err);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("%6.2f s  %.60s\n", seconds, text);
    if (!status)
        fail_msg("%s is not limited", text);
    if (!strstr(err.message, message))
        fail_msg("%s: %s", text, err.message);
    assert_true(seconds < 60); // a second without a sanitizer
}

/* One of several that reach the same limit; sanitizers, which are many times
 * slower, see the others. */
static void is_limited_too(const char *text, const char *message)
{
#ifdef BT_SANITIZED
    (void)text;
    (void)message;
#else
    is_limited(text, message);
#endif
}

static void hostile_templates_end(void **state)
{
    (void)state;
#define LOOP "{% set l = range(100000) %}{% for i in l %}{% for j in l %}"
#define END "{% endfor %}{% endfor %}"
    is_limited(LOOP END, "steps");
    is_limited_too(LOOP "{% set x = 'a' %}" END, "steps");
    is_limited(LOOP "{{ 'a' * 1000 }}" END, "more than");
    is_limited("{% set s = 'a' * 60000000 %}" LOOP "{{ 'b' in s }}" END,
               "steps");
    is_limited_too("{% set s = 'ab' * 9000000 %}" LOOP
                   "{% set q = s.replace('b', '') %}" END,
                   "more than");
    is_limited("{% set s = 'a ' * 9000000 %}" LOOP
               "{% set q = s.split() %}" END,
               "more than");
    is_limited("{% set s = 'a' * 9000000 %}" LOOP "{{ s[99999999] }}" END,
               "steps");
    is_limited("{% set s = 'a' * 9000000 %}" LOOP
               "{{ s.rfind('a' * 50000 ~ 'b') }}" END,
               "steps");
    is_limited("{% set s = 'a' * 9000000 %}{% set d = {s ~ 'b': 1} %}" LOOP
               "{{ d[s ~ 'b'] is none }}" END,
               "more than");
    is_limited_too("{% set s = ' ' * 9000000 %}" LOOP "{{ s|int }}" END,
                   "steps");
    is_limited_too("{% set s = '%Z' * 9000000 %}" LOOP
                   "{{ strftime_now(s) }}" END,
                   "steps");
    is_limited_too(LOOP "{{ i|abs is divisibleby 1 }}" END, "steps");
    is_limited("{{ 'a' * 100000000 }}", "the text has more than 64 MiB");
    is_limited("{{ [0] * 100000000 }}", "values take more than 256 MiB");
    is_limited("{{ [0] * 9223372036854775807 }}", "a list would be too long");
    is_limited("{{ 'a'.center(9223372036854775807) }}", "more than");
    is_limited("{{ '%9999999999d' % 1 * 99999999 }}", "more than");
    is_limited("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
               "{% set ns.s = ns.s + ns.s %}{% endfor %}",
               "more than");
    is_limited("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}"
               "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
               "more than");
    is_limited("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
               "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
               "nested more than 1000 deep");
    is_limited("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
               "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
               "nested more than 1000 deep");
    is_limited("{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}"
               "{% for i in range(9999) %}{% set a.l = [a.l] %}"
               "{% set b.l = [b.l] %}{% endfor %}{{ a.l == b.l }}",
               "nested more than 1000 deep");
    is_limited("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
               "nested more than 1000 deep");
    is_limited("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
               "nested more than 1000 deep");
    is_limited("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
               "nested more than 1000 deep");
    is_limited("{{ range(100001) }}", "range() has more than 100000 items");
    is_limited("{{ 2 ** 64 }}", "beyond 64 bits");
    is_limited("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
    is_limited("{{ -9223372036854775807 - 1 - 1 }}", "beyond 64 bits");
    is_limited("{{ (-9223372036854775807 - 1) // -1 }}", "beyond 64 bits");
    is_limited("{{ '{:99999999}'.format(1) * 99999999 }}", "more than");
#undef LOOP
#undef END
}

/* `first`, `count` times `middle`, and `last`. */
static char *repeat(const char *first, const char *middle, size_t count,
                    const char *last)
{
    size_t a = strlen(first), b = strlen(middle), c = strlen(last);
    char *text = malloc(a + b * count + c + 1);
    assert_non_null(text);
    memcpy(text, first, a);
    for (size_t i = 0; i < count; i++)
        memcpy(text + a + i * b, middle, b);
    memcpy(text + a + b * count, last, c + 1);
    return text;
}

static void large_templates_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *first, *middle;
        size_t count;
        const char *last;
        const char *message;
    } cases[] = {
        { "", "0123456789abcdef", 65537, "", "1048592 bytes, more than" },
        { "{{ ", "1+", 100000, "1 }}", "more than 131072 nodes" },
        { "{{ ", "1+", 5000, "1 }}", "nested more than 1000 deep" },
        { "{{ a", ".a", 5000, " }}", "nested more than 1000 deep" },
        { "{{ 1", "|abs", 5000, " }}", "nested more than 1000 deep" },
        { "{{ ", "(", 5000, "1", "nested more than 100 deep" },
        { "{{ ", "[", 5000, "1", "nested more than 100 deep" },
        { "{{ ", "{1:", 5000, "1", "nested more than 100 deep" },
        { "{{ ", "-", 5000, "1 }}", "nested more than 100 deep" },
        { "{{ ", "not ", 5000, "1 }}", "nested more than 100 deep" },
        { "{{ ", "1 if 1 else ", 5000, "1 }}", "nested more than 100 deep" },
        { "{% set ", "(", 5000, "a", "nested more than 100 deep" },
        { "", "{% if 1 %}", 5000, "", "nested more than 100 deep" },
        { "", "{% for i in x %}", 5000, "", "nested more than 100 deep" },
        { "{{ f(", "1,", 5000, ") }}", "more than 64 arguments" },
        { "{% macro f(", "a,", 5000, ") %}", "more than 64 parameters" },
        { "{{ f(*range(99)", "", 0, ") }}", "more than 64 arguments" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *text = repeat(cases[i].first, cases[i].middle, cases[i].count,
                            cases[i].last);
        char *got;
        bauta_error err = { 0 };
        bauta_status status = render(text, "{}", &got, &err);
        if (!status || !strstr(err.message, cases[i].message))
            fail_msg("%s...: %s", cases[i].middle, err.message);
        free(text);
    }
}

static void long_chains_work(void **state)
{
    (void)state;
    char *got;
    bauta_error err;
    char *text =
        repeat("{% if 0 %}", "{% elif 0 %}", 5000, "{% else %}a{% endif %}");
    assert_int_equal(render(text, "{}", &got, &err), BAUTA_OK);
    assert_string_equal(got, "a");
    bauta_text_free(got);
    free(text);
    text = repeat("{{ (", "'a'", 300000, ")|length }}");
    assert_int_equal(render(text, "{}", &got, &err), BAUTA_OK);
    assert_string_equal(got, "300000");
    bauta_text_free(got);
    free(text);
    // Appending in a loop takes time that is proportional to the text.
    renders("{% set ns = namespace(s='') %}{% for i in range(100000) %}"
            "{% set ns.s = ns.s + '0123456789' %}{% endfor %}"
            "{{ ns.s|length }}",
            "{}", "1000000");
}

/* ---- Malformed templates ------------------------------------------------- */

/* Nothing but a status and a message may come of any bytes. */
static bool survives(const char *text, size_t size, const char *variables)
{
    char *got;
    bauta_error err = { 0 };
    bauta_status status = render_bytes(text, size, variables, &got, &err);
    if (status) {
        assert_int_equal(status, err.status);
        assert_true(err.message[0] != '\0');
        for (const char *c = err.message; *c; c++)
            assert_true((unsigned char)*c >= 0x20);
    }
    bauta_text_free(got);
    return status == BAUTA_OK;
}

static void templates_cut_anywhere_are_survived(void **state)
{
    (void)state;
    char *variables;
    json_t *file = cases_read(&variables), *one;
    size_t i, accepted = 0, count = 0;
    json_array_foreach(json_object_get(file, "cases"), i, one)
    {
        const char *text = string_of(one, "template");
        size_t size = strlen(text);
        for (size_t end = 0; end < size; end++, count++) {
            // In a block of its exact size, so that overreads are found.
            char *cut = malloc(end ? end : 1);
            assert_non_null(cut);
            memcpy(cut, text, end);
            accepted += survives(cut, end, variables);
            free(cut);
        }
    }
    printf("%zu templates, %zu of them accepted\n", count, accepted);
    free(variables);
    json_decref(file);
}

static void templates_of_random_tokens_are_survived(void **state)
{
    (void)state;
    static const char *const tokens[] = {
        "{{",
        "}}",
        "{%",
        "%}",
        "{{-",
        "-}}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "if ",
        "else",
        "elif ",
        "endif",
        "for ",
        "in ",
        "endfor",
        "set ",
        "endset",
        "macro ",
        "endmacro",
        "call ",
        "endcall",
        "filter ",
        "endfilter",
        "raw",
        "endraw",
        "generation",
        "endgeneration",
        "break",
        "continue",
        "with ",
        "endwith",
        "is ",
        "not ",
        "and ",
        "or ",
        "a",
        "l",
        "d",
        "s",
        "m",
        "loop",
        ".x",
        ".items()",
        "|list",
        "|tojson",
        "|map('upper')",
        "|join",
        "|sort",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "=",
        "==",
        "<",
        "+",
        "-",
        "*",
        "/",
        "%",
        "~",
        "'a'",
        "\"",
        "'",
        "1",
        "0.5",
        "99999999999999999999",
        "\\",
        "\n",
        " ",
        "\xc3\xa9",
        "\xff",
        "namespace()",
        "range(9)",
        "none",
        "defined",
        "%}{% if 1 %}",
        "%}{% endif %}",
        "}}{{",
    };
    test_random r = test_random_from(test_seed());
    char *variables;
    json_t *file = cases_read(&variables), *cases;
    size_t accepted = 0, count = 20000;
    cases = json_object_get(file, "cases");
    for (size_t i = 0; i < count; i++) {
        char text[4096] = "";
        // Half of them start with a template that is fine.
        if (test_u32(&r) & 1) {
            const json_t *one =
                json_array_get(cases, test_below(&r, json_array_size(cases)));
            strcpy(text, string_of(one, "template"));
            text[test_below(&r, strlen(text) + 1)] = '\0';
        }
        for (size_t n = test_below(&r, 30); n > 0; n--)
            strcat(text,
                   tokens[test_below(&r, sizeof(tokens) / sizeof(*tokens))]);
        accepted += survives(text, strlen(text), variables);
    }
    printf("%zu templates, %zu of them accepted\n", count, accepted);
    free(variables);
    json_decref(file);
}

/* ---- Folders ------------------------------------------------------------- */

static void write_text(temp_folder *s, const char *name, const char *text)
{
    temp_folder_write(s, name, text, strlen(text));
}

static void folder_renders(temp_folder *s, const char *name, const char *want)
{
    bauta_chat_template *t;
    char *text = NULL;
    bauta_error err;
    if (bauta_chat_template_load(&t, s->folder, name, &err) ||
        bauta_chat_template_render(t, "{}", 2, &text, NULL, &err))
        fail_msg("%s", err.message);
    assert_string_equal(text, want);
    bauta_text_free(text);
    bauta_chat_template_free(t);
}

static void folder_has_none(temp_folder *s, const char *name)
{
    bauta_chat_template *t;
    bauta_error err;
    assert_int_equal(bauta_chat_template_load(&t, s->folder, name, &err),
                     BAUTA_ERR_UNSUPPORTED);
    assert_null(t);
    assert_non_null(strstr(err.message, "there is no chat template"));
}

static void templates_are_loaded_from_folders(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[600];
    folder_has_none(&s, NULL);
    write_text(&s, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    folder_has_none(&s, NULL);
    write_text(&s, "tokenizer_config.json",
               "{\"chat_template\": \"{{ bos_token }}a{{ eos_token }}\", "
               "\"bos_token\": \"<s>\", \"eos_token\": {\"content\": "
               "\"</s>\"}}");
    folder_renders(&s, NULL, "<s>a</s>");
    folder_renders(&s, "default", "<s>a</s>");
    folder_has_none(&s, "tool_use");
    write_text(&s, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"default\", \"template\": "
               "\"d\"}, {\"name\": \"tool_use\", \"template\": \"t\"}, 5, "
               "{\"name\": \"broken\", \"template\": 5}]}");
    folder_renders(&s, NULL, "d");
    folder_renders(&s, "tool_use", "t");
    folder_has_none(&s, "broken");
    write_text(&s, "chat_template.jinja", "{# of the file #}f\n");
    folder_renders(&s, NULL, "f");
    folder_renders(&s, "tool_use", "t");
    snprintf(path, sizeof(path), "%s/additional_chat_templates", s.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(&s, "additional_chat_templates/tool_use.jinja", "g");
    folder_renders(&s, "tool_use", "g");
    temp_folder_free(&s);
}

static void bad_folders_are_errors(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_chat_template *t;
    bauta_error err;
    assert_int_equal(bauta_chat_template_load(&t, s.folder, "../default", &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_chat_template_load(&t, s.folder, "", &err),
                     BAUTA_ERR_ARGUMENT);
    write_text(&s, "tokenizer_config.json", "{\"chat_template\": ");
    assert_int_equal(bauta_chat_template_load(&t, s.folder, NULL, &err),
                     BAUTA_ERR_FORMAT);
    write_text(&s, "tokenizer_config.json", "{\"chat_template\": \"{% if\"}");
    assert_int_equal(bauta_chat_template_load(&t, s.folder, NULL, &err),
                     BAUTA_ERR_FORMAT);
    assert_null(t);
    temp_folder_free(&s);
}

/* ---- Allocations --------------------------------------------------------- */

static const char everything[] =
    "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller(1) }}{% endmacro %}"
    "{% set ns = namespace(s='', l=[]) %}"
    "{% for m in messages if m.role != 'x' %}"
    "{% set ns.s = ns.s + m.content|upper ~ loop.length %}"
    "{% set k, v = m.content.split(',') %}{{ k.replace('a', 'b') }}"
    "{% set ns.l = ns.l + [k, v] %}{% endfor %}"
    "{% call(q) f({'a': [1, (2,)]}, **{'b': 2.5}) %}{{ q }}{% endcall %}"
    "{% set t | trim %} {{ ns.s }} {% endset %}"
    "{{ t }}{{ ns.l|sort|unique|map('string')|join(', ') }}"
    "{{ messages|tojson(indent=2, sort_keys=true) }}"
    "{{ messages|groupby('role')|list|length }}{{ '%s' % 1 }}"
    "{{ '{:>300}'.format('x')[::-1]|trim }}{{ messages[0].items()|list }}"
    "{{ strftime_now('%F') }}{{ dict(a=1)|dictsort }}{{ 'x' * 5000 }}";
static const char everything_variables[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a,b\"}, {\"role\": "
    "\"x\", \"content\": \"c,d\"}, {\"role\": \"y\", \"content\": \"e,f\"}], "
    "\"strftime_now\": \"2026-11-16T12:34:56\"}";

/* Memory comes in blocks, so that only some of the allocations of a rendering
 * reach the allocator. Padding moves the blocks' ends to all of them; with a
 * sanitizer to every fourth. */
#ifdef BT_SANITIZED
enum { PADS = 12, PAD_STRIDE = 4 };
#else
enum { PADS = 12, PAD_STRIDE = 1 };
#endif

static size_t parsing_fails(size_t pad)
{
    bauta_chat_template *t;
    bauta_error err;
    char *text = repeat("", "{{1}}", pad, everything);
    size_t k = 0;
    for (;; k++) {
        faults_arm(k);
        bauta_status status =
            bauta_chat_template_create(&t, text, strlen(text), &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(t);
        assert_int_equal(faults_live(), 0);
    }
    assert_non_null(t);
    bauta_chat_template_free(t);
    free(text);
    return k;
}

static void parsing_survives_failing_allocations(void **state)
{
    (void)state;
    size_t points = 0;
    faults_begin();
    for (size_t pad = 0; pad < PADS; pad += PAD_STRIDE)
        points += parsing_fails(pad);
    assert_int_equal(faults_end(), 0);
    printf("%zu allocations failed\n", points);
}

static size_t rendering_fails(const bauta_chat_template *t, size_t pad)
{
    char *text = NULL;
    bauta_error err;
    char *variables = repeat("{\"pad\": [", "0, ", pad, "0], ");
    size_t k = 0, size = strlen(variables) + sizeof(everything_variables);
    char *whole = malloc(size);
    assert_non_null(whole);
    strcat(strcpy(whole, variables), everything_variables + 1);
    for (;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_chat_template_render(
            t, whole, strlen(whole), &text, NULL, &err);
        if (!faults_disarm()) {
            if (status)
                fail_msg("%s", err.message);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(text);
        assert_int_equal(faults_live(), live);
    }
    assert_non_null(strstr(text, "A,B"));
    bauta_text_free(text);
    free(whole);
    free(variables);
    return k;
}

static void rendering_survives_failing_allocations(void **state)
{
    (void)state;
    bauta_chat_template *t;
    bauta_error err;
    size_t points = 0;
    faults_begin();
    assert_int_equal(bauta_chat_template_create(&t, everything,
                                                sizeof(everything) - 1, &err),
                     BAUTA_OK);
    for (size_t pad = 0; pad < 4 * PADS; pad += PAD_STRIDE)
        points += rendering_fails(t, pad);
    bauta_chat_template_free(t);
    assert_int_equal(faults_end(), 0);
    printf("%zu allocations failed\n", points);
}

static void loading_survives_failing_allocations(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_chat_template *t;
    bauta_error err;
    write_text(&s, "chat_template.jinja", "{{ bos_token }}");
    write_text(&s, "tokenizer_config.json",
               "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    write_text(&s, "config.json", "{}");
    faults_begin();
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status =
            bauta_chat_template_load(&t, s.folder, NULL, &err);
        if (!faults_disarm())
            break;
        // A path that is only for a message may be missing.
        if (status)
            assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(!t, status != BAUTA_OK);
        bauta_chat_template_free(t);
        assert_int_equal(faults_live(), 0);
    }
    assert_non_null(t);
    bauta_chat_template_free(t);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippets_give_the_text_of_jinja),
        cmocka_unit_test(public_models_give_the_text_of_transformers),
        cmocka_unit_test(text_may_contain_nul),
        cmocka_unit_test(tools_are_none_unless_given),
        cmocka_unit_test(the_time_is_now_or_given),
        cmocka_unit_test(variables_must_be_an_object),
        cmocka_unit_test(null_arguments_are_errors),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(large_templates_are_refused),
        cmocka_unit_test(long_chains_work),
        cmocka_unit_test(templates_cut_anywhere_are_survived),
        cmocka_unit_test(templates_of_random_tokens_are_survived),
        cmocka_unit_test(templates_are_loaded_from_folders),
        cmocka_unit_test(bad_folders_are_errors),
        cmocka_unit_test(parsing_survives_failing_allocations),
        cmocka_unit_test(rendering_survives_failing_allocations),
        cmocka_unit_test(loading_survives_failing_allocations),
    };
    return cmocka_run_group_tests_name("chat_template", tests, NULL, NULL);
}

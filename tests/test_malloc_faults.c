/* SPDX-License-Identifier: Apache-2.0 */
/* test_malloc_faults.c - malloc() fails below the library: in jansson and
 * PCRE2, where every allocation of a call fails in turn, once alone and once
 * with all that follow; and in cairo and fontconfig, where the process may not
 * grow. Nothing may crash or hang, and calls that succeed nevertheless must be
 * right. Each sweep runs in its own process. */
#include "malloc_faults.h"

#include "picture_fixtures.h"
#include "tiny_models.h"

#include "base/memory.h"
#include "series/codec.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char folder[512]; /* of the files that the calls read and write */

static const char *in_folder(const char *name)
{
    static char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* ---- The calls: *result is the same whenever they succeed ---------------- */

typedef bauta_status call_fn(const char *name, unsigned *result,
                             bauta_error *err);

static bauta_status encode(bauta_tokenizer *tokenizer, unsigned *result,
                           bauta_error *err)
{
    bauta_tokens t;
    bauta_status status =
        bauta_tokenizer_encode(tokenizer, "ab ba  c", 8, NULL, &t, err);
    if (status)
        return status;
    *result = (unsigned)bauta_tokenizer_vocab_size(tokenizer);
    for (size_t i = 0; i < t.count; i++)
        *result = 31 * *result + t.ids[i];
    bauta_tokens_release(&t);
    return BAUTA_OK;
}

static bauta_status load_tokenizer(const char *name, unsigned *result,
                                   bauta_error *err)
{
    bauta_tokenizer *tokenizer;
    bauta_status status =
        bauta_tokenizer_load(&tokenizer, in_folder(name), err);
    if (!status)
        status = encode(tokenizer, result, err);
    bauta_tokenizer_free(tokenizer);
    return status;
}

static bauta_status make_bytes(const char *name, unsigned *result,
                               bauta_error *err)
{
    (void)name;
    bauta_tokenizer *tokenizer;
    bauta_status status = bauta_tokenizer_bytes(&tokenizer, err);
    if (!status)
        status = encode(tokenizer, result, err);
    bauta_tokenizer_free(tokenizer);
    return status;
}

static bauta_status load_model(const char *name, unsigned *result,
                               bauta_error *err)
{
    bauta_model *model;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_status status = bauta_model_load(&model, in_folder(name), false, err);
    if (!status)
        status = bauta_generate_options_load(&options, model, err);
    if (!status)
        *result = (unsigned)(bauta_model_tensor_count(model) * 100 +
                             options.eos_token_count * 10 +
                             options.stop_string_count);
    bauta_model_free(model);
    return status;
}

static bauta_status render_chat(const char *name, unsigned *result,
                                bauta_error *err)
{
    static const char variables[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi \"}, "
        "{\"role\": \"tool\", \"content\": null}], "
        "\"tools\": [{\"name\": \"f\", \"arguments\": [1, 2.5, {}]}]}";
    bauta_chat_template *chat;
    char *text = NULL;
    bauta_status status =
        bauta_chat_template_load(&chat, in_folder(name), NULL, err);
    if (!status)
        status = bauta_chat_template_render(
            chat, variables, sizeof(variables) - 1, &text, NULL, err);
    *result = 0;
    for (const char *c = text; c && *c; c++)
        *result = 31 * *result + (unsigned char)*c;
    bauta_text_free(text);
    bauta_chat_template_free(chat);
    return status;
}

static bauta_status load_codec(const char *name, unsigned *result,
                               bauta_error *err)
{
    bauta_series_codec *codec;
    bauta_status status = bauta_series_codec_load(&codec, in_folder(name), err);
    if (!status)
        *result = (unsigned)bauta_series_codec_season(codec);
    bauta_series_codec_free(codec);
    return status;
}

/* A table, and all that training makes of it: a codec, its series.json within a
 * tokenizer, and a corpus. */
static bauta_status load_table(const char *name, unsigned *result,
                               bauta_error *err)
{
    bauta_series *series;
    bauta_series_codec *codec = NULL;
    bauta_tokenizer *tokenizer = NULL;
    bauta_corpus *corpus = NULL;
    bauta_status status =
        bauta_series_load(&series, in_folder(name), NULL, err);
    const bauta_series *const table = series;
    if (!status)
        status = bauta_series_codec_create(&codec, &table, 1, NULL, err);
    if (!status)
        status = bauta_series_codec_tokenizer(&tokenizer, codec, err);
    if (!status)
        status = bauta_series_corpus(&corpus, codec, &table, 1, 0, err);
    if (!status)
        *result = (unsigned)(bauta_series_rows(series) * 1000 +
                             bauta_tokenizer_vocab_size(tokenizer));
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
    bauta_series_codec_free(codec);
    bauta_series_free(series);
    return status;
}

static const struct {
    const char *what, *name;
    call_fn *call;
} calls[] = {
    { "a tokenizer.json", "json", load_tokenizer },
    { "a vocab.txt", "bert", load_tokenizer },
    { "vocab.json and merges.txt", "gpt2", load_tokenizer },
    { "a tokenizer of bytes", NULL, make_bytes },
    { "a model", "llama", load_model },
    { "a chat template", "chat", render_chat },
    { "a series.json", "series", load_codec },
    { "a table", "series/table.csv", load_table },
};

/* ---- Each allocation ------------------------------------------------------
 */

typedef struct progress {
    size_t k; /* the allocation that fails */
    char wrong[300];
    bool done;
} progress;

static void sweep(size_t which, bool dry, progress *p)
{
    unsigned want = 0;
    if (calls[which].call(calls[which].name, &want, NULL))
        snprintf(p->wrong, sizeof(p->wrong), "it fails by itself");
    for (; !*p->wrong; p->k++) {
        unsigned got = want;
        bauta_error err = { 0 };
        malloc_faults_arm(p->k, dry);
        bauta_status status = calls[which].call(calls[which].name, &got, &err);
        if (!malloc_faults_disarm())
            break;
        if (status ? status != BAUTA_ERR_NOMEM : got != want)
            snprintf(p->wrong, sizeof(p->wrong), "status %d: %s", (int)status,
                     status ? err.message : "another result");
    }
    p->done = true;
}

/* Run something in a child process with a time limit; returns its wait
 * status. */
static int apart(void (*run)(void *of), void *of)
{
    static const int deadly[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < BT_LEN(deadly); i++)
            signal(deadly[i], SIG_DFL); // cmocka would continue
        alarm(60);
        run(of);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

typedef struct sweep_job {
    size_t which;
    bool dry;
    progress *p;
} sweep_job;

static void sweep_run(void *of)
{
    const sweep_job *job = of;
    sweep(job->which, job->dry, job->p);
}

static void each_allocation_may_fail_below_the_library(void **state)
{
    (void)state;
    if (!malloc_faults_supported)
        skip();
    progress *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    for (size_t i = 0; i < 2 * BT_LEN(calls); i++) {
        sweep_job job = { i / 2, i % 2, p };
        memset(p, 0, sizeof(*p));
        int status = apart(sweep_run, &job);
        printf("%s%s: %zu allocations failed\n", calls[i / 2].what,
               i % 2 ? ", all that follow too" : "", p->k);
        if (status || !p->done || *p->wrong)
            fail_msg("allocation %zu: wait status 0x%x %s", p->k,
                     (unsigned)status, p->wrong);
        assert_true(p->k > 50); // jansson's are among them
    }
    munmap(p, sizeof(*p));
}

/* ---- Drawing --------------------------------------------------------------
 */

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

typedef struct drawing {
    const char *name;
    size_t bytes; /* by which the process may grow */
} drawing;

static void draw_run(void *of)
{
    const drawing *d = of;
    size_t now = address_space();
    struct rlimit limit = { now + d->bytes, now + d->bytes };
    bauta_mask *mask;
    if (bauta_mask_parse(&mask, "causal", 5, 5, NULL))
        _exit(2);
    bauta_picture p = picture_of(mask, NULL);
    p.row_labels = p.column_labels = tokens;
    if (!now || setrlimit(RLIMIT_AS, &limit))
        _exit(77);
    bauta_status status =
        bauta_picture_save(in_folder(d->name), &p, 1, NULL, NULL);
    bool refused =
        !status || status == BAUTA_ERR_NOMEM || status == BAUTA_ERR_UNSUPPORTED;
    _exit(refused ? 0 : 3);
}

static void allocation_failure_while_drawing_is_an_error(void **state)
{
    (void)state;
    if (!malloc_faults_supported)
        skip(); // sanitizers reserve all of the address space
    static const char *const names[] = { "a.png", "a.svg", "a.pdf" };
    for (size_t i = 0; i < BT_LEN(names); i++)
        for (size_t kib = 256; kib < 400 << 10; kib += kib / 4) {
            drawing d = { names[i], kib << 10 };
            int status = apart(draw_run, &d);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip();
            if (status)
                fail_msg("%s with %zu KiB: wait status 0x%x", names[i], kib,
                         (unsigned)status);
        }
}

/* ---- Files ----------------------------------------------------------------
 */

static const char json_text[] =
    "{\"padding\": {\"a\": [1, 2, {}]},"
    "\"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true}],"
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
    "{\"type\": \"NFC\"}, {\"type\": \"Replace\", \"pattern\": "
    "{\"Regex\": \" {2,}\"}, \"content\": \" \"}]},"
    "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"\\\\p{L}+|\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": false},"
    "\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"<s>\", 3],"
    "\"cls\": [\"<s>\", 3]}, \"decoder\": {\"type\": \"Fuse\"},"
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2,"
    "\"\\u00e9 is longer than any buffer is at first\": 4}, \"merges\": "
    "[\"a b\"], \"unk_token\": \"a\"}}";

static void file_write(const char *in, const char *name, const char *text)
{
    const char *path = in_folder(in);
    (void)mkdir(path, 0777);
    tiny_file(path, name, text, strlen(text));
}

/* A table, and the series.json of a codec for it. */
static void series_write(void)
{
    char csv[4096] = "month,\"a, b\",note\n", *at = csv + strlen(csv);
    bauta_series *series;
    bauta_series_codec *codec;
    char *text;
    for (int i = 0; i < 100; i++)
        at += sprintf(at, "%d-%02d,%d.5,x\n", 2000 + i / 12, 1 + i % 12,
                      10 + i % 12);
    file_write("series", "table.csv", csv);
    assert_int_equal(
        bauta_series_load(&series, in_folder("series/table.csv"), NULL, NULL),
        BAUTA_OK);
    const bauta_series *const table = series;
    assert_int_equal(bauta_series_codec_create(&codec, &table, 1, NULL, NULL),
                     BAUTA_OK);
    assert_int_equal(bt_codec_write(&text, codec, NULL), BAUTA_OK);
    file_write("series", "series.json", text);
    bt_free(text);
    bauta_series_codec_free(codec);
    bauta_series_free(series);
}

static void folders_write(temp_folder *s)
{
    char path[512];
    snprintf(folder, sizeof(folder), "%s", s->folder);
    file_write("json", "tokenizer.json", json_text);
    file_write("json", "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656, "
               "\"bos_token\": \"<s>\"}");
    file_write("bert", "vocab.txt",
               "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nc\n");
    file_write("gpt2", "vocab.json",
               "{\"a\": 0, \"b\": 1, \"ab\": 2, \"c\": 3, \"\\u0120\": 4}");
    file_write("gpt2", "merges.txt", "#version: 0.2\na b\n");
    file_write("chat", "chat_template.jinja",
               "{% macro say(m) %}<{{ m.role | upper }}>{% endmacro %}"
               "{% set ns = namespace(count=0) %}{{ tools | tojson }}"
               "{% for m in messages if m.role in ['user', 'tool'] %}"
               "{% set ns.count = ns.count + 1 %}{{ say(m) }}"
               "{{ (m.content or 'none').strip().replace('i', 'ey') }}"
               "{{ '%s of %d' | format(ns.count, messages | length) }}"
               "{% endfor %}{{ bos_token }}");
    series_write();
    file_write("chat", "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (!strcmp(tinies[i].name, "llama"))
            tiny_write(s, &tinies[i], path);
    file_write("llama", "generation_config.json",
               "{\"eos_token_id\": [1, 2], \"stop_strings\": [\"x\"]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail_below_the_library),
        cmocka_unit_test(allocation_failure_while_drawing_is_an_error),
    };
    temp_folder s = temp_folder_create();
    folders_write(&s);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_free(&s);
    return failed;
}

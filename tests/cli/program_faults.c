/* SPDX-License-Identifier: Apache-2.0 */
/* program_faults.c - the program when memory runs out, a file call fails or it
 * is killed, at every point of every verb.
 *
 * In each case the program ends with a status and, if that is not 0, with a
 * message; it never crashes or hangs, and a result with status 0 is correct. A
 * training run can be resumed afterwards, and ends with the bits of one that
 * was never disturbed.
 *
 * A few points are drawn from BAUTA_SEED; with BAUTA_FAULTS=N it is N of each
 * kind, with BAUTA_FAULTS=all all of them. Arguments choose one verb and one
 * kind of fault; --list lists the verbs. */
#include "temp_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef struct verb {
    const char *name;
    const char *line;   /* words with single spaces */
    const char *result; /* a file; NULL: its output contains times */
    const char *from;   /* a run that `w` is a copy of; NULL: there is none */
    bool trains;        /* into w */
} verb;

#define TINY                                                              \
    "--set n_layer=1 --set n_embd=8 --set n_head=1 --context 8 "          \
    "--batch-size 1 --threads 1 --steps 3 --save-every 1 --eval-every 2 " \
    "--warmup 2"
#define TRAIN                                                        \
    "train --preset gpt2-tiny " TINY " --tokenizer chars --average " \
    "2 --valid-share 0.3 --out "
#define SMALL "--threads 1 --steps 1 --eval-every 0 --batch-tokens 32 --out "
#define RESUME "train --resume w --threads 1"

static const char *const models[] = {
    TRAIN "g text",
    "train --preset bert-tiny --set num_hidden_layers=1 --set hidden_size=8 "
    "--set intermediate_size=8 --set num_attention_heads=1 --tokenizer "
    "wordpiece:60 --lines " SMALL "b text",
    "train --preset transformer-tiny --set encoder_layers=1 --set "
    "decoder_layers=1 --set d_model=8 --set encoder_ffn_dim=8 --set "
    "decoder_ffn_dim=8 --set encoder_attention_heads=1 --set "
    "decoder_attention_heads=1 --tokenizer unigram:40 --source text --target "
    "text " SMALL "m",
};

#define MODEL "w/last/model.safetensors"
static const verb verbs[] = {
    { "train", TRAIN "w text", MODEL, NULL, true },
    { "resume", RESUME, MODEL, "half", true },
    { "generate", "generate g the -n 4 --greedy --quiet --threads 1", "out",
      NULL, false },
    { "beams", "generate g the -n 4 --beams 2 --quiet --threads 1", "out", NULL,
      false },
    { "translate", "translate m --file line --max-tokens 4 --threads 1", "out",
      NULL, false },
    { "fill", "fill b the[MASK]mask --threads 1", "out", NULL, false },
    { "embed", "embed b --threads 1 the", "out", NULL, false },
    { "perplexity", "score --perplexity g text --threads 1", "out", NULL,
      false },
    { "score", "score --ref text text", "out", NULL, false },
    { "look", "look g the --threads 1", "out", NULL, false },
    { "page", "look g the --threads 1 --out page.html", "page.html", NULL,
      false },
    { "tokenize", "tokenize g the", "out", NULL, false },
    { "tokenizer", "tokenizer train --kind bpe --pieces 270 --out t text",
      "t/tokenizer.json", NULL, false },
    { "inspect", "inspect g", "out", NULL, false },
    { "audit", "audit g --threads 1 --tokens 8", NULL, NULL, false },
};

static struct {
    bool all;
    size_t some;      /* points of each kind; 0: a few */
    const char *kind; /* the only one; NULL: all */
    test_random random;
    size_t cases, bad;
} state;

/* ---- processes --------------------------------------------------------- */

static void words_split(char **words, size_t room, char *line)
{
    size_t count = 0;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        assert_true(count + 1 < room);
        words[count++] = word;
    }
    words[count] = NULL;
}

static void child_run(const char *line, const char *fault)
{
    char copy[1024], *words[64] = { (char *)(uintptr_t)BAUTA_PROGRAM };
    snprintf(copy, sizeof(copy), "%s", line);
    words_split(words + 1, 63, copy);
    int out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(99);
    close(out);
    close(err);
    setenv("LD_PRELOAD", BAUTA_FAULT_LIBRARY, 1);
    if (fault)
        setenv("BAUTA_FAIL_AT", fault, 1);
    alarm(120); // a hang ends by this
    execv(BAUTA_PROGRAM, words);
    _exit(98);
}

/* The status of waitpid(). */
static int run(const char *line, const char *fault)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(line, fault);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Killed after some time; returns whether it was. */
static bool run_killed(const char *line, useconds_t time)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(line, NULL);
    usleep(time);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

/* ---- files ------------------------------------------------------------- */

typedef struct content {
    char *bytes;
    size_t size;
} content;

static content content_read(const char *path)
{
    content c = { NULL, 0 };
    FILE *file = fopen(path, "rb");
    if (!file)
        return c;
    c.bytes = malloc(1 << 22);
    assert_non_null(c.bytes);
    c.size = fread(c.bytes, 1, 1 << 22, file);
    fclose(file);
    return c;
}

static bool content_same(const content *a, const char *path)
{
    content b = content_read(path);
    bool same = a->bytes && b.bytes && a->size == b.size &&
                memcmp(a->bytes, b.bytes, a->size) == 0;
    free(b.bytes);
    return same;
}

static void copy(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof(command), "cp -R %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* The initial state of a case. */
static void reset(const verb *v)
{
    temp_folder_remove("w");
    temp_folder_remove("t");
    temp_folder_remove("page.html");
    if (v->from)
        copy(v->from, "w");
}

/* ---- one case ---------------------------------------------------------- */

static void complain(const verb *v, const char *fault, const char *what,
                     int status)
{
    content err = content_read("err");
    if (state.bad++ < 10)
        printf("%s, %s: %s (%s %d)\n%.*s\n", v->name, fault, what,
               WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
               (int)err.size, err.bytes ? err.bytes : "");
    free(err.bytes);
}

/* A disturbed run is resumed. */
static void recover(const verb *v, const char *fault, const content *want)
{
    struct stat is;
    bool begun = stat("w/last", &is) == 0;
    for (int i = 1; !begun && i <= 3; i++) {
        char path[64];
        snprintf(path, sizeof(path), "w/step-%08d/trainer.json", i);
        begun = stat(path, &is) == 0;
    }
    int status = run(begun ? RESUME : v->line, NULL);
    if (status != 0)
        complain(v, fault, "the run cannot be gone on with", status);
    else if (!content_same(want, v->result))
        complain(v, fault, "what was gone on with is another model", status);
}

static void case_run(const verb *v, const char *kind, size_t k,
                     const content *want)
{
    char fault[64];
    snprintf(fault, sizeof(fault), "%s:%zu", kind, k);
    reset(v);
    int status = run(v->line, fault);
    struct stat info;
    bool killed = strcmp(kind, "kill") == 0 && WIFSIGNALED(status) &&
                  WTERMSIG(status) == SIGKILL;
    state.cases++;
    if (!killed && (!WIFEXITED(status) || WEXITSTATUS(status) > 1))
        complain(v, fault, "it did not end by itself", status);
    else if (status && !killed && (stat("err", &info) || info.st_size == 0))
        complain(v, fault, "there is no sentence", status);
    else if (status == 0 && v->result && !content_same(want, v->result))
        complain(v, fault, "the result is another one", status);
    if (v->trains)
        recover(v, fault, want);
}

/* ---- one verb ---------------------------------------------------------- */

static void kind_run(const verb *v, const char *kind, size_t count, size_t some,
                     const content *want)
{
    if (state.kind && strcmp(state.kind, kind) != 0)
        return;
    for (size_t i = 0; i < (state.all ? count : some); i++)
        case_run(v, kind, state.all ? i : test_below(&state.random, count),
                 want);
}

static void kills_run(const verb *v, size_t count, const content *want)
{
    reset(v);
    for (size_t i = 0; i < count; i++) {
        useconds_t time = (useconds_t)test_below(&state.random, 20000);
        state.cases++;
        (void)run_killed(v->line, time);
        recover(v, "a kill", want);
        reset(v);
    }
}

static void verb_run(const verb *v)
{
    size_t allocations = 0, calls = 0;
    reset(v);
    setenv("BAUTA_FAULT_COUNT", "count", 1);
    int status = run(v->line, NULL);
    unsetenv("BAUTA_FAULT_COUNT");
    if (status)
        complain(v, "no fault", "it fails", status);
    content want = v->result ? content_read(v->result) : (content){ NULL, 0 };
    FILE *file = fopen("count", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &allocations, &calls), 2);
    fclose(file);
    printf("%-10s %6zu allocations, %4zu calls for files\n", v->name,
           allocations, calls);
    assert_true(allocations > 10 && calls > 1);
    size_t some = state.some ? state.some : v->trains ? 8 : 4;
    kind_run(v, "alloc", allocations, some, &want);
    kind_run(v, "memory", allocations, some / 2, &want);
    kind_run(v, "file", calls, some, &want);
    kind_run(v, "full", calls, some / 2, &want);
    if (v->trains) {
        kind_run(v, "kill", calls, some, &want);
        if (!state.kind)
            kills_run(v, state.all ? 200 : 1 + some / 4, &want);
    }
    free(want.bytes);
}

/* A run that stopped after its first step. */
static void half_make(void)
{
    copy("g", "half");
    for (int i = 2; i <= 3; i++) {
        char path[64];
        snprintf(path, sizeof(path), "half/step-%08d", i);
        temp_folder_remove(path);
    }
    temp_folder_remove("half/last");
    temp_folder_remove("half/best");
    temp_folder_remove("half/average");
    assert_int_equal(symlink("step-00000001", "half/last"), 0);
}

static void texts_make(temp_folder *s)
{
    static const char text[] =
        "the mask hides the face\nand the face is behind the mask\n"
        "a bauta lets its wearer speak\n";
    temp_folder_write(s, "text", text, sizeof(text) - 1);
    temp_folder_write(s, "line", text, 24);
}

static int list(void)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        puts(verbs[i].name);
    return 0;
}

int main(int argc, char **argv)
{
    const char *all = getenv("BAUTA_FAULTS");
    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list();
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    temp_folder s = temp_folder_create();
    state.all = all && strcmp(all, "all") == 0;
    state.some = all ? strtoul(all, NULL, 10) : 0;
    state.kind = argc > 2 ? argv[2] : NULL;
    state.random = test_random_from(test_seed());
    assert_int_equal(chdir(s.folder), 0);
    texts_make(&s);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (run(models[i], NULL) != 0) {
            printf("%s\n", models[i]);
            (void)!system("cat err");
            return 1;
        }
    half_make();
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (argc < 2 || strcmp(argv[1], verbs[i].name) == 0)
            verb_run(&verbs[i]);
    printf("%zu faults, %zu of them badly met\n", state.cases, state.bad);
    assert_int_equal(chdir("/"), 0);
    temp_folder_free(&s);
    return state.bad != 0;
}

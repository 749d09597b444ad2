/* SPDX-License-Identifier: Apache-2.0 */
/* test_lab.c - the corpus and the optimizer of the experiments of bauta lab.
 * The experiments themselves are run by tests/cli/lab.sh. */
#include "../cli/cli.h"
#include "../lab/lab_train.h"
#include "allocation_faults.h"
#include "testing.h"

#include <math.h>
#include <string.h>

/* Stands in for the program's error output. */
static char message[512];

int cli_fail(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = snprintf(message, sizeof(message), "%s: ", verb);
    vsnprintf(message + used, sizeof(message) - (size_t)used, format, args);
    va_end(args);
    return CLI_FAILED;
}

int lab_failed(const bauta_error *err)
{
    return cli_fail("lab", "%s", err->message);
}

static bauta_context *context;

static int context_make(void **state)
{
    (void)state;
    return (int)bauta_context_create(&context, NULL, NULL);
}

static int context_release(void **state)
{
    (void)state;
    bauta_context_free(context);
    return 0;
}

/* ---- a small model ------------------------------------------------------ */

static bauta_model *model_small(void)
{
    static const char overrides[] =
        "{\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 8, \"n_positions\": 4}";
    bauta_tokenizer *tokenizer;
    bauta_model *model;
    assert_int_equal(bauta_tokenizer_characters(&tokenizer, "abcde", 5, NULL),
                     BAUTA_OK);
    assert_int_equal(
        lab_model_make(&model, "gpt2-tiny", overrides, tokenizer, 3), CLI_OK);
    bauta_tokenizer_free(tokenizer);
    return model;
}

static bauta_tensor tensor_at(const bauta_model *model, size_t index)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_tensor(model, index, &t, NULL), BAUTA_OK);
    return t;
}

/* Random gradients from -size to size. */
static void gradients_draw(const bauta_model *model, test_random *r, float size)
{
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; k < t.count; k++)
            t.gradient[k] = size * test_float(r);
    }
}

/* ---- the optimizer ------------------------------------------------------ */

enum { STEPS = 20, NUMBERS_MAX = 4096 };

/* AdamW as its paper defines it, in double and for one number at a time. */
typedef struct number {
    double value, first, second;
} number;

static double rate_of(size_t step, double rate)
{
    // Up over 2 steps, then down from 1 to 1/10 over 18.
    return step <= 2 ? rate * (double)step / 2.0
                     : rate * (1.0 - 0.9 * (double)(step - 2) / 18.0);
}

static void number_step(number *n, double g, size_t step, double rate,
                        double decay)
{
    n->first = 0.9 * n->first + 0.1 * g;
    n->second = 0.99 * n->second + 0.01 * g * g;
    double mean = n->first / (1.0 - pow(0.9, (double)step));
    double square = n->second / (1.0 - pow(0.99, (double)step));
    n->value -= rate * decay * n->value;
    n->value -= rate * mean / (sqrt(square) + 1e-8);
}

static double norm_of(const bauta_model *model)
{
    double squares = 0.0;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; k < t.count; k++)
            squares += (double)t.gradient[k] * (double)t.gradient[k];
    }
    return sqrt(squares);
}

static void numbers_step(number *n, const bauta_model *model, size_t step,
                         double rate)
{
    double norm = norm_of(model), scale = norm > 1.0 ? 1.0 / norm : 1.0;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; k < t.count; k++, n++)
            number_step(n, scale * (double)t.gradient[k], step,
                        rate_of(step, rate), t.rank == 2 ? 0.1 : 0.0);
    }
}

/* The learner keeps float32: each step rounds a parameter once, 2^-24 of it,
 * and the moments, whose errors are carried on; the quotient of moments is at
 * most 10 and its error after t steps some t roundings. The clipped norm is off
 * by 1e-6 at most, which changes the quotient where epsilon counts, by less
 * than 1e-6. */
static double bound_of(double value, double rate)
{
    double roundings = STEPS * 0x1p-24;
    return roundings * fabs(value) + STEPS * rate * (10.0 * roundings + 1e-6);
}

static void the_learner_equals_adamw(void **state)
{
    (void)state;
    static number numbers[NUMBERS_MAX];
    const double rate = 0.01;
    test_random r = test_random_from(test_seed());
    bauta_model *model = model_small();
    learner *l;
    assert_int_equal(learner_create(&l, context, model, rate, STEPS), CLI_OK);
    assert_true(bauta_model_parameter_count(model) <= NUMBERS_MAX);
    number *n = numbers;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; k < t.count; k++)
            *n++ = (number){ (double)t.data[k], 0.0, 0.0 };
    }
    for (size_t step = 1; step <= STEPS; step++) {
        // Every other step is clipped: there are some hundred numbers.
        gradients_draw(model, &r, step % 2 ? 1.0f : 0.01f);
        assert_int_equal(norm_of(model) > 1.0, step % 2);
        numbers_step(numbers, model, step, rate);
        assert_int_equal(learner_step(l), CLI_OK);
        assert_true(norm_of(model) == 0.0);
    }
    n = numbers;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = tensor_at(model, i);
        for (size_t k = 0; k < t.count; k++, n++)
            if (!(fabs((double)t.data[k] - n->value) <=
                  bound_of(n->value, rate)))
                fail_msg("%s[%zu] is %.9g, want %.9g within %.3g", t.name, k,
                         (double)t.data[k], n->value, bound_of(n->value, rate));
    }
    learner_free(l);
    bauta_model_free(model);
}

static void without_gradients_only_matrices_decay(void **state)
{
    (void)state;
    bauta_model *model = model_small(), *before = model_small();
    learner *l;
    assert_int_equal(learner_create(&l, context, model, 0.5, 1), CLI_OK);
    assert_int_equal(learner_step(l), CLI_OK);
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor now = tensor_at(model, i), then = tensor_at(before, i);
        for (size_t k = 0; k < now.count; k++)
            assert_true(now.data[k] ==
                        (now.rank == 2 ? (float)(1.0 - 0.5 * 0.1) * then.data[k]
                                       : then.data[k]));
    }
    learner_free(l);
    bauta_model_free(model);
    bauta_model_free(before);
}

static void gradients_that_are_not_finite_change_nothing(void **state)
{
    (void)state;
    bauta_model *model = model_small(), *before = model_small();
    learner *l;
    bauta_tensor t = tensor_at(model, 0);
    assert_int_equal(learner_create(&l, context, model, 0.5, 1), CLI_OK);
    t.gradient[1] = NAN;
    assert_int_equal(learner_step(l), CLI_FAILED);
    assert_non_null(strstr(message, "is not finite"));
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        t = tensor_at(model, i);
        assert_memory_equal(t.data, tensor_at(before, i).data,
                            t.count * sizeof(*t.data));
    }
    learner_free(l);
    bauta_model_free(model);
    bauta_model_free(before);
}

/* ---- the text ----------------------------------------------------------- */

typedef int make_fn(lab_corpus *t, size_t sentences, uint64_t seed);
static make_fn *const makes[] = { lab_corpus_make, lab_corpus_make_words };
enum { KINDS = 2, SENTENCES = 2000 };

static void assert_same_tokens(const uint32_t *a, size_t a_count,
                               const uint32_t *b, size_t b_count)
{
    assert_int_equal(a_count, b_count);
    assert_memory_equal(a, b, a_count * sizeof(*a));
}

static void a_seed_gives_the_same_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        lab_corpus a, b, c;
        assert_int_equal(makes[i](&a, 300, 5), CLI_OK);
        assert_int_equal(makes[i](&b, 300, 5), CLI_OK);
        assert_int_equal(makes[i](&c, 300, 6), CLI_OK);
        assert_same_tokens(a.train, a.train_count, b.train, b.train_count);
        assert_same_tokens(a.valid, a.valid_count, b.valid, b.valid_count);
        size_t both =
            a.train_count < c.train_count ? a.train_count : c.train_count;
        assert_memory_not_equal(a.train, c.train, both * sizeof(*a.train));
        lab_corpus_release(&a);
        lab_corpus_release(&b);
        lab_corpus_release(&c);
    }
}

/* The documents of a corpus, concatenated, are the text. */
static void assert_holds(const bauta_corpus *corpus, const uint32_t *ids,
                         size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < bauta_corpus_documents(corpus); i++) {
        size_t size;
        const uint32_t *document =
            bauta_corpus_document(corpus, i, &size, NULL, NULL);
        assert_true(at + size <= count);
        assert_memory_equal(document, ids + at, size * sizeof(*ids));
        at += size;
    }
    assert_int_equal(at, count);
}

static void the_corpora_hold_the_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        lab_corpus t;
        assert_int_equal(makes[i](&t, 300, 5), CLI_OK);
        assert_holds(t.train_corpus, t.train, t.train_count);
        assert_holds(t.valid_corpus, t.valid, t.valid_count);
        assert_int_equal(bauta_corpus_documents(t.train_corpus), i ? 270 : 1);
        assert_int_equal(bauta_corpus_documents(t.valid_corpus), i ? 30 : 1);
        lab_corpus_release(&t);
    }
}

/* Lines of a text, sorted. */
typedef struct sorted {
    char *text, **lines;
    size_t count;
} sorted;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static sorted lines_of(const lab_corpus *t, const uint32_t *ids, size_t count)
{
    sorted s = { .lines = calloc(SENTENCES, sizeof(char *)) };
    assert_non_null(s.lines);
    assert_int_equal(bauta_tokenizer_decode(t->tokenizer, ids, count, NULL,
                                            &s.text, NULL, NULL),
                     BAUTA_OK);
    for (char *line = strtok(s.text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(s.count < SENTENCES);
        s.lines[s.count++] = line;
    }
    qsort(s.lines, s.count, sizeof(*s.lines), by_text);
    return s;
}

static void sorted_release(sorted *s)
{
    bauta_text_free(s->text);
    free(s->lines);
}

static void validation_text_is_not_trained_on(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t k = 0; k < 10; k++) {
        lab_corpus t;
        assert_int_equal(lab_corpus_make(&t, SENTENCES, seed + k), CLI_OK);
        sorted train = lines_of(&t, t.train, t.train_count);
        sorted valid = lines_of(&t, t.valid, t.valid_count);
        assert_int_equal(train.count, SENTENCES - SENTENCES / 10);
        assert_int_equal(valid.count, SENTENCES / 10);
        for (size_t i = 0; i < valid.count; i++)
            assert_null(bsearch(&valid.lines[i], train.lines, train.count,
                                sizeof(*train.lines), by_text));
        sorted_release(&train);
        sorted_release(&valid);
        lab_corpus_release(&t);
    }
}

static void a_word_is_a_token(void **state)
{
    (void)state;
    lab_corpus t;
    size_t count;
    assert_int_equal(lab_corpus_make_words(&t, SENTENCES, 5), CLI_OK);
    const uint32_t *ids =
        bauta_corpus_document(t.train_corpus, 0, &count, NULL, NULL);
    static const char *const want[] = { "[CLS]", "i", "love",
                                        "you",   ".", "[SEP]" };
    assert_int_equal(count, 6);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(bauta_tokenizer_piece(t.tokenizer, ids[i], NULL),
                            want[i]);
    // No piece of a word anywhere.
    for (size_t i = 0; i < t.valid_count; i++)
        assert_int_not_equal(
            bauta_tokenizer_piece(t.tokenizer, t.valid[i], NULL)[0], '#');
    lab_corpus_release(&t);
}

/* ---- the rest ----------------------------------------------------------- */

static void surprise_is_the_negative_log_probability(void **state)
{
    (void)state;
    const float logits[] = { 0.0f, logf(2.0f), logf(5.0f) };
    bool right;
    assert_true(fabs(lab_cross_entropy(logits, 3, 1, &right) - log(4.0)) <
                1e-6);
    assert_false(right);
    assert_true(fabs(lab_cross_entropy(logits, 3, 2, &right) - log(1.6)) <
                1e-6);
    assert_true(right);
    const float large[] = { 1000.0f, -1000.0f };
    assert_true(lab_cross_entropy(large, 2, 0, NULL) == 0.0);
    assert_true(lab_cross_entropy(large, 2, 1, NULL) == 2000.0);
}

/* The linker redirects the allocations of the program's files to these. */
static size_t to_fail; /* allocations up to and with the one that fails */
static bool did_fail;

static bool must_fail(void)
{
    bool now = to_fail == 1;
    did_fail = did_fail || now;
    to_fail -= to_fail > 0;
    return now;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return must_fail() ? NULL : __real_realloc(memory, size);
}

static void arm(size_t k)
{
    did_fail = false;
    to_fail = k + 1;
}

static bool disarm(void)
{
    to_fail = 0;
    return did_fail;
}

static void program_allocation_failure_gives_no_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        size_t k = 0;
        for (bool failed = true; failed; k++) {
            lab_corpus t;
            arm(k);
            int status = makes[i](&t, 20, 5);
            failed = disarm();
            assert_int_equal(status, failed ? CLI_FAILED : CLI_OK);
            if (failed)
                assert_string_equal(message, "lab: out of memory");
            lab_corpus_release(&t);
        }
        assert_true(k > 4);
    }
}

static void allocation_failure_gives_no_learner(void **state)
{
    (void)state;
    bauta_model *model = model_small();
    size_t k = 0;
    for (bool failed = true; failed; k++) {
        arm(k);
        learner *l;
        int status = learner_create(&l, context, model, 0.1, 10);
        failed = disarm();
        assert_int_equal(status, failed ? CLI_FAILED : CLI_OK);
        assert_int_equal(l == NULL, failed);
        if (failed)
            assert_string_equal(message, "lab: out of memory");
        learner_free(l);
    }
    assert_int_equal(k, 2);
    bauta_model_free(model);
}

static void allocation_failure_gives_no_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        size_t k = 0;
        faults_begin();
        for (;; k++) {
            lab_corpus t;
            faults_arm(k);
            int status = makes[i](&t, 20, 5);
            bool failed = faults_disarm();
            assert_int_equal(status, failed ? CLI_FAILED : CLI_OK);
            lab_corpus_release(&t);
            assert_int_equal(faults_live(), 0);
            if (!failed)
                break;
        }
        assert_true(k > 5);
        assert_int_equal(faults_end(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_learner_equals_adamw),
        cmocka_unit_test(without_gradients_only_matrices_decay),
        cmocka_unit_test(gradients_that_are_not_finite_change_nothing),
        cmocka_unit_test(a_seed_gives_the_same_text),
        cmocka_unit_test(the_corpora_hold_the_text),
        cmocka_unit_test(validation_text_is_not_trained_on),
        cmocka_unit_test(a_word_is_a_token),
        cmocka_unit_test(surprise_is_the_negative_log_probability),
        cmocka_unit_test(allocation_failure_gives_no_text),
        cmocka_unit_test(program_allocation_failure_gives_no_text),
        cmocka_unit_test(allocation_failure_gives_no_learner),
    };
    return cmocka_run_group_tests_name("lab", tests, context_make,
                                       context_release);
}

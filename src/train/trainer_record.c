/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_record.c - trainer.json: writing it, and comparing it with a trainer.
 *
 * The options of a trainer are compared as JSON, member by member, so that one
 * list serves both directions and the error names the option that differs. */
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/json.h"
#include "runtime/context.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bauta_status fail_nomem(bauta_error *err)
{
    return bt_fail_memory(err, "a record of training", 0);
}

/* ---- values -------------------------------------------------------------- */

/* Numbers beyond JSON's 64-bit integers are written as strings. */
static json_t *number(uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

static json_t *digits(uint64_t digest)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, digest);
    return json_string(text);
}

static json_t *enum_name(unsigned value, const char *const *names)
{
    return json_string(names[value]);
}

/* ---- options ------------------------------------------------------------- */

static const char *const objectives[] = { "auto", "causal", "seq2seq", "masked",
                                          "prefix" };
static const char *const modes[] = { "parallel", "sequential", "free",
                                     "scheduled" };
static const char *const schedules[] = { "constant", "linear", "cosine",
                                         "inverse_sqrt" };

/* All options that must be the same to resume a run. `steps` is not one of
 * them: it only sets the length of the run and of the schedule. */
static json_t *options_make(const bauta_train_options *o)
{
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        { "objective", enum_name((unsigned)o->objective, objectives) },
        { "mode", enum_name((unsigned)o->mode, modes) },
        { "seed", number(o->seed) },
        { "batch_sequences", number(o->batch_sequences) },
        { "batch_tokens", number(o->batch_tokens) },
        { "gradient_accumulation_steps",
          number(o->gradient_accumulation_steps) },
        { "microbatch_tokens", number(o->microbatch_tokens) },
        { "context_length", number(o->context_length) },
        { "dropout", json_real((double)o->dropout) },
        { "label_smoothing", json_real((double)o->label_smoothing) },
        { "mlm_probability", json_real((double)o->mlm_probability) },
        { "mlm_random", json_real((double)o->mlm_random) },
        { "mlm_keep", json_real((double)o->mlm_keep) },
        { "scheduled_sampling", json_real((double)o->scheduled_sampling) },
        { "warmup_steps", number(o->warmup_steps) },
        { "lr_scheduler_type",
          enum_name((unsigned)o->lr_scheduler_type, schedules) },
        { "learning_rate", json_real(o->learning_rate) },
        { "min_learning_rate", json_real(o->min_learning_rate) },
        { "adam_beta1", json_real(o->adam_beta1) },
        { "adam_beta2", json_real(o->adam_beta2) },
        { "adam_epsilon", json_real(o->adam_epsilon) },
        { "weight_decay", json_real(o->weight_decay) },
        { "max_grad_norm", json_real(o->max_grad_norm) },
        { "ema_decay", json_real(o->ema_decay) },
    };
    json_t *object = json_object();
    bool failed = !object;
    for (size_t i = 0; i < BT_LEN(members); i++)
        failed |=
            json_object_set_new(object, members[i].key, members[i].value) != 0;
    // A run without lanes is as it was before there were lanes.
    if (o->lanes > 1)
        failed |= json_object_set_new(object, "lanes", number(o->lanes)) != 0;
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

/* Options that version 0.1 stored under another name. */
static const struct {
    const char *key, *older;
} renamed[] = {
    { "batch_sequences", "sequences" },
    { "batch_tokens", "tokens" },
    { "gradient_accumulation_steps", "accumulate" },
    { "microbatch_tokens", "pass" },
    { "context_length", "context" },
    { "label_smoothing", "smoothing" },
    { "mlm_probability", "hidden" },
    { "mlm_random", "hidden_random" },
    { "mlm_keep", "hidden_kept" },
    { "scheduled_sampling", "sampled" },
    { "warmup_steps", "warmup" },
    { "lr_scheduler_type", "schedule" },
    { "learning_rate", "rate" },
    { "min_learning_rate", "min_rate" },
    { "adam_beta1", "beta1" },
    { "adam_beta2", "beta2" },
    { "adam_epsilon", "epsilon" },
    { "max_grad_norm", "clip" },
    { "ema_decay", "average" },
};

/* The saved value of an option under its name or that of version 0.1. */
static const json_t *saved_option(const json_t *saved, const char *key)
{
    const json_t *value = json_object_get(saved, key);
    for (size_t i = 0; !value && i < BT_LEN(renamed); i++)
        if (strcmp(key, renamed[i].key) == 0)
            value = json_object_get(saved, renamed[i].older);
    return value;
}

/* ---- digests ------------------------------------------------------------- */

/* The tokenizer's properties that the masked objective depends on. */
static uint64_t tokenizer_digest(const bauta_trainer *t)
{
    uint64_t digest = 1;
    if (t->options.objective != BAUTA_OBJECTIVE_MASKED || !t->tokenizer)
        return 0;
    for (size_t i = 0; i < bauta_tokenizer_vocab_size(t->tokenizer); i++)
        digest = bt_digest_mix(
            digest, bauta_tokenizer_is_special(t->tokenizer, (uint32_t)i));
    return bt_digest_mix(digest, t->objective.mask_token);
}

/* Digests that must match for a run to continue. */
enum { CORPUS, CONFIG, WEIGHTS, TOKENIZER, DIGESTS };
static const struct {
    const char *key, *what;
} digest_names[DIGESTS] = {
    [CORPUS] = { "corpus", "the corpus is" },
    [CONFIG] = { "config", "the model's config is" },
    [WEIGHTS] = { "weights", "the model's weights are" },
    [TOKENIZER] = { "tokenizer", "the tokenizer's special tokens are" },
};

static bauta_status digests_set(uint64_t digests[DIGESTS],
                                const bauta_trainer *t, const float *weights,
                                bauta_error *err)
{
    digests[CORPUS] = t->corpus ? bt_corpus_digest(t->corpus) : 0;
    digests[WEIGHTS] = bt_model_weights_digest(t->model, weights);
    digests[TOKENIZER] = tokenizer_digest(t);
    return bt_model_config_digest(&digests[CONFIG], t->model, err);
}

bauta_status bt_trainer_digest(uint64_t *out, const bauta_trainer *t,
                               bauta_error *err)
{
    uint64_t digests[DIGESTS];
    bt_host_copy weights;
    bauta_status status = bt_trainer_weights(&weights, t, true, err);
    if (status)
        return status;
    status = digests_set(digests, t, weights.data, err);
    bt_host_copy_release(&weights);
    json_t *options = options_make(&t->options);
    char *text = options ? bt_json_dump(options, JSON_SORT_KEYS) : NULL;
    json_decref(options);
    if (!status && !text)
        status = fail_nomem(err);
    *out = text ? bt_digest_bytes(1, text, strlen(text)) : 1;
    for (size_t i = 0; !status && i < DIGESTS; i++)
        *out = bt_digest_mix(*out, digests[i]);
    // The end of an epoch and the start of the next are the same position.
    *out = bt_digest_mix(*out, t->steps);
    *out = bt_digest_mix(*out, t->weights_digest);
    bt_free(text);
    return status;
}

/* ---- writing ------------------------------------------------------------- */

static json_t *digests_make(const uint64_t digests[DIGESTS],
                            const bt_optimizer_state *state)
{
    json_t *object = json_object();
    bool failed = !object;
    for (size_t i = 0; i < DIGESTS; i++)
        failed |= json_object_set_new(object, digest_names[i].key,
                                      digits(digests[i])) != 0;
    failed |=
        json_object_set_new(object, "optimizer",
                            digits(bt_optimizer_state_digest(state))) != 0;
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

/* Digests of the bytes of the tokenizer's files. */
static json_t *files_make(const bauta_tokenizer *tokenizer)
{
    json_t *object = json_object();
    bool failed = !object;
    for (size_t i = 0; tokenizer && i < tokenizer->file_count; i++) {
        const bt_tokenizer_file *f = &tokenizer->files[i];
        failed |= json_object_set_new(
                      object, f->name,
                      digits(bt_digest_bytes(1, f->bytes, f->size))) != 0;
    }
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

bauta_status bt_trainer_record_make(json_t **out, const bauta_trainer *t,
                                    const float *weights,
                                    const bt_optimizer_state *state,
                                    json_t *notes, bauta_error *err)
{
    uint64_t digests[DIGESTS];
    *out = NULL;
    bauta_status status = digests_set(digests, t, weights, err);
    if (status)
        return status;
    json_t *o = json_object();
    bool failed =
        !o || json_object_set_new(o, "format", number(BT_CHECKPOINT_FORMAT)) ||
        json_object_set_new(o, "step", number(t->steps)) ||
        json_object_set_new(o, "epoch", number(t->epoch_number)) ||
        json_object_set_new(o, "batch", number(t->batch)) ||
        json_object_set_new(o, "updates",
                            number(bt_optimizer_steps(t->optimizer))) ||
        json_object_set_new(o, "options", options_make(&t->options)) ||
        json_object_set_new(o, "digests", digests_make(digests, state)) ||
        json_object_set_new(o, "files", files_make(t->tokenizer)) ||
        (notes && json_object_set(o, "notes", notes));
    if (failed) {
        json_decref(o);
        return fail_nomem(err);
    }
    *out = o;
    return BAUTA_OK;
}

/* ---- reading ------------------------------------------------------------- */

/* A value for an error message. */
static bt_quoted shown(const json_t *value)
{
    char *text = bt_json_dump(value, JSON_ENCODE_ANY);
    bt_quoted quoted = bt_quote(text ? text : "nothing");
    bt_free(text);
    return quoted;
}

static bauta_status lanes_check(const json_t *saved, const bauta_trainer *t,
                                const char *path, bauta_error *err)
{
    const json_t *value = json_object_get(saved, "lanes");
    json_int_t lanes = value ? json_integer_value(value) : 1;
    if (lanes == (json_int_t)t->options.lanes)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: the option lanes is %s in the checkpoint and %zu in "
                   "this trainer",
                   bt_path_tail(path), value ? shown(value).text : "1",
                   t->options.lanes);
}

static bauta_status options_check(const json_t *saved, const bauta_trainer *t,
                                  const char *path, bauta_error *err)
{
    const char *key;
    bauta_status status = lanes_check(saved, t, path, err);
    if (status)
        return status;
    json_t *mine = options_make(&t->options), *value;
    status = mine ? BAUTA_OK : fail_nomem(err);
    json_object_foreach(mine, key, value)
    {
        const json_t *other = saved_option(saved, key);
        if (!status && !json_equal(value, other))
            status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                             "%s: the option %s is %s in the checkpoint and %s "
                             "in this trainer",
                             bt_path_tail(path), key, shown(other).text,
                             shown(value).text);
    }
    if (!status && json_object_size(saved) != json_object_size(mine))
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: the checkpoint has unknown options",
                         bt_path_tail(path));
    json_decref(mine);
    return status;
}

static bool digest_read(uint64_t *out, const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bauta_status digests_check(const json_t *saved, const bauta_trainer *t,
                                  const char *path, bauta_error *err)
{
    uint64_t mine[DIGESTS], other;
    bt_host_copy weights;
    bauta_status status = bt_trainer_weights(&weights, t, true, err);
    if (status)
        return status;
    status = digests_set(mine, t, weights.data, err);
    bt_host_copy_release(&weights);
    for (size_t i = 0; !status && i < DIGESTS; i++)
        if (!digest_read(&other, saved, digest_names[i].key) ||
            other != mine[i])
            status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                             "%s: %s not the same as in this checkpoint",
                             bt_path_tail(path), digest_names[i].what);
    return status;
}

/* Larger numbers are used for evaluation; see trainer.c. */
enum { EPOCH_MAX = (1 << 29) - 1 };

static bauta_status progress_read(bt_train_progress *progress,
                                  const json_t *record, const char *path,
                                  bauta_error *err)
{
    const struct {
        const char *key;
        size_t *to;
    } members[] = { { "step", &progress->step },
                    { "epoch", &progress->epoch },
                    { "batch", &progress->batch },
                    { "updates", &progress->updates } };
    for (size_t i = 0; i < BT_LEN(members); i++) {
        const json_t *value = json_object_get(record, members[i].key);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return bt_fail(err, BAUTA_ERR_FORMAT, "%s: %s is %s",
                           bt_path_tail(path), members[i].key,
                           shown(value).text);
        *members[i].to = (size_t)json_integer_value(value);
    }
    if (progress->updates > progress->step ||
        progress->epoch > progress->step || progress->batch > progress->step ||
        progress->epoch > EPOCH_MAX)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: after %zu steps a run cannot be at batch %zu of "
                       "epoch %zu with %zu updates",
                       bt_path_tail(path), progress->step, progress->batch,
                       progress->epoch, progress->updates);
    return BAUTA_OK;
}

bauta_status bt_trainer_record_read(bt_train_progress *progress,
                                    const json_t *record,
                                    const bauta_trainer *t, const char *path,
                                    bauta_error *err)
{
    const json_t *format = json_object_get(record, "format");
    const json_t *digests = json_object_get(record, "digests");
    if (json_integer_value(format) != BT_CHECKPOINT_FORMAT)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: is of format %s; this version reads %d",
                       bt_path_tail(path), shown(format).text,
                       BT_CHECKPOINT_FORMAT);
    bauta_status status = progress_read(progress, record, path, err);
    if (!status &&
        !digest_read(&progress->optimizer_digest, digests, "optimizer"))
        status =
            bt_fail(err, BAUTA_ERR_FORMAT, "%s: has no digest of the optimizer",
                    bt_path_tail(path));
    if (!status)
        status =
            options_check(json_object_get(record, "options"), t, path, err);
    return status ? status : digests_check(digests, t, path, err);
}

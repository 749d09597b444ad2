/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - trainers and runs. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

/* ---- Trainers ------------------------------------------------------------ */

static const char *const objectives[] = { "auto",   "causal", "seq2seq",
                                          "masked", "prefix", NULL };
static const char *const modes[] = { "parallel", "sequential", "free",
                                     "scheduled", NULL };
static const char *const schedules[] = { "constant", "linear", "cosine",
                                         "inverse_sqrt", NULL };
static const field train_fields[] = {
    FIELD_CHOICES(bauta_train_options, objective, objectives),
    FIELD_CHOICES(bauta_train_options, mode, modes),
    FIELD(bauta_train_options, UINT64, seed),
    FIELD(bauta_train_options, SIZE, batch_sequences),
    FIELD(bauta_train_options, SIZE, batch_tokens),
    FIELD(bauta_train_options, SIZE, gradient_accumulation_steps),
    FIELD(bauta_train_options, SIZE, microbatch_tokens),
    FIELD(bauta_train_options, SIZE, context_length),
    FIELD(bauta_train_options, FLOAT, dropout),
    FIELD(bauta_train_options, FLOAT, label_smoothing),
    FIELD(bauta_train_options, FLOAT, mlm_probability),
    FIELD(bauta_train_options, FLOAT, mlm_random),
    FIELD(bauta_train_options, FLOAT, mlm_keep),
    FIELD(bauta_train_options, FLOAT, scheduled_sampling),
    FIELD(bauta_train_options, SIZE, max_steps),
    FIELD(bauta_train_options, SIZE, warmup_steps),
    FIELD_CHOICES(bauta_train_options, lr_scheduler_type, schedules),
    FIELD(bauta_train_options, DOUBLE, learning_rate),
    FIELD(bauta_train_options, DOUBLE, min_learning_rate),
    FIELD(bauta_train_options, DOUBLE, adam_beta1),
    FIELD(bauta_train_options, DOUBLE, adam_beta2),
    FIELD(bauta_train_options, DOUBLE, adam_epsilon),
    FIELD(bauta_train_options, DOUBLE, weight_decay),
    FIELD(bauta_train_options, DOUBLE, max_grad_norm),
    FIELD(bauta_train_options, DOUBLE, ema_decay),
    { NULL, FIELD_SIZE, 0, NULL },
};

static void trainer_release(void *trainer)
{
    bauta_trainer_free(trainer);
}

/* (model, tokenizer or None, corpus or None, finetune, dict) */
static PyObject *trainer_create(PyObject *self, PyObject *args)
{
    PyObject *model, *tokenizer, *documents, *dict;
    int finetune;
    bauta_tokenizer *text = NULL;
    bauta_corpus *corpus = NULL;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    context_lease lease = { 0 };
    bauta_trainer *trainer = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOpO!", &model, &tokenizer, &documents,
                          &finetune, &PyDict_Type, &dict))
        return NULL;
    if (finetune)
        options = (bauta_train_options)BAUTA_FINETUNE_OPTIONS_INIT;
    if (fields_read(&options, train_fields, dict) ||
        object_or_none(tokenizer, TOKENIZER_BOX, &text) ||
        object_or_none(documents, CORPUS_BOX, &corpus))
        return NULL;
    bauta_model *weights = object_of(model, MODEL_BOX);
    if (!weights || context_take_for(&lease, model))
        return NULL;
    bauta_status status = bauta_trainer_create(&trainer, lease.context, weights,
                                               text, corpus, &options, &err);
    if (status) {
        context_give(&lease);
        return raise_error(status, &err);
    }
    PyObject *kept[] = { model, tokenizer, documents, NULL };
    return box_new(TRAINER_BOX, trainer, trainer_release, lease, kept);
}

static const field report_fields[] = {
    FIELD(bauta_train_report, SIZE, step),
    FIELD(bauta_train_report, SIZE, epoch),
    FIELD(bauta_train_report, DOUBLE, loss),
    FIELD(bauta_train_report, SIZE, counted),
    FIELD(bauta_train_report, SIZE, tokens),
    FIELD(bauta_train_report, DOUBLE, grad_norm),
    FIELD(bauta_train_report, DOUBLE, learning_rate),
    FIELD(bauta_train_report, BOOL, updated),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *trainer_step(PyObject *self, PyObject *capsule)
{
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    (void)self;
    if (!trainer)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_trainer_step(trainer, &report, &err);
    PyEval_RestoreThread(thread);
    return status ? raise_error(status, &err)
                  : fields_dict(&report, report_fields);
}

/* A micro-batch of the caller. */
typedef struct microbatch {
    batch_args source, target;
    Py_buffer labels, weights;
} microbatch;

/* (source, target, labels, weights or None) */
static int microbatch_get(microbatch *m, bauta_train_batch *to, PyObject *tuple)
{
    PyObject *source, *target, *labels, *weights;
    *to = (bauta_train_batch)BAUTA_TRAIN_BATCH_INIT;
    if (!PyArg_ParseTuple(tuple, "OOOO", &source, &target, &labels, &weights) ||
        batch_get(&m->source, source) || batch_get(&m->target, target))
        return -1;
    size_t rows = m->target.given ? m->target.rows : m->source.rows;
    if (buffer_get_count(&m->labels, labels, 4, rows, false) ||
        (weights != Py_None &&
         buffer_get_count(&m->weights, weights, 4, rows, false)))
        return -1;
    to->source = m->source.given;
    to->target = m->target.given;
    to->labels = m->labels.buf;
    to->label_weights = m->weights.buf;
    return 0;
}

static void microbatches_free(microbatch *list, size_t count)
{
    for (size_t i = 0; list && i < count; i++) {
        batch_release(&list[i].source);
        batch_release(&list[i].target);
        buffer_release(&list[i].labels);
        buffer_release(&list[i].weights);
    }
    free(list);
}

static PyObject *trainer_step_batch(PyObject *self, PyObject *args)
{
    PyObject *capsule, *list, *result = NULL;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyList_Type, &list))
        return NULL;
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    if (!trainer)
        return NULL;
    size_t count = (size_t)PyList_Size(list);
    microbatch *parts = calloc(count + 1, sizeof(*parts));
    bauta_train_batch *batches = calloc(count + 1, sizeof(*batches));
    bool ready = parts && batches;
    if (!ready)
        PyErr_NoMemory();
    for (size_t i = 0; i < count && ready; i++)
        ready = !microbatch_get(&parts[i], &batches[i],
                                PyList_GetItem(list, (Py_ssize_t)i));
    if (ready) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status =
            bauta_trainer_step_batch(trainer, batches, count, &report, &err);
        PyEval_RestoreThread(thread);
        result = status ? raise_error(status, &err)
                        : fields_dict(&report, report_fields);
    }
    microbatches_free(parts, count);
    free(batches);
    return result;
}

static PyObject *trainer_evaluate(PyObject *self, PyObject *args)
{
    PyObject *capsule, *documents;
    size_t limit, counted = 0;
    double loss = 0;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO&", &capsule, &documents, size_convert,
                          &limit))
        return NULL;
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    bauta_corpus *corpus = trainer ? object_of(documents, CORPUS_BOX) : NULL;
    if (!corpus)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status =
        bauta_trainer_evaluate(trainer, corpus, limit, &loss, &counted, &err);
    PyEval_RestoreThread(thread);
    return status ? raise_error(status, &err)
                  : Py_BuildValue("dn", loss, (Py_ssize_t)counted);
}

static PyObject *trainer_steps(PyObject *self, PyObject *capsule)
{
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    (void)self;
    return trainer
               ? Py_BuildValue("nn", (Py_ssize_t)bauta_trainer_steps(trainer),
                               (Py_ssize_t)bauta_trainer_epoch_steps(trainer))
               : NULL;
}

/* (trainer, "save", "resume" or "export", folder, notes or None) */
static PyObject *trainer_folder(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *verb, *folder, *notes;
    bauta_status status;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ossz", &capsule, &verb, &folder, &notes))
        return NULL;
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    if (!trainer)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    if (strcmp(verb, "save") == 0)
        status = bauta_trainer_save(trainer, folder, notes, &err);
    else if (strcmp(verb, "resume") == 0)
        status = bauta_trainer_resume(trainer, folder, &err);
    else
        status = bauta_trainer_export(trainer, folder, &err);
    PyEval_RestoreThread(thread);
    return none_or_error(status, &err);
}

/* ---- Runs ---------------------------------------------------------------- */

static void run_release(void *run)
{
    bauta_run_free(run);
}

static PyObject *run_open(PyObject *self, PyObject *args)
{
    const char *folder;
    int create;
    bauta_run *run = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "sp", &folder, &create))
        return NULL;
    bauta_status status = bauta_run_open(&run, folder, create, &err);
    if (status)
        return raise_error(status, &err);
    return box_new(RUN_BOX, run, run_release, (context_lease){ 0 }, NULL);
}

static PyObject *run_resume(PyObject *self, PyObject *args)
{
    PyObject *capsule, *trainer_capsule;
    size_t step, resumed = 0;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO&", &capsule, &trainer_capsule,
                          size_convert, &step))
        return NULL;
    bauta_run *run = object_of(capsule, RUN_BOX);
    bauta_trainer *trainer =
        run ? object_of(trainer_capsule, TRAINER_BOX) : NULL;
    if (!trainer)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_run_resume(run, trainer, step, &resumed, &err);
    PyEval_RestoreThread(thread);
    return status ? raise_error(status, &err) : PyLong_FromSize_t(resumed);
}

/* The callbacks of a run, by name, and the exception that ended it. */
typedef struct run_calls {
    PyObject *callbacks; /* {name: function} */
    PyObject *type, *value, *traceback;
} run_calls;

/* Call a callback with one argument, which is stolen. Returns a new reference
 * to its result, or NULL after an exception, which is kept for the end. */
static PyObject *callback(run_calls *calls, const char *name,
                          PyObject *argument)
{
    PyObject *function = PyDict_GetItemString(calls->callbacks, name);
    PyObject *result = NULL;
    if (argument && !calls->type && !PyErr_CheckSignals())
        result = function ? PyObject_CallFunctionObjArgs(function, argument,
                                                         (PyObject *)NULL)
                          : none_new();
    Py_XDECREF(argument);
    if (!result && !calls->type)
        PyErr_Fetch(&calls->type, &calls->value, &calls->traceback);
    PyErr_Clear();
    return result;
}

static bauta_status on_step(void *user, const bauta_train_report *report,
                            double seconds)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *dict = fields_dict(report, report_fields);
    PyObject *time = PyFloat_FromDouble(seconds);
    if (dict && time)
        PyDict_SetItemString(dict, "seconds", time);
    Py_XDECREF(time);
    PyObject *result = callback(user, "on_step", dict);
    Py_XDECREF(result);
    PyGILState_Release(state);
    return BAUTA_OK;
}

static bauta_status on_evaluate(void *user, const bauta_run_evaluation *e)
{
    static const field fields[] = {
        FIELD(bauta_run_evaluation, SIZE, step),
        FIELD(bauta_run_evaluation, DOUBLE, loss),
        FIELD(bauta_run_evaluation, SIZE, counted),
        FIELD(bauta_run_evaluation, BOOL, best),
        { NULL, FIELD_SIZE, 0, NULL },
    };
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = callback(user, "on_evaluate", fields_dict(e, fields));
    Py_XDECREF(result);
    PyGILState_Release(state);
    return BAUTA_OK;
}

static void on_save(void *user, size_t step, const char *folder)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = callback(user, "on_save",
                                Py_BuildValue("ns", (Py_ssize_t)step, folder));
    Py_XDECREF(result);
    PyGILState_Release(state);
}

static void on_warning(void *user, const char *message)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result =
        callback(user, "on_warning", text_new(message, strlen(message)));
    Py_XDECREF(result);
    PyGILState_Release(state);
}

/* An exception of a callback and Ctrl-C end the run here, after the step and
 * with a checkpoint. */
static bool should_stop(void *user)
{
    run_calls *calls = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = callback(calls, "should_stop", none_new());
    bool stop = calls->type || (result && PyObject_IsTrue(result) == 1);
    Py_XDECREF(result);
    PyGILState_Release(state);
    return stop;
}

static const field run_fields[] = {
    FIELD(bauta_run_options, SIZE, max_steps),
    FIELD(bauta_run_options, DOUBLE, num_train_epochs),
    FIELD(bauta_run_options, DOUBLE, max_minutes),
    FIELD(bauta_run_options, SIZE, logging_steps),
    FIELD(bauta_run_options, SIZE, eval_steps),
    FIELD(bauta_run_options, SIZE, eval_tokens),
    FIELD(bauta_run_options, SIZE, save_steps),
    FIELD(bauta_run_options, SIZE, save_total_limit),
    FIELD(bauta_run_options, SIZE, early_stopping_patience),
    FIELD(bauta_run_options, SIZE, average_checkpoints),
    { NULL, FIELD_SIZE, 0, NULL },
};
static const char *const endings[] = { "done", "stopped", "early_stopping",
                                       "time", NULL };
static const field result_fields[] = {
    FIELD_CHOICES(bauta_run_result, ending, endings),
    FIELD(bauta_run_result, SIZE, step),
    FIELD(bauta_run_result, SIZE, saved_step),
    FIELD(bauta_run_result, DOUBLE, loss),
    FIELD(bauta_run_result, DOUBLE, eval_loss),
    FIELD(bauta_run_result, DOUBLE, best_loss),
    FIELD(bauta_run_result, SIZE, best_step),
    FIELD(bauta_run_result, SIZE, stale),
    FIELD(bauta_run_result, DOUBLE, average_loss),
    FIELD(bauta_run_result, SIZE, averaged),
    { NULL, FIELD_SIZE, 0, NULL },
};

/* (run, trainer, validation or None, dict, notes or None, callbacks) */
static PyObject *run_train(PyObject *self, PyObject *args)
{
    PyObject *run_capsule, *trainer_capsule, *documents, *dict;
    const char *notes;
    bauta_corpus *validation = NULL;
    bauta_run_options options = BAUTA_RUN_OPTIONS_INIT;
    bauta_run_result result = BAUTA_RUN_RESULT_INIT;
    run_calls calls = { 0 };
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!zO!", &run_capsule, &trainer_capsule,
                          &documents, &PyDict_Type, &dict, &notes, &PyDict_Type,
                          &calls.callbacks) ||
        fields_read(&options, run_fields, dict) ||
        object_or_none(documents, CORPUS_BOX, &validation))
        return NULL;
    bauta_run *run = object_of(run_capsule, RUN_BOX);
    bauta_trainer *trainer =
        run ? object_of(trainer_capsule, TRAINER_BOX) : NULL;
    if (!trainer)
        return NULL;
    options.notes = notes;
    options.user = &calls;
    options.on_step = on_step;
    options.on_evaluate = on_evaluate;
    options.on_save = on_save;
    options.on_warning = on_warning;
    options.should_stop = should_stop;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status =
        bauta_run_train(run, trainer, validation, &options, &result, &err);
    PyEval_RestoreThread(thread);
    if (calls.type) {
        PyErr_Restore(calls.type, calls.value, calls.traceback);
        return NULL;
    }
    return status ? raise_error(status, &err)
                  : fields_dict(&result, result_fields);
}

/* ---- Presets ------------------------------------------------------------- */

/* (name, tokenizer, overrides or None): (config, training options). */
static PyObject *preset(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *name, *overrides;
    char *config = NULL;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOz", &name, &capsule, &overrides))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer)
        return NULL;
    bauta_status status =
        bauta_preset(&config, &options, name, tokenizer, overrides, &err);
    if (status)
        return raise_error(status, &err);
    PyObject *result =
        Py_BuildValue("sN", config, fields_dict(&options, train_fields));
    bauta_text_free(config);
    return result;
}

static PyObject *preset_names(PyObject *self, PyObject *none)
{
    const char *name, *summary;
    (void)self;
    (void)none;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && (name = bauta_preset_name(i, &summary)); i++) {
        PyObject *text = PyUnicode_FromString(summary);
        if (!text || PyDict_SetItemString(dict, name, text)) {
            Py_DECREF(dict);
            dict = NULL;
        }
        Py_XDECREF(text);
    }
    return dict;
}

PyMethodDef train_methods[] = {
    { "trainer_create", trainer_create, METH_VARARGS, NULL },
    { "trainer_step", trainer_step, METH_O, NULL },
    { "trainer_step_batch", trainer_step_batch, METH_VARARGS, NULL },
    { "trainer_evaluate", trainer_evaluate, METH_VARARGS, NULL },
    { "trainer_steps", trainer_steps, METH_O, NULL },
    { "trainer_folder", trainer_folder, METH_VARARGS, NULL },
    { "run_open", run_open, METH_VARARGS, NULL },
    { "run_resume", run_resume, METH_VARARGS, NULL },
    { "run_train", run_train, METH_VARARGS, NULL },
    { "preset", preset, METH_VARARGS, NULL },
    { "preset_names", preset_names, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

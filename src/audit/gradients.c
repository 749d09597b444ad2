/* SPDX-License-Identifier: Apache-2.0 */
/* gradients.c - where the gradient of one output flows.
 *
 * In copy c of a sheet only the label of one row counts. Every row of every
 * copy has a row of its own in the table, so the table's gradient is that of
 * each input by itself. Where the row must not see an input this is 0: not
 * small, 0. With a head of NaN the gradient is NaN in just the inputs that the
 * row may see. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>

enum { PASS_ROWS = 2048 };

typedef enum manner { PLAIN, DROPOUT, POISON, MANNERS } manner;

typedef struct flow {
    bt_auditing *a;
    const bt_double *of; /* what is tried: cut short, say */
    bt_double d;         /* with the table */
    bt_law law;
    bt_sheet sheet;
    uint32_t *labels;
    manner how;
    size_t flowed; /* inputs that a gradient came to */
    bt_fault *fault;
} flow;

/* ---- a pass ------------------------------------------------------------ */

static size_t table_row(const flow *f, bool target, size_t copy, size_t row)
{
    const bt_readings *r = &f->a->read;
    size_t before = target ? f->sheet.copies * r->source.rows : 0;
    size_t each = target ? r->target.rows : r->source.rows;
    return before + copy * each + row;
}

static void side_write(flow *f, bool target)
{
    const bt_reading *r = target ? &f->a->read.target : &f->a->read.source;
    for (size_t c = 0; c < f->sheet.copies; c++)
        for (size_t i = 0; i < r->rows; i++) {
            size_t row = table_row(f, target, c, i);
            *bt_sheet_id(&f->sheet, target, r, c, i) = (uint32_t)row;
            bt_double_copy(&f->d, row, r->ids[i]);
        }
}

/* A double of the double, for a table fits one sheet. */
static bauta_status double_make(flow *f, bauta_error *err)
{
    const bt_readings *r = &f->a->read;
    size_t rows = (r->source.rows + r->target.rows) * f->sheet.copies;
    bauta_status status = bt_double_init(&f->d, &f->of->handle, err);
    if (status)
        return status;
    f->d.original = f->of->original;
    status = bt_double_table(&f->d, rows, true, err);
    if (!status && f->how == POISON)
        status = bt_double_poison_head(&f->d, err);
    if (status)
        bt_double_release(&f->d);
    return status;
}

/* What each copy is to say: one token, behind one of the probed rows. */
static void labels_write(const flow *f, size_t first)
{
    const bt_reading *top = bt_readings_top(&f->a->read);
    size_t words =
        bt_size_min(f->d.original->print.vocab, f->d.model.print.vocab);
    if (f->how == POISON)
        words = bt_size_min(words, 2);
    for (size_t i = 0; i < top->rows * f->sheet.copies; i++)
        f->labels[i] = BAUTA_IGNORE;
    for (size_t c = 0; c < f->sheet.copies; c++)
        f->labels[c * top->rows + bt_probe_row(f->a, top, first + c)] =
            (uint32_t)((first + c) % words);
}

static bauta_status loss_run(flow *f, bauta_error *err)
{
    bauta_loss_options how = BAUTA_LOSS_OPTIONS_INIT;
    double loss;
    if (f->how == DROPOUT)
        how.dropout = 0.2f;
    how.seed = f->a->seed;
    how.weight = (double)f->sheet.copies;
    return bauta_model_loss(f->a->context, &f->d.handle, f->sheet.source,
                            f->sheet.target, f->labels, &how, &loss, NULL, err);
}

/* ---- what flowed ------------------------------------------------------- */

typedef enum found { ZERO, NUMBER, POISONED } found;

static found row_found(const flow *f, size_t row)
{
    const bt_tensor *t = &f->d.model.tokens;
    found what = ZERO;
    f->a->compared++;
    for (size_t c = 0; c < t->columns; c++) {
        float g = t->grad[row * t->columns + c];
        if (isnan(g))
            return POISONED;
        if (g != 0.0f)
            what = NUMBER;
    }
    return what;
}

static void row_judge(flow *f, size_t copy, size_t out, bool target, size_t in)
{
    static const char *const manners[] = { "", "with dropout",
                                           "of a head that is NaN" };
    bool top = f->a->read.target.count > 0;
    size_t level = top ? f->law.decoder : f->law.encoder;
    bool may = bt_law_reaches(&f->law, top, level, out, target, in);
    found what = row_found(f, table_row(f, target, copy, in));
    // A number may be too small to be there; NaN is not.
    bool right = !may ? what == ZERO : (what == POISONED) == (f->how == POISON);
    f->flowed += what != ZERO;
    if (right)
        return;
    bt_fault fault = BT_FAULT_INIT;
    fault.found = true;
    fault.target = top;
    fault.row = out;
    fault.key_target = target;
    fault.key = in;
    fault.blind = may;
    snprintf(fault.detail, sizeof(fault.detail), "%s", manners[f->how]);
    bt_fault_keep(f->fault, &fault);
}

static void sheet_judge(flow *f, size_t first)
{
    const bt_readings *r = &f->a->read;
    const bt_reading *top = bt_readings_top(r);
    for (size_t c = 0; c < f->sheet.copies; c++) {
        size_t out = bt_probe_row(f->a, top, first + c);
        for (size_t i = 0; i < r->source.rows; i++)
            row_judge(f, c, out, false, i);
        for (size_t i = 0; i < r->target.rows; i++)
            row_judge(f, c, out, true, i);
    }
}

/* ---- all of it --------------------------------------------------------- */

static bauta_status pass(flow *f, size_t first, size_t count, bauta_error *err)
{
    const bt_reading *top = bt_readings_top(&f->a->read);
    bauta_status status = bt_sheet_init(&f->sheet, &f->a->read, count, err);
    if (status)
        return status;
    status = double_make(f, err);
    if (!status) {
        f->labels = bt_alloc_zero(top->rows * count, sizeof(*f->labels));
        if (f->labels) {
            side_write(f, false);
            side_write(f, true);
            labels_write(f, first);
            status = loss_run(f, err);
        } else {
            status = bt_fail_memory(err, "labels", top->rows * count);
        }
        if (!status)
            sheet_judge(f, first);
        bt_free(f->labels);
        bt_double_release(&f->d);
    }
    bt_sheet_release(&f->sheet);
    return status;
}

bauta_status bt_try_gradients(bt_auditing *a, bt_double *d, bt_fault *fault,
                              bauta_error *err)
{
    flow f = { .a = a, .of = d, .fault = fault };
    const bt_reading *top = bt_readings_top(&a->read);
    size_t rows = bt_size_max(a->read.source.rows, a->read.target.rows);
    size_t together = bt_size_max(PASS_ROWS / bt_size_max(rows, 1), 1);
    size_t probes = bt_probe_count(a, top);
    if (!bt_double_learns(d))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a compressed model does not learn");
    bauta_status status = bt_law_init(&f.law, &d->model.print, &a->read, err);
    if (status)
        return status;
    for (f.how = PLAIN; !status && !fault->found && f.how < MANNERS; f.how++) {
        f.flowed = 0;
        for (size_t n = 0; !status && n < probes; n += together)
            status = pass(&f, n, bt_size_min(together, probes - n), err);
        if (!status && probes && !f.flowed) {
            fault->found = true;
            fault->target = a->read.target.count > 0;
            snprintf(fault->detail, sizeof(fault->detail),
                     "no gradient comes to any token");
        }
    }
    bt_law_release(&f.law);
    return status;
}

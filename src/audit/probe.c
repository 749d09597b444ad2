/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - sheets of changed inputs. */
#include "audit/probe.h"

#include "base/size.h"

#include <string.h>

enum { PASS_ROWS = 2048 }; /* of a sheet, about */

/* Probe n of both sides together. */
static void probe_at(const bt_probe *p, size_t n, bool *target, size_t *row)
{
    const bt_readings *read = &p->a->read;
    size_t first = p->other[0] ? bt_probe_count(p->a, &read->source) : 0;
    *target = n >= first;
    const bt_reading *r = *target ? &read->target : &read->source;
    *row = bt_probe_row(p->a, r, *target ? n - first : n);
}

static size_t probes_of(const bt_probe *p)
{
    size_t count = 0;
    if (p->other[0])
        count += bt_probe_count(p->a, &p->a->read.source);
    if (p->other[1])
        count += bt_probe_count(p->a, &p->a->read.target);
    return count;
}

static void sheet_write(const bt_probe *p, bt_sheet *sheet, size_t first)
{
    const bt_reading *sides[] = { &p->a->read.source, &p->a->read.target };
    for (size_t c = 0; c < sheet->copies; c++)
        for (size_t s = 0; s < 2; s++)
            if (sides[s]->rows)
                memcpy(bt_sheet_id(sheet, s, sides[s], c, 0), p->ids[s],
                       sides[s]->rows * sizeof(uint32_t));
    for (size_t c = 1; c < sheet->copies; c++) {
        bool target;
        size_t row;
        probe_at(p, first + c - 1, &target, &row);
        *bt_sheet_id(sheet, target, sides[target], c, row) =
            p->other[target][row];
    }
}

static bauta_status pass(bt_probe *p, size_t first, size_t count,
                         bauta_error *err)
{
    bt_sheet sheet;
    bauta_status status = bt_sheet_init(&sheet, &p->a->read, 1 + count, err);
    if (status)
        return status;
    sheet_write(p, &sheet, first);
    status = bt_states_init(&p->states, p->d, sheet.source, sheet.target, false,
                            err);
    if (!status)
        status = bt_states_run(&p->states, p->a->context, p->d, sheet.source,
                               sheet.target, err);
    for (size_t c = 1; !status && c <= count; c++) {
        bool target;
        size_t row;
        probe_at(p, first + c - 1, &target, &row);
        p->judge(p, c, target, row);
    }
    bt_states_release(&p->states);
    bt_sheet_release(&sheet);
    return status;
}

bauta_status bt_probe_run(bt_probe *p, bauta_error *err)
{
    const bt_readings *read = &p->a->read;
    size_t rows = bt_size_max(read->source.rows, read->target.rows);
    size_t together = bt_size_max(PASS_ROWS / bt_size_max(rows, 1), 2) - 1;
    size_t probes = probes_of(p);
    bauta_status status = bt_law_init(&p->law, &p->d->model.print, read, err);
    if (status)
        return status;
    for (size_t n = 0; !status && n < probes; n += together)
        status = pass(p, n, bt_size_min(together, probes - n), err);
    bt_law_release(&p->law);
    return status;
}

const float *bt_probe_state(const bt_probe *p, bool target, size_t level,
                            size_t copy, size_t row)
{
    const bt_reading *r = target ? &p->a->read.target : &p->a->read.source;
    return bt_states_row(&p->states, target, level, copy * r->rows + row);
}

bool bt_probe_same(const bt_probe *p, bool target, size_t level, size_t copy,
                   size_t row)
{
    p->a->compared++;
    return memcmp(bt_probe_state(p, target, level, 0, row),
                  bt_probe_state(p, target, level, copy, row),
                  p->states.width * sizeof(float)) == 0;
}

void bt_probe_fault(bt_probe *p, bool target, size_t level, size_t row,
                    bool key_target, size_t key, bool blind)
{
    bt_fault fault = BT_FAULT_INIT;
    fault.found = true;
    fault.target = target;
    fault.level = level;
    fault.row = row;
    fault.key_target = key_target;
    fault.key = key;
    fault.blind = blind;
    bt_fault_keep(p->fault, &fault);
}

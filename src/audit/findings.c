/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - the results of an audit as text and as JSON. */
#include "audit/findings.h"

#include "base/error.h"
#include "base/string_writer.h"

#include <inttypes.h>

/* ---- messages ---------------------------------------------------------- */

static void location_write(bt_string_writer *l, const bauta_finding *f)
{
    static const char *const names[] = { [BAUTA_ATTENTION_ENCODER] = "encoder",
                                         [BAUTA_ATTENTION_DECODER] = "decoder",
                                         [BAUTA_ATTENTION_CROSS] = "decoder" };
    if (f->layer == BAUTA_NO_INDEX)
        return;
    bt_put(l, "%s layer %zu%s", names[f->attention], f->layer,
           f->attention == BAUTA_ATTENTION_CROSS ? ", cross-attention" : "");
    if (f->head != BAUTA_NO_INDEX)
        bt_put(l, ", head %zu", f->head);
    bt_put(l, ": ");
}

static void pair_write(bt_string_writer *l, const bauta_finding *f,
                       const bt_fault *fault)
{
    bt_put(l, fault->should_see ? " does not see " : " sees ");
    bt_put(l, "token %zu", f->key);
    if (fault->target != fault->key_target || f->key_sequence != f->sequence)
        bt_put(l, " of %s %zu", fault->key_target ? "sequence" : "source",
               f->key_sequence);
    bt_put(l, fault->should_see ? ", which it should" : ", which it must not");
}

/* What is wrong with a row if no key is known. */
static const char *complaint(bauta_check check)
{
    switch (check) {
    case BAUTA_CHECK_EMPTY:
        return " sees no key, but attention changes it";
    case BAUTA_CHECK_BATCH:
        return " differs from the same sequence alone";
    case BAUTA_CHECK_PADDING:
        return " differs from the batch without padding";
    case BAUTA_CHECK_INCREMENTAL:
        return " decoded token by token differs from the parallel pass";
    case BAUTA_CHECK_CHUNKED:
        return " decoded in chunks differs from the parallel pass";
    case BAUTA_CHECK_FORKS:
        return " of a forked or truncated sequence differs from the "
               "parallel pass";
    default:
        return " has different bits";
    }
}

static void fault_write(bt_string_writer *l, const bauta_finding *f,
                        const bt_fault *fault)
{
    location_write(l, f);
    if (f->query == BAUTA_NO_INDEX) {
        bt_put(l, "%s",
               fault->detail[0] ? fault->detail : "the results differ");
        return;
    }
    bt_put(l, "token %zu of %s %zu", f->query,
           fault->target ? "sequence" : "source", f->sequence);
    if (f->key == BAUTA_NO_INDEX)
        bt_put(l, "%s", complaint(f->check));
    else
        pair_write(l, f, fault);
    if (fault->detail[0])
        bt_put(l, " (%s)", fault->detail);
}

void bt_finding_write(bauta_finding *f, const bt_probe_inputs *inputs,
                      const bt_fault *fault, const char *why)
{
    const bt_probe_input *rows = bt_probe_inputs_side(inputs, fault->target);
    const bt_probe_input *keys =
        bt_probe_inputs_side(inputs, fault->key_target);
    bt_string_writer l = { f->message, sizeof(f->message), 0 };
    f->attention = fault->at;
    f->layer = fault->layer;
    f->head = fault->head;
    f->sequence = f->query = f->key_sequence = f->key = BAUTA_NO_INDEX;
    if (fault->found && fault->row != BAUTA_NO_INDEX) {
        f->sequence = rows->sequence[fault->row];
        f->query = bt_probe_input_position(rows, fault->row);
    }
    if (fault->found && fault->key != BAUTA_NO_INDEX) {
        f->key_sequence = keys->sequence[fault->key];
        f->key = bt_probe_input_position(keys, fault->key);
    }
    if (f->verdict == BAUTA_FAILED)
        fault_write(&l, f, fault);
    else
        bt_put(&l, "%s",
               f->verdict == BAUTA_SKIPPED ? why : bauta_check_text(f->check));
    bt_put_end(&l);
}

/* ---- results ----------------------------------------------------------- */

bool bauta_audit_passed(const bauta_audit *audit)
{
    for (size_t i = 0; i < audit->count; i++)
        if (audit->findings[i].verdict == BAUTA_FAILED)
            return false;
    return true;
}

size_t bauta_audit_findings(const bauta_audit *audit)
{
    return audit->count;
}

const bauta_finding *bauta_audit_finding(const bauta_audit *audit, size_t index)
{
    return index < audit->count ? &audit->findings[index] : NULL;
}

/* ---- JSON -------------------------------------------------------------- */

static void member_write(bt_string_writer *l, const char *name, size_t number)
{
    if (number != BAUTA_NO_INDEX)
        bt_put(l, ",\"%s\":%zu", name, number);
}

static void finding_json(bt_string_writer *l, const bauta_finding *f)
{
    static const char *const verdicts[] = { [BAUTA_PASSED] = "passed",
                                            [BAUTA_FAILED] = "failed",
                                            [BAUTA_SKIPPED] = "skipped" };
    static const char *const ats[] = { [BAUTA_ATTENTION_ENCODER] = "encoder",
                                       [BAUTA_ATTENTION_DECODER] = "decoder",
                                       [BAUTA_ATTENTION_CROSS] = "cross" };
    bt_put(l,
           "{\"check\":\"%s\",\"verdict\":\"%s\",\"compared\":%" PRIu64
           ",\"seconds\":",
           bauta_check_name(f->check), verdicts[f->verdict], f->compared);
    bt_put_fixed(l, f->seconds, 3);
    if (f->layer != BAUTA_NO_INDEX)
        bt_put(l, ",\"attention\":\"%s\"", ats[f->attention]);
    member_write(l, "layer", f->layer);
    member_write(l, "head", f->head);
    member_write(l, "sequence", f->sequence);
    member_write(l, "query", f->query);
    member_write(l, "key_sequence", f->key_sequence);
    member_write(l, "key", f->key);
    bt_put_text(l, ",\"message\":");
    bt_put_string(l, f->message);
    bt_put(l, "}");
}

size_t bauta_audit_json(const bauta_audit *audit, char *text, size_t size)
{
    bt_string_writer l = { text, text ? size : 0, 0 };
    bt_put(&l, "{\"passed\":%s,\"findings\":[",
           bauta_audit_passed(audit) ? "true" : "false");
    for (size_t i = 0; i < audit->count; i++) {
        if (i)
            bt_put(&l, ",");
        finding_json(&l, &audit->findings[i]);
    }
    bt_put_text(&l, "]}");
    return bt_put_end(&l);
}

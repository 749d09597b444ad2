/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_lab_report.c - any bytes as a report that bauta lab kept in the folder
 * of its page.
 *
 * The report is refused, or it is whole and is the same when it is written and
 * read again. */
#include "checks.h"
#include "lab/lab.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    json_t *from = json_loadb((const char *)bytes, size, 0, NULL);
    report *r = report_from_json(from);
    if (r) {
        must(report_valid(r));
        json_t *written = report_to_json(r);
        report *again = report_from_json(written);
        json_t *rewritten = report_to_json(again);
        must(again && json_equal(written, rewritten));
        json_decref(written);
        json_decref(rewritten);
        report_free(again);
    }
    report_free(r);
    json_decref(from);
    return 0;
}

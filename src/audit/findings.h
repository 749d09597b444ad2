/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h - the results of an audit. */
#ifndef BT_FINDINGS_H
#define BT_FINDINGS_H

#include "audit/audit.h"

struct bauta_audit {
    size_t count;
    bauta_finding findings[BAUTA_CHECKS];
};

/* Fill in location and message of a finding: the fault, or in `why` the reason
 * why the check was skipped. */
void bt_finding_write(bauta_finding *finding, const bt_probe_inputs *inputs,
                      const bt_fault *fault, const char *why);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h - what came of an audit, told. */
#ifndef BT_FINDINGS_H
#define BT_FINDINGS_H

#include "audit/audit.h"

struct bauta_audit {
    size_t count;
    bauta_finding findings[BAUTA_CHECKS];
};

/* Fill in place and message of a finding: of a fault, or why it was skipped. */
void bt_finding_tell(bauta_finding *finding, const bt_readings *read,
                     const bt_fault *fault, const char *why);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* inject_fault.c - turns on an injected fault in the program: BAUTA_INJECT
 * names it, BAUTA_INJECT_LAYER the layer it is in. audit.sh checks what the
 * program reports. */
#include "fault_injection.h"

#include <stdlib.h>

__attribute__((constructor)) static void choose(void)
{
    const char *layer = getenv("BAUTA_INJECT_LAYER");
    fault_inject(getenv("BAUTA_INJECT"), layer ? strtoul(layer, NULL, 10) : 0);
}

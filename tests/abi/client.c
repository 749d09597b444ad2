/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - a program of the interface: it makes the calls of calls.c and
 * prints what came of them. tests/abi/two_builds.sh compiles it, and a library,
 * against today's headers and against ones whose structs have one more field,
 * and compares the output.
 *
 *   client FOLDER         the calls as they are
 *   client FOLDER set N   the same with the last N bytes of each input struct
 *                         set, a field that the library does not know */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static union {
        char bytes[4096];
        uint64_t aligned;
    } sized;
    size_t set = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (argc < 2)
        return 2;
    abi_calls_begin(argv[1]);
    for (size_t i = 0; i < abi_call_count; i++) {
        const abi_call *call = &abi_calls[i];
        memset(&sized, 0, sizeof(sized));
        call->fill(&sized);
        memset(sized.bytes + call->size - set, 1, set);
        abi_outcome o = call->run(&sized);
        if (call->show && !o.status)
            o.digest = call->show(&sized);
        printf("%s %s: %d %016llx %s\n", call->name,
               call->output ? "written" : "read", (int)o.status,
               (unsigned long long)o.digest, o.message);
    }
    abi_calls_end();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.c - how long a thread that waits for the others looks for them before
 * it sleeps.
 *
 * GNU's OpenMP looks for milliseconds. Where another program wants a core, too,
 * the one that is looked for has often lost its core, and the one that looks
 * keeps it from getting another: with one busy neighbour on two cores
 * translation took up to thirty times as long. Some microseconds are enough for
 * what is shared here, and on a quiet machine nothing is lost. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

/* The runtime reads its environment before main() begins, so the program starts
 * itself once more; where that cannot be, it goes on as it is. Whoever has
 * chosen how threads wait is heard, and whoever watches the program from within
 * (valgrind preloads a library) is not shaken off. */
void cli_wait_shortly(char **argv)
{
#if defined(__linux__) && !defined(__clang__)
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        getenv("LD_PRELOAD"))
        return;
    char path[4096]; // by its own name, which ps then shows
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0 || setenv("GOMP_SPINCOUNT", "1000", 1))
        return;
    path[length] = '\0';
    execv(path, argv);
#else
    (void)argv;
#endif
}

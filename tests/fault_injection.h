/* SPDX-License-Identifier: Apache-2.0 */
/* fault_injection.h - bugs that a test turns on in the library.
 *
 * The library's sources know nothing of them. A program that is linked with
 * bauta_inject_faults() of tests/CMakeLists.txt reaches some functions of the
 * library through the wrappers of fault_injection.c, by the linker's --wrap;
 * a wrapper calls the function itself and, while a fault is on, gives it wrong
 * arguments or changes its result. */
#ifndef BT_TEST_FAULT_INJECTION_H
#define BT_TEST_FAULT_INJECTION_H

#include <stddef.h>

/* Turn on the fault of this name, and no other; NULL turns all off. A fault
 * that is in a single layer is in `layer`; the others ignore it. Call it while
 * nothing else of the library runs. */
void fault_inject(const char *name, size_t layer);

#endif

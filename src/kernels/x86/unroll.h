/* SPDX-License-Identifier: Apache-2.0 */
/* unroll.h - a loop of few and constant turns, written out by the compiler, so
 * that arrays of vectors live in registers. */
#ifndef BT_UNROLL_H
#define BT_UNROLL_H

#if defined(__clang__)
#define UNROLLED_FOR _Pragma("unroll") for
#else
#define UNROLLED_FOR _Pragma("GCC unroll 16") for
#endif

#endif

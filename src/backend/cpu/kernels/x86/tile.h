/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - steps of a register tile of 6 rows x 2 vectors in assembly, for
 * AVX2.
 *
 * A step of k is two loads, six broadcasts and twelve fused multiply-adds. The
 * FMA units are the limit, but only if nothing else uses their ports. Compilers
 * spill accumulators and add to pointers in each step; here the twelve
 * accumulators stay in their registers, and the addresses of all eight steps
 * are displacements. */
#ifndef BT_TILE_X86_H
#define BT_TILE_X86_H

/* The multiply-adds of row i, with the vectors of B in ymm13 and ymm14. */
#define TILE_ROW(i, a)                              \
    "vbroadcastss " a ", %%ymm15\n\t"               \
    "vfmadd231ps %%ymm13, %%ymm15, %[s" #i "0]\n\t" \
    "vfmadd231ps %%ymm14, %%ymm15, %[s" #i "1]\n\t"

/* Step q of B, which has `step` bytes from one k to the next. */
#define TILE_B(q, step)                           \
    "vmovups " #step "*" #q "(%[b]), %%ymm13\n\t" \
    "vmovups " #step "*" #q "+32(%[b]), %%ymm14\n\t"

/* Step q with rows of A that are `row` bytes apart in memory, from a and from
 * a3 = a + 3 row on. */
#define TILE_STEP_IN_PLACE(q, step)        \
    TILE_B(q, step)                        \
    TILE_ROW(0, "4*" #q "(%[a])")          \
    TILE_ROW(1, "4*" #q "(%[a],%[row])")   \
    TILE_ROW(2, "4*" #q "(%[a],%[row],2)") \
    TILE_ROW(3, "4*" #q "(%[a3])")         \
    TILE_ROW(4, "4*" #q "(%[a3],%[row])")  \
    TILE_ROW(5, "4*" #q "(%[a3],%[row],2)")

/* Step q with a packed panel of A. */
#define TILE_STEP_PACKED(q, step)     \
    TILE_B(q, step)                   \
    TILE_ROW(0, "24*" #q "(%[a])")    \
    TILE_ROW(1, "24*" #q "+4(%[a])")  \
    TILE_ROW(2, "24*" #q "+8(%[a])")  \
    TILE_ROW(3, "24*" #q "+12(%[a])") \
    TILE_ROW(4, "24*" #q "+16(%[a])") \
    TILE_ROW(5, "24*" #q "+20(%[a])")

#define TILE_FOUR_STEPS(STEP, p, q, r, s, step) \
    STEP(p, step) STEP(q, step) STEP(r, step) STEP(s, step)
#define TILE_EIGHT_STEPS(STEP, step)        \
    TILE_FOUR_STEPS(STEP, 0, 1, 2, 3, step) \
    TILE_FOUR_STEPS(STEP, 4, 5, 6, 7, step)

/* The operands that all steps have: the accumulators s[6][2]. */
#define TILE_SUMS(s)                                                   \
    [s00] "+x"(s[0][0]), [s01] "+x"(s[0][1]), [s10] "+x"(s[1][0]),     \
        [s11] "+x"(s[1][1]), [s20] "+x"(s[2][0]), [s21] "+x"(s[2][1]), \
        [s30] "+x"(s[3][0]), [s31] "+x"(s[3][1]), [s40] "+x"(s[4][0]), \
        [s41] "+x"(s[4][1]), [s50] "+x"(s[5][0]), [s51] "+x"(s[5][1])
#define TILE_CLOBBERS "memory", "xmm13", "xmm14", "xmm15"

#endif

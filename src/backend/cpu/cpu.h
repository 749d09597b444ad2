/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what a computation on the CPU needs from its caller. */
#ifndef BT_CPU_H
#define BT_CPU_H

#include "backend/cpu/kernels/kernels.h"
#include "base/memory.h"

typedef struct bt_cpu {
    const bt_kernels *kernels;
    int threads;
    bt_arena *workspace; /* emptied by every call; grows to the largest need */
} bt_cpu;

#endif

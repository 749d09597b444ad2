/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - matrix products, in the order that defines their bits. */
#ifndef BT_GEMM_H
#define BT_GEMM_H

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* test_pools.h - thread pools of several sizes that all tests of a program
 * share: the setup and the teardown of its group. */
#ifndef BT_TEST_POOLS_H
#define BT_TEST_POOLS_H

#include "base/thread_pool.h"
#include "testing.h"

enum { TEST_POOLS = 3 };

static bt_thread_pool *test_pools[TEST_POOLS]; /* of 1, 2 and 4 threads */

static inline int test_pools_create(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_POOLS; i++)
        assert_int_equal(bt_thread_pool_create(&test_pools[i], 1 << i, NULL),
                         0);
    return 0;
}

static inline int test_pools_free(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_POOLS; i++)
        bt_thread_pool_free(test_pools[i]);
    return 0;
}

#endif

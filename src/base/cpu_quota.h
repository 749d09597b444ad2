/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_quota.h - the CPU time that control groups give to this process. */
#ifndef BT_CPU_QUOTA_H
#define BT_CPU_QUOTA_H

/* The CPUs that the control groups of this process may use together, rounded
 * up; 0 if there is no limit or none can be read. Understands cpu.max of
 * version 2 and cpu.cfs_quota_us of version 1, mounted at /sys/fs/cgroup.
 * `root` is put before the names of all files: "" outside of tests. */
int bt_cpu_quota(const char *root);

#endif

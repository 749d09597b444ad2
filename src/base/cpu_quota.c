/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_quota.c - reads the limits of control groups.
 *
 * A line of /proc/self/cgroup is NUMBER:CONTROLLERS:GROUP, without controllers
 * in version 2. The limits of all groups above a group apply to it, too. In a
 * container GROUP may be the path on the host, while the mounted folder already
 * is the group; its limit is then found where the walk upward ends. */
#include "base/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 4096 };

/* Up to two numbers of a file; returns how many it begins with. */
static int numbers_read(const char *folder, const char *name, long *first,
                        long *second)
{
    char path[NAME_SIZE];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = length < (int)sizeof(path) ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    int count = fscanf(file, "%ld %ld", first, second);
    fclose(file);
    return count;
}

/* The quota of one group, in CPUs; 0 if it has none. */
static int group_quota(const char *folder, bool version_2)
{
    long quota = 0, period = 0, none;
    if (version_2) {
        // "max 100000" begins with no number.
        if (numbers_read(folder, "cpu.max", &quota, &period) != 2)
            return 0;
    } else if (numbers_read(folder, "cpu.cfs_quota_us", &quota, &none) < 1 ||
               numbers_read(folder, "cpu.cfs_period_us", &period, &none) < 1) {
        return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    long cpus = quota / period + (quota % period != 0);
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

/* The smallest quota of `group` and of the groups above it. */
static int least_quota(const char *mount, const char *group, bool version_2)
{
    char folder[NAME_SIZE];
    size_t top = strlen(mount);
    int least = 0;
    int length = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    if (length >= (int)sizeof(folder))
        return 0;
    for (;;) {
        int quota = group_quota(folder, version_2);
        if (quota && (!least || quota < least))
            least = quota;
        char *last = strrchr(folder, '/');
        if (!last || (size_t)(last - folder) < top)
            return least;
        *last = '\0';
    }
}

/* Whether a list such as "cpu,cpuacct" contains the name. */
static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 &&
            (at[length] == ',' || !at[length]))
            return true;
    }
    return false;
}

/* The quota of a line of /proc/self/cgroup, which is changed. */
static int line_quota(const char *root, char *line)
{
    char mount[NAME_SIZE];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    controllers++;
    *group++ = '\0';
    bool version_2 = !*controllers;
    if (!version_2 && !list_has(controllers, "cpu"))
        return 0;
    int length = snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root,
                          version_2 ? "" : "/cpu");
    if (length >= (int)sizeof(mount))
        return 0;
    return least_quota(mount, group, version_2);
}

int bt_cpu_quota(const char *root)
{
    char text[NAME_SIZE];
    int least = 0;
    int length = snprintf(text, sizeof(text), "%s/proc/self/cgroup", root);
    FILE *file = length < (int)sizeof(text) ? fopen(text, "re") : NULL;
    if (!file)
        return 0;
    while (fgets(text, sizeof(text), file)) {
        int quota = line_quota(root, text);
        if (quota && (!least || quota < least))
            least = quota;
    }
    fclose(file);
    return least;
}

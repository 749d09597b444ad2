/* SPDX-License-Identifier: Apache-2.0 */
/* disk_faults.h - the k-th file call fails, or the process is killed there.
 *
 * The functions of the C library that write files are defined here, so that the
 * library under test, which is linked statically, calls these. Include it in
 * one file of a test program.
 *
 *     disk_arm(k, DISK_FAILS);    // call k from here fails, once
 *     status = save();
 *     if (!disk_disarm())         // there were fewer
 *
 * It also checks that files are durable before they get their final name: a
 * file is synced between its last write and its renaming, a folder between the
 * last name in it and its own. disk_unsafe() counts the names given too early,
 * and files that are not synced at the end. */
#ifndef BT_TEST_DISK_FAULTS_H
#define BT_TEST_DISK_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum disk_fault {
    DISK_FAILS,  /* the call returns EIO and does nothing */
    DISK_FULL,   /* ENOSPC; a write first writes half */
    DISK_BREAKS, /* EINTR, or a short write, which is no failure */
    DISK_KILLS   /* the process is killed before the call */
} disk_fault;

static struct {
    size_t left; /* calls up to and with the one that fails; 0: none */
    disk_fault fault;
    bool happened;
    bool rest; /* the next write fails, too */
} disk;

/* Files and folders that are not synced. */
enum { DISK_DIRTY = 64 };
static struct {
    ino_t dirty[DISK_DIRTY];
    size_t count, early;
} watched;

static inline void disk_mark_dirty(ino_t file)
{
    for (size_t i = 0; i < watched.count; i++)
        if (watched.dirty[i] == file)
            return;
    if (watched.count < DISK_DIRTY)
        watched.dirty[watched.count++] = file;
    else
        watched.early++;
}

/* Whether it was not synced; it is from now on. */
static inline bool disk_mark_synced(ino_t file)
{
    for (size_t i = 0; i < watched.count; i++)
        if (watched.dirty[i] == file) {
            watched.dirty[i] = watched.dirty[--watched.count];
            return true;
        }
    return false;
}

static inline void disk_watch(void)
{
    watched.count = watched.early = 0;
}

static inline size_t disk_unsafe(void)
{
    return watched.early + watched.count;
}

static inline void disk_named(int folder, const char *name)
{
    struct stat is;
    char above[1024] = ".";
    if (fstatat(folder, name, &is, AT_SYMLINK_NOFOLLOW) == 0)
        watched.early += disk_mark_synced(is.st_ino);
    const char *slash = strrchr(name, '/');
    if (slash)
        snprintf(above, sizeof(above), "%.*s", (int)(slash - name + 1), name);
    if (fstatat(folder, above, &is, 0) == 0)
        disk_mark_dirty(is.st_ino);
}

static inline void disk_arm(size_t k, disk_fault fault)
{
    disk.fault = fault;
    disk.happened = disk.rest = false;
    disk.left = k + 1;
}

static inline bool disk_disarm(void)
{
    disk.left = 0;
    disk.rest = false;
    return disk.happened;
}

/* Whether this is the call that fails. */
static inline bool disk_fails_now(void)
{
    if (disk.left == 0 || --disk.left)
        return false;
    disk.happened = true;
    if (disk.fault == DISK_KILLS)
        kill(getpid(), SIGKILL);
    return true;
}

static inline int disk_fail(void)
{
    errno = disk.fault == DISK_FULL ? ENOSPC : EIO;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (disk.rest) {
        disk.rest = false;
        errno = ENOSPC;
        return -1;
    }
    if (disk_fails_now()) {
        if (disk.fault == DISK_FAILS)
            return disk_fail();
        if (disk.fault == DISK_BREAKS && size < 2) {
            errno = EINTR;
            return -1;
        }
        disk.rest = disk.fault == DISK_FULL;
        size = size / 2 + (size == 1);
    }
    struct stat is;
    if (fstat(fd, &is) == 0 && S_ISREG(is.st_mode))
        disk_mark_dirty(is.st_ino);
    return syscall(SYS_write, fd, bytes, size);
}

int fsync(int fd)
{
    if (disk_fails_now() && disk.fault != DISK_BREAKS)
        return disk_fail();
    struct stat is;
    if (fstat(fd, &is) == 0)
        disk_mark_synced(is.st_ino);
    return (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
    int result = (int)syscall(SYS_close, fd);
    return disk_fails_now() && disk.fault != DISK_BREAKS ? disk_fail() : result;
}

/* Calls that take a path do nothing if they fail. */
static inline bool disk_path_call_fails(void)
{
    return disk_fails_now() && disk.fault != DISK_BREAKS;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (disk_path_call_fails())
        return disk_fail();
    int result =
        (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
    if (result == 0)
        disk_named(to_folder, to);
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int symlinkat(const char *target, int folder, const char *name)
{
    return disk_path_call_fails()
               ? disk_fail()
               : (int)syscall(SYS_symlinkat, target, folder, name);
}

int unlinkat(int folder, const char *name, int flags)
{
    return disk_path_call_fails()
               ? disk_fail()
               : (int)syscall(SYS_unlinkat, folder, name, flags);
}

int mkdirat(int folder, const char *name, mode_t mode)
{
    return disk_path_call_fails()
               ? disk_fail()
               : (int)syscall(SYS_mkdirat, folder, name, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return disk_path_call_fails()
               ? disk_fail()
               : (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return openat(AT_FDCWD, path, flags, mode);
}

#endif

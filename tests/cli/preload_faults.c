/* SPDX-License-Identifier: Apache-2.0 */
/* preload_faults.c - a preloaded library that makes one call of the program
 * fail.
 *
 *   BAUTA_FAIL_AT=alloc:K    allocation K fails, 0 being the first one of
 * main() BAUTA_FAIL_AT=memory:K   it and all later ones BAUTA_FAIL_AT=file:K
 * call K that opens, reads, writes, names or removes a file fails with EIO
 *   BAUTA_FAIL_AT=full:K     with ENOSPC, after half of a write
 *   BAUTA_FAIL_AT=kill:K     the program is killed before it
 *   BAUTA_FAIL_AT=space:K    files take K bytes, then there is no space left
 *
 * BAUTA_FAULT_COUNT names a file that gets both numbers of calls when the
 * program exits. Only calls of the program and its libraries are seen, not
 * calls within the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum fault { NONE, ALLOC, MEMORY, FAILS, FULL, KILL, SPACE } fault;

static fault kind;
static long at;
static bool begun; /* main() runs */
static atomic_long allocations, calls, written;

/* ---- memory ------------------------------------------------------------ */

/* The C library's own functions, which it exports for interposed allocators. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);

static bool refused(void)
{
    if (!begun)
        return false;
    long k = atomic_fetch_add(&allocations, 1);
    bool now = (kind == ALLOC && k == at) || (kind == MEMORY && k >= at);
    if (now)
        errno = ENOMEM;
    return now;
}

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return refused() ? NULL : __libc_realloc(memory, size);
}

void *memalign(size_t align, size_t size)
{
    return refused() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    *out = memalign(align, size);
    return *out ? 0 : ENOMEM;
}

/* ---- files ------------------------------------------------------------- */

/* Whether this is the call that fails. */
static bool fails(void)
{
    if (!begun || atomic_fetch_add(&calls, 1) != at || kind < FAILS ||
        kind == SPACE)
        return false;
    if (kind == KILL)
        kill(getpid(), SIGKILL);
    errno = kind == FULL ? ENOSPC : EIO;
    return true;
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails() ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return openat(AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void *to, size_t size)
{
    return fd > 2 && fails() ? -1 : syscall(SYS_read, fd, to, size);
}

/* Bytes of a write for which there is space. */
static size_t space_for(int fd, size_t size)
{
    struct stat is;
    if (kind != SPACE || fd <= 2 || fstat(fd, &is) || !S_ISREG(is.st_mode))
        return size;
    long left = at - atomic_fetch_add(&written, (long)size);
    return left <= 0 ? 0 : (size_t)left < size ? (size_t)left : size;
}

ssize_t write(int fd, const void *from, size_t size)
{
    size_t room = space_for(fd, size);
    if (room == 0 && size > 0) {
        errno = ENOSPC;
        return -1;
    }
    size = room;
    if (fd > 2 && fails()) {
        if (kind == FULL && size > 1)
            (void)!syscall(SYS_write, fd, from, size / 2);
        return -1;
    }
    return syscall(SYS_write, fd, from, size);
}

int close(int fd)
{
    int result = (int)syscall(SYS_close, fd);
    return fd > 2 && fails() ? -1 : result;
}

int fsync(int fd)
{
    return fails() ? -1 : (int)syscall(SYS_fsync, fd);
}

int flock(int fd, int how)
{
    return fails() ? -1 : (int)syscall(SYS_flock, fd, how);
}

int ftruncate(int fd, off_t size)
{
    return fails() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails() ? -1
                   : (int)syscall(SYS_renameat2, from_folder, from, to_folder,
                                  to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int symlinkat(const char *target, int folder, const char *name)
{
    return fails() ? -1 : (int)syscall(SYS_symlinkat, target, folder, name);
}

int unlinkat(int folder, const char *name, int flags)
{
    return fails() ? -1 : (int)syscall(SYS_unlinkat, folder, name, flags);
}

int mkdirat(int folder, const char *name, mode_t mode)
{
    return fails() ? -1 : (int)syscall(SYS_mkdirat, folder, name, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* Writes of stdio, through its stream functions; results on stdout have tests
 * of their own. */
static void *next(const char *name)
{
    bool was = begun;
    begun = false; // dlsym() may allocate
    void *found = dlsym(RTLD_NEXT, name);
    begun = was;
    return found;
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!real)
        *(void **)&real = next("fopen");
    return fails() ? NULL : real(path, mode);
}

int fflush(FILE *file)
{
    static int (*real)(FILE *);
    if (!real)
        *(void **)&real = next("fflush");
    if (file && fileno(file) > 2 &&
        (fails() || (kind == SPACE && atomic_load(&written) > at))) {
        errno = kind == SPACE ? ENOSPC : errno;
        return EOF;
    }
    return real(file);
}

int fclose(FILE *file)
{
    static int (*real)(FILE *);
    if (!real)
        *(void **)&real = next("fclose");
    bool named = fileno(file) > 2;
    int result = real(file);
    return named && fails() ? EOF : result;
}

/* ---- begin and end ----------------------------------------------------- */

static void configure(void)
{
    static const char *const names[] = { "",      "alloc:", "memory:", "file:",
                                         "full:", "kill:",  "space:" };
    const char *text = getenv("BAUTA_FAIL_AT");
    for (int i = ALLOC; text && i <= SPACE; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) {
            kind = (fault)i;
            at = atol(text + strlen(names[i]));
        }
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("BAUTA_FAULT_COUNT");
    char text[64];
    begun = false;
    if (!path)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int size = snprintf(text, sizeof(text), "%ld %ld\n",
                        atomic_load(&allocations), atomic_load(&calls));
    (void)!write(fd, text, (size_t)size);
    close(fd);
}

typedef int main_function(int, char **, char **);
static main_function *program;

static int main_counted(int argc, char **argv, char **environment)
{
    configure();
    begun = true;
    return program(argc, argv, environment);
}

/* The C library calls this to start the program. */
int __libc_start_main(main_function *main_of, int argc, char **argv,
                      void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    int (*real)(main_function *, int, char **, void (*)(void), void (*)(void),
                void (*)(void), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    program = main_of;
    return real(main_counted, argc, argv, init, fini, rtld_fini, stack_end);
}

/* A disk that fails at a chosen call.
 *
 * The server is started with this library (LD_PRELOAD). It counts the calls of C with which a program uses the files below
 * FAULT_DIR. From the call with the number FAULT_FROM on, FAULT_TIMES calls end as FAULT says; only calls that this fault can
 * meet are counted. FAULT_TRACE names a file that gets a line for each call: its name, the file's inode, the bytes of the
 * file (before a sync, or after a truncation), how the call ended, and the path. FAULT_BOOT names a file whose text
 * replaces the id of the boot. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

enum calls { NAMES = 1, READS = 2, WRITES = 4, SYNCS = 8 };
enum end { WORKS, FAILS, HALF, LIES, KILLS };
static const char *const ENDS[] = { "works", "fails", "half", "lies", "kills" };

static const struct fault { const char *name; int calls; enum end end; int error; } FAULTS[] = {
    { "eio", NAMES | READS | WRITES | SYNCS, FAILS, EIO },
    { "enospc", NAMES | WRITES | SYNCS, FAILS, ENOSPC },
    { "short", READS | WRITES, HALF, 0 },
    /* Half of a write, and an error for the rest. */
    { "torn", WRITES, HALF, ENOSPC },
    { "lost", SYNCS, LIES, 0 },
    { "kill", NAMES | READS | WRITES | SYNCS, KILLS, 0 },
    { "cut", NAMES | READS | WRITES | SYNCS, KILLS, 0 },
};

static const struct fault *fault;
static const char *directory, *boot;
static long from, until;
static int trace = -1;
static atomic_long count;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULT"), *path = getenv("FAULT_TRACE");
    boot = getenv("FAULT_BOOT");
    directory = getenv("FAULT_DIR");
    if (!name || !path || !directory)
        return;
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        if (strcmp(name, FAULTS[i].name) == 0)
            fault = &FAULTS[i];
    from = atol(getenv("FAULT_FROM"));
    until = from + atol(getenv("FAULT_TIMES"));
    trace = REAL(open64)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* How this call ends. The file is that of a path, or of a descriptor; `bytes` is its length, or less than 0: ask for it. */
static enum end meet(enum calls calls, const char *name, const char *path, int fd, long long bytes) {
    char link[32], target[4096] = "";
    struct stat file = { 0 };
    int error = errno;
    if (trace < 0)
        return WORKS;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        path = readlink(link, target, sizeof target - 1) < 0 ? "" : target;
        fstat(fd, &file);
    }
    if (strncmp(path, directory, strlen(directory)) != 0) {
        errno = error;
        return WORKS;
    }
    long number = fault->calls & calls ? atomic_fetch_add(&count, 1) + 1 : 0;
    enum end end = number && number >= from && number < until ? fault->end : WORKS;
    if (end == HALF && fault->error && number > from)
        end = FAILS;
    dprintf(trace, "%s %lu %lld %s %s\n", name, (unsigned long) file.st_ino,
            bytes < 0 ? (long long) file.st_size : bytes, number ? ENDS[end] : "uncounted", path);
    if (end == KILLS)
        kill(getpid(), SIGKILL);
    errno = end == FAILS ? fault->error : error;
    return end;
}

static int open_as(const char *path, int flags, mode_t mode) {
    if (boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        path = boot;
    enum calls calls = flags & O_CREAT ? NAMES : READS;
    return meet(calls, "open", path, -1, 0) == FAILS ? -1 : REAL(open64)(path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return open_as(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

ssize_t read(int fd, void *into, size_t bytes) {
    enum end end = meet(READS, "read", NULL, fd, -1);
    /* Less than the header of a frame, since files are smaller than half of what is asked for. */
    return end == FAILS ? -1 : REAL(read)(fd, into, end == HALF && bytes > 5 ? 5 : bytes);
}

ssize_t write(int fd, const void *from_here, size_t bytes) {
    enum end end = meet(WRITES, "write", NULL, fd, -1);
    return end == FAILS ? -1 : REAL(write)(fd, from_here, end == HALF ? (bytes + 1) / 2 : bytes);
}

int ftruncate64(int fd, off64_t bytes) {
    return meet(WRITES, "truncate", NULL, fd, bytes) == FAILS ? -1 : REAL(ftruncate64)(fd, bytes);
}

#define SYNC(name) \
    int name(int fd) { \
        enum end end = meet(SYNCS, "sync", NULL, fd, -1); \
        return end == FAILS ? -1 : end == LIES ? 0 : REAL(name)(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

int mkdir(const char *path, mode_t mode) {
    return meet(NAMES, "mkdir", path, -1, 0) == FAILS ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char *path, const char *to) {
    return meet(NAMES, "rename", path, -1, 0) == FAILS ? -1 : REAL(rename)(path, to);
}

int unlink(const char *path) {
    return meet(NAMES, "unlink", path, -1, 0) == FAILS ? -1 : REAL(unlink)(path);
}

DIR *opendir(const char *path) {
    return meet(READS, "opendir", path, -1, 0) == FAILS ? NULL : REAL(opendir)(path);
}

struct dirent64 *readdir64(DIR *entries) {
    return meet(READS, "readdir", NULL, dirfd(entries), -1) == FAILS ? NULL : REAL(readdir64)(entries);
}

/* Journals what a process does to the files of one disk, for `power_loss.py`.
 *
 * Preloaded (LD_PRELOAD), it appends a record to $POWER_LOSS_JOURNAL after each call that changes a
 * file or a folder, or syncs one. Records of all processes are in one order: each is one write to a
 * file that is opened with O_APPEND. Writes through mmap are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR };

struct head {
    uint32_t size; /* of the whole record */
    uint32_t kind;
    uint64_t inode;
    int64_t offset; /* WRITE: where; TRUNCATE: the new size */
    uint32_t first, second; /* lengths of what follows: paths, or data */
};

static int journal = -1;
static dev_t disk;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_open(void) {
    if (journal < 0) {
        const char *path = getenv("POWER_LOSS_JOURNAL");
        struct stat status;
        if (!path) return 0;
        static int (*real_open)(const char *, int, ...);
        real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
        int opened = real_open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (opened < 0) return 0;
        /* Out of the way: programs close all low descriptors. */
        journal = fcntl(opened, F_DUPFD_CLOEXEC, 900);
        close(opened);
        fstat(journal, &status);
        disk = status.st_dev;
    }
    return 1;
}

static void record(int kind, uint64_t inode, int64_t offset, const void *first, size_t first_size,
                   const void *second, size_t second_size) {
    static ssize_t (*real_writev)(int, const struct iovec *, int);
    int kept = errno;
    struct head head = {sizeof head + first_size + second_size, kind, inode, offset, first_size,
                        second_size};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)first, first_size},
                             {(void *)second, second_size}};
    if (!real_writev)
        real_writev = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (real_writev(journal, parts, 3) != (ssize_t)head.size) abort();
    errno = kept;
}

static int is_file(int fd, struct stat *status) {
    return is_open() && fd != journal && fstat(fd, status) == 0 && status->st_dev == disk &&
           S_ISREG(status->st_mode);
}

/* The absolute path of `path` below the folder `at`. */
static void resolve(int at, const char *path, char *out) {
    char link[64], folder[PATH_MAX];
    ssize_t size;
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    size = readlink(link, folder, sizeof folder - 1);
    folder[size < 0 ? 0 : size] = 0;
    snprintf(out, PATH_MAX, "%s/%s", folder, path);
}

static void record_paths(int kind, uint64_t inode, int at, const char *path, int to_at,
                         const char *to) {
    char first[PATH_MAX], second[PATH_MAX] = "";
    resolve(at, path, first);
    if (to) resolve(to_at, to, second);
    record(kind, inode, 0, first, strlen(first), second, strlen(second));
}

static int opened(int fd, int at, const char *path, int flags, int existed) {
    struct stat status;
    if (fd >= 0 && (flags & (O_CREAT | O_TRUNC)) && is_file(fd, &status)) {
        if (!existed) record_paths(CREATE, status.st_ino, at, path, 0, NULL);
        else if (flags & O_TRUNC) record(TRUNCATE, status.st_ino, 0, "", 0, "", 0);
    }
    return fd;
}

static int exists(int at, const char *path, int flags) {
    struct stat status;
    int kept = errno;
    int found = !(flags & O_CREAT) || fstatat(at, path, &status, 0) == 0;
    errno = kept;
    return found;
}

#define OPEN(name, parameters, at, call) \
    int name parameters { \
        mode_t mode = 0; \
        va_list rest; \
        REAL(name); \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        int existed = exists(at, path, flags); \
        return opened(call, at, path, flags, existed); \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), at, real(at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), at, real(at, path, flags, mode))

static ssize_t wrote(int fd, const void *data, ssize_t size, int64_t offset) {
    struct stat status;
    if (size > 0 && is_file(fd, &status)) {
        int64_t at = offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR) - size;
        record(WRITE, status.st_ino, at, data, size, "", 0);
    }
    return size;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    return wrote(fd, data, real(fd, data, size), -1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    return wrote(fd, data, real(fd, data, size, offset), offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    return wrote(fd, data, real(fd, data, size, offset), offset);
}

/* What was written is read again: rare calls. */
static ssize_t copied(int fd, ssize_t size, int64_t offset) {
    struct stat status;
    if (size > 0 && is_file(fd, &status)) {
        char link[64], *data = malloc(size);
        int64_t at = offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR) - size;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int again = openat(AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
        if (again < 0 || pread(again, data, size, at) != size) abort();
        close(again);
        record(WRITE, status.st_ino, at, data, size, "", 0);
        free(data);
    }
    return size;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    return copied(fd, real(fd, parts, count), -1);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    REAL(pwritev);
    return copied(fd, real(fd, parts, count, offset), offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(pwritev64);
    return copied(fd, real(fd, parts, count, offset), offset);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    REAL(sendfile);
    return copied(out, real(out, in, offset, size), -1);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
    REAL(sendfile64);
    return copied(out, real(out, in, offset, size), -1);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(copy_file_range);
    int64_t at = to ? *to : -1;
    return copied(out, real(in, from, out, to, size, flags), at);
}

static int truncated(int fd, int result, int64_t size) {
    struct stat status;
    if (result == 0 && is_file(fd, &status))
        record(TRUNCATE, status.st_ino, size, "", 0, "", 0);
    return result;
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return truncated(fd, real(fd, size), size);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    return truncated(fd, real(fd, size), size);
}

static int synced(int fd, int result) {
    struct stat status;
    if (result == 0 && is_open() && fstat(fd, &status) == 0 && status.st_dev == disk)
        record(SYNC, status.st_ino, 0, "", 0, "", 0);
    return result;
}

int fsync(int fd) {
    REAL(fsync);
    return synced(fd, real(fd));
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return synced(fd, real(fd));
}

static uint64_t inode_at(int at, const char *path) {
    struct stat status;
    return fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : 0;
}

static int changed(int result, int kind, int at, const char *path, int to_at, const char *to) {
    if (result == 0 && is_open()) {
        int kept = errno;
        uint64_t inode = kind == UNLINK || kind == RMDIR ? 0 : inode_at(to ? to_at : at, to ? to : path);
        record_paths(kind, inode, at, path, to_at, to);
        errno = kept;
    }
    return result;
}

int rename(const char *path, const char *to) {
    REAL(rename);
    return changed(real(path, to), RENAME, AT_FDCWD, path, AT_FDCWD, to);
}

int renameat(int at, const char *path, int to_at, const char *to) {
    REAL(renameat);
    return changed(real(at, path, to_at, to), RENAME, at, path, to_at, to);
}

int renameat2(int at, const char *path, int to_at, const char *to, unsigned flags) {
    REAL(renameat2);
    return changed(real(at, path, to_at, to, flags), RENAME, at, path, to_at, to);
}

int link(const char *path, const char *to) {
    REAL(link);
    return changed(real(path, to), LINK, AT_FDCWD, path, AT_FDCWD, to);
}

int linkat(int at, const char *path, int to_at, const char *to, int flags) {
    REAL(linkat);
    return changed(real(at, path, to_at, to, flags), LINK, at, path, to_at, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return changed(real(path), UNLINK, AT_FDCWD, path, 0, NULL);
}

int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    return changed(real(at, path, flags), flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, path, 0, NULL);
}

int rmdir(const char *path) {
    REAL(rmdir);
    return changed(real(path), RMDIR, AT_FDCWD, path, 0, NULL);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return changed(real(path, mode), MKDIR, AT_FDCWD, path, 0, NULL);
}

int mkdirat(int at, const char *path, mode_t mode) {
    REAL(mkdirat);
    return changed(real(at, path, mode), MKDIR, at, path, 0, NULL);
}

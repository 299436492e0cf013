/* A disk that is full, out of inodes or broken, for the files below one folder.

   Loaded by LD_PRELOAD. The first byte of the file AGENTD_CHAOS_DISK says what is wrong now:
   '0' nothing, 'f' writes find the disk full, 'i' no new file can be made, 'w' writes fail with EIO,
   's' syncs fail with EIO. AGENTD_CHAOS_BELOW is the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile char *control;
static pid_t mapped_by;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static char fault(void) {
    if (mapped_by != getpid()) { /* a fork has the environment of its own command line */
        const char *path = getenv("AGENTD_CHAOS_DISK");
        if (!path) return '0';
        int file = REAL(open)(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return '0';
        void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED) return '0';
        control = page;
        mapped_by = getpid();
    }
    return *control;
}

static int is_below(const char *path) {
    const char *folder = getenv("AGENTD_CHAOS_BELOW");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_file_below(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_below(path);
}

static int refuse_write(int file) {
    char now = fault();
    if ((now != 'f' && now != 'w') || !is_file_below(file)) return 0;
    errno = now == 'f' ? ENOSPC : EIO;
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    return refuse_write(file) ? -1 : REAL(write)(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return refuse_write(file) ? -1 : REAL(pwrite)(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return refuse_write(file) ? -1 : REAL(pwrite64)(file, data, size, at);
}

static int refuse_sync(int file) {
    if (fault() != 's' || !is_file_below(file)) return 0;
    errno = EIO;
    return 1;
}

int fsync(int file) { return refuse_sync(file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return refuse_sync(file) ? -1 : REAL(fdatasync)(file); }

static int refuse_new(const char *path, int flags) {
    if (!(flags & O_CREAT) || !strcmp(path, "") || fault() != 'i' || !is_below(path)) return 0;
    if (access(path, F_OK) == 0) return 0;
    errno = ENOSPC;
    return 1;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return refuse_new(path, flags) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return refuse_new(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    if (path[0] == '/' && refuse_new(path, flags)) return -1;
    if (path[0] != '/' && (flags & O_CREAT) && fault() == 'i' && folder != AT_FDCWD &&
        is_file_below(folder) && faccessat(folder, path, F_OK, 0) != 0) {
        errno = ENOSPC;
        return -1;
    }
    return REAL(openat)(folder, path, flags, mode);
}
int mkdir(const char *path, mode_t mode) {
    if (fault() == 'i' && is_below(path)) {
        errno = ENOSPC;
        return -1;
    }
    return REAL(mkdir)(path, mode);
}

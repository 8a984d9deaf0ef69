// SPDX-License-Identifier: Apache-2.0
// Loaded before the C library (LD_PRELOAD). CPATTN_FAIL="NAME N" makes the N-th call of that name
// fail once, like a failure of the system, and creates the file CPATTN_FAIL_FILE. Other names:
// - memory: malloc, calloc and realloc, except those of libev, which would end the process, and
//   those of libseccomp
// - filter: malloc, calloc and realloc of libseccomp only
// - unpack: the decoding of wire messages
// With CPATTN_SLOW_CLONE=N each clone takes N microseconds longer.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *data, size_t size);
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int socketpair(int domain, int type, int protocol, int ends[2]);
int pipe2(int ends[2], int flags);
int memfd_create(const char *name, unsigned flags);
int ftruncate(int fd, off_t length);
long syscall(long number, ...);
ssize_t recv(int fd, void *data, size_t size, int flags);
ssize_t sendmsg(int fd, const struct msghdr *message, int flags);
void *protobuf_c_message_unpack(const void *descriptor, void *allocator, size_t size,
                                const uint8_t *data);
#pragma GCC visibility pop

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *data, size_t size);

static char chosen[32];
static long left; // number of calls up to the failing one; 0: none fails
static useconds_t clone_us;

__attribute__((constructor)) static void begin(void)
{
    const char *order = getenv("CPATTN_FAIL"), *slow = getenv("CPATTN_SLOW_CLONE");
    clone_us = slow ? (useconds_t)strtoul(slow, NULL, 10) : 0;
    if (order && sscanf(order, "%31s %ld", chosen, &left) != 2)
        left = 0;
}

static void tell(void)
{
    const char *path = getenv("CPATTN_FAIL_FILE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
}

static bool fails(const char *name, int number)
{
    if (left == 0 || strcmp(name, chosen) != 0 || --left > 0)
        return false;
    tell();
    errno = number;
    return true;
}

static bool allocation_fails(const void *caller)
{
    Dl_info info;
    if (left == 0 || (chosen[0] != 'm' && chosen[0] != 'f'))
        return false;
    const char *library = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "";
    if (strstr(library, "libev"))
        return false;
    return fails(strstr(library, "libseccomp") ? "filter" : "memory", ENOMEM);
}

#define CALLER     __builtin_return_address(0)
// The function of the C library.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// The C library's own names of parameters are reserved.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

void *malloc(size_t size)
{
    return allocation_fails(CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return allocation_fails(CALLER) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *data, size_t size)
{
    return allocation_fails(CALLER) ? NULL : __libc_realloc(data, size);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    return fails("accept4", EMFILE) ? -1 : NEXT(accept4)(fd, address, length, flags);
}

int socketpair(int domain, int type, int protocol, int ends[2])
{
    return fails("socketpair", EMFILE) ? -1 : NEXT(socketpair)(domain, type, protocol, ends);
}

int pipe2(int ends[2], int flags)
{
    return fails("pipe2", ENFILE) ? -1 : NEXT(pipe2)(ends, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return fails("memfd_create", ENOMEM) ? -1 : NEXT(memfd_create)(name, flags);
}

int ftruncate(int fd, off_t length)
{
    return fails("ftruncate", ENOSPC) ? -1 : NEXT(ftruncate)(fd, length);
}

// "clone" is the clone that creates processes.
long syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_clone && clone_us > 0)
        usleep(clone_us);
    if (number == SYS_clone && fails("clone", EAGAIN))
        return -1;
    if (number == SYS_pidfd_open && fails("pidfd_open", EMFILE))
        return -1;
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    return fails("recv", ENOMEM) ? -1 : NEXT(recv)(fd, data, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return fails("sendmsg", ENOBUFS) ? -1 : NEXT(sendmsg)(fd, message, flags);
}

void *protobuf_c_message_unpack(const void *descriptor, void *allocator, size_t size,
                                const uint8_t *data)
{
    return fails("unpack", ENOMEM)
               ? NULL
               : NEXT(protobuf_c_message_unpack)(descriptor, allocator, size, data);
}

// NOLINTEND(readability-inconsistent-declaration-parameter-name)

// SPDX-License-Identifier: Apache-2.0
#include "rank/segments.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// ---- life ----

static enum status map(int fd, int protection, char **memory, size_t *bytes, struct error *error)
{
    struct stat stat;
    if (fd < 0)
        return STATUS_OK;
    if (fstat(fd, &stat) != 0 || stat.st_size <= 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the memory of tensors has no size");
    void *mapped = mmap(NULL, (size_t)stat.st_size, protection, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no room for %lld bytes of tensors: %s",
                         (long long)stat.st_size, strerror(errno));
    *memory = mapped;
    *bytes = (size_t)stat.st_size;
    return STATUS_OK;
}

static enum status source_make(struct segments *s, const struct cp_case *c, struct error *error)
{
    const void *tensors[WHOLE_INPUTS];
    for (int i = 0; i < WHOLE_INPUTS; i++)
        tensors[i] = s->places.given[i] == PLACE_NONE ? NULL : s->given + s->places.given[i];
    return source_init(&s->source, c, tensors, error);
}

enum status segments_open(struct segments *s, const struct cp_case *c,
                          const struct places_frame *frame, const int fds[2], struct error *error)
{
    *s = (struct segments){.places = frame->places};
    enum status status = map(fds[0], PROT_READ, &s->given, &s->given_bytes, error);
    if (status == STATUS_OK)
        status = map(fds[1], PROT_READ | PROT_WRITE, &s->wanted, &s->wanted_bytes, error);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (status == STATUS_OK)
        status =
            places_check(c, &s->places, (int64_t)s->given_bytes, (int64_t)s->wanted_bytes, error);
    if (status == STATUS_OK && s->given)
        status = source_make(s, c, error);
    if (status != STATUS_OK)
        segments_close(s);
    return status;
}

void segments_close(struct segments *s)
{
    source_fini(&s->source);
    if (s->given)
        munmap(s->given, s->given_bytes);
    if (s->wanted)
        munmap(s->wanted, s->wanted_bytes);
    *s = (struct segments){.given = NULL};
}

// ---- writing ----

// Copies by a system call, because a store to a page that cannot be allocated raises a signal,
// while the system call returns an error. In a sandbox without this call, memcpy() copies, and a
// missing page raises the signal.
static ssize_t copy(void *to, const void *from, size_t bytes)
{
    struct iovec local = {(void *)(uintptr_t)from, bytes}, remote = {to, bytes};
    ssize_t done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (done >= 0 || (errno != ENOSYS && errno != EPERM))
        return done;
    memcpy(to, from, bytes);
    return (ssize_t)bytes;
}

enum status segments_put(const struct segments *s, int64_t offset, const void *data, size_t bytes,
                         struct error *error)
{
    size_t begin = (size_t)offset;
    if (offset < 0 || begin > s->wanted_bytes || bytes > s->wanted_bytes - begin)
        return error_set(error, STATUS_INTERNAL,
                         "%zu bytes of a result at byte %zu of memory with %zu", bytes, begin,
                         s->wanted_bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t now = copy(s->wanted + begin + done, (const char *)data + done, bytes - done);
        if (now <= 0)
            return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                             "the memory for results cannot be written: %s",
                             now < 0 ? strerror(errno) : "the system has no page for it");
        done += (size_t)now;
    }
    return STATUS_OK;
}

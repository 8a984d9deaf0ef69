// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/channel.h"

#define PATH_DEFAULT "PATH=/usr/local/bin:/usr/bin:/bin"

int spawn_fd_lift(int fd)
{
    if (fd < 0)
        return -1;
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, SPAWN_FD_MIN);
    int error = errno;
    close(fd);
    errno = error;
    return lifted;
}

static int actions_fill(const struct spawn *s, posix_spawn_file_actions_t *actions)
{
    const int fixed[] = {s->null_fd, s->stderr_fd, s->stderr_fd, s->channel_fd, s->progress_fd};
    int result = 0;
    for (int target = 0; result == 0 && target < SPAWN_FD_MESH; target++)
        result = posix_spawn_file_actions_adddup2(actions, fixed[target], target);
    for (int peer = 0; result == 0 && peer < s->world_size; peer++) {
        int target = SPAWN_FD_MESH + peer;
        result = peer == s->rank ? posix_spawn_file_actions_addclose(actions, target)
                                 : posix_spawn_file_actions_adddup2(actions, s->mesh[peer], target);
    }
    // Ours are close-on-exec; this is for what the daemon itself may have inherited.
    if (result == 0)
        result = posix_spawn_file_actions_addclosefrom_np(actions, SPAWN_FD_MESH + s->world_size);
    return result;
}

static int attributes_fill(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int result = posix_spawnattr_setflags(
        attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (result == 0)
        result = posix_spawnattr_setpgroup(attributes, 0);
    if (result == 0)
        result = posix_spawnattr_setsigmask(attributes, &none);
    if (result == 0)
        result = posix_spawnattr_setsigdefault(attributes, &all);
    return result;
}

static int process_start(const struct spawn *s, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, pid_t *pid)
{
    char rank[12], world[12], generation[12], parent[12], device[12];
    snprintf(rank, sizeof(rank), "%d", s->rank);
    snprintf(world, sizeof(world), "%d", s->world_size);
    snprintf(generation, sizeof(generation), "%u", s->generation);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    snprintf(device, sizeof(device), "%d", s->device);
    char name[] = "cpattn-rank";
    char *const arguments[] = {name, rank, world, generation, parent, s->device < 0 ? NULL : device,
                               NULL};
    return posix_spawn(pid, s->program, actions, attributes, arguments, s->environment);
}

enum status spawn_rank(const struct spawn *s, pid_t *pid, struct error *error)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int result = actions_fill(s, &actions);
    if (result == 0)
        result = attributes_fill(&attributes);
    if (result == 0)
        result = process_start(s, &actions, &attributes, pid);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (result != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot start rank %d of %d (%s): %s", s->rank,
                         s->world_size, s->program, strerror(result));
    return STATUS_OK;
}

// Of the daemon's environment ranks get these: where libraries and the driver are, what sanitizers
// read, and all that is meant for CUDA and NCCL.
static bool variable_is_inherited(const char *variable)
{
    static const char *const names[] = {
        "PATH=",         "LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=",
        "LSAN_OPTIONS=", "TSAN_OPTIONS=",    "CUDA_",         "NCCL_",
#ifdef CPATTN_FAULTS
        "CPATTN_FAULT=",
#endif
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool variable_add(char **environment, int *count, const char *variable)
{
    environment[*count] = strdup(variable);
    return environment[*count] && ++*count;
}

char **spawn_environment_create(void)
{
    static const char *const fixed[] = {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "LANG=C"};
    enum { FIXED = sizeof(fixed) / sizeof(fixed[0]) };
    int inherited = 0, count = 0;
    for (char **variable = environ; *variable; variable++)
        inherited += variable_is_inherited(*variable);
    char **environment = calloc((size_t)(FIXED + inherited) + 2, sizeof(*environment));
    bool complete = environment != NULL;
    for (int i = 0; i < FIXED && complete; i++)
        complete = variable_add(environment, &count, fixed[i]);
    for (char **variable = environ; *variable && complete; variable++)
        if (variable_is_inherited(*variable))
            complete = variable_add(environment, &count, *variable);
    if (complete && !getenv("PATH"))
        complete = variable_add(environment, &count, PATH_DEFAULT);
    if (complete)
        return environment;
    spawn_environment_destroy(environment);
    return NULL;
}

void spawn_environment_destroy(char **environment)
{
    for (int i = 0; environment && environment[i]; i++)
        free(environment[i]);
    free(environment);
}

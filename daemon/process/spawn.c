// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/limits.h"

// Maximum number of environment variables of a guest, including the final NULL.
#define ENVIRONMENT_MAX 512

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

// ---- the child ---------------------------------------------------------------------------------

// The child is a copy of its creator, which waits until the child executes its program or ends. It
// was created by the bare system call, of which the C library and sanitizers do not know; so it
// uses direct system calls, too.

#define SIGNALS      64
// Size of a buffer for the kernel's struct sigaction, which is smaller.
#define ACTION_WORDS 8

enum step {
    STEP_SIGNALS,
    STEP_GROUP,
    STEP_FDS,
    STEP_LIMITS,
    STEP_USER,
    STEP_PARENT,
    STEP_FILTER,
    STEP_PROGRAM
};

// What the child reports to its creator, in memory shared by both.
struct outcome {
    volatile enum step step; // the last step that was begun
    volatile int error;      // errno of the failed step; 0: the program was executed
};

struct child {
    const struct spawn_process *p;
    struct confine_orders orders;
    pid_t parent;
    struct outcome *outcome;
};

// Resets signal handlers and ignored signals to the default, then unblocks all signals.
static bool signals_reset(void)
{
    unsigned long none = 0, action[ACTION_WORDS];
    for (int i = 0; i < ACTION_WORDS; i++)
        action[i] = 0;
    for (int number = 1; number <= SIGNALS; number++)
        syscall(SYS_rt_sigaction, number, action, NULL, sizeof(none)); // fails for KILL and STOP
    return syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none)) == 0;
}

static bool fds_place(const struct spawn_process *p)
{
    for (int target = 0; target < p->fd_count; target++)
        if ((p->fds[target] < 0 ? syscall(SYS_close, target) < 0 && errno != EBADF
                                : syscall(SYS_dup3, p->fds[target], target, 0) < 0))
            return false;
    // Closes all others. The daemon's own descriptors are close-on-exec anyway; those that the
    // daemon has inherited may not be.
    return syscall(SYS_close_range, p->fd_count, ~0U, 0) == 0 || errno == ENOSYS;
}

// Ensures that the process does not outlive the daemon. getppid() notices a daemon that ended
// before prctl(). Must follow the change of user, which clears the signal of prctl().
static bool parent_bind(const struct child *c)
{
    if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        return false;
    errno = ESRCH;
    return syscall(SYS_getppid) == c->parent;
}

static bool child_prepare(const struct child *c)
{
    struct outcome *o = c->outcome;
    o->step = STEP_SIGNALS;
    if (!signals_reset())
        return false;
    o->step = STEP_GROUP;
    if (syscall(SYS_setpgid, 0, 0) != 0)
        return false;
    o->step = STEP_FDS;
    if (!fds_place(c->p))
        return false;
    o->step = STEP_LIMITS;
    if (!confine_limits(&c->orders))
        return false;
    o->step = STEP_USER;
    if (c->orders.user && !confine_user(c->orders.user))
        return false;
    o->step = STEP_PARENT;
    if (!parent_bind(c))
        return false;
    confine_priority(&c->orders);
    o->step = STEP_FILTER;
    return !c->orders.filter || filter_load(c->orders.filter);
}

static void child_run(const struct child *c)
{
    const struct spawn_process *p = c->p;
    bool good = child_prepare(c);
    if (good) {
        c->outcome->step = STEP_PROGRAM;
        good = !p->arguments ? syscall(SYS_faccessat, AT_FDCWD, p->program, X_OK) == 0
                             : syscall(SYS_execve, p->program, p->arguments, p->environment) == 0;
    }
    if (!good)
        c->outcome->error = errno;
    for (;;)
        syscall(SYS_exit_group, 127);
}

// ---- the maker's side --------------------------------------------------------------------------

// Creates the child with all signals blocked, so that it does not run the daemon's handlers, and
// waits until it executes the program or ends (CLONE_VFORK).
static pid_t child_start(const struct child *c)
{
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    unsigned long of_parent = c->p->parent > 0 ? CLONE_PARENT : 0;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_VFORK | of_parent | SIGCHLD, 0, 0, 0, 0);
    int error = errno;
    if (pid == 0)
        child_run(c);
    sigprocmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return pid;
}

static enum status step_explain(const struct child *c, struct error *error)
{
    static const char *const steps[] = {
        [STEP_SIGNALS] = "reset its signals",    [STEP_GROUP] = "give it a process group",
        [STEP_FDS] = "give it descriptors",      [STEP_LIMITS] = "limit it",
        [STEP_PARENT] = "bind it to the daemon", [STEP_FILTER] = "filter its system calls"};
    const char *reason = strerror(c->outcome->error);
    if (c->outcome->step == STEP_USER)
        return error_set(error, STATUS_PERMISSION_DENIED, "cannot make it a process of user %u: %s",
                         (unsigned)c->orders.user->uid, reason);
    if (c->outcome->step == STEP_PROGRAM && c->orders.user)
        return error_set(error, STATUS_FAILED_PRECONDITION, "user %u cannot execute %s: %s",
                         (unsigned)c->orders.user->uid, c->p->program, reason);
    if (c->outcome->step == STEP_PROGRAM)
        return error_set(error, STATUS_UNAVAILABLE, "cannot execute %s: %s", c->p->program, reason);
    return error_set(error, STATUS_UNAVAILABLE, "cannot %s: %s", steps[c->outcome->step], reason);
}

static void child_reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

enum status spawn_process(const struct spawn_process *p, pid_t *pid, struct error *error)
{
    struct child c = {.p = p, .parent = p->parent > 0 ? p->parent : getpid()};
    enum status status = STATUS_OK;
    *pid = 0;
    c.outcome =
        mmap(NULL, sizeof(*c.outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c.outcome == MAP_FAILED)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a process: %s", strerror(errno));
    confine_plan(p->confinement, p->fd_count, &c.orders);
    pid_t started = child_start(&c);
    if (started < 0) {
        status =
            error_set(error, STATUS_UNAVAILABLE, "cannot make a process: %s%s", strerror(errno),
                      errno == EAGAIN ? "; there are too many (TasksMax=, ulimit -u)" : "");
    } else if (c.outcome->error != 0) {
        if (p->parent > 0)
            *pid = started;
        else
            child_reap(started);
        status = step_explain(&c, error);
    } else {
        *pid = started;
    }
    munmap(c.outcome, sizeof(*c.outcome));
    return status;
}

enum status spawn_try(const struct confinement *c, const char *program, struct error *error)
{
    const struct spawn_process p = {.program = program, .confinement = c};
    pid_t pid;
    if (!c->user.set)
        return STATUS_OK;
    enum status status = confine_check_rights(&c->user, error);
    if (status == STATUS_OK)
        status = spawn_process(&p, &pid, error);
    if (status == STATUS_OK)
        child_reap(pid);
    else
        error_prefix(error, "ranks cannot have the user of --rank-user");
    return status;
}

// Copies the pointers of an environment and adds one variable. Variables beyond ENVIRONMENT_MAX are
// dropped.
static void environment_extend(char *const *environment, char *variable,
                               char *extended[ENVIRONMENT_MAX])
{
    int count = 0;
    while (count < ENVIRONMENT_MAX - 2 && environment[count]) {
        extended[count] = environment[count];
        count++;
    }
    extended[count++] = variable;
    extended[count] = NULL;
}

enum status spawn_rank(const struct spawn *s, pid_t *pid, struct error *error)
{
    char rank[12], world[12], generation[12], parent[12], device[12], name[] = "cpattn-rank";
    pid_t daemon = s->parent > 0 ? s->parent : getpid();
    int fds[SPAWN_FD_MESH + WORLD_SIZE_MAX] = {s->null_fd, s->stderr_fd, s->stderr_fd,
                                               s->channel_fd, s->progress_fd};
    snprintf(rank, sizeof(rank), "%d", s->rank);
    snprintf(world, sizeof(world), "%d", s->world_size);
    snprintf(generation, sizeof(generation), "%u", s->generation);
    snprintf(parent, sizeof(parent), "%d", (int)daemon);
    snprintf(device, sizeof(device), "%d", s->device);
    char *const arguments[] = {name, rank, world, generation, parent, s->device < 0 ? NULL : device,
                               NULL};
    char numbers[96], *guest_environment[ENVIRONMENT_MAX];
    snprintf(numbers, sizeof(numbers), "CPATTN_GUEST=%s %s %s %s%s%s", rank, world, generation,
             parent, s->device < 0 ? "" : " ", s->device < 0 ? "" : device);
    environment_extend(s->environment, numbers, guest_environment);
    memcpy(fds + SPAWN_FD_MESH, s->mesh, (size_t)s->world_size * sizeof(*fds));
    const struct spawn_process p = {
        .program = s->words ? s->words[0] : s->program,
        .arguments = s->words ? s->words : arguments,
        .environment = s->words ? guest_environment : s->environment,
        .fds = fds,
        .fd_count = SPAWN_FD_MESH + s->world_size,
        .confinement = s->confinement,
        .parent = s->parent,
    };
    enum status status = spawn_process(&p, pid, error);
    if (status != STATUS_OK)
        error_prefix(error, "rank %d of %d is not started", s->rank, s->world_size);
    return status;
}

// ---- the environment ---------------------------------------------------------------------------

static bool names_have(const char *const *names, size_t count, const char *variable)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

// True for variables of the daemon's environment that ranks inherit: paths of libraries and the
// driver, options of sanitizers, variables of CUDA, NCCL, and those of CPATTN_* for ranks.
static bool variable_is_inherited(bool of_guests, const char *variable)
{
    static const char *const names[] = {
        "PATH=",
        "LD_LIBRARY_PATH=",
        "ASAN_OPTIONS=",
        "UBSAN_OPTIONS=",
        "LSAN_OPTIONS=",
        "TSAN_OPTIONS=",
        "CUDA_",
        "NCCL_",
        "CPATTN_AMX=",
        "CPATTN_TRANSPORT=",
        "CPATTN_PROVIDERS=",
#ifdef CPATTN_FAULTS
        "CPATTN_FAULT=",
#endif
    };
    // For guests: variables and cache paths of Python and frameworks.
    static const char *const guest_names[] = {
        "HOME=",   "TMPDIR=",      "USER=",           "CPATTN_LIBRARY_PATH=",
        "PYTHON",  "VIRTUAL_ENV=", "XDG_CACHE_HOME=", "TORCH",
        "TRITON_", "NVTE_",
    };
    return names_have(names, sizeof(names) / sizeof(names[0]), variable) ||
           (of_guests &&
            names_have(guest_names, sizeof(guest_names) / sizeof(guest_names[0]), variable));
}

static bool variable_add(char **environment, int *count, const char *variable)
{
    environment[*count] = strdup(variable);
    return environment[*count] && ++*count;
}

char **spawn_environment_create(bool of_guests)
{
    static const char *const fixed[] = {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "LANG=C"};
    enum { FIXED = sizeof(fixed) / sizeof(fixed[0]) };
    int inherited = 0, count = 0;
    for (char **variable = environ; *variable; variable++)
        inherited += variable_is_inherited(of_guests, *variable);
    char **environment = calloc((size_t)(FIXED + inherited) + 2, sizeof(*environment));
    bool complete = environment != NULL;
    for (int i = 0; i < FIXED && complete; i++)
        complete = variable_add(environment, &count, fixed[i]);
    for (char **variable = environ; *variable && complete; variable++)
        if (variable_is_inherited(of_guests, *variable))
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

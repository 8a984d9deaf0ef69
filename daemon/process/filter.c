// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// System calls that are refused. They are named, because the headers of a build may be older than
// the running kernel; names unknown to libseccomp are skipped.
static const char *const refused[] = {
    // other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    // namespaces and mounts
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "setns", "umount", "umount2", "unshare",
    // the system itself
    "acct", "adjtimex", "clock_adjtime", "clock_settime", "delete_module", "finit_module",
    "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load", "quotactl", "quotactl_fd",
    "reboot", "setdomainname", "sethostname", "settimeofday", "swapoff", "swapon", "syslog",
    "vhangup",
    // parts of the kernel with a history of faults
    "add_key", "bpf", "fanotify_init", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "keyctl", "lookup_dcookie", "modify_ldt", "name_to_handle_at", "open_by_handle_at",
    "perf_event_open", "request_key", "uselib", "userfaultfd", "ustat"};

// Time limit to create a filter, which takes some milliseconds.
#define MAKE_SECONDS 5

// Refused flags of clone(). clone3() is refused completely, because a filter cannot read its flags,
// which are in memory.
static const unsigned namespaces[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
                                      CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};

bool filter_is_there(void)
{
    const unsigned action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static bool rules_add(scmp_filter_ctx rules, bool sockets)
{
    bool good = true;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        int number = seccomp_syscall_resolve_name(refused[i]);
        if (number != __NR_SCMP_ERROR)
            good &= seccomp_rule_add(rules, SCMP_ACT_ERRNO(EPERM), number, 0) == 0;
    }
    for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
        good &= seccomp_rule_add(rules, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i])) == 0;
    // After ENOSYS the C library uses clone().
    good &= seccomp_rule_add(rules, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
    if (!sockets)
        good &= seccomp_rule_add(rules, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                                 SCMP_A0(SCMP_CMP_NE, AF_UNIX)) == 0;
    return good;
}

// Converts the rules to the kernel's format, through a file because the library writes only to one.
static bool rules_export(scmp_filter_ctx rules, struct filter *filter)
{
    int fd = memfd_create("filter", MFD_CLOEXEC);
    bool good = fd >= 0 && seccomp_export_bpf(rules, fd) == 0;
    ssize_t size = good ? pread(fd, filter->code, sizeof(filter->code), 0) : 0;
    good = good && size > 0 && lseek(fd, 0, SEEK_END) == size;
    filter->count = good ? (unsigned short)((size_t)size / sizeof(filter->code[0])) : 0;
    if (fd >= 0)
        close(fd);
    return good;
}

// Creates the filter in a separate process, which writes it to shared memory and ends: if memory is
// short, the library crashes or loops.
static void filter_make(bool sockets, struct filter *filter)
{
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGALRM, SIG_DFL);
    alarm(MAKE_SECONDS);
    setrlimit(RLIMIT_CPU, &(struct rlimit){1, 1}); // ends a loop
    scmp_filter_ctx rules = seccomp_init(SCMP_ACT_ALLOW);
    _exit(rules && rules_add(rules, sockets) && rules_export(rules, filter) ? 0 : 1);
}

static bool ends_well(pid_t pid)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

enum status filter_create(bool sockets, struct filter *filter, struct error *error)
{
    struct filter *made =
        mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = made == MAP_FAILED ? -1 : fork();
    if (pid == 0)
        filter_make(sockets, made);
    bool good = ends_well(pid) && made->count > 0;
    *filter = good ? *made : (struct filter){0};
    if (made != MAP_FAILED)
        munmap(made, sizeof(*made));
    return good ? STATUS_OK
                : error_set(error, STATUS_UNAVAILABLE,
                            "the filter of system calls for ranks cannot be created; "
                            "--rank-filter off disables it");
}

bool filter_load(const struct filter *filter)
{
    const struct sock_fprog program = {filter->count, (struct sock_filter *)filter->code};
    return syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

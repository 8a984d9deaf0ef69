// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/strays.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/process/proc.h"

// Maximum number of children looked at per call; later calls find the others.
#define STRAYS_MAX 256

bool strays_are_ours(void)
{
    pid_t pid;
    return getpid() != 1 && proc_children(getpid(), &pid, 1) == 0;
}

// Kills strays and returns their number. Only this process reaps them, so their pids cannot be
// reused meanwhile.
static int strays_kill(bool (*is_rank)(const void *context, pid_t pid), const void *context)
{
    pid_t pids[STRAYS_MAX];
    int count = proc_children(getpid(), pids, STRAYS_MAX), strays = 0;
    for (int i = 0; i < count; i++) {
        if (is_rank(context, pids[i]))
            continue;
        strays++;
        kill(pids[i], SIGKILL);
    }
    return strays;
}

// Reaps strays and returns their number. Checks each ended child before reaping it, because ranks
// are reaped through their pidfds. A rank that has ended and is not reaped yet hides the children
// after it until a later call.
static int strays_reap(bool (*is_rank)(const void *context, pid_t pid), const void *context)
{
    siginfo_t info = {0};
    int reaped = 0;
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
           !is_rank(context, info.si_pid)) {
        log_notice("stray_reaped pid=%d", (int)info.si_pid);
        reaped += waitpid(info.si_pid, NULL, WNOHANG) == info.si_pid;
        info.si_pid = 0;
    }
    return reaped;
}

int strays_end(bool kill_them, bool (*is_rank)(const void *context, pid_t pid), const void *context)
{
    int strays = kill_them ? strays_kill(is_rank, context) : 0;
    int left = strays - strays_reap(is_rank, context);
    return left > 0 ? left : 0;
}

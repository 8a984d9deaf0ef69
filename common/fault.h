// SPDX-License-Identifier: Apache-2.0
// Points at which tests can make a rank misbehave. FAULT(point) is empty unless the build has
// CPATTN_FAULTS (configure --enable-faults, and the test program tests/daemon/faulty_rank).
//
// In such a build the environment variable CPATTN_FAULT names a file. If the file holds "POINT KIND
// RANK" when this rank reaches this point, the rank removes the file and misbehaves as the kind
// says. Removing the file ensures that only one process carries out the order, once.
#ifndef CPATTN_COMMON_FAULT_H
#define CPATTN_COMMON_FAULT_H

#include <stdint.h>

// X(name, "name in the file", where)
#define FAULT_POINT_LIST(X)                                                                        \
    X(HELLO, "hello", "before it says HELLO")                                                      \
    X(READY, "ready", "connected to its peers, before it says READY")                              \
    X(RECEIPT, "receipt", "it has a case")                                                         \
    X(INPUTS, "inputs", "memory is agreed on, inputs are not there")                               \
    X(FORWARD, "forward", "before a computation of the forward pass")                              \
    X(EXCHANGE, "exchange", "an exchange is under way")                                            \
    X(BACKWARD, "backward", "before a computation of the backward pass")                           \
    X(REFERENCE, "reference", "before verification")                                               \
    X(REPORT, "report", "before it reports")                                                       \
    X(REPORTED, "reported", "it has reported")                                                     \
    X(IDLE, "idle", "before it looks for a case")

enum fault_point {
#define FAULT_ENUM(name, text, where) FAULT_##name,
    FAULT_POINT_LIST(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_POINTS
};

// X(name, "name in the file", what). "goes on": the rank continues normally afterwards.
#define FAULT_KIND_LIST(X)                                                                         \
    X(KILL, "kill", "SIGKILL")                                                                     \
    X(ABORT, "abort", "SIGABRT")                                                                   \
    X(EXIT, "exit", "exit status 0")                                                               \
    X(STOP, "stop", "SIGSTOP")                                                                     \
    X(SPIN, "spin", "computes for ever")                                                           \
    X(CLOSE, "close", "closes its channel and sleeps")                                             \
    X(GARBAGE, "garbage", "sends what is no frame, and sleeps")                                    \
    X(LONG, "long", "sends a frame that is too long, and sleeps")                                  \
    X(HALF, "half", "sends half a report, and sleeps")                                             \
    X(STALE, "stale", "reports for a generation that is gone; goes on")                            \
    X(TWICE, "twice", "reports on the case; goes on, and reports again")                           \
    X(FLOOD, "flood", "writes 10 MB to stderr; goes on")                                           \
    X(LEAK, "leak", "opens descriptors until there are no more; goes on")                          \
    X(HOARD, "hoard", "takes memory until there is no more; goes on")                              \
    X(WAIT, "wait", "waits while there is a file of the same name with .wait; goes on")

enum fault_kind {
#define FAULT_ENUM(name, text, what) FAULT_KIND_##name,
    FAULT_KIND_LIST(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_KINDS
};

#ifdef CPATTN_FAULTS
// Set the identity and the current job of this rank.
void fault_know(int rank, uint32_t generation);
void fault_know_job(uint64_t job);
// Carries out the order in the file, if it names this point and this rank.
void fault_meet(enum fault_point point);
#define FAULT(point)                 fault_meet(FAULT_##point)
#define FAULT_KNOW(rank, generation) fault_know(rank, generation)
#define FAULT_KNOW_JOB(job)          fault_know_job(job)
#else
#define FAULT(point)                 ((void)0)
#define FAULT_KNOW(rank, generation) ((void)0)
#define FAULT_KNOW_JOB(job)          ((void)0)
#endif

#endif

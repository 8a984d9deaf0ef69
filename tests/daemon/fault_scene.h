// SPDX-License-Identifier: Apache-2.0
// Cells of fault matrices: a daemon with ranks that misbehave by order (common/fault.h), cases that
// meet the faults, and checks after each cell. A few processes, each with its own daemon, take the
// cells one after the other. One line of TAP for each cell.
//
// In the environment:
//     CPATTN_TEST_BACKEND  cuda: on GPUs
//     CPATTN_TEST_DEVICES  number of devices; default 2. 1: rank 0 is on the daemon's host, rank 1
//                          on another host: an agent on this machine, with the same device
//     CPATTN_TEST_WORKERS  number of daemons; default 4, or one for each pair of GPUs
//     CPATTN_TEST_CELLS    FIRST-LAST: only these cells, by the numbers in their lines
//     CPATTN_TEST_RANK     the rank program; default: that of the build
//     CPATTN_TEST_LOG      set: the logs are printed at the end
#ifndef CPATTN_TESTS_DAEMON_FAULT_SCENE_H
#define CPATTN_TESTS_DAEMON_FAULT_SCENE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/fault.h"
#include "tests/support/raw_client.h"
#include "tests/support/trouble.h"

// Much longer than any wait of a passing test.
#define PATIENCE_MS  60000
#define PAUSE_US     20000
#define CHILDREN_MAX 64

// Kinds of answers.
enum {
    PASSES = 1,
    EXITS = 2,        // ABORTED: rank 1 died
    FAILS = 4,        // INTERNAL: rank 1 failed, or broke the protocol
    OVERRUNS = 8,     // DEADLINE_EXCEEDED: the other ranks waited for rank 1
    NOT_STARTED = 16, // DEADLINE_EXCEEDED: the pool did not start
    TOO_EARLY = 32,   // DEADLINE_EXCEEDED: rank 1 is not the cause
    LACKS = 64,       // RESOURCE_EXHAUSTED: rank 1 has no memory
};

struct cell {
    enum fault_point point;
    enum fault_kind kind;
};

extern struct scene {
    int number;
    const char *spares; // on or off
    char folder[64], socket[96], log[96], agent_log[96], secret[96], wrapper[96], order[96];
    pid_t daemon, agent; // agent 0: a single host
    struct raw_client client;
    uint32_t last;
    int descriptors, children; // with an idle pool
} scene;

bool is_start(enum fault_point point); // the rank is not ready yet
bool is_hang(enum fault_kind kind);
bool is_end(enum fault_kind kind); // the process ends

extern const char *const point_names[], *const kind_names[];

int number_of(const char *variable, int otherwise); // a positive number in the environment
int devices(void);
bool on_gpus(void);
// Starts the daemon, with an agent if there is one device.
void hosts_start(void);
// Ends daemon and agent by SIGTERM. False, with a message, if one fails or something is left.
bool hosts_end(void);
int descriptors_count(void);                  // of daemon and agent
int children_list(pid_t *pids);               // of daemon and agent, each in order of start
void ranks_end(const pid_t *pids, int count); // kills them and waits until they are reaped
// Waits until these ranks sleep. The daemon may report a pool as idle before its ranks have passed
// FAULT(IDLE).
void ranks_rest(const pid_t *pids, int count);
void ranks_kill(void); // all of them

// Sets the fault of rank 1 at a point.
void order_write(const struct cell *cell);
bool order_is_met(void);

// Sends a request; returns its number.
uint32_t case_send(int timeout_ms);
// Takes the next answer. It must be to this request, and of an allowed kind. Returns the kind;
// `message` gets the text (ERROR_TEXT_MAX bytes, or NULL).
int answer_take(const char *which, uint32_t number, int allowed, char *message);
void warm_up(void); // a case passes
// Sends a status request. The next answer must be to it: no other answer is left. No case may be
// queued or running.
void nothing_more(void);
// Waits until there are as many descriptors and children as before the first cell.
void baseline_await(void);
// Records a trouble if the daemon or the agent has ended.
void alive_check(void);

// The cells of a test program: some points with all kinds.
struct cells {
    const char *prefix; // of their names
    const enum fault_point *points;
    int point_count;
    const char *spares;
    void (*begin)(void); // before the first cell; after each cell the state must be the same
    void (*run)(const struct cell *cell);
};

// main(): PROGRAM [POINT [KIND]...], where a point may be "any"
int cells_main(const struct cells *cells, int argc, char **argv);

#endif

// SPDX-License-Identifier: Apache-2.0
// Cells of fault matrices: a daemon with ranks that take orders to misbehave (common/fault.h),
// cases that meet them, and what must be true when a cell is over. A few processes, each with a
// daemon of its own, take the cells one after the other. One line of TAP a cell.
//
// In the environment:
//     CPATTN_TEST_BACKEND  cuda: on GPUs
//     CPATTN_TEST_DEVICES  how many GPUs there are; 2 unless it is set. 1: rank 0 is on the
//     daemon's
//                          host and rank 1 on another, an agent beside it with the same device
//     CPATTN_TEST_WORKERS  how many daemons run; 4, or one for each pair of GPUs
//     CPATTN_TEST_CELLS    FIRST-LAST: only these of the cells, by the numbers in their lines
//     CPATTN_TEST_RANK     the rank program; that of the build unless it is set
//     CPATTN_TEST_LOG      set: the daemons' logs are printed at the end
#ifndef CPATTN_TESTS_DAEMON_FAULT_SCENE_H
#define CPATTN_TESTS_DAEMON_FAULT_SCENE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/fault.h"
#include "tests/support/raw_client.h"
#include "tests/support/trouble.h"

// Far beyond what anything takes.
#define PATIENCE_MS  60000
#define PAUSE_US     5000
#define CHILDREN_MAX 64

// What an answer may be.
enum {
    PASSES = 1,
    EXITS = 2,        // ABORTED: rank 1 was lost
    FAILS = 4,        // INTERNAL: rank 1 failed, or broke the rules
    OVERRUNS = 8,     // DEADLINE_EXCEEDED: rank 1 held up the case
    NOT_STARTED = 16, // DEADLINE_EXCEEDED: the pool did not come up
    TOO_EARLY = 32,   // DEADLINE_EXCEEDED: rank 0 had come less far still
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
    pid_t daemon, agent; // agent 0: one host has all ranks
    struct raw_client client;
    uint32_t last;
    int descriptors, children; // with a warm pool and nothing to do
} scene;

bool is_start(enum fault_point point); // before the rank is ready
bool is_hang(enum fault_kind kind);
bool is_end(enum fault_kind kind); // of the process

extern const char *const point_names[], *const kind_names[];

int number_of(const char *variable, int otherwise); // in the environment; positive
int devices(void);
bool on_gpus(void);
// The daemon, with an agent if there is one device.
void hosts_start(void);
// SIGTERM to both; nothing may be left. False, with a line, otherwise.
bool hosts_end(void);
int descriptors_count(void);                  // of daemon and agent
int children_list(pid_t *pids);               // of both, of each in the order of their starts
void ranks_end(const pid_t *pids, int count); // kills them and waits until they are reaped
// Waits until they sleep: the daemon calls a pool idle before its ranks have passed FAULT(IDLE).
void ranks_rest(const pid_t *pids, int count);
void ranks_kill(void); // all of them

// Rank 1 is to do that when it comes there.
void order_write(const struct cell *cell);
bool order_is_met(void);

// Makes a request; gives back its number.
uint32_t case_send(int timeout_ms);
// Takes the answer to this request, which must be the next, and be one of these. Gives back which;
// `message`, of ERROR_TEXT_MAX, or NULL: what it says.
int answer_take(const char *which, uint32_t number, int allowed, char *message);
void warm_up(void); // a case passes
// The next answer is that of a request that is made now: none was left over, none comes twice.
void nothing_more(void);
// Until there are as many descriptors and children as before the first cell.
void baseline_await(void);
// Daemon and agent have not ended.
void alive_check(void);

// The cells of a program: some points with all kinds.
struct cells {
    const char *prefix; // of their names
    const enum fault_point *points;
    int point_count;
    const char *spares;
    void (*begin)(
        void); // before the first cell: what is there then is what must be there after each
    void (*run)(const struct cell *cell);
};

// main(): PROGRAM [POINT [KIND]...], where a point may be "any"
int cells_main(const struct cells *cells, int argc, char **argv);

#endif

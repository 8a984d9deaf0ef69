// SPDX-License-Identifier: Apache-2.0
// The scene of faults over several hosts: a daemon and the agents of hosts "b" and "c", with two
// devices each. Ranks wait at a place by order (common/fault.h). The hosts meet over loopback, or
// each has a network namespace with a cable to a bridge. Namespaces need root and ip(8).
#ifndef CPATTN_TESTS_NODES_NODE_SCENE_H
#define CPATTN_TESTS_NODES_NODE_SCENE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/support/raw_client.h"
#include "tests/support/trouble.h"

#define NODES       3  // the daemon's own is 0
#define WORLD       6  // two ranks on each
#define RANKS       10 // these six, and a pool of four on two hosts
// Much longer than any wait of a passing test.
#define PATIENCE_MS 30000
#define PAUSE_US    2000

extern struct node_scene {
    bool cables;
    char folder[64], socket[96], log[96], wrapper[96], order[96], wait[112], secret[96];
    char address[32];
    int port;
    pid_t processes[NODES]; // the daemon and its agents
    pid_t keepers[NODES];   // of the namespaces
    int descriptors;        // of all processes, while both pools are idle
    struct raw_client client;
    uint32_t last;
    long log_begin; // where the log of the current cell begins
} node_scene;

// Starts everything, with a pool of six ranks and one of four. False: namespaces are not available.
bool scene_begin(bool cables);
// Ends everything. True if nothing is left.
bool scene_end(void);

void daemon_begin(void);
void daemon_reap(void); // reaps a killed daemon
void agent_begin(int node);
void agent_reap(int node);
void cable_set(int node, bool whole);

// Waits until the daemon has logged this text `count` times since log_mark(), the begin of a cell.
void log_await(const char *text, int count);
void log_mark(void);

// The process of a rank of the pool of six; 0: there is none.
pid_t rank_pid(int rank);
// Rank processes on a host, and anywhere.
int ranks_on(int node);
int ranks_anywhere(void);
void ranks_await(int count);
// Kills the ranks of all hosts. Waits until they are gone and the daemon has logged it.
void pools_end(void);

// Rank `rank` waits at `point` ("forward") until wait_end().
void wait_begin(const char *point, int rank);
void wait_await(void); // until it waits
void wait_end(void);

// Sends a case; returns its number.
uint32_t case_send(int world_size, int nodes, int timeout_ms);
// Takes the next answer. It must be to this request. False: no answer.
bool answer_take(const char *which, uint32_t number, struct wire_reply *reply);
// A case passes.
void case_pass(const char *which, int world_size, int nodes);
// A case on all hosts passes, and a case on two.
void cases_pass(const char *which);
// No other answer may be left. No case may be queued or running.
void nothing_more(void);
// Waits until descriptors and ranks are as before the first cell.
void baseline_await(void);

#endif

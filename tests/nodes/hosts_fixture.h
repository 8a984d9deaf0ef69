// SPDX-License-Identifier: Apache-2.0
// A daemon with agents of other hosts, all on this machine. The hosts "b" and "c" and the daemon's
// own host have two devices each. A function that cannot do its work fails the running test.
#ifndef CPATTN_TESTS_NODES_HOSTS_FIXTURE_H
#define CPATTN_TESTS_NODES_HOSTS_FIXTURE_H

#include "tests/daemon/daemon_fixture.h"

#define HOSTS 3 // the daemon's own is 0

#define HOSTS_OPTIONS_MAX 8

struct hosts {
    struct daemon daemon;
    const char *scheme; // scheme and host of the daemon for agents; NULL: "tcp://127.0.0.1"
    // Further arguments, ended by NULL.
    const char *daemon_options[HOSTS_OPTIONS_MAX + 1], *agent_options[HOSTS_OPTIONS_MAX + 1];
    int port;            // of the daemon for agents
    pid_t agents[HOSTS]; // 0: none
    char token[128], other_token[128];
};

// Starts the daemon, without agents.
void hosts_start(struct hosts *h);

// hosts_agent_spawn() starts the agent of a host, with this port of the daemon and this token file.
// hosts_agent_start() uses those of the daemon, and waits until the daemon has accepted the agent.
void hosts_agent_spawn(struct hosts *h, int host, int port, const char *token_file);
void hosts_agent_start(struct hosts *h, int host);

// Waits until a file, or the daemon's log, has this many lines with the text.
void hosts_await_text(const char *path, const char *text, int count);
void hosts_await_logged(const struct hosts *h, const char *text, int count);

// Sends a signal to an agent. After SIGKILL and SIGTERM waits for its end; after SIGTERM its exit
// status must be 0.
void hosts_agent_signal(struct hosts *h, int host, int number);

// Number of rank processes of a host.
int hosts_rank_count(const struct hosts *h, int host);

// The pid of a rank of a host; 0: the host has no such rank.
pid_t hosts_rank_pid(const struct hosts *h, int host, int world_size, int rank);

// Sends a signal to a rank of a host. The rank must exist.
void hosts_signal_rank(const struct hosts *h, int host, int world_size, int rank, int number);

// Number of lines of a file with the text.
int hosts_lines_count(const char *path, const char *text);

// Stops all processes and checks that nothing is left.
void hosts_stop(struct hosts *h);

// A small case and a long case on this many hosts; runs a small case, which must pass.
struct wire_request hosts_request(int world_size, int nodes);
struct wire_request hosts_request_long(int world_size, int nodes);
void hosts_run_and_pass(struct hosts *h, int world_size, int nodes);

#endif

// SPDX-License-Identifier: Apache-2.0
// The daemon process of the soak, and the faults that are injected into its ranks.
#ifndef CPATTN_BENCH_SOAK_PROCESS_H
#define CPATTN_BENCH_SOAK_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Number of kinds of faults: signals, and orders to a rank program that can fail on demand.
#define SOAK_FAULTS     14
#define SOAK_RANKS_SEEN 512
#define SOAK_TOKEN      "soak-token-of-clients-over-tcp"

struct soak_process {
    char folder[64], socket[96], log[96], settings[96], token[96];
    char wrapper[96], order[96]; // "" without a rank program that takes orders
    int port;                    // TCP port of the daemon; 0: none
    pid_t pid;
    bool ended;
    int status;
    int shm_before; // entries of NCCL in /dev/shm before the daemon started
    // Processor time of each rank at the previous fault.
    struct soak_rank {
        pid_t pid;
        long ticks;
    } seen[SOAK_RANKS_SEEN];
    int seen_count;
};

struct soak_sample {
    int second;
    long resident_kib;
    int descriptors, children, threads;
};

struct soak_start {
    const char *program;
    const char *faulty_rank; // rank program that takes orders; NULL: the daemon's own
    const char *queue_max;
    int port;
    char **options; // further options of the daemon, ended by NULL
};

// Starts the daemon; exits if this fails.
void soak_process_start(struct soak_process *p, const struct soak_start *start);

// Writes settings and makes the daemon reload them.
void soak_process_reload(const struct soak_process *p, const char *idle_timeout, int user_queue_max,
                         const char *log_level);

// Injects a random fault. Returns its kind; -1: there is no process that it can hit.
int soak_process_fault(struct soak_process *p, uint64_t *random);
const char *soak_fault_name(int kind);

// Removes the order file, and continues stopped ranks.
void soak_process_calm(struct soak_process *p);

bool soak_process_alive(struct soak_process *p);
void soak_process_sample(const struct soak_process *p, struct soak_sample *sample);
// Number of lines of the daemon's log that contain the text.
int soak_process_logged(const struct soak_process *p, const char *text);

// Sends SIGTERM, waits for the end and describes it. False: the daemon had ended before, did not
// exit with 0, or left processes or files behind.
bool soak_process_end(struct soak_process *p, char *text, size_t size);

#endif

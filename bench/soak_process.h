// SPDX-License-Identifier: Apache-2.0
// The daemon of the soak, and the faults of its ranks.
#ifndef CPATTN_BENCH_SOAK_PROCESS_H
#define CPATTN_BENCH_SOAK_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Kinds of faults: signals, and orders to a rank program that can fail on demand.
#define SOAK_FAULTS     14
#define SOAK_RANKS_SEEN 512
#define SOAK_TOKEN      "soak-token-of-clients-over-tcp"

struct soak_process {
    char folder[64], socket[96], log[96], settings[96], token[96];
    char wrapper[96], order[96]; // "" without a rank program that takes orders
    int port;                    // its TCP port; 0: none
    pid_t pid;
    bool ended;
    int status;
    int shm_before; // entries of ours in /dev/shm
    // The processor time of each rank at the last look.
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
    const char *faulty_rank; // or NULL
    const char *queue_max;
    int port;
    char **options; // further ones of the daemon, up to a NULL
};

// Starts the daemon, or ends the program.
void soak_process_start(struct soak_process *p, const struct soak_start *start);

// Writes settings and makes the daemon reload them.
void soak_process_reload(const struct soak_process *p, const char *idle_timeout, int user_queue_max,
                         const char *log_level);

// Makes a rank fail. Returns the kind of fault; -1: no such rank.
int soak_process_fault(struct soak_process *p, uint64_t *random);
const char *soak_fault_name(int kind);

// Withdraws pending orders, and continues stopped ranks.
void soak_process_calm(struct soak_process *p);

bool soak_process_alive(struct soak_process *p);
void soak_process_sample(const struct soak_process *p, struct soak_sample *sample);
// Number of log lines with this text.
int soak_process_logged(const struct soak_process *p, const char *text);

// Sends SIGTERM and describes the end; false if the end was not clean.
bool soak_process_end(struct soak_process *p, char *text, size_t size);

#endif

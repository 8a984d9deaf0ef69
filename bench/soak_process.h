// SPDX-License-Identifier: Apache-2.0
// The daemon that the soak runs, and what is done to its ranks.
#ifndef CPATTN_BENCH_SOAK_PROCESS_H
#define CPATTN_BENCH_SOAK_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Kinds of faults: signals, and those that a rank program with faults does to itself.
#define SOAK_FAULTS 9

struct soak_process {
    char folder[64], socket[96], log[96];
    char wrapper[96], order[96]; // "" without a rank program that takes orders
    pid_t pid;
    bool ended;
    int status;
};

struct soak_sample {
    int second;
    long resident_kib;
    int descriptors, children;
};

// Starts it; ends the program when that cannot be done.
void soak_process_start(struct soak_process *p, const char *program, const char *queue_max,
                        const char *faulty_rank);

// Does something to a rank. Gives back the kind; -1 where there is no rank.
int soak_process_fault(struct soak_process *p, uint64_t *random);
const char *soak_fault_name(int kind);

// Takes back what is not done yet, and kills ranks that are stopped.
void soak_process_calm(struct soak_process *p);

bool soak_process_alive(struct soak_process *p);
void soak_process_sample(const struct soak_process *p, struct soak_sample *sample);

// SIGTERM, and what came of it in words; false unless it ended well and left nothing.
bool soak_process_end(struct soak_process *p, char *text, size_t size);

#endif

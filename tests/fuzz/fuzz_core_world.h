// SPDX-License-Identifier: Apache-2.0
// The world of fuzz_core: the clients and ranks of a pool core, and checks of its actions. A broken
// promise ends the process.
#ifndef CPATTN_TESTS_FUZZ_FUZZ_CORE_WORLD_H
#define CPATTN_TESTS_FUZZ_FUZZ_CORE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "daemon/core/core.h"

#define MS           UINT64_C(1000000)
#define S            (1000 * MS)
#define NEVER        UINT64_MAX
#define SLOTS_MAX    16
#define REQUESTS_MAX 64 // number of stored requests: the last ones

enum life { LIFE_NONE, LIFE_LIVING, LIFE_ANSWERED, LIFE_FORGOTTEN };

struct asked {
    struct core_request request;
    enum life life;
    int place; // the slot, or the index of the answer
};

struct job {
    bool lives, runs, abandoned;
    int asked; // index of the request; -1: overwritten
    uint64_t admitted_ns, deadline_ns, run_timeout_ns;
    int world_size, pool;
    uint64_t number;
    uint32_t user;
};

struct crew {
    bool up, killed, stuck;
    bool failed; // its START was not carried out
    uint32_t generation;
    int world_size, slot; // -1: no job
    uint64_t alive, ending, ready, reported, devices, killed_ns;
};

struct world {
    struct core *core;
    struct core_config config;
    const uint8_t *at, *end;
    uint64_t now_ns;
    struct asked asked[REQUESTS_MAX];
    int asked_count; // of all admitted requests
    struct job jobs[SLOTS_MAX];
    struct crew crews[POOLS_MAX];
    int pools; // all used pool numbers are below
    uint32_t generation;
    uint64_t number; // highest of a job that ran
    bool draining, exited, start_fails, run_fails;
    bool stubborn; // in the end killed ranks do not exit
};

extern struct world w;

// Prints a condition that does not hold, with its place, and aborts.
#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            world_fail(__FILE__, __LINE__, #condition);                                            \
    } while (0)
_Noreturn void world_fail(const char *file, int line, const char *condition);

static inline uint64_t mask_of(int count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

// The time after a delay; NEVER: it cannot be represented.
static inline uint64_t after(uint64_t delay_ns)
{
    uint64_t at_ns;
    return __builtin_add_overflow(w.now_ns, delay_ns, &at_ns) ? NEVER : at_ns;
}

int world_living_jobs(void);
// Takes the actions of an event.
void world_act(void);
// The same, then checks what must be true after the actions.
void world_settle(void);

#endif

// SPDX-License-Identifier: Apache-2.0
// The simulator of several hosts: one thread; a seed determines one life. agents.c simulates
// agents, their rank processes, and their connections to the daemon. Agents die, hang, are cut off
// and return. judge.c has the daemon's knowledge and checks the promises of core.h about hosts.
// tests/core/sim checks the promises for one host.
#ifndef CPATTN_TESTS_CORE_HOSTS_SIM_HOSTS_H
#define CPATTN_TESTS_CORE_HOSTS_SIM_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "tests/support/splitmix.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

#define SIM_HOSTS     8
#define SIM_JOBS      128
#define SIM_QUEUE     16
#define SIM_NEWS      4096
#define SIM_PROCESSES 1024
#define SIM_BACKLOG   512
#define SILENCE_NS    (3 * S) // after it the daemon and an agent consider each other lost

// A rule that the simulated agents or the service break deliberately.
enum breach {
    BREACH_NONE,
    BREACH_EARLY_BACK,  // an agent returns while former ranks are alive
    BREACH_SILENT_LOSS, // the daemon does not report a silent host to the core
    BREACH_KEPT_RANKS,  // an agent ignores KILL
    BREACH_COUNT,
};

enum news_kind {
    // To the daemon, over a connection.
    NEWS_READY,
    NEWS_REPORT,
    NEWS_FAILED,
    NEWS_PEER_LOST,
    NEWS_EXIT,
    NEWS_NOT_STARTED, // of a host
    NEWS_END,         // of the connection
    NEWS_HELLO,       // an agent connects; none of its ranks is alive
    // Messages to an agent.
    NEWS_START,
    NEWS_RUN,
    NEWS_KILL,
    // Events of a process.
    NEWS_IS_READY,
    NEWS_IS_DONE,
    NEWS_DIES,
    NEWS_IS_GONE,
    // Events of a host.
    NEWS_TROUBLE,
    NEWS_WAKE, // end of the trouble
    NEWS_SILENCE,
    // Other events.
    NEWS_SUBMIT,
    NEWS_CANCEL,
    NEWS_TIME,
};

struct news {
    uint64_t at_ns, order;
    enum news_kind kind;
    int host;
    uint32_t line; // number of the connection that carries it
    int crew, rank, peer, process;
    uint32_t generation;
    uint64_t job;
};

struct backlog {
    struct news news[SIM_BACKLOG];
    int count;
};

enum suffering { WELL, DEAD, HUNG, CUT };

struct host {
    enum suffering suffers;
    uint64_t since_ns;       // start of the trouble; the daemon hears nothing since then
    uint32_t line;           // number of the connection, as the daemon knows it; odd: open
    uint32_t agent_line;     // the same, as the agent knows it
    bool hello;              // the agent connects; the daemon has not accepted yet
    uint64_t up_ns, down_ns; // when the last message of each direction arrives
    struct backlog up, down; // messages that arrive when the host is well again
};

struct process {
    bool alive, killed, is_ready;
    int host, device, crew, rank;
    uint32_t generation;
    uint64_t job; // current job, or 0
};

struct sim_job {
    bool waits, runs;
    uint64_t number; // of its answer and RUN
    int world_size, nodes, ranks_per_node, crew;
    uint64_t deadline_ns;
    struct request_id id;
};

// The daemon's state of a pool.
struct crew {
    bool up, killed, spare, stuck, working, doomed;
    uint32_t generation;
    int world_size, instance, nodes, slot;
    uint64_t hosts, alive, ready, reported;
    struct core_seat seats[WORLD_SIZE_MAX];
};

struct totals {
    uint64_t lives, events, starts, spread, runs, causes[CAUSE_NODE_LOST + 1], troubles[4];
    uint64_t lost, back, stale, moved, beside, refused, not_started, survived;
};

struct sim {
    uint64_t seed, random, now_ns, order, ids;
    enum breach breach;
    struct core_config config;
    struct core *core;
    struct totals *totals;
    int start_fault, run_fault, trouble; // faults: chances in 1/1000; trouble: 0 or 1
    bool quiet, exited, draining;
    struct news news[SIM_NEWS];
    int news_count;
    struct host hosts[SIM_HOSTS];
    struct process processes[SIM_PROCESSES];
    int process_count;
    struct sim_job jobs[SIM_QUEUE]; // by slot
    int live;
    struct crew crews[POOLS_MAX];
    int lost_now;        // the host that is lost in this event, or -1
    uint64_t lost_slots; // of jobs that must be answered because of it
};

static inline uint64_t sim_random(struct sim *s)
{
    return splitmix_next(&s->random);
}

static inline int sim_draw(struct sim *s, int limit)
{
    return (int)(sim_random(s) % (uint64_t)limit);
}

static inline bool sim_chance(struct sim *s, int per_mille)
{
    return sim_draw(s, 1000) < per_mille;
}

static inline uint64_t sim_draw_ns(struct sim *s, uint64_t max_ns)
{
    return sim_random(s) % (max_ns + 1);
}

static inline uint64_t bit(int index)
{
    return UINT64_C(1) << index;
}

void sim_fail(const struct sim *s, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
#define SIM_CHECK(s, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail(s, __VA_ARGS__);                                                              \
    } while (0)

struct news *sim_post(struct sim *s, uint64_t delay_ns, enum news_kind kind);

// ---- agents.c ----
// Sets up the hosts. Some of them are away.
void agents_begin(struct sim *s);
// Sends an order of the daemon to the agents of a pool's hosts.
void agents_order(struct sim *s, enum news_kind kind, int crew, uint64_t job);
// Processes an event of a message, a process or a host. True if it is news for the daemon.
bool agents_happen(struct sim *s, struct news *n);
// The daemon declares a host lost.
void agents_hang_up(struct sim *s, int host);
// Ends all faults.
void agents_heal(struct sim *s);
bool agents_are_back(const struct sim *s);
// Fails if a process is alive.
void agents_check_end(const struct sim *s);

// ---- judge.c ----
// Called before the core gets the event.
void judge_news(struct sim *s, const struct news *n);
void judge_submission(struct sim *s, const struct core_request *request, enum status status,
                      const struct admission *admission);
void judge_action(struct sim *s, const struct action *action);
void judge_settled(struct sim *s);
// True if enough hosts have enough devices for the job. `now`: lost hosts do not count.
bool judge_can_serve(const struct sim *s, int world_size, int nodes, int ranks_per_node, bool now);

void sim_play(uint64_t seed, enum breach breach, struct totals *totals);

#endif

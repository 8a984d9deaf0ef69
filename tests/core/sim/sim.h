// SPDX-License-Identifier: Apache-2.0
// The simulator of the pool core: one thread; a seed determines one life, a random history. A fake
// world (world.c, ranks.c: clients, ranks, a service, a clock) sends events to the core in an order
// drawn from the seed. A judge (judge.c, record.c) checks every event and action against the
// promises of core.h, without access to the core's state.
#ifndef CPATTN_TESTS_CORE_SIM_SIM_H
#define CPATTN_TESTS_CORE_SIM_SIM_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "tests/support/splitmix.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

#define SIM_JOBS_MAX  1024 // admitted in one life
#define SIM_NEWS_MAX  2048 // pending at once
#define SIM_HASH_MAX  8    // different cases
#define SIM_QUEUE_MAX 32
#define SIM_CLIENTS   5
#define SIM_USERS     4
#define SIM_CAUSE_MAX (CAUSE_STUCK + 1)

// An event of the world and its time.
enum news_kind {
    NEWS_READY,
    NEWS_REPORT,
    NEWS_FAILED,
    NEWS_PEER_LOST,
    NEWS_ENDING,
    NEWS_EXIT,
    NEWS_START_FAILED,
    NEWS_SUBMIT,
    NEWS_CANCEL,
    NEWS_CLIENT_GONE,
    NEWS_DRAIN,
    NEWS_LIMIT,  // the limits change
    NEWS_DEVICE, // an administrator takes a device out of use, or allows it again
    NEWS_UNPOISON,
    NEWS_TIME, // core_time()
    NEWS_KINDS,
};

struct news {
    uint64_t at_ns;
    enum news_kind kind;
    int slot, rank, peer;
    uint32_t generation;
    uint64_t job; // REPORT
    int subject;  // CANCEL: job, or -1 for an unknown id; CLIENT_GONE: the client
    bool stale;   // of an earlier generation or an ended rank: the core must ignore it
};

// Behaviour of a world; probabilities in 1/1000.
struct habits {
    int start_fault, run_fault, idle_fault, slow_kill;
    int stuck;     // a killed rank is reaped late or never
    int early_end; // the end of a rank is reported before it is reaped
    int cancel, gone, duplicate, drain, limit;
    int short_timeout, long_timeout;
    int run_timeout; // a request limits the time of its run
    bool costs;      // jobs have lower bounds of time
    int killer;      // the case with hash 0 kills its pool
    uint64_t gap_ns_max, start_ns_max, run_ns_max, kill_ns_max, late_ns_max;
    bool calm; // no faults, cancellations or short timeouts: no first job may wait long
    int world_sizes[4];
};

enum place { PLACE_QUEUED, PLACE_RUNNING, PLACE_ANSWERED };

struct sim_job {
    enum place place;
    uint64_t id, hash, number; // number: 0 until an action names it
    uint64_t admitted_ns, deadline_ns, run_ns, run_timeout_ns, patience_ns, cost_ns, bytes;
    int slot, world_size, crew;
    uint32_t user;
    unsigned clients; // bit mask of clients that wait for the answer
    int answer_index; // ANSWERED: of the answer; -1: none, the id is forgotten
    bool ended;       // in this event it was cancelled: it must be answered
    bool cancel_on_disconnect;
    bool abandoned; // in this event its last client left: it must be answered and forgotten
};

// The ranks of one START.
struct crew {
    bool up; // from START to the last exit
    uint32_t generation;
    int world_size, instance;
    uint64_t devices, alive, ready, reported;
    bool spare;                     // started to stand by for another
    bool used;                      // has had a job
    bool stuck;                     // the core has reported STUCK
    bool is_ready, killed, working; // working: from RUN until its job is done or it is reaped
    bool doomed;                    // a fatal report came: it must be killed
    bool outside;                   // doomed by a rank that was killed from outside
    bool cancelled;                 // doomed because its job was cancelled, which is no loss
    int job;                        // index, or -1
    uint64_t started_ns, ready_ns, idle_ns, killed_ns;
    // Of the running job:
    bool suspect;
    uint64_t suspect_ns, victims, accused;
    bool expected; // in this event the job must be answered, with this cause:
    enum cause cause;
    int rank; // or -1: one of the accused
};

// The state of a user.
struct sim_user {
    uint64_t used_ns;   // device time, counted from the level: daemon/core/users.h
    uint64_t waited_ns; // start of the wait of its jobs
    uint64_t lapsed_ns; // time when all of its used device time has lapsed
};

// The state of a pool between its crews.
struct berth {
    int failures;               // consecutive failed starts for a job, in halves
    uint64_t since_ns, down_ns; // time of the first of them, and of the one that makes it DOWN
    uint64_t rests_ns;          // the pool pauses until then
    int spare_failures;         // the same for starts to stand by
    uint64_t spare_since_ns;
    uint64_t spare_rests_ns[2]; // pools that were lost unused pause until then
    bool was_lost;              // a pool was lost, the last one at lost_ns
    uint64_t lost_ns;
};

struct sim_totals {
    uint64_t lives, events, actions;
    uint64_t causes[SIM_CAUSE_MAX];
    uint64_t refused[STATUS_COUNT];
    uint64_t attached, repeated, forgotten, limited, late;
    uint64_t taken_out, lifted; // refusals because of devices out of use; cases freed from POISON
    uint64_t crowded;           // how often the first job waited for memory
    uint64_t unpinned;          // first jobs that lost their last possible pool
    uint64_t held, spent;       // runs that reach the user's limit; refusals for used device time
    uint64_t starts, kills, exits, stale, side_by_side;
    uint64_t spares, takeovers, stuck, left_stuck;
    uint64_t early_ends;
    uint64_t at_once; // runs before the ranks of the twin are reaped
};

struct sim {
    uint64_t seed, random;
    bool trace;
    struct habits habits;
    struct core_config config;
    struct core *core;
    uint64_t now_ns;
    uint64_t told_ns; // time of the event before this one
    uint64_t devices_out;
    bool quiet;       // no more faults
    bool interrupted; // a failure was reported before all actions of this event were taken
    bool draining, exited;

    struct news news[SIM_NEWS_MAX];
    int news_count;
    struct sim_job jobs[SIM_JOBS_MAX];
    int job_count;
    int by_slot[SIM_QUEUE_MAX]; // the live job in the slot, or -1
    int live, queued;
    struct sim_user users[SIM_USERS];
    struct user_limits user_limits; // each change of settings lifts them or puts them in force
    uint64_t level_ns, charged_ns;  // level of new accounts; accounts are charged until then
    int kept;                       // the waiting job that keeps its turn, or -1
    int first;                      // the waiting job that is first in turn, or -1
    uint64_t first_ns;              // the job is first since then
    struct crew crews[POOLS_MAX];
    int crew_count;      // highest slot used + 1
    uint32_t generation; // of the last START
    struct berth berths[WORLD_SIZE_MAX + 1][DEVICES_MAX];
    int kills[SIM_HASH_MAX];
    uint64_t kill_ns[SIM_HASH_MAX];
    uint64_t admitted, refused;
    int answered; // number of stored answers

    struct news current; // the event that is reported to the core
    int failed_size;     // world size of the failed start that this event reaps; else 0
    struct sim_totals *totals;
};

// Runs the life of a seed to its end. If a rule is broken, prints it with the command to replay it,
// and aborts.
void sim_play(uint64_t seed, bool trace, struct sim_totals *totals);

// ---- between the parts -----------------------------------------------------------------------

static inline uint64_t sim_random(struct sim *s)
{
    return splitmix_next(&s->random);
}

// 0..limit-1; limit > 0.
static inline int sim_draw(struct sim *s, int limit)
{
    return (int)(sim_random(s) % (uint64_t)limit);
}

static inline uint64_t sim_draw_ns(struct sim *s, uint64_t max_ns)
{
    return sim_random(s) % (max_ns + 1);
}

static inline bool sim_chance(struct sim *s, int per_mille)
{
    return sim_draw(s, 1000) < per_mille;
}

// True if a rank ends by a signal from outside. Computed: a draw would change the lives.
static inline bool sim_kills_from_outside(uint32_t generation, int rank)
{
    return (generation * 7 + (uint32_t)rank) % 3 == 0;
}

static inline struct rank_end sim_end(uint32_t generation, int rank)
{
    return sim_kills_from_outside(generation, rank) ? (struct rank_end){RANK_SIGNALLED, SIGKILL}
                                                    : (struct rank_end){RANK_EXITED, 1 + rank};
}

// Orders of an administrator (orders.c).
void orders_begin(struct sim *s);
void orders_draw_limits(struct sim *s);
void orders_limit(struct sim *s);
void orders_device(struct sim *s);
void orders_unpoison(struct sim *s);

// Each prints a line if the life is traced.
void trace_life(const struct sim *s);
void trace_news(const struct sim *s, const struct news *news);
void trace_submission(const struct sim *s, const struct core_request *request, enum status status,
                      const struct admission *admission, const struct error *error);
void trace_action(const struct sim *s, const struct action *action);

// Prints the broken rule and aborts.
void sim_fail(const struct sim *s, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
#define SIM_CHECK(s, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail(s, __VA_ARGS__);                                                              \
    } while (0)

// Adds an event after a delay. The caller fills in the rest.
struct news *sim_post(struct sim *s, uint64_t delay_ns, enum news_kind kind);
struct news *sim_post_rank(struct sim *s, uint64_t delay_ns, enum news_kind kind, int slot,
                           int rank);
// An event of a rank of the crew in the slot, at the present time.
struct news sim_rank_news(const struct sim *s, enum news_kind kind, int slot, int rank);
// Passes the event to the core; false if the service would not report it.
bool sim_tell(struct sim *s, struct news *n);

// Executes START, RUN and KILL: draws the behaviour of the ranks.
void ranks_act(struct sim *s, const struct action *a);

// Called before the core gets the event. Records what the core will know and must do.
void record_news(struct sim *s, const struct news *news);
// Checks the result of a submission, before its actions. `known`: the last job with this request
// id, or NULL.
void judge_submission(struct sim *s, const struct core_request *request, enum status status,
                      const struct admission *admission, const struct sim_job *known);
void judge_action(struct sim *s, const struct action *action);
// The turns of users (turns.c). turns_charge() is called before each event, turns_admitted() before
// the admitted job counts, turns_run() at a RUN.
void turns_draw_limits(struct sim *s);
void turns_charge(struct sim *s);
void turns_admitted(struct sim *s, uint32_t user);
void turns_run(struct sim *s, const struct sim_job *job);
// The time until enough used device time lapses; true if one more job of the user may run.
uint64_t turns_wait_ns(const struct sim *s, uint32_t user);
bool turns_may_run(const struct sim *s, uint32_t user);
// The first waiting job in turn, of the users that may run one more job; or -1.
int turns_first(const struct sim *s);
// True if the turn of one waiting job comes before that of another.
bool turns_before(const struct sim *s, int job, int other);
void judge_turns_settled(struct sim *s);
// The rules for spares (standby.c). At a START its crew is not yet recorded.
void judge_spare_start(struct sim *s, const struct action *action);
void judge_leader_start(struct sim *s, const struct action *action);
void judge_kill_standby(struct sim *s, const struct crew *crew);
void judge_kill_leader(struct sim *s, const struct crew *crew);
void judge_standby_settled(struct sim *s);
// STUCK (stuck.c).
void judge_stuck(struct sim *s, const struct action *action);
void judge_answer_stuck(struct sim *s, const struct sim_job *job, const struct action *action);
void judge_refused_stuck(struct sim *s, int world_size);
void judge_stuck_settled(struct sim *s);
// After all actions of an event.
void judge_settled(struct sim *s);
// No event is left.
void judge_end(struct sim *s);

#endif

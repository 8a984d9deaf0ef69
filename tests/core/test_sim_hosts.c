// SPDX-License-Identifier: Apache-2.0
// The simulator of several hosts: see tests/core/hosts/sim_hosts.h and usage_text.
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/hosts/sim_hosts.h"
#include "tests/support/runner.h"

#define SLICES        10
#define LIVES_TELLING 5000
#define LIVES_BREACH  300

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define SEEDS_DEFAULT 5000
#else
#define SEEDS_DEFAULT 10000
#endif

static const char usage_text[] =
    "Usage: test_sim_hosts [--seed N | --seeds FIRST-LAST | --help]\n"
    "Lives of a pool core with several hosts, each drawn from a seed: agents die, hang, are cut "
    "off "
    "and\n"
    "come back, messages are late, and every promise about hosts is checked after every event.\n"
    "CPATTN_SIM_SEEDS in the environment is FIRST-LAST, as for test_sim.\n";

void sim_fail(const struct sim *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "# seed %" PRIu64 " at %.3f ms: ", s->seed, (double)s->now_ns / 1e6);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    abort();
}

struct news *sim_post(struct sim *s, uint64_t delay_ns, enum news_kind kind)
{
    SIM_CHECK(s, s->news_count < SIM_NEWS, "too much happens");
    struct news *n = &s->news[s->news_count++];
    *n = (struct news){.at_ns = s->now_ns + delay_ns,
                       .order = s->order++,
                       .kind = kind,
                       .host = -1,
                       .crew = -1,
                       .peer = -1,
                       .process = -1};
    return n;
}

// ---- clients --------------------------------------------------------------------------------

static void submit(struct sim *s, int world_size, int nodes, int ranks_per_node,
                   uint64_t timeout_ns)
{
    struct core_request r = {.world_size = world_size,
                             .nodes = nodes,
                             .ranks_per_node = ranks_per_node,
                             .timeout_ns = timeout_ns,
                             .patience_ns = UINT64_MAX,
                             .case_hash = ++s->ids};
    struct admission admission = {.index = -1};
    memcpy(r.id.bytes, &s->ids, sizeof(s->ids));
    enum status status = core_submit(s->core, s->now_ns, &r, &admission, NULL);
    judge_submission(s, &r, status, &admission);
}

static int devices_of(const struct sim *s)
{
    int devices = 0;
    for (int host = 0; host < s->config.host_count; host++)
        devices += s->config.hosts[host].device_count;
    return devices;
}

static void submit_any(struct sim *s)
{
    int world_size = 1 + sim_draw(s, devices_of(s));
    int nodes = sim_chance(s, 300) ? 1 + sim_draw(s, s->config.host_count + 1) : 0;
    int per = sim_chance(s, 100) ? 1 + sim_draw(s, world_size) : 0;
    if (nodes && sim_chance(s, 700))
        world_size =
            nodes * (1 + world_size / nodes) > 64 ? nodes : nodes * (1 + world_size / nodes);
    submit(s, world_size, nodes, per, 500 * MS + sim_draw_ns(s, 20 * S));
    sim_post(s, sim_draw_ns(s, 300 * MS), NEWS_SUBMIT);
}

static void cancel_any(struct sim *s)
{
    const struct sim_job *job = &s->jobs[sim_draw(s, s->config.queue_max)];
    if (job->waits || job->runs)
        core_cancel(s->core, s->now_ns, &job->id, CORE_ANY_USER, NULL);
    sim_post(s, sim_draw_ns(s, 3 * S), NEWS_CANCEL);
}

// ---- events ---------------------------------------------------------------------------------

static void tell(struct sim *s, const struct news *n)
{
    const struct rank_end end = {RANK_EXITED, 1};
    switch (n->kind) {
    case NEWS_READY:
        core_rank_ready(s->core, s->now_ns, n->crew, n->generation, n->rank);
        break;
    case NEWS_REPORT:
        core_rank_reported(s->core, s->now_ns, n->crew, n->generation, n->rank, n->job);
        break;
    case NEWS_PEER_LOST:
        core_rank_failed(s->core, s->now_ns, n->crew, n->generation, n->rank, FAILURE_PEER_LOST,
                         n->peer);
        break;
    case NEWS_EXIT:
        core_rank_exited(s->core, s->now_ns, n->crew, n->generation, n->rank, &end);
        break;
    case NEWS_NOT_STARTED:
        core_start_failed_on(s->core, s->now_ns, n->crew, n->generation, n->host);
        break;
    case NEWS_END:
    case NEWS_SILENCE:
        core_host_lost(s->core, s->now_ns, n->host);
        break;
    case NEWS_HELLO:
        core_host_back(s->core, s->now_ns, n->host);
        break;
    case NEWS_SUBMIT:
        if (!s->quiet)
            submit_any(s);
        break;
    case NEWS_CANCEL:
        if (!s->quiet)
            cancel_any(s);
        break;
    default:
        core_time(s->core, s->now_ns);
    }
}

static void act(struct sim *s)
{
    struct action a;
    while (core_next_action(s->core, &a))
        judge_action(s, &a);
    core_assert(s->core);
    judge_settled(s);
    s->totals->events++;
}

static void happen(struct sim *s, struct news *n)
{
    s->now_ns = n->at_ns > s->now_ns ? n->at_ns : s->now_ns;
    bool of_world = n->kind < NEWS_SUBMIT;
    if (of_world && !agents_happen(s, n))
        return;
    judge_news(s, n);
    tell(s, n);
    act(s);
    if (n->kind == NEWS_END || n->kind == NEWS_SILENCE)
        agents_hang_up(s, n->host);
}

static bool step(struct sim *s)
{
    int first = -1;
    uint64_t time_ns = core_next_time(s->core);
    for (int i = 0; i < s->news_count; i++)
        if (first < 0 || s->news[i].at_ns < s->news[first].at_ns ||
            (s->news[i].at_ns == s->news[first].at_ns && s->news[i].order < s->news[first].order))
            first = i;
    if (first < 0 && time_ns == UINT64_MAX)
        return false;
    struct news n = {.at_ns = time_ns, .kind = NEWS_TIME, .host = -1};
    if (first >= 0 && s->news[first].at_ns < time_ns) {
        n = s->news[first];
        s->news[first] = s->news[--s->news_count];
    }
    happen(s, &n);
    return true;
}

// ---- a life ---------------------------------------------------------------------------------

static void life_draw(struct sim *s)
{
    int same = sim_chance(s, 600) ? 1 + sim_draw(s, 4) : 0;
    s->config = (struct core_config){
        .host_count = 1 + sim_draw(s, SIM_HOSTS - 2),
        .spares = sim_chance(s, 300),
        .ranks_per_device = sim_chance(s, 300) ? 2 + sim_draw(s, 3) : 1,
        .queue_max = 1 + sim_draw(s, SIM_QUEUE),
        .ranks_max = sim_chance(s, 700) ? 64 : 4 + sim_draw(s, 12),
        .start_timeout_ns = 5 * S,
        .peer_grace_ns = sim_chance(s, 500) ? 20 * MS : 0,
        .idle_timeout_ns = sim_chance(s, 300) ? 200 * MS : 0,
        .kill_timeout_ns = sim_chance(s, 500) ? 100 * S : 200 * MS,
    };
    for (int host = 0; host < s->config.host_count; host++) {
        struct core_host *h = &s->config.hosts[host];
        *h = (struct core_host){.device_count = same ? same : 1 + sim_draw(s, 4),
                                .away = sim_chance(s, 100)};
        snprintf(h->name, sizeof(h->name), "node%d", host);
    }
    s->start_fault = sim_chance(s, 300) ? 100 : 0;
    s->run_fault = sim_chance(s, 500) ? 30 : 0;
    s->trouble = sim_chance(s, 850);
}

static bool ranks_are_reaped(const struct sim *s)
{
    for (const struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++)
        if (c->up && c->killed)
            return false;
    return true;
}

// All hosts recover, and all jobs are answered.
static void life_rest(struct sim *s)
{
    s->quiet = true;
    s->run_fault = 0;
    agents_heal(s);
    for (int steps = 0; s->live > 0 || !agents_are_back(s) || !ranks_are_reaped(s); steps++) {
        SIM_CHECK(s, steps < 100000, "%d jobs live, and events without end", s->live);
        SIM_CHECK(s, step(s), "%d jobs live, and nothing happens", s->live);
    }
}

// On recovered hosts a job of any possible world size succeeds.
static void life_recover(struct sim *s)
{
    for (int world_size = 1; world_size <= devices_of(s) && world_size <= 64; world_size++) {
        if (!judge_can_serve(s, world_size, 0, 0, true))
            continue;
        uint64_t done = s->totals->causes[CAUSE_NONE];
        s->lost_now = -1;
        submit(s, world_size, 0, 0, 1000 * S);
        act(s);
        life_rest(s);
        SIM_CHECK(s, s->totals->causes[CAUSE_NONE] == done + 1, "%d ranks do not recover",
                  world_size);
        s->totals->survived++;
    }
}

static void life_end(struct sim *s)
{
    s->draining = true;
    s->lost_now = -1;
    core_drain(s->core, s->now_ns);
    act(s);
    for (int steps = 0; step(s); steps++)
        SIM_CHECK(s, steps < 100000, "events without end");
    SIM_CHECK(s, s->exited, "drained, and no EXIT");
    agents_check_end(s);
}

static char seed_line[96];

static void say_seed(int signal_number)
{
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, seed_line, strlen(seed_line));
    (void)written;
}

void sim_play(uint64_t seed, enum breach breach, struct totals *totals)
{
    static struct sim life;
    struct sim *s = &life;
    memset(s, 0, sizeof(*s));
    snprintf(seed_line, sizeof(seed_line),
             "# replay: tests/core/test_sim_hosts --seed %" PRIu64 "\n", seed);
    signal(SIGABRT, say_seed);
    s->seed = seed;
    s->random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    s->breach = breach;
    s->totals = totals;
    s->lost_now = -1;
    life_draw(s);
    s->core = core_create(&s->config);
    SIM_CHECK(s, s->core, "no memory");
    agents_begin(s);
    sim_post(s, 0, NEWS_SUBMIT);
    if (sim_chance(s, 300))
        sim_post(s, sim_draw_ns(s, 3 * S), NEWS_CANCEL);
    for (int steps = 200 + sim_draw(s, 600); steps > 0 && step(s); steps--) {
    }
    life_rest(s);
    if (s->start_fault == 0)
        life_recover(s);
    life_end(s);
    core_destroy(s->core);
    totals->lives++;
    signal(SIGABRT, SIG_DFL);
}

// ---- tests ----------------------------------------------------------------------------------

static void totals_check(const struct totals *t)
{
    if (t->lives < LIVES_TELLING / SLICES)
        return;
    ck_assert_uint_gt(t->causes[CAUSE_NONE], t->lives);
    ck_assert_uint_gt(t->causes[CAUSE_NODE_LOST], t->lives / 4);
    ck_assert_uint_gt(t->causes[CAUSE_RANK_EXITED], t->lives / 10);
    ck_assert_uint_gt(t->causes[CAUSE_PEER_LOST], t->lives / 100);
    ck_assert_uint_gt(t->lost, t->lives);
    ck_assert_uint_gt(t->back, t->lives);
    ck_assert_uint_gt(t->spread, t->lives);
    ck_assert_uint_gt(t->moved, t->lives / 10);
    ck_assert_uint_gt(t->beside, t->lives / 10);
    ck_assert_uint_gt(t->stale, t->lives / 10);
    ck_assert_uint_gt(t->not_started, t->lives / 10);
    ck_assert_uint_gt(t->refused, t->lives);
    ck_assert_uint_gt(t->survived, t->lives);
    for (int trouble = DEAD; trouble <= CUT; trouble++)
        ck_assert_uint_gt(t->troubles[trouble], t->lives / 2);
}

START_TEST(every_history_keeps_the_promises)
{
    struct totals totals = {0};
    unsigned long long first = 0, last = SEEDS_DEFAULT - 1;
    const char *text = getenv("CPATTN_SIM_SEEDS");
    ck_assert_msg(!text || sscanf(text, "%llu-%llu", &first, &last) == 2, "%s", text);
    for (uint64_t seed = first + (uint64_t)_i; seed <= last; seed += SLICES)
        sim_play(seed, BREACH_NONE, &totals);
    totals_check(&totals);
}
END_TEST

START_TEST(broken_rules_are_noticed)
{
    struct totals totals = {0};
    for (uint64_t seed = 0; seed < LIVES_BREACH; seed++)
        sim_play(seed, (enum breach)(_i + 1), &totals);
}
END_TEST

static int run_seeds(uint64_t first, uint64_t count)
{
    struct totals t = {0};
    for (uint64_t seed = first; seed < first + count; seed++)
        sim_play(seed, BREACH_NONE, &t);
    printf("%" PRIu64 " lives, %" PRIu64 " events, %" PRIu64 " starts (%" PRIu64
           " over several hosts, %" PRIu64 " moved), %" PRIu64 " runs (%" PRIu64
           " beside the other kind)\n",
           t.lives, t.events, t.starts, t.spread, t.moved, t.runs, t.beside);
    printf("hosts: %" PRIu64 " died, %" PRIu64 " hung, %" PRIu64 " cut off; %" PRIu64
           " lost, %" PRIu64 " back; %" PRIu64 " late messages\n",
           t.troubles[DEAD], t.troubles[HUNG], t.troubles[CUT], t.lost, t.back, t.stale);
    for (int cause = 0; cause <= CAUSE_NODE_LOST; cause++)
        printf("cause %d: %" PRIu64 "\n", cause, t.causes[cause]);
    printf("refused %" PRIu64 ", not started %" PRIu64 ", recovered %" PRIu64 "\n", t.refused,
           t.not_started, t.survived);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        return run_seeds(strtoull(argv[2], NULL, 10), 1);
    unsigned long long first, last;
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0 &&
        sscanf(argv[2], "%llu-%llu", &first, &last) == 2 && first <= last)
        return run_seeds(first, last - first + 1);
    if (argc > 1) {
        fputs(usage_text, stdout);
        return strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    Suite *suite = suite_create("simulator of hosts");
    TCase *lives = tcase_create("lives");
    tcase_set_timeout(lives, 0);
    tcase_add_loop_test(lives, every_history_keeps_the_promises, 0, SLICES);
    tcase_add_loop_test_raise_signal(lives, broken_rules_are_noticed, SIGABRT, 0, BREACH_COUNT - 1);
    suite_add_tcase(suite, lives);
    return runner_run(suite);
}

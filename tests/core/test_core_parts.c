// SPDX-License-Identifier: Apache-2.0
// Single modules of the pool core: timers, the table of ids, users, poison; and failing
// allocations.
#include <stdlib.h>
#include <string.h>

#include "daemon/core/core.h"
#include "daemon/core/ids.h"
#include "daemon/core/poison.h"
#include "daemon/core/timers.h"
#include "daemon/core/users.h"
#include "tests/support/runner.h"

#define S UINT64_C(1000000000)

// ---- timers ------------------------------------------------------------------------------------

#define TIMERS 37

static int earliest(const uint64_t *at_ns)
{
    int first = 0;
    for (int id = 1; id < TIMERS; id++)
        first = at_ns[id] < at_ns[first] ? id : first;
    return first;
}

START_TEST(timers_come_in_order)
{
    struct timers t;
    uint64_t at_ns[TIMERS];
    ck_assert(timers_init(&t, TIMERS));
    for (int id = 0; id < TIMERS; id++)
        at_ns[id] = TIMERS_NEVER;
    srand(1);
    for (int step = 0; step < 20000; step++) {
        int id = rand() % TIMERS;
        ck_assert_int_eq(timers_is_set(&t, id), at_ns[id] != TIMERS_NEVER);
        if (rand() % 4) {
            at_ns[id] = rand() % 10 ? (uint64_t)(rand() % 1000) : TIMERS_NEVER;
            timers_set(&t, id, at_ns[id]);
        } else if (rand() % 2) {
            at_ns[id] = TIMERS_NEVER;
            timers_clear(&t, id);
        } else {
            uint64_t now_ns = (uint64_t)(rand() % 1000), first_ns = at_ns[earliest(at_ns)];
            int due = timers_take_due(&t, now_ns);
            ck_assert_int_eq(due >= 0, first_ns <= now_ns);
            if (due >= 0) {
                ck_assert_uint_eq(at_ns[due], first_ns);
                at_ns[due] = TIMERS_NEVER;
            }
        }
        timers_assert(&t);
        ck_assert_uint_eq(timers_next_ns(&t), at_ns[earliest(at_ns)]);
    }
    timers_fini(&t);
}
END_TEST

START_TEST(a_timer_at_never_is_not_due)
{
    struct timers t;
    ck_assert(timers_init(&t, 1));
    ck_assert_int_eq(timers_take_due(&t, UINT64_MAX), -1);
    timers_fini(&t);
    timers_fini(&t);
}
END_TEST

// ---- ids ---------------------------------------------------------------------------------------

static struct request_id id_of(uint64_t low, uint64_t high)
{
    struct request_id id;
    memcpy(id.bytes, &low, sizeof(low));
    memcpy(id.bytes + 8, &high, sizeof(high));
    return id;
}

static void expect_id(const struct ids *ids, const struct request_id *id, enum ids_state state,
                      int place, uint64_t case_hash)
{
    const struct ids_claim *claim = NULL;
    int found = -1;
    ck_assert_int_eq(ids_find(ids, id, &found, &claim), state);
    if (state == IDS_UNKNOWN)
        return;
    ck_assert_int_eq(found, place);
    ck_assert_uint_eq(claim->case_hash, case_hash);
    ck_assert_uint_eq(claim->user, case_hash + 1);
}

START_TEST(ids_are_open_and_then_answered)
{
    struct ids ids;
    struct request_id a = id_of(1, 0), b = id_of(0, 1);
    ck_assert(ids_init(&ids, 2));
    expect_id(&ids, &a, IDS_UNKNOWN, 0, 0);
    ids_add(&ids, 1, &a, &(struct ids_claim){7, 8});
    ids_add(&ids, 0, &b, &(struct ids_claim){9, 10});
    expect_id(&ids, &a, IDS_LIVING, 1, 7);
    expect_id(&ids, &b, IDS_LIVING, 0, 9);
    ck_assert_mem_eq(ids_of(&ids, 1), &a, sizeof(a));
    ck_assert_int_eq(ids_answer(&ids, 1), 0);
    expect_id(&ids, &a, IDS_ANSWERED, 0, 7);
    expect_id(&ids, &b, IDS_LIVING, 0, 9);
    ids_forget(&ids, 0);
    expect_id(&ids, &b, IDS_UNKNOWN, 0, 0);
    ids_add(&ids, 1, &b, &(struct ids_claim){11, 12});
    expect_id(&ids, &b, IDS_LIVING, 1, 11);
    ck_assert_int_eq(ids_answer(&ids, 1), 1);
    ids_fini(&ids);
    ids_fini(&ids);
}
END_TEST

// `spread`: ordinary ids. Without it all ids fall into one chain; a client could choose such ids.
static void ids_wrap(uint64_t spread)
{
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
    struct ids ids;
    ck_assert(ids_init(&ids, 1));
    for (uint64_t i = 0; i < 3 * ANSWERED_IDS_MAX; i++) {
        struct request_id id = id_of(spread ? i : i * factor, spread ? 0 : i);
        ids_add(&ids, 0, &id, &(struct ids_claim){i, (uint32_t)i + 1});
        ck_assert_int_eq(ids_answer(&ids, 0), (int)(i % ANSWERED_IDS_MAX));
        if (i % 512 != 0 || i < ANSWERED_IDS_MAX)
            continue;
        for (uint64_t age = ANSWERED_IDS_MAX - 2; age <= ANSWERED_IDS_MAX + 1; age++) {
            uint64_t then = i - age;
            id = id_of(spread ? then : then * factor, spread ? 0 : then);
            expect_id(&ids, &id, age < ANSWERED_IDS_MAX ? IDS_ANSWERED : IDS_UNKNOWN,
                      (int)(then % ANSWERED_IDS_MAX), then);
            if (i == age)
                break;
        }
    }
    ids_fini(&ids);
}

START_TEST(the_oldest_answered_id_is_evicted)
{
    ids_wrap(1);
}
END_TEST

START_TEST(colliding_ids_are_distinguished)
{
    ids_wrap(0);
}
END_TEST

// ---- users -------------------------------------------------------------------------------------

START_TEST(users_are_counted)
{
    enum { JOBS = 37, USERS = 50 };
    struct users users;
    int jobs[USERS] = {0}, running[USERS] = {0}, total = 0;
    uint32_t random = 1;
    ck_assert(users_init(&users, JOBS, 1000));
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        uint32_t user = (random >> 16) % USERS;
        struct account *account = users_find(&users, user << 26);
        if (total == 0 || (total < JOBS && (random >> 30) > 1)) {
            users_queue(&users, user << 26);
            jobs[user]++;
            total++;
        } else if (jobs[user] > running[user] && (random >> 29 & 1)) {
            users_run(&users, account);
            users_charge(&users, account, 0, random & 0xff);
            running[user]++;
        } else if (jobs[user] > 0) {
            users_leave(&users, account, 0, running[user] > 0);
            running[user] -= running[user] > 0;
            jobs[user]--;
            total--;
        }
        for (uint32_t i = 0; i < USERS; i++)
            ck_assert_int_eq(users_jobs(&users, i << 26), jobs[i]);
    }
    users_fini(&users);
    users_fini(&users);
}
END_TEST

static void user_uses(struct users *users, uint32_t user, uint64_t device_ns)
{
    struct account *account = users_queue(users, user);
    users_run(users, account);
    users_charge(users, account, 0, device_ns);
    users_leave(users, account, 0, true);
}

// Accounts of users without jobs are kept, up to USERS_REMEMBERED.
START_TEST(accounts_are_kept_and_evicted)
{
    struct users users;
    ck_assert(users_init(&users, 1, 1000));
    for (uint32_t user = 0; user < USERS_REMEMBERED; user++)
        user_uses(&users, user, user == 7 ? 50 : 100);
    ck_assert_uint_eq(users.level_ns, 0);
    ck_assert_uint_eq(users_find(&users, 7)->used_ns, 50);
    // There is room for one more account. The next one evicts the account with the least used time.
    // That time becomes the level, where new accounts begin.
    user_uses(&users, 5000, 100);
    ck_assert_ptr_nonnull(users_find(&users, 7));
    user_uses(&users, 5001, 100);
    ck_assert_ptr_null(users_find(&users, 7));
    ck_assert_ptr_nonnull(users_find(&users, 0));
    ck_assert_uint_eq(users.level_ns, 50);
    ck_assert_uint_eq(users_find(&users, 5001)->used_ns, 150);
    users_fini(&users);
}
END_TEST

// An account differs from the level by at most the window. Used time beyond the window is forgiven;
// unused time beyond it is lost.
START_TEST(accounts_stay_near_the_level)
{
    struct users users;
    ck_assert(users_init(&users, 3, 1000));
    struct account *late = users_queue(&users, 1);
    user_uses(&users, 2, 123456);
    ck_assert_uint_eq(users_find(&users, 2)->used_ns, 1000);
    user_uses(&users, 2, 123456);
    user_uses(&users, 2, UINT64_MAX);
    ck_assert_uint_eq(users.level_ns, 2000);
    ck_assert_uint_eq(users_find(&users, 2)->used_ns, 3000);
    ck_assert_uint_eq(late->used_ns, 0);
    users_run(&users, late);
    ck_assert_uint_eq(late->used_ns, 1000);
    ck_assert_uint_eq(users.level_ns, 2000);
    // A new user begins at the level. No account of it remains if it leaves at once.
    ck_assert_uint_eq(users_queue(&users, 3)->used_ns, 2000);
    users_leave(&users, users_find(&users, 3), 0, false);
    ck_assert_ptr_null(users_find(&users, 3));
    users_fini(&users);
}
END_TEST

// ---- poison ------------------------------------------------------------------------------------

START_TEST(two_kills_are_poison_for_an_hour)
{
    struct poison p = {0};
    ck_assert_uint_eq(poison_left_ns(&p, S, 0), 0);
    poison_convict(&p, S, 0);
    ck_assert_uint_eq(poison_left_ns(&p, S, 0), 0);
    poison_convict(&p, 2 * S, 0);
    ck_assert_uint_eq(poison_left_ns(&p, 3 * S, 0), POISON_NS - S);
    ck_assert_uint_eq(poison_left_ns(&p, 3 * S, 1), 0);
    ck_assert_uint_eq(poison_left_ns(&p, 2 * S + POISON_NS, 0), 0);
    poison_acquit(&p, 0);
    ck_assert_uint_eq(poison_left_ns(&p, 3 * S, 0), 0);
}
END_TEST

START_TEST(old_kills_do_not_count)
{
    struct poison p = {0};
    poison_convict(&p, S, 5);
    poison_convict(&p, S + POISON_NS, 5);
    ck_assert_uint_eq(poison_left_ns(&p, S + POISON_NS, 5), 0);
    poison_convict(&p, 2 * S + POISON_NS, 5);
    ck_assert_uint_gt(poison_left_ns(&p, 2 * S + POISON_NS, 5), 0);
}
END_TEST

START_TEST(many_first_kills_do_not_evict_poison)
{
    struct poison p = {0};
    poison_convict(&p, S, 5);
    poison_convict(&p, S, 5);
    for (uint64_t hash = 100; hash < 100 + 10 * POISON_ENTRIES; hash++)
        poison_convict(&p, 2 * S, hash);
    ck_assert_uint_gt(poison_left_ns(&p, 2 * S, 5), 0);
    // A full table of poison forgets the oldest.
    for (uint64_t hash = 1000; hash < 1000 + POISON_ENTRIES; hash++) {
        poison_convict(&p, 3 * S + hash, hash);
        poison_convict(&p, 3 * S + hash, hash);
        ck_assert_uint_gt(poison_left_ns(&p, 3 * S + hash, hash), 0);
    }
    ck_assert_uint_eq(poison_left_ns(&p, 4 * S, 5), 0);
    ck_assert_uint_gt(poison_left_ns(&p, 4 * S, 1000), 0);
}
END_TEST

// ---- memory ------------------------------------------------------------------------------------

// Number of allocations that still succeed; -1: all. The linker replaces calloc() by the wrapper.
static int allocations_left = -1;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left -= allocations_left > 0;
    return __real_calloc(count, size);
}

START_TEST(failed_allocations_leak_nothing)
{
    const struct core_config config = {.host_count = 1,
                                       .ranks_per_device = 1,
                                       .hosts = {{.device_count = 4}},
                                       .queue_max = 8,
                                       .ranks_max = 8,
                                       .start_timeout_ns = S,
                                       .kill_timeout_ns = S};
    struct core *core = NULL;
    int failures = -1;
    while (!core) {
        allocations_left = ++failures;
        core = core_create(&config);
        ck_assert_int_lt(failures, 100);
    }
    allocations_left = -1;
    ck_assert_int_gt(failures, 5);
    core_assert(core);
    core_destroy(core);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core parts");
    TCase *c = tcase_create("timers");
    tcase_add_test(c, timers_come_in_order);
    tcase_add_test(c, a_timer_at_never_is_not_due);
    suite_add_tcase(suite, c);
    c = tcase_create("users");
    tcase_add_test(c, users_are_counted);
    tcase_add_test(c, accounts_are_kept_and_evicted);
    tcase_add_test(c, accounts_stay_near_the_level);
    suite_add_tcase(suite, c);
    c = tcase_create("ids");
    tcase_add_test(c, ids_are_open_and_then_answered);
    tcase_add_test(c, the_oldest_answered_id_is_evicted);
    tcase_add_test(c, colliding_ids_are_distinguished);
    suite_add_tcase(suite, c);
    c = tcase_create("poison");
    tcase_add_test(c, two_kills_are_poison_for_an_hour);
    tcase_add_test(c, old_kills_do_not_count);
    tcase_add_test(c, many_first_kills_do_not_evict_poison);
    suite_add_tcase(suite, c);
    c = tcase_create("memory");
    tcase_add_test(c, failed_allocations_leak_nothing);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

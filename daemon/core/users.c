// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/users.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool users_init(struct users *u, int jobs, uint64_t window_ns)
{
    uint32_t buckets = 2;
    memset(u, 0, sizeof(*u));
    u->window_ns = window_ns;
    u->capacity = jobs + USERS_REMEMBERED;
    while (buckets < (uint32_t)u->capacity)
        buckets *= 2;
    u->mask = buckets - 1;
    u->accounts = calloc((size_t)u->capacity, sizeof(*u->accounts));
    u->buckets = calloc(buckets, sizeof(*u->buckets));
    if (!u->accounts || !u->buckets)
        return false;
    for (int i = u->capacity - 1; i >= 0; i--) {
        u->accounts[i].next = u->free;
        u->free = 1 + i;
    }
    return true;
}

void users_fini(struct users *u)
{
    free(u->accounts);
    free(u->buckets);
    memset(u, 0, sizeof(*u));
}

static int *users_bucket(const struct users *u, uint32_t user)
{
    return &u->buckets[(user * UINT32_C(0x9e3779b1) >> 7) & u->mask];
}

struct account *users_find(const struct users *u, uint32_t user)
{
    for (int at = *users_bucket(u, user); at > 0; at = u->accounts[at - 1].next)
        if (u->accounts[at - 1].user == user)
            return &u->accounts[at - 1];
    return NULL;
}

int users_jobs(const struct users *u, uint32_t user)
{
    const struct account *account = users_find(u, user);
    return account ? account->queued + account->running : 0;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static void account_close(struct users *u, struct account *account)
{
    int index = 1 + (int)(account - u->accounts);
    int *link = users_bucket(u, account->user);
    while (*link != index)
        link = &u->accounts[*link - 1].next;
    *link = account->next;
    *account = (struct account){.next = u->free};
    u->free = index;
    u->open--;
}

// Evicts the account without jobs that has used least. Raises the level to its used time, so that
// its user does not start again from a lower level.
static void users_forget_one(struct users *u)
{
    struct account *least = NULL;
    for (struct account *a = u->accounts; a < u->accounts + u->capacity; a++)
        if (a->open && a->queued + a->running == 0 && (!least || a->used_ns < least->used_ns))
            least = a;
    assert(least);
    u->level_ns = at_least(u->level_ns, least->used_ns);
    account_close(u, least);
}

static struct account *account_open(struct users *u, uint32_t user)
{
    if (u->free == 0)
        users_forget_one(u);
    struct account *account = &u->accounts[u->free - 1];
    int *bucket = users_bucket(u, user);
    int index = u->free;
    u->free = account->next;
    *account = (struct account){.user = user, .next = *bucket, .open = true};
    *bucket = index;
    u->open++;
    return account;
}

struct account *users_queue(struct users *u, uint32_t user)
{
    struct account *account = users_find(u, user);
    if (!account)
        account = account_open(u, user);
    if (account->queued++ == 0)
        account->used_ns = at_least(account->used_ns, u->level_ns);
    return account;
}

void users_run(struct users *u, struct account *account)
{
    assert(account->queued > 0);
    uint64_t least_ns = u->level_ns > u->window_ns ? u->level_ns - u->window_ns : 0;
    account->queued--;
    account->running++;
    account->used_ns = at_least(account->used_ns, least_ns);
    u->level_ns = at_least(u->level_ns, account->used_ns);
}

void users_leave(struct users *u, struct account *account, uint64_t now_ns, bool running)
{
    int *count = running ? &account->running : &account->queued;
    assert(*count > 0);
    (*count)--;
    // An account at or below the level can be closed, because a new one begins at the level.
    if (account->queued + account->running == 0 && account->used_ns <= u->level_ns &&
        account->lapsed_ns <= now_ns)
        account_close(u, account);
}

// The time in which this much used device time lapses.
static uint64_t lapse_ns(const struct user_limits *limits, uint64_t device_ns)
{
    __uint128_t lapse = (__uint128_t)device_ns * limits->window_ns / limits->time_ns;
    return lapse < UINT64_MAX ? (uint64_t)lapse : UINT64_MAX;
}

void users_charge(struct users *u, struct account *account, uint64_t now_ns, uint64_t device_ns)
{
    uint64_t most_ns = plus(u->level_ns, u->window_ns);
    uint64_t used_ns = plus(account->used_ns, device_ns);
    account->used_ns = used_ns < most_ns ? used_ns : most_ns;
    if (u->limits.time_ns > 0)
        account->lapsed_ns =
            plus(at_least(account->lapsed_ns, now_ns), lapse_ns(&u->limits, device_ns));
}

uint64_t users_wait_ns(const struct users *u, const struct account *account, uint64_t now_ns)
{
    uint64_t full_ns = plus(now_ns, u->limits.window_ns);
    if (!account || u->limits.time_ns == 0 || account->lapsed_ns < full_ns)
        return 0;
    return plus(account->lapsed_ns - full_ns, 1);
}

const char *users_limit(const struct users *u, const struct account *account, uint64_t now_ns)
{
    if (u->limits.running_max > 0 && account->running >= u->limits.running_max)
        return "user-running-max";
    return users_wait_ns(u, account, now_ns) > 0 ? "user-device-time" : NULL;
}

bool users_may_run(const struct users *u, const struct account *account, uint64_t now_ns)
{
    return !users_limit(u, account, now_ns);
}

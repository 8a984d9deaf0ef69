// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/far_crews.h"

#include <string.h>

#include "tests/support/runner.h"

// ---- what is asked of other hosts --------------------------------------------------------------

static void on_start(void *context, int pool, const struct crew_start *start)
{
    struct far_crews *f = context;
    ck_assert_int_eq(pool, 0);
    ck_assert_uint_eq(start->generation, f->generation);
    f->starts++;
}

static void on_send(void *context, int host, uint32_t generation, int rank, enum channel_type type,
                    uint64_t job, const void *payload, uint32_t length)
{
    (void)context;
    (void)generation;
    (void)job;
    (void)payload;
    ck_abort_msg("rank %d of host %d gets message %d of %u bytes", rank, host, (int)type, length);
}

static void on_signal(void *context, int host, uint32_t generation, int number)
{
    (void)context;
    (void)generation;
    ck_abort_msg("host %d gets signal %d", host, number);
}

static void on_kill(void *context, int host, uint32_t generation)
{
    struct far_crews *f = context;
    ck_assert_uint_eq(generation, f->generation);
    ck_assert_msg(host > HOST_HERE && host < HOSTS_MAX, "host %d", host);
    f->kills[host]++;
}

static void on_stop(void *context, int host, uint32_t generation)
{
    (void)context;
    (void)generation;
    ck_abort_msg("host %d stops ranks", host);
}

static const char *on_name(void *context, int host)
{
    struct far_crews *f = context;
    return f->name[host];
}

// ---- what the crews report ---------------------------------------------------------------------

static void on_not_started(void *context, int pool, uint32_t generation, int host,
                           const struct error *error)
{
    struct far_crews *f = context;
    (void)pool;
    (void)generation;
    (void)error;
    f->not_started |= UINT64_C(1) << host;
}

static void on_ready(void *context, int pool, uint32_t generation, int rank)
{
    (void)context;
    (void)generation;
    ck_abort_msg("rank %d of pool %d is ready", rank, pool);
}

static void on_reported(void *context, int pool, uint32_t generation, int rank, uint64_t job)
{
    (void)context;
    (void)generation;
    (void)job;
    ck_abort_msg("rank %d of pool %d reports", rank, pool);
}

static void on_failed(void *context, int pool, uint32_t generation, int rank, int kind, int peer)
{
    struct far_crews *f = context;
    (void)pool;
    (void)generation;
    (void)rank;
    (void)kind;
    (void)peer;
    f->failed++;
}

static void on_ending(void *context, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    (void)context;
    (void)generation;
    (void)end;
    ck_abort_msg("rank %d of pool %d ends", rank, pool);
}

static void on_exited(void *context, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    struct far_crews *f = context;
    (void)pool;
    (void)generation;
    (void)rank;
    (void)end;
    f->exited++;
}

// ---- life --------------------------------------------------------------------------------------

void far_crews_init(struct far_crews *f, const char *const *names)
{
    static const struct guests no_guests;
    static const struct confinement anybody = {.uses_gpus = true};
    const struct crew_handler handler = {f,         on_not_started, on_ready, on_reported,
                                         on_failed, on_ending,      on_exited};
    const struct far_hosts far = {f, on_start, on_send, on_signal, on_kill, on_stop, on_name};
    struct error error;
    memset(f, 0, sizeof(*f));
    f->name = names;
    f->loop = ev_loop_new(EVFLAG_AUTO);
    ck_assert_ptr_nonnull(f->loop);
    ck_assert_msg(crews_create(f->loop, "/bin/true", &no_guests, &anybody, &handler, &f->crews,
                               &error) == STATUS_OK,
                  "%s", error.text);
    crews_set_far(f->crews, &far);
}

void far_crews_fini(struct far_crews *f)
{
    crews_destroy(f->crews);
    ev_loop_destroy(f->loop);
}

struct crew *far_crews_start(struct far_crews *f, const int *hosts, int world_size)
{
    static const int slots[WORLD_SIZE_MAX];
    const struct crew_start start = {
        .generation = ++f->generation, .world_size = world_size, .hosts = hosts, .slots = slots};
    struct error error;
    enum status status = crew_start(f->crews, 0, &start, &error);
    ck_assert_msg(status == STATUS_OK, "%s", error.text);
    return crews_get(f->crews, 0);
}

struct far_rank far_crews_rank(const struct far_crews *f, int rank)
{
    const struct crew *crew = crews_get(f->crews, 0);
    return (struct far_rank){crew->ranks[rank].host, 0, f->generation, rank};
}

// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/pool_view.h"

struct action pool_action(enum action_kind kind, const struct pool *pool)
{
    struct action action = {
        .kind = kind, .pool = -1, .slot = -1, .answer_index = -1, .rank = -1, .host = -1};
    if (pool) {
        action.pool = pool->crew;
        action.generation = pool->crew >= 0 ? pool->generation : 0;
        action.implementation = pool->size->implementation;
        action.world_size = pool->world_size;
        action.instance = pool->instance;
        action.hosts = pool->place.hosts;
        action.devices = pool->place.slots;
    }
    return action;
}

const char *pool_loss_words(enum pool_loss loss)
{
    static const char *const words[LOSS_COUNT] = {
        [LOSS_NONE] = "",
        [LOSS_EXITED] = "exited",
        [LOSS_KILLED] = "was killed from outside",
        [LOSS_FAILED] = "failed",
        [LOSS_PEER] = "was lost by another rank",
        [LOSS_START_TIMEOUT] = "the ranks were not ready in time",
        [LOSS_NOT_STARTED] = "the ranks could not be started",
        [LOSS_DEADLINE] = "killed at the deadline of its job",
        [LOSS_HOST] = "a host with ranks of it was lost",
    };
    return words[loss];
}

void pool_loss_text(const struct core *core, const struct pool *pool, struct error *text)
{
    const struct loss *loss = &pool->loss;
    char end[RANK_END_TEXT_MAX];
    if (loss->host >= 0)
        error_set(text, STATUS_OK, "host %s was lost", core->config.hosts[loss->host].name);
    else if (loss->rank >= 0)
        error_set(text, STATUS_OK, "rank %d %s", loss->rank,
                  loss->end.kind == RANK_LIVES ? pool_loss_words(loss->kind)
                                               : rank_end_said(&loss->end, end));
    else
        error_set(text, STATUS_OK, "%s", pool_loss_words(loss->kind));
}

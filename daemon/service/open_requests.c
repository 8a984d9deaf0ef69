// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/open_requests.h"

#include <stdio.h>

#include "common/clock.h"

// The order of the list: running requests first, then by admission.
static bool is_before(const struct task *a, const struct task *b)
{
    if ((a->run_ns > 0) != (b->run_ns > 0))
        return a->run_ns > 0;
    return a->admitted_ns < b->admitted_ns;
}

// Inserts in order, and drops requests after the first OPEN_LISTED_MAX. Returns the new count.
static int insert(const struct task **list, int count, const struct task *task)
{
    int place = count < OPEN_LISTED_MAX ? count : OPEN_LISTED_MAX - 1;
    if (count == OPEN_LISTED_MAX && !is_before(task, list[place]))
        return count;
    for (; place > 0 && is_before(task, list[place - 1]); place--)
        list[place] = list[place - 1];
    list[place] = task;
    return count < OPEN_LISTED_MAX ? count + 1 : count;
}

// Reads the progress of a rank in the current job: idle if its progress word is about an earlier
// job, because the rank has not begun this one.
static struct progress_view view_of(const struct progress *word, const struct crew *crew)
{
    struct progress_view view = progress_load(word);
    if (view.job != (crew->job & 0xffffff) || view.phase >= REPORT_PHASES)
        return (struct progress_view){.phase = REPORT_IDLE};
    return view;
}

// Fills in phase and step of each rank, and of the rank that the others wait for.
static void place_fill(const struct task *task, struct crews *crews, struct wire_open_request *open)
{
    const struct crew *crew = crews_get(crews, task->pool);
    if (task->run_ns == 0 || crew->generation != task->generation || crew->world_size == 0)
        return;
    struct progress words[WORLD_SIZE_MAX]; // copies, because ranks change the originals
    for (int rank = 0; rank < crew->world_size; rank++)
        progress_store(&words[rank], progress_load(&crew->progress[rank]));
    open->rank_count = crew->world_size;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct progress_view view = view_of(&words[rank], crew);
        open->rank_phases[rank] = view.phase;
        open->rank_steps[rank] = view.step;
    }
    struct progress_view view = view_of(&words[progress_culprit(words, crew->world_size)], crew);
    if (view.phase == REPORT_IDLE)
        return;
    snprintf(open->phase, sizeof(open->phase), "%s", report_phase_name(view.phase));
    open->step = view.step;
}

_Static_assert(sizeof(((struct wire_open_request *)0)->user) >= PEER_TEXT_MAX, "a user has room");

static void owner_fill(const struct task *task, struct wire_open_request *open)
{
    request_id_text(&task->id, open->id);
    peer_describe(&task->peer, open->user);
    job_spec_describe(&task->spec, open->case_text, sizeof(open->case_text));
}

static void open_fill(const struct task *task, struct crews *crews, const struct peer *peer,
                      bool rules, uint64_t now_ns, struct wire_open_request *open)
{
    bool mine = peer_is_known(peer) && peer->uid == task->peer.uid;
    struct job_needs needs = job_spec_needs(&task->spec);
    *open = (struct wire_open_request){.world_size = needs.world_size,
                                       .running = task->run_ns > 0,
                                       .age_ns = now_ns - task->admitted_ns,
                                       .run_ns = task->run_ns > 0 ? now_ns - task->run_ns : 0};
    if (mine || rules)
        owner_fill(task, open);
    else
        peer_describe_user(&task->peer, open->user);
    snprintf(open->implementation, sizeof(open->implementation), "%s", needs.implementation);
    place_fill(task, crews, open);
}

int open_requests_list(const struct tasks *tasks, int slots, struct crews *crews,
                       const struct peer *peer, bool rules,
                       struct wire_open_request open[OPEN_LISTED_MAX])
{
    const struct task *list[OPEN_LISTED_MAX];
    int count = 0;
    for (int slot = 0; slot < slots; slot++)
        if (tasks_get(tasks, slot))
            count = insert(list, count, tasks_get(tasks, slot));
    for (int i = 0; i < count; i++)
        open_fill(list[i], crews, peer, rules, clock_now_ns(), &open[i]);
    return count;
}

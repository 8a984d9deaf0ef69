// SPDX-License-Identifier: Apache-2.0
#include "common/report.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *report_phase_name(int phase)
{
    static const char *const names[REPORT_PHASES] = {
        [REPORT_IDLE] = "idle",         [REPORT_PLAN] = "plan",
        [REPORT_INPUTS] = "inputs",     [REPORT_FORWARD] = "forward",
        [REPORT_BACKWARD] = "backward", [REPORT_REFERENCE] = "reference",
        [REPORT_COMPARE] = "compare",
    };
    return phase >= 0 && phase < REPORT_PHASES ? names[phase] : "?";
}

const char *report_tensor_name(int tensor)
{
    static const char *const names[TENSOR_COUNT] = {
        [TENSOR_OUT] = "out",     [TENSOR_LSE] = "lse",
        [TENSOR_DQ] = "dq",       [TENSOR_DK] = "dk",
        [TENSOR_DV] = "dv",       [TENSOR_DBIAS] = "dbias",
        [TENSOR_DSINK] = "dsink", [TENSOR_MAX_LOGIT] = "max_logit",
    };
    return tensor > 0 && tensor < TENSOR_COUNT ? names[tensor] : "?";
}

size_t report_bytes(int32_t op_times)
{
    return offsetof(struct rank_report, op_times.list) + (size_t)op_times * sizeof(struct op_time);
}

struct figures *report_figures_add(struct rank_report *report, const char *name)
{
    struct figures *f = &report->figures[report->figures_count++];
    *f = (struct figures){.first_bad = {.position = -1}, .worst_row = {.position = -1}};
    snprintf(f->name, sizeof(f->name), "%s", name);
    return f;
}

bool op_times_plausible(const struct op_times *times)
{
    if (times->count < 0 || times->count > OP_TIMES_MAX)
        return false;
    for (int32_t i = 0; i < times->count; i++)
        if (times->list[i].end_ns < times->list[i].start_ns ||
            times->list[i].end_ns > TIMEOUT_MAX_NS)
            return false;
    return true;
}

bool report_name_is_valid(const char name[TENSOR_NAME_MAX])
{
    static const char accepted[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strnlen(name, TENSOR_NAME_MAX);
    return length > 0 && length < TENSOR_NAME_MAX && strspn(name, accepted) == length;
}

const char *figures_name(const struct figures *f)
{
    return f->tensor == 0 ? f->name : report_tensor_name(f->tensor);
}

// The word, from the top: job 24 bits, step 16, phase 8, rank waited for plus one 8, unused 8.
void progress_store(struct progress *p, struct progress_view view)
{
    uint64_t word = (uint64_t)(view.job & 0xffffff) << 40 | (uint64_t)(view.step & 0xffff) << 24 |
                    (uint64_t)(view.phase & 0xff) << 16 |
                    (uint64_t)((view.waiting_for + 1) & 0xff) << 8;
    __atomic_store_n(&p->word, word, __ATOMIC_RELAXED);
}

struct progress_view progress_load(const struct progress *p)
{
    uint64_t word = __atomic_load_n(&p->word, __ATOMIC_RELAXED);
    return (struct progress_view){.job = (uint32_t)(word >> 40),
                                  .step = (int)(word >> 24 & 0xffff),
                                  .phase = (int)(word >> 16 & 0xff),
                                  .waiting_for = (int)(word >> 8 & 0xff) - 1};
}

static bool waits(struct progress_view view, int world_size)
{
    return view.waiting_for >= 0 && view.waiting_for < world_size;
}

// True if `a` has progressed less than `b`.
static bool behind(struct progress_view a, struct progress_view b)
{
    return a.phase != b.phase ? a.phase < b.phase : a.step < b.step;
}

// Follows the waits from `rank`, at most one hop for each rank. Ends at a rank that waits for
// nobody, or in a circle.
static int chain_end(const struct progress_view *views, int world_size, int rank)
{
    for (int hop = 0; hop < world_size && waits(views[rank], world_size); hop++)
        rank = views[rank].waiting_for;
    return rank;
}

// Returns the rank of a circle that has progressed least; of equals, the lowest rank.
static int circle_last(const struct progress_view *views, int start)
{
    int last = start;
    for (int rank = views[start].waiting_for; rank != start; rank = views[rank].waiting_for)
        if (behind(views[rank], views[last]) || (!behind(views[last], views[rank]) && rank < last))
            last = rank;
    return last;
}

// Returns the working rank that has progressed least; 0 if none works.
static int slowest(const struct progress_view *views, int world_size)
{
    int found = -1;
    for (int rank = 0; rank < world_size; rank++)
        if (views[rank].phase != REPORT_IDLE && (found < 0 || behind(views[rank], views[found])))
            found = rank;
    return found < 0 ? 0 : found;
}

int progress_culprit(const struct progress *words, int world_size)
{
    struct progress_view views[WORLD_SIZE_MAX];
    int found = -1;
    for (int rank = 0; rank < world_size; rank++)
        views[rank] = progress_load(&words[rank]);
    for (int rank = 0; rank < world_size; rank++) {
        if (!waits(views[rank], world_size))
            continue;
        int end = chain_end(views, world_size, rank);
        if (waits(views[end], world_size))
            end = circle_last(views, end);
        if (found < 0 || behind(views[end], views[found]))
            found = end;
    }
    return found < 0 ? slowest(views, world_size) : found;
}

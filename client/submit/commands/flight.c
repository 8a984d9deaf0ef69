// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/flight.h"

#include <stdlib.h>
#include <time.h>

#include "client/submit/commands/command.h"

#define TICK_NS   (UINT64_C(100) * 1000000)
// How long cancelled cases may take to be answered before they are given up.
#define CANCEL_NS (UINT64_C(5) * 1000000000)
// How long a daemon may take to say whether it takes cases, and how often it is asked.
#define ASK_NS    (UINT64_C(1) * 1000000000)
#define ASKS_NS   (UINT64_C(250) * 1000000)
#define TRIES_MAX 2

enum slot_state {
    SLOT_FREE,
    SLOT_FLIES,
    SLOT_HELD,    // answered UNAVAILABLE; to be submitted again when a daemon takes cases
    SLOT_CROWDED, // answered RESOURCE_EXHAUSTED; to be submitted again when another is answered
};

struct slot {
    enum slot_state state;
    struct cpattn_request *request; // of one that flies
    int number, tries;
    int64_t served; // what had been answered when it was crowded out; -1: it was not
};

struct air {
    const struct flight *flight;
    struct slot *slots;
    int flying, held, crowded;
    int64_t served; // answers other than RESOURCE_EXHAUSTED
    bool room;      // for those that were crowded
    bool more, stopping;
    bool patient;             // a daemon was there since one was waited for in vain
    struct cpattn_error lost; // of the last case that was held
    uint64_t lost_ns;         // since when a daemon is waited for; 0: one is there
    uint64_t asked_ns, ticked_ns;
};

static void answer(struct air *air, struct slot *slot, const struct cpattn_error *error,
                   struct cpattn_result *result)
{
    slot->state = SLOT_FREE;
    air->more = true; // an answer may lead to another try
    air->flight->answered(air->flight->context, slot->number, error->status, result, error->text);
}

// Holds a case whose daemon went away or takes none; false where the answer stands.
static bool hold(struct air *air, struct slot *slot, const struct cpattn_error *error)
{
    air->patient = air->patient || error->status == CPATTN_OK;
    if (error->status != CPATTN_UNAVAILABLE || slot->tries >= TRIES_MAX || air->stopping ||
        !air->patient)
        return false;
    slot->state = SLOT_HELD;
    air->held++;
    air->lost = *error;
    if (air->lost_ns == 0)
        air->lost_ns = command_now_ns();
    return true;
}

// Where the queue is full, of this user or of all, ours make room when they are answered. What is
// refused again with nothing answered since lacks something else, such as memory.
static bool crowd(struct air *air, struct slot *slot, const struct cpattn_error *error)
{
    if (error->status != CPATTN_RESOURCE_EXHAUSTED || air->flying == 0 || air->stopping ||
        slot->served == air->served)
        return false;
    slot->served = air->served;
    slot->state = SLOT_CROWDED;
    slot->tries--;
    air->crowded++;
    return true;
}

// Submits the case of a slot; what cannot even be submitted is answered at once, or held.
static void submit(struct air *air, struct slot *slot)
{
    struct cpattn_error error = {CPATTN_RESOURCE_EXHAUSTED, "not enough memory for the case"};
    struct cpattn_case *made =
        command_library_case(air->flight->load(air->flight->context, slot->number));
    enum cpattn_status status = CPATTN_RESOURCE_EXHAUSTED;
    if (made)
        status = cpattn_submit_limited(air->flight->client, made, TIMEOUT_MAX_NS,
                                       air->flight->timeout_ns, &slot->request, &error);
    cpattn_case_destroy(made);
    error.status = status;
    slot->tries++;
    if (status == CPATTN_OK) {
        slot->state = SLOT_FLIES;
        cpattn_request_set_tag(slot->request, slot);
        air->flying++;
    } else if (!hold(air, slot, &error)) {
        answer(air, slot, &error, NULL);
    }
}

static void submit_again(struct air *air, struct slot *slot, int *waiting)
{
    (*waiting)--;
    submit(air, slot);
}

// Those that were answered with nothing go before new ones. One that could not be submitted leaves
// the slot to the next.
static void fill(struct air *air)
{
    bool room = air->room || air->flying == 0;
    air->room = false;
    for (int i = 0; i < air->flight->jobs; i++) {
        struct slot *slot = &air->slots[i];
        if (slot->state == SLOT_HELD && air->lost_ns == 0)
            submit_again(air, slot, &air->held);
        else if (slot->state == SLOT_CROWDED && room && air->lost_ns == 0)
            submit_again(air, slot, &air->crowded);
        while (slot->state == SLOT_FREE && air->more && !air->stopping && air->lost_ns == 0) {
            air->more = air->flight->next(air->flight->context, &slot->number);
            slot->tries = 0;
            slot->served = -1;
            if (air->more)
                submit(air, slot);
        }
    }
}

static void land(struct air *air, struct slot *slot)
{
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    error.status = cpattn_collect(slot->request, &result, &error);
    cpattn_request_destroy(slot->request);
    air->flying--;
    if (hold(air, slot, &error) || crowd(air, slot, &error)) {
        cpattn_result_destroy(result);
    } else {
        answer(air, slot, &error, result);
        air->room = true;
        air->served += error.status != CPATTN_RESOURCE_EXHAUSTED;
    }
}

// ---- a daemon that went away ------------------------------------------------------------------

static bool takes_cases(struct cpattn_client *client)
{
    struct cpattn_daemon_status *status;
    if (cpattn_query_status(client, ASK_NS, &status, NULL) != CPATTN_OK)
        return false;
    bool takes = !status->draining;
    cpattn_daemon_status_destroy(status);
    return takes;
}

static void answer_waiting(struct air *air, enum slot_state state, const struct cpattn_error *error,
                           int *waiting)
{
    for (int i = 0; i < air->flight->jobs; i++)
        if (air->slots[i].state == state)
            answer(air, &air->slots[i], error, NULL);
    *waiting = 0;
}

static void answer_held(struct air *air, const struct cpattn_error *error)
{
    answer_waiting(air, SLOT_HELD, error, &air->held);
    air->lost_ns = 0;
}

// Looks for a daemon that takes cases; gives the cases that wait for one up after a time.
static void look_for_daemon(struct air *air)
{
    uint64_t now_ns = command_now_ns();
    if (now_ns - air->asked_ns < ASKS_NS)
        return;
    air->asked_ns = now_ns;
    if (takes_cases(air->flight->client)) {
        air->lost_ns = 0;
    } else if (now_ns - air->lost_ns > air->flight->patience_ns) {
        air->patient = false;
        answer_held(air, &air->lost);
    }
}

// ---- stopping ---------------------------------------------------------------------------------

static void stop(struct air *air)
{
    struct cpattn_error ignored;
    struct cpattn_error cancelled = {CPATTN_CANCELLED, "cancelled before it was submitted again"};
    air->stopping = true;
    answer_held(air, &cancelled);
    answer_waiting(air, SLOT_CROWDED, &cancelled, &air->crowded);
    for (int i = 0; i < air->flight->jobs; i++)
        if (air->slots[i].state == SLOT_FLIES)
            cpattn_cancel(air->slots[i].request, &ignored);
}

static void give_up(struct air *air)
{
    struct cpattn_error error = {CPATTN_CANCELLED, "cancelled, and not answered in time"};
    for (int i = 0; i < air->flight->jobs; i++) {
        if (air->slots[i].state != SLOT_FLIES)
            continue;
        cpattn_request_destroy(air->slots[i].request);
        air->flying--;
        answer(air, &air->slots[i], &error, NULL);
    }
}

static void tick(struct air *air)
{
    uint64_t now_ns = command_now_ns();
    if (now_ns - air->ticked_ns < TICK_NS)
        return;
    air->ticked_ns = now_ns;
    if (air->flight->tick(air->flight->context, air->lost_ns ? air->lost.text : NULL) &&
        !air->stopping)
        stop(air);
}

// ---- all of it --------------------------------------------------------------------------------

// With nothing in flight the library does not wait.
static struct cpattn_request *next_answer(const struct air *air)
{
    static const struct timespec pause = {.tv_nsec = (long)TICK_NS};
    if (air->flying > 0)
        return cpattn_wait_any(air->flight->client, TICK_NS);
    nanosleep(&pause, NULL);
    return NULL;
}

enum status flight_run(const struct flight *flight)
{
    struct air air = {.flight = flight, .more = true, .patient = true};
    uint64_t stopped_ns = 0;
    air.slots = calloc((size_t)flight->jobs, sizeof(*air.slots));
    if (!air.slots)
        return STATUS_RESOURCE_EXHAUSTED;
    for (fill(&air); air.flying > 0 || air.held > 0 || air.crowded > 0; fill(&air)) {
        struct cpattn_request *request = next_answer(&air);
        if (request)
            land(&air, cpattn_request_tag(request));
        if (air.lost_ns > 0)
            look_for_daemon(&air);
        tick(&air);
        if (air.stopping && stopped_ns == 0)
            stopped_ns = command_now_ns();
        if (air.stopping && command_now_ns() - stopped_ns > CANCEL_NS)
            give_up(&air);
    }
    free(air.slots);
    return STATUS_OK;
}

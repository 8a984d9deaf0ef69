// SPDX-License-Identifier: Apache-2.0
#include "client/submit/flight.h"

#include <stdlib.h>

#include "client/submit/command.h"

#define TICK_NS   (UINT64_C(100) * 1000000)
// How long cancelled cases may take to be answered before they are given up.
#define CANCEL_NS (UINT64_C(5) * 1000000000)

struct slot {
    struct cpattn_request *request; // NULL: free
    int number;
};

struct air {
    const struct flight *flight;
    struct slot *slots;
    int busy;
    bool more, stopping;
    uint64_t ticked_ns;
};

static void answer(const struct air *air, int number, const struct cpattn_error *error,
                   struct cpattn_result *result)
{
    air->flight->answered(air->flight->context, number, error->status, result, error->text);
}

// Submits a case; what cannot even be submitted is answered at once.
static void submit(struct air *air, struct slot *slot, const struct cp_case *c, int number)
{
    struct cpattn_error error = {CPATTN_RESOURCE_EXHAUSTED, "not enough memory for the case"};
    struct cpattn_case *made = command_library_case(c);
    enum cpattn_status status = CPATTN_RESOURCE_EXHAUSTED;
    if (made)
        status = cpattn_submit_limited(air->flight->client, made, TIMEOUT_MAX_NS,
                                       air->flight->timeout_ns, &slot->request, &error);
    cpattn_case_destroy(made);
    if (status != CPATTN_OK) {
        slot->request = NULL;
        error.status = status;
        answer(air, number, &error, NULL);
        return;
    }
    slot->number = number;
    cpattn_request_set_tag(slot->request, slot);
    air->busy++;
}

static void fill(struct air *air)
{
    for (int i = 0; i < air->flight->jobs; i++) {
        // A case that could not be submitted leaves the slot to the next one.
        while (!air->slots[i].request && air->more && !air->stopping) {
            int number;
            const struct cp_case *c = air->flight->next(air->flight->context, &number);
            air->more = c != NULL;
            if (c)
                submit(air, &air->slots[i], c, number);
        }
    }
}

static void land(struct air *air, struct slot *slot)
{
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    error.status = cpattn_collect(slot->request, &result, &error);
    cpattn_request_destroy(slot->request);
    slot->request = NULL;
    air->busy--;
    answer(air, slot->number, &error, result);
}

static void stop(struct air *air)
{
    struct cpattn_error ignored;
    air->stopping = true;
    for (int i = 0; i < air->flight->jobs; i++)
        if (air->slots[i].request)
            cpattn_cancel(air->slots[i].request, &ignored);
}

static void give_up(struct air *air)
{
    struct cpattn_error error = {CPATTN_CANCELLED, "cancelled, and not answered in time"};
    for (int i = 0; i < air->flight->jobs; i++) {
        if (!air->slots[i].request)
            continue;
        cpattn_request_destroy(air->slots[i].request);
        air->slots[i].request = NULL;
        air->busy--;
        answer(air, air->slots[i].number, &error, NULL);
    }
}

static void tick(struct air *air)
{
    uint64_t now_ns = command_now_ns();
    if (now_ns - air->ticked_ns < TICK_NS)
        return;
    air->ticked_ns = now_ns;
    if (air->flight->tick(air->flight->context) && !air->stopping)
        stop(air);
}

enum status flight_run(const struct flight *flight)
{
    struct air air = {.flight = flight, .more = true};
    uint64_t stopped_ns = 0;
    air.slots = calloc((size_t)flight->jobs, sizeof(*air.slots));
    if (!air.slots)
        return STATUS_RESOURCE_EXHAUSTED;
    for (fill(&air); air.busy > 0; fill(&air)) {
        struct cpattn_request *request = cpattn_wait_any(flight->client, TICK_NS);
        if (request)
            land(&air, cpattn_request_tag(request));
        tick(&air);
        if (air.stopping && stopped_ns == 0)
            stopped_ns = command_now_ns();
        if (air.stopping && command_now_ns() - stopped_ns > CANCEL_NS)
            give_up(&air);
    }
    free(air.slots);
    return STATUS_OK;
}

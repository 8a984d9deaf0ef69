// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/submit/commands/ask.h"
#include "client/submit/commands/command.h"
#include "common/duration.h"

#define TICK_NS      (UINT64_C(100) * 1000000)
// How long a daemon may take to say how long its time limits may be; longer if it has just refused
// a case.
#define ASK_NS       (UINT64_C(1) * 1000000000)
#define ASK_LIMIT_NS (UINT64_C(10) * 1000000000)
// How often a lost daemon is asked whether it accepts cases. As often a case is submitted again to
// a queue that others fill.
#define ASKS_NS      (UINT64_C(250) * 1000000)
// A daemon that has cases and has not answered for this time is asked whether it is alive.
#define QUIET_NS     (UINT64_C(2) * 1000000000)
// With several daemons: how long to wait for one before asking the next.
#define TURN_NS      (UINT64_C(2) * 1000000)
#define TRIES_MAX    2

enum slot_state {
    SLOT_FREE,
    SLOT_FLIES,
    SLOT_HELD,    // answered UNAVAILABLE; to be submitted again when a daemon takes cases
    SLOT_CROWDED, // answered RESOURCE_EXHAUSTED; to be submitted again when there may be room
};

struct slot {
    enum slot_state state;
    int daemon;
    struct cpattn_request *request; // SLOT_FLIES
    int number, tries;
    uint64_t limit_ns; // of its last request, from arrival: the daemon's timeout_max_ns then
    int64_t served;    // daemon.served when a full queue refused the case; -1: none did
};

// A daemon.
struct daemon {
    struct cpattn_client *client;
    struct ask ask;
    int flying;
    int64_t served;           // answers other than RESOURCE_EXHAUSTED
    bool room;                // an answer has made room for cases that a full queue refused
    bool patient;             // it has answered a case since the last time-out, or there was none
    struct cpattn_error lost; // error of the last case that was held
    uint64_t lost_ns;         // start of the wait for it; 0: it is reachable
    uint64_t asked_ns;
    uint64_t heard_ns;       // its last answer, or when it got its first case after a rest
    bool silent;             // it did not answer for so long that its cases were given up
    uint64_t full_ns;        // since when others fill its queue, with nothing of ours there; 0: not
    uint64_t probed_ns;      // when a case was last submitted to such a queue
    bool told_full;          // this was noted
    uint64_t timeout_max_ns; // that it grants; TIMEOUT_MAX_NS until it has told its limit
};

struct air {
    const struct flight *flight;
    struct slot *slots;     // [slot_count], equally many for each daemon
    struct daemon *daemons; // [flight->client_count]
    int slot_count, flying, held, crowded;
    int turn; // counts up; modulo the number of daemons: the one to wait for next
    bool more, stopping;
    uint64_t ticked_ns;
};

static struct daemon *daemon_of(struct air *air, const struct slot *slot)
{
    return &air->daemons[slot->daemon];
}

// Number of reachable daemons.
static int daemons_there(const struct air *air)
{
    int there = 0;
    for (int i = 0; i < air->flight->client_count; i++)
        there += air->daemons[i].lost_ns == 0;
    return there;
}

static void answer(struct air *air, struct slot *slot, const struct cpattn_error *error,
                   struct cpattn_result *result)
{
    slot->state = SLOT_FREE;
    air->more = true; // an answer may lead to another try
    air->flight->answered(air->flight->context, slot->number, error->status, result, error->text);
}

// Keeps a case for later if its daemon is gone or accepts no cases. False if the answer is final.
static bool hold(struct air *air, struct slot *slot, const struct cpattn_error *error)
{
    struct daemon *daemon = daemon_of(air, slot);
    daemon->patient = daemon->patient || error->status == CPATTN_OK;
    bool elsewhere = daemons_there(air) > (daemon->lost_ns == 0);
    if (error->status != CPATTN_UNAVAILABLE || slot->tries >= TRIES_MAX || air->stopping ||
        !(daemon->patient || elsewhere))
        return false;
    slot->state = SLOT_HELD;
    air->held++;
    daemon->lost = *error;
    if (daemon->lost_ns == 0)
        daemon->lost_ns = command_now_ns();
    return true;
}

// True if the queue of the daemon or the share of this user is full. A refusal names its limit.
static bool is_full(const struct cpattn_error *error)
{
    return error->status == CPATTN_RESOURCE_EXHAUSTED && strstr(error->text, "queue-max)");
}

// Counts the time for which others fill the queue, and notes its beginning. False: it is over.
static bool is_awaited(const struct air *air, struct daemon *daemon,
                       const struct cpattn_error *error)
{
    char text[FLIGHT_NOTE_MAX + sizeof(error->text)];
    if (daemon->flying > 0) {
        daemon->full_ns = 0;
        return true;
    }
    if (daemon->full_ns > 0)
        return command_now_ns() - daemon->full_ns <= air->flight->patience_ns;
    daemon->full_ns = command_now_ns();
    snprintf(text, sizeof(text), "%s; waiting for room in the queue of the daemon at %s",
             error->text, cpattn_client_socket(daemon->client));
    if (!daemon->told_full)
        air->flight->note(air->flight->context, text);
    daemon->told_full = true;
    return true;
}

// Keeps a case that was refused because the queue of this user or of the daemon is full. Answers to
// our own cases make room; without any of them there, the answers to others do. False if the answer
// is final. A case that is refused for another reason, and again without any answer in between,
// lacks something else, such as memory.
static bool crowd(struct air *air, struct slot *slot, const struct cpattn_error *error)
{
    struct daemon *daemon = daemon_of(air, slot);
    if (error->status != CPATTN_RESOURCE_EXHAUSTED || air->stopping)
        return false;
    if (is_full(error) ? !is_awaited(air, daemon, error)
                       : daemon->flying == 0 || slot->served == daemon->served)
        return false;
    slot->served = daemon->served;
    slot->state = SLOT_CROWDED;
    slot->tries--;
    air->crowded++;
    return true;
}

// Asks for the longest time limit that a daemon grants. Without an answer the last one stays; a
// daemon that grants less refuses a case, and is asked again then.
static void take_limit(struct daemon *daemon, uint64_t wait_ns)
{
    struct cpattn_description *description;
    if (cpattn_describe(daemon->client, wait_ns, &description, NULL) != CPATTN_OK)
        return;
    daemon->timeout_max_ns =
        description->timeout_max_ns < TIMEOUT_MAX_NS ? description->timeout_max_ns : TIMEOUT_MAX_NS;
    cpattn_description_destroy(description);
}

static void tell_limit(const struct air *air, const struct daemon *daemon)
{
    uint64_t given_ns = air->flight->timeout_ns;
    char text[FLIGHT_NOTE_MAX], limit[DURATION_TEXT_MAX], given[DURATION_TEXT_MAX];
    int used = snprintf(text, sizeof(text),
                        "the daemon at %s grants a case at most %s with its wait (timeout-max)",
                        cpattn_client_socket(daemon->client),
                        duration_format(daemon->timeout_max_ns, limit, sizeof(limit)));
    if (given_ns > daemon->timeout_max_ns && used > 0 && (size_t)used < sizeof(text))
        snprintf(text + used, sizeof(text) - (size_t)used, ", not the given %s",
                 duration_format(given_ns, given, sizeof(given)));
    air->flight->note(air->flight->context, text);
}

// Asks again during the run, and notes if cases have less time than before.
static void take_limit_again(const struct air *air, struct daemon *daemon, uint64_t wait_ns)
{
    uint64_t before_ns = daemon->timeout_max_ns;
    take_limit(daemon, wait_ns);
    if (daemon->timeout_max_ns < before_ns)
        tell_limit(air, daemon);
}

// True if the daemon grants less than the limit with which the case was submitted: a reload has
// lowered it, or the daemon had not said it yet.
static bool limit_fell(const struct air *air, struct slot *slot, const struct cpattn_error *error)
{
    struct daemon *daemon = &air->daemons[slot->daemon];
    if (error->status != CPATTN_INVALID_ARGUMENT || air->stopping)
        return false;
    if (daemon->timeout_max_ns >= slot->limit_ns)
        take_limit_again(air, daemon, ASK_LIMIT_NS);
    return daemon->timeout_max_ns < slot->limit_ns;
}

static struct cpattn_error silence_of(const struct daemon *daemon)
{
    struct cpattn_error error = {.status = CPATTN_UNAVAILABLE};
    snprintf(error.text, sizeof(error.text), "the daemon at %s does not answer",
             cpattn_client_socket(daemon->client));
    return error;
}

// Submits the case of a slot. A case that cannot be submitted is answered at once or kept for
// later.
static void submit(struct air *air, struct slot *slot)
{
    struct daemon *daemon = daemon_of(air, slot);
    struct cpattn_error error = {CPATTN_RESOURCE_EXHAUSTED, "not enough memory for the case"};
    struct cpattn_case *made =
        command_library_job(air->flight->load(air->flight->context, slot->number));
    enum cpattn_status status = CPATTN_RESOURCE_EXHAUSTED;
    uint64_t run_ns = air->flight->timeout_ns;
    slot->limit_ns = daemon->timeout_max_ns;
    if (daemon->flying == 0)
        daemon->heard_ns = command_now_ns();
    if (daemon->silent) {
        error = silence_of(daemon);
        status = error.status;
    } else if (made) {
        status =
            cpattn_submit_limited(daemon->client, made, slot->limit_ns,
                                  run_ns ? run_ns : TIMEOUT_DEFAULT_NS, &slot->request, &error);
    }
    cpattn_case_destroy(made);
    // A daemon that does not answer a connection may hang. It did not get the case.
    error.status = status == CPATTN_DEADLINE_EXCEEDED ? CPATTN_UNAVAILABLE : status;
    slot->tries++;
    if (status == CPATTN_OK) {
        slot->state = SLOT_FLIES;
        cpattn_request_set_tag(slot->request, slot);
        air->flying++;
        daemon->flying++;
    } else if (!hold(air, slot, &error)) {
        answer(air, slot, &error, NULL);
    }
}

static void submit_again(struct air *air, struct slot *slot, int *waiting)
{
    (*waiting)--;
    submit(air, slot);
}

// True if a free slot of `other` may take a case of another daemon: its own went away, or others
// fill the queue of its own, but not that of `other`, which has no new case to run.
static bool is_left(struct air *air, const struct slot *slot, const struct daemon *other)
{
    const struct daemon *daemon = daemon_of(air, slot);
    bool crowded = slot->state == SLOT_CROWDED && daemon->full_ns > 0;
    return (slot->state == SLOT_HELD && daemon->lost_ns > 0) ||
           (crowded && other->full_ns == 0 && !air->more);
}

// Gives a free slot a case that another daemon left. False if there is none.
static bool adopt(struct air *air, struct slot *slot)
{
    for (int i = 0; i < air->slot_count && air->held + air->crowded > 0; i++) {
        struct slot *other = &air->slots[i];
        if (other->daemon == slot->daemon || !is_left(air, other, daemon_of(air, slot)))
            continue;
        slot->number = other->number;
        slot->tries = other->tries;
        slot->served = -1;
        bool was_held = other->state == SLOT_HELD;
        other->state = SLOT_FREE;
        submit_again(air, slot, was_held ? &air->held : &air->crowded);
        return true;
    }
    return false;
}

// True once in a while as long as nothing of ours is at a daemon: then one case is submitted again,
// to see whether there is room.
static bool probes(struct daemon *daemon)
{
    uint64_t now_ns = command_now_ns();
    if (daemon->flying > 0 || now_ns - daemon->probed_ns < ASKS_NS)
        return false;
    daemon->probed_ns = now_ns;
    return true;
}

static void fill_slot(struct air *air, struct slot *slot, bool room)
{
    if (slot->state == SLOT_HELD)
        submit_again(air, slot, &air->held);
    else if (slot->state == SLOT_CROWDED && (room || probes(daemon_of(air, slot))))
        submit_again(air, slot, &air->crowded);
    while (slot->state == SLOT_FREE && !air->stopping && daemon_of(air, slot)->lost_ns == 0) {
        if (adopt(air, slot))
            continue;
        if (!air->more)
            break;
        air->more = air->flight->next(air->flight->context, &slot->number);
        slot->tries = 0;
        slot->served = -1;
        if (air->more)
            submit(air, slot);
    }
}

// Fills the slots of reachable daemons, one daemon after the other in turn. Cases that lost their
// daemon go before new ones. If a case cannot be submitted, the slot goes to the next case.
static void fill(struct air *air)
{
    int daemons = air->flight->client_count;
    bool room[FLIGHT_CLIENTS_MAX] = {false};
    for (int i = 0; i < daemons; i++) {
        room[i] = air->daemons[i].room;
        air->daemons[i].room = false;
    }
    for (int i = 0; i < air->slot_count; i++)
        if (air->daemons[air->slots[i].daemon].lost_ns == 0)
            fill_slot(air, &air->slots[i], room[air->slots[i].daemon]);
}

static void land(struct air *air, struct slot *slot)
{
    struct daemon *daemon = daemon_of(air, slot);
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    error.status = cpattn_collect(slot->request, &result, &error);
    cpattn_request_destroy(slot->request);
    air->flying--;
    daemon->flying--;
    daemon->heard_ns = command_now_ns();
    if (hold(air, slot, &error) || crowd(air, slot, &error)) {
        cpattn_result_destroy(result);
    } else if (limit_fell(air, slot, &error)) {
        cpattn_result_destroy(result);
        slot->tries--;
        submit(air, slot);
    } else {
        answer(air, slot, &error, result);
        daemon->room = daemon->room || !is_full(&error);
        daemon->served += error.status != CPATTN_RESOURCE_EXHAUSTED;
        daemon->full_ns = error.status == CPATTN_RESOURCE_EXHAUSTED ? daemon->full_ns : 0;
    }
}

// ---- a daemon that went away or hangs ----------------------------------------------------------

// Answers all cases in a state, whose counter is *waiting, of a daemon, or of all daemons if it is
// NULL.
static void answer_waiting(struct air *air, const struct daemon *daemon, enum slot_state state,
                           const struct cpattn_error *error, int *waiting)
{
    for (int i = 0; i < air->slot_count; i++) {
        struct slot *slot = &air->slots[i];
        if (slot->state != state || (daemon && daemon_of(air, slot) != daemon))
            continue;
        (*waiting)--;
        answer(air, slot, error, NULL);
    }
}

// A daemon accepts cases again, or is alive.
static void heard(struct air *air, struct daemon *daemon, enum ask_answer answer)
{
    daemon->heard_ns = command_now_ns();
    daemon->silent = false;
    if (daemon->lost_ns == 0 || answer != ASK_ACCEPTS)
        return;
    daemon->lost_ns = 0;
    take_limit_again(air, daemon, ASK_NS);
}

// After a time the cases that wait for a daemon are given up, unless another daemon accepts them.
static void lose_patience(struct air *air, struct daemon *daemon)
{
    if (daemons_there(air) > 0 || command_now_ns() - daemon->lost_ns <= air->flight->patience_ns)
        return;
    daemon->patient = false;
    answer_waiting(air, daemon, SLOT_HELD, &daemon->lost, &air->held);
    daemon->lost_ns = 0;
}

// Gives up the cases at a daemon that has not answered for a time: it hangs. They are submitted
// again elsewhere, or when it answers.
static void lose_silent(struct air *air, struct daemon *daemon)
{
    uint64_t heard_ns = daemon->heard_ns;
    const struct cpattn_error error = silence_of(daemon);
    if (command_now_ns() - heard_ns <= air->flight->patience_ns)
        return;
    daemon->silent = true;
    for (int i = 0; i < air->slot_count; i++) {
        struct slot *slot = &air->slots[i];
        if (slot->state != SLOT_FLIES || daemon_of(air, slot) != daemon)
            continue;
        cpattn_request_destroy(slot->request);
        air->flying--;
        daemon->flying--;
        if (!hold(air, slot, &error))
            answer(air, slot, &error, NULL);
    }
    if (daemon->lost_ns > 0)
        daemon->lost_ns = heard_ns; // it had its time
    air->ticked_ns = 0;             // tell it now
}

// Asks a lost daemon whether it accepts cases, and one that is quiet whether it is alive.
static void look_at(struct air *air, struct daemon *daemon)
{
    uint64_t now_ns = command_now_ns();
    enum ask_answer answer = ask_take(&daemon->ask);
    if (answer == ASK_ACCEPTS || answer == ASK_REFUSES)
        heard(air, daemon, answer);
    else if (answer == ASK_SILENT && daemon->flying > 0)
        lose_silent(air, daemon);
    if (answer != ASK_NONE && daemon->lost_ns > 0)
        lose_patience(air, daemon);
    bool lost = daemon->lost_ns > 0 || daemon->silent;
    if (now_ns - daemon->asked_ns < ASKS_NS ||
        !(lost || (daemon->flying > 0 && now_ns - daemon->heard_ns > QUIET_NS)))
        return;
    daemon->asked_ns = now_ns;
    ask_begin(&daemon->ask);
}

static void look_at_daemons(struct air *air)
{
    for (int i = 0; i < air->flight->client_count; i++)
        look_at(air, &air->daemons[i]);
}

// ---- stopping ---------------------------------------------------------------------------------

static void stop(struct air *air)
{
    struct cpattn_error ignored;
    struct cpattn_error cancelled = {CPATTN_CANCELLED, "cancelled before it was submitted again"};
    air->stopping = true;
    answer_waiting(air, NULL, SLOT_HELD, &cancelled, &air->held);
    answer_waiting(air, NULL, SLOT_CROWDED, &cancelled, &air->crowded);
    for (int i = 0; i < air->slot_count; i++)
        if (air->slots[i].state == SLOT_FLIES)
            cpattn_cancel(air->slots[i].request, &ignored);
}

static void give_up(struct air *air)
{
    struct cpattn_error error = {CPATTN_CANCELLED, COMMAND_CANCEL_TEXT};
    for (int i = 0; i < air->slot_count; i++) {
        if (air->slots[i].state != SLOT_FLIES)
            continue;
        cpattn_request_destroy(air->slots[i].request);
        air->flying--;
        daemon_of(air, &air->slots[i])->flying--;
        answer(air, &air->slots[i], &error, NULL);
    }
}

static const char *lost_text(const struct air *air)
{
    for (int i = 0; i < air->flight->client_count; i++)
        if (air->daemons[i].lost_ns > 0)
            return air->daemons[i].lost.text;
    return NULL;
}

static void tick(struct air *air)
{
    uint64_t now_ns = command_now_ns();
    if (now_ns - air->ticked_ns < TICK_NS)
        return;
    air->ticked_ns = now_ns;
    if (air->flight->tick(air->flight->context, lost_text(air), daemons_there(air) > 0) &&
        !air->stopping)
        stop(air);
}

// ---- the run ----------------------------------------------------------------------------------

// Returns the next answered request of any daemon; NULL: none after a short wait. Polls all daemons
// before it waits for one. Sleeps if nothing is in flight, because the library does not wait then.
static struct cpattn_request *next_answer(struct air *air)
{
    static const struct timespec pause = {.tv_nsec = (long)TICK_NS};
    int daemons = air->flight->client_count;
    struct cpattn_request *request = NULL;
    for (int i = 0; i < daemons && daemons > 1 && !request; i++)
        if (air->daemons[i].flying > 0)
            request = cpattn_wait_any(air->daemons[i].client, 0);
    for (int i = 0; i < daemons && !request; i++) {
        struct daemon *daemon = &air->daemons[air->turn++ % daemons];
        if (daemon->flying > 0)
            return cpattn_wait_any(daemon->client, daemons > 1 ? TURN_NS : TICK_NS);
    }
    if (!request)
        nanosleep(&pause, NULL);
    return request;
}

static bool air_init(struct air *air, const struct flight *flight)
{
    *air = (struct air){.flight = flight, .more = true};
    air->slot_count = flight->jobs * flight->client_count;
    air->slots = calloc((size_t)air->slot_count, sizeof(*air->slots));
    air->daemons = calloc((size_t)flight->client_count, sizeof(*air->daemons));
    if (!air->slots || !air->daemons)
        return false;
    for (int i = 0; i < flight->client_count; i++) {
        air->daemons[i].client = air->daemons[i].ask.client = flight->clients[i];
        air->daemons[i].patient = true;
        air->daemons[i].timeout_max_ns = TIMEOUT_MAX_NS;
        take_limit(&air->daemons[i], ASK_NS);
        if (flight->timeout_ns > air->daemons[i].timeout_max_ns)
            tell_limit(air, &air->daemons[i]);
    }
    for (int i = 0; i < air->slot_count; i++)
        air->slots[i].daemon = i % flight->client_count;
    return true;
}

enum status flight_run(const struct flight *flight)
{
    struct air air;
    uint64_t stopped_ns = 0;
    bool ready = air_init(&air, flight);
    if (ready)
        fill(&air);
    for (; ready && (air.flying > 0 || air.held > 0 || air.crowded > 0); fill(&air)) {
        struct cpattn_request *request = next_answer(&air);
        if (request)
            land(&air, cpattn_request_tag(request));
        look_at_daemons(&air);
        tick(&air);
        if (air.stopping && stopped_ns == 0)
            stopped_ns = command_now_ns();
        if (air.stopping && command_now_ns() - stopped_ns > COMMAND_CANCEL_NS)
            give_up(&air);
    }
    for (int i = 0; ready && i < flight->client_count; i++)
        ask_fini(&air.daemons[i].ask);
    free(air.slots);
    free(air.daemons);
    return ready ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

// SPDX-License-Identifier: Apache-2.0
// Events of cases, pools and devices: a ring of the last EVENTS_KEPT, numbered from 1. A new event
// replaces the oldest; a slow reader loses events and learns their number.
#ifndef CPATTN_DAEMON_SERVICE_EVENTS_H
#define CPATTN_DAEMON_SERVICE_EVENTS_H

#include "daemon/core/core.h"
#include "daemon/net/peer.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

struct events;

enum status events_create(struct events **events, struct error *error) MUST_CHECK;
void events_destroy(struct events *e); // takes NULL

// Of cases: a request has become a task, its ranks get it, it is answered.
void events_admitted(struct events *e, const struct task *task);
void events_started(struct events *e, const struct task *task, const struct action *run);
void events_finished(struct events *e, const struct task *task, const struct action *answer,
                     const struct wire_reply *reply);

// Compares the daemon, its pools and its devices with those of the call before, and tells what is
// different.
void events_compare(struct events *e, const struct wire_status *status);

// The number of the last event; 0: there was none.
uint64_t events_last(const struct events *e);

// Who reads, and what of it.
struct events_reader {
    struct peer peer;
    bool rules; // sees of others' cases what their users see
    struct wire_watch watch;
};

// Where this reader begins: the number of the last event that is behind them.
uint64_t events_begin(const struct events *e, const struct events_reader *reader);

// Fills in what is there for a reader behind the event `after`, up to EVENTS_REPLY_MAX; `list` has
// room for these.
void events_read(const struct events *e, const struct events_reader *reader, uint64_t after,
                 struct wire_event *list, struct wire_events *events);

#endif

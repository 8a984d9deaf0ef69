// SPDX-License-Identifier: Apache-2.0
// Events of cases, pools and devices: a ring of the last EVENTS_KEPT events, numbered from 1. A new
// event replaces the oldest. A slow reader loses events and is told how many.
#ifndef CPATTN_DAEMON_SERVICE_EVENTS_H
#define CPATTN_DAEMON_SERVICE_EVENTS_H

#include "daemon/core/core.h"
#include "daemon/net/peer.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

struct events;

enum status events_create(struct events **events, struct error *error) MUST_CHECK;
void events_destroy(struct events *e); // accepts NULL

// Add an event of a case: it was admitted, ranks get it to run, it was answered.
void events_admitted(struct events *e, const struct task *task);
void events_started(struct events *e, const struct task *task, const struct action *run);
void events_finished(struct events *e, const struct task *task, const struct action *answer,
                     const struct wire_reply *reply);

// Compares the daemon, its pools and its devices with their state at the previous call, and adds an
// event for each difference.
void events_compare(struct events *e, const struct wire_status *status);

// Number of the last event; 0: none yet.
uint64_t events_last(const struct events *e);

// A client that reads events, and the events that it asks for.
struct events_reader {
    struct peer peer;
    bool rules; // it is an administrator: sees cases of other users with all details
    struct wire_watch watch;
};

// Returns the start position of a reader: the number of the event before the first one it wants.
uint64_t events_begin(const struct events *e, const struct events_reader *reader);

// Fills in the events after number `after` that the reader asks for, up to EVENTS_REPLY_MAX, for
// which `list` has room. events->lost: how many after `after` were overwritten.
void events_read(const struct events *e, const struct events_reader *reader, uint64_t after,
                 struct wire_event *list, struct wire_events *events);

#endif

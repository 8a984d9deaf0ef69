// SPDX-License-Identifier: Apache-2.0
// One event of a daemon as a line for people.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_EVENT_LINE_H
#define CPATTN_CLIENT_SUBMIT_SHOW_EVENT_LINE_H

#include <stddef.h>

#include "client/cpattn_watch.h"
#include "client/submit/show/terminal.h"

#define EVENT_LINE_MAX 1536

// "14:03:27.136", in local time. Returns `text`.
#define EVENT_TIME_MAX 16
const char *event_time(const struct cpattn_event *event, char text[EVENT_TIME_MAX]);

// Describes the event in one line without its time: "pool       2 ranks, instance 0: idle".
// Returns `text`.
const char *event_line(const struct cpattn_event *event, char text[EVENT_LINE_MAX]);

// "0-3,6"; "-": none. Returns `text`.
#define DEVICES_TEXT_MAX 256
const char *devices_text(uint64_t devices, char text[DEVICES_TEXT_MAX]);

// "node0,node1": the hosts of a pool; "" if the daemon has only its own host. Returns `text`.
#define HOSTS_TEXT_MAX 256
const char *hosts_text(const struct cpattn_daemon_status *status, uint64_t hosts,
                       char text[HOSTS_TEXT_MAX]);

// "pass", "fail", "unverified", or the code of a case that was not completed.
const char *event_outcome(const struct cpattn_event *event);

enum terminal_paint event_paint(const struct cpattn_event *event);

#endif

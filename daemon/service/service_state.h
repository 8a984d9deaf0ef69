// SPDX-License-Identifier: Apache-2.0
// State of the service, shared by its files.
#ifndef CPATTN_DAEMON_SERVICE_SERVICE_STATE_H
#define CPATTN_DAEMON_SERVICE_SERVICE_STATE_H

#include "daemon/core/core.h"
#include "daemon/net/deposits.h"
#include "daemon/pool/crew.h"
#include "daemon/service/alarm.h"
#include "daemon/service/answer_cache.h"
#include "daemon/service/events.h"
#include "daemon/service/reasons.h"
#include "daemon/service/reload_orders.h"
#include "daemon/service/service_config.h"
#include "daemon/service/tally.h"
#include "daemon/service/tasks.h"
#include "daemon/service/watchers.h"

struct service {
    struct service_config config;
    struct core *core;
    struct crews *crews;
    void (*exited)(void *context);
    enum status (*reload)(void *context, bool *follows, struct error *error);
    struct reload_orders reloads;
    void *context;
    struct alarm deadline;
    struct tally tally;
    bool stopping;             // service_stop() was called
    struct tasks *tasks;       // cases, by slot of the core
    struct deposits *deposits; // clients' tensors
    struct answer_cache answers;
    struct reasons reasons;
    bool acting; // actions_do() is in progress
    struct events *events;
    struct watchers *watchers;
    bool moved; // pools or devices may have changed since `events` compared them
};

#endif

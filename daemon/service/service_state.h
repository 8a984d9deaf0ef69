// SPDX-License-Identifier: Apache-2.0
// State of the service, for the files that it consists of.
#ifndef CPATTN_DAEMON_SERVICE_SERVICE_STATE_H
#define CPATTN_DAEMON_SERVICE_SERVICE_STATE_H

#include "daemon/core/core.h"
#include "daemon/net/deposits.h"
#include "daemon/pool/crew.h"
#include "daemon/service/alarm.h"
#include "daemon/service/answer_cache.h"
#include "daemon/service/events.h"
#include "daemon/service/reasons.h"
#include "daemon/service/service_config.h"
#include "daemon/service/tally.h"
#include "daemon/service/tasks.h"
#include "daemon/service/watchers.h"

struct service {
    struct service_config config;
    struct core *core;
    struct crews *crews;
    void (*exited)(void *context), (*reload)(void *context);
    void *context;
    struct alarm deadline;
    struct tally tally;
    bool stopping;
    struct tasks *tasks;       // what the core's slots stand for
    struct deposits *deposits; // clients' tensors
    struct answer_cache answers;
    struct reasons reasons;
    bool acting;
    struct events *events;
    struct watchers *watchers;
    bool moved; // pools or devices are perhaps not as `events` has seen them last
};

// After each event of the core: carries out its actions. One that is reported while an action is
// carried out leaves its actions to the round that is under way.
void service_act(struct service *s);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/status.h"

#include "common/clock.h"
#include "daemon/core/core.h"
#include "daemon/service/pool_text.h"

void status_fill(struct service *s, struct wire_status *status, struct wire_pool *pools)
{
    core_status(s->core, status, pools);
    tally_fill(&s->tally, clock_now_ns(), status);
    loop_lag_tell(s->config.lag, clock_now_ns(), &status->loop_lag_max_ns,
                  &status->loop_lag_p99_ns);
    status->devices_out =
        pool_text_devices(&s->config, 1 << HOST_HERE, core_devices_out(s->core, HOST_HERE));
    status->devices_stuck = pool_text_devices(&s->config, 1 << HOST_HERE, status->devices_stuck);
    if (status->host_count > 0) {
        status->hosts[HOST_HERE].devices_out = status->devices_out;
        status->hosts[HOST_HERE].devices_stuck = status->devices_stuck;
    }
    pool_text_status(s->crews, &s->config, s->reasons.start_errors, pools, status->pool_count);
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/daemon_scene.h"

#include "tests/support/runner.h"

struct daemon d;

void daemon_setup(void)
{
    daemon_init(&d);
}

void daemon_teardown(void)
{
    daemon_fini(&d);
}

void daemon_setup_started(void)
{
    daemon_init(&d);
    daemon_start(&d, NULL);
}

void daemon_teardown_stopped(void)
{
    ck_assert_int_eq(daemon_stop(&d), 0);
    daemon_fini(&d);
}

const char *daemon_odd_rank(void)
{
    static char path[4096];
    return runner_build(path, sizeof(path), "tests/daemon/odd_rank");
}

// SPDX-License-Identifier: Apache-2.0
// The devices and pools in the metrics. Those of all hosts are counted, each once.
#include "daemon/service/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

static struct wire_description description;
static struct wire_status status;
static struct wire_pool pools[2];

static void begin(void)
{
    description = (struct wire_description){.devices = 4};
    memset(pools, 0, sizeof(pools));
    status = (struct wire_status){.pools = pools};
}

static void expect_devices(int enabled, int drained, int stuck, int lost)
{
    static const struct tally tally;
    const char *const names[] = {"enabled", "drained", "stuck", "lost"};
    const int counts[] = {enabled, drained, stuck, lost};
    char *text = metrics_text(&description, &status, &tally), line[64];
    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof(line), "\ncpattnd_devices{state=\"%s\"} %d\n", names[i], counts[i]);
        ck_assert_msg(strstr(text, line), "not there: %s", line);
    }
    free(text);
}

// The status of one host has no list of hosts.
START_TEST(devices_of_one_host)
{
    expect_devices(4, 0, 0, 0);
    status.devices_out = 0x6;
    expect_devices(2, 2, 0, 0);
    status.devices_stuck = 0x3;
    expect_devices(1, 1, 2, 0); // a device that is drained and stuck is stuck
}
END_TEST

START_TEST(devices_of_several_hosts)
{
    status.host_count = 3;
    status.hosts[0] = (struct wire_host){.devices = 4};
    status.hosts[1] = (struct wire_host){.devices = 2, .devices_out = 0x2};
    status.hosts[2] = (struct wire_host){.devices = 8, .devices_out = 0x1};
    expect_devices(12, 2, 0, 0);
    status.hosts[0].devices_stuck = 0x1; // each host has its own
    status.hosts[1].devices_stuck = 0x2;
    expect_devices(11, 1, 2, 0);
    status.hosts[2].lost = true; // its drained device counts as lost
    expect_devices(4, 0, 2, 8);
}
END_TEST

static void expect_line(const char *line, int count)
{
    static const struct tally tally;
    char *text = metrics_text(&description, &status, &tally);
    int found = 0;
    ck_assert_ptr_nonnull(text);
    for (const char *at = text; (at = strstr(at, line)); at++)
        found++;
    free(text);
    ck_assert_msg(found == count, "%d times: %s", found, line);
}

#define POOL_2 "{implementation=\"cpattn\",world_size=\"2\",nodes="

// A pool and its spare may change places. The counters are sums, so they do not fall then.
START_TEST(spares_count_for_their_pool)
{
    status.pool_count = 2;
    pools[0] = (struct wire_pool){
        .world_size = 2, .nodes = 1, .hosts = 1, .jobs = 5, .deaths = 1, .spare = true};
    pools[1] = (struct wire_pool){.world_size = 2, .nodes = 1, .hosts = 1, .jobs = 2};
    expect_line("\ncpattnd_pool_jobs_total" POOL_2 "\"1\",instance=\"0\"} 7\n", 1);
    expect_line("\ncpattnd_pool_deaths_total" POOL_2 "\"1\",instance=\"0\"} 1\n", 1);
    expect_line("\ncpattnd_pool_jobs_total{", 1);
    expect_line("\ncpattnd_pool_state" POOL_2 "\"1\",instance=\"0\",spare=\"true\",state=\"idle\"}",
                1);
}
END_TEST

// The same world size and instance, on one host and on two.
START_TEST(pools_of_other_placement_are_others)
{
    status.pool_count = 2;
    pools[0] = (struct wire_pool){.world_size = 2, .nodes = 1, .hosts = 1, .jobs = 5};
    pools[1] = (struct wire_pool){.world_size = 2, .nodes = 2, .hosts = 3, .jobs = 2};
    expect_line("\ncpattnd_pool_jobs_total" POOL_2 "\"1\",instance=\"0\"} 5\n", 1);
    expect_line("\ncpattnd_pool_jobs_total" POOL_2 "\"2\",instance=\"0\"} 2\n", 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, begin, NULL);
    tcase_add_test(tcase, devices_of_one_host);
    tcase_add_test(tcase, devices_of_several_hosts);
    tcase_add_test(tcase, spares_count_for_their_pool);
    tcase_add_test(tcase, pools_of_other_placement_are_others);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}

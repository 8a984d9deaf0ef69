// SPDX-License-Identifier: Apache-2.0
// Names of devices and hosts in texts about pools. The GPUs of this host have other numbers than
// places; devices of other hosts are counted from 0.
#include "daemon/service/pool_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/far_crews.h"
#include "tests/support/runner.h"

static const char *const names[] = {"a", "b"};
static struct service_config config;
static struct far_crews f;

// This host has the GPUs 4 and 6, host b has four.
static void setup(void)
{
    far_crews_init(&f, names);
    memset(&config, 0, sizeof(config));
    config.host_count = 2;
    config.hosts[0].device_count = 2;
    config.hosts[1].device_count = 4;
    for (int host = 0; host < 2; host++)
        strcpy(config.hosts[host].name, names[host]);
    config.description.devices = config.description.gpu_count = 2;
    config.description.gpus[0].index = 4;
    config.description.gpus[1].index = 6;
}

static void teardown(void)
{
    far_crews_fini(&f);
}

// The text about a rank of the pool on host b (1), or of a pool on this host (0) that is not there.
static const char *stuck_text(int host, int place)
{
    static struct error error;
    const struct core_stuck stuck = {0, f.generation + (host == 0), 1, host, place};
    pool_text_stuck(f.crews, &config, 2, &stuck, &error);
    ck_assert_int_eq(error.status, STATUS_UNAVAILABLE);
    return error.text;
}

START_TEST(a_stuck_rank_is_on_a_device_of_its_host)
{
    far_crews_start(&f, (const int[]){1, 1}, 2);
    ck_assert_str_eq(stuck_text(1, 1),
                     "no pool of 2 ranks is available: rank 1 of a pool was killed and does not "
                     "end (a process on host b), and device 1 of host b is out of use until it "
                     "does");
    ck_assert_ptr_nonnull(strstr(stuck_text(1, 3), "device 3 of host b is out of use"));
    ck_assert_ptr_nonnull(strstr(stuck_text(0, 1), "and GPU 6 is out of use"));
    config.description.gpu_count = 0;
    ck_assert_ptr_nonnull(strstr(stuck_text(0, 1), "and device 1 is out of use"));
}
END_TEST

// Devices and hosts in the line about a pool that is stuck.
static void logged_is(uint64_t hosts, uint64_t places, const char *part)
{
    char line[1024];
    const struct action stuck = {.kind = ACTION_STUCK,
                                 .generation = f.generation,
                                 .world_size = 2,
                                 .rank = 1,
                                 .hosts = hosts,
                                 .devices = places};
    FILE *log = tmpfile();
    ck_assert_ptr_nonnull(log);
    int before = dup(STDERR_FILENO);
    ck_assert_int_eq(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    pool_text_log_stuck(f.crews, &config, &stuck);
    ck_assert_int_eq(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    rewind(log);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), log));
    fclose(log);
    ck_assert_msg(strstr(line, part), "'%s' is not in %s", part, line);
}

START_TEST(the_log_has_devices_of_the_hosts)
{
    far_crews_start(&f, (const int[]){1, 1}, 2);
    logged_is(2, 0xa, " devices=0xa hosts=0x2 rank=1 process=\"a process on host b\"");
    logged_is(1, 0x3, " devices=0x50 hosts=0x1 ");
    logged_is(3, 0x2, " devices=0x40 hosts=0x3 ");
}
END_TEST

START_TEST(the_status_has_devices_of_the_hosts)
{
    static struct error start_errors[2][WORLD_SIZE_MAX + 1];
    struct wire_pool pools[] = {{.crew = -1, .hosts = 1, .devices = 0x3},
                                {.crew = -1, .hosts = 2, .devices = 0xc},
                                {.crew = -1, .hosts = 3, .devices = 0x2}};
    pool_text_status(f.crews, &config, start_errors, pools, 3);
    ck_assert_uint_eq(pools[0].devices, 0x50);
    ck_assert_uint_eq(pools[1].devices, 0xc);
    ck_assert_uint_eq(pools[2].devices, 0x40); // by the numbers of the first host
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool_text");
    TCase *c = tcase_create("devices");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_stuck_rank_is_on_a_device_of_its_host);
    tcase_add_test(c, the_log_has_devices_of_the_hosts);
    tcase_add_test(c, the_status_has_devices_of_the_hosts);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

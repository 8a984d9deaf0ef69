// SPDX-License-Identifier: Apache-2.0
// Tests that a rank sees only the devices of its pool, by CUDA_VISIBLE_DEVICES.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rank/cuda/device.h"
#include "tests/support/runner.h"

START_TEST(devices_are_named_among_those_that_are_visible)
{
    struct error error;
    char names[64];
    bool used[DEVICES_MAX] = {[1] = true, [3] = true};
    ck_assert_int_eq(device_names(NULL, used, names, sizeof(names), &error), STATUS_OK);
    ck_assert_str_eq(names, "1,3");
    ck_assert_int_eq(device_names("7,6,GPU-abc,4", used, names, sizeof(names), &error), STATUS_OK);
    ck_assert_str_eq(names, "6,4");
    ck_assert_int_eq(device_names("7,6,5", used, names, sizeof(names), &error), STATUS_UNAVAILABLE);
    ck_assert_str_eq(error.text, "CUDA_VISIBLE_DEVICES is \"7,6,5\" and has no device 3");
    ck_assert_int_eq(device_names("", used, names, sizeof(names), &error), STATUS_UNAVAILABLE);
    ck_assert_int_eq(device_names(NULL, used, names, 3, &error), STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_single_rank_sees_only_its_device)
{
    struct error error;
    struct transport *control;
    struct device_place place;
    ck_assert_int_eq(transport_socket_create(0, 1, (int[]){-1}, &control, &error), STATUS_OK);
    setenv("CUDA_VISIBLE_DEVICES", "7,6,5", 1);
    ck_assert_int_eq(device_choose(control, 2, &place, &error), STATUS_OK);
    ck_assert_int_eq(place.index, 0);
    ck_assert_int_eq(place.ranks, 1);
    ck_assert_str_eq(getenv("CUDA_VISIBLE_DEVICES"), "5");
    control->ops->destroy(control);
}
END_TEST

// Calls device_choose(). OK if exactly `devices` are visible then and the rank's place is the
// expected one; INTERNAL if not.
static enum status sees(struct transport *control, int device, const char *devices,
                        struct device_place expected)
{
    struct error error;
    struct device_place place;
    if (device_choose(control, device, &place, &error) != STATUS_OK)
        return error.status;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool right = visible && strcmp(visible, devices) == 0 && place.index == expected.index &&
                 place.ranks == expected.ranks && place.before == expected.before;
    return right ? STATUS_OK : STATUS_INTERNAL;
}

// _i = 0: rank 0 is on device 5, rank 1 on device 2. _i = 1: both ranks are on device 5.
START_TEST(ranks_see_the_devices_of_their_pool)
{
    struct error error;
    struct transport *control;
    int pair[2], status;
    unsetenv("CUDA_VISIBLE_DEVICES");
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t peer = fork();
    ck_assert_int_ge(peer, 0);
    int rank = peer == 0;
    int fds[2] = {rank ? pair[1] : -1, rank ? -1 : pair[0]};
    ck_assert_int_eq(transport_socket_create(rank, 2, fds, &control, &error), STATUS_OK);
    enum status result =
        _i ? sees(control, 5, "5", (struct device_place){.ranks = 2, .before = rank})
           : sees(control, rank ? 2 : 5, "2,5", (struct device_place){.index = !rank, .ranks = 1});
    if (rank)
        _exit(result);
    ck_assert_int_eq(result, STATUS_OK);
    ck_assert_int_eq(waitpid(peer, &status, 0), peer);
    ck_assert_int_eq(status, 0);
    control->ops->destroy(control);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("device");
    TCase *tcase = tcase_create("devices");
    tcase_add_test(tcase, devices_are_named_among_those_that_are_visible);
    tcase_add_test(tcase, a_single_rank_sees_only_its_device);
    tcase_add_loop_test(tcase, ranks_see_the_devices_of_their_pool, 0, 2);
    suite_add_tcase(s, tcase);
    return s;
}

int main(void)
{
    return runner_run(suite());
}

// SPDX-License-Identifier: Apache-2.0
// The daemon with simulated GPUs: a script replaces the rank program for GPUs. It lists devices. It
// records the device of each rank and then runs a rank of the CPU backend.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/support/port.h"
#include "tests/support/runner.h"

static char program[128], noted[128];

static void setup(void)
{
    daemon_init(&d);
    snprintf(program, sizeof(program), "%s/rank", d.folder);
    snprintf(noted, sizeof(noted), "%s/noted", d.folder);
}

static void teardown(void)
{
    unlink(program);
    unlink(noted);
    daemon_fini(&d);
}

// `probe`: what the script does when it is asked for devices.
static void program_write(const char *probe)
{
    char rank[4096];
    FILE *file = fopen(program, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(runner_build(rank, sizeof(rank), "cpattn-rank"));
    fprintf(file,
            "#!/bin/sh\n"
            "if [ \"$1\" = --probe ]; then %s; fi\n"
            "echo \"rank $1 of $2 on $5 NCCL_DEBUG=$NCCL_DEBUG OTHER=$OTHER\" >>'%s'\n"
            "echo \"visible ${CUDA_VISIBLE_DEVICES-all}\" >>'%s'\n"
            "exec '%s' \"$1\" \"$2\" \"$3\" \"$4\"\n",
            probe, noted, noted, rank);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(program, 0700), 0);
}

#define FOUR "for i in 0 1 2 5; do echo \"device $i sm_90 143771 MiB NVIDIA H200\"; done; exit 0"

// Without spares, because their starts would also be recorded.
static void start_sharing(const char *ranks, const char *probe, const char *backend,
                          const char *devices)
{
    const char *const arguments[] = {"--spares",
                                     "off",
                                     "--ranks-per-gpu",
                                     ranks,
                                     "--backend",
                                     backend,
                                     "--cuda-rank-program",
                                     program,
                                     devices ? "--devices" : NULL,
                                     devices,
                                     NULL};
    program_write(probe);
    daemon_start(&d, arguments);
}

static void start(const char *probe, const char *backend, const char *devices)
{
    start_sharing("1", probe, backend, devices);
}

static int noted_times(const char *text)
{
    char line[256];
    int times = 0;
    FILE *file = fopen(noted, "re");
    while (file && fgets(line, sizeof(line), file))
        times += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return times;
}

static void pass(int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_pass(&reply);
}

START_TEST(devices_are_described_and_assigned)
{
    start(FOUR, "cuda", NULL);
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_str_eq(reply.description.backend, "cuda");
    ck_assert_int_eq(reply.description.devices, 4);
    ck_assert_int_eq(reply.description.gpu_count, 4);
    ck_assert_int_eq(reply.description.gpus[3].index, 5);
    ck_assert_str_eq(reply.description.gpus[3].arch, "sm_90");
    ck_assert_str_eq(reply.description.gpus[3].name, "NVIDIA H200");
    ck_assert_int_eq(reply.description.memory_bytes_max, 4 * (INT64_C(143771) << 20));
    wire_reply_fini(&reply);

    pass(4);
    for (int rank = 0; rank < 4; rank++) {
        char text[64];
        snprintf(text, sizeof(text), "rank %d of 4 on %d ", rank, rank < 3 ? rank : 5);
        ck_assert_int_eq(noted_times(text), 1);
    }
    request = daemon_request(METHOD_STATUS);
    reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.pools.pool_count, 1);
    ck_assert_uint_eq(reply.pools.pools[0].devices, 0x27);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static void cancel(const struct wire_request *victim)
{
    struct wire_request request = daemon_request(METHOD_CANCEL);
    request.cancel = victim->id;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
}

// Two cases of two ranks run side by side on four devices. A case of four ranks waits for both.
START_TEST(pools_share_devices_without_overlap)
{
    start(FOUR, "auto", NULL);
    struct wire_request first = daemon_request_long(2), second = daemon_request_long(2),
                        wide = daemon_request(METHOD_RUN);
    wide.run.world_size = 4;
    struct call calls[3] = {daemon_call_begin(&d, &first), daemon_call_begin(&d, &second)};
    daemon_await_running(&d, 2);
    calls[2] = daemon_call_begin(&d, &wide);
    daemon_await_queued(&d, 1);
    ck_assert_int_eq(noted_times("rank 0 of 2 on 0 "), 1);
    ck_assert_int_eq(noted_times("rank 1 of 2 on 1 "), 1);
    ck_assert_int_eq(noted_times("rank 0 of 2 on 2 "), 1);
    ck_assert_int_eq(noted_times("rank 1 of 2 on 5 "), 1);
    cancel(&first);
    struct wire_reply reply = daemon_call_end(&calls[0]);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    ck_assert_int_eq(noted_times("of 4 on "), 0); // half of its devices are free
    cancel(&second);
    reply = daemon_call_end(&calls[1]);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&calls[2]);
    expect_pass(&reply);
    ck_assert_int_eq(noted_times("of 4 on "), 4);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(only_named_devices_are_used)
{
    start(FOUR, "cuda", "1,5");
    pass(2);
    pass(1);
    ck_assert_int_eq(noted_times("rank 0 of 2 on 1 "), 1);
    ck_assert_int_eq(noted_times("rank 1 of 2 on 5 "), 1);
    ck_assert_int_eq(noted_times("rank 0 of 1 on 1 "), 1);
    ck_assert_int_eq(noted_times(" on "), 3);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Of several hosts too, the devices of this host that are out of use have the numbers of GPUs.
START_TEST(drained_gpus_have_their_numbers)
{
    char secret[128], url[64];
    snprintf(secret, sizeof(secret), "%s/secret", d.folder);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port_free());
    int fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(dprintf(fd, "a secret of agents\n"), 0);
    close(fd);
    program_write(FOUR);
    daemon_start(&d, (const char *const[]){"--backend", "cuda", "--cuda-rank-program", program,
                                           "--devices", "1,5", "--hosts", "b=2", "--agents-listen",
                                           url, "--agents-token-file", secret, NULL});
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){.kind = ORDER_DRAIN_DEVICE, .device = 5};
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    request = daemon_request(METHOD_STATUS);
    reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_uint_eq(reply.pools.devices_out, 1 << 5);
    ck_assert_int_eq(reply.pools.host_count, 2);
    ck_assert_uint_eq(reply.pools.hosts[0].devices_out, 1 << 5);
    wire_reply_fini(&reply);
    unlink(secret);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(more_ranks_than_devices_are_refused)
{
    start(FOUR, "cuda", "2");
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = 3;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_FAILED_PRECONDITION);
    expect_text(reply.message, "3 ranks need as many devices, and the daemon has 2");
    wire_reply_fini(&reply);
    ck_assert_int_eq(noted_times(" on "), 0);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(ranks_share_gpus_if_allowed)
{
    start_sharing("2", FOUR, "cuda", "1,5");
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.description.gpu_count, 2);
    ck_assert_int_eq(reply.description.world_size_max, 4);
    wire_reply_fini(&reply);
    pass(3);
    ck_assert_int_eq(noted_times("rank 0 of 3 on 1 "), 1);
    ck_assert_int_eq(noted_times("rank 1 of 3 on 5 "), 1);
    ck_assert_int_eq(noted_times("rank 2 of 3 on 1 "), 1);
    pass(4);
    ck_assert_int_eq(noted_times("of 4 on 5 "), 2);
    pass(2); // each rank has its own device
    ck_assert_int_eq(noted_times("of 2 on 5 "), 1);
    request = daemon_request(METHOD_RUN);
    request.run.world_size = 5;
    reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_FAILED_PRECONDITION);
    expect_text(reply.message, "with at most 2 ranks on each");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(ranks_get_the_variables_of_nccl)
{
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("OTHER", "secret", 1);
    start(FOUR, "cuda", NULL);
    pass(1);
    ck_assert_int_eq(noted_times("NCCL_DEBUG=INFO OTHER=\n"), 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A probe that lists devices as CUDA does: it numbers those in CUDA_VISIBLE_DEVICES from 0. Of MIG
// instances it lists only the first.
#define VISIBLE                                                                                    \
    "i=0; for name in $(echo \"$CUDA_VISIBLE_DEVICES\" | tr , ' '); do "                           \
    "case $name$i in MIG-*[1-9]) break; esac; "                                                    \
    "echo \"device $i sm_90 143771 MiB NVIDIA H200\"; i=$((i + 1)); done; exit 0"

// A batch system or an administrator limits the daemon to some devices.
START_TEST(devices_are_those_that_cuda_may_see)
{
    static const struct {
        const char *visible;
        int count;
    } allocations[] = {{"2,5", 2}, {"GPU-8932f937,GPU-0b5c1d7e,7", 3}, {"MIG-c6d4f1ef,MIG-12", 1}};
    const char *visible = allocations[_i].visible;
    int count = allocations[_i].count;
    char line[96], sentence[96];
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    start(VISIBLE, "cuda", NULL);
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.description.gpu_count, count);
    wire_reply_fini(&reply);
    pass(count);
    snprintf(line, sizeof(line), "rank %d of %d on %d ", count - 1, count, count - 1);
    ck_assert_int_eq(noted_times(line), 1);
    snprintf(line, sizeof(line), "visible %s\n", visible);
    ck_assert_int_eq(noted_times(line), count);
    request = daemon_request(METHOD_RUN);
    request.run.world_size = count + 1;
    reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_FAILED_PRECONDITION);
    snprintf(sentence, sizeof(sentence), "%d ranks need as many devices, and the daemon has %d",
             count + 1, count);
    if (count > 1)
        expect_text(reply.message, sentence);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
}
END_TEST

START_TEST(without_devices_the_cpu_serves)
{
    start("echo 'the driver is not loaded' >&2; exit 69", "auto", NULL);
    ck_assert(daemon_logged(&d, "backend name=cpu"));
    ck_assert(daemon_logged(&d, "the driver is not loaded"));
    pass(2);
    ck_assert_int_eq(noted_times(" on "), 0);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static void assert_no_start(const char *probe, const char *backend, const char *devices,
                            const char *sentence)
{
    char text[4096], path[128];
    snprintf(path, sizeof(path), "%s/unused", d.folder);
    const char *const arguments[] = {"--socket",
                                     path,
                                     "--backend",
                                     backend,
                                     "--cuda-rank-program",
                                     program,
                                     devices ? "--devices" : NULL,
                                     devices,
                                     NULL};
    if (probe)
        program_write(probe);
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, sentence);
}

START_TEST(a_missing_device_or_backend_stops_the_start)
{
    assert_no_start(NULL, "cuda", NULL, "has no CUDA backend");
    assert_no_start(
        "echo 'the driver is not loaded' >&2; exit 69", "cuda", NULL,
        "--backend cuda is not available: the driver is not loaded; --backend cpu runs");
    assert_no_start(FOUR, "cuda", "5", "asks for 5 GPUs, and this machine has 4");
    assert_no_start(FOUR, "auto", "0,3", "names the GPU 3, which is not among the 4");
}
END_TEST

START_TEST(a_list_of_gpus_is_refused_on_the_cpu)
{
    assert_no_start("echo 'the driver is not loaded' >&2; exit 69", "auto", "0,2-3",
                    "--devices 0,2-3 is a list of GPUs, and on the CPU a number of cores from 1 to "
                    "64 is expected; the ranks run on the CPU because no GPU is usable: the driver "
                    "is not loaded");
    assert_no_start(FOUR, "cpu", "2-2", "--devices 2-2 is a list of GPUs");
    assert_no_start(FOUR, "cpu", "0-3,5,62-63",
                    "--devices 0-3,5,62-63 is a list of GPUs, and on the CPU a number of cores "
                    "from 1 to 64 is expected; the ranks run on the CPU because of --backend cpu");
}
END_TEST

START_TEST(lists_of_devices_are_read_with_care)
{
    static const char *const lists[] = {"0",     "65",  "64-64", "0,",     ",0",  "0,0",
                                        "0-2,1", "3-1", "0--1",  "a",      "0,a", "-1",
                                        "1-",    "",    "0 ,1",  "1,99999"};
    char text[4096];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const char *const arguments[] = {"--devices", lists[i], NULL};
        ck_assert_msg(daemon_run(arguments, text, sizeof(text)) == 64, "%s", lists[i]);
        expect_text(text, "expected a count from 1 to 64, or GPUs such as 0,2-3");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_gpus");
    TCase *c = tcase_create("gpus");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, devices_are_described_and_assigned);
    tcase_add_test(c, pools_share_devices_without_overlap);
    tcase_add_test(c, only_named_devices_are_used);
    tcase_add_test(c, drained_gpus_have_their_numbers);
    tcase_add_test(c, more_ranks_than_devices_are_refused);
    tcase_add_test(c, ranks_share_gpus_if_allowed);
    tcase_add_test(c, ranks_get_the_variables_of_nccl);
    tcase_add_loop_test(c, devices_are_those_that_cuda_may_see, 0, 3);
    tcase_add_test(c, without_devices_the_cpu_serves);
    tcase_add_test(c, a_missing_device_or_backend_stops_the_start);
    tcase_add_test(c, a_list_of_gpus_is_refused_on_the_cpu);
    tcase_add_test(c, lists_of_devices_are_read_with_care);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
// The daemon reads the list of GPUs: scripts replace the program that prints it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/machine/gpus.h"
#include "tests/support/runner.h"

#define LIMIT_MS 60000

static const struct confinement anybody = {.uses_gpus = true};
static char folder[64], program[96];
static struct wire_device devices[DEVICES_MAX];
static int count;
static struct error error;

static void setup(void)
{
    strcpy(folder, "/tmp/cpattnd-gpus-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(program, sizeof(program), "%s/program", folder);
}

static void teardown(void)
{
    unlink(program);
    rmdir(folder);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); // no child is left
}

static enum status probe(const char *script, int limit_ms)
{
    FILE *file = fopen(program, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(program, 0700), 0);
    return gpus_probe(program, &anybody, limit_ms, devices, &count, &error);
}

static void assert_refused(const char *script, const char *sentence)
{
    ck_assert_int_eq(probe(script, LIMIT_MS), STATUS_UNAVAILABLE);
    ck_assert_msg(strstr(error.text, sentence), "'%s' is not in \"%s\"", sentence, error.text);
}

START_TEST(the_list_of_devices_is_read)
{
    ck_assert_int_eq(probe("[ \"$1\" = --probe ] || exit 1\n"
                           "echo 'NCCL says something'\n"
                           "echo 'device 0 sm_90 143771 MiB NVIDIA H200'\n"
                           "echo 'device 3 sm_80 40537 MiB NVIDIA A100-SXM4-40GB'",
                           LIMIT_MS),
                     STATUS_OK);
    ck_assert_int_eq(count, 2);
    ck_assert_int_eq(devices[0].index, 0);
    ck_assert_str_eq(devices[0].arch, "sm_90");
    ck_assert_int_eq(devices[0].memory_bytes, INT64_C(143771) << 20);
    ck_assert_str_eq(devices[0].name, "NVIDIA H200");
    ck_assert_int_eq(devices[1].index, 3);
    ck_assert_str_eq(devices[1].name, "NVIDIA A100-SXM4-40GB");
}
END_TEST

START_TEST(the_reason_of_the_probe_is_reported)
{
    assert_refused("echo 'the driver is not loaded' >&2; echo more >&2; exit 69",
                   "the driver is not loaded");
    ck_assert_ptr_null(strstr(error.text, "more"));
    assert_refused("exit 69", "there is no usable GPU");
    assert_refused("exit 0", "there is no usable GPU");
    // A list of a program that fails does not count.
    assert_refused("echo 'device 0 sm_90 1 MiB A'; echo broken >&2; exit 1", "broken");
    assert_refused("kill -SEGV $$", "killed by signal 11");
    unlink(program);
    ck_assert_int_eq(gpus_probe(program, &anybody, LIMIT_MS, devices, &count, &error),
                     STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "No such file"));
}
END_TEST

START_TEST(invalid_lists_of_devices_are_refused)
{
    static const char *const lines[] = {"device 0 sm_90 143771 MiB",
                                        "device 0 sm_90 143771 GiB A",
                                        "device 64 sm_90 1 MiB A",
                                        "device -1 sm_90 1 MiB A",
                                        "device x sm_90 1 MiB A",
                                        "device 0 sm_90 0 MiB A",
                                        "device 0 sm_90 -1 MiB A",
                                        "device 0 sm_90",
                                        "device ",
                                        "device 0 sm_9012345678901 1 MiB A",
                                        "device 0 sm_90 9223372036854775807 MiB A"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "%s", lines[i]);
        ck_assert_msg(gpus_parse(text, devices, &count, &error) == STATUS_DATA_LOSS, "%s",
                      lines[i]);
    }
    assert_refused("echo 'device 1 sm_90 1 MiB A'; echo 'device 1 sm_90 1 MiB A'", "named twice");
    assert_refused("echo 'device 0 sm_90 lots'", "is no device such as");
    assert_refused(
        "i=0; while [ $i -lt 70 ]; do echo \"device $i sm_90 1 MiB A\"; i=$((i+1)); done",
        "is no device such as");
}
END_TEST

// The daemon waits for the program at most as long as the limit. Much output does not block it.
START_TEST(a_hanging_probe_is_killed)
{
    ck_assert_int_eq(probe("echo 'device 0 sm_90 1 MiB A'; exec sleep 1000", 300),
                     STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "did not end in time"));
    ck_assert_int_eq(probe("yes 'not a device' | head -c 1000000; "
                           "yes 'not a device' | head -c 1000000 >&2; exit 69",
                           LIMIT_MS),
                     STATUS_UNAVAILABLE);
    ck_assert_str_eq(error.text, "not a device");
    ck_assert_int_eq(probe("echo 'device 0 sm_90 1 MiB A'; exec sleep 1000 >&- 2>&-", LIMIT_MS),
                     STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "killed by signal 9"));
}
END_TEST

START_TEST(names_are_made_printable)
{
    char text[] = "device 0 sm_90 1 MiB N\xc3\xa4me\t";
    ck_assert_int_eq(gpus_parse(text, devices, &count, &error), STATUS_OK);
    ck_assert_str_eq(devices[0].name, "N??me?");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpus");
    TCase *c = tcase_create("probe");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, the_list_of_devices_is_read);
    tcase_add_test(c, the_reason_of_the_probe_is_reported);
    tcase_add_test(c, invalid_lists_of_devices_are_refused);
    tcase_add_test(c, a_hanging_probe_is_killed);
    tcase_add_test(c, names_are_made_printable);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

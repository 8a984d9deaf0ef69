// SPDX-License-Identifier: Apache-2.0
// Memory limits of control groups.
#include "daemon/machine/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/support/runner.h"

static char root[64], groups[128];

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/cpattn-groups-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(groups, sizeof(groups), "%s/groups", root);
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

// Writes a file into a folder below the root. Creates the folder and its parents.
static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s", root, folder);
    for (char *at = path + 1; *at; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0700);
            *at = '/';
        }
    }
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void expect(const char *lines, int64_t limit)
{
    put("", "groups", lines);
    ck_assert_int_eq(host_cgroup_limit(groups, root), limit);
}

START_TEST(the_lowest_of_all_ancestors_counts)
{
    put("/machine", "memory.max", "max\n");
    put("/machine/system.slice", "memory.max", "3000\n");
    put("/machine/system.slice/cpattnd.service", "memory.max", "5000\n");
    expect("0::/machine/system.slice/cpattnd.service\n", 3000);
    put("/machine/system.slice/cpattnd.service", "memory.max", "2000\n");
    expect("0::/machine/system.slice/cpattnd.service\n", 2000);
    expect("0::/machine\n", -1);
}
END_TEST

START_TEST(the_root_of_a_container_counts)
{
    put("", "memory.max", "700\n");
    expect("0::/\n", 700);
    expect("0::/not/here\n", 700);
}
END_TEST

START_TEST(the_first_version_counts)
{
    put("/memory/a", "memory.limit_in_bytes", "4000\n");
    put("/memory/a/b", "memory.limit_in_bytes", "9223372036854771712\n");
    expect("12:cpu,cpuacct:/a/b\n4:hugetlb,memory:/a/b\n1:name=systemd:/a\n", 4000);
    expect("12:cpu:/a/b\n4:memorysomething:/a/b\n", -1);
    // Both versions of control groups on one machine.
    put("/c", "memory.max", "3000\n");
    expect("4:memory:/a/b\n0::/c\n", 3000);
}
END_TEST

START_TEST(lines_without_a_group_are_skipped)
{
    expect("", -1);
    expect("0\n::\n0:\n0::\n\n", -1);
    ck_assert_int_eq(host_cgroup_limit("/none", root), -1);
    ck_assert_int_gt(host_memory_available(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, end);
    tcase_add_test(all, the_lowest_of_all_ancestors_counts);
    tcase_add_test(all, the_root_of_a_container_counts);
    tcase_add_test(all, the_first_version_counts);
    tcase_add_test(all, lines_without_a_group_are_skipped);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
// Lines of the log as entries of the journal.
#include "common/journal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/support/runner.h"

static void expect(const char *line, const char *fields)
{
    static char out[JOURNAL_ROOM(16384)], wanted[16384 * 2];
    size_t size = journal_compose(5, "cpattnd", line, strlen(line), out);
    snprintf(wanted, sizeof(wanted), "PRIORITY=5\nSYSLOG_IDENTIFIER=cpattnd\nMESSAGE=%s\n%s", line,
             fields);
    ck_assert_uint_le(size, JOURNAL_ROOM(strlen(line)));
    out[size] = '\0';
    ck_assert_str_eq(out, wanted);
}

START_TEST(keys_become_fields)
{
    expect("pool_kill world=2 reason=\"rank 1 was \\\"lost\\\" in C:\\\\\" rank=-1",
           "CPATTN_EVENT=pool_kill\nCPATTN_WORLD=2\n"
           "CPATTN_REASON=rank 1 was \"lost\" in C:\\\nCPATTN_RANK=-1\n");
    expect("ready", "CPATTN_EVENT=ready\n");
    expect("a=", "CPATTN_A=\n");
    expect("stop reason=", "CPATTN_EVENT=stop\nCPATTN_REASON=\n");
}
END_TEST

// A line of any content yields well-formed fields, and MESSAGE is the whole line.
START_TEST(words_without_a_key_are_skipped)
{
    char longest[200];
    memset(longest, 'k', sizeof(longest));
    memcpy(longest + sizeof(longest) - 5, "=1 b", 5);
    expect("", "");
    expect("an event in words", "CPATTN_EVENT=an\n");
    expect("e key-with-dashes=1 b=2", "CPATTN_EVENT=e\nCPATTN_B=2\n");
    expect("e =x b=2", "CPATTN_EVENT=e\nCPATTN_B=2\n");
    expect("e a=\"not ended", "CPATTN_EVENT=e\nCPATTN_A=not ended\n");
    expect(longest, "");
}
END_TEST

START_TEST(entries_are_sent_or_refused_at_once)
{
    char path[64], got[64];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "/tmp/cpattn-journal-%d", (int)getpid());
    ck_assert_int_eq(journal_connect(path), -1);
    strcpy(name.sun_path, path);
    int reader = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(reader, (struct sockaddr *)&name, sizeof(name)), 0);
    int fd = journal_connect(path);
    ck_assert_int_ge(fd, 0);
    ck_assert(journal_send(fd, "MESSAGE=x\n", 10));
    ck_assert_int_eq(recv(reader, got, sizeof(got), 0), 10);
    ck_assert_mem_eq(got, "MESSAGE=x\n", 10);
    bool sent = true;
    for (int i = 0; i < 100000 && sent; i++)
        sent = journal_send(fd, "MESSAGE=x\n", 10);
    ck_assert(!sent); // nobody reads
    close(fd);
    close(reader);
    unlink(path);
}
END_TEST

// If stderr is the journal's stream, the log sends fields to the socket. If the socket has no
// reader, it writes the line to stderr.
START_TEST(the_log_sends_fields)
{
    char path[64], stream[64], got[256] = "", line[64] = "";
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat stat;
    int ends[2];
    snprintf(path, sizeof(path), "/tmp/cpattn-log-%d", (int)getpid());
    strcpy(name.sun_path, path);
    int reader = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(reader, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    fstat(STDERR_FILENO, &stat);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    setenv("CPATTN_JOURNAL_SOCKET", path, 1);
    log_init(LOG_LEVEL_INFO);
    log_warning("loop_lag ms=%d", 20);
    ck_assert_int_gt(recv(reader, got, sizeof(got) - 1, 0), 0);
    ck_assert_ptr_nonnull(strstr(got, "PRIORITY=4\n"));
    ck_assert_ptr_nonnull(
        strstr(got, "MESSAGE=loop_lag ms=20\nCPATTN_EVENT=loop_lag\nCPATTN_MS=20\n"));
    close(reader);
    log_warning("loop_lag ms=%d", 30);
    ck_assert_int_gt(read(ends[0], line, sizeof(line) - 1), 0);
    ck_assert_str_eq(line, "<4>loop_lag ms=30\n");
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *all = tcase_create("all");
    tcase_add_test(all, keys_become_fields);
    tcase_add_test(all, words_without_a_key_are_skipped);
    tcase_add_test(all, entries_are_sent_or_refused_at_once);
    tcase_add_test(all, the_log_sends_fields);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/bytering.h"
#include "common/list.h"
#include "common/log.h"
#include "common/report.h"
#include "common/size.h"
#include "common/standard_fds.h"
#include "common/status.h"
#include "tests/support/runner.h"

// ---- status -------------------------------------------------------------------------------------

START_TEST(status_names)
{
    ck_assert_str_eq(status_name(STATUS_DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
    ck_assert_str_eq(status_text(STATUS_DEADLINE_EXCEEDED), "deadline exceeded");
    ck_assert_str_eq(status_name((enum status)STATUS_COUNT), "UNKNOWN");
    ck_assert_str_eq(status_text((enum status) - 1), "unknown");
    for (int i = 0; i < STATUS_COUNT; i++)
        ck_assert_ptr_nonnull(status_name((enum status)i));
}
END_TEST

START_TEST(sizes_have_three_digits_and_a_unit)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {-5, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {5 << 20, "5.00 MiB"},
                 {40265318, "38.4 MiB"},
                 {INT64_C(1073000000), "1023 MiB"},
                 {INT64_C(1073741823), "1.00 GiB"},
                 {INT64_MAX, "8.00 EiB"}};
    char text[SIZE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        ck_assert_str_eq(size_format(sizes[i].bytes, text), sizes[i].text);
}
END_TEST

START_TEST(error_keeps_status_and_text)
{
    struct error error;
    ck_assert_int_eq(error_set(&error, STATUS_NOT_FOUND, "no %s", "model"), STATUS_NOT_FOUND);
    ck_assert_str_eq(error.text, "no model");
    ck_assert_int_eq(error_prefix(&error, "line %d", 7), STATUS_NOT_FOUND);
    ck_assert_str_eq(error.text, "line 7: no model");
    ck_assert_int_eq(error_set(NULL, STATUS_ABORTED, "unseen"), STATUS_ABORTED);
}
END_TEST

START_TEST(error_text_may_quote_itself)
{
    struct error error;
    error_set(&error, STATUS_INTERNAL, "inner");
    error_set(&error, error.status, "outer: %s", error.text);
    ck_assert_str_eq(error.text, "outer: inner");
}
END_TEST

START_TEST(error_text_that_does_not_fit_ends_in_dots)
{
    char exact[ERROR_TEXT_MAX], longer[ERROR_TEXT_MAX + 1];
    memset(exact, 'x', sizeof(exact));
    exact[sizeof(exact) - 1] = '\0';
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';

    struct error error;
    error_set(&error, STATUS_INTERNAL, "%s", exact);
    ck_assert_str_eq(error.text, exact);
    error_set(&error, STATUS_INTERNAL, "%s", longer);
    ck_assert_uint_eq(strlen(error.text), ERROR_TEXT_MAX - 1);
    ck_assert_str_eq(error.text + ERROR_TEXT_MAX - 5, "x...");
}
END_TEST

// ---- list ---------------------------------------------------------------------------------------

struct item {
    int value;
    struct list node;
};

static void assert_values(const struct list *head, int count, const int *values)
{
    int i = 0;
    ck_assert_uint_eq(list_length(head), (size_t)count);
    LIST_FOREACH (node, (struct list *)(uintptr_t)head) {
        ck_assert_int_eq(LIST_ENTRY(node, struct item, node)->value, values[i]);
        i++;
    }
    ck_assert_int_eq(i, count);
}

START_TEST(list_keeps_order)
{
    struct list head;
    struct item items[4];
    list_init(&head);
    ck_assert(list_empty(&head));
    ck_assert_ptr_null(list_first(&head));
    ck_assert_ptr_null(list_pop_front(&head));
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        list_init(&items[i].node);
    }
    list_push_back(&head, &items[1].node);
    list_push_back(&head, &items[2].node);
    list_push_front(&head, &items[0].node);
    list_push_back(&head, &items[3].node);
    assert_values(&head, 4, (int[]){0, 1, 2, 3});

    list_remove(&items[2].node);
    ck_assert(list_empty(&items[2].node));
    list_remove(&items[2].node); // is in no list: no effect
    assert_values(&head, 3, (int[]){0, 1, 3});
    ck_assert_ptr_eq(list_pop_front(&head), &items[0].node);
    list_push_back(&head, &items[0].node);
    assert_values(&head, 3, (int[]){1, 3, 0});
}
END_TEST

START_TEST(list_visit_may_remove_the_visited)
{
    struct list head;
    struct item items[3];
    list_init(&head);
    for (int i = 0; i < 3; i++) {
        items[i].value = i;
        list_push_back(&head, &items[i].node);
    }
    LIST_FOREACH (node, &head) {
        if (LIST_ENTRY(node, struct item, node)->value != 1)
            list_remove(node);
    }
    assert_values(&head, 1, (int[]){1});
}
END_TEST

// ---- byte ring ----------------------------------------------------------------------------------

START_TEST(bytering_keeps_the_last_bytes)
{
    struct bytering ring;
    char text[16];
    ck_assert_int_eq(bytering_init(&ring, 8), STATUS_OK);
    ck_assert_uint_eq(bytering_tail(&ring, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "");
    bytering_write(&ring, "abcde", 5);
    bytering_tail(&ring, text, sizeof(text));
    ck_assert_str_eq(text, "abcde");
    bytering_write(&ring, "fgh", 3);
    bytering_tail(&ring, text, sizeof(text));
    ck_assert_str_eq(text, "abcdefgh");
    bytering_write(&ring, "ij", 2);
    ck_assert_uint_eq(bytering_tail(&ring, text, sizeof(text)), 8);
    ck_assert_str_eq(text, "cdefghij");
    bytering_write(&ring, "0123456789ABCDEF", 16);
    bytering_tail(&ring, text, sizeof(text));
    ck_assert_str_eq(text, "89ABCDEF");
    bytering_write(&ring, "", 0);
    ck_assert_uint_eq(bytering_kept(&ring), 8);
    ck_assert_uint_eq(ring.total, 26);
    bytering_clear(&ring);
    ck_assert_uint_eq(bytering_kept(&ring), 0);
    bytering_fini(&ring);
    bytering_fini(&ring);
}
END_TEST

// Writes of 0 to 30 bytes; a plain string has the expected content.
START_TEST(bytering_agrees_with_a_string)
{
    struct bytering ring;
    char history[4096], text[32];
    size_t length = 0;
    ck_assert_int_eq(bytering_init(&ring, 13), STATUS_OK);
    for (size_t step = 0; length + 40 < sizeof(history); step++) {
        size_t count = step * 7 % 31;
        for (size_t i = 0; i < count; i++)
            history[length + i] = (char)('a' + (length + i) % 26);
        bytering_write(&ring, history + length, count);
        length += count;
        size_t kept = length < 13 ? length : 13;
        ck_assert_uint_eq(bytering_tail(&ring, text, sizeof(text)), kept);
        ck_assert_mem_eq(text, history + length - kept, kept);
    }
    bytering_fini(&ring);
}
END_TEST

START_TEST(bytering_tail_is_cut_to_the_newest_and_printable)
{
    struct bytering ring;
    char text[16];
    ck_assert_int_eq(bytering_init(&ring, 64), STATUS_OK);
    bytering_write(&ring, "old\n\x1b[1m\0\xc3\xa9\x7f\ttab", 16);
    ck_assert_uint_eq(bytering_tail(&ring, text, 8), 7);
    ck_assert_str_eq(text, "???\ttab");
    ck_assert_uint_eq(bytering_tail(&ring, text, sizeof(text)), 15);
    ck_assert_str_eq(text, "ld\n?[1m????\ttab");
    bytering_tail(&ring, text, 1);
    ck_assert_str_eq(text, "");
    bytering_fini(&ring);
}
END_TEST

// ---- log ----------------------------------------------------------------------------------------

// log_capture() redirects stderr to a pipe; log_captured() returns what was written. `journal`:
// JOURNAL_STREAM names this pipe, as if the journal read it.
static int capture_fd;

static void log_capture(bool journal)
{
    int ends[2];
    char stream[64];
    struct stat stat;
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    capture_fd = ends[0];
    ck_assert_int_eq(fstat(STDERR_FILENO, &stat), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)stat.st_dev,
             (uintmax_t)stat.st_ino + !journal);
    setenv("JOURNAL_STREAM", stream, 1);
    setenv("CPATTN_JOURNAL_SOCKET", "/none", 1);
}

static const char *log_captured(void)
{
    static char text[65536];
    close(STDERR_FILENO);
    size_t length = 0;
    ssize_t got;
    while ((got = read(capture_fd, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    return text;
}

// Reads the same clock as the log. time() can be behind it by one tick.
static time_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

// Each line must begin with a time such as "2031-05-27T09:30:00.125Z " from `first` to `last`.
// Returns the lines without it.
static const char *log_captured_between(time_t first, time_t last)
{
    static char text[65536];
    char *to = text;
    for (const char *line = log_captured(); *line;) {
        struct tm utc = {0};
        const char *dot = strptime(line, "%Y-%m-%dT%H:%M:%S", &utc);
        ck_assert_msg(dot && strspn(dot + 1, "0123456789") == 3 && strncmp(dot + 4, "Z ", 2) == 0,
                      "no time before \"%.40s\"", line);
        time_t time = timegm(&utc);
        ck_assert(*dot == '.' && time >= first && time <= last);
        const char *end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        to = mempcpy(to, dot + 6, (size_t)(end + 1 - (dot + 6)));
        line = end + 1;
    }
    *to = '\0';
    return text;
}

START_TEST(log_writes_lines_up_to_its_level)
{
    time_t first = seconds_now();
    log_capture(false);
    log_init(LOG_LEVEL_NOTICE);
    log_error("pool lost pool=%d", 3);
    log_info("unseen");
    log_notice("pool ready");
    ck_assert_str_eq(log_captured_between(first, seconds_now()), "pool lost pool=3\npool ready\n");
}
END_TEST

START_TEST(log_marks_levels_for_the_journal)
{
    log_capture(true);
    log_init(LOG_LEVEL_DEBUG);
    log_error("a");
    log_debug("b");
    ck_assert_str_eq(log_captured(), "<3>a\n<7>b\n");
}
END_TEST

START_TEST(log_call_is_one_line)
{
    log_capture(true);
    log_init(LOG_LEVEL_INFO);
    log_info("text=%s", "two\nlines\x1b[0m\r<3>fake");
    ck_assert_str_eq(log_captured(), "<6>text=two\\nlines\\x1b[0m\\x0d<3>fake\n");
}
END_TEST

START_TEST(log_escapes_control_characters)
{
    log_capture(true);
    log_init(LOG_LEVEL_INFO);
    // U+009B begins a control sequence of terminals; some accept its single byte, too.
    log_info("text=%s", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\x9b"
                        "1m \x9b"
                        "2m \xc3( \xed\xa0\x80 \xe2\x82");
    ck_assert_str_eq(log_captured(),
                     "<6>text=\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82 \\xc2\\x9b1m \\x9b2m "
                     "\\xc3( \\xed\\xa0\\x80 \\xe2\\x82\n");
}
END_TEST

START_TEST(log_reports_omitted_bytes)
{
    static char text[LOG_LINE_MAX + 8];
    memset(text, 'y', sizeof(text) - 1);
    log_capture(true);
    log_init(LOG_LEVEL_INFO);
    log_info("%s", text);
    const char *line = log_captured() + strlen("<6>");
    ck_assert_uint_eq(strspn(line, "y"), LOG_LINE_MAX);
    ck_assert_str_eq(line + LOG_LINE_MAX, " truncated=7\n");
}
END_TEST

START_TEST(log_quotes_values)
{
    struct log_quoted quoted;
    ck_assert_str_eq(log_quote(&quoted, "a \"b\" \\c"), "\"a \\\"b\\\" \\\\c\"");
    ck_assert_str_eq(log_quote(&quoted, ""), "\"\"");
    char text[2 * LOG_QUOTED_MAX];
    memset(text, '"', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    const char *cut = log_quote(&quoted, text);
    ck_assert_uint_lt(strlen(cut), LOG_QUOTED_MAX);
    ck_assert_str_eq(cut + strlen(cut) - 6, "\\\"...\"");
}
END_TEST

START_TEST(log_level_names)
{
    enum log_level level = LOG_LEVEL_ERROR;
    ck_assert(log_level_parse("debug", &level));
    ck_assert_int_eq(level, LOG_LEVEL_DEBUG);
    ck_assert(!log_level_parse("loud", &level));
    ck_assert_int_eq(level, LOG_LEVEL_DEBUG);
}
END_TEST

// ---- report -------------------------------------------------------------------------------------

START_TEST(report_names)
{
    ck_assert_str_eq(report_phase_name(REPORT_BACKWARD), "backward");
    ck_assert_str_eq(report_phase_name(REPORT_PHASES), "?");
    ck_assert_str_eq(report_phase_name(-1), "?");
    ck_assert_str_eq(report_tensor_name(TENSOR_DK), "dk");
    ck_assert_str_eq(report_tensor_name(0), "?");
    ck_assert_str_eq(report_tensor_name(TENSOR_COUNT), "?");
}
END_TEST

START_TEST(progress_survives_the_word)
{
    struct progress word = {0};
    struct progress_view in = {.job = 0x123456, .phase = REPORT_COMPARE, .step = 65535};
    for (in.waiting_for = -1; in.waiting_for < WORLD_SIZE_MAX; in.waiting_for++) {
        progress_store(&word, in);
        struct progress_view out = progress_load(&word);
        ck_assert_uint_eq(out.job, in.job);
        ck_assert_int_eq(out.phase, in.phase);
        ck_assert_int_eq(out.step, in.step);
        ck_assert_int_eq(out.waiting_for, in.waiting_for);
    }
}
END_TEST

struct stand {
    int phase, step, waiting_for;
};

static int culprit(int count, const struct stand *stands)
{
    struct progress words[WORLD_SIZE_MAX];
    for (int i = 0; i < count; i++)
        progress_store(&words[i], (struct progress_view){.job = 1,
                                                         .phase = stands[i].phase,
                                                         .step = stands[i].step,
                                                         .waiting_for = stands[i].waiting_for});
    return progress_culprit(words, count);
}

START_TEST(the_culprit_is_the_rank_that_others_wait_for)
{
    enum { F = REPORT_FORWARD, B = REPORT_BACKWARD, I = REPORT_IDLE };
    // 0 waits for 3, 3 for 2, 2 computes; 1 is done.
    ck_assert_int_eq(culprit(4, (struct stand[]){{F, 1, 3}, {I, 0, -1}, {F, 2, -1}, {F, 1, 2}}), 2);
    // An idle rank that never started the case is the culprit.
    ck_assert_int_eq(culprit(2, (struct stand[]){{F, 1, 1}, {I, 0, -1}}), 1);
    // Two chains: the end that is further behind.
    ck_assert_int_eq(culprit(4, (struct stand[]){{B, 0, 1}, {B, 1, -1}, {B, 0, 3}, {F, 9, -1}}), 3);
    // A circle: the earliest in phase and step, of equals the lowest.
    ck_assert_int_eq(culprit(3, (struct stand[]){{F, 3, 1}, {F, 2, 2}, {F, 3, 0}}), 1);
    ck_assert_int_eq(culprit(3, (struct stand[]){{F, 2, 1}, {F, 2, 2}, {F, 2, 0}}), 0);
    // No rank waits: the working rank that is furthest behind.
    ck_assert_int_eq(culprit(3, (struct stand[]){{I, 0, -1}, {B, 2, -1}, {B, 1, -1}}), 2);
    ck_assert_int_eq(culprit(2, (struct stand[]){{I, 0, -1}, {I, 0, -1}}), 0);
}
END_TEST

START_TEST(the_culprit_is_found_in_any_words)
{
    struct progress words[3];
    for (uint64_t i = 0; i < 4096; i++) {
        for (uint64_t rank = 0; rank < 3; rank++)
            words[rank].word = (i + rank) * UINT64_C(0x9e3779b97f4a7c15);
        int found = progress_culprit(words, 3);
        ck_assert(found >= 0 && found < 3);
    }
}
END_TEST

// ---- standard descriptors ----------------------------------------------------------------------

static bool is_the_null_device(int fd)
{
    struct stat null, found;
    return stat("/dev/null", &null) == 0 && fstat(fd, &found) == 0 && S_ISCHR(found.st_mode) &&
           found.st_rdev == null.st_rdev;
}

START_TEST(closed_standard_descriptors_are_filled)
{
    int usual = dup(STDERR_FILENO), output = dup(STDOUT_FILENO);
    close(STDIN_FILENO);
    close(STDERR_FILENO);
    standard_fds_fill();
    bool filled = is_the_null_device(STDIN_FILENO) && is_the_null_device(STDERR_FILENO);
    bool kept = !is_the_null_device(STDOUT_FILENO) || is_the_null_device(output);
    ssize_t written = write(STDERR_FILENO, "x", 1);
    int number = errno;
    dup2(usual, STDERR_FILENO);
    ck_assert(filled);
    ck_assert(kept);
    ck_assert_int_eq(written, -1);
    ck_assert_int_eq(number, EBADF);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("common");
    TCase *status = tcase_create("status");
    tcase_add_test(status, sizes_have_three_digits_and_a_unit);
    tcase_add_test(status, status_names);
    tcase_add_test(status, error_keeps_status_and_text);
    tcase_add_test(status, error_text_may_quote_itself);
    tcase_add_test(status, error_text_that_does_not_fit_ends_in_dots);
    suite_add_tcase(s, status);
    TCase *containers = tcase_create("containers");
    tcase_add_test(containers, list_keeps_order);
    tcase_add_test(containers, list_visit_may_remove_the_visited);
    tcase_add_test(containers, bytering_keeps_the_last_bytes);
    tcase_add_test(containers, bytering_agrees_with_a_string);
    tcase_add_test(containers, bytering_tail_is_cut_to_the_newest_and_printable);
    suite_add_tcase(s, containers);
    TCase *log = tcase_create("log");
    tcase_add_test(log, log_writes_lines_up_to_its_level);
    tcase_add_test(log, log_marks_levels_for_the_journal);
    tcase_add_test(log, log_call_is_one_line);
    tcase_add_test(log, log_escapes_control_characters);
    tcase_add_test(log, log_reports_omitted_bytes);
    tcase_add_test(log, log_quotes_values);
    tcase_add_test(log, log_level_names);
    suite_add_tcase(s, log);
    TCase *report = tcase_create("report");
    tcase_add_test(report, report_names);
    tcase_add_test(report, progress_survives_the_word);
    tcase_add_test(report, the_culprit_is_the_rank_that_others_wait_for);
    tcase_add_test(report, the_culprit_is_found_in_any_words);
    suite_add_tcase(s, report);
    TCase *descriptors = tcase_create("descriptors");
    tcase_add_test(descriptors, closed_standard_descriptors_are_filled);
    suite_add_tcase(s, descriptors);
    return s;
}

int main(void)
{
    return runner_run(suite());
}

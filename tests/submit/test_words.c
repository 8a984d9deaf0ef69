// SPDX-License-Identifier: Apache-2.0
// Mistyped words, times as text, and the progress line.
#include <stdlib.h>
#include <string.h>

#include "client/submit/show/progress.h"
#include "common/duration.h"
#include "common/nearest.h"
#include "tests/support/runner.h"

// ---- the nearest name -------------------------------------------------------------------------

static const struct {
    const char *word, *nearest; // NULL: none is close
} words[] = {
    {"hedas", "heads"},
    {"heads", "heads"},
    {"HEADS", "heads"},
    {"kvheads", "kv_heads"},
    {"kv-heads", "kv_heads"},
    {"seqlen", "seqlen_q"},
    {"seqlen_kw", "seqlen_kv"},
    {"matirx", "matrix"},
    {"mat", "matrix"},
    {"ma", NULL},
    {"x", NULL},
    {"", NULL},
    {"something else", NULL},
};

START_TEST(nearest_finds_the_closest_name)
{
    static const char *const names[] = {"heads", "kv_heads", "seqlen_q", "seqlen_kv", "matrix"};
    struct nearest nearest;
    char hint[128], expected[128] = "";
    nearest_init(&nearest, words[_i].word);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        nearest_offer(&nearest, names[i]);
    if (words[_i].nearest)
        snprintf(expected, sizeof(expected), " (did you mean '%s'?)", words[_i].nearest);
    ck_assert_str_eq(nearest_hint(&nearest, hint, sizeof(hint)), expected);
}
END_TEST

START_TEST(nearest_takes_any_length)
{
    char word[4 * NEAREST_WORD_MAX];
    struct nearest nearest;
    memset(word, 'a', sizeof(word));
    word[sizeof(word) - 1] = '\0';
    nearest_init(&nearest, word);
    nearest_offer(&nearest, word);
    ck_assert_ptr_eq(nearest.name, word);
    nearest_init(&nearest, "b");
    nearest_offer(&nearest, word);
    ck_assert_ptr_null(nearest.name);
}
END_TEST

// ---- times ------------------------------------------------------------------------------------

static const struct {
    const char *text;
    uint64_t ns; // UINT64_MAX: refused
} times[] = {
    {"90", 90000000000},
    {"90s", 90000000000},
    {"1.5s", 1500000000},
    {"250ms", 250000000},
    {"10us", 10000},
    {"7ns", 7},
    {"2m", 120000000000},
    {"1h", 3600000000000},
    {"0", 0},
    {"", UINT64_MAX},
    {"s", UINT64_MAX},
    {"-1", UINT64_MAX},
    {"+1", UINT64_MAX},
    {" 1", UINT64_MAX},
    {"1 s", UINT64_MAX},
    {"1e3", UINT64_MAX},
    {"0x10", UINT64_MAX},
    {"1.2.3", UINT64_MAX},
    {".5", UINT64_MAX},
    {"5 years", UINT64_MAX},
    {"nan", UINT64_MAX},
    {"99999999999h", UINT64_MAX},
    {"00000000000000000000000000001", UINT64_MAX},
};

START_TEST(times_are_read)
{
    uint64_t ns = 42;
    bool taken = duration_parse(times[_i].text, &ns);
    ck_assert_int_eq(taken, times[_i].ns != UINT64_MAX);
    ck_assert_uint_eq(ns, taken ? times[_i].ns : 42);
}
END_TEST

static const struct {
    uint64_t ns;
    const char *text;
} shown[] = {
    {0, "0 ns"},
    {999, "999 ns"},
    {1000, "1.00 us"},
    {9996, "10.0 us"},
    {417000, "417 us"},
    {999600, "1.00 ms"},
    {1350000, "1.35 ms"},
    {12345678, "12.3 ms"},
    {999600000, "1.00 s"},
    {90000000000, "90.0 s"},
    {100000000000, "1 m 40 s"},
    {3599400000000, "59 m 59 s"},
    {3599600000000, "1 h 00 m"},
    {7265000000000, "2 h 01 m"},
    {UINT64_MAX / 2, "2562047 h 47 m"},
};

START_TEST(times_are_shown)
{
    char text[DURATION_TEXT_MAX];
    ck_assert_str_eq(duration_format(shown[_i].ns, text, sizeof(text)), shown[_i].text);
}
END_TEST

static const struct {
    uint64_t ns;
    const char *text;
} asked[] = {
    {0, "1us"},
    {1, "1us"},
    {1001, "1.1us"},
    {12000, "12us"},
    {12001, "13us"},
    {999999, "1000us"},
    {1000000, "1ms"},
    {1350001, "1.4ms"},
    {350000000, "350ms"},
    {11300000000, "12s"},
    {123000000000, "130s"},
    {3600000000000, "3600s"},
    {UINT64_MAX, "19000000000s"},
};

START_TEST(times_to_ask_for_are_rounded_up)
{
    char text[DURATION_TEXT_MAX];
    uint64_t ns;
    ck_assert_str_eq(duration_ask(asked[_i].ns, text, sizeof(text)), asked[_i].text);
    ck_assert(asked[_i].ns > INT64_MAX || (duration_parse(text, &ns) && ns >= asked[_i].ns));
}
END_TEST

// ---- the progress line ------------------------------------------------------------------------

START_TEST(progress_tells_rate_and_time_left)
{
    char text[256];
    struct progress p = {.total = 16, .start_ns = 1000};
    progress_text(&p, 1000, "", 0, text, sizeof(text));
    ck_assert_str_eq(text, "[....................] 0/16: 0 passed, 0 failed");
    p.done = 4;
    p.passed = 3;
    p.failed = 1;
    progress_text(&p, 1000 + UINT64_C(2000000000), "a/b", 0, text, sizeof(text));
    ck_assert_str_eq(text,
                     "[=====...............] 4/16: 3 passed, 1 failed, 2.00/s, 6.00 s left | a/b");
    p.passed = 2;
    p.errors = 1;
    progress_text(&p, 1000 + UINT64_C(200000000), "a/b", 0, text, sizeof(text));
    ck_assert_str_eq(text, "[=====...............] 4/16: 2 passed, 1 failed, 1 not run, 20/s, 600 "
                           "ms left | a/b");
    progress_text(&p, 1000 + UINT64_C(200000000), "a/b", 30, text, sizeof(text));
    ck_assert_str_eq(text, "[=====...............] 4/16: 2");
    p.done = 16;
    progress_text(&p, 1000 + UINT64_C(800000000), "", 0, text, sizeof(text));
    ck_assert_str_eq(text, "[====================] 16/16: 2 passed, 1 failed, 1 not run, 20/s");
}
END_TEST

#define LOOP(tcase, test, table)                                                                   \
    tcase_add_loop_test(tcase, test, 0, (int)(sizeof(table) / sizeof((table)[0])))

int main(void)
{
    Suite *suite = suite_create("words");
    TCase *nearest = tcase_create("nearest"), *duration = tcase_create("duration"),
          *progress = tcase_create("progress");
    LOOP(nearest, nearest_finds_the_closest_name, words);
    tcase_add_test(nearest, nearest_takes_any_length);
    LOOP(duration, times_are_read, times);
    LOOP(duration, times_are_shown, shown);
    LOOP(duration, times_to_ask_for_are_rounded_up, asked);
    tcase_add_test(progress, progress_tells_rate_and_time_left);
    suite_add_tcase(suite, nearest);
    suite_add_tcase(suite, duration);
    suite_add_tcase(suite, progress);
    return runner_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/chain_screen.h"

#include <string.h>

#include "tests/runner.h"

// A record of this type around a body.
static size_t record(uint8_t *bytes, uint8_t type, const void *body, size_t size)
{
    const uint8_t header[5] = {type, 3, 3, (uint8_t)(size >> 8), (uint8_t)size};
    memcpy(bytes, header, sizeof(header));
    memcpy(bytes + sizeof(header), body, size);
    return sizeof(header) + size;
}

// The whole, and byte by byte; both have to say the same.
static bool passes(const uint8_t *data, size_t size)
{
    struct chain_screen whole = {0}, bytes = {0};
    bool passed = chain_screen_pass(&whole, data, size), piecemeal = true;
    for (size_t i = 0; i < size && piecemeal; i++)
        piecemeal = chain_screen_pass(&bytes, data + i, 1);
    ck_assert_int_eq(passed, piecemeal);
    return passed;
}

static const uint8_t hello[] = {1, 0, 0, 2, 3, 3};
static const uint8_t none[] = {11, 0, 0, 3, 0, 0, 0};
static const uint8_t one[] = {11, 0, 0, 8, 0, 0, 5, 0, 0, 2, 9, 9};
static const uint8_t two[] = {11, 0, 0, 12, 0, 0, 9, 0, 0, 2, 9, 9, 0, 0, 1, 9};
static const uint8_t key[] = {16, 0, 0, 1, 7};

START_TEST(one_certificate_passes_or_none)
{
    uint8_t data[128];
    size_t size = record(data, 22, hello, sizeof(hello));
    ck_assert(passes(data, size + record(data + size, 22, one, sizeof(one))));
    ck_assert(passes(data, size + record(data + size, 22, none, sizeof(none))));
    size += record(data + size, 22, one, sizeof(one));
    size += record(data + size, 22, key, sizeof(key));
    ck_assert(passes(data, size));
}
END_TEST

START_TEST(two_certificates_do_not)
{
    uint8_t data[128], body[64];
    size_t size = record(data, 22, hello, sizeof(hello));
    ck_assert(!passes(data, size + record(data + size, 22, two, sizeof(two))));
    // In a record with another message.
    memcpy(body, hello, sizeof(hello));
    memcpy(body + sizeof(hello), two, sizeof(two));
    ck_assert(!passes(data, record(data, 22, body, sizeof(hello) + sizeof(two))));
    // Cut by records anywhere, with an alert in between.
    for (size_t cut = 1; cut < sizeof(two); cut++) {
        size = record(data, 22, two, cut);
        size += record(data + size, 21, "\1\0", 2);
        size += record(data + size, 22, two + cut, sizeof(two) - cut);
        ck_assert(!passes(data, size));
    }
}
END_TEST

START_TEST(it_is_told_before_the_certificates_come)
{
    uint8_t data[128];
    record(data, 22, two, sizeof(two));
    ck_assert(passes(data, 5 + 9));
    ck_assert(!passes(data, 5 + 10));
}
END_TEST

START_TEST(records_may_be_empty)
{
    uint8_t data[128];
    size_t size = record(data, 22, "", 0);
    size += record(data + size, 22, "", 0);
    ck_assert(!passes(data, size + record(data + size, 22, two, sizeof(two))));
}
END_TEST

// From there on everything is enciphered, and may look like anything.
START_TEST(nothing_counts_after_the_change_of_ciphers)
{
    uint8_t data[128];
    size_t size = record(data, 20, "\1", 1);
    ck_assert(passes(data, size + record(data + size, 22, two, sizeof(two))));
    ck_assert(passes(data, size + record(data + size, 23, two, sizeof(two))));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain_screen");
    TCase *tcase = tcase_create("chain_screen");
    tcase_add_test(tcase, one_certificate_passes_or_none);
    tcase_add_test(tcase, two_certificates_do_not);
    tcase_add_test(tcase, it_is_told_before_the_certificates_come);
    tcase_add_test(tcase, records_may_be_empty);
    tcase_add_test(tcase, nothing_counts_after_the_change_of_ciphers);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}

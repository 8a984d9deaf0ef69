// SPDX-License-Identifier: Apache-2.0
// Specs are parsed from text, hashed, described, and sent in frames.
#include "tests/support/runner.h"

#include <string.h>

#include "tests/kinds/toy_sum.h"

static struct error error;

static struct job_spec parsed(const char *name, const char *value)
{
    struct job_text text = {.kind = "sum", .field_count = name ? 1 : 0};
    struct job_spec spec;
    if (name) {
        strcpy(text.fields[0].name, name);
        strcpy(text.fields[0].value, value);
    }
    ck_assert_msg(job_spec_parse(&spec, &text, &error) == STATUS_OK, "%s", error.text);
    return spec;
}

START_TEST(every_field_counts_in_the_hash)
{
    static const struct job_field changes[] = {
        {"world_size", "3"}, {"count", "9"}, {"rounds", "2"}, {"wrong", "0"}, {"seed", "2"}};
    struct job_spec usual = parsed(NULL, NULL), same = parsed("count", "1000");
    struct job_spec of_case;
    struct cp_case c;
    ck_assert_uint_eq(job_spec_hash(&usual), job_spec_hash(&same));
    for (int i = 0; i < 5; i++) {
        struct job_spec other = parsed(changes[i].name, changes[i].value);
        ck_assert_uint_ne(job_spec_hash(&usual), job_spec_hash(&other));
    }
    case_init(&c);
    job_spec_of_case(&of_case, &c);
    ck_assert_uint_eq(job_spec_hash(&of_case), case_hash(&c));
}
END_TEST

START_TEST(a_description_has_the_changed_fields)
{
    char text[64], cut[8];
    struct job_spec usual = parsed(NULL, NULL), other = parsed("seed", "77");
    job_spec_describe(&usual, text, sizeof(text));
    ck_assert_str_eq(text, "sum w2");
    ck_assert_int_eq(job_spec_describe(&other, text, sizeof(text)), 14);
    ck_assert_str_eq(text, "sum w2 seed=77");
    ck_assert_int_eq(job_spec_describe(&other, cut, sizeof(cut)), 14);
    ck_assert_str_eq(cut, "sum w2 ");
}
END_TEST

START_TEST(names_may_be_written_with_hyphens)
{
    struct job_spec spec = parsed("world-size", "5");
    ck_assert_int_eq(job_spec_needs(&spec).world_size, 5);
}
END_TEST

START_TEST(frames_carry_a_spec_whole)
{
    struct job_frame frame;
    struct job_spec sent = parsed("seed", "99"), got;
    memset(&frame, 0x55, sizeof(frame));
    uint32_t bytes = job_frame_fill(&frame, &sent);
    ck_assert_int_eq(job_frame_load(&frame, bytes, &got, &error), STATUS_OK);
    ck_assert_ptr_eq(got.kind, &job_kind_toy_sum);
    ck_assert_mem_eq(got.bytes, sent.bytes, sizeof(struct toy_sum));
    ck_assert_int_eq(job_frame_load(&frame, bytes - 1, &got, &error), STATUS_DATA_LOSS);
    ck_assert_int_eq(job_frame_load(&frame, bytes + 1, &got, &error), STATUS_DATA_LOSS);
    ck_assert_int_eq(job_frame_load(&frame, KIND_NAME_MAX - 1, &got, &error), STATUS_DATA_LOSS);
    memcpy(frame.kind, "mus", 4);
    ck_assert_int_eq(job_frame_load(&frame, bytes, &got, &error), STATUS_DATA_LOSS);
    memset(frame.kind, 's', sizeof(frame.kind));
    ck_assert_int_eq(job_frame_load(&frame, bytes, &got, &error), STATUS_DATA_LOSS);
}
END_TEST

START_TEST(frames_carry_a_case_whole)
{
    static const int32_t lengths[] = {100, 20};
    struct job_frame frame;
    struct job_spec sent, got;
    struct cp_case c;
    case_init(&c);
    case_list_set(&c, LIST_LENGTHS_Q, lengths, 2);
    job_spec_of_case(&sent, &c);
    uint32_t bytes = job_frame_fill(&frame, &sent);
    ck_assert_uint_lt(bytes, sizeof(frame) / 2); // unused elements of lists are not sent
    ck_assert_int_eq(job_frame_load(&frame, bytes, &got, &error), STATUS_OK);
    ck_assert_ptr_eq(got.kind, &job_kind_attention);
    ck_assert_mem_eq(&got.attention, &c, sizeof(c));
    ck_assert_int_eq(job_frame_load(&frame, bytes - 4, &got, &error), STATUS_DATA_LOSS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kind_table");
    TCase *tcase = tcase_create("kind_table");
    tcase_add_test(tcase, every_field_counts_in_the_hash);
    tcase_add_test(tcase, a_description_has_the_changed_fields);
    tcase_add_test(tcase, names_may_be_written_with_hyphens);
    tcase_add_test(tcase, frames_carry_a_spec_whole);
    tcase_add_test(tcase, frames_carry_a_case_whole);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}

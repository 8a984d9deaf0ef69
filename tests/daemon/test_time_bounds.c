// SPDX-License-Identifier: Apache-2.0
// The lower bound of a case's running time, compared with measured times.
#include "daemon/machine/time_bounds.h"

#include <string.h>

#include "daemon/core/core.h"
#include "tests/support/cases.h"
#include "tests/support/runner.h"

static struct device_rates gpus(int count, const char *arch)
{
    struct wire_description d = {.gpu_count = count};
    for (int i = 0; i < count; i++)
        strcpy(d.gpus[i].arch, arch);
    return time_bounds_rates(&d, 1);
}

static struct device_rates cores(int count)
{
    const struct wire_description d = {.gpu_count = 0};
    return time_bounds_rates(&d, count);
}

// Ranks on other hosts work at the same time. Their devices may be faster than the own ones.
START_TEST(other_hosts_lower_the_bound)
{
    struct device_rates rates = _i ? cores(1) : gpus(1, "sm_80");
    struct cp_case c = cases_usual();
    c.world_size = 9;
    c.seqlen_q = c.seqlen_kv = 16384;
    uint64_t own_ns = time_bounds_case_ns(&rates, &c);
    time_bounds_add_host(&rates, 6);
    time_bounds_add_host(&rates, 2);
    ck_assert_int_eq(rates.devices, 9);
    ck_assert_uint_le(time_bounds_case_ns(&rates, &c), own_ns / 9 + 1);
    struct device_rates fast = gpus(9, "sm_999");
    if (_i == 0)
        ck_assert_uint_ge(time_bounds_case_ns(&fast, &c), time_bounds_case_ns(&rates, &c));
}
END_TEST

// ---- measured on H200s (bench/results/cuda-2026-11-20.md) ---------------------------------------

// Kernels alone: TFLOPS of the backend's kernels or of the fastest other ones, whichever are
// faster. The table counts the operations.
static const struct {
    int batch, heads, kv_heads;
    int64_t length;
    int d_qk, d_v;
    bool causal;
    double tflops_forward, tflops_backward; // of the faster kernels
} kernels[] = {
    {1, 32, 32, 16384, 128, 128, false, 631, 520}, {1, 32, 32, 16384, 128, 128, true, 653, 534},
    {1, 32, 8, 16384, 128, 128, false, 659, 531},  {1, 32, 8, 16384, 128, 128, true, 655, 543},
    {4, 16, 16, 4096, 128, 128, false, 655, 531},  {4, 16, 16, 4096, 128, 128, true, 544, 448},
    {16, 16, 16, 1024, 128, 128, false, 570, 404}, {16, 16, 16, 1024, 128, 128, true, 387, 198},
    {1, 32, 32, 16384, 64, 64, false, 491, 454},   {1, 32, 32, 16384, 64, 64, true, 467, 438},
    {4, 16, 16, 4096, 64, 64, false, 454, 367},    {4, 16, 16, 4096, 64, 64, true, 377, 280},
    {1, 16, 16, 8192, 192, 128, false, 654, 278},  {1, 16, 16, 8192, 192, 128, true, 552, 414},
    {1, 16, 16, 8192, 256, 256, false, 741, 354},  {1, 16, 16, 8192, 256, 256, true, 625, 386},
};

START_TEST(no_kernel_beats_the_bound)
{
    struct device_rates one = gpus(1, "sm_90");
    struct cp_case c = cases_usual();
    double length = (double)kernels[_i].length;
    one.drawn = 1e30; // the table does not count the drawing of inputs
    c.world_size = 1;
    c.verify = VERIFY_OFF;
    c.batch = kernels[_i].batch;
    c.heads = kernels[_i].heads;
    c.kv_heads = kernels[_i].kv_heads;
    c.seqlen_q = c.seqlen_kv = kernels[_i].length;
    c.head_dim_qk = kernels[_i].d_qk;
    c.head_dim_v = kernels[_i].d_v;
    c.mask = kernels[_i].causal ? MASK_CAUSAL : MASK_NONE;
    double counted = (kernels[_i].causal ? 1.0 : 2.0) * c.batch * c.heads * length * length *
                     (c.head_dim_qk + c.head_dim_v);
    double forward_ns = counted / kernels[_i].tflops_forward / 1e3;
    double backward_ns = 2.5 * counted / kernels[_i].tflops_backward / 1e3;
    uint64_t both_ns = time_bounds_case_ns(&one, &c);
    c.training = false;
    ck_assert_double_lt((double)time_bounds_case_ns(&one, &c), forward_ns);
    ck_assert_double_lt((double)both_ns, forward_ns + backward_ns);
    ck_assert_double_gt((double)both_ns, (forward_ns + backward_ns) / 10); // it is not too low
}
END_TEST

// Cases through the daemon: 32768 tokens, 32 heads of 128, 8 key heads, causal, not verified.
static const struct {
    int ranks;
    enum case_comm comm;
    double forward_ms, backward_ms;
} runs[] = {
    {1, COMM_P2P, 22.2, 81.6}, {2, COMM_P2P, 11.6, 48.5},     {2, COMM_ALL_GATHER, 11.5, 48.3},
    {2, COMM_A2A, 12.3, 56.5}, {4, COMM_P2P, 6.05, 24.1},     {4, COMM_ALL_GATHER, 6.05, 24.1},
    {4, COMM_A2A, 6.38, 41.5}, {4, COMM_A2A_P2P, 6.41, 28.8},
};

START_TEST(no_run_beats_the_bound)
{
    struct device_rates four = gpus(4, "sm_90");
    struct cp_case c = cases_usual();
    c.world_size = runs[_i].ranks;
    c.comm = runs[_i].comm;
    c.verify = VERIFY_OFF;
    c.batch = 1;
    c.heads = 32;
    c.kv_heads = 8;
    c.seqlen_q = c.seqlen_kv = 32768;
    double bound_ms = (double)time_bounds_case_ns(&four, &c) / 1e6;
    ck_assert_double_lt(bound_ms, runs[_i].forward_ms + runs[_i].backward_ms);
    ck_assert_double_gt(bound_ms, (runs[_i].forward_ms + runs[_i].backward_ms) / 10);
}
END_TEST

// Verified cases, from request to answer: the smaller median of two runs.
START_TEST(no_small_case_beats_the_bound)
{
    static const double measured_ms[] = {[1] = 1.29, [2] = 1.61, [4] = 2.44};
    struct device_rates four = gpus(4, "sm_90");
    struct cp_case c = cases_usual();
    for (c.world_size = 1; c.world_size <= 4; c.world_size *= 2)
        ck_assert_double_lt((double)time_bounds_case_ns(&four, &c) / 1e6,
                            measured_ms[c.world_size]);
}
END_TEST

// ---- terms of the bound -------------------------------------------------------------------------

static struct cp_case large_case(int world_size)
{
    struct cp_case c = cases_usual();
    c.world_size = world_size;
    c.seqlen_q = c.seqlen_kv = 16384;
    return c;
}

START_TEST(work_is_divided_among_devices_that_work_at_a_time)
{
    struct cp_case one = large_case(1), two = large_case(2), eight = large_case(8);
    struct device_rates machine = cores(4);
    double alone_ns = (double)time_bounds_case_ns(&machine, &one);
    ck_assert_double_eq_tol((double)time_bounds_case_ns(&machine, &two), alone_ns / 2, 1);
    ck_assert_double_eq_tol((double)time_bounds_case_ns(&machine, &eight), alone_ns / 4, 1);
    machine = cores(1);
    ck_assert_double_eq_tol((double)time_bounds_case_ns(&machine, &eight), alone_ns, 1);
}
END_TEST

START_TEST(every_kind_of_work_counts)
{
    struct device_rates machine = cores(1);
    struct cp_case c = large_case(1), less = c;
    uint64_t all_ns = time_bounds_case_ns(&machine, &c);
    less.verify = VERIFY_OFF;
    ck_assert_uint_gt(all_ns, time_bounds_case_ns(&machine, &less));
    all_ns = time_bounds_case_ns(&machine, &less);
    less.training = false;
    ck_assert_uint_gt(all_ns, time_bounds_case_ns(&machine, &less));
    // With a narrow window the drawing of inputs remains.
    less.window_left = 0;
    ck_assert_double_gt((double)time_bounds_case_ns(&machine, &less),
                        3.0 * 2 * 16384 * 8 * 128 / machine.drawn * 1e9);
}
END_TEST

START_TEST(an_unknown_gpu_counts_as_fast)
{
    struct cp_case c = large_case(1);
    static const char *const archs[] = {"sm_80", "sm_86",  "sm_87",  "sm_89",
                                        "sm_90", "sm_100", "sm_103", "sm_120"};
    struct device_rates unknown = gpus(1, "sm_999");
    uint64_t least_ns = time_bounds_case_ns(&unknown, &c);
    ck_assert_uint_gt(least_ns, 0);
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        struct device_rates known = gpus(1, archs[i]);
        ck_assert_uint_gt(time_bounds_case_ns(&known, &c), least_ns);
    }
}
END_TEST

START_TEST(the_fastest_of_different_gpus_counts)
{
    struct wire_description d = {.gpu_count = 2};
    struct cp_case c = large_case(2);
    struct device_rates same = gpus(2, "sm_90"), both;
    strcpy(d.gpus[0].arch, "sm_80");
    strcpy(d.gpus[1].arch, "sm_90");
    both = time_bounds_rates(&d, 1);
    ck_assert_uint_eq(time_bounds_case_ns(&both, &c), time_bounds_case_ns(&same, &c));
}
END_TEST

START_TEST(bounds_are_within_the_cores_limit)
{
    struct device_rates machine = cores(64);
    struct cp_case c = cases_usual();
    c.batch = BATCH_MAX;
    c.heads = c.kv_heads = HEADS_MAX;
    c.seqlen_q = c.seqlen_kv = SEQLEN_MAX;
    ck_assert_uint_eq(time_bounds_case_ns(&machine, &c), CORE_COST_MAX_NS);
    c.seqlen_q = c.seqlen_kv = 0;
    ck_assert_uint_eq(time_bounds_case_ns(&machine, &c), 0);
}
END_TEST

#define LOOP(tcase, test, table)                                                                   \
    tcase_add_loop_test(tcase, test, 0, (int)(sizeof(table) / sizeof((table)[0])))

int main(void)
{
    Suite *suite = suite_create("time_bounds");
    TCase *measured = tcase_create("measured"), *parts = tcase_create("parts");
    LOOP(measured, no_kernel_beats_the_bound, kernels);
    LOOP(measured, no_run_beats_the_bound, runs);
    tcase_add_test(measured, no_small_case_beats_the_bound);
    suite_add_tcase(suite, measured);
    tcase_add_test(parts, work_is_divided_among_devices_that_work_at_a_time);
    tcase_add_loop_test(parts, other_hosts_lower_the_bound, 0, 2);
    tcase_add_test(parts, every_kind_of_work_counts);
    tcase_add_test(parts, an_unknown_gpu_counts_as_fast);
    tcase_add_test(parts, the_fastest_of_different_gpus_counts);
    tcase_add_test(parts, bounds_are_within_the_cores_limit);
    suite_add_tcase(suite, parts);
    return runner_run(suite);
}

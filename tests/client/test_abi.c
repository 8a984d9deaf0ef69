// SPDX-License-Identifier: Apache-2.0
// Binary compatibility of the public headers: members keep their offsets, and numbers keep their
// meaning. A new member is added at the end of its struct and to this list. For 64-bit machines;
// others skip the test.
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "check/cpattn_check.h"
#include "client/cpattn_watch.h"
#include "guest/cpattn_guest.h"
#include "tests/support/runner.h"

#define AT(type, member, offset)                                                                   \
    {                                                                                              \
#type "." #member, offsetof(struct type, member), offset                                   \
    }

static const struct place {
    const char *name;
    size_t found, promised;
} places[] = {
    AT(cpattn_error, status, 0),
    AT(cpattn_error, text, 4),
    AT(cpattn_result, verdict, 0),
    AT(cpattn_result, world_size, 4),
    AT(cpattn_result, digest, 8),
    AT(cpattn_result, queue_ns, 16),
    AT(cpattn_result, start_ns, 24),
    AT(cpattn_result, run_ns, 32),
    AT(cpattn_result, total_ns, 40),
    AT(cpattn_rank, rank, 0),
    AT(cpattn_rank, pass, 4),
    AT(cpattn_rank, figures_count, 8),
    AT(cpattn_rank, digest, 16),
    AT(cpattn_rank, flops, 24),
    AT(cpattn_rank, plan_ns, 32),
    AT(cpattn_rank, inputs_ns, 40),
    AT(cpattn_rank, forward_ns, 48),
    AT(cpattn_rank, backward_ns, 56),
    AT(cpattn_rank, exchange_ns, 64),
    AT(cpattn_rank, exposed_ns, 72),
    AT(cpattn_rank, reference_ns, 80),
    AT(cpattn_rank, compare_ns, 88),
    AT(cpattn_rank, diagnosis, 96),
    AT(cpattn_rank, diagnosis_tensor, 104),
    AT(cpattn_rank, diagnosis_explained, 112),
    AT(cpattn_rank, own_forward, 120),
    AT(cpattn_rank, own_backward, 124),
    AT(cpattn_rank, provider_forward, 128),
    AT(cpattn_rank, provider_backward, 132),
    AT(cpattn_rank, provider_reason, 136),
    AT(cpattn_rank, launch_ns, 144),
    AT(cpattn_rank, operations, 152),
    AT(cpattn_rank, operation_times_count, 156),
    AT(cpattn_rank, operations_begin_ns, 160),
    AT(cpattn_rank, operation_times, 168),
    AT(cpattn_operation_time, start_ns, 0),
    AT(cpattn_operation_time, end_ns, 8),
    AT(cpattn_element, sequence, 0),
    AT(cpattn_element, head, 4),
    AT(cpattn_element, dim, 8),
    AT(cpattn_element, position, 16),
    AT(cpattn_figures, tensor, 0),
    AT(cpattn_figures, chunk, 8),
    AT(cpattn_figures, broken, 12),
    AT(cpattn_figures, elements, 16),
    AT(cpattn_figures, mismatches, 24),
    AT(cpattn_figures, nonfinite, 32),
    AT(cpattn_figures, rmse_rel, 40),
    AT(cpattn_figures, rmse_limit, 48),
    AT(cpattn_figures, max_abs, 56),
    AT(cpattn_figures, worst_element, 64),
    AT(cpattn_figures, worst_row_rel, 72),
    AT(cpattn_figures, worst_row_limit, 80),
    AT(cpattn_figures, worst_row, 88),
    AT(cpattn_figures, first_bad, 112),
    AT(cpattn_figures, first_bad_got, 136),
    AT(cpattn_figures, first_bad_expected, 144),
    AT(cpattn_figures, twin_rel, 152),
    AT(cpattn_figures, slope, 160),
    AT(cpattn_figures, slope_limit, 168),
    AT(cpattn_figures, judged, 176),
    AT(cpattn_figures, te_mismatches, 184),
    AT(cpattn_figures, remark, 192),
    AT(cpattn_failure, rank, 0),
    AT(cpattn_failure, culprit, 4),
    AT(cpattn_failure, phase, 8),
    AT(cpattn_failure, step, 16),
    AT(cpattn_failure, waiting_for, 20),
    AT(cpattn_failure, state, 24),
    AT(cpattn_failure, fate, 32),
    AT(cpattn_failure, text, 40),
    AT(cpattn_failure, stderr_tail, 48),
    AT(cpattn_options, size, 0),
    AT(cpattn_options, socket, 8),
    AT(cpattn_options, connect_timeout_ns, 16),
    AT(cpattn_options, grace_ns, 24),
    AT(cpattn_options, requests_max, 32),
    AT(cpattn_options, token_file, 40),
    AT(cpattn_options, tls_ca, 48),
    AT(cpattn_options, tls_certificate, 56),
    AT(cpattn_options, tls_key, 64),
    AT(cpattn_options, patience_ns, 72),
    AT(cpattn_options, cancel_on_disconnect, 80),
    AT(cpattn_description, version, 0),
    AT(cpattn_description, backend, 8),
    AT(cpattn_description, devices, 16),
    AT(cpattn_description, world_size_max, 20),
    AT(cpattn_description, memory_bytes_max, 24),
    AT(cpattn_description, timeout_default_ns, 32),
    AT(cpattn_description, timeout_max_ns, 40),
    AT(cpattn_description, queue_max, 48),
    AT(cpattn_description, gpu_count, 52),
    AT(cpattn_description, provider_count, 56),
    AT(cpattn_provider_entry, name, 0),
    AT(cpattn_provider_entry, file, 8),
    AT(cpattn_provider_entry, about, 16),
    AT(cpattn_provider_entry, trouble, 24),
    AT(cpattn_description, guest_count, 60),
    AT(cpattn_implementation, name, 0),
    AT(cpattn_implementation, world_sizes, 8),
    AT(cpattn_implementation, supports, 16),
    AT(cpattn_gpu, index, 0),
    AT(cpattn_gpu, arch, 8),
    AT(cpattn_gpu, memory_bytes, 16),
    AT(cpattn_gpu, name, 24),
    AT(cpattn_daemon_status, uptime_ns, 0),
    AT(cpattn_daemon_status, queued, 8),
    AT(cpattn_daemon_status, running, 12),
    AT(cpattn_daemon_status, admitted, 16),
    AT(cpattn_daemon_status, passed, 24),
    AT(cpattn_daemon_status, failed, 32),
    AT(cpattn_daemon_status, errors, 40),
    AT(cpattn_daemon_status, refused, 48),
    AT(cpattn_daemon_status, unverified, 72),
    AT(cpattn_daemon_status, devices_out, 80),
    AT(cpattn_daemon_status, loop_lag_max_ns, 88),
    AT(cpattn_daemon_status, loop_lag_p99_ns, 96),
    AT(cpattn_daemon_status, host_count, 104),
    AT(cpattn_host, name, 0),
    AT(cpattn_host, state, 8),
    AT(cpattn_host, devices, 16),
    AT(cpattn_host, devices_out, 24),
    AT(cpattn_host, devices_stuck, 32),
    AT(cpattn_daemon_status, draining, 56),
    AT(cpattn_daemon_status, pool_count, 60),
    AT(cpattn_daemon_status, request_count, 64),
    AT(cpattn_open_request, id, 0),
    AT(cpattn_open_request, user, 8),
    AT(cpattn_open_request, implementation, 16),
    AT(cpattn_open_request, case_text, 24),
    AT(cpattn_open_request, phase, 32),
    AT(cpattn_open_request, step, 40),
    AT(cpattn_open_request, world_size, 44),
    AT(cpattn_open_request, running, 48),
    AT(cpattn_open_request, age_ns, 56),
    AT(cpattn_open_request, run_ns, 64),
    AT(cpattn_open_request, rank_count, 72),
    AT(cpattn_open_request, ranks, 80),
    AT(cpattn_rank_place, phase, 0),
    AT(cpattn_rank_place, step, 8),
    AT(cpattn_pool, world_size, 0),
    AT(cpattn_pool, instance, 4),
    AT(cpattn_pool, state, 8),
    AT(cpattn_pool, generation, 16),
    AT(cpattn_pool, jobs, 24),
    AT(cpattn_pool, deaths, 32),
    AT(cpattn_pool, last_failure, 40),
    AT(cpattn_pool, devices, 48),
    AT(cpattn_pool, spare, 56),
    AT(cpattn_pool, implementation, 64),
    AT(cpattn_pool, hosts, 72),
    AT(cpattn_pool, exchange, 80),
    AT(cpattn_event, number, 0),
    AT(cpattn_event, lost, 8),
    AT(cpattn_event, time_ns, 16),
    AT(cpattn_event, kind, 24),
    AT(cpattn_event, restarted, 28),
    AT(cpattn_event, spare, 29),
    AT(cpattn_event, world_size, 32),
    AT(cpattn_event, instance, 36),
    AT(cpattn_event, generation, 40),
    AT(cpattn_event, implementation, 48),
    AT(cpattn_event, id, 56),
    AT(cpattn_event, user, 64),
    AT(cpattn_event, case_text, 72),
    AT(cpattn_event, verdict, 80),
    AT(cpattn_event, code, 84),
    AT(cpattn_event, queue_ns, 88),
    AT(cpattn_event, start_ns, 96),
    AT(cpattn_event, run_ns, 104),
    AT(cpattn_event, total_ns, 112),
    AT(cpattn_event, state, 120),
    AT(cpattn_event, devices, 128),
    AT(cpattn_event, text, 136),
    AT(cpattn_tensors, size, 0),
    AT(cpattn_tensors, q, 8),
    AT(cpattn_tensors, k, 16),
    AT(cpattn_tensors, v, 24),
    AT(cpattn_tensors, d_out, 32),
    AT(cpattn_tensors, bias, 40),
    AT(cpattn_tensors, sink, 48),
    AT(cpattn_tensors, out, 56),
    AT(cpattn_tensors, lse, 64),
    AT(cpattn_tensors, dq, 72),
    AT(cpattn_tensors, dk, 80),
    AT(cpattn_tensors, dv, 88),
    AT(cpattn_tensors, dbias, 96),
    AT(cpattn_tensors, dsink, 104),
    AT(cpattn_tensors, max_logit, 112),
    AT(cpattn_array, data, 0),
    AT(cpattn_array, row_stride, 8),
    AT(cpattn_array, head_stride, 16),
    AT(cpattn_array, inner_rows, 24),
    AT(cpattn_array, outer_stride, 32),
    AT(cpattn_shape, rows, 0),
    AT(cpattn_shape, heads, 8),
    AT(cpattn_shape, dim, 12),
    AT(cpattn_check_tensor, name, 0),
    AT(cpattn_check_tensor, dtype, 8),
    AT(cpattn_check_tensor, is_result, 16),
    AT(cpattn_check_tensor, dims, 20),
    AT(cpattn_check_tensor, shape, 24),
    AT(cpattn_check_tensor, bytes, 40),
    AT(cpattn_check_buffer, tensor, 0),
    AT(cpattn_check_buffer, data, 8),
    AT(cpattn_check_buffer, bytes, 16),
    AT(cpattn_guest, start, 0),
    AT(cpattn_guest, attend, 8),
    AT(cpattn_guest, context, 16),
    AT(cpattn_guest_place, rank, 0),
    AT(cpattn_guest_place, world_size, 4),
    AT(cpattn_guest_place, device, 8),
    AT(cpattn_guest_place, port, 12),
    AT(cpattn_guest_place, listener, 16),
    AT(cpattn_guest_tensor, data, 0),
    AT(cpattn_guest_tensor, dtype, 8),
    AT(cpattn_guest_tensor, dims, 12),
    AT(cpattn_guest_tensor, shape, 16),
    AT(cpattn_guest_tensor, strides, 48),
    AT(cpattn_guest_tensor, bytes, 80),
};

START_TEST(members_stay_where_they_are)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        ck_assert_msg(places[i].found == places[i].promised, "%s is at %zu; programs look at %zu",
                      places[i].name, places[i].found, places[i].promised);
}
END_TEST

START_TEST(structs_of_the_caller_keep_their_size)
{
    ck_assert_uint_eq(sizeof(struct cpattn_error), 516);
    ck_assert_uint_eq(sizeof(struct cpattn_element), 24);
    ck_assert_uint_eq(sizeof(struct cpattn_rank_place), 16);
    ck_assert_uint_eq(sizeof(struct cpattn_operation_time), 16);
    ck_assert_uint_eq(sizeof(struct cpattn_array), 40);
    ck_assert_uint_eq(sizeof(struct cpattn_shape), 16);
    ck_assert_uint_eq(sizeof(struct cpattn_check_tensor), 48);
    ck_assert_uint_eq(sizeof(struct cpattn_check_buffer), 24);
    ck_assert_uint_eq(sizeof(struct cpattn_guest), 24);
    ck_assert_uint_eq(sizeof(struct cpattn_guest_tensor), 88);
}
END_TEST

START_TEST(numbers_keep_their_meaning)
{
    static const int statuses[] = {CPATTN_OK,
                                   CPATTN_CANCELLED,
                                   CPATTN_UNKNOWN,
                                   CPATTN_INVALID_ARGUMENT,
                                   CPATTN_DEADLINE_EXCEEDED,
                                   CPATTN_NOT_FOUND,
                                   CPATTN_ALREADY_EXISTS,
                                   CPATTN_PERMISSION_DENIED,
                                   CPATTN_RESOURCE_EXHAUSTED,
                                   CPATTN_FAILED_PRECONDITION,
                                   CPATTN_ABORTED,
                                   CPATTN_OUT_OF_RANGE,
                                   CPATTN_UNIMPLEMENTED,
                                   CPATTN_INTERNAL,
                                   CPATTN_UNAVAILABLE,
                                   CPATTN_DATA_LOSS,
                                   CPATTN_UNAUTHENTICATED};
    static const int kinds[] = {CPATTN_FIELD_TEXT, CPATTN_FIELD_CHOICE, CPATTN_FIELD_INT,
                                CPATTN_FIELD_UINT, CPATTN_FIELD_REAL,   CPATTN_FIELD_BOOL,
                                CPATTN_FIELD_LIST};
    static const int verdicts[] = {CPATTN_VERDICT_NONE, CPATTN_VERDICT_PASS, CPATTN_VERDICT_FAIL,
                                   CPATTN_VERDICT_UNVERIFIED};
    static const int rules[] = {CPATTN_RULE_ELEMENT,   CPATTN_RULE_RMSE,    CPATTN_RULE_ROW,
                                CPATTN_RULE_NONFINITE, CPATTN_RULE_PADDING, CPATTN_RULE_SLOPE,
                                CPATTN_RULE_ZERO};
    static const int events[] = {CPATTN_EVENT_ADMITTED, CPATTN_EVENT_STARTED, CPATTN_EVENT_FINISHED,
                                 CPATTN_EVENT_POOL,     CPATTN_EVENT_DEVICE,  CPATTN_EVENT_DAEMON};
    static const int tensors[] = {CPATTN_TENSOR_Q,     CPATTN_TENSOR_K,        CPATTN_TENSOR_V,
                                  CPATTN_TENSOR_DO,    CPATTN_TENSOR_OUT,      CPATTN_TENSOR_LSE,
                                  CPATTN_TENSOR_DQ,    CPATTN_TENSOR_DK,       CPATTN_TENSOR_DV,
                                  CPATTN_TENSOR_BIAS,  CPATTN_TENSOR_SINK,     CPATTN_TENSOR_DBIAS,
                                  CPATTN_TENSOR_DSINK, CPATTN_TENSOR_MAX_LOGIT};
    static const int dtypes[] = {CPATTN_GUEST_BF16,  CPATTN_GUEST_FP16,  CPATTN_GUEST_FP32,
                                 CPATTN_GUEST_INT32, CPATTN_GUEST_INT64, CPATTN_GUEST_UINT8};
    for (int i = 0; i < 14; i++)
        ck_assert_int_eq(tensors[i], i);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(dtypes[i], i + 1);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(events[i], i + 1);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(statuses[i], i);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(kinds[i], i + 1);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(verdicts[i], i);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(rules[i], 1 << i);
    ck_assert_int_eq(CPATTN_REMARK_NONE, 0);
    ck_assert_int_eq(CPATTN_REMARK_LONG_SUM, 1);
    ck_assert_int_eq(CPATTN_REMARK_ZEROS_PASS, 2);
    ck_assert_int_eq(CPATTN_CHUNK_PADDING, 2);
}
END_TEST

int main(void)
{
    if (sizeof(void *) != 8) {
        printf("1..0 # SKIP the offsets are those of 64-bit machines\n");
        return 77;
    }
    Suite *suite = suite_create("abi");
    TCase *all = tcase_create("abi");
    tcase_add_test(all, members_stay_where_they_are);
    tcase_add_test(all, structs_of_the_caller_keep_their_size);
    tcase_add_test(all, numbers_keep_their_meaning);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}

// SPDX-License-Identifier: Apache-2.0
#include "proto/schema.h"

#include "proto/wire.h"

#define MEMBER(type, field, map_kind)                                                              \
    .name = #field, .kind = map_kind, .offset = offsetof(struct type, field),                      \
    .size = sizeof(((struct type *)NULL)->field)

#define INT(type, field, low, high)                                                                \
    {                                                                                              \
        MEMBER(type, field, MAP_INT), .min = low, .max = high                                      \
    }
#define UINT(type, field)                                                                          \
    {                                                                                              \
        MEMBER(type, field, MAP_UINT)                                                              \
    }
#define REAL(type, field)                                                                          \
    {                                                                                              \
        MEMBER(type, field, MAP_REAL)                                                              \
    }
#define BOOL(type, field)                                                                          \
    {                                                                                              \
        MEMBER(type, field, MAP_BOOL)                                                              \
    }
#define CHAR(type, field)                                                                          \
    {                                                                                              \
        MEMBER(type, field, MAP_CHAR)                                                              \
    }
#define TEXT(type, field)                                                                          \
    {                                                                                              \
        MEMBER(type, field, MAP_TEXT)                                                              \
    }
#define LINES(type, field)                                                                         \
    {                                                                                              \
        MEMBER(type, field, MAP_LINES)                                                             \
    }
#define ENUM(type, field, low, high, by)                                                           \
    {                                                                                              \
        MEMBER(type, field, MAP_ENUM), .min = low, .max = high, .shift = by                        \
    }
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

const struct map_field schema_rank_state[] = {
    INT(wire_rank_state, rank, 0, WORLD_SIZE_MAX - 1),
    BOOL(wire_rank_state, culprit),
    ENUM(wire_rank_state, phase, REPORT_IDLE, REPORT_PHASES - 1, 1),
    INT(wire_rank_state, step, 0, INT32_MAX),
    INT(wire_rank_state, waiting_for, -1, WORLD_SIZE_MAX - 1),
    CHAR(wire_rank_state, state),
    TEXT(wire_rank_state, fate),
    TEXT(wire_rank_state, text),
    LINES(wire_rank_state, stderr_tail),
    END,
};

const struct map_field schema_result[] = {
    ENUM(wire_result, verdict, VERDICT_PASS, VERDICT_UNVERIFIED, 0),
    UINT(wire_result, digest),
    UINT(wire_result, queue_ns),
    UINT(wire_result, start_ns),
    UINT(wire_result, run_ns),
    UINT(wire_result, total_ns),
    END,
};

const struct map_field schema_rank[] = {
    INT(rank_report, rank, 0, WORLD_SIZE_MAX - 1),
    BOOL(rank_report, pass),
    REAL(rank_report, flops),
    INT(rank_report, operations, 0, INT32_MAX),
    UINT(rank_report, digest),
    END,
};

const struct map_field schema_timings[] = {
    UINT(timings, plan_ns),      UINT(timings, inputs_ns),
    UINT(timings, forward_ns),   UINT(timings, backward_ns),
    UINT(timings, exchange_ns),  UINT(timings, exposed_ns),
    UINT(timings, reference_ns), UINT(timings, compare_ns),
    UINT(timings, launch_ns),    END,
};

const struct map_field schema_tensor[] = {
    ENUM(figures, tensor, TENSOR_OUT, TENSOR_COUNT - 1, 0),
    END,
};

const struct map_field schema_tensor_name[] = {
    TEXT(figures, name),
    END,
};

const struct map_field schema_figures[] = {
    INT(figures, chunk, 0, CHUNK_PADDING),
    INT(figures, broken, 0, RULES_ALL),
    INT(figures, elements, 0, INT64_MAX),
    INT(figures, mismatches, 0, INT64_MAX),
    INT(figures, nonfinite, 0, INT64_MAX),
    REAL(figures, rmse_rel),
    REAL(figures, rmse_limit),
    REAL(figures, max_abs),
    REAL(figures, worst_element),
    REAL(figures, worst_row_rel),
    REAL(figures, worst_row_limit),
    REAL(figures, first_bad_got),
    REAL(figures, first_bad_expected),
    REAL(figures, twin_rel),
    REAL(figures, slope),
    REAL(figures, slope_limit),
    INT(figures, judged, 0, INT64_MAX),
    INT(figures, te_mismatches, 0, INT64_MAX),
    ENUM(figures, remark, REMARK_NONE, REMARK_COUNT - 1, 0),
    END,
};

const struct map_field schema_diagnosis_tensor[] = {
    ENUM(diagnosis, tensor, TENSOR_OUT, TENSOR_COUNT - 1, 0),
    END,
};

const struct map_field schema_diagnosis_name[] = {
    TEXT(diagnosis, name),
    END,
};

const struct map_field schema_diagnosis[] = {
    TEXT(diagnosis, text),
    REAL(diagnosis, explained),
    END,
};

const struct map_field schema_use[] = {
    INT(provider_use, own_forward, 0, INT32_MAX),
    INT(provider_use, own_backward, 0, INT32_MAX),
    INT(provider_use, provider_forward, 0, INT32_MAX),
    INT(provider_use, provider_backward, 0, INT32_MAX),
    TEXT(provider_use, reason),
    END,
};

const struct map_field schema_op_times[] = {
    UINT(op_times, begin_ns),
    END,
};

// All members are -1 if there is no such element.
const struct map_field schema_element[] = {
    INT(element, sequence, -1, BATCH_MAX - 1),  INT(element, head, -1, HEADS_MAX - 1),
    INT(element, dim, -1, SEQLEN_MAX - 1), // a key, of dbias
    INT(element, position, -1, SEQLEN_MAX - 1), END,
};

const struct map_field schema_description[] = {
    TEXT(wire_description, version),
    TEXT(wire_description, backend),
    INT(wire_description, devices, 0, INT32_MAX),
    INT(wire_description, world_size_max, 0, INT32_MAX),
    INT(wire_description, memory_bytes_max, 0, INT64_MAX),
    UINT(wire_description, timeout_default_ns),
    UINT(wire_description, timeout_max_ns),
    INT(wire_description, queue_max, 0, INT32_MAX),
    END,
};

const struct map_field schema_device[] = {
    INT(wire_device, index, 0, DEVICES_MAX - 1),
    TEXT(wire_device, arch),
    INT(wire_device, memory_bytes, 1, INT64_MAX),
    TEXT(wire_device, name),
    END,
};

const struct map_field schema_provider[] = {
    TEXT(wire_provider, name),
    TEXT(wire_provider, file),
    TEXT(wire_provider, about),
    TEXT(wire_provider, trouble),
    END,
};

const struct map_field schema_guest[] = {
    TEXT(wire_guest, name),
    UINT(wire_guest, world_sizes),
    TEXT(wire_guest, supports),
    END,
};

const struct map_field schema_status[] = {
    UINT(wire_status, uptime_ns),
    INT(wire_status, queued, 0, INT32_MAX),
    INT(wire_status, running, 0, INT32_MAX),
    UINT(wire_status, admitted),
    UINT(wire_status, passed),
    UINT(wire_status, failed),
    UINT(wire_status, errors),
    UINT(wire_status, refused),
    BOOL(wire_status, draining),
    UINT(wire_status, unverified),
    UINT(wire_status, devices_out),
    UINT(wire_status, loop_lag_max_ns),
    UINT(wire_status, loop_lag_p99_ns),
    END,
};

const struct map_field schema_pool[] = {
    TEXT(wire_pool, implementation),
    INT(wire_pool, world_size, 1, WORLD_SIZE_MAX),
    INT(wire_pool, instance, 0, INT32_MAX),
    ENUM(wire_pool, state, POOL_STARTING, POOL_STUCK, 0),
    UINT(wire_pool, generation),
    UINT(wire_pool, jobs),
    UINT(wire_pool, deaths),
    UINT(wire_pool, devices),
    UINT(wire_pool, hosts),
    BOOL(wire_pool, spare),
    TEXT(wire_pool, last_failure),
    TEXT(wire_pool, exchange),
    END,
};

const struct map_field schema_host[] = {
    TEXT(wire_host, name), INT(wire_host, devices, 1, DEVICES_MAX), UINT(wire_host, devices_out),
    BOOL(wire_host, lost), UINT(wire_host, devices_stuck),          END,
};

const struct map_field schema_open[] = {
    TEXT(wire_open_request, id),
    TEXT(wire_open_request, user),
    TEXT(wire_open_request, implementation),
    TEXT(wire_open_request, case_text),
    TEXT(wire_open_request, phase),
    INT(wire_open_request, world_size, 1, WORLD_SIZE_MAX),
    INT(wire_open_request, step, 0, INT32_MAX),
    BOOL(wire_open_request, running),
    UINT(wire_open_request, age_ns),
    UINT(wire_open_request, run_ns),
    END,
};

// Phases have the numbers of the protocol's enum Phase: enum report_phase plus 1.
const struct map_field schema_rank_phases = {
    .name = "rank_phases", .kind = MAP_LIST, .min = REPORT_IDLE + 1, .max = REPORT_PHASES};
const struct map_field schema_rank_steps = {
    .name = "rank_steps", .kind = MAP_LIST, .min = 0, .max = INT32_MAX};

const struct map_field schema_watch[] = {
    UINT(wire_watch, stream),  UINT(wire_watch, after), INT(wire_watch, recent, 0, EVENTS_KEPT),
    UINT(wire_watch, wait_ns), UINT(wire_watch, kinds), END,
};

const struct map_field schema_events[] = {
    UINT(wire_events, stream),
    UINT(wire_events, last),
    UINT(wire_events, lost),
    END,
};

const struct map_field schema_event[] = {
    UINT(wire_event, number),
    UINT(wire_event, time_ns),
    ENUM(wire_event, kind, EVENT_ADMITTED, EVENT_DAEMON, 0),
    TEXT(wire_event, implementation),
    INT(wire_event, world_size, 0, WORLD_SIZE_MAX),
    INT(wire_event, instance, 0, INT32_MAX),
    UINT(wire_event, generation),
    TEXT(wire_event, id),
    TEXT(wire_event, user),
    TEXT(wire_event, case_text),
    ENUM(wire_event, verdict, 0, VERDICT_UNVERIFIED, 0),
    ENUM(wire_event, code, STATUS_OK, STATUS_COUNT - 1, 0),
    UINT(wire_event, queue_ns),
    UINT(wire_event, start_ns),
    UINT(wire_event, run_ns),
    UINT(wire_event, total_ns),
    ENUM(wire_event, pool, 0, POOL_STUCK, 0),
    ENUM(wire_event, device, 0, DEVICE_STUCK, 0),
    UINT(wire_event, devices),
    BOOL(wire_event, spare),
    TEXT(wire_event, text),
    END,
};

static enum map_kind case_kind(enum case_field_kind kind)
{
    switch (kind) {
    case FIELD_TEXT:
        return MAP_TEXT;
    case FIELD_CHOICE:
        return MAP_ENUM;
    case FIELD_INT:
        return MAP_INT;
    case FIELD_UINT:
        return MAP_UINT;
    case FIELD_REAL:
        return MAP_REAL;
    case FIELD_LIST:
        return MAP_LIST;
    case FIELD_BOOL:
        break;
    }
    return MAP_BOOL;
}

struct map_field schema_case_field(const struct case_field *field)
{
    bool choice = field->kind == FIELD_CHOICE;
    return (struct map_field){
        .name = field->name,
        .kind = case_kind(field->kind),
        .offset = field->offset,
        .size = field->size,
        .min = choice ? INT32_MIN : field->min,
        .max = choice ? INT32_MAX : field->max,
    };
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/wire_samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t sample_bits(struct sample *s)
{
    uint64_t z = s->state += UINT64_C(0x9e3779b97f4a7c15); // splitmix64
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// Both ends of the range are frequent.
int64_t sample_range(struct sample *s, int64_t min, int64_t max)
{
    uint64_t width = (uint64_t)max - (uint64_t)min;
    switch (sample_bits(s) % 8) {
    case 0:
        return min;
    case 1:
        return max;
    default:
        return width == UINT64_MAX ? (int64_t)sample_bits(s)
                                   : (int64_t)((uint64_t)min + sample_bits(s) % (width + 1));
    }
}

// Never -0: the protocol does not distinguish it from 0.
static double sample_real(struct sample *s)
{
    static const double special[] = {0, INFINITY, -INFINITY, NAN, 5e-324, 1.7e308};
    uint64_t pick = sample_bits(s) % 16;
    if (pick < sizeof special / sizeof special[0])
        return special[pick];
    return ldexp((double)(int64_t)sample_bits(s), (int)sample_range(s, -80, 20));
}

static void sample_text(struct sample *s, char *text, size_t size, bool lines)
{
    size_t length = (size_t)sample_range(s, 0, (int64_t)size - 1);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)sample_range(s, ' ', '~');
    for (size_t i = 9; lines && i < length; i += 10)
        text[i] = i % 20 == 9 ? '\n' : '\t';
    memset(text + length, 0, size - length);
}

void sample_id(struct sample *s, struct request_id *id)
{
    for (size_t i = 0; i < sizeof id->bytes; i++)
        id->bytes[i] = (uint8_t)sample_range(s, 1, 255);
}

// ---- cases --------------------------------------------------------------------------------------

static void set_int(struct cp_case *c, const struct case_field *field, int64_t value)
{
    int32_t narrow = (int32_t)value;
    char *member = (char *)c + field->offset;
    memcpy(member, field->size == sizeof narrow ? (void *)&narrow : (void *)&value, field->size);
}

static int sample_choice(struct sample *s, const struct case_choice *choices)
{
    int count = 0;
    while (choices[count].name)
        count++;
    return choices[sample_range(s, 0, count - 1)].value;
}

static void sample_field(struct sample *s, struct cp_case *c, const struct case_field *field)
{
    char *member = (char *)c + field->offset;
    uint64_t bits = sample_bits(s);
    double part = (double)sample_range(s, 0, 4096) / 4096;
    double real = field->real_min + part * (field->real_max - field->real_min);
    switch (field->kind) {
    case FIELD_TEXT:
        sample_text(s, member, field->size, false);
        return;
    case FIELD_CHOICE:
        set_int(c, field, sample_choice(s, field->choices));
        return;
    case FIELD_INT:
        set_int(c, field, sample_range(s, field->min, field->max));
        return;
    case FIELD_UINT:
        memcpy(member, &bits, sizeof bits);
        return;
    case FIELD_REAL:
        memcpy(member, &real, sizeof real);
        return;
    case FIELD_BOOL:
        *(bool *)member = bits & 1;
        return;
    case FIELD_LIST: // sample_lists()
        return;
    }
}

// Half of the cases have lists, some of the maximum length.
static void sample_lists(struct sample *s, struct cp_case *c)
{
    int32_t values[SEQUENCES_MAX];
    if (sample_bits(s) & 1)
        return;
    c->batch = (int32_t)sample_range(s, 1, sample_bits(s) % 32 ? 4 : SEQUENCES_MAX);
    for (int list = 0; list < CASE_LISTS; list++) {
        bool padded = list == LIST_PADDED_Q || list == LIST_PADDED_KV;
        enum shard_side side = list == LIST_LENGTHS_Q || list == LIST_PADDED_Q ? SIDE_Q : SIDE_KV;
        if (sample_bits(s) & 1 || (padded && c->format != FORMAT_THD))
            continue;
        for (int i = 0; i < c->batch; i++)
            values[i] =
                (int32_t)(padded ? case_length(c, side, i) + sample_range(s, 0, 9)
                                 : sample_range(s, 0, side == SIDE_Q ? c->seqlen_q : c->seqlen_kv));
        case_list_set(c, (enum case_list)list, values, c->batch);
    }
}

void sample_case(struct sample *s, struct cp_case *c)
{
    do {
        memset(c, 0, sizeof *c);
        for (const struct case_field *field = case_fields(); field->name; field++)
            sample_field(s, c, field);
        c->kv_heads = (int32_t)sample_range(s, 1, 64);
        c->heads = c->kv_heads * (int32_t)sample_range(s, 1, 64);
        c->seqlen_q >>= 8; // longer sequences are refused for lack of memory
        c->seqlen_kv >>= 8;
        if (c->comm != COMM_A2A_P2P)
            c->a2a_size = 2;
        else
            c->world_size = c->a2a_size * (int32_t)sample_range(s, 1, 4);
        c->ranks_per_node = c->nodes % 3 ? 0 : c->ranks_per_node;
        c->nodes = c->nodes % 2 && c->world_size % c->nodes == 0 ? c->nodes : 0;
        if (c->ranks_per_node)
            c->ranks_per_node = c->nodes ? c->world_size / c->nodes : 1;
        if (c->format != FORMAT_THD)
            c->pad_multiple = 1;
        if (sample_bits(s) & 1) {
            memset(c->implementation, 0, sizeof c->implementation);
        } else {
            c->bias = BIAS_NONE;
            c->explore_seed = 0;
            memset(c->provider, 0, sizeof c->provider);
            c->provider_fallback = false;
        }
        if (c->implementation[0] || c->provider[0])
            c->graph = false;
        if (c->implementation[0] || c->graph)
            c->operation_times = false;
        sample_lists(s, c);
        if (case_is_causal(c))
            c->window_right = sample_range(s, -1, 0);
    } while (case_check(c, NULL) != STATUS_OK);
}

void sample_job(struct sample *s, struct job_text *job)
{
    sample_text(s, job->kind, sizeof job->kind, false);
    job->field_count = (int32_t)sample_range(s, 0, JOB_FIELDS_MAX);
    for (int i = 0; i < job->field_count; i++) {
        sample_text(s, job->fields[i].name, sizeof job->fields[i].name, false);
        sample_text(s, job->fields[i].value, sizeof job->fields[i].value, false);
    }
}

// ---- replies ------------------------------------------------------------------------------------

static void *zeroed(size_t count, size_t size)
{
    void *list = calloc(count, size);
    if (!list)
        abort();
    return list;
}

static void sample_element(struct sample *s, struct element *e)
{
    e->sequence = (int32_t)sample_range(s, -1, BATCH_MAX - 1);
    e->head = (int32_t)sample_range(s, -1, HEADS_MAX - 1);
    e->dim = (int32_t)sample_range(s, -1, HEAD_DIM_MAX - 1);
    e->position = sample_range(s, -1, SEQLEN_MAX - 1);
}

static void sample_figures(struct sample *s, struct figures *f)
{
    f->tensor = (int32_t)sample_range(s, 0, TENSOR_COUNT - 1);
    for (int i = 0; f->tensor == 0 && i < TENSOR_NAME_MAX - 1; i++)
        f->name[i] = (char)sample_range(s, 'a', 'z');
    f->chunk = (int32_t)sample_range(s, 0, CHUNK_PADDING);
    f->broken = (int32_t)sample_range(s, 0, RULES_ALL);
    f->elements = sample_range(s, 0, INT64_MAX);
    f->mismatches = sample_range(s, 0, INT64_MAX);
    f->nonfinite = sample_range(s, 0, INT64_MAX);
    f->rmse_rel = sample_real(s);
    f->rmse_limit = sample_real(s);
    f->max_abs = sample_real(s);
    f->worst_element = sample_real(s);
    f->worst_row_rel = sample_real(s);
    f->worst_row_limit = sample_real(s);
    sample_element(s, &f->worst_row);
    sample_element(s, &f->first_bad);
    f->first_bad_got = sample_real(s);
    f->first_bad_expected = sample_real(s);
    f->twin_rel = sample_real(s);
    f->slope = sample_real(s);
    f->slope_limit = sample_real(s);
    f->judged = sample_range(s, 0, f->elements);
    f->te_mismatches = sample_range(s, 0, INT64_MAX);
    f->remark = (int32_t)sample_range(s, 0, REMARK_COUNT - 1);
}

static void sample_diagnosis(struct sample *s, struct diagnosis *d)
{
    if (sample_bits(s) & 1)
        return;
    d->tensor = (int32_t)sample_range(s, 0, TENSOR_COUNT - 1);
    for (int i = 0; d->tensor == 0 && i < TENSOR_NAME_MAX - 1; i++)
        d->name[i] = (char)sample_range(s, 'a', 'z');
    d->explained = (double)sample_range(s, 0, 4) / 4;
    sample_text(s, d->text, sizeof d->text, false);
    if (!d->text[0])
        d->text[0] = 'd';
}

static void sample_timings(struct sample *s, struct timings *t)
{
    uint64_t *all[] = {&t->plan_ns,      &t->inputs_ns,   &t->forward_ns,
                       &t->backward_ns,  &t->exchange_ns, &t->exposed_ns,
                       &t->reference_ns, &t->compare_ns,  &t->launch_ns};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = sample_bits(s);
}

static void sample_op_times(struct sample *s, struct op_times *times)
{
    times->count = (int32_t)sample_range(s, 0, OP_TIMES_MAX);
    times->begin_ns = times->count > 0 ? sample_bits(s) : 0;
    for (int32_t i = 0; i < times->count; i++) {
        times->list[i].end_ns = sample_bits(s) % (TIMEOUT_MAX_NS + 1);
        times->list[i].start_ns = sample_bits(s) % (times->list[i].end_ns + 1);
    }
}

void sample_result(struct sample *s, int world_size, struct wire_result *r)
{
    r->verdict = (enum wire_verdict)(VERDICT_PASS + sample_bits(s) % 3);
    r->world_size = world_size;
    r->digest = sample_bits(s);
    r->queue_ns = sample_bits(s);
    r->start_ns = sample_bits(s);
    r->run_ns = sample_bits(s);
    r->total_ns = sample_bits(s);
    r->ranks = zeroed((size_t)world_size, sizeof *r->ranks);
    for (int rank = 0; rank < world_size; rank++) {
        struct rank_report *report = &r->ranks[rank];
        report->rank = rank;
        report->pass = sample_bits(s) & 1;
        report->flops = sample_real(s);
        report->operations = (int32_t)sample_range(s, 0, INT32_MAX);
        report->digest = sample_bits(s);
        sample_timings(s, &report->timings);
        sample_diagnosis(s, &report->diagnosis);
        report->figures_count = (int32_t)sample_range(s, 0, REPORT_FIGURES_MAX);
        for (int i = 0; i < report->figures_count; i++)
            sample_figures(s, &report->figures[i]);
        report->use =
            (struct provider_use){.own_forward = (int32_t)sample_range(s, 0, INT32_MAX),
                                  .provider_backward = (int32_t)sample_range(s, 0, INT32_MAX)};
        sample_text(s, report->use.reason, sizeof report->use.reason, false);
        sample_op_times(s, &report->op_times);
    }
}

void sample_failure(struct sample *s, int world_size, struct wire_failure *f)
{
    f->world_size = world_size;
    f->ranks = zeroed((size_t)world_size, sizeof *f->ranks);
    for (int rank = 0; rank < world_size; rank++) {
        struct wire_rank_state *state = &f->ranks[rank];
        state->rank = rank;
        state->culprit = sample_bits(s) & 1;
        state->phase = (int32_t)sample_range(s, 0, REPORT_PHASES - 1);
        state->step = (int32_t)sample_range(s, 0, INT32_MAX);
        state->waiting_for = (int32_t)sample_range(s, -1, WORLD_SIZE_MAX - 1);
        state->state = (char)sample_range(s, ' ', '~');
        sample_text(s, state->fate, sizeof state->fate, false);
        sample_text(s, state->text, sizeof state->text, false);
        sample_text(s, state->stderr_tail, sizeof state->stderr_tail, true);
    }
}

void sample_description(struct sample *s, struct wire_description *d)
{
    sample_text(s, d->version, sizeof d->version, false);
    sample_text(s, d->backend, sizeof d->backend, false);
    d->devices = (int32_t)sample_range(s, 0, INT32_MAX);
    d->world_size_max = (int32_t)sample_range(s, 0, INT32_MAX);
    d->memory_bytes_max = sample_range(s, 0, INT64_MAX);
    d->timeout_default_ns = sample_bits(s);
    d->timeout_max_ns = sample_bits(s);
    d->queue_max = (int32_t)sample_range(s, 0, INT32_MAX);
    d->gpu_count = (int32_t)sample_range(s, 0, 8);
    for (int i = 0; i < d->gpu_count; i++) {
        d->gpus[i].index = (int32_t)sample_range(s, 0, DEVICES_MAX - 1);
        sample_text(s, d->gpus[i].arch, sizeof d->gpus[i].arch, false);
        d->gpus[i].memory_bytes = sample_range(s, 1, INT64_MAX);
        sample_text(s, d->gpus[i].name, sizeof d->gpus[i].name, false);
    }
    d->provider_count = (int32_t)sample_range(s, 0, PROVIDERS_MAX);
    for (int i = 0; i < d->provider_count; i++) {
        sample_text(s, d->providers[i].name, sizeof d->providers[i].name, false);
        sample_text(s, d->providers[i].file, sizeof d->providers[i].file, false);
        sample_text(s, d->providers[i].about, sizeof d->providers[i].about, false);
        sample_text(s, d->providers[i].trouble, sizeof d->providers[i].trouble, false);
    }
    d->guest_count = (int32_t)sample_range(s, 0, GUESTS_MAX);
    for (int i = 0; i < d->guest_count; i++) {
        sample_text(s, d->guests[i].name, sizeof d->guests[i].name, false);
        d->guests[i].world_sizes = sample_bits(s);
        sample_text(s, d->guests[i].supports, sizeof d->guests[i].supports, false);
    }
}

static void sample_pool(struct sample *s, struct wire_pool *pool)
{
    pool->world_size = (int32_t)sample_range(s, 1, WORLD_SIZE_MAX);
    sample_text(s, pool->implementation, sizeof pool->implementation, false);
    pool->instance = (int32_t)sample_range(s, 0, INT32_MAX);
    pool->state = (enum pool_state)sample_range(s, POOL_STARTING, POOL_STUCK);
    pool->generation = (uint32_t)sample_bits(s);
    pool->jobs = sample_bits(s);
    pool->devices = sample_bits(s);
    pool->deaths = sample_bits(s);
    pool->hosts = sample_bits(s);
    pool->spare = sample_bits(s) & 1;
    sample_text(s, pool->last_failure, sizeof pool->last_failure, false);
    sample_text(s, pool->exchange, sizeof pool->exchange, false);
}

static void sample_open(struct sample *s, struct wire_open_request *open)
{
    for (int i = 0; i < 32; i++)
        open->id[i] = "0123456789abcdef"[sample_range(s, 0, 15)];
    strcpy(open->user, "uid=1000 pid=4242");
    strcpy(open->implementation, sample_bits(s) & 1 ? "torch" : "");
    strcpy(open->case_text, "bf16 bshd p2p w2");
    strcpy(open->phase, "backward");
    open->world_size = (int32_t)sample_range(s, 1, WORLD_SIZE_MAX);
    open->step = (int32_t)sample_range(s, 0, INT32_MAX);
    open->running = sample_bits(s) & 1;
    open->age_ns = sample_bits(s);
    open->run_ns = sample_bits(s);
    open->rank_count = open->running ? open->world_size : 0;
    for (int rank = 0; rank < open->rank_count; rank++) {
        open->rank_phases[rank] = (int32_t)sample_range(s, REPORT_IDLE, REPORT_PHASES - 1);
        open->rank_steps[rank] = (int32_t)sample_range(s, 0, INT32_MAX);
    }
}

static void sample_host(struct sample *s, struct wire_host *host)
{
    sample_text(s, host->name, sizeof host->name, false);
    host->devices = (int32_t)sample_range(s, 1, DEVICES_MAX);
    host->devices_out = sample_bits(s);
    host->devices_stuck = sample_bits(s);
    host->lost = sample_bits(s) & 1;
}

void sample_status(struct sample *s, int pools, struct wire_status *status)
{
    status->uptime_ns = sample_bits(s);
    status->queued = (int32_t)sample_range(s, 0, INT32_MAX);
    status->running = (int32_t)sample_range(s, 0, INT32_MAX);
    status->admitted = sample_bits(s);
    status->passed = sample_bits(s);
    status->failed = sample_bits(s);
    status->errors = sample_bits(s);
    status->refused = sample_bits(s);
    status->unverified = sample_bits(s);
    status->devices_out = sample_bits(s);
    status->loop_lag_max_ns = sample_bits(s);
    status->loop_lag_p99_ns = sample_bits(s);
    status->draining = sample_bits(s) & 1;
    status->host_count = pools < HOSTS_MAX ? pools : HOSTS_MAX;
    for (int i = 0; i < status->host_count; i++)
        sample_host(s, &status->hosts[i]);
    status->pool_count = pools;
    status->pools = zeroed((size_t)pools + 1, sizeof *status->pools);
    for (int i = 0; i < pools; i++)
        sample_pool(s, &status->pools[i]);
    status->open_count = pools;
    status->open = zeroed((size_t)pools + 1, sizeof *status->open);
    for (int i = 0; i < pools; i++)
        sample_open(s, &status->open[i]);
}

static void sample_event(struct sample *s, struct wire_event *e)
{
    e->number = sample_bits(s);
    e->time_ns = sample_bits(s);
    e->kind = (enum wire_event_kind)sample_range(s, EVENT_ADMITTED, EVENT_DAEMON);
    e->world_size = (int32_t)sample_range(s, 0, WORLD_SIZE_MAX);
    e->instance = (int32_t)sample_range(s, 0, INT32_MAX);
    e->generation = (uint32_t)sample_bits(s);
    sample_text(s, e->implementation, sizeof e->implementation, false);
    sample_text(s, e->id, sizeof e->id, false);
    sample_text(s, e->user, sizeof e->user, false);
    sample_text(s, e->case_text, sizeof e->case_text, false);
    e->verdict = (enum wire_verdict)sample_range(s, 0, VERDICT_UNVERIFIED);
    e->code = (enum status)sample_range(s, STATUS_OK, STATUS_COUNT - 1);
    e->queue_ns = sample_bits(s);
    e->start_ns = sample_bits(s);
    e->run_ns = sample_bits(s);
    e->total_ns = sample_bits(s);
    e->pool = (enum pool_state)sample_range(s, 0, POOL_STUCK);
    e->device = (enum device_state)sample_range(s, 0, DEVICE_STUCK);
    e->devices = sample_bits(s);
    e->spare = sample_bits(s) & 1;
    sample_text(s, e->text, sizeof e->text, false);
}

void sample_events(struct sample *s, int count, struct wire_events *events)
{
    events->stream = sample_bits(s);
    events->last = sample_bits(s);
    events->lost = sample_bits(s);
    events->count = count;
    events->list = zeroed((size_t)count + 1, sizeof *events->list);
    for (int i = 0; i < count; i++)
        sample_event(s, &events->list[i]);
}

void sample_result_largest(struct wire_result *r)
{
    struct sample s = {1};
    sample_result(&s, WORLD_SIZE_MAX, r);
    for (int rank = 0; rank < WORLD_SIZE_MAX; rank++) {
        struct rank_report *report = &r->ranks[rank];
        report->figures_count = REPORT_FIGURES_MAX;
        report->op_times.begin_ns = UINT64_MAX;
        report->op_times.count = OP_TIMES_MAX;
        for (int i = 0; i < OP_TIMES_MAX; i++)
            report->op_times.list[i] = (struct op_time){TIMEOUT_MAX_NS, TIMEOUT_MAX_NS};
        report->diagnosis.tensor = TENSOR_COUNT - 1;
        report->diagnosis.explained = 0.9;
        memset(report->diagnosis.text, 'd', sizeof report->diagnosis.text - 1);
        for (int i = 0; i < REPORT_FIGURES_MAX; i++) {
            struct figures *f = &report->figures[i];
            sample_figures(&s, f);
            f->elements = f->mismatches = f->nonfinite = INT64_MAX;
            f->judged = f->te_mismatches = INT64_MAX;
            f->broken = RULES_ALL;
            f->remark = REMARK_COUNT - 1;
            f->twin_rel = f->slope = f->slope_limit = 1.1;
            f->rmse_rel = f->rmse_limit = f->max_abs = f->worst_row_rel = 1.1;
            f->worst_element = 1.1;
            f->worst_row_limit = f->first_bad_got = f->first_bad_expected = 1.1;
            f->worst_row.position = f->first_bad.position = SEQLEN_MAX - 1;
        }
    }
}

void sample_events_largest(struct wire_events *events)
{
    struct sample s = {1};
    sample_events(&s, EVENTS_REPLY_MAX, events);
    for (int i = 0; i < EVENTS_REPLY_MAX; i++) {
        struct wire_event *e = &events->list[i];
        e->number = e->time_ns = e->devices = UINT64_MAX;
        e->queue_ns = e->start_ns = e->run_ns = e->total_ns = UINT64_MAX;
        memset(e->implementation, 'i', sizeof e->implementation - 1);
        memset(e->id, 'f', sizeof e->id - 1);
        memset(e->user, 'u', sizeof e->user - 1);
        memset(e->case_text, 'c', sizeof e->case_text - 1);
        memset(e->text, 't', sizeof e->text - 1);
    }
}

void sample_failure_largest(struct wire_failure *f)
{
    struct sample s = {1};
    sample_failure(&s, WORLD_SIZE_MAX, f);
    for (int rank = 0; rank < WORLD_SIZE_MAX; rank++) {
        memset(f->ranks[rank].fate, 'f', sizeof f->ranks[rank].fate - 1);
        memset(f->ranks[rank].text, 't', sizeof f->ranks[rank].text - 1);
        memset(f->ranks[rank].stderr_tail, 's', sizeof f->ranks[rank].stderr_tail - 1);
    }
}

void sample_reply(struct sample *s, enum wire_method method, enum status status,
                  struct wire_reply *reply)
{
    memset(reply, 0, sizeof *reply);
    reply->version = WIRE_VERSION;
    sample_id(s, &reply->id);
    reply->status = status;
    reply->method = method;
    if (status != STATUS_OK) {
        sample_text(s, reply->message, sizeof reply->message, false);
        if (method == METHOD_RUN)
            sample_failure(s, (int)sample_range(s, 1, 8), &reply->failure);
    } else if (method == METHOD_RUN) {
        sample_result(s, (int)sample_range(s, 1, 8), &reply->result);
    } else if (method == METHOD_DESCRIBE) {
        sample_description(s, &reply->description);
    } else if (method == METHOD_STATUS) {
        sample_status(s, (int)sample_range(s, 0, 8), &reply->pools);
    } else if (method == METHOD_WATCH) {
        sample_events(s, (int)sample_range(s, 0, 8), &reply->events);
    }
}

// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <jansson.h>

#include "client/submit/outcome/measure.h"

#include "plan/support.h"
#include "plan/weight.h"

// Every *_set_new() of jansson takes a NULL value for a failure and returns -1; one flag gathers
// them.
struct writer {
    bool failed;
};

static void put(struct writer *w, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        w->failed = true;
}

static void put_text(struct writer *w, json_t *object, const char *name, const char *text)
{
    put(w, object, name, json_string(text));
}

static void put_int(struct writer *w, json_t *object, const char *name, int64_t value)
{
    put(w, object, name, json_integer(value));
}

// JSON has no number for what is none: "nan", "inf", "-inf".
static void put_real(struct writer *w, json_t *object, const char *name, double value)
{
    if (isfinite(value))
        put(w, object, name, json_real(value));
    else
        put_text(w, object, name, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

// 64 bits do not fit a number that every reader of JSON takes.
static void put_hex(struct writer *w, json_t *object, const char *name, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, value);
    put_text(w, object, name, text);
}

static bool write_line(const struct writer *w, FILE *out, json_t *object)
{
    bool fine = !w->failed && object && json_dumpf(object, out, JSON_COMPACT) == 0 &&
                fputc('\n', out) != EOF && fflush(out) == 0;
    json_decref(object);
    return fine;
}

// ---- a case -----------------------------------------------------------------------------------

static json_t *list_value(const struct cp_case *c, const struct case_field *field)
{
    int32_t count;
    const int32_t *values = case_list(c, field->list, &count);
    json_t *array = json_array();
    for (int32_t i = 0; i < count && array; i++)
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *case_value(const struct cp_case *c, const struct case_field *field)
{
    char text[MODEL_NAME_MAX] = "";
    if (field->kind == FIELD_LIST)
        return list_value(c, field);
    case_get(c, field, text, sizeof(text));
    switch (field->kind) {
    case FIELD_INT:
        return json_integer(strtoll(text, NULL, 10));
    case FIELD_REAL:
        return json_real(strtod(text, NULL));
    case FIELD_BOOL:
        return json_boolean(text[0] == 't');
    case FIELD_UINT: // 64 bits: as text
    case FIELD_TEXT:
    case FIELD_CHOICE:
    case FIELD_LIST:
        break;
    }
    return json_string(text);
}

static json_t *case_object(struct writer *w, const struct cp_case *c)
{
    json_t *object = json_object();
    for (const struct case_field *field = case_fields(); field->name; field++)
        put(w, object, field->name, case_value(c, field));
    return object;
}

// ---- figures ----------------------------------------------------------------------------------

static json_t *element_object(struct writer *w, const struct cpattn_element *e)
{
    json_t *object = json_object();
    put_int(w, object, "sequence", e->sequence);
    put_int(w, object, "head", e->head);
    put_int(w, object, "position", e->position);
    put_int(w, object, "dim", e->dim);
    return object;
}

static json_t *broken_array(struct writer *w, uint32_t broken)
{
    json_t *array = json_array();
    for (const struct outcome_rule *r = outcome_rules; r->name; r++)
        if ((broken & r->bit) && json_array_append_new(array, json_string(r->name)))
            w->failed = true;
    return array;
}

static json_t *figures_object(struct writer *w, const struct cpattn_figures *f)
{
    json_t *object = json_object();
    put_text(w, object, "tensor", f->tensor);
    put_int(w, object, "chunk", f->chunk);
    put(w, object, "broken", broken_array(w, f->broken));
    put_int(w, object, "elements", f->elements);
    put_int(w, object, "judged", f->judged);
    put_int(w, object, "mismatches", f->mismatches);
    put_int(w, object, "te_mismatches", f->te_mismatches);
    put_int(w, object, "nonfinite", f->nonfinite);
    put_real(w, object, "rmse", f->rmse_rel);
    put_real(w, object, "rmse_limit", f->rmse_limit);
    put_real(w, object, "twin", f->twin_rel);
    put_real(w, object, "slope", f->slope);
    put_real(w, object, "slope_limit", f->slope_limit);
    put_real(w, object, "max_error", f->max_abs);
    put_real(w, object, "worst_element", f->worst_element);
    put_real(w, object, "worst_row", f->worst_row_rel);
    put_real(w, object, "worst_row_limit", f->worst_row_limit);
    put(w, object, "worst_row_at", element_object(w, &f->worst_row));
    if (f->remark == CPATTN_REMARK_LONG_SUM)
        put_text(w, object, "remark", "long_sum");
    if (f->first_bad.position < 0)
        return object;
    put(w, object, "first_bad_at", element_object(w, &f->first_bad));
    put_real(w, object, "first_bad_got", f->first_bad_got);
    put_real(w, object, "first_bad_expected", f->first_bad_expected);
    return object;
}

static json_t *rank_times(struct writer *w, const struct cpattn_rank *r)
{
    const struct {
        const char *name;
        uint64_t ns;
    } times[] = {
        {"plan", r->plan_ns},           {"inputs", r->inputs_ns},     {"forward", r->forward_ns},
        {"backward", r->backward_ns},   {"exchange", r->exchange_ns}, {"exposed", r->exposed_ns},
        {"reference", r->reference_ns}, {"compare", r->compare_ns},   {"launch", r->launch_ns}};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        put_int(w, object, times[i].name, (int64_t)times[i].ns);
    return object;
}

static json_t *rank_rates(struct writer *w, const struct cp_case *c, const struct cpattn_rank *rank)
{
    struct measure_rates rates = measure_rates(c, rank);
    json_t *object = json_object();
    put_real(w, object, "forward", rates.forward * 1e-12);
    put_real(w, object, "backward", rates.backward * 1e-12);
    put_real(w, object, "both", rates.both * 1e-12);
    return object;
}

static json_t *diagnosis_object(struct writer *w, const struct cpattn_rank *rank)
{
    json_t *object = json_object();
    put_text(w, object, "tensor", rank->diagnosis_tensor);
    put_real(w, object, "explained", rank->diagnosis_explained);
    put_text(w, object, "text", rank->diagnosis);
    return object;
}

// Who computed the attention, in operations.
static json_t *use_object(struct writer *w, const struct cpattn_rank *rank)
{
    json_t *object = json_object();
    put_int(w, object, "own_forward", rank->own_forward);
    put_int(w, object, "own_backward", rank->own_backward);
    put_int(w, object, "provider_forward", rank->provider_forward);
    put_int(w, object, "provider_backward", rank->provider_backward);
    if (rank->provider_reason[0])
        put_text(w, object, "provider_reason", rank->provider_reason);
    return object;
}

static json_t *rank_object(struct writer *w, const struct cp_case *c,
                           const struct cpattn_result *result, const struct cpattn_rank *rank)
{
    const struct cpattn_figures *f;
    json_t *object = json_object(), *figures = json_array();
    put_int(w, object, "rank", rank->rank);
    put(w, object, "pass", json_boolean(rank->pass));
    put_hex(w, object, "digest", rank->digest);
    put_real(w, object, "flops", rank->flops);
    put(w, object, "tflops", rank_rates(w, c, rank));
    put(w, object, "times_ns", rank_times(w, rank));
    for (int i = 0; (f = cpattn_result_figures(result, rank->rank, i)); i++)
        if (json_array_append_new(figures, figures_object(w, f)))
            w->failed = true;
    put(w, object, "figures", figures);
    put(w, object, "attention", use_object(w, rank));
    if (rank->diagnosis[0])
        put(w, object, "diagnosis", diagnosis_object(w, rank));
    return object;
}

static json_t *failure_object(struct writer *w, const struct cpattn_failure *f)
{
    json_t *object = json_object();
    const char state[2] = {f->state, '\0'};
    put_int(w, object, "rank", f->rank);
    put(w, object, "culprit", json_boolean(f->culprit));
    put_text(w, object, "fate", f->fate);
    put_text(w, object, "state", state);
    put_text(w, object, "phase", f->phase);
    put_int(w, object, "step", f->step);
    put_int(w, object, "waited_for", f->waiting_for);
    put_text(w, object, "reported", f->text);
    put_text(w, object, "stderr", f->stderr_tail);
    return object;
}

// How near the nearest limit was.
static void put_limit(struct writer *w, json_t *object, const struct outcome *verified)
{
    put_real(w, object, "of_limit", verified->used);
    put_text(w, object, "rule", verified->rule);
    put_text(w, object, "tensor", verified->tensor);
    put(w, object, "sampled", json_boolean(verified->sampled));
}

// ---- an answer --------------------------------------------------------------------------------

static void put_ranks(struct writer *w, json_t *object, const struct cp_case *c,
                      const struct cpattn_result *result)
{
    json_t *ranks = json_array();
    for (int r = 0; r < result->world_size; r++) {
        const struct cpattn_failure *failure = cpattn_result_failure(result, r);
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (!failure && !rank)
            continue;
        json_t *entry = rank ? rank_object(w, c, result, rank) : failure_object(w, failure);
        if (json_array_append_new(ranks, entry))
            w->failed = true;
    }
    put(w, object, "ranks", ranks);
}

// From request to verdict, one part after the other.
static json_t *parts_object(struct writer *w, const struct cpattn_result *result)
{
    uint64_t parts_ns[PARTS];
    json_t *object = json_object();
    measure_parts(result, parts_ns);
    for (int i = 0; i < PARTS; i++)
        put_int(w, object, measure_part_name((enum measure_part)i), (int64_t)parts_ns[i]);
    return object;
}

static void put_result(struct writer *w, json_t *object, const struct cp_case *c,
                       const struct cpattn_result *result)
{
    json_t *times = json_object();
    if (result->verdict != CPATTN_VERDICT_NONE) {
        put_hex(w, object, "digest", result->digest);
        put_int(w, times, "queue", (int64_t)result->queue_ns);
        put_int(w, times, "start", (int64_t)result->start_ns);
        put_int(w, times, "run", (int64_t)result->run_ns);
        put_int(w, times, "total", (int64_t)result->total_ns);
        put(w, times, "parts", parts_object(w, result));
        put(w, object, "times_ns", json_incref(times));
    }
    json_decref(times);
    put_ranks(w, object, c, result);
}

bool json_answer(FILE *out, const char *id, const struct cp_case *c, const struct outcome *outcome,
                 const struct cpattn_result *result)
{
    struct writer w = {false};
    char command[CASE_COMMAND_MAX], blind[CASE_BLIND_MAX];
    json_t *object = json_object();
    if (id)
        put_text(&w, object, "id", id);
    put_text(&w, object, "outcome", outcome_name(outcome->kind));
    put_text(&w, object, "status", status_name(outcome->status));
    if (outcome->sentence)
        put_text(&w, object, "message", outcome->sentence);
    if (outcome->diagnosis)
        put_text(&w, object, "diagnosis", outcome->diagnosis);
    if (outcome->first)
        put_text(&w, object, "first_message", outcome->first);
    if (outcome->tensor[0])
        put_limit(&w, object, outcome);
    if (case_blind(c, blind, sizeof(blind)) > 0)
        put_text(&w, object, "blind", blind);
    put(&w, object, "case", case_object(&w, c));
    case_command(c, command, sizeof(command));
    put_text(&w, object, "command", command);
    if (result)
        put_result(&w, object, c, result);
    return write_line(&w, out, object);
}

// ---- a bench ----------------------------------------------------------------------------------

// Times are whole nanoseconds, rates are TFLOP/s.
static json_t *series_value(enum bench_series series, double value)
{
    return bench_is_rate(series) ? json_real(value * 1e-12) : json_integer((json_int_t)value);
}

static json_t *series_object(struct writer *w, const struct bench *bench, enum bench_series series)
{
    json_t *object = json_object(), *runs = json_array();
    struct bench_summary sum = {0};
    if (bench_sum(bench, series, &sum, &(struct error){0}) != STATUS_OK)
        w->failed = true;
    put(w, object, "median", series_value(series, sum.median));
    put(w, object, "least", series_value(series, sum.least));
    put(w, object, "most", series_value(series, sum.most));
    put_real(w, object, "spread", sum.spread);
    for (int i = 0; i < bench->runs; i++)
        if (json_array_append_new(runs, series_value(series, bench->values[series][i])))
            w->failed = true;
    put(w, object, "runs", runs);
    return object;
}

bool json_bench(FILE *out, const struct cp_case *c, const struct outcome *verified, int warmup,
                const struct bench *bench)
{
    struct writer w = {false};
    char command[CASE_COMMAND_MAX];
    json_t *object = json_object(), *times = json_object(), *rates = json_object();
    put_text(&w, object, "verified", outcome_name(verified->kind));
    if (verified->tensor[0])
        put_limit(&w, object, verified);
    put_int(&w, object, "warmup", warmup);
    put_int(&w, object, "repeat", bench->runs);
    for (int i = 0; i < BENCH_SERIES; i++)
        put(&w, bench_is_rate((enum bench_series)i) ? rates : times,
            bench_series_name((enum bench_series)i),
            series_object(&w, bench, (enum bench_series)i));
    put(&w, object, "times_ns", times);
    put(&w, object, "per_device", rates);
    put(&w, object, "case", case_object(&w, c));
    case_command(c, command, sizeof(command));
    put_text(&w, object, "command", command);
    return write_line(&w, out, object);
}

// ---- the daemon -------------------------------------------------------------------------------

static json_t *gpu_object(struct writer *w, const struct cpattn_gpu *gpu)
{
    json_t *object = json_object();
    put_int(w, object, "index", gpu->index);
    put_text(w, object, "arch", gpu->arch);
    put_int(w, object, "memory_bytes", gpu->memory_bytes);
    put_text(w, object, "name", gpu->name);
    return object;
}

static json_t *fields_object(struct writer *w)
{
    json_t *object = json_object();
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char accepted[CASE_ACCEPTED_MAX];
        case_accepted(field, accepted, sizeof(accepted));
        put_text(w, object, field->name, accepted);
    }
    return object;
}

static json_t *refused_array(struct writer *w)
{
    json_t *array = json_array();
    for (const struct support_rule *rule = support_rules(); rule->what; rule++) {
        json_t *object = json_object();
        put_text(w, object, "what", rule->what);
        put_text(w, object, "why", rule->why);
        put_text(w, object, "example", rule->example);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

static json_t *providers_array(struct writer *w, const struct cpattn_description *d)
{
    const struct cpattn_provider_entry *provider;
    json_t *array = json_array();
    for (int i = 0; (provider = cpattn_description_provider(d, i)); i++) {
        json_t *object = json_object();
        put_text(w, object, "name", provider->name);
        put_text(w, object, "file", provider->file);
        put_text(w, object, "about", provider->about);
        if (provider->trouble[0])
            put_text(w, object, "trouble", provider->trouble);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

static json_t *guests_array(struct writer *w, const struct cpattn_description *d)
{
    const struct cpattn_implementation *guest;
    json_t *array = json_array();
    for (int i = 0; (guest = cpattn_description_guest(d, i)); i++) {
        json_t *object = json_object(), *sizes = json_array();
        put_text(w, object, "name", guest->name);
        for (int size = 1; size <= 64; size++)
            if (guest->world_sizes >> (size - 1) & 1 &&
                json_array_append_new(sizes, json_integer(size)))
                w->failed = true;
        put(w, object, "world_sizes", sizes);
        put_text(w, object, "supports", guest->supports);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

bool json_description(FILE *out, const struct cpattn_description *d)
{
    struct writer w = {false};
    const struct cpattn_gpu *gpu;
    json_t *object = json_object(), *gpus = json_array();
    put_text(&w, object, "version", d->version);
    put_text(&w, object, "backend", d->backend);
    put_int(&w, object, "devices", d->devices);
    put_int(&w, object, "world_size_max", d->world_size_max);
    put_int(&w, object, "memory_bytes_max", d->memory_bytes_max);
    put_int(&w, object, "timeout_default_ns", (int64_t)d->timeout_default_ns);
    put_int(&w, object, "timeout_max_ns", (int64_t)d->timeout_max_ns);
    put_int(&w, object, "queue_max", d->queue_max);
    for (int i = 0; (gpu = cpattn_description_gpu(d, i)); i++)
        if (json_array_append_new(gpus, gpu_object(&w, gpu)))
            w.failed = true;
    put(&w, object, "gpus", gpus);
    put(&w, object, "providers", providers_array(&w, d));
    put(&w, object, "guests", guests_array(&w, d));
    put(&w, object, "fields", fields_object(&w));
    put(&w, object, "refused", refused_array(&w));
    return write_line(&w, out, object);
}

static json_t *devices_array(struct writer *w, uint64_t devices)
{
    json_t *array = json_array();
    for (int i = 0; i < 64; i++)
        if (devices >> i & 1 && json_array_append_new(array, json_integer(i)))
            w->failed = true;
    return array;
}

static json_t *pool_object(struct writer *w, const struct cpattn_pool *p)
{
    json_t *object = json_object();
    put_text(w, object, "implementation", p->implementation[0] ? p->implementation : "cpattn");
    put_int(w, object, "world_size", p->world_size);
    put_int(w, object, "instance", p->instance);
    put_text(w, object, "state", p->state);
    put(w, object, "spare", json_boolean(p->spare));
    put_int(w, object, "generation", p->generation);
    put_int(w, object, "jobs", (int64_t)p->jobs);
    put_int(w, object, "deaths", (int64_t)p->deaths);
    put_text(w, object, "last_failure", p->last_failure);
    put(w, object, "devices", devices_array(w, p->devices));
    return object;
}

static json_t *open_object(struct writer *w, const struct cpattn_open_request *r)
{
    json_t *object = json_object();
    put_text(w, object, "id", r->id);
    put_text(w, object, "user", r->user);
    put_text(w, object, "implementation", r->implementation[0] ? r->implementation : "cpattn");
    put_int(w, object, "world_size", r->world_size);
    put_text(w, object, "case", r->case_text);
    put(w, object, "running", json_boolean(r->running));
    put_int(w, object, "age_ns", (int64_t)r->age_ns);
    put_int(w, object, "run_ns", (int64_t)r->run_ns);
    put_text(w, object, "phase", r->phase);
    put_int(w, object, "step", r->step);
    json_t *ranks = json_array();
    for (int i = 0; i < r->rank_count; i++)
        if (json_array_append_new(ranks, json_pack("{s:s,s:i}", "phase", r->ranks[i].phase, "step",
                                                   (int)r->ranks[i].step)))
            w->failed = true;
    put(w, object, "ranks", ranks);
    return object;
}

bool json_status(FILE *out, const struct cpattn_daemon_status *s)
{
    struct writer w = {false};
    const struct cpattn_pool *pool;
    const struct cpattn_open_request *request;
    json_t *object = json_object(), *pools = json_array(), *requests = json_array();
    put_int(&w, object, "uptime_ns", (int64_t)s->uptime_ns);
    put_int(&w, object, "queued", s->queued);
    put_int(&w, object, "running", s->running);
    put_int(&w, object, "admitted", (int64_t)s->admitted);
    put_int(&w, object, "passed", (int64_t)s->passed);
    put_int(&w, object, "failed", (int64_t)s->failed);
    put_int(&w, object, "errors", (int64_t)s->errors);
    put_int(&w, object, "refused", (int64_t)s->refused);
    put_int(&w, object, "unverified", (int64_t)s->unverified);
    put(&w, object, "devices_out", devices_array(&w, s->devices_out));
    put_int(&w, object, "loop_lag_max_ns", (int64_t)s->loop_lag_max_ns);
    put_int(&w, object, "loop_lag_p99_ns", (int64_t)s->loop_lag_p99_ns);
    put(&w, object, "draining", json_boolean(s->draining));
    for (int i = 0; (pool = cpattn_daemon_status_pool(s, i)); i++)
        if (json_array_append_new(pools, pool_object(&w, pool)))
            w.failed = true;
    put(&w, object, "pools", pools);
    for (int i = 0; (request = cpattn_daemon_status_request(s, i)); i++)
        if (json_array_append_new(requests, open_object(&w, request)))
            w.failed = true;
    put(&w, object, "requests", requests);
    return write_line(&w, out, object);
}

static void put_given(struct writer *w, json_t *object, const char *name, const char *text)
{
    if (text[0])
        put_text(w, object, name, text);
}

static void put_finished(struct writer *w, json_t *object, const struct cpattn_event *e)
{
    if (e->verdict != CPATTN_VERDICT_NONE)
        put_text(w, object, "verdict", cpattn_verdict_name(e->verdict));
    put_text(w, object, "status", cpattn_status_name(e->code));
    put_int(w, object, "queue_ns", (int64_t)e->queue_ns);
    put_int(w, object, "start_ns", (int64_t)e->start_ns);
    put_int(w, object, "run_ns", (int64_t)e->run_ns);
    put_int(w, object, "total_ns", (int64_t)e->total_ns);
}

// What the event does not have is left out.
bool json_event(FILE *out, const struct cpattn_event *e)
{
    struct writer w = {false};
    json_t *object = json_object();
    put_text(&w, object, "event", cpattn_event_kind_name(e->kind));
    put_int(&w, object, "number", (int64_t)e->number);
    put_int(&w, object, "lost", (int64_t)e->lost);
    put_int(&w, object, "time_ns", (int64_t)e->time_ns);
    if (e->world_size > 0)
        put_int(&w, object, "world_size", e->world_size);
    if (e->kind == CPATTN_EVENT_POOL || e->kind == CPATTN_EVENT_STARTED) {
        put_int(&w, object, "instance", e->instance);
        put_int(&w, object, "generation", e->generation);
    }
    put_given(&w, object, "implementation", e->implementation);
    put_given(&w, object, "id", e->id);
    put_given(&w, object, "user", e->user);
    put_given(&w, object, "case", e->case_text);
    if (e->kind == CPATTN_EVENT_FINISHED)
        put_finished(&w, object, e);
    put_given(&w, object, "state", e->state);
    if (e->devices)
        put(&w, object, "devices", devices_array(&w, e->devices));
    if (e->kind == CPATTN_EVENT_POOL)
        put(&w, object, "spare", json_boolean(e->spare));
    put_given(&w, object, "text", e->text);
    return write_line(&w, out, object);
}

// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/json.h"

#include <stdlib.h>
#include <string.h>

#include "client/submit/outcome/measure.h"
#include "client/submit/write/json_writer.h"
#include "plan/members.h"
#include "plan/weight.h"

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

static json_t *case_object(struct json_writer *w, const struct cp_case *c)
{
    json_t *object = json_object();
    for (const struct case_field *field = case_fields(); field->name; field++)
        json_put(w, object, field->name, case_value(c, field));
    return object;
}

// ---- figures ----------------------------------------------------------------------------------

static json_t *element_object(struct json_writer *w, const struct cpattn_element *e)
{
    json_t *object = json_object();
    json_put_int(w, object, "sequence", e->sequence);
    json_put_int(w, object, "head", e->head);
    json_put_int(w, object, "position", e->position);
    json_put_int(w, object, "dim", e->dim);
    return object;
}

static json_t *broken_array(struct json_writer *w, uint32_t broken)
{
    json_t *array = json_array();
    for (const struct outcome_rule *r = outcome_rules; r->name; r++)
        if ((broken & r->bit) && json_array_append_new(array, json_string(r->name)))
            w->failed = true;
    return array;
}

static json_t *figures_object(struct json_writer *w, const struct cpattn_figures *f)
{
    json_t *object = json_object();
    json_put_text(w, object, "tensor", f->tensor);
    json_put_int(w, object, "chunk", f->chunk);
    json_put(w, object, "broken", broken_array(w, f->broken));
    json_put_int(w, object, "elements", f->elements);
    json_put_int(w, object, "judged", f->judged);
    json_put_int(w, object, "mismatches", f->mismatches);
    json_put_int(w, object, "te_mismatches", f->te_mismatches);
    json_put_int(w, object, "nonfinite", f->nonfinite);
    json_put_real(w, object, "rmse", f->rmse_rel);
    json_put_real(w, object, "rmse_limit", f->rmse_limit);
    json_put_real(w, object, "twin", f->twin_rel);
    json_put_real(w, object, "slope", f->slope);
    json_put_real(w, object, "slope_limit", f->slope_limit);
    json_put_real(w, object, "max_error", f->max_abs);
    json_put_real(w, object, "worst_element", f->worst_element);
    json_put_real(w, object, "worst_row", f->worst_row_rel);
    json_put_real(w, object, "worst_row_limit", f->worst_row_limit);
    json_put(w, object, "worst_row_at", element_object(w, &f->worst_row));
    for (const struct outcome_remark *r = outcome_remarks; r->name; r++)
        if (f->remark == r->remark)
            json_put_text(w, object, "remark", r->name);
    if (f->first_bad.position < 0)
        return object;
    json_put(w, object, "first_bad_at", element_object(w, &f->first_bad));
    json_put_real(w, object, "first_bad_got", f->first_bad_got);
    json_put_real(w, object, "first_bad_expected", f->first_bad_expected);
    return object;
}

static json_t *rank_times(struct json_writer *w, const struct cpattn_rank *r)
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
        json_put_int(w, object, times[i].name, (int64_t)times[i].ns);
    return object;
}

static json_t *operation_times(struct json_writer *w, const struct cpattn_rank *r)
{
    json_t *object = json_object(), *starts = json_array(), *ends = json_array();
    for (int32_t i = 0; i < r->operation_times_count; i++) {
        const struct cpattn_operation_time *time = &r->operation_times[i];
        if (json_array_append_new(starts, json_integer((json_int_t)time->start_ns)) ||
            json_array_append_new(ends, json_integer((json_int_t)time->end_ns)))
            w->failed = true;
    }
    json_put_int(w, object, "begin_ns", (int64_t)r->operations_begin_ns);
    json_put(w, object, "start_ns", starts);
    json_put(w, object, "end_ns", ends);
    return object;
}

static json_t *rank_rates(struct json_writer *w, const struct cp_case *c,
                          const struct cpattn_rank *rank)
{
    struct measure_rates rates = measure_rates(c, rank);
    json_t *object = json_object();
    json_put_real(w, object, "forward", rates.forward * 1e-12);
    json_put_real(w, object, "backward", rates.backward * 1e-12);
    json_put_real(w, object, "both", rates.both * 1e-12);
    return object;
}

static json_t *diagnosis_object(struct json_writer *w, const struct cpattn_rank *rank)
{
    json_t *object = json_object();
    json_put_text(w, object, "tensor", rank->diagnosis_tensor);
    json_put_real(w, object, "explained", rank->diagnosis_explained);
    json_put_text(w, object, "text", rank->diagnosis);
    return object;
}

// Numbers of attention operations that the own kernels and the provider computed.
static json_t *use_object(struct json_writer *w, const struct cpattn_rank *rank)
{
    json_t *object = json_object();
    json_put_int(w, object, "own_forward", rank->own_forward);
    json_put_int(w, object, "own_backward", rank->own_backward);
    json_put_int(w, object, "provider_forward", rank->provider_forward);
    json_put_int(w, object, "provider_backward", rank->provider_backward);
    if (rank->provider_reason[0])
        json_put_text(w, object, "provider_reason", rank->provider_reason);
    return object;
}

// `c` is NULL for another kind of job, which computes no attention.
static json_t *rank_object(struct json_writer *w, const struct cp_case *c,
                           const struct cpattn_result *result, const struct cpattn_rank *rank)
{
    const struct cpattn_figures *f;
    json_t *object = json_object(), *figures = json_array();
    json_put_int(w, object, "rank", rank->rank);
    json_put(w, object, "pass", json_boolean(rank->pass));
    json_put_hex(w, object, "digest", rank->digest);
    if (c) {
        json_put_real(w, object, "flops", rank->flops);
        json_put(w, object, "tflops", rank_rates(w, c, rank));
    }
    json_put(w, object, "times_ns", rank_times(w, rank));
    if (rank->operation_times_count > 0)
        json_put(w, object, "operation_times", operation_times(w, rank));
    for (int i = 0; (f = cpattn_result_figures(result, rank->rank, i)); i++)
        if (json_array_append_new(figures, figures_object(w, f)))
            w->failed = true;
    json_put(w, object, "figures", figures);
    if (c)
        json_put(w, object, "attention", use_object(w, rank));
    if (rank->diagnosis[0])
        json_put(w, object, "diagnosis", diagnosis_object(w, rank));
    return object;
}

static json_t *failure_object(struct json_writer *w, const struct cpattn_failure *f)
{
    json_t *object = json_object();
    const char state[2] = {f->state, '\0'};
    json_put_int(w, object, "rank", f->rank);
    json_put(w, object, "culprit", json_boolean(f->culprit));
    json_put_text(w, object, "fate", f->fate);
    json_put_text(w, object, "state", state);
    json_put_text(w, object, "phase", f->phase);
    json_put_int(w, object, "step", f->step);
    json_put_int(w, object, "waited_for", f->waiting_for);
    json_put_text(w, object, "reported", f->text);
    json_put_text(w, object, "stderr", f->stderr_tail);
    return object;
}

// The largest error as a fraction of its limit.
static void put_limit(struct json_writer *w, json_t *object, const struct outcome *verified)
{
    json_put_real(w, object, "of_limit", verified->used);
    json_put_text(w, object, "rule", verified->rule);
    json_put_text(w, object, "tensor", verified->tensor);
    json_put(w, object, "sampled", json_boolean(verified->sampled));
}

// ---- an answer --------------------------------------------------------------------------------

static void put_ranks(struct json_writer *w, json_t *object, const struct cp_case *c,
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
    json_put(w, object, "ranks", ranks);
}

// The phases from request to verdict, in order.
static json_t *parts_object(struct json_writer *w, const struct cpattn_result *result)
{
    uint64_t parts_ns[PARTS];
    json_t *object = json_object();
    measure_parts(result, parts_ns);
    for (int i = 0; i < PARTS; i++)
        json_put_int(w, object, measure_part_name((enum measure_part)i), (int64_t)parts_ns[i]);
    return object;
}

static void put_result(struct json_writer *w, json_t *object, const struct cp_case *c,
                       const struct cpattn_result *result)
{
    json_t *times = json_object();
    if (result->verdict != CPATTN_VERDICT_NONE) {
        json_put_hex(w, object, "digest", result->digest);
        json_put_int(w, times, "queue", (int64_t)result->queue_ns);
        json_put_int(w, times, "start", (int64_t)result->start_ns);
        json_put_int(w, times, "run", (int64_t)result->run_ns);
        json_put_int(w, times, "total", (int64_t)result->total_ns);
        json_put(w, times, "parts", parts_object(w, result));
        json_put(w, object, "times_ns", json_incref(times));
    }
    json_decref(times);
    put_ranks(w, object, c, result);
}

// The members that every kind of job has.
static json_t *answer_object(struct json_writer *w, const char *id, const struct outcome *outcome)
{
    json_t *object = json_object();
    if (id)
        json_put_text(w, object, "id", id);
    json_put_text(w, object, "outcome", outcome_name(outcome->kind));
    json_put_text(w, object, "status", status_name(outcome->status));
    if (outcome->sentence)
        json_put_text(w, object, "message", outcome->sentence);
    if (outcome->diagnosis)
        json_put_text(w, object, "diagnosis", outcome->diagnosis);
    if (outcome->first) {
        json_put_text(w, object, "first_outcome",
                      outcome_name(outcome->was_wrong ? OUTCOME_FAIL : OUTCOME_ERROR));
        json_put_text(w, object, "first_message", outcome->first);
    }
    if (outcome->tensor[0])
        put_limit(w, object, outcome);
    return object;
}

static json_t *spec_object(struct json_writer *w, const struct job_spec *spec)
{
    json_t *object = json_object();
    json_put_text(w, object, "kind", spec->kind->name);
    for (const struct case_field *field = spec->kind->fields; field->name; field++) {
        char value[JOB_FIELD_VALUE_MAX];
        members_get(spec->bytes, field, value, sizeof(value));
        if (field->kind == FIELD_BOOL)
            json_put(w, object, field->name, json_boolean(strcmp(value, "true") == 0));
        else if (field->kind == FIELD_INT)
            json_put_int(w, object, field->name, strtoll(value, NULL, 10));
        else
            json_put_text(w, object, field->name, value);
    }
    return object;
}

// The job, and the command line that runs it.
static void put_job(struct json_writer *w, json_t *object, const struct job_spec *spec)
{
    char command[CASE_COMMAND_MAX];
    if (spec->kind == &job_kind_attention)
        json_put(w, object, "case", case_object(w, &spec->attention));
    else
        json_put(w, object, "job", spec_object(w, spec));
    job_spec_command(spec, command, sizeof(command));
    json_put_text(w, object, "command", command);
}

bool json_job(FILE *out, const char *id, const struct job_spec *spec, const struct outcome *outcome,
              const struct cpattn_result *result)
{
    struct json_writer w = {false};
    if (spec->kind == &job_kind_attention)
        return json_answer(out, id, &spec->attention, outcome, result);
    json_t *object = answer_object(&w, id, outcome);
    put_job(&w, object, spec);
    if (result)
        put_result(&w, object, NULL, result);
    return json_write_line(&w, out, object);
}

bool json_answer(FILE *out, const char *id, const struct cp_case *c, const struct outcome *outcome,
                 const struct cpattn_result *result)
{
    struct json_writer w = {false};
    char command[CASE_COMMAND_MAX], blind[CASE_BLIND_MAX];
    json_t *object = answer_object(&w, id, outcome);
    if (case_blind(c, blind, sizeof(blind)) > 0)
        json_put_text(&w, object, "blind", blind);
    json_put(&w, object, "case", case_object(&w, c));
    case_command(c, command, sizeof(command));
    json_put_text(&w, object, "command", outcome->command ? outcome->command : command);
    if (result)
        put_result(&w, object, c, result);
    return json_write_line(&w, out, object);
}

// ---- a bench ----------------------------------------------------------------------------------

// Times are whole nanoseconds, rates are TFLOP/s.
static json_t *series_value(enum bench_series series, double value)
{
    return bench_is_rate(series) ? json_real(value * 1e-12) : json_integer((json_int_t)value);
}

static json_t *series_object(struct json_writer *w, const struct bench *bench,
                             enum bench_series series)
{
    json_t *object = json_object(), *runs = json_array();
    struct bench_summary sum = {0};
    if (bench_sum(bench, series, &sum, &(struct error){0}) != STATUS_OK)
        w->failed = true;
    json_put(w, object, "median", series_value(series, sum.median));
    json_put(w, object, "least", series_value(series, sum.least));
    json_put(w, object, "most", series_value(series, sum.most));
    json_put_real(w, object, "spread", sum.spread);
    for (int i = 0; i < bench->runs; i++)
        if (json_array_append_new(runs, series_value(series, bench->values[series][i])))
            w->failed = true;
    json_put(w, object, "runs", runs);
    return object;
}

// Rates of another kind than attention, by name; the names contain the units.
static json_t *job_rates(struct json_writer *w, const struct job_spec *spec,
                         const struct bench *bench)
{
    double values[JOB_RATES_MAX];
    struct job_rate rates[JOB_RATES_MAX];
    json_t *object = json_object();
    int count = bench_rates(bench, spec, rates, values);
    for (int i = 0; i < count; i++)
        json_put_real(w, object, rates[i].name, values[i]);
    return object;
}

bool json_bench(FILE *out, const struct job_spec *spec, const struct outcome *verified, int warmup,
                const struct bench *bench)
{
    struct json_writer w = {false};
    bool attends = spec->kind == &job_kind_attention;
    json_t *object = json_object(), *times = json_object(), *rates = json_object();
    json_put_text(&w, object, "verified", outcome_name(verified->kind));
    if (verified->tensor[0])
        put_limit(&w, object, verified);
    json_put_int(&w, object, "warmup", warmup);
    json_put_int(&w, object, "repeat", bench->runs);
    for (int i = 0; i < BENCH_SERIES; i++)
        json_put(&w, bench_is_rate((enum bench_series)i) ? rates : times,
                 bench_series_name((enum bench_series)i),
                 series_object(&w, bench, (enum bench_series)i));
    json_put(&w, object, "times_ns", times);
    if (attends)
        json_put(&w, object, "per_device", json_incref(rates));
    else
        json_put(&w, object, "rates", job_rates(&w, spec, bench));
    json_decref(rates);
    put_job(&w, object, spec);
    return json_write_line(&w, out, object);
}

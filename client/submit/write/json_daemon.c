// SPDX-License-Identifier: Apache-2.0
// Description, status and events of the daemon as JSON.
#include "client/submit/write/json.h"
#include "client/submit/write/json_writer.h"
#include "plan/support.h"

static json_t *gpu_object(struct json_writer *w, const struct cpattn_gpu *gpu)
{
    json_t *object = json_object();
    json_put_int(w, object, "index", gpu->index);
    json_put_text(w, object, "arch", gpu->arch);
    json_put_int(w, object, "memory_bytes", gpu->memory_bytes);
    json_put_text(w, object, "name", gpu->name);
    return object;
}

static json_t *fields_object(struct json_writer *w)
{
    json_t *object = json_object();
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char accepted[CASE_ACCEPTED_MAX];
        case_accepted(field, accepted, sizeof(accepted));
        json_put_text(w, object, field->name, accepted);
    }
    return object;
}

static json_t *refused_array(struct json_writer *w)
{
    json_t *array = json_array();
    for (const struct support_rule *rule = support_rules(); rule->what; rule++) {
        json_t *object = json_object();
        json_put_text(w, object, "what", rule->what);
        json_put_text(w, object, "why", rule->why);
        json_put_text(w, object, "example", rule->example);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

static json_t *providers_array(struct json_writer *w, const struct cpattn_description *d)
{
    const struct cpattn_provider_entry *provider;
    json_t *array = json_array();
    for (int i = 0; (provider = cpattn_description_provider(d, i)); i++) {
        json_t *object = json_object();
        json_put_text(w, object, "name", provider->name);
        json_put_text(w, object, "file", provider->file);
        json_put_text(w, object, "about", provider->about);
        if (provider->trouble[0])
            json_put_text(w, object, "trouble", provider->trouble);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

static json_t *guests_array(struct json_writer *w, const struct cpattn_description *d)
{
    const struct cpattn_implementation *guest;
    json_t *array = json_array();
    for (int i = 0; (guest = cpattn_description_guest(d, i)); i++) {
        json_t *object = json_object(), *sizes = json_array();
        json_put_text(w, object, "name", guest->name);
        for (int size = 1; size <= 64; size++)
            if (guest->world_sizes >> (size - 1) & 1 &&
                json_array_append_new(sizes, json_integer(size)))
                w->failed = true;
        json_put(w, object, "world_sizes", sizes);
        json_put_text(w, object, "supports", guest->supports);
        if (json_array_append_new(array, object))
            w->failed = true;
    }
    return array;
}

bool json_description(FILE *out, const struct cpattn_description *d)
{
    struct json_writer w = {false};
    const struct cpattn_gpu *gpu;
    json_t *object = json_object(), *gpus = json_array();
    json_put_text(&w, object, "version", d->version);
    json_put_text(&w, object, "backend", d->backend);
    json_put_int(&w, object, "devices", d->devices);
    json_put_int(&w, object, "world_size_max", d->world_size_max);
    json_put_int(&w, object, "memory_bytes_max", d->memory_bytes_max);
    json_put_int(&w, object, "timeout_default_ns", (int64_t)d->timeout_default_ns);
    json_put_int(&w, object, "timeout_max_ns", (int64_t)d->timeout_max_ns);
    json_put_int(&w, object, "queue_max", d->queue_max);
    for (int i = 0; (gpu = cpattn_description_gpu(d, i)); i++)
        if (json_array_append_new(gpus, gpu_object(&w, gpu)))
            w.failed = true;
    json_put(&w, object, "gpus", gpus);
    json_put(&w, object, "providers", providers_array(&w, d));
    json_put(&w, object, "guests", guests_array(&w, d));
    json_put(&w, object, "fields", fields_object(&w));
    json_put(&w, object, "refused", refused_array(&w));
    return json_write_line(&w, out, object);
}

static json_t *devices_array(struct json_writer *w, uint64_t devices)
{
    json_t *array = json_array();
    for (int i = 0; i < 64; i++)
        if (devices >> i & 1 && json_array_append_new(array, json_integer(i)))
            w->failed = true;
    return array;
}

static json_t *pool_object(struct json_writer *w, const struct cpattn_pool *p)
{
    json_t *object = json_object();
    json_put_text(w, object, "implementation", p->implementation[0] ? p->implementation : "cpattn");
    json_put_int(w, object, "world_size", p->world_size);
    json_put_int(w, object, "instance", p->instance);
    json_put_text(w, object, "state", p->state);
    json_put(w, object, "spare", json_boolean(p->spare));
    json_put_int(w, object, "generation", p->generation);
    json_put_int(w, object, "jobs", (int64_t)p->jobs);
    json_put_int(w, object, "deaths", (int64_t)p->deaths);
    json_put_text(w, object, "last_failure", p->last_failure);
    json_put_text(w, object, "exchange", p->exchange);
    json_put(w, object, "devices", devices_array(w, p->devices));
    json_put(w, object, "hosts", devices_array(w, p->hosts));
    return object;
}

static json_t *host_object(struct json_writer *w, const struct cpattn_host *h)
{
    json_t *object = json_object();
    json_put_text(w, object, "name", h->name);
    json_put_text(w, object, "state", h->state);
    json_put_int(w, object, "devices", h->devices);
    json_put(w, object, "devices_out", devices_array(w, h->devices_out));
    json_put(w, object, "devices_stuck", devices_array(w, h->devices_stuck));
    return object;
}

static json_t *open_object(struct json_writer *w, const struct cpattn_open_request *r)
{
    json_t *object = json_object();
    json_put_text(w, object, "id", r->id);
    json_put_text(w, object, "user", r->user);
    json_put_text(w, object, "implementation", r->implementation[0] ? r->implementation : "cpattn");
    json_put_int(w, object, "world_size", r->world_size);
    json_put_text(w, object, "case", r->case_text);
    json_put(w, object, "running", json_boolean(r->running));
    json_put_int(w, object, "age_ns", (int64_t)r->age_ns);
    json_put_int(w, object, "run_ns", (int64_t)r->run_ns);
    json_put_text(w, object, "phase", r->phase);
    json_put_int(w, object, "step", r->step);
    json_t *ranks = json_array();
    for (int i = 0; i < r->rank_count; i++)
        if (json_array_append_new(ranks, json_pack("{s:s,s:i}", "phase", r->ranks[i].phase, "step",
                                                   (int)r->ranks[i].step)))
            w->failed = true;
    json_put(w, object, "ranks", ranks);
    return object;
}

bool json_status(FILE *out, const struct cpattn_daemon_status *s)
{
    struct json_writer w = {false};
    const struct cpattn_pool *pool;
    const struct cpattn_open_request *request;
    json_t *object = json_object(), *pools = json_array(), *requests = json_array();
    json_put_int(&w, object, "uptime_ns", (int64_t)s->uptime_ns);
    json_put_int(&w, object, "queued", s->queued);
    json_put_int(&w, object, "running", s->running);
    json_put_int(&w, object, "admitted", (int64_t)s->admitted);
    json_put_int(&w, object, "passed", (int64_t)s->passed);
    json_put_int(&w, object, "failed", (int64_t)s->failed);
    json_put_int(&w, object, "errors", (int64_t)s->errors);
    json_put_int(&w, object, "refused", (int64_t)s->refused);
    json_put_int(&w, object, "unverified", (int64_t)s->unverified);
    json_put(&w, object, "devices_out", devices_array(&w, s->devices_out));
    json_put_int(&w, object, "loop_lag_max_ns", (int64_t)s->loop_lag_max_ns);
    json_put_int(&w, object, "loop_lag_p99_ns", (int64_t)s->loop_lag_p99_ns);
    json_put(&w, object, "draining", json_boolean(s->draining));
    for (int i = 0; (pool = cpattn_daemon_status_pool(s, i)); i++)
        if (json_array_append_new(pools, pool_object(&w, pool)))
            w.failed = true;
    json_put(&w, object, "pools", pools);
    json_t *hosts = json_array();
    for (int i = 0; i < s->host_count; i++)
        if (json_array_append_new(hosts, host_object(&w, cpattn_daemon_status_host(s, i))))
            w.failed = true;
    json_put(&w, object, "hosts", hosts);
    for (int i = 0; (request = cpattn_daemon_status_request(s, i)); i++)
        if (json_array_append_new(requests, open_object(&w, request)))
            w.failed = true;
    json_put(&w, object, "requests", requests);
    return json_write_line(&w, out, object);
}

static void put_given(struct json_writer *w, json_t *object, const char *name, const char *text)
{
    if (text[0])
        json_put_text(w, object, name, text);
}

static void put_finished(struct json_writer *w, json_t *object, const struct cpattn_event *e)
{
    if (e->verdict != CPATTN_VERDICT_NONE)
        json_put_text(w, object, "verdict", cpattn_verdict_name(e->verdict));
    json_put_text(w, object, "status", cpattn_status_name(e->code));
    json_put_int(w, object, "queue_ns", (int64_t)e->queue_ns);
    json_put_int(w, object, "start_ns", (int64_t)e->start_ns);
    json_put_int(w, object, "run_ns", (int64_t)e->run_ns);
    json_put_int(w, object, "total_ns", (int64_t)e->total_ns);
}

// Members that the event does not have are left out.
bool json_event(FILE *out, const struct cpattn_event *e)
{
    struct json_writer w = {false};
    json_t *object = json_object();
    json_put_text(&w, object, "event", cpattn_event_kind_name(e->kind));
    json_put_int(&w, object, "number", (int64_t)e->number);
    json_put_int(&w, object, "lost", (int64_t)e->lost);
    if (e->restarted)
        json_put(&w, object, "restarted", json_true());
    json_put_int(&w, object, "time_ns", (int64_t)e->time_ns);
    if (e->world_size > 0)
        json_put_int(&w, object, "world_size", e->world_size);
    if (e->kind == CPATTN_EVENT_POOL || e->kind == CPATTN_EVENT_STARTED) {
        json_put_int(&w, object, "instance", e->instance);
        json_put_int(&w, object, "generation", e->generation);
    }
    put_given(&w, object, "implementation", e->implementation);
    put_given(&w, object, "id", e->id);
    put_given(&w, object, "user", e->user);
    put_given(&w, object, "case", e->case_text);
    if (e->kind == CPATTN_EVENT_FINISHED)
        put_finished(&w, object, e);
    put_given(&w, object, "state", e->state);
    if (e->devices)
        json_put(&w, object, "devices", devices_array(&w, e->devices));
    if (e->kind == CPATTN_EVENT_POOL)
        json_put(&w, object, "spare", json_boolean(e->spare));
    put_given(&w, object, "text", e->text);
    return json_write_line(&w, out, object);
}

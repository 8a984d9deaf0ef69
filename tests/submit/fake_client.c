// SPDX-License-Identifier: Apache-2.0
// libcpattn's functions without a daemon. They test the command with answers that a sound daemon
// never gives. The beginning of the model of a case selects the answer:
//   fail, nan, zero, padding  a fail
//   sample                    a sample of the elements is judged
//   remark                    figures with remarks
//   faint                     dq would also pass if it were zero
//   nothing                   the reference of dq is zero
//   killed                    rank 1 was killed
//   busy                      the queue is full
//   unsent                    the request cannot be submitted
//   slow                      a pass after 50 ms
//   stuck                     no answer until the request is cancelled
//   drift                     another digest in each run
//   slower                    forward takes 1 ms more in each run
//   skew                      rank r has a backward that is r ns shorter
//   flaky                     the first run fails
//   flaky_killed              the first run fails, a rank is killed in each later one
//   shaky                     a rank is killed in the first run
//   flaky_shaky               a rank is killed in the first run, the second run fails
//   limits                    an error that tells the time limits
//   fail_limits               a fail; with tensors an error that tells the time limits
// All other cases pass.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cpattn.h"
#include "client/cpattn_watch.h"
#include "plan/case.h"
#include "tests/submit/fake_client.h"

struct cpattn_case {
    struct cp_case c;
};

struct cpattn_client {
    struct cpattn_request *first; // in flight
    char socket[128];
};

struct cpattn_request {
    struct cpattn_client *client;
    struct cpattn_request *next;
    struct cp_case c;
    void *tag;
    uint64_t timeout_ns, run_timeout_ns;
    bool cancelled, attends;
};

#define FAKE_RANKS_MAX   64
#define FAKE_FIGURES_MAX 10

struct fake_result {
    struct cpattn_result public;
    struct cpattn_rank ranks[FAKE_RANKS_MAX];
    struct cpattn_figures figures[FAKE_RANKS_MAX][FAKE_FIGURES_MAX];
    struct cpattn_failure failures[FAKE_RANKS_MAX];
};

enum cpattn_status fake_error(struct cpattn_error *error, enum cpattn_status status,
                              const char *text)
{
    if (error) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "%s", text);
    }
    return status;
}

const char *cpattn_version(void)
{
    return "0.0.0-fake";
}

const char *cpattn_status_text(enum cpattn_status status)
{
    return status_text((enum status)status);
}

// ---- cases --------------------------------------------------------------------------------------

struct cpattn_case *cpattn_case_create(void)
{
    struct cpattn_case *c = malloc(sizeof(*c));
    if (c)
        case_init(&c->c);
    return c;
}

// This client only supports attention.
struct cpattn_case *cpattn_case_create_kind(const char *kind)
{
    (void)kind;
    return NULL;
}

void cpattn_case_destroy(struct cpattn_case *c)
{
    free(c);
}

enum cpattn_status cpattn_case_set(struct cpattn_case *c, const char *name, const char *value,
                                   struct cpattn_error *error)
{
    struct error why = {.text = ""};
    enum status status = case_set(&c->c, name, value, &why);
    return status ? fake_error(error, (enum cpattn_status)status, why.text) : CPATTN_OK;
}

// ---- results ------------------------------------------------------------------------------------

static const char *const tensors[] = {"out", "lse", "dq", "dk", "dv"};

static bool model_is(const struct cp_case *c, const char *name)
{
    return strncmp(c->model, name, strlen(name)) == 0;
}

// Figures of a correct kernel. The errors grow with the rank and the index.
static struct cpattn_figures sound_figures(const struct cp_case *c, int rank, int index)
{
    bool lse = index / 2 == 1;
    double worse = 1 + 0.01 * (rank + index);
    struct cpattn_figures f = {.tensor = tensors[index / 2],
                               .chunk = index % 2,
                               .elements = 65536,
                               .judged = model_is(c, "sample") ? 4096 : 65536,
                               .rmse_rel = 0.0017 * worse,
                               .rmse_limit = 0.0017 * 1.5,
                               .max_abs = 0.01 * worse,
                               .worst_element = 0.25 * worse,
                               .worst_row_rel = 2 * worse,
                               .worst_row_limit = 20,
                               .worst_row = {.sequence = 1, .head = 2, .position = 3},
                               .first_bad = {.position = -1},
                               .twin_rel = 0.0017,
                               .slope = -1e-5,
                               .slope_limit = 3e-4};
    if (lse) {
        f.rmse_rel = 4e-7;
        f.rmse_limit = 5e-6;
        f.worst_row_rel = f.worst_element;
        f.worst_row_limit = 1;
        f.twin_rel = f.slope = f.slope_limit = 0;
        f.remark = model_is(c, "remark") ? CPATTN_REMARK_LONG_SUM : CPATTN_REMARK_NONE;
    }
    if (model_is(c, "faint") && index / 2 == 2) { // dq is as large as its rounding errors
        f.rmse_limit = f.slope_limit = 1.5;
        f.remark = CPATTN_REMARK_ZEROS_PASS;
    }
    if (model_is(c, "nothing") && index / 2 == 2) { // the reference of dq is zero
        f.rmse_rel = f.slope = 0;
        f.rmse_limit = f.twin_rel = f.slope_limit = INFINITY;
    }
    if (model_is(c, "remark") && index == 0)
        f.te_mismatches = 3;
    return f;
}

static void figures_break(const struct cp_case *c, int tensor, struct cpattn_figures *f)
{
    f->broken = CPATTN_RULE_ELEMENT | CPATTN_RULE_RMSE | CPATTN_RULE_ROW | CPATTN_RULE_SLOPE;
    f->mismatches = 132;
    f->te_mismatches = 12;
    f->rmse_rel = 0.31 * (tensor - 1);
    f->worst_element = 31;
    f->worst_row_rel = 500;
    f->slope = -0.25;
    f->first_bad = (struct cpattn_element){.sequence = 0, .head = 3, .position = 300, .dim = 17};
    f->first_bad_got = 0.125;
    f->first_bad_expected = 0.25;
    if (model_is(c, "nan")) {
        f->broken = CPATTN_RULE_NONFINITE;
        f->nonfinite = 7;
        f->rmse_rel = NAN;
        f->first_bad_got = NAN;
    }
}

static struct cpattn_figures padding_figures(int index)
{
    return (struct cpattn_figures){.tensor = tensors[index / 2],
                                   .chunk = CPATTN_CHUNK_PADDING,
                                   .broken = CPATTN_RULE_PADDING,
                                   .elements = 640,
                                   .judged = 640,
                                   .mismatches = 3,
                                   .worst_row = {.position = -1},
                                   .first_bad = {.sequence = 1, .head = 2, .position = 511},
                                   .first_bad_got = 0.5};
}

static int flaky_runs; // finished runs of "flaky" models in this process

static bool fails(const struct cp_case *c)
{
    if (model_is(c, "flaky"))
        return flaky_runs <= 1;
    return model_is(c, "fail") || model_is(c, "nan") || model_is(c, "zero") ||
           model_is(c, "padding");
}

// In a failing case dq, dk and dv of the last rank are wrong. Each has a larger error than the one
// before.
static struct cpattn_figures make_figures(const struct cp_case *c, int rank, int index)
{
    struct cpattn_figures f = sound_figures(c, rank, index);
    if (!fails(c) || rank != c->world_size - 1 || index < 4)
        return f;
    if (model_is(c, "padding"))
        return index == 5 ? padding_figures(index) : f;
    if (model_is(c, "zero"))
        f.broken = CPATTN_RULE_ZERO;
    else
        figures_break(c, index / 2, &f); // 2 is dq
    return f;
}

// Times of 13 operations in sequence, 50 us each, 2 us apart. Rank r begins r us after rank 0.
#define FAKE_TIMES 13
static void fill_times(const struct cp_case *c, struct cpattn_rank *rank)
{
    static struct cpattn_operation_time times[FAKE_TIMES];
    if (!c->operation_times)
        return;
    for (uint64_t i = 0; i < FAKE_TIMES; i++)
        times[i] = (struct cpattn_operation_time){i * 52000, i * 52000 + 50000};
    rank->operation_times_count = FAKE_TIMES;
    rank->operations_begin_ns = 7000000000 + 1000 * (uint64_t)rank->rank;
    rank->operation_times = times;
}

// Fails of the model fail_reasons with few heads have another reason. With fail_ranks every rank
// has a diagnosis, and rank 1 the best one.
static void fill_diagnosis(const struct cp_case *c, struct cpattn_rank *rank)
{
    bool ranks = model_is(c, "fail_ranks");
    if (!ranks && (rank->pass || !(model_is(c, "fail") || model_is(c, "flaky"))))
        return;
    rank->diagnosis = "the scale is missing";
    rank->diagnosis_tensor = "dq";
    rank->diagnosis_explained = 0.97;
    if (model_is(c, "fail_reasons") && c->heads > 2)
        rank->diagnosis = c->world_size > 1 ? "in heads 1 and 3, not in head 0: keys 4 to 7 and 8 "
                                              "to 9 (rank 1, ring step 1) are missing from dq"
                          : c->heads > 3    ? "in 1 of 6 examined heads and sequences (head 3 of "
                                              "sequence 1): keys 2 to 3 are missing from dq"
                                            : "perhaps keys 2 to 3 are missing from dq";
    if (ranks && rank->rank != 1) {
        rank->diagnosis = rank->rank == 0 ? "the mask is ignored" : "dq is zero";
        rank->diagnosis_explained = rank->rank == 0 ? 0.91 : 0.989;
    }
    if (ranks && rank->rank == 1)
        rank->diagnosis_explained = 0.988;
}

static void fill_answer(struct fake_result *r, const struct cp_case *c)
{
    static uint64_t runs;
    runs++;
    flaky_runs += model_is(c, "flaky");
    uint64_t slower_ns = model_is(c, "slower") ? runs * 1000000 : 0;
    r->public.verdict = fails(c) ? CPATTN_VERDICT_FAIL : CPATTN_VERDICT_PASS;
    if (c->verify == VERIFY_OFF)
        r->public.verdict = CPATTN_VERDICT_UNVERIFIED;
    r->public.digest = UINT64_C(0x0123456789abcdef) + (model_is(c, "drift") ? runs : 0);
    r->public.queue_ns = 1000000;
    r->public.run_ns = 11345678;
    r->public.total_ns = 12345678;
    for (int i = 0; i < c->world_size; i++) {
        r->ranks[i] =
            (struct cpattn_rank){.rank = i,
                                 .pass = !fails(c) || i < c->world_size - 1,
                                 .figures_count = c->verify == VERIFY_OFF ? 0 : FAKE_FIGURES_MAX,
                                 .digest = (uint64_t)i,
                                 .flops = 1e9,
                                 .plan_ns = 21000,
                                 .inputs_ns = 300000,
                                 .forward_ns = 2500000 + (uint64_t)i + slower_ns,
                                 .backward_ns = 6000000 - (model_is(c, "skew") ? (uint64_t)i : 0),
                                 .exchange_ns = 400000,
                                 .reference_ns = 1000000,
                                 .compare_ns = 50000,
                                 .launch_ns = 120000,
                                 .operations = 40,
                                 .diagnosis = "",
                                 .diagnosis_tensor = "",
                                 .provider_reason = ""};
        fill_diagnosis(c, &r->ranks[i]);
        fill_times(c, &r->ranks[i]);
        for (int j = 0; j < FAKE_FIGURES_MAX; j++)
            r->figures[i][j] = make_figures(c, i, j);
    }
}

static void fill_failure(struct fake_result *r, const struct cp_case *c)
{
    for (int i = 0; i < c->world_size; i++) {
        bool culprit = i == 1;
        r->failures[i] = (struct cpattn_failure){
            .rank = i,
            .culprit = culprit,
            .phase = "forward",
            .step = i,
            .waiting_for = culprit ? -1 : 1,
            .state = culprit ? 'X' : 'S',
            .fate = culprit ? "killed by signal 9" : "aborted sibling",
            .text = culprit ? "" : "rank 1 went away",
            .stderr_tail = culprit ? "rank 1: first line\nrank 1: second line\n" : ""};
    }
}

void cpattn_result_destroy(struct cpattn_result *result)
{
    free(result);
}

const struct cpattn_rank *cpattn_result_rank(const struct cpattn_result *result, int rank)
{
    const struct fake_result *r = (const struct fake_result *)result;
    return result->verdict != CPATTN_VERDICT_NONE && rank >= 0 && rank < result->world_size
               ? &r->ranks[rank]
               : NULL;
}

const struct cpattn_figures *cpattn_result_figures(const struct cpattn_result *result, int rank,
                                                   int index)
{
    const struct fake_result *r = (const struct fake_result *)result;
    return cpattn_result_rank(result, rank) && index >= 0 && index < r->ranks[rank].figures_count
               ? &r->figures[rank][index]
               : NULL;
}

const struct cpattn_failure *cpattn_result_failure(const struct cpattn_result *result, int rank)
{
    const struct fake_result *r = (const struct fake_result *)result;
    return result->verdict == CPATTN_VERDICT_NONE && rank >= 0 && rank < result->world_size
               ? &r->failures[rank]
               : NULL;
}

// ---- the client ---------------------------------------------------------------------------------

enum cpattn_status cpattn_client_create(const struct cpattn_options *options,
                                        struct cpattn_client **client, struct cpattn_error *error)
{
    struct cpattn_client *made = calloc(1, sizeof(*made));
    if (!made)
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "not enough memory");
    snprintf(made->socket, sizeof(made->socket), "%s", options->socket ? options->socket : "fake");
    *client = made;
    return CPATTN_OK;
}

void cpattn_client_destroy(struct cpattn_client *client)
{
    free(client);
}

const char *cpattn_client_socket(const struct cpattn_client *client)
{
    return client->socket;
}

enum cpattn_status cpattn_submit(struct cpattn_client *client, const struct cpattn_case *c,
                                 uint64_t timeout_ns, struct cpattn_request **request,
                                 struct cpattn_error *error)
{
    return cpattn_submit_limited(client, c, timeout_ns, 0, request, error);
}

// Internal functions of the library that the command calls. Tensors stay as they are.
struct attend_tensors;
enum status request_attend(struct cpattn_client *client, const struct cpattn_case *c,
                           const struct attend_tensors *memory, uint64_t timeout_ns,
                           struct cpattn_request **request, struct error *error);
enum status request_attend(struct cpattn_client *client, const struct cpattn_case *c,
                           const struct attend_tensors *memory, uint64_t timeout_ns,
                           struct cpattn_request **request, struct error *error)
{
    struct cpattn_error told = {.text = ""};
    (void)memory;
    enum cpattn_status status = cpattn_submit(client, c, timeout_ns, request, &told);
    if (status == CPATTN_OK)
        (*request)->attends = true;
    return status == CPATTN_OK ? STATUS_OK : error_set(error, (enum status)status, "%s", told.text);
}

enum cpattn_status client_status(enum status status, const struct error *error,
                                 struct cpattn_error *out);
enum cpattn_status client_status(enum status status, const struct error *error,
                                 struct cpattn_error *out)
{
    return status == STATUS_OK ? CPATTN_OK
                               : fake_error(out, (enum cpattn_status)status, error->text);
}

const struct cpattn_provider_entry *
cpattn_description_provider(const struct cpattn_description *description, int i)
{
    (void)description;
    (void)i;
    return NULL; // the fake daemon has no providers
}

enum cpattn_status cpattn_submit_limited(struct cpattn_client *client, const struct cpattn_case *c,
                                         uint64_t timeout_ns, uint64_t run_timeout_ns,
                                         struct cpattn_request **request,
                                         struct cpattn_error *error)
{
    struct cpattn_request *made = calloc(1, sizeof(*made));
    if (!made)
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "not enough memory");
    made->timeout_ns = timeout_ns;
    made->run_timeout_ns = run_timeout_ns;
    if (model_is(&c->c, "unsent")) {
        free(made);
        return fake_error(error, CPATTN_UNAVAILABLE, "the daemon went away");
    }
    made->client = client;
    made->c = c->c;
    struct cpattn_request **end = &client->first;
    while (*end)
        end = &(*end)->next;
    *end = made;
    *request = made;
    return CPATTN_OK;
}

void cpattn_request_set_tag(struct cpattn_request *request, void *tag)
{
    request->tag = tag;
}

void *cpattn_request_tag(const struct cpattn_request *request)
{
    return request->tag;
}

const char *cpattn_request_id(const struct cpattn_request *request)
{
    (void)request;
    return "0123456789abcdef0123456789abcdef";
}

static void pause_ns(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&time, NULL);
}

static bool is_answered(const struct cpattn_request *request)
{
    return request->cancelled || !model_is(&request->c, "stuck");
}

bool cpattn_wait(struct cpattn_request *request, uint64_t timeout_ns)
{
    if (!is_answered(request))
        pause_ns(timeout_ns);
    return is_answered(request);
}

struct cpattn_request *cpattn_wait_any(struct cpattn_client *client, uint64_t timeout_ns)
{
    for (struct cpattn_request **r = &client->first; *r; r = &(*r)->next) {
        if (!is_answered(*r))
            continue;
        struct cpattn_request *answered = *r;
        *r = answered->next;
        return answered;
    }
    if (client->first)
        pause_ns(timeout_ns);
    return NULL;
}

// Sets an error whose text has the two time limits of the request.
static enum cpattn_status fake_limits(const struct cpattn_request *request,
                                      struct cpattn_error *error)
{
    char text[96];
    snprintf(text, sizeof(text), "limits of %llu s and %llu s",
             (unsigned long long)request->timeout_ns / 1000000000,
             (unsigned long long)request->run_timeout_ns / 1000000000);
    return fake_error(error, CPATTN_DEADLINE_EXCEEDED, text);
}

enum cpattn_status cpattn_collect(struct cpattn_request *request, struct cpattn_result **result,
                                  struct cpattn_error *error)
{
    struct fake_result *made;
    if (model_is(&request->c, "slow"))
        pause_ns(50000000);
    if (request->cancelled)
        return fake_error(error, CPATTN_CANCELLED, "cancelled while it waited for its turn");
    if (request->timeout_ns > fake_timeout_max_ns())
        return fake_error(error, CPATTN_INVALID_ARGUMENT, "the time limit is too long");
    if (model_is(&request->c, request->attends ? "fail_limits" : "limits"))
        return fake_limits(request, error);
    if (model_is(&request->c, "busy"))
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "the queue is full");
    made = calloc(1, sizeof(*made));
    if (!made)
        return fake_error(error, CPATTN_RESOURCE_EXHAUSTED, "not enough memory");
    made->public.world_size = request->c.world_size;
    *result = &made->public;
    static int shaky_runs;
    bool shaky = model_is(&request->c, "shaky") || model_is(&request->c, "flaky_shaky");
    if (model_is(&request->c, "killed") || (shaky && !shaky_runs++) ||
        (model_is(&request->c, "flaky_killed") && flaky_runs > 0)) {
        fill_failure(made, &request->c);
        return fake_error(error, CPATTN_ABORTED,
                          "rank 1 was killed by signal 9 in forward, step 1");
    }
    fill_answer(made, &request->c);
    return fake_error(error, CPATTN_OK, "");
}

enum cpattn_status cpattn_cancel(struct cpattn_request *request, struct cpattn_error *error)
{
    request->cancelled = true;
    return fake_error(error, CPATTN_OK, "");
}

enum cpattn_status cpattn_cancel_id(struct cpattn_client *client, const char *id,
                                    uint64_t timeout_ns, struct cpattn_error *error)
{
    (void)client;
    (void)timeout_ns;
    if (strcmp(id, "0123456789abcdef0123456789abcdef") == 0)
        return CPATTN_OK;
    return fake_error(error, CPATTN_NOT_FOUND, "no such request waits or runs");
}

enum cpattn_status cpattn_order(struct cpattn_client *client, enum cpattn_order order, int device,
                                uint64_t timeout_ns, uint64_t *count, struct cpattn_error *error)
{
    (void)client;
    (void)timeout_ns;
    if (order == CPATTN_ORDER_DRAIN && device == 63)
        return fake_error(error, CPATTN_INVALID_ARGUMENT,
                          "device is 63; this daemon has devices 0, 1");
    *count = order == CPATTN_ORDER_ENABLE ? 0 : order == CPATTN_ORDER_DRAIN ? 2 : 1;
    return CPATTN_OK;
}

enum cpattn_status cpattn_order_on(struct cpattn_client *client, enum cpattn_order order, int host,
                                   int device, uint64_t timeout_ns, uint64_t *count,
                                   struct cpattn_error *error)
{
    (void)host;
    return cpattn_order(client, order, device, timeout_ns, count, error);
}

void cpattn_request_destroy(struct cpattn_request *request)
{
    struct cpattn_request **r = &request->client->first;
    while (*r && *r != request)
        r = &(*r)->next;
    if (*r)
        *r = request->next;
    free(request);
}

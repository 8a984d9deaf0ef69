// SPDX-License-Identifier: Apache-2.0
#include "tests/kinds/job_calls.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "plan/members.h"

struct wire_request job_request(const struct job_kind *kind, const void *spec)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.is_job = true;
    snprintf(request.job.kind, sizeof(request.job.kind), "%s", kind->name);
    for (const struct case_field *field = kind->fields; field->name; field++) {
        struct job_field *to = &request.job.fields[request.job.field_count++];
        snprintf(to->name, sizeof(to->name), "%s", field->name);
        members_get(spec, field, to->value, sizeof(to->value));
    }
    return request;
}

uint64_t job_digest(struct daemon *d, const struct wire_request *request)
{
    struct wire_reply reply = daemon_call(d, request);
    ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
    ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
    uint64_t digest = reply.result.digest;
    wire_reply_fini(&reply);
    return digest;
}

void job_refused(struct daemon *d, const struct wire_request *request, enum status status,
                 const char *text)
{
    struct wire_reply reply = daemon_call(d, request);
    ck_assert_int_eq(reply.status, status);
    expect_text(reply.message, text);
    wire_reply_fini(&reply);
}

void job_unverified(struct daemon *d, const struct wire_request *request)
{
    struct wire_reply reply = daemon_call(d, request);
    ck_assert_int_eq(reply.status, STATUS_OK);
    ck_assert_int_eq(reply.result.verdict, VERDICT_UNVERIFIED);
    wire_reply_fini(&reply);
}

void job_killed(struct daemon *d, const struct wire_request *request)
{
    struct call call = daemon_call_begin(d, request);
    daemon_await_running(d, 1);
    daemon_signal_rank(d, 3, 2, SIGKILL);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_ABORTED);
    expect_text(reply.message, "rank 2 of 3 was killed by signal 9");
    wire_reply_fini(&reply);
}

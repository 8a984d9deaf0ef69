// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/answer_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "daemon/net/log_quota.h"
#include "daemon/service/reply.h"

// Maximum number of log lines per second about refused requests.
#define REFUSED_LINES_MAX 100

// Maximum length of the description of a case in a line.
#define CASE_TEXT_MAX 256

// True if a line about a request with this status may be logged: always if it was accepted, within
// the quota if it was refused.
static bool is_written(enum status status)
{
    static struct log_quota refused = {.lines_max = REFUSED_LINES_MAX};
    return status == STATUS_OK || log_quota_take(&refused);
}

void answer_refuse(struct exchange *exchange, const struct peer *peer,
                   const struct wire_request *request, const struct error *error)
{
    char id[ID_TEXT_MAX], who[PEER_TEXT_MAX];
    if (is_written(error->status))
        log_info("refused id=%s client=%u %s status=%s reason=%s",
                 request_id_text(&request->id, id), peer->client, peer_describe(peer, who),
                 status_name(error->status), log_quote(&(struct log_quoted){0}, error->text));
    reply_status(exchange, request, error);
}

static const char *verdict_name(const struct wire_reply *reply)
{
    static const char *const names[] = {
        [VERDICT_PASS] = "pass", [VERDICT_FAIL] = "fail", [VERDICT_UNVERIFIED] = "unverified"};
    return reply->status == STATUS_OK ? names[reply->result.verdict] : "none";
}

void answer_log(const struct task *task, const struct action *a, const struct wire_reply *reply)
{
    char id[ID_TEXT_MAX], text[CASE_TEXT_MAX], who[PEER_TEXT_MAX];
    if (!log_enabled(LOG_LEVEL_INFO))
        return;
    job_spec_describe(&task->spec, text, sizeof(text));
    log_info("answered id=%s client=%u %s case=%s status=%s verdict=%s queue_us=%" PRIu64
             " run_us=%" PRIu64 " message=%s",
             request_id_text(&task->id, id), task->peer.client, peer_describe(&task->peer, who),
             log_quote(&(struct log_quoted){0}, text), status_name(reply->status),
             verdict_name(reply), a->queue_ns / 1000, a->run_ns / 1000,
             log_quote(&(struct log_quoted){0}, reply->message));
}

void answer_log_admitted(const struct task *task)
{
    char id[ID_TEXT_MAX], text[CASE_TEXT_MAX], who[PEER_TEXT_MAX];
    if (!log_enabled(LOG_LEVEL_INFO))
        return;
    job_spec_describe(&task->spec, text, sizeof(text));
    log_info("admitted id=%s client=%u %s case=%s timeout_ms=%" PRIu64,
             request_id_text(&task->id, id), task->peer.client, peer_describe(&task->peer, who),
             log_quote(&(struct log_quoted){0}, text), task->timeout_ns / 1000000);
}

void answer_log_run(const struct task *task, const struct action *a)
{
    char id[ID_TEXT_MAX], who[PEER_TEXT_MAX];
    if (log_enabled(LOG_LEVEL_INFO))
        log_info("run id=%s client=%u %s world=%d instance=%d generation=%" PRIu32,
                 request_id_text(&task->id, id), task->peer.client, peer_describe(&task->peer, who),
                 a->world_size, a->instance, a->generation);
}

void answer_log_cancel(const struct request_id *id, const struct peer *peer, enum status status)
{
    char text[ID_TEXT_MAX], who[PEER_TEXT_MAX];
    if (is_written(status))
        log_info("cancel id=%s client=%u %s status=%s", request_id_text(id, text), peer->client,
                 peer_describe(peer, who), status_name(status));
}

void answer_log_order(const struct wire_order *order, const struct peer *peer, enum status status)
{
    static const char *const names[] = {[ORDER_DRAIN_DEVICE] = "drain",
                                        [ORDER_ENABLE_DEVICE] = "enable",
                                        [ORDER_UNPOISON] = "unpoison",
                                        [ORDER_RELOAD] = "reload"};
    char who[PEER_TEXT_MAX];
    char device[48] = "";
    if (order->kind == ORDER_DRAIN_DEVICE || order->kind == ORDER_ENABLE_DEVICE)
        snprintf(device, sizeof(device), order->host ? " device=%d host=%d" : " device=%d",
                 order->device, order->host);
    if (is_written(status))
        log_notice("order kind=%s%s %s status=%s", names[order->kind], device,
                   peer_describe(peer, who), status_name(status));
}

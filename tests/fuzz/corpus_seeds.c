// SPDX-License-Identifier: Apache-2.0
// Writes valid messages as a start for the fuzzers:
//     corpus_seeds tests/fuzz/corpus
// Fills request/ and reply/ there. The names of the files tell their content.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/token.h"
#include "tests/support/wire_samples.h"

static const char *folder;

static void write_file(const char *kind, const char *name, void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    free(data);
}

static void write_request(const char *name, const struct wire_request *request)
{
    struct error error;
    void *data;
    size_t size;
    if (wire_encode_request(request, &data, &size, &error) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", name, error.text);
        exit(1);
    }
    write_file("request", name, data, size);
}

static void write_reply(const char *name, struct wire_reply *reply)
{
    struct error error;
    void *data;
    size_t size;
    if (wire_encode_reply(reply, &data, &size, &error) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", name, error.text);
        exit(1);
    }
    wire_reply_fini(reply);
    write_file("reply", name, data, size);
}

static struct wire_request request_of(struct sample *s, enum wire_method method)
{
    struct wire_request request;
    memset(&request, 0, sizeof request);
    request.version = WIRE_VERSION;
    request.method = method;
    request.timeout_ns = 1000000000;
    sample_id(s, &request.id);
    return request;
}

static void set_lists(struct cp_case *c)
{
    static const int32_t lengths[] = {9, 8}, padded[] = {12, 8};
    c->format = FORMAT_THD;
    case_list_set(c, LIST_LENGTHS_Q, lengths, 2);
    case_list_set(c, LIST_PADDED_Q, padded, 2);
}

static void write_requests(struct sample *s)
{
    struct wire_request request = request_of(s, METHOD_RUN);
    case_init(&request.run);
    write_request("run-default", &request);
    set_lists(&request.run);
    write_request("run-lists", &request);
    do
        sample_case(s, &request.run);
    while (case_bytes(&request.run) > offsetof(struct cp_case, list_values) + 64);
    write_request("run-random", &request);
    request.run.seqlen_q = -1;
    write_request("run-negative", &request);
    case_init(&request.run);
    request.run.kv_heads = 3;
    write_request("run-heads", &request);
    case_init(&request.run);
    request.attends = true;
    places_init(&request.places);
    request.places.given[WHOLE_Q] = request.places.wanted[WHOLE_OUT] = 0;
    request.places.expected[WHOLE_DV] = 1 << 21;
    write_request("run-attend", &request);
    request.attends = false;
    request.is_job = true;
    request.job = (struct job_text){"collective", 2, {{"world_size", "2"}, {"count", "100"}}};
    write_request("run-job", &request);
    request = request_of(s, METHOD_DESCRIBE);
    write_request("describe", &request);
    request.version = WIRE_VERSION + 1;
    write_request("version", &request);
    request = request_of(s, METHOD_STATUS);
    write_request("status", &request);
    token_set(&request.token, "a token of 31 characters, seven", 31);
    write_request("token", &request);
    request = request_of(s, METHOD_CANCEL);
    sample_id(s, &request.cancel);
    write_request("cancel", &request);
    struct wire_request watch = request_of(s, METHOD_WATCH);
    watch.watch = (struct wire_watch){.stream = 7, .after = 12, .recent = 3, .kinds = 8};
    write_request("watch", &watch);
    memset(&request.id, 0, sizeof request.id);
    write_request("id-zero", &request);
}

static void write_diagnosed(struct sample *s)
{
    struct wire_reply reply = {.version = WIRE_VERSION, .method = METHOD_RUN};
    sample_result(s, 1, &reply.result);
    struct rank_report *rank = reply.result.ranks;
    reply.result.verdict = VERDICT_FAIL;
    rank->figures_count = 1;
    rank->figures[0] = (struct figures){.tensor = TENSOR_DV,
                                        .broken = RULE_SLOPE | RULE_ZERO,
                                        .elements = 128,
                                        .judged = 64,
                                        .twin_rel = 1.7e-3,
                                        .slope = -0.1,
                                        .slope_limit = 3e-4,
                                        .te_mismatches = 3,
                                        .remark = REMARK_LONG_SUM,
                                        .first_bad.position = -1};
    rank->diagnosis = (struct diagnosis){
        .tensor = TENSOR_DV, .explained = 0.97, .text = "the keys of chunk 2 are missing"};
    write_reply("result-diagnosed", &reply);
}

static void write_replies(struct sample *s)
{
    struct wire_reply reply = {.version = WIRE_VERSION, .method = METHOD_RUN};
    sample_result(s, 1, &reply.result);
    reply.result.ranks[0].figures_count = 1;
    reply.result.ranks[0].figures[0].tensor = TENSOR_DV;
    write_reply("result", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .status = STATUS_ABORTED};
    sample_failure(s, 1, &reply.failure);
    strcpy(reply.failure.ranks[0].text, "lost rank 1");
    strcpy(reply.failure.ranks[0].fate, "killed by signal 9");
    strcpy(reply.failure.ranks[0].stderr_tail, "first line\nsecond line\n");
    strcpy(reply.message, "rank 0 died");
    write_reply("failure", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .status = STATUS_UNAVAILABLE};
    write_reply("error", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_DESCRIBE};
    sample_description(s, &reply.description);
    write_reply("description", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_STATUS};
    sample_status(s, 2, &reply.pools);
    strcpy(reply.pools.pools[0].last_failure, "rank 3 exited with 1");
    write_reply("status", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_CANCEL};
    write_reply("cancelled", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION, .method = METHOD_WATCH};
    sample_events(s, 2, &reply.events);
    write_reply("events", &reply);
    reply = (struct wire_reply){.version = WIRE_VERSION + 1, .method = METHOD_CANCEL};
    write_reply("version", &reply);
    write_diagnosed(s);
}

int main(int argc, char **argv)
{
    struct sample s = {2026};
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    write_requests(&s);
    write_replies(&s);
    return 0;
}

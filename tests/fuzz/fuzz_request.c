// SPDX-License-Identifier: Apache-2.0
// Any bytes of a client. They give a request that encoding and decoding do not change, or are
// refused with a reason.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

// Encodes, decodes and encodes again. Both encodings must be the same.
static void require_survives(const struct wire_request *request)
{
    struct wire_request again;
    struct error error;
    void *first, *second;
    size_t first_size, second_size;
    require(wire_encode_request(request, &first, &first_size, &error) == STATUS_OK);
    require(wire_decode_request(first, first_size, &again, &error) == STATUS_OK);
    require(wire_encode_request(&again, &second, &second_size, &error) == STATUS_OK);
    require(first_size == second_size && memcmp(first, second, first_size) == 0);
    free(first);
    free(second);
}

// wire_peek_request() finds the same values as decoding.
static void require_peek_agrees(const uint8_t *data, size_t size,
                                const struct wire_request *request)
{
    struct request_id id;
    struct token token;
    wire_peek_request(data, size, &id, &token);
    if (!request)
        return;
    require(memcmp(&id, &request->id, sizeof(id)) == 0);
    require(memcmp(&token, &request->token, sizeof(token)) == 0);
}

// The daemon's parser turns the text of a job into a spec, or into an error with a sentence. All
// functions of the kind must accept the spec. Returns true for a spec.
static bool require_parses(const struct job_text *text)
{
    struct job_spec spec, loaded;
    struct job_frame frame;
    struct error error = {.status = STATUS_OK};
    char line[256];
    int64_t bytes;
    enum status status = job_spec_parse(&spec, text, &error);
    if (status != STATUS_OK) {
        require(error.status == status && error.text[0] != '\0');
        return false;
    }
    int world_size = job_spec_needs(&spec).world_size;
    require(world_size >= 1 && world_size <= WORLD_SIZE_MAX);
    require(job_spec_describe(&spec, line, sizeof line) > 0);
    status = job_spec_memory(&spec, &bytes, &error);
    require(status == STATUS_OK ? bytes >= 0 : status == STATUS_RESOURCE_EXHAUSTED);
    require(job_frame_load(&frame, job_frame_fill(&frame, &spec), &loaded, &error) == STATUS_OK);
    require(job_spec_hash(&loaded) == job_spec_hash(&spec));
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_request request;
    struct error error = {.status = STATUS_OK};
    enum status status = wire_decode_request(data, size, &request, &error);
    fuzz_accepted = status == STATUS_OK;
    require_peek_agrees(data, size, status == STATUS_OK ? &request : NULL);
    switch (status) {
    case STATUS_OK:
        if (request.method == METHOD_RUN && !request.is_job)
            require(case_check(&request.run, NULL) == STATUS_OK);
        if (request.method == METHOD_RUN && request.is_job)
            fuzz_accepted = require_parses(&request.job);
        require_survives(&request);
        return 0;
    case STATUS_INVALID_ARGUMENT:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_UNIMPLEMENTED:
    case STATUS_RESOURCE_EXHAUSTED:
        require(error.status == status && error.text[0] != '\0');
        require(memchr(error.text, '\0', sizeof error.text) != NULL);
        return 0;
    default:
        abort();
    }
}

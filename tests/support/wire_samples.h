// SPDX-License-Identifier: Apache-2.0
// Random but valid contents of messages. The same seed gives the same contents.
#ifndef CPATTN_TESTS_SUPPORT_WIRE_SAMPLES_H
#define CPATTN_TESTS_SUPPORT_WIRE_SAMPLES_H

#include "proto/wire.h"

struct sample {
    uint64_t state;
};

uint64_t sample_bits(struct sample *s);
int64_t sample_range(struct sample *s, int64_t min, int64_t max); // both included

void sample_id(struct sample *s, struct request_id *id);
void sample_case(struct sample *s, struct cp_case *c); // case_check() admits it

void sample_job(struct sample *s, struct job_text *job); // zeroed before; of no existing kind

// Each fills a zeroed struct. wire_reply_fini() of the reply that contains it frees the lists.
void sample_result(struct sample *s, int world_size, struct wire_result *r);
void sample_failure(struct sample *s, int world_size, struct wire_failure *f);
void sample_description(struct sample *s, struct wire_description *d);
void sample_status(struct sample *s, int pools, struct wire_status *status);
void sample_events(struct sample *s, int count, struct wire_events *events);

// The largest result, the largest failure and the most events that can be sent.
void sample_result_largest(struct wire_result *r);
void sample_events_largest(struct wire_events *events);
void sample_failure_largest(struct wire_failure *f);

// A reply with a random answer of the given method, or with the status if it is not OK.
void sample_reply(struct sample *s, enum wire_method method, enum status status,
                  struct wire_reply *reply);

#endif

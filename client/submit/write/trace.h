// SPDX-License-Identifier: Apache-2.0
// Timelines in the trace-event format (JSON), which Perfetto and chrome://tracing read. Each rank
// has two processes, one for its prediction and one for its measurement; each of these has a thread
// for what the rank computes and one for what it exchanges.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_TRACE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_TRACE_H

#include <stdio.h>

#include "client/cpattn.h"
#include "plan/timeline.h"

// With more messages between ranks none is drawn.
#define TRACE_MESSAGES_MAX 20000

struct trace {
    FILE *out;
    bool any; // an event was written, so that the next one needs a comma
};

void trace_begin(struct trace *trace, FILE *out);

// Adds the prediction.
void trace_predicted(struct trace *trace, struct plan *const *plans,
                     const struct timeline *timeline);

// Adds what was measured of each rank of an answer: its operations, if the case had
// operation_times, and its phases in the order of execution. Time 0 is when the first rank began
// its plan. Plans and timeline are those of the prediction.
void trace_measured(struct trace *trace, const struct cpattn_result *result,
                    struct plan *const *plans, const struct timeline *timeline);

// Ends the file; false if it could not be written.
bool trace_end(struct trace *trace);

#endif

// SPDX-License-Identifier: Apache-2.0
// Timelines in the trace-event format (JSON), which Perfetto and chrome://tracing read: a process
// for the prediction of each rank, with a thread for what it computes and one for what it
// exchanges, and one for what was measured of each rank.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_TRACE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_TRACE_H

#include <stdio.h>

#include "client/cpattn.h"
#include "plan/timeline.h"

// With more messages between ranks none is drawn.
#define TRACE_MESSAGES_MAX 20000

struct trace {
    FILE *out;
    bool any; // events so far
};

void trace_begin(struct trace *trace, FILE *out);

// Adds the prediction.
void trace_predicted(struct trace *trace, struct plan *const *plans,
                     const struct timeline *timeline);

// Adds the phases of each rank of an answer, one behind the other as they were run. Their times
// were measured; what lies between them is not known and left out.
void trace_measured(struct trace *trace, const struct cpattn_result *result);

// Ends the file. False where the stream did not take it.
bool trace_end(struct trace *trace);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/expected.h"

#include <math.h>

#include "judge/cpu/reference.h"
#include "judge/cpu/twin.h"
#include "judge/inputs.h"
#include "judge/rules.h"

enum precision expected_precision(const struct cp_case *c)
{
    return c->dtype == DTYPE_FP32 || rules_want_fp64(c) ? PRECISION_FP64 : PRECISION_FAST;
}

// Adds the squares of the differences between the twin's terms of the sink's gradient, which use
// the twin's delta, and those of the reference.
static void add_sink_twin(const struct cp_case *c, int head, int64_t rows,
                          const struct expected_queries *e)
{
    for (int64_t i = 0; i < rows; i++) {
        double p = exp(input_sink(c, head) - e->lse[i]);
        double difference = p * (e->delta_twin[i] - e->delta[i]);
        *e->sums.dsink_twin_squares += difference * difference;
    }
}

enum status expected_queries(const struct cp_case *c, enum precision precision, int sequence,
                             int head, struct range queries, struct room *room,
                             const struct expected_queries *e, struct error *error)
{
    if (precision == PRECISION_FAST && c->dtype != DTYPE_FP32)
        return twin_queries(c, true, sequence, head, queries, room, e, error);
    const struct reference_sums sums = {.max_logit = e->sums.max_logit,
                                        .dsink = e->sums.dsink,
                                        .dsink_squares = e->sums.dsink_terms,
                                        .dbias = e->sums.dbias,
                                        .dbias_stride = e->sums.dbias_stride};
    enum status status = reference_queries(c, sequence, head, queries.begin, queries.end, e->out,
                                           e->lse, c->training ? e->delta : NULL,
                                           c->training ? e->dq : NULL, NULL, &sums, error);
    if (status == STATUS_OK)
        status = twin_queries(c, false, sequence, head, queries, room, e, error);
    if (status == STATUS_OK && e->sums.dsink)
        add_sink_twin(c, head, queries.end - queries.begin, e);
    return status;
}

enum status expected_keys(const struct cp_case *c, enum precision precision, int sequence,
                          int kv_head, struct range keys,
                          const struct expected_statistics *statistics, struct room *room,
                          const struct expected_keys *e, struct error *error)
{
    if (precision == PRECISION_FAST && c->dtype != DTYPE_FP32)
        return twin_keys(c, true, sequence, kv_head, keys, statistics, room, e, error);
    enum status status = reference_keys(c, sequence, kv_head, keys.begin, keys.end, statistics->lse,
                                        statistics->delta, e->dk, e->dv, NULL, error);
    if (status == STATUS_OK)
        status = twin_keys(c, false, sequence, kv_head, keys, statistics, room, e, error);
    return status;
}

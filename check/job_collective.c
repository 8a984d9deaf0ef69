// SPDX-License-Identifier: Apache-2.0
#include "check/job_judge.h"
#include "judge/collective.h"
#include "judge/collective_diagnosis.h"

#define UNTOUCHED 0xa5

static enum status collective_input(const struct job_place *place, const void *spec, int rank,
                                    int index, void *data, struct error *error)
{
    (void)index;
    return place->work.collective->fill(place->work.queue, spec, rank, data, error);
}

static enum status receive_diagnose(const struct job_place *place, const struct collective *c,
                                    int rank, const char *receive, const struct figures *figures,
                                    struct diagnosis *diagnosis, struct error *error)
{
    struct collective_view v;
    struct collective_sample sample;
    size_t bytes = (size_t)collective_element_bytes(c->dtype);
    enum status status = STATUS_OK;
    collective_view_set(&v, c, rank);
    collective_sample_choose(&v, figures->first_bad.position, &sample);
    for (int i = 0; i < sample.count && status == STATUS_OK; i++) {
        uint64_t element = 0;
        status = place->work.collective->read(
            place->work.queue, receive + (size_t)sample.index[i] * bytes, bytes, &element, error);
        sample.got[i] = collective_element(&v, &element, 0);
    }
    if (status == STATUS_OK)
        collective_diagnose(c, rank, &sample, UNTOUCHED, figures, diagnosis);
    return status;
}

static enum status collective_judge(struct job_place *place, const void *spec, int rank,
                                    const void *const tensors[JOB_TENSORS_MAX],
                                    struct figures figures[JOB_TENSORS_MAX],
                                    struct diagnosis *diagnosis, struct error *error)
{
    const struct collective *c = spec;
    const struct collective_judge *judge = place->work.collective;
    const void *send = tensors[COLLECTIVE_SEND], *receive = tensors[COLLECTIVE_RECEIVE];
    struct figures *got = &figures[COLLECTIVE_RECEIVE];
    enum status status = STATUS_OK;
    if (receive)
        status = judge->receive(place->work.queue, c, rank, receive, got, error);
    if (status == STATUS_OK && receive && got->broken != 0)
        status = receive_diagnose(place, c, rank, receive, got, diagnosis, error);
    if (status == STATUS_OK && send)
        status = judge->send(place->work.queue, c, rank, send, c->in_place ? receive : NULL,
                             &figures[COLLECTIVE_SEND], error);
    return status;
}

const struct job_judge job_judge_collective = {.kind = &job_kind_collective,
                                               .untouched = UNTOUCHED,
                                               .fill = collective_input,
                                               .judge = collective_judge};

// SPDX-License-Identifier: Apache-2.0
#include "rank/job.h"

const enum buffer_role job_outputs[JOB_OUTPUTS] = {
    BUFFER_OUT, BUFFER_LSE, BUFFER_DQ, BUFFER_DKV, BUFFER_DSINK, BUFFER_DBIAS, BUFFER_MAX_LOGIT};

void job_phase(const struct job *j, enum report_phase phase)
{
    progress_store(j->progress, (struct progress_view){
                                    .job = (uint32_t)j->number, .phase = phase, .waiting_for = -1});
}

void *job_buffer(const struct job *j, enum buffer_role role, int64_t *bytes)
{
    for (int i = 0; i < j->plan->buffer_count; i++)
        if (j->plan->buffers[i].role == role) {
            *bytes = j->plan->buffers[i].bytes;
            return j->buffers[i];
        }
    *bytes = 0;
    return NULL;
}

void *job_memory(const struct job *j, enum buffer_role role)
{
    int64_t bytes;
    return job_buffer(j, role, &bytes);
}

int64_t job_key_bytes(const struct job *j)
{
    return shard_rows(j->c, SIDE_KV, j->rank) * j->c->kv_heads * j->c->head_dim_qk *
           case_element_bytes(j->c);
}

bool job_role_is_filled(enum buffer_role role)
{
    return role == BUFFER_INPUT_Q || role == BUFFER_INPUT_KV || role == BUFFER_INPUT_DO ||
           role == BUFFER_INPUT_SINK;
}

void job_drop_absent(const struct job *j)
{
    struct rank_report *report = j->report;
    int kept = 0;
    if (!j->lse_absent)
        return;
    report->pass = true;
    for (int i = 0; i < report->figures_count; i++) {
        if (report->figures[i].tensor == TENSOR_LSE)
            continue;
        report->pass = report->pass && report->figures[i].broken == 0;
        report->figures[kept++] = report->figures[i];
    }
    report->figures_count = kept;
}

struct rank_results job_results(const struct job *j)
{
    const char *dkv = job_memory(j, BUFFER_DKV);
    return (struct rank_results){
        .out = job_memory(j, BUFFER_OUT),
        .dq = job_memory(j, BUFFER_DQ),
        .dk = dkv,
        .dv = dkv ? dkv + job_key_bytes(j) : NULL,
        .lse = job_memory(j, BUFFER_LSE),
        .dsink = job_memory(j, BUFFER_DSINK),
        .max_logit = job_memory(j, BUFFER_MAX_LOGIT),
        .dbias = job_memory(j, BUFFER_DBIAS),
    };
}

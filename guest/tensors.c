// SPDX-License-Identifier: Apache-2.0
// Describes the tensors of a case or job for the guest's function.
#include <string.h>

#include "guest/state.h"
#include "plan/bias.h"

enum kind {
    KIND_ROWS,  // [rows][heads][dim] in memory
    KIND_LSE,   // [heads][rows] in memory
    KIND_HEADS, // [heads]
    KIND_BIAS,  // [1 or heads][rows of the bias][seqlen_kv] in memory
    KIND_DBIAS  // the layout of the bias, or one dimension: the rank's share of it
};

static const struct {
    const char *name;
    enum kind kind;
    enum buffer_role role;
    enum shard_side side;
    bool is_wide;   // its head dim is head_dim_v
    bool is_second; // V or dV, which follows K or dK in the same buffer
} tensors[] = {
    {"q", KIND_ROWS, BUFFER_INPUT_Q, SIDE_Q, false, false},
    {"k", KIND_ROWS, BUFFER_INPUT_KV, SIDE_KV, false, false},
    {"v", KIND_ROWS, BUFFER_INPUT_KV, SIDE_KV, true, true},
    {"do", KIND_ROWS, BUFFER_INPUT_DO, SIDE_Q, true, false},
    {"out", KIND_ROWS, BUFFER_OUT, SIDE_Q, true, false},
    {"dq", KIND_ROWS, BUFFER_DQ, SIDE_Q, false, false},
    {"dk", KIND_ROWS, BUFFER_DKV, SIDE_KV, false, false},
    {"dv", KIND_ROWS, BUFFER_DKV, SIDE_KV, true, true},
    {"lse", KIND_LSE, BUFFER_LSE, SIDE_Q, false, false},
    {"sink", KIND_HEADS, BUFFER_INPUT_SINK, SIDE_Q, false, false},
    {"dsink", KIND_HEADS, BUFFER_DSINK, SIDE_Q, false, false},
    {"max_logit", KIND_HEADS, BUFFER_MAX_LOGIT, SIDE_Q, false, false},
    {"bias", KIND_BIAS, BUFFER_INPUT_BIAS, SIDE_Q, false, false},
    {"dbias", KIND_DBIAS, BUFFER_DBIAS, SIDE_Q, false, false},
};

static void dimension(struct cpattn_guest_tensor *t, int64_t size, int64_t stride)
{
    t->shape[t->dims] = size;
    t->strides[t->dims++] = stride;
}

// Adds the dimensions of the row index, outermost first. `step`: elements from one row to the next.
static void rows_describe(const struct cp_case *c, int64_t rows, int64_t step,
                          struct cpattn_guest_tensor *t)
{
    if (c->format == FORMAT_BSHD) {
        dimension(t, c->batch, rows / c->batch * step);
        dimension(t, rows / c->batch, step);
    } else if (c->format == FORMAT_SBHD) {
        dimension(t, rows / c->batch, c->batch * step);
        dimension(t, c->batch, step);
    } else {
        dimension(t, rows, step);
    }
}

static void lse_describe(const struct cp_case *c, int64_t rows, struct cpattn_guest_tensor *t)
{
    int64_t tokens = rows / c->batch;
    if (c->format == FORMAT_THD) {
        dimension(t, c->heads, rows);
        dimension(t, rows, 1);
        return;
    }
    bool bshd = c->format == FORMAT_BSHD;
    dimension(t, c->batch, bshd ? tokens : 1);
    dimension(t, c->heads, rows);
    dimension(t, tokens, bshd ? 1 : c->batch);
}

static void bias_describe(const struct cp_case *c, int rank, struct cpattn_guest_tensor *t)
{
    struct bias_shape shape = bias_shape(c, rank);
    int64_t keys = shape.columns, head = shape.rows * keys, tokens = shape.rows / c->batch;
    bool of_queries = bias_has_queries(c) && bias_has_batch(c), sbhd = c->format == FORMAT_SBHD;
    if (of_queries && c->format != FORMAT_THD)
        dimension(t, c->batch, sbhd ? keys : tokens * keys);
    else if (!of_queries)
        dimension(t, bias_has_queries(c) ? 1 : shape.rows, bias_has_queries(c) ? head : keys);
    dimension(t, shape.heads, head);
    if (of_queries && c->format != FORMAT_THD)
        dimension(t, tokens, sbhd ? c->batch * keys : keys);
    else
        dimension(t, bias_has_queries(c) ? shape.rows : 1, keys);
    dimension(t, keys, 1);
}

static void describe(const struct job *j, int which, struct cpattn_guest_tensor *t)
{
    const struct cp_case *c = j->c;
    int64_t rows = shard_rows(c, tensors[which].side, j->rank);
    int64_t heads = tensors[which].side == SIDE_Q ? c->heads : c->kv_heads;
    int64_t dim = tensors[which].is_wide ? c->head_dim_v : c->head_dim_qk;
    switch (tensors[which].kind) {
    case KIND_ROWS:
        t->dtype = (enum cpattn_guest_dtype)c->dtype;
        rows_describe(c, rows, heads * dim, t);
        dimension(t, heads, dim);
        dimension(t, dim, 1);
        break;
    case KIND_LSE:
        t->dtype = CPATTN_GUEST_FP32;
        lse_describe(c, rows, t);
        break;
    case KIND_HEADS:
        t->dtype = CPATTN_GUEST_FP32;
        dimension(t, c->heads, 1);
        break;
    case KIND_DBIAS:
    case KIND_BIAS:
        t->dtype = (enum cpattn_guest_dtype)c->dtype;
        if (tensors[which].kind == KIND_DBIAS && bias_is_whole(c))
            dimension(t, bias_share(c, j->rank).count, 1);
        else
            bias_describe(c, j->rank, t);
        break;
    }
    t->bytes = t->dtype == CPATTN_GUEST_FP32 ? 4 : 2;
    for (int i = 0; i < t->dims; i++)
        t->bytes *= (size_t)t->shape[i];
}

_Static_assert((int)CPATTN_GUEST_BF16 == DTYPE_BF16 && (int)CPATTN_GUEST_FP16 == DTYPE_FP16 &&
                   (int)CPATTN_GUEST_FP32 == DTYPE_FP32,
               "element types agree");

_Static_assert((int)CPATTN_GUEST_FP32 == (int)JOB_FP32 &&
                   (int)CPATTN_GUEST_INT32 == (int)JOB_INT32 &&
                   (int)CPATTN_GUEST_INT64 == (int)JOB_INT64 &&
                   (int)CPATTN_GUEST_UINT8 == (int)JOB_UINT8,
               "element types of jobs agree");

static bool case_tensor(const struct job *j, const char *name, struct cpattn_guest_tensor *tensor)
{
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        char *data = job_memory(j, tensors[i].role);
        if (strcmp(tensors[i].name, name) != 0)
            continue;
        if (!data)
            return false;
        *tensor = (struct cpattn_guest_tensor){
            .data = tensors[i].is_second ? data + job_key_bytes(j) : data};
        describe(j, (int)i, tensor);
        return true;
    }
    return false;
}

static bool run_tensor(const struct plan_run *run, const char *name,
                       struct cpattn_guest_tensor *tensor)
{
    struct job_tensor found;
    int index = job_tensor_find(run->kind, run->spec, run->control->rank, name, &found);
    if (index < 0)
        return false;
    *tensor = (struct cpattn_guest_tensor){.data = run->tensors[index],
                                           .dtype = (enum cpattn_guest_dtype)found.dtype,
                                           .bytes = (size_t)job_tensor_bytes(&found)};
    for (int i = 0; i < found.dims; i++)
        dimension(tensor, found.shape[i], i + 1 < found.dims ? found.shape[i + 1] : 1);
    return true;
}

bool cpattn_guest_tensor(const struct cpattn_guest_job *job, const char *name,
                         struct cpattn_guest_tensor *tensor)
{
    return job->run ? run_tensor(job->run, name, tensor) : case_tensor(job->j, name, tensor);
}

// SPDX-License-Identifier: Apache-2.0
#include "kernels/foreign.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/guard.h"
#include "kernels/dtype.h"
#include "kernels/groups.h"

#define ALIGNMENT  256
#define REASON_MAX 256

_Static_assert((int)CPATTN_BF16 == (int)DTYPE_BF16, "dtypes agree");
_Static_assert((int)CPATTN_FP16 == (int)DTYPE_FP16, "dtypes agree");
_Static_assert((int)CPATTN_FP32 == (int)DTYPE_FP32, "dtypes agree");
_Static_assert((int)CPATTN_LSE_BY_RECTANGLE == (int)PACKED_BY_RUN, "layouts agree");
_Static_assert((int)CPATTN_LSE_BY_ROW == (int)PACKED_BY_ROW, "layouts agree");

struct foreign {
    struct attention_provider base;
    const struct backend_ops *ops;
    struct attention_backend *backend;
    void *library;
    const struct cpattn_provider *table;
    void *state;
    char name[64];
};

// One call of the provider: a group of rectangles and the result of prepare().
struct call {
    struct cpattn_attention attention;
    struct cpattn_prepared prepared;
    bool is_prepared;
};

struct prepared_op {
    struct groups groups;
    struct call *calls; // one for each group
};

static struct foreign *self(struct attention_provider *p)
{
    return (struct foreign *)p;
}

// ---- calls of the table -------------------------------------------------------------------------

// Turns the result of a provider's function into a status. The error text is `reason`, made
// printable and never empty. `call` names the function.
static enum status answer(const struct foreign *f, int result, const char *reason, const char *call,
                          struct error *error)
{
    char text[REASON_MAX];
    snprintf(text, sizeof(text), "%s", reason[0] ? reason : "it does not say why");
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    switch (result) {
    case CPATTN_PROVIDER_OK:
        return STATUS_OK;
    case CPATTN_PROVIDER_UNSUPPORTED:
        return error_set(error, STATUS_UNIMPLEMENTED, "%s", text);
    case CPATTN_PROVIDER_NO_MEMORY:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s", text);
    default:
        return error_set(error, STATUS_INTERNAL, "%s of provider %s returned %d: %s", call, f->name,
                         result, text);
    }
}

static bool merges(const struct foreign *f)
{
    return f->table->flags & CPATTN_PROVIDER_MERGES;
}

static enum case_dtype result_dtype(const struct call *call)
{
    return (enum case_dtype)(call->prepared.result_dtype ? call->prepared.result_dtype
                                                         : call->attention.dtype);
}

// ---- preparing ----------------------------------------------------------------------------------

static struct cpattn_attention attention_of(const struct attention_op *op, const struct group *g)
{
    const struct attention_shape *s = &op->shape;
    return (struct cpattn_attention){
        .size = sizeof(struct cpattn_attention),
        .backward = op->backward,
        .dtype = (int32_t)s->dtype,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .group = s->group,
        .head_phase = s->head_phase,
        .head_dim_qk = s->d_qk,
        .head_dim_v = s->d_v,
        .deterministic = s->deterministic,
        .dense = g->dense,
        .scale = s->scale,
        .softcap = s->softcap,
        .band_left = g->band_left,
        .band_right = g->band_right,
        .row_step = s->row_step,
        .q_row_stride = g->q_stride,
        .kv_row_stride = g->kv_stride,
        .q_rows = s->q_rows,
        .q_packed_rows = g->q.total,
        .kv_packed_rows = g->kv.total,
        .bias_head_stride = s->bias_head_stride,
        .bias_row_stride = s->bias_row_step * s->bias_row_stride,
        .has_bias = op->bias,
        .wants_dbias = op->dbias,
        .wants_max_logit = op->max_logit,
        .rectangle_count = g->count,
        .rectangles = g->rectangles,
    };
}

static enum status call_check(const struct foreign *f, const struct attention_op *op,
                              const struct group *g, struct error *reason)
{
    char text[REASON_MAX] = "";
    struct cpattn_attention attention = attention_of(op, g);
    if (op->backward && !f->table->backward)
        return error_set(reason, STATUS_UNIMPLEMENTED, "it has no backward");
    return answer(f, f->table->supports(f->state, &attention, text, sizeof(text)), text,
                  "supports()", reason);
}

static enum status groups_check(const struct foreign *f, const struct attention_op *op, bool varlen,
                                struct groups *g, struct error *reason)
{
    enum status status = groups_build(g, op, varlen, reason);
    for (int32_t i = 0; i < g->count && status == STATUS_OK; i++)
        status = call_check(f, op, &g->list[i], reason);
    if (status != STATUS_OK)
        groups_fini(g);
    return status;
}

// Groups rectangles of equal lengths, which the provider must support. If that takes several calls,
// also tries rectangles of different lengths in one call, and keeps these groups if they are fewer.
static enum status groups_choose(const struct foreign *f, const struct attention_op *op,
                                 struct groups *g, struct error *reason)
{
    struct groups varlen;
    struct error refusal;
    enum status status = groups_check(f, op, false, g, reason);
    if (status != STATUS_OK || g->count == 1 ||
        groups_check(f, op, true, &varlen, &refusal) != STATUS_OK)
        return status;
    struct groups *worse = varlen.count < g->count ? g : &varlen;
    struct groups better = worse == g ? varlen : *g;
    groups_fini(worse);
    *g = better;
    return STATUS_OK;
}

static enum status foreign_supports(struct attention_provider *p, const struct attention_op *op,
                                    struct error *reason)
{
    struct groups groups;
    enum status status = groups_choose(self(p), op, &groups, reason);
    if (status == STATUS_OK)
        groups_fini(&groups);
    return status;
}

static bool prepared_is_sane(const struct call *call)
{
    const struct cpattn_prepared *p = &call->prepared;
    return p->workspace_bytes >= 0 && p->workspace_bytes < INT64_C(1) << 50 &&
           (p->result_dtype == 0 || p->result_dtype == call->attention.dtype ||
            p->result_dtype == CPATTN_FP32) &&
           (p->lse_layout == CPATTN_LSE_BY_RECTANGLE || p->lse_layout == CPATTN_LSE_BY_ROW);
}

static enum status call_prepare(const struct foreign *f, const struct attention_op *op,
                                const struct group *g, struct call *call, struct error *error)
{
    char text[REASON_MAX] = "";
    call->attention = attention_of(op, g);
    call->prepared = (struct cpattn_prepared){.size = sizeof(call->prepared)};
    int result = f->table->prepare ? f->table->prepare(f->state, &call->attention, &call->prepared,
                                                       text, sizeof(text))
                                   : CPATTN_PROVIDER_OK;
    call->is_prepared = result == CPATTN_PROVIDER_OK;
    if (call->is_prepared && !prepared_is_sane(call))
        return error_set(error, STATUS_INTERNAL,
                         "prepare() of provider %s left a workspace, a dtype or a layout that does "
                         "not exist",
                         f->name);
    return answer(f, result, text, "prepare()", error);
}

// ---- scratch ------------------------------------------------------------------------------------

#define PIECES_MAX 7

// Allocates pieces of `memory`, each between guard bytes; with NULL only counts their bytes.
struct pieces {
    unsigned char *memory;
    size_t used;
    int count;
    struct {
        const char *name;
        size_t begin, end; // in `memory`
    } list[PIECES_MAX];
};

static void *piece(struct pieces *p, const char *name, int64_t bytes)
{
    size_t begin = p->used + GUARD_BYTES, end = begin + (size_t)bytes;
    if (bytes == 0)
        return NULL;
    p->used = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GUARD_BYTES;
    p->list[p->count].name = name;
    p->list[p->count].begin = begin;
    p->list[p->count++].end = end;
    return p->memory ? p->memory + begin : NULL;
}

// Sets the guard bytes of all pieces in host memory.
static void guards_set(const struct foreign *f, const struct pieces *p)
{
    for (int i = 0; i < p->count && !f->ops->on_device; i++) {
        memset(p->memory + p->list[i].begin - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
        memset(p->memory + p->list[i].end, GUARD_BYTE, GUARD_BYTES);
    }
}

// Compares them after a call of the provider. INTERNAL: a guard byte has changed.
static enum status guards_check(const struct foreign *f, const struct pieces *p, const char *call,
                                struct error *error)
{
    for (int i = 0; i < p->count && !f->ops->on_device; i++) {
        int64_t before = guard_changed(p->memory + p->list[i].begin - GUARD_BYTES, GUARD_BYTES);
        int64_t behind = guard_changed(p->memory + p->list[i].end, GUARD_BYTES);
        if (before + behind > 0)
            return error_set(error, STATUS_INTERNAL,
                             "%s of provider %s has written outside of its %s: %lld bytes before "
                             "it and %lld behind it have changed",
                             call, f->name, p->list[i].name, (long long)before, (long long)behind);
    }
    return STATUS_OK;
}

// Packed tensors and workspace of one call, in scratch. NULL: the call does not use it.
struct tensors {
    void *o, *dq, *dk, *dv;
    float *lse, *delta;
    void *workspace;
};

static struct tensors tensors_lay_out(const struct foreign *f, const struct call *call,
                                      struct pieces *p)
{
    const struct cpattn_attention *a = &call->attention;
    int64_t q = merges(f) ? 0 : a->q_packed_rows * a->heads;
    int64_t kv = merges(f) ? 0 : a->kv_packed_rows * a->kv_heads;
    int64_t bytes = dtype_bytes(result_dtype(call));
    struct tensors t = {.workspace = piece(p, "workspace", call->prepared.workspace_bytes)};
    t.lse = piece(p, "packed lse", q * (int64_t)sizeof(float));
    if (!a->backward) {
        t.o = piece(p, "packed o", q * a->head_dim_v * bytes);
        return t;
    }
    if (call->prepared.wants_out)
        t.o = piece(p, "packed o", q * a->head_dim_v * dtype_bytes((enum case_dtype)a->dtype));
    if (call->prepared.wants_delta)
        t.delta = piece(p, "packed delta", q * (int64_t)sizeof(float));
    t.dq = piece(p, "packed dq", q * a->head_dim_qk * bytes);
    t.dk = piece(p, "packed dk", kv * a->head_dim_qk * bytes);
    t.dv = piece(p, "packed dv", kv * a->head_dim_v * bytes);
    return t;
}

static void prepared_destroy(const struct foreign *f, struct prepared_op *x)
{
    for (int32_t i = 0; x->calls && i < x->groups.count; i++)
        if (x->calls[i].is_prepared && f->table->discard)
            f->table->discard(f->state, x->calls[i].prepared.state);
    groups_fini(&x->groups);
    free(x->calls);
    free(x);
}

// Bytes of the row tables of all groups; 0 if the backend needs no copy on a device.
static size_t tables_bytes(const struct foreign *f, const struct prepared_op *x)
{
    size_t bytes = 0;
    if (!f->ops->on_device || merges(f))
        return 0;
    for (int32_t i = 0; i < x->groups.count; i++)
        bytes += packed_rows_bytes(&x->groups.list[i].q) + packed_rows_bytes(&x->groups.list[i].kv);
    return bytes;
}

static enum status foreign_prepare(struct attention_provider *p, const struct attention_op *op,
                                   struct prepared_op **prepared, struct op_needs *needs,
                                   struct error *error)
{
    struct foreign *f = self(p);
    struct prepared_op *x = calloc(1, sizeof(*x));
    if (!x)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an operation");
    size_t most = 0;
    enum status status = groups_choose(f, op, &x->groups, error);
    if (status == STATUS_OK) {
        x->calls = calloc((size_t)x->groups.count + 1, sizeof(*x->calls));
        if (!x->calls)
            status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an operation");
    }
    for (int32_t i = 0; status == STATUS_OK && i < x->groups.count; i++) {
        struct pieces count = {.memory = NULL};
        status = call_prepare(f, op, &x->groups.list[i], &x->calls[i], error);
        if (status == STATUS_OK)
            (void)tensors_lay_out(f, &x->calls[i], &count);
        most = count.used > most ? count.used : most;
    }
    if (status != STATUS_OK) {
        prepared_destroy(f, x);
        return status;
    }
    needs->scratch_bytes = most;
    needs->table_bytes = tables_bytes(f, x);
    *prepared = x;
    return STATUS_OK;
}

static void foreign_place(struct attention_provider *p, struct prepared_op *x, void *host,
                          const void *device, void *zeros)
{
    size_t used = 0;
    (void)p;
    (void)zeros;
    for (int32_t i = 0; i < x->groups.count; i++) {
        struct packed_rows *sides[] = {&x->groups.list[i].q, &x->groups.list[i].kv};
        for (int k = 0; k < 2; k++) {
            size_t bytes = packed_rows_bytes(sides[k]);
            memcpy((char *)host + used, sides[k]->runs, bytes);
            sides[k]->table = (const char *)device + used;
            used += bytes;
        }
    }
}

static void foreign_discard(struct attention_provider *p, struct prepared_op *prepared)
{
    if (prepared)
        prepared_destroy(self(p), prepared);
}

// ---- running ------------------------------------------------------------------------------------

static enum status call_forward(const struct foreign *f, const struct call *call,
                                const struct group *g, const struct attention_forward *args,
                                void *scratch, struct error *error)
{
    char text[REASON_MAX] = "";
    struct pieces pieces = {.memory = scratch};
    struct tensors t = tensors_lay_out(f, call, &pieces);
    guards_set(f, &pieces);
    struct cpattn_forward forward = {
        .size = sizeof(forward),
        .q = args->q,
        .k = args->k,
        .v = args->v,
        .bias = args->bias,
        .o = merges(f) ? (void *)args->o : t.o,
        .lse = merges(f) ? args->lse : t.lse,
        .max_logit = args->max_logit,
        .workspace = t.workspace,
        .stream = f->ops->stream ? f->ops->stream(f->backend) : NULL,
    };
    int result = f->table->forward(f->state, call->prepared.state, &call->attention, &forward, text,
                                   sizeof(text));
    if (result == CPATTN_PROVIDER_OK && guards_check(f, &pieces, "forward()", error) != STATUS_OK)
        return error->status;
    if (result == CPATTN_PROVIDER_OK && !merges(f))
        f->ops->merge_rows(f->backend, &args->shape, &g->q, result_dtype(call), t.o, t.lse,
                           (enum packed_layout)call->prepared.lse_layout, args->o, args->lse);
    return answer(f, result, text, "forward()", error);
}

static enum status foreign_forward(struct attention_provider *p, const struct prepared_op *x,
                                   const struct attention_forward *args, void *scratch,
                                   struct error *error)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < x->groups.count && status == STATUS_OK; i++)
        status = call_forward(self(p), &x->calls[i], &x->groups.list[i], args, scratch, error);
    return status;
}

// Packs LSE for a provider that does not merge, and delta and O if its backward reads them.
static void backward_inputs(const struct foreign *f, const struct call *call, const struct group *g,
                            const struct attention_backward *args, const struct tensors *t)
{
    enum packed_layout layout = (enum packed_layout)call->prepared.lse_layout;
    int64_t width = (int64_t)args->shape.heads * args->shape.d_v;
    f->ops->pack_heads(f->backend, &args->shape, &g->q, layout, args->lse, t->lse);
    if (t->delta)
        f->ops->pack_heads(f->backend, &args->shape, &g->q, layout, args->d, t->delta);
    if (t->o)
        f->ops->pack_rows(f->backend, &g->q, width, args->shape.dtype, args->o, t->o);
}

static void gradients_add(const struct foreign *f, const struct call *call, const struct group *g,
                          const struct attention_backward *args, const struct tensors *t)
{
    const struct attention_shape *s = &args->shape;
    enum case_dtype dtype = result_dtype(call);
    f->ops->add_rows(f->backend, &g->q, (int64_t)s->heads * s->d_qk, dtype, t->dq, args->dq);
    f->ops->add_rows(f->backend, &g->kv, (int64_t)s->kv_heads * s->d_qk, dtype, t->dk, args->dk);
    f->ops->add_rows(f->backend, &g->kv, (int64_t)s->kv_heads * s->d_v, dtype, t->dv, args->dv);
}

static enum status call_backward(const struct foreign *f, const struct call *call,
                                 const struct group *g, const struct attention_backward *args,
                                 void *scratch, struct error *error)
{
    char text[REASON_MAX] = "";
    bool whole = merges(f);
    struct pieces pieces = {.memory = scratch};
    struct tensors t = tensors_lay_out(f, call, &pieces);
    guards_set(f, &pieces);
    if (!whole)
        backward_inputs(f, call, g, args, &t);
    struct cpattn_backward backward = {
        .size = sizeof(backward),
        .q = args->q,
        .k = args->k,
        .v = args->v,
        .bias = args->bias,
        .d_out = args->d_out,
        .o = whole ? args->o : t.o,
        .lse = whole ? args->lse : t.lse,
        .delta = whole ? args->d : t.delta,
        .dq = whole ? (void *)args->dq : t.dq,
        .dk = whole ? (void *)args->dk : t.dk,
        .dv = whole ? (void *)args->dv : t.dv,
        .dbias = args->dbias,
        .workspace = t.workspace,
        .stream = f->ops->stream ? f->ops->stream(f->backend) : NULL,
    };
    int result = f->table->backward(f->state, call->prepared.state, &call->attention, &backward,
                                    text, sizeof(text));
    if (result == CPATTN_PROVIDER_OK && guards_check(f, &pieces, "backward()", error) != STATUS_OK)
        return error->status;
    if (result == CPATTN_PROVIDER_OK && !whole)
        gradients_add(f, call, g, args, &t);
    return answer(f, result, text, "backward()", error);
}

static enum status foreign_backward(struct attention_provider *p, const struct prepared_op *x,
                                    const struct attention_backward *args, void *scratch,
                                    struct error *error)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < x->groups.count && status == STATUS_OK; i++) {
        const struct call *call = &x->calls[i];
        if (call->prepared.wants_out && !args->o)
            return error_set(error, STATUS_INTERNAL,
                             "provider %s needs the output of the forward, which is gone", p->name);
        status = call_backward(self(p), call, &x->groups.list[i], args, scratch, error);
    }
    return status;
}

// ---- life ---------------------------------------------------------------------------------------

static const struct provider_ops foreign_ops = {
    .supports = foreign_supports,
    .prepare = foreign_prepare,
    .place = foreign_place,
    .forward = foreign_forward,
    .backward = foreign_backward,
    .discard = foreign_discard,
};

static enum status refuse(const char *file, const char *why, struct error *error)
{
    return error_set(error, STATUS_FAILED_PRECONDITION, "%s: %s", file, why);
}

static enum status table_check(const struct foreign *f, const char *file, struct error *error)
{
    const struct cpattn_provider *t = f->table;
    uint32_t memory = f->ops->on_device ? CPATTN_MEMORY_CUDA : CPATTN_MEMORY_HOST;
    if (!t || t->size < sizeof(*t) || t->version != CPATTN_PROVIDER_VERSION)
        return refuse(file, "its table is of another version than this cpattnd takes", error);
    if (!t->supports || !t->forward)
        return refuse(file, "its table has no supports() or no forward()", error);
    if (t->memory != memory)
        return refuse(file,
                      f->ops->on_device ? "it computes in memory of the host, and this "
                                          "backend is cuda"
                                        : "it computes on CUDA devices, and this backend is "
                                          "cpu",
                      error);
    return STATUS_OK;
}

static enum status foreign_load(struct foreign *f, const char *file, struct error *error)
{
    const struct cpattn_provider *(*table)(void);
    f->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!f->library)
        return error_set(error, STATUS_FAILED_PRECONDITION, "%s", dlerror());
    *(void **)(void *)&table = dlsym(f->library, CPATTN_PROVIDER_SYMBOL);
    if (!table)
        return refuse(file, "it does not export " CPATTN_PROVIDER_SYMBOL "()", error);
    f->table = table();
    return table_check(f, file, error);
}

static enum status foreign_begin(struct foreign *f, const char *file, struct error *error)
{
    char text[REASON_MAX] = "";
    if (!f->table->open || f->table->open(&f->state, text, sizeof(text)) == CPATTN_PROVIDER_OK)
        return STATUS_OK;
    return refuse(file, text[0] ? text : "open() does not say why it failed", error);
}

enum status foreign_look(const char *file, const struct backend_ops *ops, struct error *error)
{
    struct foreign f = {.ops = ops};
    enum status status = foreign_load(&f, file, error);
    if (status != STATUS_OK && f.library)
        dlclose(f.library);
    return status;
}

enum status foreign_open(const char *name, const char *file, const struct backend_ops *ops,
                         struct attention_backend *backend, struct attention_provider **provider,
                         struct error *error)
{
    struct foreign *f = calloc(1, sizeof(*f));
    if (!f)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a provider");
    f->ops = ops;
    f->backend = backend;
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->base = (struct attention_provider){.ops = &foreign_ops, .name = f->name};
    enum status status = foreign_load(f, file, error);
    if (status == STATUS_OK)
        status = foreign_begin(f, file, error);
    if (status != STATUS_OK) {
        if (f->library)
            dlclose(f->library);
        free(f);
        return status;
    }
    *provider = &f->base;
    return STATUS_OK;
}

const char *foreign_about(struct attention_provider *provider)
{
    const char *about = self(provider)->table->about;
    return about ? about : "";
}

// The object stays loaded: it may have running threads or exit handlers.
void foreign_close(struct attention_provider *provider)
{
    if (!provider)
        return;
    struct foreign *f = self(provider);
    if (f->table->close)
        f->table->close(f->state);
    free(f);
}

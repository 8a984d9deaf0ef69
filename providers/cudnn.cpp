// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention as a provider, over the header-only cuDNN frontend. open() loads
// libcudnn.so.9. What a version of cuDNN cannot do, or is known to do wrong, the frontend refuses,
// and its sentence is the reason.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "providers/cudnn_graph.h"

namespace cudnn_frontend
{
void *cudnn_dlhandle;
}

namespace
{

// One operation: its graph and its tables, which each run copies into its workspace.
struct operation {
    std::shared_ptr<graph> plan;
    char *tables = nullptr; // packed groups: lengths and offsets, in pinned memory
    int64_t table_bytes = 0;
    int64_t tables_place = 0;                      // in the workspace
    std::unordered_map<int64_t, int64_t> table_at; // by tensor
};

int say(int status, char *reason, uint64_t size, const std::string &text)
{
    snprintf(reason, size, "%s", text.c_str());
    return status;
}

// ---- tables of packed groups --------------------------------------------------------------------

struct tables {
    std::vector<char> bytes;
    operation *o;

    template <class T> void add(int64_t uid, const std::vector<T> &values)
    {
        bytes.resize((size_t)aligned((int64_t)bytes.size()));
        o->table_at[uid] = (int64_t)bytes.size();
        const char *data = (const char *)values.data();
        bytes.insert(bytes.end(), data, data + values.size() * sizeof(T));
    }

    // Offsets in elements, `width` of them a row; in place, or packed.
    void offsets(const cpattn_attention *a, int64_t uid, bool queries, bool in_place, int64_t width)
    {
        std::vector<int64_t> values;
        int64_t last = 0;
        for (int32_t i = 0; i < a->rectangle_count; i++) {
            const cpattn_rectangle *r = &a->rectangles[i];
            int64_t row = queries ? (in_place ? r->q_row : r->q_packed)
                                  : (in_place ? r->kv_row : r->kv_packed);
            values.push_back(row * width);
            last = (row + (queries ? r->q_len : r->kv_len)) * width;
        }
        values.push_back(last);
        add(OFFSETS + uid, values);
    }

    void lengths(const cpattn_attention *a)
    {
        std::vector<int32_t> q, kv;
        for (int32_t i = 0; i < a->rectangle_count; i++) {
            q.push_back((int32_t)a->rectangles[i].q_len);
            kv.push_back((int32_t)a->rectangles[i].kv_len);
        }
        add(LENGTHS_Q, q);
        add(LENGTHS_KV, kv);
    }

    void all_offsets(const cpattn_attention *a)
    {
        int64_t h = a->heads, hk = a->kv_heads, d = a->head_dim_qk, dv = a->head_dim_v;
        bool gathered = is_gathered(a);
        offsets(a, Q, true, !gathered, h * d);
        offsets(a, K, false, true, hk * d);
        offsets(a, V, false, true, hk * dv);
        offsets(a, D_OUT, true, !gathered, h * dv);
        offsets(a, O, true, false, h * dv);
        offsets(a, STATS, true, false, h);
        offsets(a, DQ, true, false, h * d);
        offsets(a, DK, false, false, hk * d);
        offsets(a, DV, false, false, hk * dv);
    }
};

bool tables_make(const cpattn_attention *a, operation *o)
{
    if (!is_padded(a))
        return true;
    tables t = {{}, o};
    t.lengths(a);
    if (!a->dense)
        t.all_offsets(a);
    if (cudaMallocHost((void **)&o->tables, t.bytes.size()) != cudaSuccess)
        return false;
    o->table_bytes = (int64_t)t.bytes.size();
    memcpy(o->tables, t.bytes.data(), t.bytes.size());
    return true;
}

// ---- running ------------------------------------------------------------------------------------

typedef std::unordered_map<int64_t, void *> variant;

// Tensors in place begin with the first rectangle where they are dense; offsets say where, else.
void *place(const cpattn_attention *a, const void *tensor, bool queries, int64_t d)
{
    const cpattn_rectangle *first = a->rectangles;
    int64_t row = queries ? first->q_row : first->kv_row;
    int64_t width = (queries ? a->heads : a->kv_heads) * d;
    return (char *)tensor + (a->dense ? row * width * 2 : 0);
}

// The rows of the rectangles, one behind the other.
bool gather(const cpattn_attention *a, const void *tensor, int64_t d, void *to, void *stream)
{
    int64_t row = a->heads * d * 2;
    for (int32_t i = 0, next; i < a->rectangle_count; i = next) {
        const cpattn_rectangle *r = &a->rectangles[i];
        int64_t rows = r->q_len;
        for (next = i + 1;
             next < a->rectangle_count && a->rectangles[next].q_row == r->q_row + rows &&
             a->rectangles[next].q_packed == r->q_packed + rows;
             next++)
            rows += a->rectangles[next].q_len;
        if (cudaMemcpyAsync((char *)to + r->q_packed * row, (const char *)tensor + r->q_row * row,
                            rows * row, cudaMemcpyDeviceToDevice,
                            (cudaStream_t)stream) != cudaSuccess)
            return false;
    }
    return true;
}

// Q and dO of a backward: copies where they are gathered.
bool queries_add(const cpattn_attention *a, const operation *o, const cpattn_backward *args,
                 variant *v)
{
    (*v)[Q] = place(a, args->q, true, a->head_dim_qk);
    (*v)[D_OUT] = place(a, args->d_out, true, a->head_dim_v);
    if (!is_gathered(a))
        return true;
    char *q = (char *)args->workspace + aligned(o->plan->workspace);
    char *d_out = q + copy_bytes(a, a->head_dim_qk);
    (*v)[Q] = q;
    (*v)[D_OUT] = d_out;
    return gather(a, args->q, a->head_dim_qk, q, args->stream) &&
           gather(a, args->d_out, a->head_dim_v, d_out, args->stream);
}

bool tables_add(const operation *o, char *workspace, void *stream, variant *v)
{
    char *tables = workspace + o->tables_place;
    for (const auto &entry : o->table_at)
        (*v)[entry.first] = tables + entry.second;
    return !o->tables ||
           cudaMemcpyAsync(tables, o->tables, (size_t)o->table_bytes, cudaMemcpyHostToDevice,
                           (cudaStream_t)stream) == cudaSuccess;
}

int run(library *l, const operation *o, variant &v, void *workspace, void *stream, char *reason,
        uint64_t size)
{
    if (!tables_add(o, (char *)workspace, stream, &v))
        return say(CPATTN_PROVIDER_FAILED, reason, size, "tables cannot be copied");
    if (l->set_stream(l->handle, (cudaStream_t)stream) != CUDNN_STATUS_SUCCESS)
        return say(CPATTN_PROVIDER_FAILED, reason, size, "cudnnSetStream() failed");
    auto result = o->plan->graph.execute(l->handle, v, workspace);
    if (!result.is_good())
        return say(CPATTN_PROVIDER_FAILED, reason, size, result.get_message());
    return CPATTN_PROVIDER_OK;
}

// No exception leaves the table.
template <class Work> int guarded(char *reason, uint64_t size, Work work)
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return say(CPATTN_PROVIDER_NO_MEMORY, reason, size, "no memory");
    } catch (const std::exception &e) {
        return say(CPATTN_PROVIDER_FAILED, reason, size, e.what());
    }
}

// ---- the table ----------------------------------------------------------------------------------

char about[64] = "cuDNN";

int cudnn_open(void **state, char *reason, uint64_t size)
{
    return guarded(reason, size, [&] {
        void *object = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
        if (!object)
            return say(CPATTN_PROVIDER_FAILED, reason, size, dlerror());
        fe::cudnn_dlhandle = object;
        auto l = std::make_unique<library>();
        l->create = (cudnnStatus_t(*)(cudnnHandle_t *))dlsym(object, "cudnnCreate");
        l->set_stream =
            (cudnnStatus_t(*)(cudnnHandle_t, cudaStream_t))dlsym(object, "cudnnSetStream");
        l->version = (size_t(*)())dlsym(object, "cudnnGetVersion");
        if (!l->create || !l->set_stream || !l->version ||
            l->create(&l->handle) != CUDNN_STATUS_SUCCESS)
            return say(CPATTN_PROVIDER_FAILED, reason, size, "cudnnCreate() failed");
        size_t version = l->version();
        snprintf(about, sizeof(about), "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
                 version % 100);
        *state = l.release();
        return (int)CPATTN_PROVIDER_OK;
    });
}

// Refuses attention for which this file has no cuDNN graph, with the reason.
int cudnn_supports(void *state, const cpattn_attention *a, char *reason, uint64_t size)
{
    (void)state;
    const char *why = nullptr;
    if (a->dtype != CPATTN_BF16 && a->dtype != CPATTN_FP16)
        why = "cuDNN computes bf16 and fp16";
    else if (a->head_dim_qk % 8 || a->head_dim_v % 8)
        why = "head dimensions have to be multiples of 8";
    else if (a->head_phase || a->heads != a->kv_heads * a->group)
        why = "query heads have to be whole groups of key heads";
    else if (a->softcap != 0)
        why = "softcap is not asked of cuDNN";
    else if (a->wants_max_logit)
        why = "the largest logit is not asked of cuDNN";
    else if (a->wants_dbias)
        why = "the gradient of a bias is not asked of cuDNN";
    else if (a->has_bias && (!a->dense || a->bias_row_stride == 0 || bias_step(a) < 0))
        why = "a bias needs rectangles of one size, and a row of its own for each query";
    else if (!a->dense && a->row_step != 1)
        why = "sequences of several lengths have to be packed";
    if (why)
        return say(CPATTN_PROVIDER_UNSUPPORTED, reason, size, why);
    return CPATTN_PROVIDER_OK;
}

int cudnn_prepare(void *state, const cpattn_attention *a, cpattn_prepared *prepared, char *reason,
                  uint64_t size)
{
    return guarded(reason, size, [&] {
        auto o = std::make_unique<operation>();
        o->plan = graph_of((library *)state, a);
        if (!o->plan->refusal.empty())
            return say(CPATTN_PROVIDER_UNSUPPORTED, reason, size, o->plan->refusal);
        if (!tables_make(a, o.get()))
            return say(CPATTN_PROVIDER_NO_MEMORY, reason, size, "no pinned memory for tables");
        o->tables_place = aligned(o->plan->workspace) + copy_bytes(a, a->head_dim_qk) +
                          copy_bytes(a, a->head_dim_v);
        prepared->workspace_bytes = o->tables_place + aligned(o->table_bytes);
        prepared->lse_layout = a->dense ? CPATTN_LSE_BY_RECTANGLE : CPATTN_LSE_BY_ROW;
        prepared->wants_out = a->backward;
        prepared->state = o.release();
        return (int)CPATTN_PROVIDER_OK;
    });
}

void cudnn_discard(void *state, void *prepared)
{
    (void)state;
    operation *o = (operation *)prepared;
    if (o && o->tables)
        cudaFreeHost(o->tables);
    delete o;
}

int cudnn_forward(void *state, void *prepared, const cpattn_attention *a,
                  const cpattn_forward *args, char *reason, uint64_t size)
{
    return guarded(reason, size, [&] {
        variant v = {{Q, place(a, args->q, true, a->head_dim_qk)},
                     {K, place(a, args->k, false, a->head_dim_qk)},
                     {V, place(a, args->v, false, a->head_dim_v)},
                     {O, args->o},
                     {STATS, args->lse}};
        if (a->has_bias)
            v[BIAS] = (char *)args->bias + a->rectangles[0].bias * 2;
        return run((library *)state, (operation *)prepared, v, args->workspace, args->stream,
                   reason, size);
    });
}

int cudnn_backward(void *state, void *prepared, const cpattn_attention *a,
                   const cpattn_backward *args, char *reason, uint64_t size)
{
    return guarded(reason, size, [&] {
        const operation *o = (operation *)prepared;
        variant v = {{K, place(a, args->k, false, a->head_dim_qk)},
                     {V, place(a, args->v, false, a->head_dim_v)},
                     {O, (void *)args->o},
                     {STATS, (void *)args->lse},
                     {DQ, args->dq},
                     {DK, args->dk},
                     {DV, args->dv}};
        if (a->has_bias)
            v[BIAS] = (char *)args->bias + a->rectangles[0].bias * 2;
        if (!queries_add(a, o, args, &v))
            return say(CPATTN_PROVIDER_FAILED, reason, size, "Q and dO cannot be copied");
        return run((library *)state, o, v, args->workspace, args->stream, reason, size);
    });
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct cpattn_provider *
cpattn_provider(void)
{
    static struct cpattn_provider table = {};
    table.size = sizeof(table);
    table.version = CPATTN_PROVIDER_VERSION;
    table.memory = CPATTN_MEMORY_CUDA;
    table.about = about;
    table.open = cudnn_open;
    table.supports = cudnn_supports;
    table.prepare = cudnn_prepare;
    table.discard = cudnn_discard;
    table.forward = cudnn_forward;
    table.backward = cudnn_backward;
    return &table;
}

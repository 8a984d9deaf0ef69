// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention as a provider, over the header-only cuDNN frontend. libcudnn.so.9 is loaded
// when a case first needs it. What a version of cuDNN cannot do, or is known to do wrong, the
// frontend refuses, and its sentence is the reason.
//
// Dense groups are tensors {b, h, s, d} with strides, one batch entry for each rectangle. Groups of
// many lengths are packed: each tensor has an offset for each rectangle, and lengths mask the rest.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include "kernels/cpattn_provider.h"

namespace fe = cudnn_frontend;

namespace cudnn_frontend
{
void *cudnn_dlhandle;
}

namespace
{

#define GRAPHS_MAX 512 // that are kept; then all are forgotten

enum tensor {
    Q = 1,
    K,
    V,
    BIAS,
    O,
    STATS,
    D_OUT,
    DQ,
    DK,
    DV,
    LENGTHS_Q,
    LENGTHS_KV,
    OFFSETS = 100, // + the tensor
};

struct graph {
    fe::graph::Graph graph;
    int64_t workspace = 0;
    std::string refusal; // why there is none
};

struct library {
    cudnnHandle_t handle = nullptr;
    cudnnStatus_t (*create)(cudnnHandle_t *) = nullptr;
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t) = nullptr;
    size_t (*version)() = nullptr;
    std::map<std::string, std::shared_ptr<graph>> graphs;
};

// One operation: its graph, and where its tables lie on the device.
struct operation {
    std::shared_ptr<graph> plan;
    char *tables = nullptr;                        // packed groups: lengths and offsets
    std::unordered_map<int64_t, int64_t> table_at; // by tensor
};

int say(int status, char *reason, uint64_t size, const std::string &text)
{
    snprintf(reason, size, "%s", text.c_str());
    return status;
}

// ---- tensors ------------------------------------------------------------------------------------

struct shape {
    std::vector<int64_t> dims, strides;
};

// [rows][heads][d] in place, `step` rows between those of a sequence.
shape in_place(const cpattn_attention *a, bool queries, int64_t d)
{
    const cpattn_rectangle *first = a->rectangles;
    int64_t heads = queries ? a->heads : a->kv_heads;
    int64_t length = queries ? first->q_len : first->kv_len;
    int64_t batch_rows = queries ? a->q_row_stride : a->kv_row_stride;
    if (a->rectangle_count == 1 || !a->dense)
        batch_rows = length * a->row_step;
    return {{a->rectangle_count, heads, length, d},
            {batch_rows * heads * d, d, a->row_step * heads * d, 1}};
}

shape packed(const cpattn_attention *a, bool queries, int64_t d)
{
    const cpattn_rectangle *first = a->rectangles;
    int64_t heads = queries ? a->heads : a->kv_heads;
    int64_t length = queries ? first->q_len : first->kv_len;
    return {{a->rectangle_count, heads, length, d}, {length * heads * d, d, heads * d, 1}};
}

// The longest rectangle, where they differ.
void lengthen(const cpattn_attention *a, bool queries, shape *s)
{
    for (int32_t i = 0; i < a->rectangle_count; i++) {
        int64_t length = queries ? a->rectangles[i].q_len : a->rectangles[i].kv_len;
        if (length > s->dims[2])
            s->dims[2] = length;
    }
    s->strides[0] = s->dims[2] * s->strides[2];
}

shape stats(const cpattn_attention *a)
{
    int64_t h = a->heads, s = a->rectangles[0].q_len;
    if (a->dense)
        return {{a->rectangle_count, h, s, 1}, {h * s, s, 1, 1}};
    shape by_row = {{a->rectangle_count, h, s, 1}, {h * s, 1, h, 1}};
    lengthen(a, true, &by_row);
    return by_row;
}

// Elements between the bias of one rectangle and the next; -1: they are not as far apart.
int64_t bias_step(const cpattn_attention *a)
{
    int64_t step = a->rectangle_count > 1 ? a->rectangles[1].bias - a->rectangles[0].bias : 0;
    for (int32_t i = 2; i < a->rectangle_count; i++)
        if (a->rectangles[i].bias - a->rectangles[i - 1].bias != step)
            return -1;
    return step;
}

shape bias(const cpattn_attention *a)
{
    int64_t step = bias_step(a), b = step ? a->rectangle_count : 1;
    int64_t h = a->bias_head_stride ? a->heads : 1;
    const cpattn_rectangle *first = a->rectangles;
    int64_t whole = first->q_len * a->bias_row_stride;
    return {{b, h, first->q_len, first->kv_len},
            {step ? step : whole, h > 1 ? a->bias_head_stride : whole, a->bias_row_stride, 1}};
}

// ---- graphs -------------------------------------------------------------------------------------

bool is_padded(const cpattn_attention *a)
{
    const cpattn_rectangle *first = a->rectangles;
    return !a->dense || (a->band_left >= 0 && first->q_len > first->kv_len);
}

// cuDNN 9.19 computes wrong dQ where the sums are not ordered and offsets in place are not those of
// packed rows. A single key head beside rows of its size is not trusted with it either.
bool is_ordered(const cpattn_attention *a)
{
    return a->deterministic || !a->dense || (a->kv_heads == 1 && a->row_step == 1);
}

struct builder {
    fe::graph::Graph &graph;
    const cpattn_attention *a;

    std::shared_ptr<fe::graph::Tensor_attributes> table(int64_t uid, int64_t count,
                                                        fe::DataType_t type)
    {
        return graph.tensor(fe::graph::Tensor_attributes()
                                .set_uid(uid)
                                .set_dim({count, 1, 1, 1})
                                .set_stride({1, 1, 1, 1})
                                .set_data_type(type));
    }

    fe::DataType_t dtype() const
    {
        return a->dtype == CPATTN_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    }

    void lay(std::shared_ptr<fe::graph::Tensor_attributes> t, int64_t uid, const shape &s,
             fe::DataType_t type, bool ragged)
    {
        t->set_uid(uid).set_dim(s.dims).set_stride(s.strides).set_data_type(type);
        if (ragged && !a->dense)
            t->set_ragged_offset(
                table(OFFSETS + uid, a->rectangle_count + 1, fe::DataType_t::INT64));
    }

    std::shared_ptr<fe::graph::Tensor_attributes> input(int64_t uid, shape s, fe::DataType_t type,
                                                        bool queries)
    {
        if (!a->dense && uid != STATS)
            lengthen(a, queries, &s);
        auto t = graph.tensor(fe::graph::Tensor_attributes().set_dim(s.dims).set_stride(s.strides));
        lay(t, uid, s, type, uid != BIAS);
        return t;
    }

    void output(std::shared_ptr<fe::graph::Tensor_attributes> t, int64_t uid, shape s,
                fe::DataType_t type, bool queries)
    {
        if (!a->dense && uid != STATS)
            lengthen(a, queries, &s);
        t->set_output(true);
        lay(t, uid, s, type, true);
    }

    template <class Attributes> void mask(Attributes &o)
    {
        o.set_attn_scale((float)a->scale).set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
        if (a->band_right >= 0)
            o.set_diagonal_band_right_bound((int)a->band_right);
        if (a->band_left >= 0)
            o.set_diagonal_band_left_bound((int)a->band_left + 1);
        if (!is_padded(a))
            return;
        o.set_padding_mask(true)
            .set_seq_len_q(table(LENGTHS_Q, a->rectangle_count, fe::DataType_t::INT32))
            .set_seq_len_kv(table(LENGTHS_KV, a->rectangle_count, fe::DataType_t::INT32));
    }

    void forward()
    {
        auto options = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
        mask(options);
        if (a->has_bias)
            options.set_bias(input(BIAS, bias(a), dtype(), true));
        auto results =
            graph.sdpa(input(Q, in_place(a, true, a->head_dim_qk), dtype(), true),
                       input(K, in_place(a, false, a->head_dim_qk), dtype(), false),
                       input(V, in_place(a, false, a->head_dim_v), dtype(), false), options);
        output(results[0], O, packed(a, true, a->head_dim_v), dtype(), true);
        output(results[1], STATS, stats(a), fe::DataType_t::FLOAT, true);
    }

    void backward()
    {
        auto options = fe::graph::SDPA_backward_attributes()
                           .set_name("backward")
                           .set_deterministic_algorithm(is_ordered(a));
        mask(options);
        if (!a->dense)
            options.set_max_total_seq_len_q(a->q_packed_rows)
                .set_max_total_seq_len_kv(a->kv_packed_rows);
        if (a->has_bias)
            options.set_bias(input(BIAS, bias(a), dtype(), true));
        auto results =
            graph.sdpa_backward(input(Q, in_place(a, true, a->head_dim_qk), dtype(), true),
                                input(K, in_place(a, false, a->head_dim_qk), dtype(), false),
                                input(V, in_place(a, false, a->head_dim_v), dtype(), false),
                                input(O, packed(a, true, a->head_dim_v), dtype(), true),
                                input(D_OUT, in_place(a, true, a->head_dim_v), dtype(), true),
                                input(STATS, stats(a), fe::DataType_t::FLOAT, true), options);
        output(results[0], DQ, packed(a, true, a->head_dim_qk), dtype(), true);
        output(results[1], DK, packed(a, false, a->head_dim_qk), dtype(), false);
        output(results[2], DV, packed(a, false, a->head_dim_v), dtype(), false);
    }
};

void graph_build(library *l, const cpattn_attention *a, graph *g)
{
    g->graph
        .set_io_data_type(a->dtype == CPATTN_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    builder b = {g->graph, a};
    if (a->backward)
        b.backward();
    else
        b.forward();
    auto result = g->graph.validate();
    if (result.is_good())
        result = g->graph.build_operation_graph(l->handle);
    if (result.is_good())
        result = g->graph.create_execution_plans({fe::HeurMode_t::A});
    if (result.is_good())
        result = g->graph.check_support(l->handle);
    if (result.is_good())
        result = g->graph.build_plans(l->handle);
    if (result.is_good())
        result = g->graph.get_workspace_size(g->workspace);
    if (!result.is_good())
        g->refusal = "cuDNN says: " + result.get_message();
}

// Everything that a graph depends on.
std::string key_of(const cpattn_attention *a)
{
    cpattn_attention same = *a;
    shape q = in_place(a, true, a->head_dim_qk), k = in_place(a, false, a->head_dim_qk);
    if (!a->dense) {
        lengthen(a, true, &q);
        lengthen(a, false, &k);
    }
    same.rectangles = nullptr;
    same.q_rows = 0;
    same.q_row_stride = q.strides[0];
    same.kv_row_stride = k.strides[0];
    std::string key((const char *)&same, sizeof(same));
    int64_t more[] = {q.dims[2], k.dims[2], a->has_bias ? bias_step(a) : 0};
    return key.append((const char *)more, sizeof(more));
}

std::shared_ptr<graph> graph_of(library *l, const cpattn_attention *a)
{
    std::string key = key_of(a);
    auto found = l->graphs.find(key);
    if (found != l->graphs.end())
        return found->second;
    if (l->graphs.size() >= GRAPHS_MAX)
        l->graphs.clear();
    auto g = std::make_shared<graph>();
    graph_build(l, a, g.get());
    l->graphs[key] = g;
    return g;
}

// ---- tables of packed groups --------------------------------------------------------------------

struct tables {
    std::vector<char> bytes;
    operation *o;

    template <class T> void add(int64_t uid, const std::vector<T> &values)
    {
        bytes.resize((bytes.size() + 255) / 256 * 256);
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
        offsets(a, Q, true, true, h * d);
        offsets(a, K, false, true, hk * d);
        offsets(a, V, false, true, hk * dv);
        offsets(a, D_OUT, true, true, h * dv);
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
    return cudaMalloc((void **)&o->tables, t.bytes.size()) == cudaSuccess &&
           cudaMemcpy(o->tables, t.bytes.data(), t.bytes.size(), cudaMemcpyHostToDevice) ==
               cudaSuccess;
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

void tables_add(const operation *o, variant *v)
{
    for (const auto &entry : o->table_at)
        (*v)[entry.first] = o->tables + entry.second;
}

int run(library *l, const operation *o, variant &v, void *workspace, void *stream, char *reason,
        uint64_t size)
{
    tables_add(o, &v);
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

// What this file does not ask cuDNN for.
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
    else if (a->backward && a->heads == 1 && a->row_step == 1)
        why = "backward of a single head ends with an illegal instruction in cuDNN 9.19";
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
        if (!tables_make(a, o.get())) {
            cudaFree(o->tables);
            return say(CPATTN_PROVIDER_NO_MEMORY, reason, size, "no device memory for tables");
        }
        prepared->workspace_bytes = o->plan->workspace;
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
        cudaFree(o->tables);
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
        variant v = {{Q, place(a, args->q, true, a->head_dim_qk)},
                     {K, place(a, args->k, false, a->head_dim_qk)},
                     {V, place(a, args->v, false, a->head_dim_v)},
                     {D_OUT, place(a, args->d_out, true, a->head_dim_v)},
                     {O, (void *)args->o},
                     {STATS, (void *)args->lse},
                     {DQ, args->dq},
                     {DK, args->dk},
                     {DV, args->dv}};
        if (a->has_bias)
            v[BIAS] = (char *)args->bias + a->rectangles[0].bias * 2;
        return run((library *)state, (operation *)prepared, v, args->workspace, args->stream,
                   reason, size);
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

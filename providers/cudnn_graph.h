// SPDX-License-Identifier: Apache-2.0
// Operations as graphs of the cuDNN frontend; included only by providers/cudnn.cpp. Graphs are
// cached, since cuDNN takes up to a second to build one. The key is everything that a graph depends
// on.
//
// Dense operations use tensors {b, h, s, d} with strides, one batch entry for each rectangle.
// Others use ragged tensors: each tensor has an offset for each rectangle, and a padding mask hides
// what exceeds the lengths of a rectangle.
#ifndef CPATTN_PROVIDERS_CUDNN_GRAPH_H
#define CPATTN_PROVIDERS_CUDNN_GRAPH_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cudnn_frontend.h>

#include "kernels/cpattn_provider.h"

namespace fe = cudnn_frontend;

namespace
{

#define GRAPHS_MAX 512 // in the cache; when it is full, it is emptied

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
    OFFSETS = 100, // + number of the tensor: its ragged offsets
};

struct graph {
    fe::graph::Graph graph;
    int64_t workspace = 0; // bytes
    std::string refusal;   // why cuDNN cannot build the graph; "": it is built
};

struct library {
    cudnnHandle_t handle = nullptr;
    cudnnStatus_t (*create)(cudnnHandle_t *) = nullptr;
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t) = nullptr;
    size_t (*version)() = nullptr;
    std::map<std::string, std::shared_ptr<graph>> graphs;
};

// ---- tensors ------------------------------------------------------------------------------------

struct shape {
    std::vector<int64_t> dims, strides;
};

// Stride between heads in elements. A single head may have any stride. With a single query head,
// and so a single key head, every tensor gets the stride of a layout with heads outermost: the
// backward algorithm of cuDNN 9.19 that is not deterministic ended with an illegal instruction if
// the strides of heads and rows were equal. With several query heads and a single key head, the
// strides of K, V, dK and dV may be equal; this algorithm never gets them (is_ordered()).
int64_t head_step(const cpattn_attention *a, int64_t length, int64_t row, int64_t d)
{
    return a->heads > 1 ? d : length * row;
}

// Shape of Q, K, V or dO in place: [rows][heads][d], where consecutive tokens of a sequence are
// row_step rows apart.
shape in_place(const cpattn_attention *a, bool queries, int64_t d)
{
    const cpattn_rectangle *first = a->rectangles;
    int64_t heads = queries ? a->heads : a->kv_heads;
    int64_t length = queries ? first->q_len : first->kv_len;
    int64_t batch_rows = queries ? a->q_row_stride : a->kv_row_stride;
    int64_t row = a->row_step * heads * d;
    if (a->rectangle_count == 1 || !a->dense)
        batch_rows = length * a->row_step;
    return {{a->rectangle_count, heads, length, d},
            {batch_rows * heads * d, head_step(a, length, row, d), row, 1}};
}

// Shape of a packed tensor [rows][heads][d].
shape packed(const cpattn_attention *a, bool queries, int64_t d)
{
    const cpattn_rectangle *first = a->rectangles;
    int64_t heads = queries ? a->heads : a->kv_heads;
    int64_t length = queries ? first->q_len : first->kv_len;
    int64_t row = heads * d;
    return {{a->rectangle_count, heads, length, d},
            {length * row, head_step(a, length, row, d), row, 1}};
}

// Sets the length to that of the longest rectangle, at least 2, and adapts the strides of batch and
// a single head. If all lengths of ragged tensors are 1, cuDNN 9.19 computes wrong LSE, and wrong O
// with a sink, for several query heads and a single key head.
void lengthen(const cpattn_attention *a, bool queries, shape *s)
{
    if (s->dims[2] < 2)
        s->dims[2] = 2;
    for (int32_t i = 0; i < a->rectangle_count; i++) {
        int64_t length = queries ? a->rectangles[i].q_len : a->rectangles[i].kv_len;
        if (length > s->dims[2])
            s->dims[2] = length;
    }
    s->strides[0] = s->dims[2] * s->strides[2];
    if (a->heads == 1 && s->dims[3] > 1)
        s->strides[1] = s->strides[0];
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

// Distance between the biases of consecutive rectangles in elements; -1: the distances differ.
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

// True if cuDNN must use its deterministic backward algorithm. Without it, cuDNN 9.19 computes
// wrong dK and dV for a single key head with several query heads.
bool is_ordered(const cpattn_attention *a)
{
    return a->deterministic || (a->kv_heads == 1 && a->heads > 1);
}

// True if cuDNN must get packed copies of Q and dO, which are made in the workspace. The algorithm
// that is not deterministic computes wrong dQ if the ragged offsets of Q differ from those of dQ.
bool is_gathered(const cpattn_attention *a)
{
    if (a->dense || !a->backward || is_ordered(a))
        return false;
    for (int32_t i = 0; i < a->rectangle_count; i++)
        if (a->rectangles[i].q_row != a->rectangles[i].q_packed)
            return true;
    return false;
}

int64_t aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

// Bytes of the packed copy of Q (d: head_dim_qk) or dO (d: head_dim_v); 0: there is no copy.
int64_t copy_bytes(const cpattn_attention *a, int64_t d)
{
    return is_gathered(a) ? aligned(a->q_packed_rows * a->heads * d * 2) : 0;
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

// Returns the key of a graph: the bytes of everything that it depends on.
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

} // namespace

#endif

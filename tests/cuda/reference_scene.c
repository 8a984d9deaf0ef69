// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/reference_scene.h"

#include <stdlib.h>

#include "judge/inputs.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"

void *reference_scene_room(int64_t bytes)
{
    void *data;
    CUDA(cudaMalloc(&data, (size_t)bytes + 256));
    CUDA(cudaMemset(data, 0xff, (size_t)bytes + 256));
    return data;
}

// Returns new device memory with a copy of host memory.
static void *device_copy(const void *host, size_t bytes)
{
    void *data = reference_scene_room((int64_t)bytes);
    CUDA(cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice));
    return data;
}

void *reference_scene_zeros(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (!memory)
        abort();
    return memory;
}

int64_t reference_scene_bias_row(const struct reference_scene *scene, int sequence,
                                 int64_t position)
{
    if (!bias_has_queries(&scene->c))
        return bias_has_batch(&scene->c) ? sequence : 0;
    return bias_has_batch(&scene->c) ? scene->sequences[sequence].first[SIDE_Q] + position
                                     : position;
}

// Divides the sequences of one side into tiles, full ones or of random lengths (`ragged`).
static void rows_make(struct reference_scene *scene, enum shard_side side, bool ragged)
{
    const struct cp_case *c = &scene->c;
    struct reference_tile *tiles = reference_scene_zeros(scene->r.tokens[side], sizeof(*tiles));
    int64_t count = 0, row = 0;
    for (int sequence = 0; sequence < c->batch; sequence++)
        for (int64_t at = 0; at < scene->sequences[sequence].length[side];) {
            int64_t rest = scene->sequences[sequence].length[side] - at;
            int64_t rows = ragged ? harness_between(1, REFERENCE_TILE_ROWS) : REFERENCE_TILE_ROWS;
            rows = rows < rest ? rows : rest;
            tiles[count] = (struct reference_tile){
                .position = at,
                .row = row,
                .bias_row = side == SIDE_Q ? reference_scene_bias_row(scene, sequence, at) : 0,
                .sequence = sequence,
                .count = (int32_t)rows};
            count++;
            at += rows;
            row += rows;
        }
    scene->rows[side] = (struct reference_rows){
        .tiles = device_copy(tiles, (size_t)count * sizeof(*tiles)),
        .tile_count = count,
        .rows = row,
    };
    free(tiles);
}

// Counts the tokens of both sides and copies the sequences to the device.
static void sequences_make(struct reference_scene *scene)
{
    const struct cp_case *c = &scene->c;
    scene->sequences = reference_scene_zeros(c->batch, sizeof(*scene->sequences));
    for (int i = 0; i < c->batch; i++)
        for (int side = 0; side < 2; side++) {
            int64_t length = case_length(c, (enum shard_side)side, i);
            scene->sequences[i].first[side] = scene->r.tokens[side];
            scene->sequences[i].length[side] = length;
            scene->r.tokens[side] += length;
            if (length > scene->r.length_max[side])
                scene->r.length_max[side] = length;
        }
    scene->r.sequences =
        device_copy(scene->sequences, (size_t)c->batch * sizeof(*scene->sequences));
}

int64_t reference_scene_bias(const struct reference_scene *scene)
{
    return scene->bias_rows * scene->c.seqlen_kv * (bias_has_heads(&scene->c) ? scene->c.heads : 1);
}

void reference_scene_init(struct reference_scene *scene, const struct cp_case *c, bool ragged)
{
    *scene = (struct reference_scene){.c = *c};
    scene->r = (struct reference_cuda){.queue = attention_cuda_queue(harness_cuda), .c = &scene->c};
    float *sinks = reference_scene_zeros(c->heads, sizeof(float));
    for (int head = 0; head < c->heads; head++)
        sinks[head] = input_sink(c, head);
    scene->r.sinks = device_copy(sinks, (size_t)c->heads * sizeof(float));
    free(sinks);
    sequences_make(scene);
    rows_make(scene, SIDE_Q, ragged);
    rows_make(scene, SIDE_KV, ragged);
    scene->bias_rows = !bias_has_queries(c) ? (bias_has_batch(c) ? c->batch : 1)
                       : bias_has_batch(c)  ? scene->r.tokens[SIDE_Q]
                                            : c->seqlen_q;
}

void reference_scene_fini(struct reference_scene *scene)
{
    for (int i = 0; i < 2; i++)
        cudaFree((void *)scene->rows[i].tiles);
    cudaFree((void *)scene->r.sinks);
    cudaFree((void *)scene->r.sequences);
    free(scene->sequences);
}

// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/parcels.h"

#include <stdlib.h>

#include "rank/cuda/window.h"
#include "rank/operations.h"

// ---- room ----

// Finds the strided copy between two regions. False: they have no common loops.
static bool copy_between(const struct region *from, const struct region *to,
                         struct strided_copy *copy)
{
    const struct strides send = region_strides(from), receive = region_strides(to);
    return strided_copy_make(&send, &receive, region_total(from), copy);
}

// Maximum number of copies in one launch of an operation: for packing or unpacking an exchange, or
// for an OP_COPY.
static int64_t op_copies(const struct plan *plan, const struct op *op)
{
    int64_t sends = 0, receives = 0, copies = 0;
    for (int32_t k = 0; k < op->transfer_count; k++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + k];
        struct strided_copy copy;
        sends += region_blocks(&t->send);
        receives += region_blocks(&t->receive);
        if (op->kind == OP_COPY && copy_between(&t->send, &t->receive, &copy))
            copies += strided_runs(&copy, 1);
    }
    sends = sends > receives ? sends : receives;
    return sends > copies ? sends : copies;
}

static size_t copies_needed(const struct plan *plan)
{
    int64_t most = 1;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int64_t copies = op_copies(plan, &plan->ops[i]);
        most = copies > most ? copies : most;
    }
    return (size_t)most;
}

bool parcels_reserve(struct parcels *p, const struct plan *plan)
{
    int message_count = plan->transfer_count + 1;
    size_t copy_count = copies_needed(plan);
    if (message_count > p->message_max) {
        free(p->messages);
        free(p->strides);
        p->messages = calloc((size_t)message_count, sizeof(*p->messages));
        p->strides = calloc((size_t)message_count, sizeof(*p->strides));
        p->message_max = p->messages && p->strides ? message_count : 0;
    }
    if (copy_count > p->copy_max) {
        free(p->copies);
        p->copies = calloc(copy_count, sizeof(*p->copies));
        p->copy_max = p->copies ? copy_count : 0;
    }
    return p->messages && p->strides && p->copies;
}

void parcels_fini(struct parcels *p)
{
    free(p->messages);
    free(p->strides);
    free(p->copies);
    *p = (struct parcels){0};
}

// ---- copies within the rank ----

// Appends a strided copy to p->copies, which has `count` entries: one entry for each run of its
// innermost loop. Returns the new count.
static int runs_add(struct parcels *p, int count, const char *from, char *to,
                    const struct strided_copy *copy)
{
    struct strided_loop rows = {1, copy->bytes, copy->bytes};
    if (copy->loop_count > 0)
        rows = copy->loops[0];
    for (int64_t i = 0, runs = strided_runs(copy, 1); i < runs; i++) {
        int64_t from_step, to_step;
        strided_run(copy, 1, i, &from_step, &to_step);
        p->copies[count++] = (struct region_copy){.source = from + from_step,
                                                  .destination = to + to_step,
                                                  .rows = rows.count,
                                                  .bytes = copy->bytes,
                                                  .source_stride = rows.from,
                                                  .destination_stride = rows.to};
    }
    return count;
}

enum status parcels_copy(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                         struct attention_backend *backend, cudaStream_t stream,
                         struct error *error)
{
    int count = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &e->plan->transfers[op->transfer_first + i];
        struct strided_copy copy;
        if (!copy_between(&t->send, &t->receive, &copy))
            return error_set(error, STATUS_INTERNAL, "a copy between regions without common loops");
        count = runs_add(p, count, region_memory(e->buffers, &t->send),
                         region_memory(e->buffers, &t->receive), &copy);
    }
    if (count > 0)
        regions_cuda_copy(backend, stream, p->copies, count);
    return STATUS_OK;
}

// ---- an exchange ----

// Address of one side of a transfer during its exchange: in place, or packed in the staging memory.
// All exchanges share the staging memory, because they run one after the other on one stream. A
// local copy with one side in several pieces packs into, or unpacks from, the other side directly.
static void *travelling(const struct cuda_execution *e, const struct transfer *t, bool sends,
                        struct staging *staging)
{
    const struct region *r = sends ? &t->send : &t->receive;
    const struct region *other = sends ? &t->receive : &t->send;
    int64_t packed = staging_take(staging, e->plan, t, sends);
    if (packed >= 0)
        return e->staging + packed;
    return region_memory(e->buffers, r->rows > 1 && !staging->none ? other : r);
}

// Appends the copies that pack (sends) or unpack a region to p->copies, which has `count` entries:
// one for each block; none if the region is in one piece. Returns the new count.
static int copies_add(struct parcels *p, int count, const struct cuda_execution *e,
                      const struct region *r, void *packed, bool sends)
{
    char *memory = region_memory(e->buffers, r), *place = packed;
    if (r->rows <= 1 || r->bytes == 0)
        return count;
    for (int64_t i = 0; i < region_blocks(r); i++) {
        p->copies[count++] =
            (struct region_copy){.source = sends ? memory : place,
                                 .destination = sends ? place : memory,
                                 .rows = r->rows,
                                 .bytes = r->bytes,
                                 .source_stride = sends ? r->stride : r->bytes,
                                 .destination_stride = sends ? r->bytes : r->stride};
        memory += r->block_stride;
        place += r->rows * r->bytes;
    }
    return count;
}

static struct message message_of(const struct cuda_execution *e, const struct transfer *t,
                                 struct staging *staging)
{
    struct message m = {.peer = t->peer,
                        .send_bytes = (size_t)region_total(&t->send),
                        .receive_bytes = (size_t)region_total(&t->receive)};
    m.send = travelling(e, t, true, staging);
    m.receive = travelling(e, t, false, staging);
    // A local copy whose sides have the same address needs no message: packing and unpacking do it.
    if (!staging->none && t->peer == e->plan->rank && m.send == m.receive)
        m.send_bytes = m.receive_bytes = 0;
    return m;
}

void parcels_pack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                  struct attention_backend *backend, cudaStream_t stream)
{
    const struct transfer *transfers = e->plan->transfers + op->transfer_first;
    struct staging staging;
    int count = 0;
    staging_start(&staging, e->plan, op, e->windows > 0);
    for (int32_t i = 0; i < op->transfer_count; i++) {
        p->messages[i] = message_of(e, &transfers[i], &staging);
        p->strides[i] = (struct message_strides){region_strides(&transfers[i].send),
                                                 region_strides(&transfers[i].receive)};
        if (!staging.none)
            count = copies_add(p, count, e, &transfers[i].send, (void *)p->messages[i].send, true);
    }
    p->packed = !staging.none;
    if (count > 0)
        regions_cuda_copy(backend, stream, p->copies, count);
}

void parcels_unpack(struct parcels *p, const struct cuda_execution *e, const struct op *op,
                    struct attention_backend *backend, cudaStream_t stream)
{
    const struct transfer *transfers = e->plan->transfers + op->transfer_first;
    int count = 0;
    for (int32_t i = 0; i < op->transfer_count && p->packed; i++)
        count = copies_add(p, count, e, &transfers[i].receive, p->messages[i].receive, false);
    if (count > 0)
        regions_cuda_copy(backend, stream, p->copies, count);
}

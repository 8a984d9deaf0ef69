// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/local_transport.h"

#include "tests/cuda/harness.h"

static struct local_transport *self(const struct transport *t)
{
    return (struct local_transport *)(uintptr_t)t;
}

cudaStream_t transport_nccl_stream(const struct transport *t)
{
    return self(t)->stream;
}

// The nth message of `peer` for `rank`, from 0 on; NULL: none. Messages between two ranks match in
// list order.
static const struct message *counterpart(const struct local_meeting *m, int peer, int rank, int nth)
{
    for (int i = 0; i < m->counts[peer]; i++)
        if (m->messages[peer][i].peer == rank && nth-- == 0)
            return &m->messages[peer][i];
    return NULL;
}

static enum status local_start(struct transport *t, uint64_t tag, const struct message *messages,
                               int count, struct error *error)
{
    struct local_meeting *m = self(t)->meeting;
    (void)tag;
    CUDA(cudaStreamSynchronize(self(t)->stream));
    m->messages[t->rank] = messages;
    m->counts[t->rank] = count;
    pthread_barrier_wait(&m->barrier);
    bool match = true;
    for (int i = 0; i < count; i++) {
        int nth = 0;
        for (int k = 0; k < i; k++)
            nth += messages[k].peer == messages[i].peer;
        const struct message *from = counterpart(m, messages[i].peer, t->rank, nth);
        match = match && from && from->send_bytes == messages[i].receive_bytes;
        if (match)
            CUDA(cudaMemcpyAsync(messages[i].receive, from->send, from->send_bytes,
                                 cudaMemcpyDeviceToDevice, self(t)->stream));
    }
    CUDA(cudaStreamSynchronize(self(t)->stream));
    pthread_barrier_wait(&m->barrier);
    return match ? STATUS_OK : error_set(error, STATUS_INTERNAL, "messages do not match");
}

static const struct transport_ops local_ops = {.name = "local", .start = local_start};

void local_transport_init(struct local_transport *t, struct local_meeting *meeting, int rank,
                          int world_size)
{
    t->base = (struct transport){.ops = &local_ops, .rank = rank, .world_size = world_size};
    t->meeting = meeting;
}

void local_meeting_init(struct local_meeting *m, int world_size)
{
    pthread_barrier_init(&m->barrier, NULL, (unsigned)world_size);
}

void local_meeting_fini(struct local_meeting *m)
{
    pthread_barrier_destroy(&m->barrier);
}

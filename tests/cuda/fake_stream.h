// SPDX-License-Identifier: Apache-2.0
// The queues of the simulated runtime (tests/cuda/fake_cuda.h), shared by its sources.
#ifndef CPATTN_TESTS_CUDA_FAKE_STREAM_H
#define CPATTN_TESTS_CUDA_FAKE_STREAM_H

#include "tests/cuda/fake_cuda.h"

enum item_kind { ITEM_WORK, ITEM_POLL, ITEM_RECORD, ITEM_WAIT, ITEM_EXCHANGE };

struct fake_graph;

struct fake_event {
    uint64_t recorded, reached;  // number of times
    uint64_t time;               // of the last one
    struct fake_graph *captured; // the graph of its last record; NULL: none
};

struct item {
    struct item *next;
    enum item_kind kind;
    void (*work)(void *arguments);
    bool (*poll)(void *arguments);
    void *arguments;
    size_t bytes;
    struct fake_event *event;
    uint64_t number; // of the event's records
    struct message *messages;
    bool *sent, *received; // [count]
    int count;
};

struct fake_stream {
    struct item *head, *tail;
    struct transport *transport; // transport of the exchanges, or NULL
    bool held;
    struct fake_graph *capture; // NULL: items run
};

static inline struct fake_stream *stream_of(cudaStream_t stream)
{
    return (struct fake_stream *)(void *)stream;
}

#define fake_insist(holds, what)                                                                   \
    do {                                                                                           \
        if (!(holds))                                                                              \
            fake_fail(what);                                                                       \
    } while (0)
_Noreturn void fake_fail(const char *what);

// Adds an item to the end of a queue, which then owns it.
void fake_append(struct fake_stream *s, struct item *item);
struct item *fake_item_copy(const struct item *item);
void fake_item_free(struct item *item);

// Records an item of a captured stream.
void fake_graph_take(struct fake_graph *g, struct fake_stream *s, struct item *item);
// A stream that waits for one of the capture becomes a part of it.
void fake_graph_join(struct fake_graph *g, struct fake_stream *s);

#endif

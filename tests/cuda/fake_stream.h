// SPDX-License-Identifier: Apache-2.0
// Internals of the simulated runtime (tests/cuda/fake_cuda.h): streams, their items, and events.
#ifndef CPATTN_TESTS_CUDA_FAKE_STREAM_H
#define CPATTN_TESTS_CUDA_FAKE_STREAM_H

#include "tests/cuda/fake_cuda.h"

enum item_kind { ITEM_WORK, ITEM_POLL, ITEM_RECORD, ITEM_WAIT, ITEM_EXCHANGE };

struct fake_graph;

struct fake_event {
    uint64_t recorded, reached;  // records enqueued; number of the last record that ran
    uint64_t time;               // fake_now() when the last record ran
    struct fake_graph *captured; // graph that captured the last record; NULL: none
};

struct item {
    struct item *next;
    enum item_kind kind;
    void (*work)(void *arguments);
    bool (*poll)(void *arguments);
    void *arguments;
    size_t bytes;
    struct fake_event *event;
    uint64_t number; // of the event's record that runs (ITEM_RECORD) or is awaited (ITEM_WAIT)
    struct message *messages; // [count], of ITEM_EXCHANGE
    bool *sent, *received;    // [count]: the message has been moved out, or in
    int count;
};

struct fake_stream {
    struct item *head, *tail;
    struct transport *transport; // transport whose exchanges run on this stream, or NULL
    bool held;                   // fake_hold(): no item runs
    struct fake_graph *capture;  // graph that captures the stream's items; NULL: not capturing
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

// Appends an item to the stream's queue, which then owns it. Ignores a capture.
void fake_append(struct fake_stream *s, struct item *item);
struct item *fake_item_copy(const struct item *item); // deep copy, in no queue, nothing moved
void fake_item_free(struct item *item);

// Appends an item of the captured stream `s` to the graph, which then owns the item.
void fake_graph_take(struct fake_graph *g, struct fake_stream *s, struct item *item);
// Adds `s` to the capture, because it waits for an event of the capture. No effect if it is in it.
void fake_graph_join(struct fake_graph *g, struct fake_stream *s);

#endif

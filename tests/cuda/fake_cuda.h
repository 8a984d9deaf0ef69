// SPDX-License-Identifier: Apache-2.0
// A simulation on the host of the parts of CUDA, the CUDA backend and the NCCL transport that the
// executor needs. Each stream is a queue of items. The test runs the items one at a time, in a
// random order that respects streams, events and messages. The CPU backend does the computations.
#ifndef CPATTN_TESTS_CUDA_FAKE_CUDA_H
#define CPATTN_TESTS_CUDA_FAKE_CUDA_H

#include "kernels/cuda/backend.h"
#include "transport/nccl.h"

// Removes all streams, backends and transports, and ends fake_break(). Does not free events.
void fake_reset(void);

// Create a backend and a transport, each with a stream of its own. All transports belong to one
// world and exchange messages with each other. Both exist until fake_reset().
struct attention_backend *fake_backend(void);
struct transport *fake_transport(int rank, int world_size);

// Runs the head of a randomly chosen stream that can advance. False: no stream can.
bool fake_step(uint64_t *random);

// True if all queues are empty.
bool fake_is_idle(void);

// The simulated clock: the number of attempts so far to run an item.
uint64_t fake_now(void);

// Stops the stream until fake_reset(): its items do not run.
void fake_hold(cudaStream_t stream);

// true: cudaEventQuery() returns cudaErrorIllegalAddress until fake_break(false) or fake_reset().
void fake_break(bool broken);

// ---- shared by the sources of the simulation ----

cudaStream_t fake_stream(void); // creates a stream; may be called by several threads
// Enqueues `work` with a copy of its arguments.
void fake_push(cudaStream_t stream, void (*work)(void *arguments), const void *arguments,
               size_t bytes);
// Enqueues `poll`, which runs repeatedly until it returns true. The stream waits until then.
void fake_push_poll(cudaStream_t stream, bool (*poll)(void *arguments), const void *arguments,
                    size_t bytes);
void fake_backends_free(void);

#endif

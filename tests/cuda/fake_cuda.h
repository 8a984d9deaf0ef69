// SPDX-License-Identifier: Apache-2.0
// A simulated runtime on the host: the parts of CUDA, of the CUDA backend and of the NCCL transport
// that the executor needs. Streams are queues; the test runs their heads in any order that streams,
// events and messages permit. The operations are those of the CPU backend.
#ifndef CPATTN_TESTS_CUDA_FAKE_CUDA_H
#define CPATTN_TESTS_CUDA_FAKE_CUDA_H

#include "kernels/cuda/backend.h"
#include "transport/nccl.h"

// Removes all streams. Events may remain.
void fake_reset(void);

// A backend and a transport, each with a stream. Ranks of one world exchange messages. Both exist
// until fake_reset().
struct attention_backend *fake_backend(void);
struct transport *fake_transport(int rank, int world_size);

// Runs the first item of a random queue; false if none can run.
bool fake_step(uint64_t *random);

// True if all queues are empty.
bool fake_is_idle(void);

// The time: the number of items that were tried.
uint64_t fake_now(void);

// Stops this stream.
void fake_hold(cudaStream_t stream);

// From now on the device answers with an error.
void fake_break(bool broken);

// ---- between the parts of this ----

cudaStream_t fake_stream(void);
// Puts work on a stream, with a copy of its arguments.
void fake_push(cudaStream_t stream, void (*work)(void *arguments), const void *arguments,
               size_t bytes);
// The same for work that is tried until it returns true.
void fake_push_poll(cudaStream_t stream, bool (*poll)(void *arguments), const void *arguments,
                    size_t bytes);
void fake_backends_free(void);

#endif

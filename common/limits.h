// SPDX-License-Identifier: Apache-2.0
// Every fixed bound of the system, each with its reason.
#ifndef CPATTN_COMMON_LIMITS_H
#define CPATTN_COMMON_LIMITS_H

// Ranks of one pool. The mesh of sockets between them grows with the square (2016 pairs at 64).
#define WORLD_SIZE_MAX 64

// Sequence length. 2^24 tokens are beyond any published context; products of two lengths, the heads
// and a head dimension stay far inside 63 bits.
#define SEQLEN_MAX (INT64_C(1) << 24)

#define BATCH_MAX               4096
// Sequences of a case in which each has its own length. Four lists of lengths are 16 KiB of a case,
// and at most 36 KiB as text.
#define SEQUENCES_MAX           1024
#define HEADS_MAX               4096
#define HEAD_DIM_MAX            256 // supported by the kernels
#define MODEL_NAME_MAX          64
// Name of an implementation, with its NUL, and guests of one daemon.
#define IMPLEMENTATION_NAME_MAX 32
#define GUESTS_MAX              15

// Text for people that says how the ranks of a pool exchange data, with its NUL.
#define EXCHANGE_TEXT_MAX 96

// Providers of attention kernels of one daemon, and the name of a provider with its NUL.
#define PROVIDERS_MAX     16
#define PROVIDER_NAME_MAX 32

// A request on the wire. The largest legitimate one is a case with all its fields, under 1 KiB.
#define REQUEST_BYTES_MAX (64 * 1024)
// A reply. The largest has figures and stderr tails of 64 ranks.
#define REPLY_BYTES_MAX   (1024 * 1024)
// Characters of the token that clients over a network present; a line feed may follow them in its
// file.
#define TOKEN_BYTES_MIN   16
#define TOKEN_BYTES_MAX   256
// Bytes that unpacking one message may allocate. protobuf-c expands small input up to 49-fold.
#define DECODE_BYTES_MAX  (1024 * 1024)
// The same for a reply. The largest has 1536 messages of figures; for each message with more than
// 16 fields, protobuf-c uses more than 1 KiB of additional memory.
#define DECODE_REPLY_MAX  (4 * 1024 * 1024)

// A frame between daemon and rank: one datagram of a SOCK_SEQPACKET pair.
#define CHANNEL_PAYLOAD_MAX (64 * 1024)

// Jobs of the daemon, queued and running. Further ones are RESOURCE_EXHAUSTED at once.
#define JOBS_MAX          4096
// Stored ids of answered requests, so that a repeated request does not run again.
#define ANSWERED_IDS_MAX  4096
// Bytes of their stored answers; the oldest are freed first. A verdict on 8 ranks has some 10 KiB.
#define ANSWERS_BYTES_MAX (32 * 1024 * 1024)
// Repeated requests that wait for the answer of a queued or running one.
#define ATTACHED_MAX      1024
// Connections of clients.
#define CLIENTS_MAX       1024
// Events that the daemon stores for watchers, 1.5 MiB, and events per answer.
#define EVENTS_KEPT       1024
#define EVENTS_REPLY_MAX  256
// Waiting watchers, in total and of one user.
#define WATCHERS_MAX      64
#define WATCHERS_USER     16
// Rank processes alive at once over all pools; the least recently used idle pool makes room.
#define RANKS_MAX         256
// Pools alive at once.
#define POOLS_MAX         64
// Exclusive compute units (GPUs, or cores on the CPU backend) of one host.
#define DEVICES_MAX       64
// Hosts over which the pools of a daemon may be spread, and the name of one with its NUL.
#define HOSTS_MAX         64
#define HOST_NAME_BYTES   64

// The stored stderr of each rank, and the part of it in an answer.
#define STDERR_RING_BYTES (64 * 1024)
#define STDERR_TAIL_BYTES 4096

// Deadline of a request that names none, and the longest that a request may name.
#define TIMEOUT_DEFAULT_NS (UINT64_C(90) * 1000000000)
#define TIMEOUT_MAX_NS     (UINT64_C(24) * 3600 * 1000000000)
// How long a watcher may wait for an event before it asks again.
#define WATCH_WAIT_MAX_NS  (UINT64_C(60) * 1000000000)

#endif

// SPDX-License-Identifier: Apache-2.0
// Memory of symbols, with which tests/support/symbolic.h computes. An element is a 64-bit sum of
// contributions. A contribution is a hash of the elements it was made from.
#ifndef CPATTN_TESTS_SUPPORT_SYMBOLS_H
#define CPATTN_TESTS_SUPPORT_SYMBOLS_H

#include "plan/plan.h"

// A cell stands for this many bytes of a buffer; an fp32 element takes two.
#define CELL_BYTES 2

// The initial LSE and largest logit.
#define SYMBOL_MINUS_INFINITY UINT64_C(0x1234567812345678)

enum symbol {
    SYMBOL_Q = 1,
    SYMBOL_K,
    SYMBOL_V,
    SYMBOL_DO,
    SYMBOL_O,
    SYMBOL_LSE,
    SYMBOL_D,
    SYMBOL_DQ,
    SYMBOL_DK,
    SYMBOL_DV,
    SYMBOL_SINK,
    SYMBOL_DSINK,
    SYMBOL_MAX,
    SYMBOL_BIAS,
    SYMBOL_DBIAS
};

// The buffers of all ranks.
struct symbols {
    struct plan *const *plans;
    const struct cp_case *c;
    uint64_t **cells[WORLD_SIZE_MAX]; // by rank and buffer
    char *why;                        // ERROR_TEXT_MAX bytes; empty while all is well
};

// Fills inputs with their symbols and other buffers with garbage from `random`.
void symbols_init(struct symbols *s, struct plan *const *plans, uint64_t *random, char *why);
void symbols_fini(struct symbols *s);

// Compares every output of every rank with the definition of attention.
void symbols_check(struct symbols *s);

// Records the first error.
void symbols_fault(struct symbols *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// One element of `bytes` bytes; outside the buffer it is an error.
uint64_t symbols_load(struct symbols *s, int rank, int32_t buffer, int64_t offset, int bytes);
void symbols_store(struct symbols *s, int rank, int32_t buffer, int64_t offset, int bytes,
                   uint64_t value);

// A tensor [rows][heads][dim] in a region of one rank, with elements of `element` bytes.
struct tensor {
    int rank;
    struct region region;
    int heads, dim, element;
};
uint64_t tensor_load(struct symbols *s, const struct tensor *t, int64_t row, int head, int i);
void tensor_store(struct symbols *s, const struct tensor *t, int64_t row, int head, int i,
                  uint64_t value);
void tensor_add(struct symbols *s, const struct tensor *t, int64_t row, int head, int i,
                uint64_t value);

// One symbol for the whole row of a head.
uint64_t tensor_row(struct symbols *s, const struct tensor *t, int64_t row, int head);

// A hash of two symbols. It depends on their order.
uint64_t symbol_mix(uint64_t a, uint64_t b);

// The symbol of a query with the bias of the pair. With a bias, use it as `q` below.
uint64_t symbol_biased(uint64_t q, uint64_t bias);

// Contributions of a visible pair, from the symbols of its query and key: to an element of O, to
// LSE, to the largest logit.
uint64_t symbol_out(uint64_t q, uint64_t k, uint64_t v_element);
uint64_t symbol_lse(uint64_t q, uint64_t k);
uint64_t symbol_max(uint64_t q, uint64_t k);

// D of a row, and the contribution of a row to the gradient of a sink.
uint64_t symbol_row_dot(uint64_t d_out, uint64_t out);
uint64_t symbol_sink_gradient(uint64_t sink, uint64_t lse, uint64_t d);

// The contribution of a visible pair to element i of dQ, dK or dV, or to the gradient of the bias
// (i = 0).
struct pair_symbols {
    uint64_t q, k, v, d_out, lse, d;
};
uint64_t symbol_gradient(enum symbol which, const struct pair_symbols *p, int i);

#endif

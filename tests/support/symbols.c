// SPDX-License-Identifier: Apache-2.0
#include "tests/support/symbols.h"

#include <stdarg.h>

#include "tests/support/generate.h"

void symbols_fault(struct symbols *s, const char *format, ...)
{
    if (s->why[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->why, ERROR_TEXT_MAX, format, arguments);
    va_end(arguments);
}

uint64_t symbol_mix(uint64_t a, uint64_t b)
{
    uint64_t state = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + (a >> 31));
    return generate_next(&state);
}

// ---- memory ----

// An fp32 element takes two cells. The second is the complement of the first, so that torn elements
// are noticed.
uint64_t symbols_load(struct symbols *s, int rank, int32_t buffer, int64_t offset, int bytes)
{
    const struct plan_buffer *info = &s->plans[rank]->buffers[buffer];
    if (offset < 0 || offset + bytes > info->bytes) {
        symbols_fault(s, "rank %d reads byte %lld of %s", rank, (long long)offset, info->name);
        return 0;
    }
    const uint64_t *cells = s->cells[rank][buffer] + offset / CELL_BYTES;
    if (bytes > CELL_BYTES && cells[1] != ~cells[0])
        return symbol_mix(cells[0], cells[1]);
    return cells[0];
}

void symbols_store(struct symbols *s, int rank, int32_t buffer, int64_t offset, int bytes,
                   uint64_t value)
{
    const struct plan_buffer *info = &s->plans[rank]->buffers[buffer];
    if (offset < 0 || offset + bytes > info->bytes) {
        symbols_fault(s, "rank %d writes byte %lld of %s", rank, (long long)offset, info->name);
        return;
    }
    uint64_t *cells = s->cells[rank][buffer] + offset / CELL_BYTES;
    cells[0] = value;
    if (bytes > CELL_BYTES)
        cells[1] = ~value;
}

static int64_t element_offset(const struct tensor *t, int64_t row, int head, int i)
{
    return t->region.offset + ((row * t->heads + head) * t->dim + i) * t->element;
}

uint64_t tensor_load(struct symbols *s, const struct tensor *t, int64_t row, int head, int i)
{
    return symbols_load(s, t->rank, t->region.buffer, element_offset(t, row, head, i), t->element);
}

void tensor_store(struct symbols *s, const struct tensor *t, int64_t row, int head, int i,
                  uint64_t value)
{
    symbols_store(s, t->rank, t->region.buffer, element_offset(t, row, head, i), t->element, value);
}

void tensor_add(struct symbols *s, const struct tensor *t, int64_t row, int head, int i,
                uint64_t value)
{
    tensor_store(s, t, row, head, i, value + tensor_load(s, t, row, head, i));
}

uint64_t tensor_row(struct symbols *s, const struct tensor *t, int64_t row, int head)
{
    uint64_t symbol = 0;
    for (int i = 0; i < t->dim; i++)
        symbol = symbol_mix(symbol, tensor_load(s, t, row, head, i));
    return symbol;
}

// ---- contributions ----

uint64_t symbol_biased(uint64_t q, uint64_t bias)
{
    return symbol_mix(SYMBOL_BIAS, symbol_mix(q, bias));
}

uint64_t symbol_out(uint64_t q, uint64_t k, uint64_t v_element)
{
    return symbol_mix(SYMBOL_O, symbol_mix(q, symbol_mix(k, v_element)));
}

uint64_t symbol_lse(uint64_t q, uint64_t k)
{
    return symbol_mix(SYMBOL_LSE, symbol_mix(q, k));
}

uint64_t symbol_max(uint64_t q, uint64_t k)
{
    return symbol_mix(SYMBOL_MAX, symbol_mix(q, k));
}

uint64_t symbol_row_dot(uint64_t d_out, uint64_t out)
{
    return symbol_mix(SYMBOL_D, symbol_mix(d_out, out));
}

uint64_t symbol_sink_gradient(uint64_t sink, uint64_t lse, uint64_t d)
{
    return symbol_mix(SYMBOL_DSINK, symbol_mix(sink, symbol_mix(lse, d)));
}

uint64_t symbol_gradient(enum symbol which, const struct pair_symbols *p, int i)
{
    uint64_t all = symbol_mix(symbol_mix(p->q, p->k),
                              symbol_mix(p->v, symbol_mix(p->d_out, symbol_mix(p->lse, p->d))));
    return symbol_mix(symbol_mix(which, (uint64_t)i), all);
}

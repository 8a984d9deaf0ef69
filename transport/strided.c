// SPDX-License-Identifier: Apache-2.0
#include "transport/strided.h"

// A nesting level of a layout: `count` elements, `step` bytes apart. Level 0 has single bytes.
struct level {
    int64_t count, step;
};
#define LEVELS 3

static int levels_of(const struct strides *s, int64_t total, struct level levels[LEVELS])
{
    levels[0] = (struct level){s->bytes > 0 ? s->bytes : total, 1};
    if (s->bytes == 0)
        return 1;
    levels[1] = (struct level){s->rows > 1 ? s->rows : 1, s->stride};
    levels[2] = (struct level){s->blocks > 1 ? s->blocks : 1, s->block_stride};
    return LEVELS;
}

static bool levels_have(const struct level *levels, int count, int64_t total)
{
    int64_t product = 1;
    for (int i = 0; i < count; i++)
        if (__builtin_mul_overflow(product, levels[i].count, &product))
            return false;
    return product == total && total > 0;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Advances to the first level whose count is not used up.
static void level_next(struct level *levels, int *at, int count)
{
    while (*at + 1 < count && levels[*at].count == 1)
        ++*at;
}

// Uses up a factor `count` of a level's count.
static void level_take(struct level *level, int64_t count)
{
    level->count /= count;
    level->step *= count;
}

// Appends a loop, or merges it into the contiguous bytes or the previous loop that it continues.
static void loop_add(struct strided_copy *copy, struct strided_loop loop)
{
    struct strided_loop *last = copy->loop_count > 0 ? &copy->loops[copy->loop_count - 1] : NULL;
    if (loop.count == 1)
        return;
    if (!last && loop.from == copy->bytes && loop.to == copy->bytes)
        copy->bytes *= loop.count;
    else if (last && loop.from == last->count * last->from && loop.to == last->count * last->to)
        last->count *= loop.count;
    else
        copy->loops[copy->loop_count++] = loop;
}

bool strided_copy_make(const struct strides *from, const struct strides *to, int64_t total,
                       struct strided_copy *copy)
{
    struct level a[LEVELS], b[LEVELS];
    int a_count = levels_of(from, total, a), b_count = levels_of(to, total, b), i = 0, j = 0;
    *copy = (struct strided_copy){.bytes = 1};
    if (!levels_have(a, a_count, total) || !levels_have(b, b_count, total))
        return false;
    for (int64_t left = total; left > 1;) {
        level_next(a, &i, a_count);
        level_next(b, &j, b_count);
        int64_t count = common_divisor(a[i].count, b[j].count);
        if (count == 1)
            return false;
        loop_add(copy, (struct strided_loop){count, a[i].step, b[j].step});
        level_take(&a[i], count);
        level_take(&b[j], count);
        left /= count;
    }
    return true;
}

int64_t strides_reach(const struct strides *s, int64_t total)
{
    int64_t rows = s->rows > 1 ? s->rows - 1 : 0, blocks = s->blocks > 1 ? s->blocks - 1 : 0;
    int64_t reach = s->bytes, part;
    if (s->bytes == 0)
        return total;
    if (s->bytes < 0 || s->stride < 0 || s->block_stride < 0 || s->rows < 0 || s->blocks < 0 ||
        __builtin_mul_overflow(rows, s->stride, &part) ||
        __builtin_add_overflow(reach, part, &reach) ||
        __builtin_mul_overflow(blocks, s->block_stride, &part) ||
        __builtin_add_overflow(reach, part, &reach))
        return -1;
    return reach;
}

int64_t strided_runs(const struct strided_copy *copy, int first)
{
    int64_t runs = 1;
    for (int i = first; i < copy->loop_count; i++)
        runs *= copy->loops[i].count;
    return runs;
}

void strided_run(const struct strided_copy *copy, int first, int64_t i, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    for (int n = first; n < copy->loop_count; n++) {
        const struct strided_loop *loop = &copy->loops[n];
        *from += i % loop->count * loop->from;
        *to += i % loop->count * loop->to;
        i /= loop->count;
    }
}

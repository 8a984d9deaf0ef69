// SPDX-License-Identifier: Apache-2.0
#include "client/submit/tensors/error_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/shard.h"

// Maximum number of rows of a map in text.
#define TEXT_ROWS_MAX 32
// Number of powers of ten that have their own colour.
#define STEPS         5
#define CELL          18
#define LABEL         56
#define TITLE         40

// ---- errors -------------------------------------------------------------------------------------

// The approximate error of a right result that is rounded to the dtype.
static double unit_of(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? 4e-3 : dtype == DTYPE_FP16 ? 5e-4 : 1e-6;
}

struct sums {
    double squares, expected_squares; // of errors, and of what is expected
    int64_t count;
    bool broken; // infinite or NaN, and not the same in both
};

static void element_add(const struct cp_case *c, enum whole_tensor tensor, const void *got,
                        const void *expected, int64_t index, struct sums *s)
{
    double a = (double)tensors_element(c, tensor, got, index);
    double b = (double)tensors_element(c, tensor, expected, index);
    s->count++;
    if (!isfinite(a) || !isfinite(b)) {
        s->broken |= isnan(a) != isnan(b) || (!isnan(a) && a != b);
        return;
    }
    s->squares += (a - b) * (a - b);
    s->expected_squares += b * b;
}

// Sums over one chunk of all sequences, for one head.
static struct sums cell_sum(const struct error_map *map, const struct cp_case *c, int chunk,
                            int head, const void *got, const void *expected)
{
    bool keys = map->tensor == WHOLE_DK || map->tensor == WHOLE_DV;
    enum shard_side side = keys ? SIDE_KV : SIDE_Q;
    int dim = map->tensor == WHOLE_DQ || map->tensor == WHOLE_DK ? c->head_dim_qk : c->head_dim_v;
    struct sums s = {.count = 0};
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        int64_t begin, end, length = case_length(c, side, sequence);
        int64_t first = whole_row_first(c, side, sequence), step = whole_row_step(c);
        shard_chunk(case_occupied(c, side, sequence), map->chunks, chunk, &begin, &end);
        end = end < length ? end : length;
        for (int64_t i = begin; i < end; i++)
            for (int k = 0; k < dim; k++)
                element_add(c, map->tensor, got, expected,
                            ((first + i * step) * map->heads + head) * dim + k, &s);
    }
    return s;
}

enum status error_map_init(struct error_map *map, const struct cp_case *c, enum whole_tensor tensor,
                           const void *got, const void *expected, struct error *error)
{
    bool keys = tensor == WHOLE_DK || tensor == WHOLE_DV;
    double squares = 0;
    int64_t count = 0;
    *map = (struct error_map){.tensor = tensor,
                              .heads = keys ? c->kv_heads : c->heads,
                              .chunks = c->world_size * shard_chunks_per_rank(c),
                              .unit = unit_of(c->dtype)};
    map->errors = calloc((size_t)map->heads * (size_t)map->chunks, sizeof(*map->errors));
    if (!map->errors)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for a map of errors");
    for (int i = 0; i < map->heads * map->chunks; i++) {
        struct sums s = cell_sum(map, c, i % map->chunks, i / map->chunks, got, expected);
        map->errors[i] = s.broken ? INFINITY : sqrt(s.squares / (double)(s.count ? s.count : 1));
        squares += s.expected_squares;
        count += s.count;
    }
    double rms = sqrt(squares / (double)(count ? count : 1));
    for (int i = 0; i < map->heads * map->chunks; i++) {
        map->errors[i] /= rms > 0 ? rms : 1;
        map->largest = map->errors[i] > map->largest ? map->errors[i] : map->largest;
    }
    return STATUS_OK;
}

void error_map_fini(struct error_map *map)
{
    free(map->errors);
    map->errors = NULL;
}

enum status error_maps_init(struct error_map maps[ERROR_MAPS_MAX], int *count,
                            const struct cp_case *c, const struct tensors *t, struct error *error)
{
    static const enum whole_tensor list[] = {WHOLE_OUT, WHOLE_DQ, WHOLE_DK, WHOLE_DV};
    *count = 0;
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        const void *got = t->at.wanted[list[i]], *expected = t->at.expected[list[i]];
        if (!got || !expected)
            continue;
        enum status status = error_map_init(&maps[*count], c, list[i], got, expected, error);
        if (status != STATUS_OK) {
            while (*count > 0)
                error_map_fini(&maps[--*count]);
            return status;
        }
        ++*count;
    }
    return STATUS_OK;
}

// 0: no more than rounding; 1 to STEPS: larger by powers of ten; STEPS + 1: not finite.
static int step_of(const struct error_map *map, double error)
{
    if (isinf(error))
        return STEPS + 1;
    double above = error / (2 * map->unit);
    if (!(above > 1))
        return 0;
    int step = 1 + (int)log10(above);
    return step < STEPS ? step : STEPS;
}

static int rank_of_chunk(const struct cp_case *c, int chunk)
{
    bool zigzag = c->sharding == SHARDING_ZIGZAG;
    return zigzag && chunk >= c->world_size ? 2 * c->world_size - 1 - chunk : chunk;
}

// ---- text ---------------------------------------------------------------------------------------

static double worst_of(const struct error_map *map, int first, int end, int chunk)
{
    double worst = 0;
    for (int head = first; head < end; head++) {
        double error = map->errors[head * map->chunks + chunk];
        worst = error > worst ? error : worst;
    }
    return worst;
}

void error_map_print(const struct error_map *map, const struct cp_case *c, FILE *out)
{
    static const char marks[] = ".12345#";
    int together = (map->heads + TEXT_ROWS_MAX - 1) / TEXT_ROWS_MAX;
    fprintf(out, "%s: error by head (rows) and chunk (columns, the rank above)\n",
            whole_name(map->tensor));
    fputs("         ", out);
    for (int chunk = 0; chunk < map->chunks; chunk++)
        fprintf(out, "%3d", rank_of_chunk(c, chunk));
    fputc('\n', out);
    for (int head = 0; head < map->heads; head += together) {
        int end = head + together < map->heads ? head + together : map->heads;
        fprintf(out, "head %4d", head);
        for (int chunk = 0; chunk < map->chunks; chunk++)
            fprintf(out, "  %c", marks[step_of(map, worst_of(map, head, end, chunk))]);
        fputc('\n', out);
    }
    fprintf(out,
            "'.' is rounding (up to %.1g of the tensor), digits are powers of ten above, '#' "
            "is not finite\n",
            2 * map->unit);
}

// ---- a picture ----------------------------------------------------------------------------------

static void cell_svg(const struct error_map *map, const struct cp_case *c, int head, int chunk,
                     int top, FILE *out)
{
    static const char *const colours[STEPS + 2] = {"#e8f0e8", "#fde0a0", "#fdae61", "#f46d43",
                                                   "#d73027", "#8b0022", "#000000"};
    double error = map->errors[head * map->chunks + chunk];
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>%s, head %d, "
            "chunk %d of rank %d: error %.3g of the tensor</title></rect>\n",
            LABEL + chunk * CELL, top + head * CELL, CELL - 1, CELL - 1,
            colours[step_of(map, error)], whole_name(map->tensor), head, chunk,
            rank_of_chunk(c, chunk), error);
}

static void map_svg(const struct error_map *map, const struct cp_case *c, int top, FILE *out)
{
    fprintf(out, "<text x=\"4\" y=\"%d\" font-weight=\"bold\">%s</text>\n", top - 22,
            whole_name(map->tensor));
    fprintf(out, "<text x=\"%d\" y=\"%d\">largest error %.3g of the tensor</text>\n", LABEL,
            top - 22, map->largest);
    for (int chunk = 0; chunk < map->chunks; chunk++)
        fprintf(out, "<text x=\"%d\" y=\"%d\">r%d</text>\n", LABEL + chunk * CELL, top - 6,
                rank_of_chunk(c, chunk));
    for (int head = 0; head < map->heads; head++) {
        if (head % 4 == 0)
            fprintf(out, "<text x=\"4\" y=\"%d\">head %d</text>\n", top + head * CELL + 13, head);
        for (int chunk = 0; chunk < map->chunks; chunk++)
            cell_svg(map, c, head, chunk, top, out);
    }
}

// Escapes the characters of a case's text that have a meaning in SVG.
static void escaped_write(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strchr("<>&\"", *text))
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
    }
}

void error_maps_svg(const struct error_map *maps, int count, const struct cp_case *c, FILE *out)
{
    char text[512];
    int height = TITLE, width = 480;
    for (int i = 0; i < count; i++) {
        height += 2 * TITLE + maps[i].heads * CELL;
        width =
            LABEL + maps[i].chunks * CELL + 16 > width ? LABEL + maps[i].chunks * CELL + 16 : width;
    }
    case_describe(c, text, sizeof(text));
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"4\" y=\"16\" font-size=\"13\">",
            width, height);
    escaped_write(text, out);
    fputs("</text>\n<text x=\"4\" y=\"32\">RMS error by head (rows) and chunk (columns, with their "
          "rank); green is rounding, colours are powers of ten above it</text>\n",
          out);
    for (int i = 0, top = 2 * TITLE; i < count; i++) {
        map_svg(&maps[i], c, top + 20, out);
        top += 2 * TITLE + maps[i].heads * CELL;
    }
    fputs("</svg>\n", out);
}

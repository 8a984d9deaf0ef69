// SPDX-License-Identifier: Apache-2.0
// Products of bf16 matrices with sums in fp32, on the matrix unit that processors with AMX have.
//
// Products of two bf16 numbers are exact in fp32, and sums are rounded to nearest. Denormals count
// as zero. Results depend only on shapes and values, not on threads or addresses.
//
// A left factor is row-major. Rows are read up to the next multiple of AMX_ROWS, and columns up to
// the next multiple of AMX_DEPTH: this memory must exist, and elements behind a row that is used
// must be finite. A right factor consists of *tiles* of 32 rows and 16 columns, each AMX_TILE
// consecutive elements, which amx_pack() and amx_pack_transposed() write.
#ifndef CPATTN_COMMON_AMX_H
#define CPATTN_COMMON_AMX_H

#include <stdbool.h>
#include <stdint.h>

#define AMX_ROWS  16  // rows of a left factor, columns of a right one
#define AMX_DEPTH 32  // columns of a left factor, rows of a right one
#define AMX_TILE  512 // elements of a tile of a right factor

// The value "no" of this environment variable, before the first call, disables AMX.
#define AMX_VARIABLE "CPATTN_AMX"

// True if this process may use AMX: the processor has AMX for bf16 and AVX-512, Linux permits its
// use on request, and the environment does not disable it. Every call returns the same. If it is
// false, no other function of this header may be called.
bool amx_usable(void);

static inline int64_t amx_rows_padded(int64_t count)
{
    return (count + AMX_ROWS - 1) / AMX_ROWS * AMX_ROWS;
}

static inline int64_t amx_depth_padded(int64_t count)
{
    return (count + AMX_DEPTH - 1) / AMX_DEPTH * AMX_DEPTH;
}

// A right factor: tiles, and the distances between neighbouring tiles in elements.
struct amx_right {
    const uint16_t *tiles;
    int64_t next_columns; // to the tile of the next 16 columns
    int64_t next_rows;    // to the tile of the next 32 rows
};

// Number of elements of the tiles of a right factor [k][n].
int64_t amx_right_elements(int64_t k, int64_t n);

// Packs B [k][n], whose rows are `ld` elements apart. Elements of tiles outside of B become 0. A
// later call may pack more rows behind existing tiles if these hold a multiple of AMX_DEPTH rows.
void amx_pack(int64_t k, int64_t n, const uint16_t *b, int64_t ld, uint16_t *tiles);
struct amx_right amx_right(const uint16_t *tiles, int64_t n);

// The same for the transpose of B [n][k]. A later call may pack more columns behind existing tiles
// if these hold a multiple of AMX_ROWS columns.
void amx_pack_transposed(int64_t n, int64_t k, const uint16_t *b, int64_t ld, uint16_t *tiles);
struct amx_right amx_right_transposed(const uint16_t *tiles, int64_t k);

// C [m][n] = A [m][k] B [k][n], or with `add` C += A B. lda and ldc are the distances between rows
// in elements. Partial sums of at most 512 products are added to C.
void amx_multiply(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                  struct amx_right b, float *c, int64_t ldc, bool add);

// The same with one factor as the sum of two pieces from amx_split(). The second piece begins
// a_rest or b_rest elements behind the first; 0: the factor has one piece. Only one factor may have
// two.
void amx_multiply_pieces(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         int64_t a_rest, struct amx_right b, int64_t b_rest, float *c, int64_t ldc,
                         bool add);

// Splits x into head + rest, with a relative error of about 2^-17: head is x rounded to bf16, to
// nearest, ties to even; rest is the difference, rounded in the same way, or 0 if head is not
// finite. rest may be NULL. Any count >= 0.
void amx_split(int64_t count, const float *x, uint16_t *head, uint16_t *rest);

// to [columns][rows] = the transpose of from [rows][columns], with rows ld_to and ld_from elements
// apart; they do not overlap.
void amx_transpose(int64_t rows, int64_t columns, const float *from, int64_t ld_from, float *to,
                   int64_t ld_to);

#endif

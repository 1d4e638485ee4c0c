/* Products of matrices with a few dozen rows or columns, and how their factors are packed.

   A word has 32 bits: a float, or two numbers of bf16, which one instruction multiplies and adds. The second factor is
   packed, so that the innermost loop multiplies vectors of its words with single words of the first. Sums are float. */
#ifdef BF16
#include <immintrin.h>
#endif
#include "vectors.h"

#define PANEL (2 * LANES) /* columns of a tile: two vectors */
#define TILE 6            /* rows of a tile: with its two vectors, they fit the registers of AVX2 */
#define ROUND_UP(n) (((n) + PANEL - 1) / PANEL * PANEL)

#ifdef BF16
#define WORDS(n) (((n) + 1) / 2)
static inline vector add_product(vector sum, word x, const word *y) {
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(x), (__m512bh)_mm512_loadu_si512(y));
}
#else
#define WORDS(n) (n)
static inline vector add_product(vector sum, word x, const word *y) {
    return sum + ((both){.bits = x}).number * *(const vector *)y;
}
#endif

/* A matrix of words: that of row m and place k is at[m * row + k * place]. */
typedef struct {
    const word *at;
    long row, place;
} factor;

/* Queries, keys, values or what is computed of them: x[token * step + d] of one head. */
typedef struct {
    real *x;
    long step;
} part;

static inline __attribute__((always_inline)) void
tile(int rows, long depth, factor a, const word *b, long step, float *c, long width, int add) {
    vector left[TILE], right[TILE];
#pragma GCC unroll 6
    for (int m = 0; m < rows; m++) {
        left[m] = add ? *(vector *)(c + m * width) : (vector){};
        right[m] = add ? *(vector *)(c + m * width + LANES) : (vector){};
    }
    for (long k = 0; k < depth; k++, b += step)
#pragma GCC unroll 6
        for (int m = 0; m < rows; m++) {
            word x = a.at[m * a.row + k * a.place];
            left[m] = add_product(left[m], x, b);
            right[m] = add_product(right[m], x, b + LANES);
        }
#pragma GCC unroll 6
    for (int m = 0; m < rows; m++) {
        *(vector *)(c + m * width) = left[m];
        *(vector *)(c + m * width + LANES) = right[m];
    }
}

/* c (rows, columns) = or += a (rows, depth) b (depth, columns); rows of b lie `step` words apart, its panels `panel`. */
static void product(long rows, long columns, long depth, factor a, const word *b, long step, long panel, float *c,
                    long width, int add) {
    for (long n = 0; n < columns; n += PANEL, b += panel)
        for (long m = 0; m < rows; m += TILE) {
            factor x = {a.at + m * a.row, a.row, a.place};
            float *y = c + m * width + n;
            switch (rows - m) {
            case 1: tile(1, depth, x, b, step, y, width, add); break;
            case 2: tile(2, depth, x, b, step, y, width, add); break;
            case 3: tile(3, depth, x, b, step, y, width, add); break;
            case 4: tile(4, depth, x, b, step, y, width, add); break;
            case 5: tile(5, depth, x, b, step, y, width, add); break;
            default: tile(6, depth, x, b, step, y, width, add);
            }
        }
}

/* The transpose in panels: the words of PANEL tokens side by side, 0 where there is no token. */
static void transpose(part p, long tokens, long size, word *out) {
    for (long first = 0; first < tokens; first += PANEL, out += PANEL * WORDS(size))
        for (long k = 0; k < WORDS(size); k += LANES)
            for (long half = 0; half < PANEL; half += LANES) {
                vector rows[LANES];
#pragma GCC unroll 16
                for (long m = 0; m < LANES; m++) {
                    long j = first + half + m;
                    rows[m] = j < tokens ? *(vector *)((word *)(p.x + j * p.step) + k) : (vector){};
                }
                transpose_square(rows);
#pragma GCC unroll 16
                for (long m = 0; m < LANES; m++) *(vector *)(out + (k + m) * PANEL + half) = rows[m];
            }
}

/* The words of pairs of tokens, (WORDS(tokens), size), 0 where there is no token; of floats the tokens themselves. */
static factor pair(part p, long tokens, long size, word *out) {
#ifdef BF16
    for (long j = 0; j < tokens; j += 2) {
        const real *x = p.x + j * p.step, *y = j + 1 < tokens ? x + p.step : 0;
        for (long d = 0; d < size; d++) out[j / 2 * size + d] = x[d] | (y ? (word)y[d] << 16 : 0);
    }
    return (factor){out, size, 1};
#else
    return (factor){(const word *)p.x, p.step, 1};
#endif
}

/* Rounds rows of numbers to words, (rows, WORDS(columns)), the first factor of a product; of floats they are these. */
static factor rows_of(float *x, long rows, long columns, long width, word *out) {
#ifdef BF16
    for (long m = 0; m < rows; m++) {
        real *to = (real *)(out + m * width / 2);
        for (long j = 0; j < columns; j++) to[j] = from_float(x[m * width + j]);
        if (columns % 2) to[columns] = 0;
    }
    return (factor){out, width / 2, 1};
#else
    return (factor){(const word *)x, width, 1};
#endif
}

/* The same of the transpose, (columns, WORDS(rows)). */
static factor columns_of(float *x, long rows, long columns, long width, word *out) {
#ifdef BF16
    for (long m = 0; m < rows; m += 2) {
        const float *top = x + m * width, *next = m + 1 < rows ? top + width : 0;
        word *to = out + m / 2 * width;
        if (next)
            for (long j = 0; j < columns; j++) to[j] = from_float(top[j]) | (word)from_float(next[j]) << 16;
        else
            for (long j = 0; j < columns; j++) to[j] = from_float(top[j]);
    }
    return (factor){out, 1, width};
#else
    return (factor){(const word *)x, 1, width};
#endif
}

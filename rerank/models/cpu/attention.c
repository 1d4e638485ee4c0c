/* Attention of packed passages on a CPU, and its gradients; attention.py calls it.

   A task is a head of a passage. Numbers are float, or bf16 with -DBF16. A word has 32 bits: a float, or two numbers of
   bf16, which one instruction multiplies and adds. Keys and values are packed once a task, so that the innermost loop
   multiplies vectors of words with single words. Sums, scores and exponentials are float. */
#include <math.h>
#include <omp.h>
#ifdef BF16
#include <immintrin.h>
#endif
#include "real.h"

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define PANEL (2 * LANES) /* columns of a tile: two vectors */
#define TILE 6            /* rows of a tile: with its two vectors, they fit the registers of AVX2 */
#define BLOCK 24          /* queries whose weights are in memory at a time */
#define ROUND_UP(n) (((n) + PANEL - 1) / PANEL * PANEL)

typedef uint32_t word __attribute__((may_alias));
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
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
    for (long first = 0; first < tokens; first += PANEL)
        for (long k = 0; k < WORDS(size); k++)
            for (long j = first; j < first + PANEL; j++) *out++ = j < tokens ? ((word *)(p.x + j * p.step))[k] : 0;
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

static factor of_part(part p, long token) { return (factor){(word *)(p.x + token * p.step), WORDS(p.step), 1}; }

static part at(part p, long token, long head, long size) { return (part){p.x + token * p.step + head * size, p.step}; }

static void store(const float *x, long rows, long size, part to) {
    for (long m = 0; m < rows; m++)
        for (long d = 0; d < size; d++) to.x[m * to.step + d] = from_float(x[m * size + d]);
}

/* e to the x, for x of 0 or less, to 2e-7 of it: 2 to the nearest whole power, times a polynomial (Cephes). */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    both shifted = {x * 1.44269504f + 12582912.0f}, y;
    float n = shifted.number - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
    y.number = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                1.6666665459e-1f) * r + 5.0000001201e-1f;
    y.number = y.number * r * r + r + 1.0f;
    y.bits += shifted.bits << 23;
    return y.number;
}

/* The words of memory that `threads` need; `shape` is that of `attend`. */
long scratch_words(const long *shape, long threads) {
    long size = shape[2], width = ROUND_UP(shape[3]);
    return threads * (5 * width * size + 3 * BLOCK * width + 2 * BLOCK * size);
}

/* out = softmax(scale q kᵀ) v of each passage and head, and the logarithms of the sums of exponentials, (heads, queries).

   shape: passages, heads, size, the tokens of the longest passage, and the steps from token to token of q, k and v.
   Queries and tokens of passage p are those from its place in `query_starts` and `starts` to the next. */
void attend(real *q, real *k, real *v, real *out, float *sums, const int32_t *query_starts, const int32_t *starts,
            const long *shape, float scale, word *scratch, long threads) {
    long passages = shape[0], heads = shape[1], size = shape[2], width = ROUND_UP(shape[3]);
    part queries = {q, shape[4]}, keys = {k, shape[5]}, values = {v, shape[6]}, outs = {out, heads * size};
#pragma omp parallel num_threads(threads)
    {
        word *packed = scratch + omp_get_thread_num() * scratch_words(shape, 1);
        word *pairs = packed + width * size, *rounded = pairs + width * size;
        float *weights = (float *)(rounded + BLOCK * width), *sum = weights + BLOCK * width;
#pragma omp for schedule(dynamic)
        for (long task = 0; task < passages * heads; task++) {
            long passage = task / heads, head = task % heads, start = starts[passage], stop = query_starts[passage + 1];
            long tokens = starts[passage + 1] - start;
            transpose(at(keys, start, head, size), tokens, size, packed);
            factor paired = pair(at(values, start, head, size), tokens, size, pairs);
            for (long first = query_starts[passage]; first < stop; first += BLOCK) {
                long rows = stop - first < BLOCK ? stop - first : BLOCK;
                product(rows, ROUND_UP(tokens), WORDS(size), of_part(at(queries, first, head, size), 0), packed, PANEL,
                        PANEL * WORDS(size), weights, width, 0);
                float factors[BLOCK];
                for (long m = 0; m < rows; m++) {
                    float *w = weights + m * width, most = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : most)
                    for (long j = 0; j < tokens; j++) most = w[j] > most ? w[j] : most;
                    float shift = most * scale;
#pragma omp simd reduction(+ : total)
                    for (long j = 0; j < tokens; j++) {
                        w[j] = exponential(w[j] * scale - shift);
                        total += w[j];
                    }
                    factors[m] = 1.0f / total;
                    sums[head * query_starts[passages] + first + m] = shift + logf(total);
                }
                product(rows, size, WORDS(tokens), rows_of(weights, rows, tokens, width, rounded), paired.at, paired.row,
                        PANEL, sum, size, 0);
                for (long m = 0; m < rows; m++)
                    for (long d = 0; d < size; d++) sum[m * size + d] *= factors[m];
                store(sum, rows, size, at(outs, first, head, size));
            }
        }
    }
}

/* The gradients to_q, to_k and to_v, as `out` in memory, of the gradient g of `out`. */
void attend_backward(real *q, real *k, real *v, real *out, float *sums, real *g, real *to_q, real *to_k, real *to_v,
                     const int32_t *query_starts, const int32_t *starts, const long *shape, float scale,
                     word *scratch, long threads) {
    long passages = shape[0], heads = shape[1], size = shape[2], width = ROUND_UP(shape[3]), step = heads * size;
    part queries = {q, shape[4]}, keys = {k, shape[5]}, values = {v, shape[6]}, outs = {out, step}, gs = {g, step};
    part to_queries = {to_q, step}, to_keys = {to_k, step}, to_values = {to_v, step};
#pragma omp parallel num_threads(threads)
    {
        word *packed = scratch + omp_get_thread_num() * scratch_words(shape, 1);
        word *packed_values = packed + width * size, *pairs = packed_values + width * size;
        float *for_keys = (float *)(pairs + width * size), *for_values = for_keys + width * size;
        float *weights = for_values + width * size, *slopes = weights + BLOCK * width;
        float *for_queries = slopes + BLOCK * width;
        word *block_pairs = (word *)(for_queries + BLOCK * size), *rounded = block_pairs + BLOCK * size;
#pragma omp for schedule(dynamic)
        for (long task = 0; task < passages * heads; task++) {
            long passage = task / heads, head = task % heads, start = starts[passage], stop = query_starts[passage + 1];
            long tokens = starts[passage + 1] - start, begin = query_starts[passage];
            transpose(at(keys, start, head, size), tokens, size, packed);
            transpose(at(values, start, head, size), tokens, size, packed_values);
            factor paired = pair(at(keys, start, head, size), tokens, size, pairs);
            for (long first = begin; first < stop; first += BLOCK) {
                long rows = stop - first < BLOCK ? stop - first : BLOCK;
                part query = at(queries, first, head, size), slope = at(gs, first, head, size);
                product(rows, ROUND_UP(tokens), WORDS(size), of_part(query, 0), packed, PANEL, PANEL * WORDS(size),
                        weights, width, 0);
                product(rows, ROUND_UP(tokens), WORDS(size), of_part(slope, 0), packed_values, PANEL,
                        PANEL * WORDS(size), slopes, width, 0);
                for (long m = 0; m < rows; m++) {
                    const real *o = at(outs, first + m, head, size).x, *s = slope.x + m * step;
                    float mean = 0.0f, shift = sums[head * query_starts[passages] + first + m];
                    for (long d = 0; d < size; d++) mean += to_float(o[d]) * to_float(s[d]);
                    float *w = weights + m * width, *dw = slopes + m * width;
#pragma omp simd
                    for (long j = 0; j < tokens; j++) {
                        w[j] = exponential(w[j] * scale - shift);
                        dw[j] = w[j] * (dw[j] - mean) * scale;
                    }
                }
                product(rows, size, WORDS(tokens), rows_of(slopes, rows, tokens, width, rounded), paired.at, paired.row,
                        PANEL, for_queries, size, 0);
                store(for_queries, rows, size, at(to_queries, first, head, size));
                factor other = pair(slope, rows, size, block_pairs);
                product(tokens, size, WORDS(rows), columns_of(weights, rows, tokens, width, rounded), other.at, other.row,
                        PANEL, for_values, size, first > begin);
                other = pair(query, rows, size, block_pairs);
                product(tokens, size, WORDS(rows), columns_of(slopes, rows, tokens, width, rounded), other.at, other.row,
                        PANEL, for_keys, size, first > begin);
            }
            store(for_keys, tokens, size, at(to_keys, start, head, size));
            store(for_values, tokens, size, at(to_values, start, head, size));
        }
    }
}

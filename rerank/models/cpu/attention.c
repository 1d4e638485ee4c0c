/* Attention of packed passages on a CPU, and its gradients; attention.py calls it.

   A task is a head of a passage. Scores and exponentials are float. */
#include <math.h>
#include <omp.h>
#include "products.h"

#define BLOCK 24 /* queries whose weights are in memory at a time */
#define LOG2_E 1.44269504f /* exponentials are powers of 2 */

static part part_of(real *x, long step, long token, long head, long size) {
    return (part){x + token * step + head * size, step};
}

/* to = x (rows, size) times a factor for each row, or 1 without factors. */
static void store(const float *x, long rows, long size, part to, const float *factors) {
    for (long m = 0; m < rows; m++)
        for (long d = 0; d < size; d++)
            to.x[m * to.step + d] = from_float(x[m * size + d] * (factors ? factors[m] : 1.0f));
}

/* 2 to the x, for x of 0 or less, to 2e-7 of it: to the nearest whole power, times a polynomial. */
static inline vector power(vector x) {
    lanes small = x < -126.0f;
    x = (vector)(((lanes)x & ~small) | ((lanes)((vector){} - 126.0f) & small));
    vector shifted = x + 12582912.0f, r = x - (shifted - 12582912.0f);
    vector y = ((((1.3264652e-3f * r + 9.6715113e-3f) * r + 5.5507340e-2f) * r + 2.4022242e-1f) * r + 6.9314698e-1f) * r;
    return (vector)((lanes)(y + 1.0f) + ((lanes)shifted << 23));
}

/* A block of queries, and the keys near them: `near` has those of one query. */
typedef struct {
    long place, rows, low, high;
} range;

/* The queries from `place` of a passage on, and the keys near any of them; `low` begins a panel.

   window: how many tokens before and after itself a token attends to. */
static range block_at(long place, long queries, long tokens, const long *window) {
    long rows = queries - place < BLOCK ? queries - place : BLOCK, low = place - window[0];
    long high = place + rows + window[1];
    return (range){place, rows, low < 0 ? 0 : low / PANEL * PANEL, high < tokens ? high : tokens};
}

/* The keys near query m of a block, counted from the first key of the block. */
static range near(range block, long m, const long *window) {
    long low = block.place + m - window[0], high = block.place + m + window[1] + 1;
    low = low > block.low ? low - block.low : 0;
    return (range){block.place + m, 1, low, (high < block.high ? high : block.high) - block.low};
}

/* The range, extended to whole vectors. */
static range whole(range kept) {
    long low = kept.low / LANES * LANES, high = (kept.high + LANES - 1) / LANES * LANES;
    return (range){kept.place, 1, low, high};
}

/* Writes a value in place of the numbers of `all` that are not kept. */
static void fill(float *row, range all, range kept, float value) {
    for (long j = all.low; j < kept.low; j++) row[j] = value;
    for (long j = kept.high; j < all.high; j++) row[j] = value;
}

/* The products of a block of queries with the keys near them, which `packed` has. */
static void compare(range block, part queries, long size, const word *packed, float *out, long width) {
    factor rows = {(word *)queries.x, WORDS(queries.step), 1};
    product(block.rows, ROUND_UP(block.high - block.low), WORDS(size), rows, packed + block.low * WORDS(size), PANEL,
            PANEL * WORDS(size), out, width, 0);
}

/* out = x (rows, keys) times the `paired` keys or values of the block. */
static void combine(range block, float *x, factor paired, long size, float *out, long width, word *rounded) {
    long keys = block.high - block.low;
    product(block.rows, size, WORDS(keys), rows_of(x, block.rows, keys, width, rounded),
            paired.at + WORDS(block.low) * paired.row, paired.row, PANEL, out, size, 0);
}

/* out (keys, size) += the transpose of x (rows, keys) times rows. */
static void scatter(range block, float *x, part rows, long size, float *out, long width, word *rounded, word *pairs) {
    long keys = block.high - block.low;
    factor paired = pair(rows, block.rows, size, pairs), columns = columns_of(x, block.rows, keys, width, rounded);
    product(keys, size, WORDS(block.rows), columns, paired.at, paired.row, PANEL, out + block.low * size, size, 1);
}

/* The words of memory that `threads` need; `shape` is that of `attend`. */
long scratch_words(const long *shape, long threads) {
    long size = shape[2], width = ROUND_UP(shape[3]);
    return threads * (5 * width * size + 3 * BLOCK * width + 2 * BLOCK * size);
}

/* out = softmax(scale q kᵀ) v of each passage and head, and the logarithms, to base 2, of the sums of exponentials,
   (heads, queries).

   shape: passages, heads, size, the tokens of the longest passage, the steps from token to token of q, k and v, and the
   window. Tokens of passage p are those from its place in `starts` to the next; its queries, by `query_starts`, are
   those of its first tokens, or of all. */
void attend(real *q, real *k, real *v, real *out, float *sums, const int32_t *query_starts, const int32_t *starts,
            const long *shape, float scale, word *scratch, long threads) {
    long passages = shape[0], heads = shape[1], size = shape[2], width = ROUND_UP(shape[3]);
    scale *= LOG2_E;
    const long *window = shape + 7;
#pragma omp parallel num_threads(threads)
    {
        word *packed = scratch + omp_get_thread_num() * scratch_words(shape, 1);
        word *pairs = packed + width * size, *rounded = pairs + width * size;
        float *weights = (float *)(rounded + BLOCK * width), *sum = weights + BLOCK * width;
#pragma omp for schedule(dynamic)
        for (long task = 0; task < passages * heads; task++) {
            long passage = task / heads, head = task % heads, start = starts[passage], begin = query_starts[passage];
            long tokens = starts[passage + 1] - start, count = query_starts[passage + 1] - begin;
            transpose(part_of(k, shape[5], start, head, size), tokens, size, packed);
            factor paired = pair(part_of(v, shape[6], start, head, size), tokens, size, pairs);
            for (long place = 0; place < count; place += BLOCK) {
                range block = block_at(place, count, tokens, window);
                compare(block, part_of(q, shape[4], begin + place, head, size), size, packed, weights, width);
                range all = {0, 0, 0, block.high - block.low};
                float shifts[BLOCK], totals[BLOCK], factors[BLOCK];
                for (long m = 0; m < block.rows; m++) {
                    range kept = near(block, m, window), read = whole(kept);
                    float *w = weights + m * width;
                    fill(w, read, kept, -INFINITY);
                    float most = -INFINITY;
#pragma omp simd reduction(max : most)
                    for (long j = read.low; j < read.high; j++) most = w[j] > most ? w[j] : most;
                    float shift = most * scale;
                    vector total = {};
                    for (long j = read.low; j < read.high; j += LANES) {
                        vector x = power(*(vector *)(w + j) * scale - shift);
                        total += x;
                        *(vector *)(w + j) = x;
                    }
                    fill(w, all, kept, 0.0f);
                    shifts[m] = shift;
                    totals[m] = sum_of(total);
                }
                for (long m = 0; m < block.rows; m++) { /* a call in the loop above would clear its vectors */
                    factors[m] = 1.0f / totals[m];
                    sums[head * query_starts[passages] + begin + place + m] = shifts[m] + log2f(totals[m]);
                }
                combine(block, weights, paired, size, sum, width, rounded);
                store(sum, block.rows, size, part_of(out, heads * size, begin + place, head, size), factors);
            }
        }
    }
}

/* The gradients to_q, to_k and to_v, as `out` in memory, of the gradient g of `out`. */
void attend_backward(real *q, real *k, real *v, real *out, float *sums, real *g, real *to_q, real *to_k, real *to_v,
                     const int32_t *query_starts, const int32_t *starts, const long *shape, float scale, word *scratch,
                     long threads) {
    long passages = shape[0], heads = shape[1], size = shape[2], width = ROUND_UP(shape[3]), step = heads * size;
    float power_scale = scale * LOG2_E;
    const long *window = shape + 7;
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
            long passage = task / heads, head = task % heads, start = starts[passage], begin = query_starts[passage];
            long tokens = starts[passage + 1] - start, count = query_starts[passage + 1] - begin;
            part keys = part_of(k, shape[5], start, head, size);
            transpose(keys, tokens, size, packed);
            transpose(part_of(v, shape[6], start, head, size), tokens, size, packed_values);
            factor paired = pair(keys, tokens, size, pairs);
            for (long j = 0; j < tokens * size; j++) for_keys[j] = for_values[j] = 0.0f;
            for (long place = 0; place < count; place += BLOCK) {
                range block = block_at(place, count, tokens, window);
                part query = part_of(q, shape[4], begin + place, head, size);
                part slope = part_of(g, step, begin + place, head, size), o = part_of(out, step, begin + place, head, size);
                compare(block, query, size, packed, weights, width);
                compare(block, slope, size, packed_values, slopes, width);
                range all = {0, 0, 0, block.high - block.low};
                for (long m = 0; m < block.rows; m++) {
                    range kept = near(block, m, window), read = whole(kept);
                    float mean = 0.0f, shift = sums[head * query_starts[passages] + begin + place + m];
                    const real *left = o.x + m * step, *right = slope.x + m * step;
#pragma omp simd reduction(+ : mean)
                    for (long d = 0; d < size; d++) mean += to_float(left[d]) * to_float(right[d]);
                    float *w = weights + m * width, *dw = slopes + m * width;
                    fill(w, read, kept, -INFINITY);
                    for (long j = read.low; j < read.high; j += LANES) {
                        vector x = power(*(vector *)(w + j) * power_scale - shift);
                        *(vector *)(w + j) = x;
                        *(vector *)(dw + j) = x * (*(vector *)(dw + j) - mean) * scale;
                    }
                    fill(w, all, kept, 0.0f);
                    fill(dw, all, kept, 0.0f);
                }
                combine(block, slopes, paired, size, for_queries, width, rounded);
                store(for_queries, block.rows, size, part_of(to_q, step, begin + place, head, size), 0);
                scatter(block, weights, slope, size, for_values, width, rounded, block_pairs);
                scatter(block, slopes, query, size, for_keys, width, rounded, block_pairs);
            }
            store(for_keys, tokens, size, part_of(to_k, step, start, head, size), 0);
            store(for_values, tokens, size, part_of(to_v, step, start, head, size), 0);
        }
    }
}

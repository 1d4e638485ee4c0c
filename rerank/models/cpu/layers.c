/* Dropout by hash, the sum with a residual that is normalised, and transposes; layers.py calls them.
   rerank/models/dropout.py defines the hash: a value stays if that of the sum of row's and column's hash is `least` or
   more. Shifts copy the sign, as those of torch do. */
#include "vectors.h"
#include <math.h>

#define ROWS 64 /* whose gradients of weight and bias are summed together, whatever the number of threads */

/* What a row drops; `some` is 0 if nothing. */
typedef struct {
    uint32_t row, odd[2];
    const int32_t *columns;
    int32_t some, least;
    float scale;
} dropping;

static inline dropping dropping_of(long row, const int32_t *rows, const int32_t *columns, const int32_t *odd,
                                   long least, float scale) {
    if (!rows) return (dropping){0};
    return (dropping){rows[row], {odd[0], odd[1]}, columns, 1, least, scale};
}

static inline float dropped(float x, dropping d, long column) {
    uint32_t bits = (d.row + d.columns[column]) * d.odd[0];
    bits = (bits ^ (int32_t)bits >> 15) * d.odd[1];
    int32_t hash = bits ^ (int32_t)bits >> 12;
    return hash >= d.least ? x * d.scale : 0.0f;
}

/* out = x, (rows, columns), times scale where it stays; else 0. */
void drop(const real *x, real *out, long rows, long columns, const int32_t *row_hashes, const int32_t *column_hashes,
          const int32_t *odd, long least, float scale, long threads) {
#pragma omp parallel for num_threads(threads)
    for (long row = 0; row < rows; row++) {
        dropping d = dropping_of(row, row_hashes, column_hashes, odd, least, scale);
        const real *from = x + row * columns;
        real *to = out + row * columns;
#pragma omp simd
        for (long column = 0; column < columns; column++) to[column] = from_float(dropped(to_float(from[column]), d, column));
    }
}

/* total = dropout(x) + residual of a row; returns its sum. */
static inline float sum_row(const real *x, const real *residual, float *total, long columns, dropping d) {
    float sum = 0;
    if (d.some)
#pragma omp simd
        for (long column = 0; column < columns; column++) total[column] = dropped(to_float(x[column]), d, column);
    else
        for (long column = 0; column < columns; column++) total[column] = to_float(x[column]);
#pragma omp simd reduction(+ : sum)
    for (long column = 0; column < columns; column++) sum += total[column] += to_float(residual[column]);
    return sum;
}

/* out = the layer norm of dropout(x) + residual, (rows, columns), with means and 1 / standard deviations of the sums.
   Nothing is dropped without row hashes. */
void normalise(const real *x, const real *residual, const float *weight, const float *bias, real *out, float *means,
               float *spreads, float epsilon, long rows, long columns, const int32_t *row_hashes,
               const int32_t *column_hashes, const int32_t *odd, long least, float scale, long threads) {
#pragma omp parallel for num_threads(threads)
    for (long row = 0; row < rows; row++) {
        dropping d = dropping_of(row, row_hashes, column_hashes, odd, least, scale);
        float total[columns], squares = 0;
        float mean = sum_row(x + row * columns, residual + row * columns, total, columns, d) / columns;
#pragma omp simd reduction(+ : squares)
        for (long column = 0; column < columns; column++)
            squares += (total[column] - mean) * (total[column] - mean);
        float spread = 1 / sqrtf(squares / columns + epsilon);
#pragma omp simd
        for (long column = 0; column < columns; column++)
            out[row * columns + column] = from_float((total[column] - mean) * spread * weight[column] + bias[column]);
        means[row] = mean;
        spreads[row] = spread;
    }
}

/* The gradients; those of weight and bias, (⌈rows / ROWS⌉, columns), of ROWS rows each. */
void normalise_backward(const real *gradient, const real *x, const real *residual, const float *weight,
                        const float *means, const float *spreads, real *to_x, real *to_residual, float *to_weight,
                        float *to_bias, long rows, long columns, const int32_t *row_hashes,
                        const int32_t *column_hashes, const int32_t *odd, long least, float scale, long threads) {
#pragma omp parallel for num_threads(threads)
    for (long first = 0; first < rows; first += ROWS) {
        float *of_weight = to_weight + first / ROWS * columns, *of_bias = to_bias + first / ROWS * columns;
        for (long column = 0; column < columns; column++) of_weight[column] = of_bias[column] = 0;
        for (long row = first; row < rows && row < first + ROWS; row++) {
            dropping d = dropping_of(row, row_hashes, column_hashes, odd, least, scale);
            float normal[columns], weighted[columns], shared = 0, along = 0;
            sum_row(x + row * columns, residual + row * columns, normal, columns, d);
#pragma omp simd reduction(+ : shared, along)
            for (long column = 0; column < columns; column++) {
                float value = to_float(gradient[row * columns + column]);
                normal[column] = (normal[column] - means[row]) * spreads[row];
                of_weight[column] += value * normal[column];
                of_bias[column] += value;
                weighted[column] = value * weight[column];
                shared += weighted[column];
                along += weighted[column] * normal[column];
            }
            shared /= columns;
            along /= columns;
#pragma omp simd
            for (long column = 0; column < columns; column++) {
                weighted[column] = (weighted[column] - shared - along * normal[column]) * spreads[row];
                to_residual[row * columns + column] = from_float(weighted[column]);
            }
            if (d.some)
#pragma omp simd
                for (long column = 0; column < columns; column++)
                    weighted[column] = dropped(weighted[column], d, column);
#pragma omp simd
            for (long column = 0; column < columns; column++) to_x[row * columns + column] = from_float(weighted[column]);
        }
    }
}

/* out = the transpose of x (rows, columns). */
void transpose(const word *x, word *out, long rows, long columns, long threads) {
#pragma omp parallel for num_threads(threads)
    for (long column = 0; column < columns; column += LANES)
        for (long row = 0; row < rows; row += LANES)
            if (row + LANES <= rows && column + LANES <= columns) {
                vector square[LANES];
#pragma GCC unroll 16
                for (long m = 0; m < LANES; m++) square[m] = *(vector *)(x + (row + m) * columns + column);
                transpose_square(square);
#pragma GCC unroll 16
                for (long m = 0; m < LANES; m++) *(vector *)(out + (column + m) * rows + row) = square[m];
            } else
                for (long j = column; j < column + LANES && j < columns; j++)
                    for (long m = row; m < row + LANES && m < rows; m++) out[j * rows + m] = x[m * columns + j];
}

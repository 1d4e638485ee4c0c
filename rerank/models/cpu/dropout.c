/* Dropout by hash in one pass; dropout.py calls it, and rerank/models/dropout.py defines the hash. */
#include "real.h"

/* out = x, (rows, columns), times scale where the hash of the sum of row's and column's hash is `least` or more; else 0.
   Shifts copy the sign, as those of torch do. */
void drop(const real *x, const int32_t *row_hashes, const int32_t *column_hashes, real *out, const int32_t *odd,
          long rows, long columns, long least, float scale, long threads) {
#pragma omp parallel for num_threads(threads)
    for (long row = 0; row < rows; row++)
#pragma omp simd
        for (long column = 0; column < columns; column++) {
            uint32_t bits = ((uint32_t)row_hashes[row] + column_hashes[column]) * odd[0];
            bits = (bits ^ (int32_t)bits >> 15) * odd[1];
            int32_t hash = bits ^ (int32_t)bits >> 12;
            long place = row * columns + column;
            out[place] = from_float(hash >= least ? to_float(x[place]) * scale : 0.0f);
        }
}

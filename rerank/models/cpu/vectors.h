/* Vectors of the processor's size, of words of 32 bits. */
#include "real.h"

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif

typedef uint32_t word __attribute__((may_alias));
typedef int32_t lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* The vector of of(lane, step) for each lane. */
#if LANES == 16
#define EACH(of, step)                                                                                                 \
    (lanes){of(0, step),  of(1, step),  of(2, step),  of(3, step), of(4, step),  of(5, step),                          \
            of(6, step),  of(7, step),  of(8, step),  of(9, step), of(10, step), of(11, step),                         \
            of(12, step), of(13, step), of(14, step), of(15, step)}
#else
#define EACH(of, step)                                                                                                 \
    (lanes){of(0, step), of(1, step), of(2, step), of(3, step), of(4, step), of(5, step), of(6, step), of(7, step)}
#endif
#define TURNED(lane, step) (((lane) + (step)) % LANES)
#define UPPER(lane, step) ((lane) & (step) ? LANES + (lane) - (step) : (lane))
#define LOWER(lane, step) ((lane) & (step) ? LANES + (lane) : (lane) + (step))

/* The words of x, then of y, whose numbers are in `from`. */
static inline __attribute__((always_inline)) vector shuffled(vector x, vector y, lanes from) {
#ifdef __clang__ /* finds the instruction by itself */
    vector out;
#pragma clang loop unroll(full)
    for (int lane = 0; lane < LANES; lane++) out[lane] = from[lane] < LANES ? x[from[lane]] : y[from[lane] - LANES];
    return out;
#else
    return __builtin_shuffle(x, y, from);
#endif
}

static inline float sum_of(vector x) {
#pragma GCC unroll 4
    for (int step = LANES / 2; step; step /= 2) x += shuffled(x, x, EACH(TURNED, step));
    return x[0];
}

/* Transposes a square of words: exchanges blocks of half its size, then of a quarter, and so on. */
static inline __attribute__((always_inline)) void transpose_square(vector *rows) {
#pragma GCC unroll 4
    for (int step = LANES / 2; step; step /= 2)
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++)
            if (!(m & step)) {
                vector x = rows[m], y = rows[m + step];
                rows[m] = shuffled(x, y, EACH(UPPER, step));
                rows[m + step] = shuffled(x, y, EACH(LOWER, step));
            }
}

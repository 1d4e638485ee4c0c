/* The numbers of tensors: float, or bf16 with -DBF16, which is rounded to the nearest, ties to even. */
#include <stdint.h>

typedef union {
    float number;
    uint32_t bits;
} both;

#ifdef BF16
typedef uint16_t real;
static inline float to_float(real x) { return ((both){.bits = (uint32_t)x << 16}).number; }
static inline real from_float(float x) {
    uint32_t bits = ((both){.number = x}).bits;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#else
typedef float real;
static inline float to_float(real x) { return x; }
static inline real from_float(float x) { return x; }
#endif

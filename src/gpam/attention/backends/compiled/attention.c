/* What stands between the products of an attention call: one pass over each row, forward and backward. And dropout.

   Rows of scores are `width` floats apart, a multiple of LANE; a row sees its first `seen` keys, those of a padded
   sequence but the hidden ones. Loops run over whole lanes. */

#include <float.h>
#include <stdint.h>
#include <string.h>

/* Floats in a vector register: of wider vectors GCC makes comparisons number by number. */
#if defined(__AVX512F__)
#define LANE 16
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif defined(__AVX2__)
#define LANE 8
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define LANE 4
#define NUMBERS {0, 1, 2, 3}
#endif
#define SIGN 0x80000000u
#define INLINE inline __attribute__((always_inline))

typedef struct {
    int64_t heads, branches, rows, width;
    int64_t head_stride, branch_stride;         /* of scores, in floats */
    int64_t first, source;                      /* the first row's position; the number of keys */
    int64_t weight_branch, weight_head, weight_row; /* strides of weights */
    int64_t sequence_heads, hidden_width;       /* heads of a sequence; length of its row of hidden keys */
    int64_t first_head;                         /* of these, among the heads of all sequences */
    int64_t causal, combined;                   /* combined: one mask for the sum of the branches */
    uint64_t seed;                              /* of the dropout's random numbers */
    uint32_t threshold;                         /* of 2^32: dropped below; 0: no dropout */
    float kept_scale;                           /* 1 / (1 - p) */
} Tile;

/* A lane of a row, as GCC and Clang make vectors of it on any processor; comparisons give masks of all bits. */
typedef float floats __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef uint8_t bytes __attribute__((vector_size(LANE), aligned(1), may_alias));

static const ints LANES = NUMBERS;

static INLINE floats only(ints mask, floats x) { return (floats)(mask & (ints)x); } /* elsewhere 0 */
static INLINE floats either(ints mask, floats x, floats y) { return (floats)((mask & (ints)x) | (~mask & (ints)y)); }

static INLINE float largest(floats x) {
    for (int width = LANE / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
    return x[0];
}

static INLINE float sum_of(floats x) {
    for (int width = LANE / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
}

/* exp(x) for x <= 0, to about one unit in the last place: 2^n e^r with |r| <= ln(2) / 2 and a polynomial of degree 6. */
static INLINE floats exponential(floats x) {
    const floats lowest = x * 0 - 87.0f;
    x = either(x < lowest, lowest, x);
    floats shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the lowest bits are round(x / ln 2) */
    floats n = shifted - 12582912.0f;
    floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    floats e = r * (1.0f / 720) + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return e * (floats)(((words)shifted - 0x4B400000u + 127u) << 23);
}

/* A bijection of 32 bits without visible pattern: Wellons' lowbias32. */
static INLINE words mixed(words x) {
    x ^= x >> 16; x *= 0x7feb352du;
    x ^= x >> 15; x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

/* The keys from `k` on that a row sees: the first `seen`, but the hidden ones. */
static INLINE ints visible(int32_t k, int32_t seen, const uint8_t *hidden) {
    ints mask = LANES + k < seen;
    if (hidden) mask &= __builtin_convertvector(*(const bytes *)(hidden + k), ints) == 0;
    return mask;
}

/* Scores into probabilities, the sign bit set where dropped; their weighted sum, without the dropped, into `sum_out`. */
static INLINE void forward_row(
    const Tile *t, float *restrict s, float *restrict out, const uint8_t *restrict hidden, int32_t seen, float weight,
    int add, uint64_t row, int drop)
{
    const floats none = (floats){0} - FLT_MAX;
    floats tops = none, totals = {0};
    words low = (words){0} + ((uint32_t)row ^ (uint32_t)t->seed); /* random numbers are a function of seed, row and key */
    words high = mixed((words){0} + (uint32_t)(row >> 32) + (uint32_t)(t->seed >> 32));
    for (int32_t k = 0; k < seen; k += LANE) {
        floats x = either(visible(k, seen, hidden), *(floats *)(s + k), none);
        tops = either(x > tops, x, tops);
    }
    float top = largest(tops);
    for (int32_t k = 0; k < seen; k += LANE) {
        floats e = only(visible(k, seen, hidden), exponential(*(floats *)(s + k) - top));
        *(floats *)(s + k) = e;
        totals += e;
    }
    float total = sum_of(totals), inverse = total == 0.0f ? 0.0f : 1.0f / total; /* a row that sees nothing is zero */
    for (int32_t k = 0; k < seen; k += LANE) {
        floats p = *(floats *)(s + k) * inverse, kept = p;
        if (drop) {
            ints dropped = mixed(mixed((words)(LANES + k) + low) + high) < t->threshold;
            kept = only(~dropped, p);
            p = (floats)((words)p | ((words)dropped & SIGN));
        }
        *(floats *)(s + k) = p;
        *(floats *)(out + k) = add ? *(floats *)(out + k) + weight * kept : weight * kept;
    }
}

static INLINE void forward_tile(
    const Tile *t, float *scores, float *out, const float *weights, const uint8_t *hidden_keys, int padded, int drop)
{
    for (int64_t h = 0; h < t->heads; h++) {
        const uint8_t *hidden = padded ? hidden_keys + (t->first_head + h) / t->sequence_heads * t->hidden_width : 0;
        for (int64_t i = 0; i < t->rows; i++) {
            int32_t seen = (int32_t)(t->causal ? t->first + i + 1 : t->source);
            int32_t up = (seen + LANE - 1) / LANE * LANE;
            float *sum = out + (h * t->rows + i) * t->width;
            for (int64_t j = 0; j < t->branches; j++) {
                float *s = scores + h * t->head_stride + j * t->branch_stride + i * t->width;
                float weight = weights[j * t->weight_branch + (t->first_head + h) * t->weight_head
                                       + (t->first + i) * t->weight_row] * t->kept_scale;
                uint64_t row = ((uint64_t)(t->first_head + h) << 40 | (uint64_t)(t->combined ? 0 : j) << 32) + t->first + i;
                forward_row(t, s, sum, hidden, seen, weight, j > 0, row * 0x9E3779B97F4A7C15ull, drop);
            }
            memset(sum + up, 0, (size_t)(t->width - up) * sizeof(float));
        }
    }
}

void gpam_forward(const Tile *t, float *scores, float *out, const float *weights, const uint8_t *hidden)
{
    if (hidden && t->threshold) forward_tile(t, scores, out, weights, hidden, 1, 1);
    else if (hidden) forward_tile(t, scores, out, weights, hidden, 1, 0);
    else if (t->threshold) forward_tile(t, scores, out, weights, hidden, 0, 1);
    else forward_tile(t, scores, out, weights, hidden, 0, 0);
}

/* From signed probabilities and G = dO V^T: the gradients of the scores times their weights, the weighted sum of the
   probabilities again (for dV), and delta = rowsum(P * G) of each branch. */
void gpam_backward(const Tile *t, const float *scores, const float *grad, float *grad_scores, float *out,
                   const float *weights, float *deltas)
{
    for (int64_t h = 0; h < t->heads; h++)
        for (int64_t i = 0; i < t->rows; i++) {
            int32_t seen = (int32_t)(t->causal ? t->first + i + 1 : t->source);
            int32_t up = (seen + LANE - 1) / LANE * LANE;
            const float *restrict g = grad + (h * t->rows + i) * t->width;
            float *restrict sum = out + (h * t->rows + i) * t->width;
            for (int64_t j = 0; j < t->branches; j++) {
                int64_t at = h * t->head_stride + j * t->branch_stride + i * t->width;
                const float *restrict s = scores + at;
                float *restrict d = grad_scores + at;
                float weight = weights[j * t->weight_branch + (t->first_head + h) * t->weight_head
                                       + (t->first + i) * t->weight_row];
                floats deltas_of = {0};
                for (int32_t k = 0; k < seen; k += LANE) {
                    floats p = *(const floats *)(s + k), kept = only((ints)p >= 0, p) * t->kept_scale;
                    *(floats *)(sum + k) = j ? *(floats *)(sum + k) + weight * kept : weight * kept;
                    kept *= *(const floats *)(g + k);
                    *(floats *)(d + k) = kept;
                    deltas_of += kept;
                }
                float delta = sum_of(deltas_of);
                for (int32_t k = 0; k < seen; k += LANE) {
                    floats p = (floats)(*(const words *)(s + k) & ~SIGN);
                    *(floats *)(d + k) = weight * (*(floats *)(d + k) - p * delta);
                }
                memset(d + up, 0, (size_t)(t->width - up) * sizeof(float));
                deltas[(h * t->branches + j) * t->rows + i] = delta;
            }
            memset(sum + up, 0, (size_t)(t->width - up) * sizeof(float));
        }
}

/* Dropout of `count` floats: which of them fall follows from the seed and their places alone. */
void gpam_dropout(const float *restrict in, float *restrict out, int64_t count, uint64_t seed, uint32_t threshold,
                  float kept_scale)
{
    for (int64_t start = 0; start < count; start += LANE) {
        words low = (words){0} + ((uint32_t)start + (uint32_t)seed);
        words high = mixed((words){0} + (uint32_t)(start >> 32) + (uint32_t)(seed >> 32));
        ints dropped = mixed(mixed((words)LANES + low) + high) < threshold;
        if (start + LANE <= count)
            *(floats *)(out + start) = only(~dropped, *(const floats *)(in + start) * kept_scale);
        else
            for (int64_t k = start; k < count; k++) out[k] = dropped[k - start] ? 0.0f : in[k] * kept_scale;
    }
}

/* What stands between the products of an attention call: one pass over each row, forward and backward.

   Rows of scores are `width` floats apart, a multiple of LANE; a row sees its first `seen` keys, those of a padded
   sequence but the hidden ones. Loops run over whole lanes, so that compilers make vectors of them. */

#include <float.h>
#include <stdint.h>
#include <string.h>

#define LANE 16
#define SIGN 0x80000000u

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

static inline uint32_t bits_of(float x) { uint32_t i; memcpy(&i, &x, 4); return i; }
static inline float float_of(uint32_t i) { float x; memcpy(&x, &i, 4); return x; }

/* exp(x) for x <= 0, to about one unit in the last place: 2^n e^r with |r| <= ln(2) / 2 and a polynomial of degree 6. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the lowest bits are round(x / ln 2) */
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    float e = 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return e * float_of((bits_of(shifted) - 0x4B400000u + 127u) << 23);
}

/* A bijection of 32 bits without visible pattern: Wellons' lowbias32. */
static inline uint32_t mixed(uint32_t x) {
    x ^= x >> 16; x *= 0x7feb352du;
    x ^= x >> 15; x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Scores into probabilities, the sign bit set where dropped; their weighted sum, without the dropped, into `sum_out`. */
static inline __attribute__((always_inline)) void forward_row(
    const Tile *t, float *restrict s, float *restrict out, const uint8_t *restrict hidden, int32_t seen, float weight,
    int add, uint64_t row, int drop)
{
    int32_t up = (seen + LANE - 1) / LANE * LANE;
    float top = -FLT_MAX, total = 0.0f;
    uint32_t low = (uint32_t)row ^ (uint32_t)t->seed; /* random numbers are a function of seed, row and key */
    uint32_t high = mixed((uint32_t)(row >> 32) + (uint32_t)(t->seed >> 32));
    #pragma omp simd reduction(max : top)
    for (int32_t k = 0; k < up; k++) {
        float x = k < seen && !(hidden && hidden[k]) ? s[k] : -FLT_MAX;
        top = x > top ? x : top;
    }
    #pragma omp simd reduction(+ : total)
    for (int32_t k = 0; k < up; k++) {
        float e = exponential(s[k] - top);
        e = k < seen && !(hidden && hidden[k]) ? e : 0.0f;
        s[k] = e;
        total += e;
    }
    float inverse = total == 0.0f ? 0.0f : 1.0f / total; /* a row that sees nothing is zero */
    #pragma omp simd
    for (int32_t k = 0; k < up; k++) {
        float p = s[k] * inverse;
        uint32_t dropped = drop && mixed(mixed((uint32_t)k + low) + high) < t->threshold;
        float kept = dropped ? 0.0f : p;
        s[k] = drop ? float_of(bits_of(p) | dropped << 31) : p;
        out[k] = add ? out[k] + weight * kept : weight * kept;
    }
}

static inline __attribute__((always_inline)) void forward_tile(
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
                float kept_scale = t->kept_scale, delta = 0.0f;
                #pragma omp simd reduction(+ : delta)
                for (int32_t k = 0; k < up; k++) {
                    float kept = (bits_of(s[k]) & SIGN ? 0.0f : s[k]) * kept_scale;
                    sum[k] = j ? sum[k] + weight * kept : weight * kept;
                    d[k] = kept * g[k];
                    delta += d[k];
                }
                #pragma omp simd
                for (int32_t k = 0; k < up; k++)
                    d[k] = weight * (d[k] - float_of(bits_of(s[k]) & ~SIGN) * delta);
                memset(d + up, 0, (size_t)(t->width - up) * sizeof(float));
                deltas[(h * t->branches + j) * t->rows + i] = delta;
            }
            memset(sum + up, 0, (size_t)(t->width - up) * sizeof(float));
        }
}

/* Attention of whole heads, forward and backward: the products, and what stands between them. And dropout.

   Heads of all sequences are numbered through. Of a head, BLOCK query rows are computed at a time: their scores are
   [branches, rows, width], `width` keys in whole lanes. A row sees its first `seen` keys, of a padded sequence but the
   hidden ones. What a head reads is copied into memory of its thread, so that every product runs over whole lanes and
   in the cache. */

#include <float.h>
#include <stdint.h>
#include <string.h>

/* Floats in a vector register: of wider vectors GCC makes comparisons number by number. */
#if defined(__AVX512F__)
#define LANE 16
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#define MOST_ROWS 8
#elif defined(__AVX2__)
#define LANE 8
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7}
#define MOST_ROWS 4
#else
#define LANE 4
#define NUMBERS {0, 1, 2, 3}
#define MOST_ROWS 4
#endif
#define BLOCK 16
#define SIGN 0x80000000u
#define INLINE inline __attribute__((always_inline))

/* [batch, heads, length, d]: the distances of sequences, heads and rows, in floats. */
typedef struct {
    float *at;
    int64_t sequence, head, row;
} Rows;

typedef struct {
    int64_t first_head, heads, sequence_heads; /* the heads to compute; heads of a sequence */
    int64_t branches, keys;                    /* keys: one for all branches, or one a branch */
    int64_t target, source, head_dim, value_dim;
    int64_t weight_branch, weight_head, weight_row; /* distances of weights */
    int64_t hidden_width;                      /* length of a sequence's row of hidden keys: whole lanes */
    int64_t causal, combined;                  /* combined: one mask for the sum of the branches */
    uint64_t seed;                             /* of the dropout's random numbers */
    uint32_t threshold;                        /* of 2^32: dropped below; 0: no dropout */
    float kept_scale;                          /* 1 / (1 - p) */
    float scale;                               /* of the scores */
} Call;

/* A lane of a row, as GCC and Clang make vectors of it on any processor; comparisons give masks of all bits. */
typedef float floats __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANE), aligned(4), may_alias));
typedef uint8_t bytes __attribute__((vector_size(LANE), aligned(1), may_alias));

static const ints LANES = NUMBERS;

static INLINE int64_t padded(int64_t count) { return (count + LANE - 1) / LANE * LANE; }
static INLINE floats only(ints mask, floats x) { return (floats)(mask & (ints)x); } /* elsewhere 0 */
static INLINE floats either(ints mask, floats x, floats y) { return (floats)((mask & (ints)x) | (~mask & (ints)y)); }

#if defined(__clang__)
static INLINE floats chosen(floats x, floats y, ints from) { /* number i: of x and y behind it the from[i]-th */
    floats z;
    for (int i = 0; i < LANE; i++) z[i] = from[i] < LANE ? x[from[i]] : y[from[i] - LANE];
    return z;
}
#else
#define chosen __builtin_shuffle
#endif

static INLINE float largest(floats x) {
    for (int width = LANE / 2; width; width /= 2) {
        floats y = chosen(x, x, LANES ^ width);
        x = either(x > y, x, y);
    }
    return x[0];
}

static INLINE float sum_of(floats x) {
    for (int width = LANE / 2; width; width /= 2) x += chosen(x, x, LANES ^ width);
    return x[0];
}

/* exp(x) for x <= 0, -inf too, within three units in the last place: 2^n e^r, |r| <= ln(2) / 2, e^r by a polynomial of
   degree 6; ln 2 is split as Cephes' expf splits it. */
static INLINE floats exponential(floats x) {
    const floats lowest = (floats){0} - 87.0f;
    x = either(x < lowest, lowest, x);
    floats shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the lowest bits are round(x / ln 2) */
    floats n = shifted - 12582912.0f;
    floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
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

/* A product of matrices, or a sum with it: left [rows, depth], right [depth, width], with distances of their own. */
typedef struct {
    const float *left;
    int64_t left_row, left_column;
    const float *right;
    int64_t right_row, right_lane;
    float *out;
    int64_t out_row, depth, add;
} Product;

static INLINE void corner(const Product *p, int64_t row, int64_t column, const int rows, const int lanes) {
    const float *left = p->left + row * p->left_row, *right = p->right + column / LANE * p->right_lane;
    float *out = p->out + row * p->out_row + column;
    floats sum[MOST_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < lanes; j++) sum[i][j] = p->add ? *(floats *)(out + i * p->out_row + j * LANE) : (floats){0};
    for (int64_t k = 0; k < p->depth; k++)
        for (int j = 0; j < lanes; j++) {
            floats of_right = *(const floats *)(right + k * p->right_row + j * p->right_lane);
            for (int i = 0; i < rows; i++) sum[i][j] += left[i * p->left_row + k * p->left_column] * of_right;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < lanes; j++) *(floats *)(out + i * p->out_row + j * LANE) = sum[i][j];
}

static INLINE void columns(const Product *p, int64_t row, int64_t width, const int rows) {
    int64_t column = 0;
    for (; column + 2 * LANE <= width; column += 2 * LANE) corner(p, row, column, rows, 2);
    if (column < width) corner(p, row, column, rows, 1);
}

static void multiply(Product p, int64_t rows, int64_t width) {
    int64_t row = 0;
    for (; row + MOST_ROWS <= rows; row += MOST_ROWS) columns(&p, row, width, MOST_ROWS);
#if MOST_ROWS > 4
    if (rows - row >= 4) columns(&p, row, width, 4), row += 4;
#endif
    if (rows - row >= 2) columns(&p, row, width, 2), row += 2;
    if (rows - row >= 1) columns(&p, row, width, 1);
}

/* Scores into probabilities, the sign bit set where dropped; their weighted sum, without the dropped, into `out`. */
static INLINE void forward_row(
    const Call *c, float *restrict s, float *restrict out, const uint8_t *restrict hidden, int32_t seen, float weight,
    int add, uint64_t row, int drop)
{
    const floats none = (floats){0} - FLT_MAX;
    floats tops = none, totals = {0};
    /* random numbers are a function of seed, row and key */
    words low = (words){0} + ((uint32_t)row ^ (uint32_t)c->seed);
    words high = mixed((words){0} + (uint32_t)(row >> 32) + (uint32_t)(c->seed >> 32));
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
            ints dropped = mixed(mixed((words)(LANES + k) + low) + high) < c->threshold;
            kept = only(~dropped, p);
            p = (floats)((words)p | ((words)dropped & SIGN));
        }
        *(floats *)(s + k) = p;
        *(floats *)(out + k) = add ? *(floats *)(out + k) + weight * kept : weight * kept;
    }
}

/* From signed probabilities and G = dO V^T: the gradient of the scores times their weight, the weighted sum of the
   probabilities again (for dV), and delta = sum(P * G). */
static INLINE float backward_row(
    const Call *c, const float *restrict s, const float *restrict g, float *restrict d, float *restrict sum,
    int32_t seen, float weight, int add)
{
    floats deltas = {0};
    for (int32_t k = 0; k < seen; k += LANE) {
        floats p = *(const floats *)(s + k), kept = only((ints)p >= 0, p) * c->kept_scale;
        *(floats *)(sum + k) = add ? *(floats *)(sum + k) + weight * kept : weight * kept;
        kept *= *(const floats *)(g + k);
        *(floats *)(d + k) = kept;
        deltas += kept;
    }
    float delta = sum_of(deltas);
    for (int32_t k = 0; k < seen; k += LANE) {
        floats p = (floats)(*(const words *)(s + k) & ~SIGN);
        *(floats *)(d + k) = weight * (*(floats *)(d + k) - p * delta);
    }
    return delta;
}

/* The memory of a thread for one head. */
typedef struct {
    float *query, *key, *keys_across, *value, *values_across; /* across: transposed */
    float *scores, *sum, *out, *grad, *grad_scores, *grad_query, *grad_key, *grad_value;
    int64_t head_width, value_width, source_width; /* in whole lanes */
} Memory;

static int64_t lay_out(const Call *c, float *memory, Memory *m) {
    int64_t heads = m->head_width = padded(c->head_dim), values = m->value_width = padded(c->value_dim);
    int64_t sources = m->source_width = padded(c->source), at = 0;
#define TAKE(name, count) m->name = memory + at, at += (count)
    TAKE(query, c->branches * BLOCK * heads);
    TAKE(key, c->keys * sources * heads);
    TAKE(keys_across, c->keys * sources * heads);
    TAKE(value, sources * values);
    TAKE(values_across, sources * values);
    TAKE(scores, c->branches * BLOCK * sources);
    TAKE(sum, BLOCK * sources);
    TAKE(out, BLOCK * values);
    TAKE(grad, BLOCK * sources);
    TAKE(grad_scores, c->branches * BLOCK * sources);
    TAKE(grad_query, BLOCK * heads);
    TAKE(grad_key, c->keys * sources * heads);
    TAKE(grad_value, sources * values);
    return at;
}

/* Query rows `first` to `last`, which see no key from `keys` on, nor from `width` on in whole lanes. */
typedef struct {
    int64_t first, rows, keys, width;
} Block;

static INLINE Block block_from(const Call *c, int64_t first) {
    int64_t last = first + BLOCK < c->target ? first + BLOCK : c->target, keys = c->causal ? last : c->source;
    return (Block){first, last - first, keys, padded(keys)};
}

/* How many floats a thread needs, and how many probabilities a head keeps for its backward pass. */
int64_t gpam_memory(const Call *c) {
    Memory m;
    return lay_out(c, 0, &m);
}

int64_t gpam_kept(const Call *c) {
    int64_t kept = 0;
    for (int64_t first = 0; first < c->target; first += BLOCK) {
        Block b = block_from(c, first);
        kept += c->branches * b.rows * b.width;
    }
    return kept;
}

static INLINE float *row_of(const Call *c, const Rows *rows, int64_t head, int64_t row) {
    return rows->at + head / c->sequence_heads * rows->sequence + head % c->sequence_heads * rows->head
           + row * rows->row;
}

/* `count` rows of `d` numbers of a head, from `first` on, times `scale`, next to each other in whole lanes; the rest is
   zero. */
static void gather(const Call *c, const Rows *rows, int64_t head, int64_t first, int64_t count, int64_t d, float *to,
                   int64_t width, float scale)
{
    const float *from = row_of(c, rows, head, first);
    for (int64_t i = 0; i < count; i++, from += rows->row, to += width) {
        int64_t e = 0;
        for (; e + LANE <= d; e += LANE) *(floats *)(to + e) = *(const floats *)(from + e) * scale;
        for (; e < width; e++) to[e] = e < d ? from[e] * scale : 0.0f;
    }
}

static void scatter(const float *from, int64_t width, const Call *c, const Rows *rows, int64_t head, int64_t first,
                    int64_t count, int64_t d, float scale)
{
    float *to = row_of(c, rows, head, first);
    for (int64_t i = 0; i < count; i++, from += width, to += rows->row) {
        int64_t e = 0;
        for (; e + LANE <= d; e += LANE) *(floats *)(to + e) = *(const floats *)(from + e) * scale;
        for (; e < d; e++) to[e] = from[e] * scale;
    }
}

/* The transpose of `count` rows in whole lanes, LANE of its columns after the other, [count / LANE, width, LANE]: in
   rows as long as a power of two its columns would drive each other out of the cache. */
static void across(const float *from, int64_t width, int64_t count, float *to) {
    for (int64_t k = 0; k < count; k += LANE)
        for (int64_t e = 0; e < width; e += LANE) {
            floats x[LANE];
            for (int i = 0; i < LANE; i++)
                x[i] = k + i < count ? *(const floats *)(from + (k + i) * width + e) : (floats){0};
#pragma GCC unroll 4
            for (int step = 1; step < LANE; step *= 2)
#pragma GCC unroll 16
                for (int i = 0; i < LANE; i++)
                    if (!(i & step)) {
                        floats upper = x[i], lower = x[i + step];
                        ints odd = (LANES & step) != 0;
                        x[i] = chosen(upper, lower, LANES + (odd & (LANE - step)));
                        x[i + step] = chosen(upper, lower, LANES + (odd & LANE) + (~odd & step));
                    }
            for (int i = 0; i < LANE; i++) *(floats *)(to + k * width + (e + i) * LANE) = x[i];
        }
}

/* Where the keys of a branch begin. */
static INLINE int64_t keys_of(const Call *c, const Memory *m, int64_t branch) {
    return (c->keys > 1 ? branch : 0) * m->source_width * m->head_width;
}

static INLINE float weight_of(const Call *c, const float *weights, int64_t branch, int64_t head, int64_t row) {
    return weights[branch * c->weight_branch + head * c->weight_head + row * c->weight_row];
}

/* The signed probabilities of a block, into `scores`, and their weighted sum. */
static INLINE void probabilities(
    const Call *c, const Memory *m, Block b, int64_t head, const float *weights, const uint8_t *hidden, float *scores,
    int drop)
{
    for (int64_t j = 0; j < c->branches; j++)
        multiply((Product){m->query + j * BLOCK * m->head_width, m->head_width, 1,
                           m->keys_across + keys_of(c, m, j), LANE,
                           LANE * m->head_width, scores + j * b.rows * b.width, b.width, c->head_dim, 0},
                 b.rows, b.width);
    for (int64_t i = 0; i < b.rows; i++) {
        int64_t row = b.first + i, seen = c->causal ? row + 1 : c->source;
        float *sum = m->sum + i * b.width;
        for (int64_t j = 0; j < c->branches; j++) {
            uint64_t place = ((uint64_t)head << 40 | (uint64_t)(c->combined ? 0 : j) << 32) + row;
            forward_row(c, scores + (j * b.rows + i) * b.width, sum, hidden, (int32_t)seen,
                        weight_of(c, weights, j, head, row) * c->kept_scale, j > 0, place * 0x9E3779B97F4A7C15ull,
                        drop);
        }
        memset(sum + padded(seen), 0, (size_t)(b.width - padded(seen)) * sizeof(float));
    }
}

static INLINE void some_probabilities(
    const Call *c, const Memory *m, Block b, int64_t head, const float *weights, const uint8_t *hidden, float *scores)
{
    hidden = hidden ? hidden + head / c->sequence_heads * c->hidden_width : 0;
    if (hidden && c->threshold) probabilities(c, m, b, head, weights, hidden, scores, 1);
    else if (hidden) probabilities(c, m, b, head, weights, hidden, scores, 0);
    else if (c->threshold) probabilities(c, m, b, head, weights, 0, scores, 1);
    else probabilities(c, m, b, head, weights, 0, scores, 0);
}

static void load_queries(const Call *c, const Memory *m, const Rows *queries, Block b, int64_t head) {
    for (int64_t j = 0; j < c->branches; j++)
        gather(c, queries + j, head, b.first, b.rows, c->head_dim, m->query + j * BLOCK * m->head_width, m->head_width,
               c->scale);
}

static void load_keys(const Call *c, const Memory *m, const Rows *keys, const Rows *values, int64_t head) {
    for (int64_t j = 0; j < c->keys; j++) {
        float *rows = m->key + keys_of(c, m, j);
        gather(c, keys + j, head, 0, c->source, c->head_dim, rows, m->head_width, 1.0f);
        across(rows, m->head_width, c->source, m->keys_across + keys_of(c, m, j));
    }
    gather(c, values, head, 0, c->source, c->value_dim, m->value, m->value_width, 1.0f);
}

/* tensors: values, then queries, then keys. kept: of the first head, or nothing. */
void gpam_forward(const Call *c, float *memory, const Rows *tensors, const float *weights, const uint8_t *hidden,
                  const Rows *out, float *kept)
{
    const Rows *values = tensors, *queries = tensors + 1, *keys = queries + c->branches;
    Memory memory_of_head, *m = &memory_of_head;
    lay_out(c, memory, m);
    for (int64_t head = c->first_head; head < c->first_head + c->heads; head++) {
        load_keys(c, m, keys, values, head);
        for (int64_t first = 0; first < c->target; first += BLOCK) {
            Block b = block_from(c, first);
            load_queries(c, m, queries, b, head);
            some_probabilities(c, m, b, head, weights, hidden, kept ? kept : m->scores);
            if (kept) kept += c->branches * b.rows * b.width;
            multiply((Product){m->sum, b.width, 1, m->value, m->value_width, LANE, m->out, m->value_width, b.keys, 0},
                     b.rows, m->value_width);
            scatter(m->out, m->value_width, c, out, head, first, b.rows, c->value_dim, 1.0f);
        }
    }
}

/* grads: of the tensors, in their order. deltas: [heads, branches, target]. */
void gpam_backward(const Call *c, float *memory, const Rows *tensors, const float *weights, const uint8_t *hidden,
                   const Rows *grad_out, const float *kept, const Rows *grads, float *deltas)
{
    const Rows *values = tensors, *queries = tensors + 1, *keys = queries + c->branches;
    const Rows *grad_queries = grads + 1, *grad_keys = grad_queries + c->branches;
    Memory memory_of_head, *m = &memory_of_head;
    lay_out(c, memory, m);
    for (int64_t head = c->first_head; head < c->first_head + c->heads; head++) {
        load_keys(c, m, keys, values, head);
        across(m->value, m->value_width, c->source, m->values_across);
        memset(m->grad_key, 0, (size_t)(c->keys * m->source_width * m->head_width) * sizeof(float));
        memset(m->grad_value, 0, (size_t)(m->source_width * m->value_width) * sizeof(float));
        for (int64_t first = 0; first < c->target; first += BLOCK) {
            Block b = block_from(c, first);
            load_queries(c, m, queries, b, head);
            if (!kept) some_probabilities(c, m, b, head, weights, hidden, m->scores);
            const float *scores = kept ? kept : m->scores;
            if (kept) kept += c->branches * b.rows * b.width;
            gather(c, grad_out, head, first, b.rows, c->value_dim, m->out, m->value_width, 1.0f);
            multiply((Product){m->out, m->value_width, 1, m->values_across, LANE, LANE * m->value_width, m->grad,
                               b.width, c->value_dim, 0},
                     b.rows, b.width);
            for (int64_t i = 0; i < b.rows; i++) {
                int64_t row = first + i, seen = c->causal ? row + 1 : c->source, up = padded(seen);
                size_t beyond = (size_t)(b.width - up) * sizeof(float);
                for (int64_t j = 0; j < c->branches; j++) {
                    float *d = m->grad_scores + (j * b.rows + i) * b.width;
                    deltas[j * c->target + row] =
                        backward_row(c, scores + (j * b.rows + i) * b.width, m->grad + i * b.width, d,
                                     m->sum + i * b.width, (int32_t)seen, weight_of(c, weights, j, head, row), j > 0);
                    memset(d + up, 0, beyond);
                }
                memset(m->sum + i * b.width + up, 0, beyond);
            }
            multiply((Product){m->sum, 1, b.width, m->out, m->value_width, LANE, m->grad_value, m->value_width, b.rows,
                               1},
                     b.keys, m->value_width);
            for (int64_t j = 0; j < c->branches; j++) {
                int64_t key = keys_of(c, m, j);
                const float *d = m->grad_scores + j * b.rows * b.width;
                multiply((Product){d, b.width, 1, m->key + key, m->head_width, LANE, m->grad_query, m->head_width,
                                   b.keys, 0},
                         b.rows, m->head_width);
                multiply((Product){d, 1, b.width, m->query + j * BLOCK * m->head_width, m->head_width, LANE,
                                   m->grad_key + key, m->head_width, b.rows, 1},
                         b.keys, m->head_width);
                scatter(m->grad_query, m->head_width, c, grad_queries + j, head, first, b.rows, c->head_dim, c->scale);
            }
        }
        for (int64_t j = 0; j < c->keys; j++)
            scatter(m->grad_key + keys_of(c, m, j), m->head_width, c, grad_keys + j, head, 0, c->source, c->head_dim,
                    1.0f);
        scatter(m->grad_value, m->value_width, c, grads, head, 0, c->source, c->value_dim, 1.0f);
        deltas += c->branches * c->target;
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

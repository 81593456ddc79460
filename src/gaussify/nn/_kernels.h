/* Losses and their derivatives for one type of numbers; _kernels.c includes this once for each.
 *
 * A block function goes once over a part of the logits, returns the sum of the losses (but for constants, where its
 * comment says so) and, where there is a 'slope', writes there the derivative by each logit. 'odd' becomes 1 where a
 * label is not what the function is for, and then nothing else has a meaning.
 *
 * A logit f with the Gaussian N(m, 1/p) has the loss p (f - m)^2 / 2 - log(p) / 2 + log(2 pi) / 2.
 */

/* Numbers are summed in REAL as far as this, then in double. */
#define SHORT_SUM 1024

/* log x = e log 2 + 2 artanh(s), s = (m - 1) / (m + 1), for x = m 2^e > 0 with m from sqrt(1/2) to sqrt(2).
 *
 * The series of artanh has s^2 < 0.03: each term gives 1.5 digits. Nothing in it keeps a compiler from computing
 * many at once, as calling the library's log would. */
INLINE REAL NAME(log_of)(REAL x)
{
    BITS bits, e;
    REAL m;
    memcpy(&bits, &x, sizeof bits);
    e = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS;
    bits -= e * ((BITS)1 << MANTISSA_BITS);
    memcpy(&m, &bits, sizeof m);
    const REAL s = (m - 1) / (m + 1), z = s * s;
    REAL series = 0;
    for (int i = N_ARTANH; i > 0; i--)
        series = z * ((REAL)1 / (2 * i + 1) + series);
    return (REAL)e * (REAL)0.69314718055994530942 + 2 * s * (1 + series);
}

/* log(1 + x) for x >= 0: what rounding takes from 1 + x, the quotient gives back. */
INLINE REAL NAME(log1p_of)(REAL x)
{
    const REAL sum = 1 + x, kept = sum - 1;
    return kept > 0 ? NAME(log_of)(sum) * (x / kept) : x;
}

/* Digamma and trigamma by their recurrences up to where Stirling's series hold, as digamma_and_trigamma in Python. */
INLINE void NAME(polygammas)(REAL a, REAL *digamma, REAL *trigamma)
{
    static const double bernoulli[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                       5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510};
    REAL first = 0, second = 0;
    for (int i = 0; i < N_RECURRENCES; i++) {
        const REAL inverse = 1 / (a + i);
        first -= inverse;
        second += inverse * inverse;
    }
    const REAL inverse = 1 / (a + N_RECURRENCES), square = inverse * inverse;
    REAL of_first = 0, of_second = 0;
    for (int k = N_BERNOULLI; k > 0; k--) {
        of_first = (of_first + (REAL)(bernoulli[k - 1] / (2 * k))) * square;
        of_second = (of_second + (REAL)bernoulli[k - 1]) * square;
    }
    *digamma = first - of_first - inverse / 2 - NAME(log_of)(inverse);
    *trigamma = second + (of_second + 1) * inverse + square / 2;
}

/* Mean, precision and log of the precision of the Gaussian that stands for the log of Gamma(a, 1). */
INLINE void NAME(match_gamma)(REAL a, int method, REAL *mean, REAL *precision, REAL *log_precision)
{
    if (method == VARIATIONAL || method == LAPLACE) {
        *precision = a;
        *log_precision = NAME(log_of)(a);
        *mean = method == LAPLACE ? *log_precision : *log_precision - (REAL)0.5 / a;
        return;
    }
    REAL variance;
    if (method == MOMENT) {
        NAME(polygammas)(a, mean, &variance);
    } else {
        variance = NAME(log1p_of)(1 / a);
        *mean = NAME(log_of)(a) - variance / 2;
    }
    *precision = 1 / variance;
    *log_precision = -NAME(log_of)(variance);
}

/* Class indices: rows start to stop. Scales are roots of precisions, which may leave the range of float themselves. */
INLINE double NAME(labels_of)(const LabelTask *task, int64_t start, int64_t stop, int *odd, int has_slope)
{
    const int32_t c = task->n_classes;
    const REAL other_mean = (REAL)task->other_mean, other_scale = (REAL)task->other_scale;
    const REAL own_mean = (REAL)task->own_mean, own_scale = (REAL)task->own_scale;
    const REAL other_factor = (REAL)(task->factor * task->other_scale);
    const REAL own_factor = (REAL)(task->factor * task->own_scale);
    double total = 0.0;
    for (int64_t row = start; row < stop; row++) {
        const REAL *restrict f = (const REAL *)task->logits + row * c;
        REAL *restrict slope = has_slope ? (REAL *)task->slope + row * c : NULL;
        if (task->labels[row] == task->ignore_index) {
            if (has_slope)
                memset(slope, 0, (size_t)c * sizeof *slope);
            continue;
        }
        if (task->labels[row] < 0 || task->labels[row] >= c) {
            *odd = 1;
            return 0.0;
        }
        const int32_t label = (int32_t)task->labels[row];
        double squares = 0.0;
        for (int32_t first = 0; first < c; first += SHORT_SUM) {
            const int32_t last = c - first > SHORT_SUM ? first + SHORT_SUM : c;
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int32_t k = first; k < last; k++) {
                const REAL mean = k == label ? own_mean : other_mean, scale = k == label ? own_scale : other_scale;
                const REAL scaled = scale * (f[k] - mean);
                if (has_slope)
                    slope[k] = (k == label ? own_factor : other_factor) * scaled;
                sum += scaled * scaled;
            }
            squares += (double)sum;
        }
        total += 0.5 * squares + task->row_constant;
    }
    return task->factor * total;
}

CLONES static double NAME(label_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const LabelTask *const task = given;
    return task->slope ? NAME(labels_of)(task, start, stop, odd, 1) : NAME(labels_of)(task, start, stop, odd, 0);
}

/* Counts or probabilities, a Gaussian for each logit, without log(2 pi) / 2. */
INLINE double NAME(counts_of)(const CountTask *task, int64_t start, int64_t stop, int *odd, int method, int has_slope)
{
    const REAL *restrict f = task->logits, *restrict counts = task->counts;
    REAL *restrict slope = task->slope;
    const REAL kept = (REAL)task->kept, alpha = (REAL)task->alpha, factor = (REAL)task->factor;
    double total = 0.0;
    int is_odd = 0;
    for (; start < stop; start += SHORT_SUM) {
        const int64_t end = start + SHORT_SUM < stop ? start + SHORT_SUM : stop;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum) reduction(| : is_odd)
        for (int64_t i = start; i < end; i++) {
            REAL mean, precision, log_precision;
            NAME(match_gamma)(kept * counts[i] + alpha, method, &mean, &precision, &log_precision);
            const REAL residual = f[i] - mean, weighted = precision * residual;
            if (has_slope)
                slope[i] = factor * weighted;
            sum += weighted * residual - log_precision;
            is_odd |= !(counts[i] >= 0) | !(counts[i] <= LARGEST);
        }
        total += (double)sum;
    }
    *odd |= is_odd;
    return 0.5 * task->factor * total;
}

/* The same for each method, so that none is chosen within the loop. */
CLONES static double NAME(count_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const CountTask *const task = given;
#define OF_METHOD(method)                                                                                              \
    case method:                                                                                                       \
        return task->slope ? NAME(counts_of)(task, start, stop, odd, method, 1)                                        \
                           : NAME(counts_of)(task, start, stop, odd, method, 0);
    switch (task->method) {
        OF_METHOD(VARIATIONAL)
        OF_METHOD(LAPLACE)
        OF_METHOD(MOMENT)
        OF_METHOD(MOMENT_ORI)
    }
#undef OF_METHOD
    *odd = 1;
    return 0.0;
}

/* Labels that are 0 or 1. */
INLINE double NAME(binary_of)(const BinaryTask *task, int64_t start, int64_t stop, int *odd, int has_slope)
{
    const REAL *restrict f = task->logits, *restrict labels = task->labels;
    REAL *restrict slope = task->slope;
    const REAL mean_0 = (REAL)task->mean_0, precision_0 = (REAL)task->precision_0;
    const REAL mean_1 = (REAL)task->mean_1, precision_1 = (REAL)task->precision_1;
    const REAL factor = (REAL)task->factor;
    const double n = (double)(stop - start);
    double total = 0.0, n_ones = 0.0;
    int is_odd = 0;
    for (; start < stop; start += SHORT_SUM) {
        const int64_t end = start + SHORT_SUM < stop ? start + SHORT_SUM : stop;
        REAL sum = 0, ones = 0;
#pragma omp simd reduction(+ : sum, ones) reduction(| : is_odd)
        for (int64_t i = start; i < end; i++) {
            const REAL y = labels[i];
            const REAL mean = y > 0 ? mean_1 : mean_0, precision = y > 0 ? precision_1 : precision_0;
            const REAL residual = f[i] - mean, weighted = precision * residual;
            if (has_slope)
                slope[i] = factor * weighted;
            sum += weighted * residual;
            ones += y;
            is_odd |= (y != 0) & (y != 1);
        }
        total += (double)sum;
        n_ones += (double)ones;
    }
    *odd |= is_odd;
    return task->factor * (0.5 * total + n_ones * task->constant_1 + (n - n_ones) * task->constant_0);
}

CLONES static double NAME(binary_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const BinaryTask *const task = given;
    return task->slope ? NAME(binary_of)(task, start, stop, odd, 1) : NAME(binary_of)(task, start, stop, odd, 0);
}

/* Labels from 0 to 1, whose Gaussians are on the pieces of a BetaCurve, without log(2 pi) / 2. */
INLINE double NAME(curve_of)(const CurveTask *task, int64_t start, int64_t stop, int *odd, int has_slope)
{
    const REAL *restrict f = task->logits, *restrict labels = task->labels;
    const REAL *restrict of_means = task->coefficients;
    const REAL *restrict of_precisions = of_means + N_CURVE * task->n_pieces;
    REAL *restrict slope = task->slope;
    const REAL alpha = (REAL)task->alpha, beta = (REAL)task->beta, factor = (REAL)task->factor;
    const REAL per_unit = (REAL)task->pieces_per_unit, first = (REAL)task->first_piece;
    const int32_t n_pieces = (int32_t)task->n_pieces;
    double total = 0.0;
    int is_odd = task->n_nodes != N_CURVE; /* of which it reads as many */
    if (is_odd)
        stop = start;
    for (; start < stop; start += SHORT_SUM) {
        const int64_t end = start + SHORT_SUM < stop ? start + SHORT_SUM : stop;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum) reduction(| : is_odd)
        for (int64_t i = start; i < end; i++) {
            const int is_label = (labels[i] >= 0) & (labels[i] <= 1);
            const REAL y = is_label ? labels[i] : 0;
            const REAL place = NAME(log_of)((y + alpha) / (1 - y + beta)) * per_unit - first; /* from 0 to n_pieces */
            int32_t piece = (int32_t)place;
            piece = piece < 0 ? 0 : piece >= n_pieces ? n_pieces - 1 : piece;
            const REAL within = place - (REAL)piece - (REAL)0.5;
            REAL mean = of_means[piece], precision = of_precisions[piece];
            for (int j = 1; j < N_CURVE; j++) { /* Horner's scheme, from the highest power down */
                mean = mean * within + of_means[j * n_pieces + piece];
                precision = precision * within + of_precisions[j * n_pieces + piece];
            }
            const REAL residual = f[i] - mean, weighted = precision * residual;
            if (has_slope)
                slope[i] = factor * weighted;
            sum += weighted * residual - NAME(log_of)(precision);
            is_odd |= !is_label;
        }
        total += (double)sum;
    }
    *odd |= is_odd;
    return 0.5 * task->factor * total;
}

CLONES static double NAME(curve_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const CurveTask *const task = given;
    return task->slope ? NAME(curve_of)(task, start, stop, odd, 1) : NAME(curve_of)(task, start, stop, odd, 0);
}

#undef SHORT_SUM

/* Losses and their derivatives for one type of numbers; _kernels.c includes this once for each.
 *
 * A block function goes once over a part of the logits, returns the sum of the losses and, where there is a 'slope',
 * writes there the derivative by each logit. 'odd' becomes 1 where a label is not what the function is for, and then
 * nothing else has a meaning.
 *
 * A logit f with the Gaussian N(m, 1/p) has the loss p (f - m)^2 / 2 - log(p) / 2 + log(2 pi) / 2.
 */

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
    const REAL *weights = task->weights;
    REAL *losses = task->losses;
    double total = 0.0;
    for (int64_t row = start; row < stop; row++) {
        const REAL *restrict f = (const REAL *)task->logits + row * c;
        REAL *restrict slope = has_slope ? (REAL *)task->slope + row * c : NULL;
        if (task->labels[row] == task->ignore_index) {
            if (has_slope)
                memset(slope, 0, (size_t)c * sizeof *slope);
            if (losses)
                losses[row] = 0;
            continue;
        }
        if (task->labels[row] < 0 || task->labels[row] >= c) {
            *odd = 1;
            return 0.0;
        }
        const int32_t label = (int32_t)task->labels[row];
        const double factor =
            weights ? task->factor * (task->kept * (double)weights[label] + task->spread_weight) : task->factor;
        const REAL other_factor = (REAL)(factor * task->other_scale), own_factor = (REAL)(factor * task->own_scale);
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
        const double loss = factor * (0.5 * squares + task->row_constant);
        if (losses)
            losses[row] = (REAL)loss;
        total += loss;
    }
    return total;
}

CLONES static double NAME(label_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const LabelTask *const task = given;
    return task->slope ? NAME(labels_of)(task, start, stop, odd, 1) : NAME(labels_of)(task, start, stop, odd, 0);
}

/* How many rows from start on are side by side in memory, and where: in which plane, and at which place there. */
INLINE int64_t NAME(in_plane)(int64_t start, int64_t stop, int64_t n_inner, int64_t *outer, int64_t *inner)
{
    *outer = start / n_inner;
    *inner = start % n_inner;
    const int64_t n = n_inner - *inner < stop - start ? n_inner - *inner : stop - start;
    return n < SHORT_SUM ? n : SHORT_SUM;
}

/* The same for logits (n, c, ...): class after class, for many rows at once. */
INLINE double NAME(label_planes_of)(const LabelTask *task, int64_t start, int64_t stop, int *odd, int has_slope)
{
    const int32_t c = task->n_classes;
    const REAL other_mean = (REAL)task->other_mean, other_scale = (REAL)task->other_scale;
    const REAL own_mean = (REAL)task->own_mean, own_scale = (REAL)task->own_scale;
    const REAL *weights = task->weights;
    double total = 0.0;
    for (int64_t n, outer, inner; start < stop; start += n) {
        n = NAME(in_plane)(start, stop, task->n_inner, &outer, &inner);
        int32_t labels[SHORT_SUM]; /* -1 for those that are ignored */
        double factors[SHORT_SUM], squares[SHORT_SUM];
        REAL scales[SHORT_SUM], sums[SHORT_SUM]; /* factors in the type of the logits */
        for (int64_t i = 0; i < n; i++) {
            const int64_t label = task->labels[start + i];
            const int is_kept = label != task->ignore_index;
            if (is_kept && (label < 0 || label >= c)) {
                *odd = 1;
                return 0.0;
            }
            labels[i] = is_kept ? (int32_t)label : -1;
            factors[i] = task->factor;
            if (weights && is_kept)
                factors[i] *= task->kept * (double)weights[label] + task->spread_weight;
            scales[i] = (REAL)factors[i];
            squares[i] = 0.0;
        }
        for (int32_t first = 0; first < c; first += SHORT_SUM) {
            const int32_t last = c - first > SHORT_SUM ? first + SHORT_SUM : c;
            memset(sums, 0, sizeof sums);
            for (int32_t k = first; k < last; k++) {
                const int64_t at = (outer * c + k) * task->n_inner + inner;
                const REAL *restrict f = (const REAL *)task->logits + at;
                REAL *restrict slope = has_slope ? (REAL *)task->slope + at : NULL;
#pragma omp simd
                for (int64_t i = 0; i < n; i++) {
                    const REAL mean = labels[i] == k ? own_mean : other_mean;
                    const REAL scale = labels[i] == k ? own_scale : other_scale;
                    const REAL scaled = scale * (f[i] - mean);
                    if (has_slope)
                        slope[i] = labels[i] < 0 ? 0 : scales[i] * scale * scaled;
                    sums[i] += scaled * scaled;
                }
            }
            for (int64_t i = 0; i < n; i++)
                squares[i] += (double)sums[i];
        }
        for (int64_t i = 0; i < n; i++) {
            const double loss = labels[i] < 0 ? 0.0 : factors[i] * (0.5 * squares[i] + task->row_constant);
            if (task->losses)
                ((REAL *)task->losses)[start + i] = (REAL)loss;
            total += loss;
        }
    }
    return total;
}

CLONES static double NAME(label_planes)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const LabelTask *const task = given;
    return task->slope ? NAME(label_planes_of)(task, start, stop, odd, 1)
                       : NAME(label_planes_of)(task, start, stop, odd, 0);
}

/* What targets have in common, in the type of the logits. */
typedef REAL NAME(Four) __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL))));
typedef struct {
    REAL numbers[N_NUMBERS];
    BITS first_low, first_high;
    const NAME(Four) *coefficients;
} NAME(Common);

/* Means, precisions and logs of precisions of n labels from 0 to 1, on the pieces of a BetaCurve.
 *
 * Those of one label at once, as its coefficients are side by side: it is loads that take time. */
INLINE void NAME(on_curve)(const REAL *restrict labels, int n, const NAME(Common) *common, REAL *restrict means,
                           REAL *restrict precisions, REAL *restrict log_precisions)
{
    const int n_bits = MANTISSA_BITS - PIECE_BITS; /* which tell the place within a piece */
    const REAL low_shift = common->numbers[0], high_shift = common->numbers[1];
    const REAL unit = 1 / (REAL)((BITS)1 << n_bits);
    BITS pieces[SHORT_SUM];
    REAL within[SHORT_SUM];
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const REAL y = (labels[i] >= 0) & (labels[i] <= 1) ? labels[i] : 0;
        const int is_high = y > (REAL)0.5;
        const union {
            REAL number;
            BITS bits;
        } distance = {is_high ? (1 - y) + high_shift : y + low_shift};
        pieces[i] = (distance.bits >> n_bits) - (is_high ? common->first_high : common->first_low);
        within[i] = (REAL)(distance.bits & (((BITS)1 << n_bits) - 1)) * unit - (REAL)0.5;
    }
    for (int i = 0; i < n; i++) {
        const NAME(Four) *const own = common->coefficients + (int64_t)pieces[i] * N_CURVE;
        NAME(Four) value = own[0];
        for (int j = 1; j < N_CURVE; j++) /* Horner's scheme, from the highest power down */
            value = value * within[i] + own[j];
        means[i] = value[0];
        precisions[i] = value[1];
        log_precisions[i] = value[2];
    }
}

/* Mean, precision and log of the precision of the Gaussian that a target y gives its logit; whether y is a target. */
INLINE int NAME(gaussian_of)(REAL y, int kind, const NAME(Common) *common, REAL *mean, REAL *precision,
                             REAL *log_precision)
{
    const REAL *const numbers = common->numbers;
    if (kind == AS_GIVEN) {
        *mean = numbers[0] * y + numbers[1];
        *precision = numbers[2];
        *log_precision = numbers[3];
        return (y >= 0) & (y <= numbers[4]);
    }
    if (kind == ZERO_OR_ONE) {
        *mean = y > 0 ? numbers[3] : numbers[0];
        *precision = y > 0 ? numbers[4] : numbers[1];
        *log_precision = y > 0 ? numbers[5] : numbers[2];
        return (y == 0) | (y == 1);
    }
    NAME(match_gamma)(numbers[0] * y + numbers[1], kind, mean, precision, log_precision);
    return (y >= 0) & (y <= LARGEST);
}

INLINE double NAME(targets_of)(const TargetTask *task, const NAME(Common) *common, int64_t start, int64_t stop,
                               REAL factor, REAL *restrict losses, int *odd, int kind, int has_slope, int has_losses)
{
    const REAL *restrict f = task->logits, *restrict targets = task->targets;
    REAL *restrict slope = task->slope;
    const double n = (double)(stop - start);
    const int64_t begin = start;
    double total = 0.0;
    int is_odd = 0;
    for (; start < stop; start += SHORT_SUM) {
        const int64_t end = start + SHORT_SUM < stop ? start + SHORT_SUM : stop;
        REAL sum = 0, means[SHORT_SUM], precisions[SHORT_SUM], log_precisions[SHORT_SUM];
        if (kind == ON_CURVE)
            NAME(on_curve)(targets + start, (int)(end - start), common, means, precisions, log_precisions);
#pragma omp simd reduction(+ : sum) reduction(| : is_odd)
        for (int64_t i = start; i < end; i++) {
            REAL mean, precision, log_precision;
            if (kind == ON_CURVE) {
                mean = means[i - start];
                precision = precisions[i - start];
                log_precision = log_precisions[i - start];
                is_odd |= !(targets[i] >= 0) | !(targets[i] <= 1);
            } else {
                is_odd |= !NAME(gaussian_of)(targets[i], kind, common, &mean, &precision, &log_precision);
            }
            const REAL residual = f[i] - mean, weighted = precision * residual;
            const REAL twice = weighted * residual - log_precision;
            if (has_slope)
                slope[i] = factor * weighted;
            if (has_losses)
                losses[i - begin] = twice / 2 + (REAL)HALF_LOG_2_PI;
            sum += twice;
        }
        total += (double)sum;
        if (is_odd)
            break;
    }
    *odd |= is_odd;
    return 0.5 * total + n * HALF_LOG_2_PI;
}

/* The sum of the losses of logits start to stop. Derivatives are times the factor; losses are written for each. */
CLONES static double NAME(targets_from)(const TargetTask *task, const double *numbers, int64_t start, int64_t stop,
                                        double factor, REAL *losses, int *odd)
{
    if (task->kind == ON_CURVE && task->n_nodes != N_CURVE) { /* of which it reads as many */
        *odd = 1;
        return 0.0;
    }
    NAME(Common) common = {.coefficients = task->coefficients,
                           .first_low = (BITS)numbers[2],
                           .first_high = (BITS)numbers[3]};
    for (int i = 0; i < N_NUMBERS; i++)
        common.numbers[i] = (REAL)numbers[i];
    /* the same for each kind, so that none is chosen within the loop */
#define WITH(kind, has_slope, has_losses)                                                                              \
    NAME(targets_of)(task, &common, start, stop, (REAL)factor, losses, odd, kind, has_slope, has_losses)
#define OF_KIND(kind)                                                                                                  \
    case kind:                                                                                                         \
        return losses ? (task->slope ? WITH(kind, 1, 1) : WITH(kind, 0, 1))                                            \
                      : (task->slope ? WITH(kind, 1, 0) : WITH(kind, 0, 0));
    switch (task->kind) {
        OF_KIND(VARIATIONAL)
        OF_KIND(LAPLACE)
        OF_KIND(MOMENT)
        OF_KIND(MOMENT_ORI)
        OF_KIND(AS_GIVEN)
        OF_KIND(ZERO_OR_ONE)
        OF_KIND(ON_CURVE)
    }
#undef OF_KIND
#undef WITH
    *odd = 1;
    return 0.0;
}

/* Losses of logits, without weights. */
static double NAME(target_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const TargetTask *const task = given;
    REAL *const losses = task->losses ? (REAL *)task->losses + start : NULL;
    return task->factor * NAME(targets_from)(task, task->numbers, start, stop, task->factor, losses, odd);
}

/* Weights of n logits from start on, which come again and again after a number of them. */
INLINE void NAME(repeat)(REAL *restrict to, const REAL *restrict weights, int64_t n_weights, int64_t start, int64_t n)
{
    const int64_t first = start % n_weights, n_first = n_weights < n ? n_weights : n;
    const int64_t n_end = n_weights - first < n_first ? n_weights - first : n_first;
    memcpy(to, weights + first, (size_t)n_end * sizeof *to);
    memcpy(to + n_end, weights, (size_t)(n_first - n_end) * sizeof *to);
    for (int64_t done = n_first; done < n; done *= 2)
        memcpy(to + done, to, (size_t)(n - done < done ? n - done : done) * sizeof *to);
}

/* Losses of logits, of which each has a weight, and those with the label 1 a second one. */
CLONES static double NAME(weighted_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const TargetTask *const task = given;
    const REAL *restrict labels = task->targets;
    double total = 0.0;
    for (; start < stop; start += SHORT_SUM) {
        const int64_t n = stop - start < SHORT_SUM ? stop - start : SHORT_SUM;
        REAL here[SHORT_SUM], factors[SHORT_SUM], sum = 0;
        if (task->weights)
            NAME(repeat)(factors, task->weights, task->n_weights, start, n);
        else
            for (int64_t i = 0; i < n; i++)
                factors[i] = 1;
        if (task->positive_weights) {
            NAME(repeat)(here, task->positive_weights, task->n_positive_weights, start, n);
            for (int64_t i = 0; i < n; i++)
                factors[i] *= 1 + labels[start + i] * (here[i] - 1);
        }
        NAME(targets_from)(task, task->numbers, start, start + n, task->factor, here, odd);
        if (*odd)
            return 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            here[i] *= factors[i];
            sum += here[i];
        }
        if (task->losses)
            memcpy((REAL *)task->losses + start, here, (size_t)n * sizeof *here);
        if (task->slope) {
            REAL *restrict slope = (REAL *)task->slope + start;
            for (int64_t i = 0; i < n; i++)
                slope[i] *= factors[i];
        }
        total += (double)sum;
    }
    return task->factor * total;
}

/* The weight of a row of counts, from those of classes. */
INLINE double NAME(row_weight)(const TargetTask *task, const REAL *restrict counts)
{
    const REAL *restrict weights = task->weights;
    double weight = 0.0;
    if (!weights)
        return 1.0;
#pragma omp simd reduction(+ : weight)
    for (int64_t k = 0; k < task->n_classes; k++)
        weight += (task->kept * (double)counts[k] + task->spread) * (double)weights[k];
    return weight;
}

/* Losses of rows of counts, as many rows as fit into a short sum at once: calls for each would take longer. */
CLONES static double NAME(short_row_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const TargetTask *const task = given;
    const int64_t c = task->n_classes, n_rows = SHORT_SUM / c;
    double total = 0.0;
    for (; start < stop; start += n_rows) {
        const int64_t end = stop - start < n_rows ? stop : start + n_rows;
        REAL here[SHORT_SUM];
        NAME(targets_from)(task, task->numbers, start * c, end * c, task->factor, here, odd);
        if (*odd)
            return 0.0;
        for (int64_t row = start; row < end; row++) {
            const double weight = NAME(row_weight)(task, (const REAL *)task->targets + row * c);
            const REAL *restrict own = here + (row - start) * c;
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < c; k++)
                sum += own[k];
            if (task->weights && task->slope) {
                REAL *restrict slope = (REAL *)task->slope + row * c;
                for (int64_t k = 0; k < c; k++)
                    slope[k] *= (REAL)weight;
            }
            const double loss = task->factor * weight * (double)sum;
            if (task->losses)
                ((REAL *)task->losses)[row] = (REAL)loss;
            total += loss;
        }
    }
    return total;
}

/* The same for logits (n, c, ...): class after class, for many rows at once. Not for least squares. */
CLONES static double NAME(plane_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const TargetTask *const task = given;
    const REAL *const weights = task->weights;
    double total = 0.0;
    for (int64_t n, outer, inner; start < stop; start += n) {
        n = NAME(in_plane)(start, stop, task->n_inner, &outer, &inner);
        const int64_t first = outer * task->n_classes * task->n_inner + inner;
        double factors[SHORT_SUM], sums[SHORT_SUM];
        for (int64_t i = 0; i < n; i++) {
            factors[i] = weights ? 0.0 : 1.0;
            sums[i] = 0.0;
        }
        for (int64_t k = 0; weights && k < task->n_classes; k++) {
            const REAL *restrict counts = (const REAL *)task->targets + first + k * task->n_inner;
            const double weight = (double)weights[k];
            for (int64_t i = 0; i < n; i++)
                factors[i] += (task->kept * (double)counts[i] + task->spread) * weight;
        }
        for (int64_t k = 0; k < task->n_classes; k++) {
            const int64_t at = first + k * task->n_inner;
            REAL here[SHORT_SUM];
            NAME(targets_from)(task, task->numbers, at, at + n, task->factor, here, odd);
            if (*odd)
                return 0.0;
            for (int64_t i = 0; i < n; i++)
                sums[i] += (double)here[i];
            if (weights && task->slope) {
                REAL *restrict slope = (REAL *)task->slope + at;
                for (int64_t i = 0; i < n; i++)
                    slope[i] *= (REAL)factors[i];
            }
        }
        for (int64_t i = 0; i < n; i++) {
            const double loss = task->factor * factors[i] * sums[i];
            if (task->losses)
                ((REAL *)task->losses)[start + i] = (REAL)loss;
            total += loss;
        }
    }
    return total;
}

/* The same for each row by itself. Least squares is to the parts that counts have of their row. */
CLONES static double NAME(row_block)(const void *given, int64_t start, int64_t stop, int *odd)
{
    const TargetTask *const task = given;
    const int64_t c = task->n_classes;
    double total = 0.0, numbers[N_NUMBERS];
    memcpy(numbers, task->numbers, sizeof numbers);
    for (int64_t row = start; row < stop; row++) {
        const REAL *restrict counts = (const REAL *)task->targets + row * c;
        const double factor = task->factor * NAME(row_weight)(task, counts);
        if (task->kind == AS_GIVEN) {
            double n_row = 0.0;
#pragma omp simd reduction(+ : n_row)
            for (int64_t k = 0; k < c; k++)
                n_row += task->kept * (double)counts[k] + task->spread;
            const double precision = n_row * task->numbers[2];
            if (!(n_row >= FEWEST && n_row <= LARGEST && precision >= SMALLEST && precision <= LARGEST)) {
                *odd = 1;
                return 0.0;
            }
            numbers[0] = task->kept / n_row;
            numbers[1] = task->spread / n_row;
            numbers[2] = precision;
            numbers[3] = log(precision);
        }
        const double loss = factor * NAME(targets_from)(task, numbers, row * c, (row + 1) * c, factor, NULL, odd);
        if (*odd)
            return 0.0;
        if (task->losses)
            ((REAL *)task->losses)[row] = (REAL)loss;
        total += loss;
    }
    return total;
}

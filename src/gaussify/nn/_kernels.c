/* Losses and their derivatives by the logits in one pass: what the operations of torch that _squared_error.py calls one
 * after the other do in a pass each.
 *
 * Plain C on addresses of numbers, without torch's or NumPy's headers, so that any compiler can build it and one build
 * serves all versions of both. _choice.py and _fused.py check what is handed over; nothing but labels, and
 * numbers that they lead to, is checked here. */

#define _GNU_SOURCE /* for RTLD_DEFAULT */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Where the loader can choose at run time, the instructions that the processor has. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

#define HALF_LOG_2_PI 0.91893853320467274178

/* How a target becomes a Gaussian of its logit; as in _fused.py. */
enum { VARIATIONAL, LAPLACE, MOMENT, MOMENT_ORI, AS_GIVEN, ZERO_OR_ONE, ON_CURVE };

#define PIECE_BITS 5 /* of a mantissa, which tell the piece of a curve */
/* Numbers are summed in their own type as far as this, then in double; no power of two, since arrays of so many
 * would wait for each other's stores. */
#define SHORT_SUM 496
#define N_NUMBERS 6
#define FEWEST 1e-30 /* counts of a row that are shared out */
#define MOST_DIMENSIONS 64 /* of a tensor, as torch has it */

/* What there is to do. Slopes, losses of each row or logit, and weights may be NULL. */
typedef struct {
    const void *logits;
    const int64_t *labels;
    void *slope, *losses;
    const void *weights; /* of classes */
    int64_t n_rows, n_inner, ignore_index; /* logits of one class side by side; 1 if those of a row are */
    int32_t n_classes;
    double other_mean, other_scale, own_mean, own_scale, row_constant, factor;
    double kept, spread_weight; /* smoothing leaves a part of the own weight, and adds the rest of the mean */
} LabelTask;

typedef struct {
    const void *logits, *targets; /* a number for each logit */
    void *slope, *losses;
    const void *weights, *positive_weights; /* of classes if rows are of counts, else of logits, and repeated for more */
    int64_t n_weights, n_positive_weights;
    int64_t n, n_classes; /* logits in all; classes of rows of counts, else 0 */
    int64_t n_inner;      /* logits of one class side by side; 1 if those of a row are */
    int kind;
    double factor, kept, spread; /* smoothing makes kept * count + spread of a count */
    /* VARIATIONAL to MOMENT_ORI: kept, spread + alpha_eps
     * AS_GIVEN: factor and shift of means, precision, its log, the largest target
     * ZERO_OR_ONE: mean, precision, its log, for label 0 and then for 1
     * ON_CURVE: of a BetaCurve, low_shift, high_shift, first_low, first_high */
    double numbers[N_NUMBERS];
    const void *coefficients; /* (n_pieces, n_nodes, 4): of means, precisions and their logs */
    int64_t n_nodes;
} TargetTask;

#define REAL float
#define BITS int32_t
#define NAME(name) name##_float
#define LARGEST FLT_MAX
#define SMALLEST FLT_MIN
#define SQRT_HALF_BITS 0x3f3504f3
#define MANTISSA_BITS 23
#define N_ARTANH 4
#define N_RECURRENCES 4
#define N_BERNOULLI 4
#define N_CURVE 4
#include "_kernels.h"
#undef REAL
#undef BITS
#undef NAME
#undef LARGEST
#undef SMALLEST
#undef SQRT_HALF_BITS
#undef MANTISSA_BITS
#undef N_ARTANH
#undef N_RECURRENCES
#undef N_BERNOULLI
#undef N_CURVE

#define REAL double
#define BITS int64_t
#define NAME(name) name##_double
#define LARGEST DBL_MAX
#define SMALLEST DBL_MIN
#define SQRT_HALF_BITS 0x3fe6a09e667f3bcd
#define MANTISSA_BITS 52
#define N_ARTANH 10
#define N_RECURRENCES 10
#define N_BERNOULLI 8
#define N_CURVE 8
#include "_kernels.h"

/* --- blocks, in one thread or many -------------------------------------------------------------------------------- */

#define BLOCK 16384 /* logits, about: many enough to be worth a thread */
#define COSTLY 4    /* logits whose Gaussians take their time count for as many */
#define AT_ONCE 128 /* rows of planes, whose logits are side by side with those of other rows */

typedef double (*BlockFunction)(const void *task, int64_t start, int64_t stop, int *odd);

typedef struct {
    BlockFunction of_block;
    const void *task;
    int64_t n, size, n_blocks; /* rows in all and of a block */
    double *totals;
    atomic_llong next;
    atomic_int odd;
} Work;

static void work_on(void *given)
{
    Work *const work = given;
    for (;;) {
        const int64_t block = atomic_fetch_add(&work->next, 1);
        if (block >= work->n_blocks)
            return;
        const int64_t start = block * work->size, stop = start + work->size;
        int odd = 0;
        work->totals[block] = work->of_block(work->task, start, stop < work->n ? stop : work->n, &odd);
        if (odd)
            atomic_store(&work->odd, 1);
    }
}

/* What compilers call for '#pragma omp parallel'. It is looked for among what torch has loaded, so that the threads
 * are torch's own: those of a second OpenMP would wait busily on the same processors. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);
static Parallel parallel;

typedef struct {
    unsigned n_threads;
    int is_python; /* which has the interpreter to itself */
} Caller;

/* The sum over n rows, which cost as much as so many logits, some of them at once. Blocks are added in their order, so
 * that it does not depend on the threads. */
static double total_of(BlockFunction of_block, const void *task, int64_t n, int64_t at_once, int64_t cost, Caller caller,
                       int *odd)
{
    if (n * cost <= 2 * BLOCK) /* without letting go of the interpreter, which may take longer to get back */
        return of_block(task, 0, n, odd);
    Work work = {.of_block = of_block, .task = task, .n = n, .size = (BLOCK + cost - 1) / cost};
    if (work.size < at_once)
        work.size = at_once;
    work.n_blocks = (n + work.size - 1) / work.size;
    work.totals = malloc((size_t)work.n_blocks * sizeof(double));
    if (!work.totals)
        return of_block(task, 0, n, odd);
    PyThreadState *const interpreter = caller.is_python ? PyEval_SaveThread() : NULL;
    if (parallel && caller.n_threads > 1)
        parallel(work_on, &work, caller.n_threads, 0);
    else
        work_on(&work);
    if (interpreter)
        PyEval_RestoreThread(interpreter);
    double total = 0.0;
    for (int64_t block = 0; block < work.n_blocks; block++)
        total += work.totals[block];
    free(work.totals);
    *odd = atomic_load(&work.odd);
    return total;
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* The mean of the weights, and the sum of those of labels that are not ignored. */
#define SUM_WEIGHTS(REAL)                                                                                              \
    for (int32_t k = 0; k < task->n_classes; k++)                                                                      \
        mean += (double)((const REAL *)task->weights)[k] / task->n_classes;                                            \
    for (int64_t row = 0; row < task->n_rows; row++) {                                                                 \
        const int64_t label = task->labels[row];                                                                       \
        if (label != task->ignore_index && label >= 0 && label < task->n_classes) /* others will be seen later */      \
            sum += (double)((const REAL *)task->weights)[label];                                                       \
    }

/* The same, or the number of labels that are not ignored. */
static double weigh(LabelTask *task, int is_double)
{
    double mean = 0.0, sum = 0.0;
    if (!task->weights) {
        int64_t n_kept = 0;
        for (int64_t row = 0; row < task->n_rows; row++)
            n_kept += task->labels[row] != task->ignore_index;
        sum = (double)n_kept;
    } else if (is_double) {
        SUM_WEIGHTS(double)
    } else {
        SUM_WEIGHTS(float)
    }
    task->spread_weight = task->kept < 1.0 ? (1.0 - task->kept) * mean : 0.0; /* of a mean that may be infinite */
    return sum;
}

static double label_loss(LabelTask *task, int is_double, int is_mean, Caller caller, int *odd)
{
    const double sum_of_weights = weigh(task, is_double);
    task->factor = is_mean ? 1.0 / sum_of_weights : 1.0;
    BlockFunction of_block;
    if (task->n_inner > 1)
        of_block = is_double ? label_planes_double : label_planes_float;
    else
        of_block = is_double ? label_block_double : label_block_float;
    const int64_t at_once = task->n_inner > 1 ? AT_ONCE : 1;
    const double total = total_of(of_block, task, task->n_rows, at_once, task->n_classes, caller, odd);
    return sum_of_weights != 0.0 || !is_mean ? total : NAN;
}

static double target_loss(const TargetTask *task, int is_double, Caller caller, int *odd)
{
    const int is_weighted = task->weights || task->positive_weights;
    const int has_rows = task->n_classes && (is_weighted || task->losses || task->kind == AS_GIVEN);
    const int64_t width = has_rows ? task->n_classes : 1;
    BlockFunction of_block;
    if (has_rows && task->n_inner > 1)
        of_block = is_double ? plane_block_double : plane_block_float;
    else if (has_rows && task->kind != AS_GIVEN && width <= SHORT_SUM / 4)
        of_block = is_double ? short_row_block_double : short_row_block_float;
    else if (has_rows)
        of_block = is_double ? row_block_double : row_block_float;
    else if (is_weighted)
        of_block = is_double ? weighted_block_double : weighted_block_float;
    else
        of_block = is_double ? target_block_double : target_block_float;
    const int is_costly = task->kind == MOMENT || task->kind == MOMENT_ORI || task->kind == ON_CURVE;
    const int64_t cost = is_costly ? COSTLY * width : width;
    const int64_t at_once = has_rows && task->n_inner > 1 ? AT_ONCE : 1;
    return total_of(of_block, task, task->n / width, at_once, cost, caller, odd);
}

/* --- functions of Python ------------------------------------------------------------------------------------------ */

/* Arguments one after the other. */
typedef struct {
    PyObject *const *next;
    Py_ssize_t n_left;
} Arguments;

static PyObject *next_argument(Arguments *arguments)
{
    if (arguments->n_left-- > 0)
        return *arguments->next++;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "too few arguments");
    return NULL;
}

static int64_t integer(Arguments *arguments)
{
    PyObject *own = next_argument(arguments);
    return own ? PyLong_AsLongLong(own) : 0;
}

static void *address(Arguments *arguments)
{
    PyObject *own = next_argument(arguments);
    return own ? PyLong_AsVoidPtr(own) : NULL;
}

static double number(Arguments *arguments)
{
    PyObject *own = next_argument(arguments);
    return own ? PyFloat_AsDouble(own) : 0.0;
}

/* The loss, or None where labels were not what the function is for. */
static PyObject *result(double total, int odd)
{
    return odd ? Py_NewRef(Py_None) : PyFloat_FromDouble(total);
}

static PyObject *labels(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t n_given)
{
    Arguments arguments = {given, n_given};
    const int is_double = (int)integer(&arguments);
    const Caller caller = {.n_threads = (unsigned)integer(&arguments), .is_python = 1};
    LabelTask task;
    task.logits = address(&arguments);
    task.labels = address(&arguments);
    task.slope = address(&arguments);
    task.losses = address(&arguments);
    task.weights = address(&arguments);
    const int64_t n_weights = integer(&arguments);
    for (int i = 0; i < 2; i++) /* weights of label 1, and how many */
        next_argument(&arguments);
    task.n_rows = integer(&arguments);
    task.n_classes = (int32_t)integer(&arguments);
    task.n_inner = integer(&arguments);
    const int is_mean = (int)integer(&arguments);
    task.ignore_index = integer(&arguments);
    task.kept = number(&arguments);
    task.other_mean = number(&arguments);
    task.other_scale = number(&arguments);
    task.own_mean = number(&arguments);
    task.own_scale = number(&arguments);
    task.row_constant = number(&arguments);
    if (PyErr_Occurred())
        return NULL;
    if (!task.logits || !task.labels || (n_weights && !task.weights)) /* of tensors without memory */
        return result(0.0, 1);
    int odd = 0;
    const double total = label_loss(&task, is_double, is_mean, caller, &odd);
    return result(total, odd);
}

static PyObject *targets(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t n_given)
{
    Arguments arguments = {given, n_given};
    const int is_double = (int)integer(&arguments);
    const Caller caller = {.n_threads = (unsigned)integer(&arguments), .is_python = 1};
    TargetTask task = {0};
    task.logits = address(&arguments);
    task.targets = address(&arguments);
    task.slope = address(&arguments);
    task.losses = address(&arguments);
    task.weights = address(&arguments);
    task.n_weights = integer(&arguments);
    task.positive_weights = address(&arguments);
    task.n_positive_weights = integer(&arguments);
    task.n = integer(&arguments);
    task.n_classes = integer(&arguments);
    task.n_inner = integer(&arguments);
    task.factor = number(&arguments);
    task.kept = number(&arguments);
    task.spread = number(&arguments);
    task.kind = (int)integer(&arguments);
    for (int i = 0; i < N_NUMBERS; i++)
        task.numbers[i] = number(&arguments);
    if (task.kind == ON_CURVE) {
        task.coefficients = address(&arguments);
        task.n_nodes = integer(&arguments);
    }
    if (PyErr_Occurred())
        return NULL;
    if (!task.logits || !task.targets || (task.n_weights && !task.weights) ||
        (task.n_positive_weights && !task.positive_weights)) /* of tensors without memory */
        return result(0.0, 1);
    int odd = 0;
    const double total = target_loss(&task, is_double, caller, &odd);
    return result(total, odd);
}

#include "_operation.h"

static PyMethodDef methods[] = {
    {"labels", (PyCFunction)(void (*)(void))labels, METH_FASTCALL, "Class indices."},
    {"targets", (PyCFunction)(void (*)(void))targets, METH_FASTCALL, "A number for each logit."},
    {"implement", (PyCFunction)(void (*)(void))implement, METH_FASTCALL, "Operations of torch's."},
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_FASTCALL, "Options of an operation."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", "Losses in one pass.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    parallel = (Parallel)dlsym(RTLD_DEFAULT, "GOMP_parallel");
    return PyModule_Create(&definition);
}

/* The losses of _kernels.c, which includes this, as an operation of torch's for compiled graphs. */

/* Functions of torch's stable interface in C (torch 2.10 and later), which are looked for among what is loaded. Tensors
 * are handles; a function returns 0 unless it failed. */
typedef uint64_t Value; /* of an argument or result: a handle, an integer, a double */
static struct {
    int32_t (*new_library)(const char *namespace, const char *key, const char *file, uint32_t line, void **library);
    int32_t (*implement)(void *library, const char *name, void (*function)(Value *, uint64_t, uint64_t), uint64_t);
    int32_t (*n_threads)(uint32_t *n);
    int32_t (*data)(void *tensor, void **address);
    int32_t (*numel)(void *tensor, int64_t *n);
    int32_t (*dim)(void *tensor, int64_t *n);
    int32_t (*sizes)(void *tensor, int64_t **sizes);
    int32_t (*dtype)(void *tensor, int32_t *dtype);
    int32_t (*is_contiguous)(void *tensor, bool *is);
    int32_t (*delete_tensor)(void *tensor);
    int32_t (*new_tensor)(int64_t dim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device,
                          int32_t index, void **tensor);
    int32_t (*cpu)(void);
    int32_t (*float32)(void);
    int32_t (*float64)(void);
    int32_t (*int64)(void);
} torch;
static const char *const torch_names[] = {
    "aoti_torch_library_init_impl", "torch_library_impl",         "torch_get_num_threads",
    "aoti_torch_get_data_ptr",      "aoti_torch_get_numel",       "aoti_torch_get_dim",
    "aoti_torch_get_sizes",         "aoti_torch_get_dtype",       "aoti_torch_is_contiguous",
    "aoti_torch_delete_tensor_object", "aoti_torch_empty_strided", "aoti_torch_device_type_cpu",
    "aoti_torch_dtype_float32",     "aoti_torch_dtype_float64",   "aoti_torch_dtype_int64",
};
#define N_TORCH (sizeof torch_names / sizeof *torch_names)
_Static_assert(sizeof torch == N_TORCH * sizeof(void *), "a name for each function");
#define MOST_CLASSES (1 << 30) /* which a kernel counts in 32 bits */
#define TORCH_2_10 ((uint64_t)2 << 56 | (uint64_t)10 << 48)

/* As _operators.py has them: arguments, forms of targets, reductions. */
enum { LOGITS, TARGET, WEIGHT, POS_WEIGHT, N_TENSORS };
enum { GIVEN = N_TENSORS, FORM, METHOD, REDUCTION, IGNORE_INDEX, ALPHA_EPS, BETA_EPS };
enum { LABELS, COUNTS, BINARY };
enum { SUM, MEAN, NONE };

/* What options mean to kernels. LABELS: mean, root of precision and constant of logits of other classes, the same of the
 * own; COUNTS: nothing; BINARY: the numbers of ZERO_OR_ONE, those of ON_CURVE. */
typedef struct Meaning {
    Value options[5]; /* form, method, alpha_eps, beta_eps, whether in double */
    double numbers[2 * N_NUMBERS];
    const void *coefficients; /* of BINARY */
    int64_t n_nodes;
    struct Meaning *others;
} Meaning;
static _Atomic(Meaning *) meanings;
static PyObject *find; /* what _operators.py gives to look them up */

static const Meaning *known(const Value *options)
{
    for (const Meaning *own = atomic_load(&meanings); own; own = own->others)
        if (!memcmp(own->options, options, sizeof own->options))
            return own;
    return NULL;
}

/* Asked of Python once, and kept; NULL with an error of Python's where there is no answer. */
static const Meaning *found(const Value *options)
{
    double alpha_eps, beta_eps;
    memcpy(&alpha_eps, &options[2], sizeof alpha_eps);
    memcpy(&beta_eps, &options[3], sizeof beta_eps);
    PyObject *answer = PyObject_CallFunction(find, "iiddi", (int)options[0], (int)options[1], alpha_eps, beta_eps,
                                             (int)options[4]);
    if (!answer)
        return NULL;
    Meaning *own = calloc(1, sizeof *own);
    if (own) {
        memcpy(own->options, options, sizeof own->options);
        for (Py_ssize_t i = 0; i < PyTuple_Size(answer) - 2 && i < 2 * N_NUMBERS; i++)
            own->numbers[i] = PyFloat_AsDouble(PyTuple_GetItem(answer, i + 2));
        own->coefficients = PyLong_AsVoidPtr(PyTuple_GetItem(answer, 0));
        own->n_nodes = PyLong_AsLongLong(PyTuple_GetItem(answer, 1));
        if (PyErr_Occurred()) {
            free(own);
            own = NULL;
        } else {
            own->others = atomic_load(&meanings);
            atomic_store(&meanings, own);
        }
    } else {
        PyErr_NoMemory();
    }
    Py_DECREF(answer);
    return own;
}

/* The same from within the operation, for graphs that were compiled in another process. */
static const Meaning *found_late(const Value *options)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    const Meaning *own = found(options);
    if (!own)
        PyErr_WriteUnraisable(find);
    PyGILState_Release(state);
    return own;
}

/* Look up what options mean before the operation does. */
static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t n_given)
{
    Arguments arguments = {given, n_given};
    Value options[5];
    for (int i = 0; i < 5; i++) {
        if (i == 2 || i == 3) {
            const double own = number(&arguments);
            memcpy(&options[i], &own, sizeof own);
        } else {
            options[i] = (Value)integer(&arguments);
        }
    }
    if (PyErr_Occurred() || !(known(options) || found(options)))
        return NULL;
    return Py_NewRef(Py_None);
}

typedef struct {
    void *at;
    int64_t n;
    int32_t dtype;
} Array;

static int of_tensor(void *tensor, Array *array)
{
    bool is_contiguous = false;
    return !torch.data(tensor, &array->at) && !torch.numel(tensor, &array->n) && !torch.dtype(tensor, &array->dtype) &&
           !torch.is_contiguous(tensor, &is_contiguous) && is_contiguous;
}

/* A tensor of these sizes but for one dimension, and where its numbers are; of a single number where there is no memory,
 * which compiled code refuses. */
static void *new_tensor(int64_t dim, const int64_t *sizes, int64_t without, Array *array)
{
    int64_t own[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], n = 0;
    for (int64_t i = 0; i < dim; i++)
        if (i != without)
            own[n++] = sizes[i];
    int64_t stride = 1;
    for (int64_t i = n - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= own[i] > 1 ? own[i] : 1;
    }
    void *tensor = NULL;
    if (!torch.new_tensor(n, own, strides, array->dtype, torch.cpu(), 0, &tensor) ||
        !torch.new_tensor(0, own, strides, array->dtype, torch.cpu(), 0, &tensor))
        of_tensor(tensor, array);
    return tensor;
}

static void fill(Array array, double number)
{
    for (int64_t i = 0; array.at && i < array.n; i++)
        if (array.dtype == torch.float64())
            ((double *)array.at)[i] = number;
        else
            ((float *)array.at)[i] = (float)number;
}

/* A call of the operation. */
typedef struct {
    Array arrays[N_TENSORS], loss, slope;
    int64_t form, reduction, ignore_index, n_classes, n_inner; /* classes of rows, or 0 */
    const Meaning *meaning;
    Caller caller;
} Call;

/* Whether targets and weights are as many, and such numbers, as they should be. */
static int fit(const Call *call)
{
    const int64_t n = call->arrays[LOGITS].n;
    const int32_t dtype = call->slope.dtype; /* one of two */
    for (int i = WEIGHT; i <= POS_WEIGHT; i++) {
        const Array weights = call->arrays[i];
        const int is_one_each = call->n_classes ? weights.n == call->n_classes : !weights.n || n % weights.n == 0;
        if (weights.at && !(weights.dtype == dtype && is_one_each))
            return 0;
    }
    const int64_t n_losses = call->reduction != NONE ? 1 : call->n_classes ? n / call->n_classes : n;
    return call->slope.n == n && call->loss.n == n_losses && call->arrays[LOGITS].dtype == dtype &&
           call->arrays[TARGET].n == (call->form == LABELS ? n / call->n_classes : n) &&
           call->arrays[TARGET].dtype == (call->form == LABELS ? torch.int64() : dtype);
}

static double loss_of_labels(const Call *call, int *odd)
{
    const double *const numbers = call->meaning->numbers;
    LabelTask task = {.logits = call->arrays[LOGITS].at, .labels = call->arrays[TARGET].at, .slope = call->slope.at};
    task.losses = call->reduction == NONE ? call->loss.at : NULL;
    task.weights = call->arrays[WEIGHT].at;
    task.n_rows = call->arrays[TARGET].n;
    task.n_inner = call->n_inner;
    task.n_classes = (int32_t)call->n_classes;
    task.ignore_index = call->ignore_index;
    task.kept = 1.0;
    task.other_mean = numbers[0];
    task.other_scale = numbers[1];
    task.own_mean = numbers[3];
    task.own_scale = numbers[4];
    task.row_constant = (double)(call->n_classes - 1) * numbers[2] + numbers[5];
    return label_loss(&task, call->slope.dtype == torch.float64(), call->reduction == MEAN, call->caller, odd);
}

static double loss_of_targets(const Call *call, int *odd)
{
    const int is_double = call->slope.dtype == torch.float64();
    TargetTask task = {.logits = call->arrays[LOGITS].at, .targets = call->arrays[TARGET].at, .slope = call->slope.at};
    task.losses = call->reduction == NONE ? call->loss.at : NULL;
    task.weights = call->arrays[WEIGHT].at;
    task.n_weights = call->arrays[WEIGHT].n;
    task.positive_weights = call->arrays[POS_WEIGHT].at;
    task.n_positive_weights = call->arrays[POS_WEIGHT].n;
    task.n = call->arrays[LOGITS].n;
    task.n_classes = call->n_classes;
    task.n_inner = call->n_inner;
    const int64_t n_losses = call->form == COUNTS ? task.n / task.n_classes : task.n;
    task.factor = call->reduction == MEAN ? 1.0 / (double)n_losses : 1.0;
    task.kept = 1.0;
    if (call->form == COUNTS) {
        task.kind = (int)call->meaning->options[1];
        task.numbers[0] = 1.0;
        memcpy(&task.numbers[1], &call->meaning->options[2], sizeof(double)); /* alpha_eps */
        return target_loss(&task, is_double, call->caller, odd);
    }
    task.kind = ZERO_OR_ONE;
    memcpy(task.numbers, call->meaning->numbers, sizeof task.numbers);
    const double total = target_loss(&task, is_double, call->caller, odd);
    if (!*odd)
        return total;
    *odd = 0;
    task.kind = ON_CURVE;
    memcpy(task.numbers, call->meaning->numbers + N_NUMBERS, sizeof task.numbers);
    task.coefficients = call->meaning->coefficients;
    task.n_nodes = call->meaning->n_nodes;
    return target_loss(&task, is_double, call->caller, odd);
}

/* Write loss and derivative of a call whose tensors are in order, and return whether they are numbers. */
static int write_loss(Call *call, const Value *options)
{
    if (!call->slope.n) {
        fill(call->loss, call->reduction == SUM ? 0.0 : NAN);
        return 1;
    }
    call->meaning = known(options);
    if (!call->meaning && !(call->meaning = found_late(options)))
        return 0;
    int odd = 0;
    const double total = call->form == LABELS ? loss_of_labels(call, &odd) : loss_of_targets(call, &odd);
    if (call->reduction != NONE)
        fill(call->loss, total);
    return !odd;
}

/* Return the loss and its derivative by logits; no numbers where labels are not what they should be, or tensors not in
 * order, which _operators.py sees to. */
static void loss_operation(Value *values, uint64_t Py_UNUSED(n_values), uint64_t Py_UNUSED(n_results))
{
    void *const logits = (void *)values[LOGITS];
    Call call = {.form = (int64_t)values[FORM], .reduction = (int64_t)values[REDUCTION], .n_inner = 1};
    call.ignore_index = (int64_t)values[IGNORE_INDEX];
    int64_t dim = 0, *sizes = NULL;
    int is_good = !torch.dim(logits, &dim) && !torch.sizes(logits, &sizes) && !torch.n_threads(&call.caller.n_threads);
    for (int i = 0; i < N_TENSORS; i++)
        if (i < WEIGHT || values[GIVEN] >> (i - WEIGHT) & 1) /* others are any tensor */
            is_good &= of_tensor((void *)values[i], &call.arrays[i]);
    is_good = is_good && dim <= MOST_DIMENSIONS &&
              (call.form == BINARY || (dim > 1 && sizes[1] > 1 && sizes[1] < MOST_CLASSES));
    if (is_good && call.form != BINARY) {
        call.n_classes = sizes[1];
        for (int64_t i = 2; i < dim; i++)
            call.n_inner *= sizes[i];
    }
    const int is_double = call.arrays[LOGITS].dtype == torch.float64();
    call.slope.dtype = call.loss.dtype = is_double ? torch.float64() : torch.float32();
    void *const slope = new_tensor(is_good ? dim : 0, sizes, -1, &call.slope);
    void *const loss = new_tensor(is_good && call.reduction == NONE ? dim : 0, sizes, call.n_classes ? 1 : -1, &call.loss);
    const Value options[] = {values[FORM], values[METHOD], values[ALPHA_EPS], values[BETA_EPS], is_double};
    if (!(is_good && fit(&call) && write_loss(&call, options))) {
        fill(call.loss, NAN);
        fill(call.slope, NAN);
    }
    for (int i = 0; i < N_TENSORS; i++)
        torch.delete_tensor((void *)values[i]);
    values[0] = (Value)loss;
    values[1] = (Value)slope;
}

/* The derivative of a loss times what comes from behind it: one number, one for each logit, or for each row. */
typedef struct {
    const void *slope, *factors;
    void *result;
    int64_t n_classes, n_inner; /* of slopes (n, n_classes, n_inner) and factors (n, n_inner); or 0 */
    int is_double, is_one;
} ScaleTask;

#define SCALE(REAL)                                                                                                    \
    const REAL *restrict slope = task->slope, *restrict factors = task->factors;                                       \
    REAL *restrict result = task->result;                                                                              \
    if (!task->n_classes) {                                                                                            \
        for (int64_t i = start; i < stop; i++)                                                                         \
            result[i] = slope[i] * factors[task->is_one ? 0 : i];                                                      \
        return 0.0;                                                                                                    \
    }                                                                                                                  \
    for (int64_t row = start; row < stop; row++)                                                                       \
        for (int64_t k = 0; k < task->n_classes; k++)                                                                  \
            for (int64_t j = 0; j < task->n_inner; j++) {                                                              \
                const int64_t at = (row * task->n_classes + k) * task->n_inner + j;                                    \
                result[at] = slope[at] * factors[row * task->n_inner + j];                                             \
            }

CLONES static double scale_block(const void *given, int64_t start, int64_t stop, int *Py_UNUSED(odd))
{
    const ScaleTask *const task = given;
    if (task->is_double) {
        SCALE(double)
    } else {
        SCALE(float)
    }
    return 0.0;
}

/* An operation of its own, since compilers would write the product over the derivative, which a graph that is kept may
 * need again. */
static void scale_operation(Value *values, uint64_t Py_UNUSED(n_values), uint64_t Py_UNUSED(n_results))
{
    Array slope = {0}, factors = {0}, result = {0};
    int64_t dim = 0, *sizes = NULL;
    Caller caller = {.n_threads = 1, .is_python = 0};
    int is_good = of_tensor((void *)values[0], &slope) && of_tensor((void *)values[1], &factors) &&
                  !torch.dim((void *)values[0], &dim) && !torch.sizes((void *)values[0], &sizes) &&
                  !torch.n_threads(&caller.n_threads) && dim <= MOST_DIMENSIONS && slope.dtype == factors.dtype &&
                  (slope.dtype == torch.float32() || slope.dtype == torch.float64());
    const int is_double = slope.dtype == torch.float64();
    result.dtype = is_double ? torch.float64() : torch.float32();
    void *const tensor = new_tensor(is_good ? dim : 0, sizes, -1, &result);
    ScaleTask task = {.slope = slope.at, .factors = factors.at, .result = result.at, .is_double = is_double};
    task.is_one = factors.n == 1;
    int64_t n_rows = slope.n, width = 1;
    if (is_good && !task.is_one && factors.n != slope.n) {
        is_good = dim > 1 && factors.n * sizes[1] == slope.n;
        task.n_classes = is_good ? sizes[1] : 0;
        task.n_inner = 1;
        for (int64_t i = 2; is_good && i < dim; i++)
            task.n_inner *= sizes[i];
        width = task.n_classes * task.n_inner;
        n_rows = width ? slope.n / width : 0;
    }
    int odd = 0;
    if (is_good && result.n == slope.n && slope.n)
        total_of(scale_block, &task, n_rows, 1, width, caller, &odd);
    else
        fill(result, NAN);
    for (int i = 0; i < 2; i++)
        torch.delete_tensor((void *)values[i]);
    values[0] = (Value)tensor;
}

/* Make the operations 'loss' and 'scaled' of a namespace what torch does on the CPU; False where torch has no such
 * interface. */
static PyObject *implement(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t n_given)
{
    if (n_given != 2)
        return PyErr_Format(PyExc_TypeError, "a namespace and a function are needed; got %zd arguments", n_given);
    const char *const namespace = PyUnicode_AsUTF8AndSize(given[0], NULL);
    if (!namespace)
        return NULL;
    void *const loaded = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *functions[N_TORCH] = {NULL};
    for (size_t i = 0; i < N_TORCH; i++)
        if (!loaded || !(functions[i] = dlsym(loaded, torch_names[i])))
            return Py_NewRef(Py_False);
    memcpy(&torch, functions, sizeof torch);
    find = Py_NewRef(given[1]);
    void *library = NULL; /* which stays, as what is loaded does */
    const int failed = torch.new_library(namespace, "CPU", __FILE__, __LINE__, &library) ||
                       torch.implement(library, "loss", loss_operation, TORCH_2_10) ||
                       torch.implement(library, "scaled", scale_operation, TORCH_2_10);
    return Py_NewRef(failed ? Py_False : Py_True);
}

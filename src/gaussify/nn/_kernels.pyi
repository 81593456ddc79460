from collections.abc import Callable

# Each returns the loss, or None where labels are not what it is for. It writes the derivative by logits to the address
# of a slope, and what 'reduction="none"' returns to that of losses, unless these are 0, as those of weights may be. The
# rest of the task is what _kernels.c reads, in order.
def labels(
    is_double: bool,
    n_threads: int,
    logits: int,
    target: int,
    slope: int,
    losses: int,
    weight: int,
    n_weights: int,
    pos_weight: int,
    n_pos_weights: int,
    /,
    *task: float,
) -> float | None: ...
def targets(
    is_double: bool,
    n_threads: int,
    logits: int,
    target: int,
    slope: int,
    losses: int,
    weight: int,
    n_weights: int,
    pos_weight: int,
    n_pos_weights: int,
    /,
    *task: float,
) -> float | None: ...

# Makes operations of torch's on the CPU, 'loss' and 'scaled'; False where this torch has no interface for that. 'find'
# tells what options mean: of the form of targets, the method, alpha_eps, beta_eps, and whether in double, it returns
# where the coefficients of a curve are and how many a piece has, and the numbers. 'prepare' asks it beforehand.
def implement(namespace: str, find: Callable[[int, int, float, float, int], tuple[float | int, ...]], /) -> bool: ...
def prepare(form: int, method: int, alpha_eps: float, beta_eps: float, is_double: int, /) -> None: ...

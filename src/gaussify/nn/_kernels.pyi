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

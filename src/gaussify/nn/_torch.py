"""Names of torch that it does not promise to keep, and what is done without them.

Kernels need to know where a tensor may not be looked at, and are called without what ``torch.func`` needs; where torch
no longer tells, losses go by torch's operations.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

are_functions_transformed: Any  # whether a function of torch.func is under way
keeps_graph: Any  # whether backward, which is under way, may be called again
Function: Any  # torch.autograd.Function but for what that does for torch.func
untraced: Any  # what makes a function one that torch.compile leaves as it is

try:
    from torch._C import _are_functorch_transforms_active as are_functions_transformed
    from torch._C import _get_tracing_state, _len_torch_dispatch_stack
    from torch._C._autograd import _get_current_graph_task_keep_graph as keeps_graph
    from torch.autograd.function import _SingleLevelFunction as Function
except ImportError:
    HAS_ALL = False
    are_functions_transformed, keeps_graph, Function = (lambda: True), (lambda: True), torch.autograd.Function
else:
    HAS_ALL = True

try:  # torch.compiler.disable would import all of torch's compiler at once, for seconds; this does when it is called
    from torch._compile import _disable_dynamo as untraced
except ImportError:
    untraced = torch.compiler.disable


def is_observed() -> bool:
    """Return whether someone else sees what is done with tensors: a mode, a function of ``torch.func``, or a tracer."""
    return not HAS_ALL or bool(
        _len_torch_dispatch_stack() or are_functions_transformed() or _get_tracing_state() is not None
    )


def unobserved() -> AbstractContextManager[Any]:
    """Return a context in which no one does, for tensors that outlive it.

    Examples
    --------
    >>> with unobserved():
    ...     is_observed()
    False
    """
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(without_modes())
    stack.enter_context(getattr(torch._C, "_DisableFuncTorch", nullcontext)())
    return stack


def without_modes() -> AbstractContextManager[Any]:
    """Return a context without modes, some of which give no numbers, such as those of ``torch.export``."""
    try:
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError:
        return nullcontext()
    return _disable_current_modes()

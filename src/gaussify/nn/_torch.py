"""Names of torch that it does not promise to keep, and what is done without them.

Kernels need to know where a tensor may not be looked at, and are called without what ``torch.func`` needs; where torch
no longer tells, losses go by torch's operations.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

n_modes: Any  # how many modes see what is done with tensors
are_functions_transformed: Any  # whether a function of torch.func is under way
tracing_state: Any  # of torch.jit.trace, or None
keeps_graph: Any  # whether backward, which is under way, may be called again
Function: Any  # torch.autograd.Function but for what that does for torch.func
untraced: Any  # what makes a function one that torch.compile leaves as it is

try:
    from torch._C import _are_functorch_transforms_active as are_functions_transformed
    from torch._C import _get_tracing_state as tracing_state
    from torch._C import _len_torch_dispatch_stack as n_modes
    from torch._C._autograd import _get_current_graph_task_keep_graph as keeps_graph
    from torch.autograd.function import _SingleLevelFunction as Function
except ImportError:
    HAS_ALL, Function = False, torch.autograd.Function
    n_modes = are_functions_transformed = tracing_state = keeps_graph = lambda: True
else:
    HAS_ALL = True

try:  # torch.compiler.disable would import all of torch's compiler at once, for seconds; this does when it is called
    from torch._compile import _disable_dynamo as untraced
except ImportError:
    untraced = torch.compiler.disable


def unobserved() -> AbstractContextManager[Any]:
    """Return a context for tensors that outlive it, be it within inference mode, a mode or a function of torch.func.

    Examples
    --------
    >>> with torch.inference_mode(), unobserved():
    ...     torch.zeros(1).is_inference()
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

"""Modules in place of torch's losses. They hold the options and call the functions of ``functional.py``."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor, nn

from gaussify._typing import no_type_check
from gaussify._validation import as_concentration, check_count, check_option
from gaussify.exceptions import InvalidArgumentError
from gaussify.likelihoods import BETA_METHODS, LikelihoodMethod, LikelihoodMethodName
from gaussify.nn.functional import (
    BetaMethodName,
    Reduction,
    ReductionName,
    as_fraction,
    check_index,
    check_tensors,
    check_weight,
    matched_binary_cross_entropy_with_logits,
    matched_cross_entropy,
)


class MatchedCrossEntropyLoss(nn.Module):
    r"""Least squares in place of :class:`torch.nn.CrossEntropyLoss`: labels as Gaussian observations of the logits.

    .. math:: \ell(f, y) = -\sum_k \log\mathcal{N}(f_k; m_{yk}, v_{yk})

    See :func:`~gaussify.nn.functional.matched_cross_entropy`. Class probabilities of a trained network are
    ``logits.softmax(-1)``, for every method; the paper does so for ``"gauss"``, too.

    Parameters
    ----------
    n_classes : int
        Number of classes, the columns of the logits.
    alpha_eps : float, sequence or Tensor
        Concentration of the prior, the small count that every class has before a label is seen: one number, or one per
        class. A vector belongs to the state of the module, and an ``nn.Parameter`` is learnt.
    method : {"variational", "moment", "laplace", "moment-ori", "gauss"}
        How labels become Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`.
    reduction : {"mean", "sum", "none"}
        How the losses of rows are combined, as in torch.
    weight : Tensor of shape (n_classes,), optional
        Factor of each class.
    ignore_index : int
        Class index of rows that are left out.
    label_smoothing : float
        Part of each label, from 0 to 1, that is spread evenly over all classes.
    label_variance : float
        Variance of one label for ``method="gauss"``.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(200, 2)
    >>> y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    >>> network = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> loss = MatchedCrossEntropyLoss(3)
    >>> optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    >>> for _ in range(200):
    ...     optimiser.zero_grad()
    ...     loss(network(X), y).backward()
    ...     optimiser.step()
    >>> bool((network(X).argmax(1) == y).float().mean() > 0.9)
    True
    """

    weight: Tensor | None
    alpha_eps: float | Tensor
    method: LikelihoodMethodName
    reduction: ReductionName
    label_variance: float | Tensor

    @no_type_check
    def __init__(
        self,
        n_classes: int,
        alpha_eps: float | Sequence[float] | Tensor = 0.1,
        method: LikelihoodMethodName = "variational",
        reduction: ReductionName = "mean",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.n_classes = check_count(n_classes, name="n_classes", owner=owner, minimum=2)
        self.method = check_option(method, LikelihoodMethod, name="method", owner=owner).value
        as_concentration(alpha_eps, name="alpha_eps", owner=owner, sizes=(self.n_classes,))
        as_concentration(label_variance, name="label_variance", owner=owner)
        _hold(self, "alpha_eps", alpha_eps)
        _hold(self, "label_variance", label_variance)
        self.reduction = check_option(reduction, Reduction, name="reduction", owner=owner).value
        check_index(ignore_index, owner=owner)
        self.ignore_index, self.label_smoothing = ignore_index, as_fraction(label_smoothing, owner=owner)
        check_tensors(owner, weight=weight)
        check_weight(weight, self.n_classes, owner=owner)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (c,), (n, c) or (n, c, ...) for class indices or probabilities."""
        shape = getattr(input, "shape", ())  # the function below refuses what is not a tensor
        if shape and shape[1 if len(shape) > 1 else 0] != self.n_classes:
            raise InvalidArgumentError(
                f"'input' of {type(self).__name__} must have {self.n_classes} logits in dimension "
                f"{min(1, input.ndim - 1)}, one for each class; got shape {tuple(input.shape)}."
            )
        return matched_cross_entropy(
            input,
            target,
            _held(self, "weight"),
            alpha_eps=self.alpha_eps,
            method=self.method,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            label_variance=self.label_variance,
        )

    def extra_repr(self) -> str:
        """Return the options, for the text of a network."""
        names = ("alpha_eps", "method", "reduction", "ignore_index", "label_smoothing")
        return ", ".join([str(self.n_classes), *(f"{name}={getattr(self, name)}" for name in names)])


class MatchedBCEWithLogitsLoss(nn.Module):
    r"""Least squares in place of :class:`torch.nn.BCEWithLogitsLoss`: labels as Gaussian observations of a logit.

    See :func:`~gaussify.nn.functional.matched_binary_cross_entropy_with_logits`. Probabilities of class 1 are
    ``logits.sigmoid()``. With ``method="gauss"`` the network regresses on the labels 0 and 1, so it decides at 0.5.

    Parameters
    ----------
    alpha_eps, beta_eps : float or Tensor
        Concentrations of the prior for class 1 and class 0. ``beta_eps=None`` takes ``alpha_eps``.
    method : {"variational", "moment", "laplace", "gauss"}
        How labels become Gaussians, see :class:`~gaussify.likelihoods.LikelihoodMethod`.
    reduction : {"mean", "sum", "none"}
        How the losses are combined, as in torch.
    weight, pos_weight : Tensor, optional
        Factors of all losses, and of the losses of label 1. Both broadcast to the logits.
    label_variance : float
        Variance of one label for ``method="gauss"``.

    Examples
    --------
    >>> MatchedBCEWithLogitsLoss(0.1)(torch.tensor([3.0, -2.0]), torch.tensor([1.0, 0.0]))
    tensor(3.1774)
    """

    weight: Tensor | None
    pos_weight: Tensor | None
    alpha_eps: float | Tensor
    beta_eps: float | Tensor | None
    method: BetaMethodName
    reduction: ReductionName
    label_variance: float | Tensor

    @no_type_check
    def __init__(
        self,
        alpha_eps: float | Tensor = 0.1,
        beta_eps: float | Tensor | None = None,
        method: BetaMethodName = "variational",
        reduction: ReductionName = "mean",
        *,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        label_variance: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        chosen = check_option(method, LikelihoodMethod, name="method", owner=owner, allowed=BETA_METHODS)
        self.method = cast(BetaMethodName, chosen.value)
        for name, value in (("alpha_eps", alpha_eps), ("beta_eps", beta_eps), ("label_variance", label_variance)):
            if not (name == "beta_eps" and value is None):
                as_concentration(value, name=name, owner=owner)
        check_tensors(owner, weight=weight, pos_weight=pos_weight)
        _hold(self, "alpha_eps", alpha_eps)
        _hold(self, "beta_eps", beta_eps)
        _hold(self, "label_variance", label_variance)
        self.reduction = check_option(reduction, Reduction, name="reduction", owner=owner).value
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits for labels from 0 to 1 of the same shape."""
        return matched_binary_cross_entropy_with_logits(
            input,
            target,
            _held(self, "weight"),
            _held(self, "pos_weight"),
            alpha_eps=self.alpha_eps,
            beta_eps=self.beta_eps,
            method=self.method,
            reduction=self.reduction,
            label_variance=self.label_variance,
        )

    def extra_repr(self) -> str:
        """Return the options, for the text of a network."""
        names = ("alpha_eps", "beta_eps", "method", "reduction")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


def _hold(module: nn.Module, name: str, value: Any) -> None:
    """Store a number as an attribute, an ``nn.Parameter`` as a parameter, and anything else as a buffer."""
    if isinstance(value, Real):
        setattr(module, name, float(value))
    elif value is None or isinstance(value, nn.Parameter):
        setattr(module, name, value)
    else:
        module.register_buffer(name, torch.as_tensor(value))


def _held(module: nn.Module, name: str) -> Any:
    """Return a buffer or an attribute. For buffers this is much faster than ``getattr``."""
    buffers = module._buffers
    return buffers[name] if name in buffers else getattr(module, name)

r"""The constant mean of every latent: a weight on a feature that is one, with a prior of its own.

The three stages of a fit ask for different prior variances V, and each has its reason.

=====================================  ===================  ===========================================================
stage                                  V                    reason
=====================================  ===================  ===========================================================
evidence and collapsed bound           :math:`\to\infty`    The best constant is in closed form (generalised least
                                                            squares), and no V favours some kernels over others.
objectives with the class likelihood   10 000               Their divergence needs a proper prior. It is the same for
                                                            all targets, so that objectives of different ``alpha_eps``
                                                            can be compared.
predictions                            100 times the        The constant needs a proper prior, as rows may be unlearnt
                                       squared targets      or forgotten. Broader than the targets is broad enough, and
                                                            a larger V would cost an exact model digits.
=====================================  ===================  ===========================================================
"""

from gaussify.likelihoods import PseudoTargets

_ANY_TARGETS = 1e4
_SQUARES = 100.0
_SMALLEST, _LARGEST = 1e3, 1e5  # beyond the largest, an exact model loses the digits of all that is not constant


def constant_variance(table: PseudoTargets | None = None) -> float:
    """Return the prior variance of constant means for predictions with these targets; without, for any targets.

    Examples
    --------
    >>> import torch
    >>> constant_variance()
    10000.0
    >>> constant_variance(PseudoTargets(torch.tensor([[-20.0]]), torch.ones(1, 1)))
    40000.0
    """
    if table is None:
        return _ANY_TARGETS
    return min(max(_SMALLEST, _SQUARES * float(table.mean.square().max())), _LARGEST)

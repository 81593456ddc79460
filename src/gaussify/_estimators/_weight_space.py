"""A fitted classifier as a Gaussian linear model, for those who carry its latents along."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Float
from numpy.typing import NDArray

from gaussify._estimators._distinct import Floats
from gaussify.likelihoods import ClassLikelihood, PredictiveMethod
from gaussify.posterior import Observation, RowPosterior, observe_

WeightFeatures = tuple[Float[NDArray, "n e"], Float[NDArray, " n"]]
"""Features of rows, and the variance of their latents that these leave unexplained."""


class WeightSpace(NamedTuple):
    """Latents that are features times Gaussian weights, and what a label of each class observes of them.

    All of it in units of latents that are divided by the temperature.
    """

    features: Callable[[Floats], WeightFeatures]
    posterior: RowPosterior
    """Of the weights; the holder's own, to be updated in place."""
    targets: Sequence[tuple[Floats, Floats]]
    """Mean and variance (l,), by class."""
    likelihood: ClassLikelihood
    predictive: PredictiveMethod
    origin: tuple[object, ...]
    """Objects that a classifier keeps for as long as nothing but rows is new."""

    def observe(self, feature: Float[NDArray, " e"], label: int) -> Observation:
        """Learn from one more row."""
        return observe_(self.posterior, feature, *self.targets[label])

    def comes_from(self, origin: tuple[object, ...]) -> bool:
        """Return whether it was made with these very objects."""
        return all(own is other for own, other in zip(self.origin, origin, strict=True))

"""A fitted classifier as a Gaussian linear model, whose latents active learning updates row by row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from numpy.typing import NDArray

from gaussify._estimators._distinct import Floats
from gaussify.likelihoods import ClassLikelihood, PredictiveMethod
from gaussify.posterior import Observation, RowLatent, RowPosterior, latent_of_row, observe_

WeightFeatures = tuple[Float[NDArray, "n e"], Float[NDArray, " n"]]
"""Features of rows, and the part of their latent variances that is not that of the weights."""


@dataclass(frozen=True, eq=False)
class ClassTargets:
    """Targets that depend on the label alone."""

    mean: Float[NDArray, "c l"]
    variance: Float[NDArray, "c l"]

    def __call__(self, latents: RowLatent, label: int) -> tuple[Floats, Floats]:
        """Return mean and variance of the targets of a class."""
        return self.mean[label], self.variance[label]


class WeightSpace(NamedTuple):
    """Latents as features times Gaussian weights, and the targets that labels give them.

    All latents are divided by the temperature.
    """

    features: Callable[[Floats], WeightFeatures]
    posterior: RowPosterior
    """Posterior of the weights, a copy that may be updated in place."""
    target: Callable[[RowLatent, int], tuple[Floats, Floats]]
    """Returns the mean and variance (l,) with which a label observes the latents of a row, given these before it."""
    likelihood: ClassLikelihood
    predictive: PredictiveMethod
    origin: tuple[object, ...]
    """Objects of the classifier that stay the same as long as only rows are learnt."""

    def observe(self, feature: Float[NDArray, " e"], label: int) -> Observation:
        """Update the posterior by one more row."""
        latents = latent_of_row(self.posterior, feature)
        return observe_(self.posterior, feature, *self.target(latents, label), latents)

    def comes_from(self, origin: tuple[object, ...]) -> bool:
        """Return True if it was made with these very objects."""
        return all(own is other for own, other in zip(self.origin, origin, strict=True))

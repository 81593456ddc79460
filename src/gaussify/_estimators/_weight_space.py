"""A fitted classifier as a Gaussian linear model, whose latents active learning updates row by row."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Float
from numpy.typing import NDArray

from gaussify._estimators._distinct import Floats
from gaussify.likelihoods import ClassLikelihood, PredictiveMethod
from gaussify.posterior import Observation, RowPosterior, observe_

WeightFeatures = tuple[Float[NDArray, "n e"], Float[NDArray, " n"]]
"""Features of rows, and the part of their latent variances that is not that of the weights."""


class WeightSpace(NamedTuple):
    """Latents as features times Gaussian weights, and the targets that labels give them.

    All latents are divided by the temperature.
    """

    features: Callable[[Floats], WeightFeatures]
    posterior: RowPosterior
    """Posterior of the weights, a copy that may be updated in place."""
    targets: Sequence[tuple[Floats, Floats]]
    """Mean and variance (l,) of the targets of each class."""
    likelihood: ClassLikelihood
    predictive: PredictiveMethod
    origin: tuple[object, ...]
    """Objects of the classifier that stay the same as long as only rows are learnt."""

    def observe(self, feature: Float[NDArray, " e"], label: int) -> Observation:
        """Update the posterior by one more row."""
        return observe_(self.posterior, feature, *self.targets[label])

    def comes_from(self, origin: tuple[object, ...]) -> bool:
        """Return True if it was made with these very objects."""
        return all(own is other for own, other in zip(self.origin, origin, strict=True))

"""The posterior in use: computed from statistics and a choice, then kept up to date row by row."""

import math
from typing import NamedTuple

from jaxtyping import Float, Int
from numpy.typing import NDArray

from gaussify._calibration import Choice, LabelParameters
from gaussify._estimators import Floats, Indices
from gaussify.likelihoods import ClassLikelihood
from gaussify.linear._hyperparameters import disperse
from gaussify.posterior import (
    GaussianPrior,
    RowLatent,
    RowPosterior,
    StatisticsAccumulator,
    class_posterior,
    latent_of_row,
    observe_,
)

_FEW_ROWS = 8  # to condition on more than these one by one costs more than a new factorisation
_MOST_UPDATES = 10_000  # after these, a new factorisation clears rounding errors away


class _Rows(NamedTuple):
    features: Float[NDArray, "n d"]
    labels: Int[NDArray, " n"]
    weight: Float[NDArray, " n"] | None


class CurrentPosterior:
    """The posterior of the logits' weights, and the likelihood that turns logits into probabilities.

    It belongs to one accumulator and one choice (:meth:`belongs_to`). An estimator that replaces either never has to
    say that its posterior is out of date; it may drop the posterior early to free memory. A few new rows wait here
    until someone asks for the posterior.

    Parameters
    ----------
    accumulator : StatisticsAccumulator
        Statistics of all rows.
    choice : Choice
        Label parameters, prior variance, dispersion, temperature and offsets.
    label : LabelParameters
        Parameters of the likelihood.

    Attributes
    ----------
    likelihood : ClassLikelihood
        Likelihood of the labels given the logits.
    targets : list of pairs of ndarray of shape (l,)
        Mean and variance that a row of each class gives every logit.
    """

    def __init__(self, accumulator: StatisticsAccumulator, choice: Choice, label: LabelParameters) -> None:
        self._accumulator, self._choice = accumulator, choice
        self.likelihood: ClassLikelihood = label.likelihood(accumulator.n_classes, choice.method, choice.alpha_eps)
        # Logits are latents divided by the temperature T. So targets are divided by it too, and variances by T².
        square = choice.temperature**2
        table = disperse(self.likelihood.target_table(), choice.dispersion / square)
        table = table._replace(mean=table.mean / choice.temperature)
        prior = GaussianPrior.centred(choice.prior_variance / square, n_latents=self.likelihood.n_latents)
        if choice.offset is not None:  # the weight of the constant feature, and with it every logit, is shifted by it
            table = table._replace(mean=table.mean + choice.offset)
            prior.mean[:, -1] = choice.offset
        self.targets = list(zip(*(part.numpy() for part in table), strict=True))
        self._posterior: RowPosterior | None = RowPosterior.of(class_posterior(prior, accumulator.statistics, table))
        self._waiting: list[_Rows] = []
        self._n_waiting = self._n_updates = 0
        self._asked: tuple[bytes, RowLatent] | None = None  # the last row predicted, which is often learnt next

    def belongs_to(self, accumulator: StatisticsAccumulator, choice: Choice | None) -> bool:
        """Return whether this is the posterior of these very objects."""
        return self._accumulator is accumulator and self._choice is choice and self._posterior is not None

    def after(
        self, accumulator: StatisticsAccumulator, features: Floats, labels: Indices, weight: Floats | None
    ) -> "CurrentPosterior | None":
        """Return the posterior after some more rows, or None where a new factorisation is cheaper or more accurate.

        Parameters
        ----------
        accumulator : StatisticsAccumulator
            Statistics that include the rows.
        features, labels, weight
            The rows. They are not learnt before someone asks, so this object is still valid if an error follows.
        """
        n_waiting = self._n_waiting + len(features)
        if n_waiting > _FEW_ROWS or self._n_updates + n_waiting > _MOST_UPDATES:
            return None
        twin = object.__new__(CurrentPosterior)
        twin.__dict__.update(self.__dict__)
        twin._accumulator, twin._n_waiting = accumulator, n_waiting
        twin._waiting = [*self._waiting, _Rows(features, labels, weight)]
        return twin

    def settled(self) -> RowPosterior:
        """Return the posterior given all rows; the arrays are updated in place when rows follow."""
        posterior = self._posterior
        assert posterior is not None
        if not self._waiting:
            return posterior
        self._posterior = None  # an interrupt would leave it half updated
        asked, self._asked = self._asked, None
        for features, labels, weights in self._waiting:
            every = [1.0] * len(labels) if weights is None else weights.tolist()
            for feature, label, weight in zip(features, labels.tolist(), every, strict=True):
                if weight > 0.0:
                    mean, variance = self.targets[label]
                    known = None if asked is None or asked[0] != feature.tobytes() else asked[1]
                    observe_(posterior, feature, mean, variance if weight == 1.0 else variance / weight, known)
                    asked = None  # it was a prediction of the posterior before this row
        self._n_updates += self._n_waiting
        self._posterior, self._waiting, self._n_waiting = posterior, [], 0
        return posterior

    def row_probs(self, feature: Floats) -> Floats | None:
        """Return the probabilities of one row by quadrature, or None where they are not numbers."""
        latents = latent_of_row(self.settled(), feature)
        self._asked = feature.tobytes(), latents
        probs = self.likelihood.row_probs(latents.mean, latents.variance)
        return None if math.isnan(probs[0]) else probs

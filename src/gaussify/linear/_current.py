"""The posterior in use: computed from statistics and a choice, then kept up to date row by row."""

import math
import operator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from gaussify._calibration import Choice, LabelParameters
from gaussify._estimators import Floats, Indices
from gaussify.likelihoods import ClassLikelihood
from gaussify.linear._hyperparameters import logit_table
from gaussify.linear._refinement import RefinedSites
from gaussify.posterior import (
    GaussianPosterior,
    GaussianPrior,
    RowLatent,
    RowPosterior,
    Sites,
    StatisticsAccumulator,
    class_posterior,
    condition,
    latent_of_row,
    observe_,
    site_of_row,
)

FEW_ROWS = 8  # to condition on more than these one by one costs more than a new factorisation
_LEAST_PRECISION = 1e-12  # of a site, as certain rows have none
_MOST_UPDATES = 10_000  # after these, a new factorisation clears rounding errors away


class _Rows(NamedTuple):
    features: Float[NDArray, "n d"]
    labels: Int[NDArray, " n"]
    weight: Float[NDArray, " n"] | None


class CurrentPosterior:
    """The posterior of the logits' weights, and the likelihood that turns logits into probabilities.

    It belongs to one accumulator and one choice (:meth:`belongs_to`), so an estimator that replaces either never has to
    say that its posterior is out of date. A few new rows wait here until someone asks for the posterior.

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
        self._origin: tuple[object, ...] = (accumulator, choice)
        self.likelihood: ClassLikelihood = label.likelihood(accumulator.n_classes, choice.method, choice.alpha_eps)
        table = logit_table(self.likelihood, choice)
        of_logits = choice.prior_variance / choice.temperature**2
        prior = GaussianPrior.centred(of_logits, n_latents=self.likelihood.n_latents)
        if choice.offset is not None:  # the weight of the constant feature, and with it every logit, is shifted by it
            table = table._replace(mean=table.mean + choice.offset)
            prior.mean[:, -1] = choice.offset
        self.targets = list(zip(*(part.numpy() for part in table), strict=True))
        self._posterior: RowPosterior | None = RowPosterior.of(class_posterior(prior, accumulator.statistics, table))
        self._waiting: list[_Rows] = []
        self._n_waiting = self._n_updates = 0
        self._asked: tuple[bytes, RowLatent] | None = None  # the last row predicted, which is often learnt next

    def belongs_to(self, *origin: object) -> bool:
        """Return whether this is the posterior of these very objects."""
        is_same = len(origin) == len(self._origin) and all(map(operator.is_, origin, self._origin))
        return is_same and self._posterior is not None

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
        if n_waiting > FEW_ROWS or self._n_updates + n_waiting > _MOST_UPDATES:
            return None
        twin = object.__new__(CurrentPosterior)
        twin.__dict__.update(self.__dict__)
        twin._origin, twin._n_waiting = (accumulator, *self._origin[1:]), n_waiting
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

    def target(self, latents: RowLatent | None, label: int) -> tuple[Floats, Floats]:
        """Return the mean and variance with which a row of a class observes its latents."""
        del latents  # a matched label depends on the class alone
        return self.targets[label]

    def row_probs(self, feature: Floats) -> Floats | None:
        """Return the probabilities of one row by quadrature, or None where they are not numbers."""
        latents = latent_of_row(self.settled(), feature)
        self._asked = feature.tobytes(), latents
        probs = self.likelihood.row_probs(latents.mean, latents.variance)
        return None if math.isnan(probs[0]) else probs


def observed_site(
    likelihood: ClassLikelihood, temperature: float, latents: RowLatent, label: int, weight: float = 1.0
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the site that a new row gives its latents, and the mean and variance with which it observes them.

    Parameters
    ----------
    likelihood : ClassLikelihood
        Likelihood of the labels given latents that are not divided by the temperature.
    temperature : float
        Temperature.
    latents : RowLatent
        Latents of the row before its label is seen, divided by the temperature; so are those that it observes.
    label, weight
        The row's label and weight.
    """
    T = temperature
    precision, linear = site_of_row(likelihood, T * latents.mean, T**2 * latents.variance, label, weight)
    precision = np.maximum(precision, _LEAST_PRECISION)
    return precision, linear, linear / precision / T, 1.0 / (precision * T**2)


class RefinedPosterior(CurrentPosterior):
    """The posterior given refined sites. A new row gets its site from the posterior before it.

    Parameters
    ----------
    sites : RefinedSites
        Sites of all rows, prior variance and temperature.
    label : LabelParameters
        Parameters of the likelihood.
    n_classes : int
        Number of classes.
    """

    def __init__(self, sites: RefinedSites, label: LabelParameters, n_classes: int) -> None:
        choice = sites.choice
        self._origin, self._sites, self._temperature = (sites,), sites, choice.temperature
        self.likelihood = label.likelihood(n_classes, choice.method, choice.alpha_eps)
        prior = GaussianPrior.centred(choice.prior_variance, n_latents=self.likelihood.n_latents)
        mean, root = condition(prior, sites.total.natural)
        self._posterior = RowPosterior.of(GaussianPosterior(mean / choice.temperature, root / choice.temperature))
        self._waiting, self._n_waiting, self._n_updates, self._asked = [], 0, 0, None

    def target(self, latents: RowLatent | None, label: int) -> tuple[Floats, Floats]:
        """Return the mean and variance with which a row of a class observes its latents, given these before it."""
        assert latents is not None
        _, mean, variance = self._site(latents, label, 1.0)
        return mean, variance

    def _site(self, latents: RowLatent, label: int, weight: float) -> tuple[Sites, Floats, Floats]:
        """Return the site of a new row with these latents, and the mean and variance with which it observes them."""
        precision, linear, mean, variance = observed_site(self.likelihood, self._temperature, latents, label, weight)
        return Sites(torch.from_numpy(precision)[None], torch.from_numpy(linear)[None]), mean, variance

    def learn(self, features: Floats, labels: Indices, weight: Floats | None) -> "RefinedPosterior":
        """Return the posterior after some more rows.

        The posterior of this object is updated in place and must not be used any more.
        """
        posterior = self.settled()
        self._posterior = None  # an interrupt would leave it half updated
        total, asked, self._asked = self._sites.total.copy(), self._asked, None
        every = [1.0] * len(labels) if weight is None else weight.tolist()
        for feature, label, own in zip(features, labels.tolist(), every, strict=True):
            if own == 0.0:
                continue
            is_known = asked is not None and asked[0] == feature.tobytes()
            latents = asked[1] if asked is not None and is_known else latent_of_row(posterior, feature)
            asked = None  # it was a prediction of the posterior before this row
            sites, mean, variance = self._site(latents, label, own)
            observe_(posterior, feature, mean, variance, latents)
            total.append(torch.from_numpy(feature[None].copy()), sites)
        twin = object.__new__(RefinedPosterior)
        twin.__dict__.update(self.__dict__)
        twin._sites = self._sites._replace(total=total, reference=None)
        twin._origin, twin._n_updates = (twin._sites,), self._n_updates + len(labels)
        twin._posterior = posterior if twin._n_updates <= _MOST_UPDATES else None
        return twin

    @property
    def sites(self) -> RefinedSites:
        """The sites of all rows so far."""
        return self._sites


@dataclass(eq=False)
class LearntStatistics:
    """Statistics of all rows, and the posterior that was last computed from them; both go together."""

    accumulator: StatisticsAccumulator
    posterior: CurrentPosterior | None = None

"""Gaussian posteriors of the latents, in closed form.

Read ``_statistics.py`` first (sums over rows), then ``_gaussian.py`` (from statistics to the posterior). The other
files refine the posterior towards that of the class likelihood (``_sites.py``), serve streams (``_accumulator.py``,
``_row.py``, ``_carried.py``) and choices without refitting (``_leave_one_out.py``, ``_prior_scale.py``).
"""

from gaussify.posterior._accumulator import StatisticsAccumulator
from gaussify.posterior._carried import CarriedLatents
from gaussify.posterior._gaussian import (
    GaussianPosterior,
    GaussianPrior,
    NaturalParameters,
    class_posterior,
    condition,
    latent,
    log_evidence,
    natural_parameters,
    natural_parameters_of_rows,
    sample,
)
from gaussify.posterior._leave_one_out import leave_one_out
from gaussify.posterior._prior_scale import PriorScale, best_prior_scale
from gaussify.posterior._row import Observation, RowLatent, RowPosterior, latent_of_row, observe_
from gaussify.posterior._sites import (
    Refined,
    SiteRows,
    Sites,
    cavity,
    kl_divergence,
    refine,
    site_of_row,
    sites_of,
    sum_of_sites,
)
from gaussify.posterior._statistics import ClassStatistics, without_rows

__all__ = [
    "CarriedLatents",
    "ClassStatistics",
    "GaussianPosterior",
    "GaussianPrior",
    "NaturalParameters",
    "Observation",
    "PriorScale",
    "Refined",
    "RowLatent",
    "RowPosterior",
    "SiteRows",
    "Sites",
    "StatisticsAccumulator",
    "best_prior_scale",
    "cavity",
    "class_posterior",
    "condition",
    "kl_divergence",
    "latent",
    "latent_of_row",
    "leave_one_out",
    "log_evidence",
    "natural_parameters",
    "natural_parameters_of_rows",
    "observe_",
    "refine",
    "sample",
    "site_of_row",
    "sites_of",
    "sum_of_sites",
    "without_rows",
]

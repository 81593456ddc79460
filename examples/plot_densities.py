"""
Gaussians in place of Gammas and Betas
======================================

A label under a softmax gives each class a Gamma, a label under a logistic a Beta. :func:`gaussify.match` puts a
Gaussian in the place of either, in a basis that covers the real line: the logarithm of a Gamma, the logit of a Beta.
How well that can work depends on the density; what is kept of it, on the method.
"""

import matplotlib.pyplot as plt
import torch
from torch.distributions import Beta, Gamma

from gaussify import match, to_basis
from gaussify.plotting import METHOD_COLOURS

densities = {
    "Gamma(0.1, 1): a class that was not the label": Gamma(torch.tensor(0.1).double(), 1.0),
    "Gamma(1.1, 1): the class that was": Gamma(torch.tensor(1.1).double(), 1.0),
    "Beta(1.1, 0.1): one label of two classes": Beta(torch.tensor(1.1).double(), 0.1),
    "Beta(5, 3): eight labels": Beta(torch.tensor(5.0).double(), 3.0),
}

# %%
# Grey is the density that is matched, and lines are the Gaussians of every method. (``moment-ori`` fits a log-normal,
# and there is none on the unit interval.)

figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained")
for axis, (title, distribution) in zip(axes.flat, densities.items(), strict=True):
    methods = ["laplace", "variational", "moment"] + ["moment-ori"] * isinstance(distribution, Gamma)
    widest = match(distribution, "moment")
    low, high = (widest.mean + widest.stddev * torch.tensor([-3.0, 2.0])).tolist()
    psi = torch.linspace(low, high, 400).double()
    axis.fill_between(psi, to_basis(distribution).log_prob(psi).exp(), color="0.87")
    for method in methods:
        axis.plot(psi, match(distribution, method).log_prob(psi).exp(), color=METHOD_COLOURS[method], label=method)
    axis.set(title=title, yticks=[], xlabel="log" if isinstance(distribution, Gamma) else "logit")
    axis.spines[["left", "right", "top"]].set_visible(False)
axes[0, 1].legend(frameon=False)
plt.savefig("densities.png") if plt.get_backend().lower() == "agg" else plt.show()

# %%
# The less data, the longer the tail of the density. Laplace matching sits at the mode and knows nothing of the tail,
# moment matching covers all of it, and variational matching stays within the density. With more data all of them agree:

for a in (0.01, 0.1, 1.0, 10.0, 100.0):
    normals = {method: match(Gamma(a, 1.0), method) for method in ("laplace", "moment")}
    print(f"Gamma({a:g}, 1):", *(f"{name} {q.mean:.2f} ± {q.stddev:.2f}" for name, q in normals.items()), sep="  ")

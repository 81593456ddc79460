"""
Gaussians in place of Gammas and Betas
======================================

Under a softmax, a label gives each class a Gamma distribution. Under a logistic likelihood, it gives a Beta.
:func:`gaussify.match` replaces either by a Gaussian, in a basis that covers the real line: the logarithm of a Gamma,
the logit of a Beta. The density determines how well this can work. The method determines which of its properties are
preserved.
"""

import matplotlib.pyplot as plt
import torch
from torch.distributions import Beta, Gamma

from gaussify import match, to_basis
from gaussify.plotting import METHOD_COLOURS

densities = {
    "Gamma(0.1, 1): a class other than the label": Gamma(torch.tensor(0.1).double(), 1.0),
    "Gamma(1.1, 1): the class of the label": Gamma(torch.tensor(1.1).double(), 1.0),
    "Beta(1.1, 0.1): one label, two classes": Beta(torch.tensor(1.1).double(), 0.1),
    "Beta(5, 3): eight labels": Beta(torch.tensor(5.0).double(), 3.0),
}

# %%
# The grey area is the density to be matched, and the lines are the Gaussians of the methods. (``moment-ori`` fits a
# log-normal, and there is none on the unit interval.)

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
# With little data the density has a long tail. Laplace matching is centred at the mode and ignores the tail. Moment
# matching covers all of it, and variational matching stays within the density. With more data all methods agree:

for a in (0.01, 0.1, 1.0, 10.0, 100.0):
    normals = {method: match(Gamma(a, 1.0), method) for method in ("laplace", "moment")}
    print(f"Gamma({a:g}, 1):", *(f"{name} {q.mean:.2f} ± {q.stddev:.2f}" for name, q in normals.items()), sep="  ")

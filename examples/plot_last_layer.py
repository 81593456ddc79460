"""
A network that is uncertain far from its data
=============================================

A small network is trained on two classes in the plane. Far away from all training rows, its softmax is nearly certain.
:class:`gaussify.LastLayer` replaces the last layer by Bayesian logistic regression, in one pass over the rows. The
boundary stays the same, and far from the data the predictions become uncertain.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

from gaussify import LastLayer

X, y = make_moons(400, noise=0.15, random_state=0)
inputs, labels = torch.as_tensor(X).float(), torch.as_tensor(y)

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimiser = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=1e-4)
for _ in range(400):
    optimiser.zero_grad()
    nn.functional.cross_entropy(network(inputs), labels).backward()
    optimiser.step()

# %%
# The network is not trained further. Only the posterior of the last layer's weights is learnt. Its prior is wide here:
# what the rows don't say about a weight stays open, and shows far from the data.

bayesian = LastLayer.of(network, prior_variance=1000.0).fit(inputs, labels)

axis_values = np.linspace(-4, 5, 181)
plane = torch.as_tensor(np.stack(np.meshgrid(axis_values, axis_values - 0.5), -1).reshape(-1, 2)).float()
with torch.no_grad():
    of_network = network(plane).softmax(-1).numpy()
of_last_layer = np.asarray(bayesian.predict_proba(plane))
epistemic = np.asarray(bayesian.predict_uncertainty(plane).epistemic_entropy)

# %%
# Left and middle: the probability of the orange class. Right: the part of the uncertainty that more data could remove.

figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.9), sharey=True, layout="constrained")
pictures = {
    "the network's softmax": (of_network[:, 1], "PuOr_r", (0, 1)),
    "with a Bayesian last layer": (of_last_layer[:, 1], "PuOr_r", (0, 1)),
    "epistemic entropy": (epistemic, "Greys", (0, None)),
}
for axis, (title, (values, colours, (low, high))) in zip(axes, pictures.items(), strict=True):
    shown = values.reshape(181, 181)
    axis.pcolormesh(axis_values, axis_values - 0.5, shown, cmap=colours, vmin=low, vmax=high, rasterized=True)
    axis.scatter(*X.T, c=np.where(y == 1, "#E66101", "#5E3C99"), s=5, edgecolors="none")
    axis.set(title=title, xticks=[], yticks=[], aspect="equal")
plt.savefig("last_layer.png") if plt.get_backend().lower() == "agg" else plt.show()

far = np.linalg.norm(plane.numpy() - [0.5, 0.25], axis=1) > 4
sure = {"network": of_network[far].max(1).mean(), "Bayesian last layer": of_last_layer[far].max(1).mean()}
print("largest probability far away, on average:", *(f"{name} {value:.3f}" for name, value in sure.items()), sep="  ")

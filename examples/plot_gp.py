"""
Four classes with a Gaussian process
====================================

Labels become Gaussian observations of four latent functions, so classification becomes regression. One matrix
factorisation serves all classes. The kernel, the strength of a label (``alpha_eps``) and the temperature, which divides
the latents, are all learnt. Nothing is set by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb

from gaussify import GPClassifier, metrics
from gaussify.datasets import make_four_classes

X, y = make_four_classes(200, random_state=0)
X_test, y_test = make_four_classes(2000, random_state=1)
COLOURS = np.array([to_rgb(colour) for colour in ("#0072B2", "#D55E00", "#009E73", "#CC79A7")])

low, high = X.min(0) - 2.0, X.max(0) + 2.0
across, up = np.linspace(low[0], high[0], 140), np.linspace(low[1], high[1], 140)
plane = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)

# %%
# One model is exact, with 200 rows. The other is sparse: 20 inducing points summarise the rows. Colours are mixed by
# the probabilities. The right panel shows the entropy of the prediction. It is high along the boundaries, where classes
# overlap, and far from all rows.

models = {"exact": GPClassifier(), "20 inducing points": GPClassifier(n_inducing=20)}
figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for axis, (name, model) in zip(axes, models.items(), strict=False):
    probs = model.fit(X, y).predict_proba(plane)
    axis.imshow((probs @ COLOURS).reshape(140, 140, 3), extent=(*across[[0, -1]], *up[[0, -1]]), origin="lower")
    axis.scatter(*X.T, c=COLOURS[y], s=14, edgecolors="black", linewidths=0.4)
    nll = metrics.nll(model.predict_proba(X_test), y_test)
    axis.set(title=f"{name}: test NLL {nll:.3f}", xticks=[], yticks=[])
    print(f"{name:20} NLL {nll:.3f}, alpha_eps {model.alpha_eps_:g}, temperature {model.temperature_:.2f}")

entropy = -(probs * np.log(probs)).sum(1).reshape(140, 140)
axes[2].imshow(entropy, extent=(*across[[0, -1]], *up[[0, -1]]), origin="lower", cmap="Greys")
axes[2].scatter(*X.T, c=COLOURS[y], s=8, edgecolors="none")
axes[2].set(title="entropy of the prediction", xticks=[], yticks=[])
plt.savefig("gp.png") if plt.get_backend().lower() == "agg" else plt.show()

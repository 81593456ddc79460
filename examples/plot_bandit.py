"""
A contextual bandit with Thompson sampling
==========================================

A contextual bandit learns to recognise ten digits. Each round shows an image of scikit-learn's digits, and the bandit
pulls one of ten arms, one for each digit. The reward is one if the image shows this digit. Otherwise the right digit
stays unknown. Thompson sampling draws the weights of every arm from their posterior, and pulls the arm with the largest
logit. So an arm is tried as often as it may still be the best.

Each arm is a Bayesian logistic regression. gaussify updates it in closed form with each reward. bayesianbandits has
linear regression in closed form (``NormalRegressor``) and logistic regression by a Laplace approximation
(``BayesianGLM``). Regret is the number of wrong pulls. Each seed uses other images and other draws of the weights.

``pip install ".[bench]"`` in a clone installs bayesianbandits. This command runs more rounds and seeds and takes a few
minutes::

    python examples/plot_bandit.py --rounds 3000 --seeds 5 --out bandit.png
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from gaussify import BayesianLogisticRegression

N_ARMS = 10


class Gaussify:
    """Arms that are Bayesian logistic regressions, updated in closed form."""

    def __init__(self, n_features: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.arms = [
            BayesianLogisticRegression(alpha_eps=0.1, temperature=1.0, prior_variance=1.0, fit_intercept=False)
            for _ in range(N_ARMS)
        ]
        nothing = np.zeros((1, n_features))
        for arm in self.arms:  # a row of weight zero declares the possible rewards
            arm.partial_fit(nothing, [0], classes=[0, 1], sample_weight=[0.0])

    def pull(self, x: NDArray) -> int:
        """Return the arm with the largest logit, for a draw from the posterior."""
        # logits of drawn weights are Gaussian, so the logits themselves can be drawn
        mean, variance = np.array([arm.predict_latent(x[None]) for arm in self.arms])[:, :, 0, 0].T
        return int(np.argmax(self.rng.normal(mean, np.sqrt(variance))))

    def update(self, x: NDArray, arm: int, reward: float) -> None:
        """Learn from a reward."""
        self.arms[arm].partial_fit(x[None], [int(reward)])


class BayesianBandits:
    """An agent of bayesianbandits, with the same kind of learner for each arm."""

    def __init__(self, learner: Callable[[], Any], seed: int) -> None:
        from bayesianbandits import Arm, ContextualAgent, ThompsonSampling

        arms = [Arm(digit, learner=learner()) for digit in range(N_ARMS)]
        self.agent = ContextualAgent(arms, ThompsonSampling(), random_seed=seed)

    def pull(self, x: NDArray) -> int:
        """Return the arm that the agent pulls."""
        (arm,) = self.agent.pull(x[None])
        return arm

    def update(self, x: NDArray, arm: int, reward: float) -> None:
        """Learn from a reward."""
        self.agent.select_for_update(arm).update(x[None], np.array([reward]))


def contenders(n_features: int, seed: int) -> dict[str, Callable[[], Any]]:
    """Return a constructor for each contender; those of bayesianbandits only if it is installed."""
    found: dict[str, Callable[[], Any]] = {"gaussify": lambda: Gaussify(n_features, seed)}
    try:
        from bayesianbandits import BayesianGLM, NormalRegressor
    except ImportError:
        return found
    found["bayesianbandits, linear"] = lambda: BayesianBandits(lambda: NormalRegressor(alpha=1.0, beta=10.0), seed)
    found["bayesianbandits, logistic"] = lambda: BayesianBandits(lambda: BayesianGLM(alpha=1.0), seed)
    return found


def regret(agent: Any, X: NDArray, y: NDArray) -> NDArray:
    """Return the cumulative number of wrong pulls after each round."""
    wrong = np.zeros(len(y))
    for row, (x, label) in enumerate(zip(X, y, strict=True)):
        arm = agent.pull(x)
        wrong[row] = arm != label
        agent.update(x, arm, float(arm == label))
    return wrong.cumsum()


def play(n_rounds: int, n_seeds: int) -> dict[str, tuple[NDArray, float]]:
    """Return the regret (n_seeds, n_rounds) and the microseconds per round of each contender."""
    images, digits = load_digits(return_X_y=True)
    images = np.column_stack([images / 16.0, np.ones(len(images))])
    curves: dict[str, list[NDArray]] = {}
    seconds: dict[str, float] = {}
    for seed in range(n_seeds):
        rows = np.random.default_rng(seed).integers(len(digits), size=n_rounds)
        for name, make in contenders(images.shape[1], seed).items():
            start = time.perf_counter()
            curve = regret(make(), images[rows], digits[rows])
            curves.setdefault(name, []).append(curve)
            seconds[name] = min(seconds.get(name, np.inf), time.perf_counter() - start)
            print(f"seed {seed + 1} of {n_seeds}: {name}, {curve[-1]:.0f} wrong pulls", file=sys.stderr)
    return {name: (np.array(own), 1e6 * seconds[name] / n_rounds) for name, own in curves.items()}


def mean_and_error(curves: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mean over seeds and its standard error, zero for one seed."""
    spread = curves.std(0, ddof=1) if len(curves) > 1 else np.zeros(curves.shape[1])
    return curves.mean(0), spread / np.sqrt(len(curves))


def draw(found: dict[str, tuple[NDArray, float]], path: str) -> None:
    """Draw the regret of each contender, with its standard error."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    for name, (curves, _) in found.items():
        mean, error = mean_and_error(curves)
        rounds = np.arange(1, len(mean) + 1)
        (line,) = axis.plot(rounds, mean, label=name)
        axis.fill_between(rounds, mean - error, mean + error, color=line.get_color(), alpha=0.2, lw=0.0)
    axis.set(xlabel="rounds", ylabel="wrong pulls so far")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=160)


def main() -> None:
    """Play, print a table and draw the regret."""
    parser = argparse.ArgumentParser(description="A contextual bandit with Thompson sampling.")
    parser.add_argument("--rounds", type=int, default=1000, help="number of images shown")
    parser.add_argument("--seeds", type=int, default=2, help="number of repetitions")
    parser.add_argument("--out", default="bandit.png", help="file for the figure")
    options = parser.parse_args()
    found = play(options.rounds, options.seeds)
    print(f"{'':28}{'regret':>14}{'per cent':>10}{'µs a round':>12}")
    for name, (curves, microseconds) in found.items():
        mean, error = (values[-1] for values in mean_and_error(curves))
        print(f"{name:28}{mean:8.0f} ± {error:3.0f}{100.0 * mean / options.rounds:10.1f}{microseconds:12.0f}")
    if len(found) == 1:
        print("bayesianbandits is not installed, so there is no comparison.")
    draw(found, options.out)
    print(f"The figure was written to {options.out}.")


if __name__ == "__main__":
    main()

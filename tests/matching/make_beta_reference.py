"""Write beta_variational.csv: the Gaussian that minimises KL(q || p) for logits of Beta variables, in 50 digits.

Run ``python tests/matching/make_beta_reference.py`` to make the file again (about five minutes). For each pair (a, b)
the equations ``E1 = a / (a + b)`` and ``variance (a + b) E2 = 1`` are solved for q = N(mean, variance), where
E1 and E2 are the expectations under q of the sigmoid and of its derivative. They are integrals over logistic noise l,

    E1 = int sigmoid'(l) Phi((mean - l) / s) dl,   E2 = int sigmoid'(l) phi((mean - l) / s) / s dl,

taken by the trapezoidal rule in mpmath. Its step resolves both factors: the error is about exp(-2 pi^2 / step) of
the poles of the sigmoid and exp(-2 pi^2 (s / step)^2) of the Gaussian, both below 1e-50.
"""

import csv
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
from mpmath import mp, mpf
from scipy import optimize, special

CONCENTRATIONS = ["1e-3", "0.02", "0.1", "1", "30", "1e4"]
TARGET = Path(__file__).parent / "beta_variational.csv"


def log_terms(mean: float, s: float, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the two integrands, in floats."""
    slope = -np.logaddexp(0, noise) - np.logaddexp(0, -noise)
    a = (mean - noise) / s
    return slope + special.log_ndtr(a), slope - 0.5 * a**2


def in_floats(a: float, b: float) -> np.ndarray:
    """Solution (mean, log s) to about ten digits, from which Newton's method goes on; for a <= b."""
    u = np.linspace(-40.0, 40.0, 80_001)

    def residual(x: np.ndarray) -> list[float]:
        mean, s = x[0], np.exp(x[1])
        # everything of interest lies where the logistic density or the Gaussian one does
        noise = np.sort(np.concatenate([1.5 * u, mean + s * u, mean + s * s + s * u]))
        terms = [term + np.log(np.gradient(noise) + 1e-300) for term in log_terms(mean, s, noise)]
        log_E1, log_E2 = special.logsumexp(terms[0]), special.logsumexp(terms[1]) - np.log(s * np.sqrt(2 * np.pi))
        return [log_E1 - np.log(a / (a + b)), log_E2 + 2 * x[1] + np.log(a + b)]

    starts = [(np.log(a / b) - 0.5 / a, -0.5 * np.log(a)), (special.digamma(a) - special.digamma(b), -np.log(a + b))]
    starts += [(-k / a, -np.log(a) + j) for k in (0.0, 0.3, 1.0, 3.0) for j in (-1.0, 0.0, 1.0)]
    for start in starts:
        found = optimize.root(residual, start, tol=1e-10)
        if np.abs(residual(found.x)).max() < 1e-3:
            return found.x
    raise ArithmeticError(f"no start leads to the solution for ({a}, {b})")


def ends(mean: float, s: float) -> tuple[float, float]:
    """Interval outside of which both integrands have fallen by exp(-130)."""
    grid = np.linspace(-2.0 * abs(mean) - 60.0 * s - 400.0, 2.0 * abs(mean) + 60.0 * s + 400.0, 400_001)
    inside = np.zeros(grid.size, dtype=bool)
    for term in log_terms(mean, s, grid):
        inside |= term > term.max() - 130.0
    return grid[inside.argmax()] - 1.0, grid[grid.size - 1 - inside[::-1].argmax()] + 1.0


def solve(a: str, b: str) -> tuple[str, str]:
    """Mean and variance for a <= b, in 40 digits."""
    mean, log_s = in_floats(float(a), float(b))
    low, high = ends(mean, np.exp(log_s))
    a, b = mp.mpf(a), mp.mpf(b)
    h = min(mp.mpf("0.16"), mp.mpf(np.exp(log_s)) / 5)
    points = [low + i * h for i in range(int((high - low) / h) + 1)]
    slopes = []
    for noise in points:
        e = mp.exp(-abs(noise))
        slopes.append(e / (1 + e) ** 2)

    def residual(mean: mpf, log_s: mpf) -> tuple[mpf, mpf]:
        s = mp.exp(log_s)
        E1 = h * mp.fsum(w * mp.ncdf((mean - noise) / s) for w, noise in zip(slopes, points, strict=True))
        E2 = h * mp.fsum(w * mp.npdf(noise, mean, s) for w, noise in zip(slopes, points, strict=True))
        return mp.log(E1) - mp.log(a / (a + b)), mp.log(E2) + 2 * log_s + mp.log(a + b)

    mean, log_s = mp.findroot(residual, (mp.mpf(mean), mp.mpf(log_s)), tol=mp.mpf(10) ** -80)
    return mp.nstr(mean, 40), mp.nstr(mp.exp(2 * log_s), 40)


def main() -> None:
    mp.dps = 50
    with TARGET.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["a", "b", "mean", "variance"])
        for a, b in combinations_with_replacement(CONCENTRATIONS, 2):
            row = (a, b, *solve(a, b))
            print(*row, flush=True)
            writer.writerow(row)


if __name__ == "__main__":
    main()

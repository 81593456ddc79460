"""A table of birds with every kind of column, made once."""

import numpy as np
import pyarrow as pa
import pytest

from gaussify.tables import FitOptions, ModelKind, fit_table


def make_birds(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    species = rng.choice(["emu", "kiwi", "moa"], n_rows, p=[0.5, 0.3, 0.2])
    height = np.select([species == "emu", species == "kiwi"], [1.7, 0.4], 2.4) + 0.4 * rng.normal(size=n_rows)
    colour = np.where(rng.random(n_rows) < 0.8, np.where(species == "kiwi", "brown", "grey"), "white")
    return pa.table(
        {
            "bird": [f"bird {i}" for i in range(n_rows)],
            "height": pa.array(height, mask=rng.random(n_rows) < 0.1),
            "colour": pa.array(colour, mask=rng.random(n_rows) < 0.05),
            "caught": rng.random(n_rows) < 0.5,
            "seen": pa.array(rng.integers(0, 1000, n_rows) * 86400, pa.timestamp("s")),
            "species": species,
        }
    )


@pytest.fixture(scope="session")
def birds():
    return make_birds(400)


@pytest.fixture(scope="session", params=["linear", "gp"])
def fitted(request, birds):
    options = FitOptions(ModelKind(request.param), n_inducing=20, max_iter=10)
    return fit_table(birds, "species", options, source="birds.csv")

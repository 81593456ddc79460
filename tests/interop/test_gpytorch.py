import pickle
from copy import deepcopy

import jaxtyping
import pytest
import torch
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from torch import Tensor
from torch.testing import assert_close

from gaussify import SoftmaxLikelihood
from gaussify.exceptions import GaussifyError, InvalidArgumentError
from gaussify.interop.gpytorch import MatchedClassificationLikelihood
from gaussify.likelihoods import LikelihoodMethod

METHODS = [str(method) for method in LikelihoodMethod]
EXACT = {"rtol": 0.0, "atol": 1e-9}  # of float64
DOUBLE = torch.float64


class TutorialModel(ExactGP):
    """That of GPyTorch's tutorial on Dirichlet classification: one process for each class, in a batch."""

    def __init__(self, train_x, train_y, likelihood, num_classes):
        super().__init__(train_x, train_y, likelihood)
        shape = torch.Size((num_classes,))
        self.mean_module = ConstantMean(batch_shape=shape)
        self.covar_module = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train(x, likelihood, steps=50) -> tuple[TutorialModel, list[float]]:
    """As the tutorial does, with the losses on the way."""
    model = TutorialModel(x, likelihood.transformed_targets, likelihood, num_classes=likelihood.num_classes).to(x)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective, losses = ExactMarginalLogLikelihood(likelihood, model), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(x), likelihood.transformed_targets).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    likelihood.eval()
    return model, losses


def rows_and_labels(n=60, seed=0, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    """Three sectors of a square."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.rand(n, 2, generator=generator, dtype=dtype) - 1.0
    return x, torch.where(x[:, 0] > 0.2, 2, (x[:, 1] > 0).long())


def fixed_model(x, y, n_classes=4, dtype=DOUBLE, **options) -> TutorialModel:
    """One whose hyperparameters differ between classes and not with the data."""
    likelihood = MatchedClassificationLikelihood(y, n_classes=n_classes, dtype=dtype, **options)
    model = TutorialModel(x, likelihood.transformed_targets, likelihood, n_classes).to(dtype)
    scale = torch.arange(1.0, n_classes + 1.0, dtype=dtype)
    model.mean_module.constant.data = -scale
    model.covar_module.outputscale = 2.0 * scale
    model.covar_module.base_kernel.lengthscale = (0.3 + 0.1 * scale)[:, None, None]
    if likelihood.second_noise_covar is not None:
        likelihood.second_noise = (0.5 * scale)[:, None] if likelihood.second_noise.ndim == 2 else scale[:1]
    return model.eval()


@pytest.fixture
def _no_type_checks(monkeypatch):
    """As for users: the tests' check of annotations would refuse an argument before gaussify does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


# ---------------------------------------------------------------------------------------------------------------------
# In the place of GPyTorch's


@pytest.mark.filterwarnings("ignore:A not p.d.")  # of GPyTorch, as it draws samples
@pytest.mark.parametrize("method", METHODS)
def test_the_tutorial_model_learns_by_every_method(method):
    x, y = rows_and_labels()
    test_x, test_y = rows_and_labels(200, seed=1)
    likelihood = MatchedClassificationLikelihood(y, n_classes=3, method=method, learn_additional_noise=True)
    model, losses = train(x, likelihood)
    assert losses[-1] < losses[0]
    with settings.fast_pred_var(), torch.no_grad():
        latents = model(test_x)
    torch.manual_seed(0)
    sampled = latents.sample(torch.Size((1000,))).softmax(-2).mean(0)  # (c, n), as in the tutorial
    probs = likelihood.predict_proba(latents)
    for predicted in (latents.loc.argmax(0), sampled.argmax(0), probs.argmax(1)):
        assert (predicted == test_y).float().mean() > 0.85
    assert_close(sampled.T, probs, rtol=0, atol=0.08)  # samples are this rough


@pytest.mark.parametrize("learn_additional_noise", [False, True])
def test_moment_ori_learns_exactly_as_gpytorchs_does(learn_additional_noise):
    x, y = rows_and_labels(dtype=DOUBLE)
    theirs = DirichletClassificationLikelihood(y, 0.05, learn_additional_noise, dtype=DOUBLE).double()
    options = {"method": "moment-ori", "alpha_eps": 0.05, "learn_additional_noise": learn_additional_noise}
    ours = MatchedClassificationLikelihood(y, n_classes=3, dtype=DOUBLE, **options)
    (their_model, their_losses), (our_model, our_losses) = train(x, theirs), train(x, ours)
    test_x, _ = rows_and_labels(30, seed=1, dtype=DOUBLE)
    assert our_losses == pytest.approx(their_losses, rel=1e-6)
    assert_close(our_model(test_x).mean, their_model(test_x).mean, rtol=0, atol=1e-5)
    assert_close(our_model(test_x).variance, their_model(test_x).variance, rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha_eps", [1e-4, 0.01, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_moment_ori_gives_the_targets_and_noise_of_gpytorch(alpha_eps, dtype):
    _, y = rows_and_labels()
    theirs = DirichletClassificationLikelihood(y, alpha_epsilon=alpha_eps, dtype=dtype)
    ours = MatchedClassificationLikelihood(y, n_classes=3, method="moment-ori", alpha_eps=alpha_eps, dtype=dtype)
    tolerance = EXACT if dtype is DOUBLE else {"rtol": 1e-6, "atol": 1e-6}
    assert_close(ours.transformed_targets, theirs.transformed_targets, **tolerance)
    assert_close(ours.noise, theirs.noise, **tolerance)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "moment-ori"])
def test_the_comparison_with_gpytorch_can_fail(method):
    _, y = rows_and_labels()
    theirs = DirichletClassificationLikelihood(y, alpha_epsilon=0.1)
    ours = MatchedClassificationLikelihood(y, n_classes=3, method=method, alpha_eps=0.1)
    assert (ours.transformed_targets - theirs.transformed_targets).abs().max() > 1e-2


# ---------------------------------------------------------------------------------------------------------------------
# Targets


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha_eps", [0.05, [0.05, 0.2, 0.4]], ids=["one", "one per class"])
def test_targets_and_noise_are_those_of_the_softmax_likelihood_unrounded(method, alpha_eps):
    _, y = rows_and_labels()
    ours = MatchedClassificationLikelihood(y, n_classes=3, method=method, alpha_eps=alpha_eps, dtype=DOUBLE)
    expected = SoftmaxLikelihood(3, torch.tensor(alpha_eps, dtype=DOUBLE), method).encode(y)
    assert_close(ours.transformed_targets, expected.mean.T, rtol=0, atol=0)
    assert_close(ours.noise, expected.variance.T, rtol=0, atol=0)


def test_least_squares_takes_one_hot_labels_of_the_given_variance():
    ours = MatchedClassificationLikelihood([1, 0], n_classes=3, method="gauss", label_variance=0.25)
    assert ours.transformed_targets.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    assert ours.noise.unique().tolist() == [0.25]


def test_counts_and_soft_labels_are_targets_too():
    counts = torch.tensor([[3.0, 0.0, 1.0], [0.2, 0.7, 0.1]], dtype=DOUBLE)
    ours = MatchedClassificationLikelihood(counts, n_classes=3, dtype=DOUBLE)
    expected = SoftmaxLikelihood(3).encode(counts)
    assert_close(ours.transformed_targets, expected.mean.T, **EXACT)
    assert_close(ours.noise, expected.variance.T, **EXACT)


@pytest.mark.parametrize(
    "labels", [[0, 2, 1], torch.tensor([0, 2, 1], dtype=torch.int8), torch.tensor([0.0, 2.0, 1.0])]
)
def test_labels_may_be_of_any_integer_kind(labels):
    ours = MatchedClassificationLikelihood(labels, n_classes=3)
    assert ours.transformed_targets.argmax(0).tolist() == [0, 2, 1]


def test_classes_that_are_absent_keep_their_place():
    x, _ = rows_and_labels()
    y = (x[:, 0] > 0).long() + 1  # neither the first nor the last two
    likelihood = MatchedClassificationLikelihood(y, n_classes=5)
    assert DirichletClassificationLikelihood(y).num_classes == 3  # which is what happens otherwise
    assert likelihood.n_classes == likelihood.num_classes == 5
    assert likelihood.transformed_targets.shape == likelihood.noise.shape == (5, len(y))
    model, _ = train(x, likelihood, steps=20)
    with torch.no_grad():
        probs = likelihood.predict_proba(model(x + 0.01))
    assert probs.shape == (len(y), 5)
    assert set(probs.argmax(1).tolist()) == {1, 2}


@pytest.mark.parametrize("dtype", [None, torch.float32, DOUBLE], ids=str)
def test_all_numbers_are_of_the_dtype(dtype):
    ours = MatchedClassificationLikelihood([0, 1], n_classes=2, learn_additional_noise=True, dtype=dtype)
    numbers = [ours.transformed_targets, ours.noise, ours.second_noise, *ours.parameters(), *ours.encode([1])]
    assert {number.dtype for number in numbers} == {dtype or torch.get_default_dtype()}


def test_new_targets_follow_a_change_of_dtype():
    ours = MatchedClassificationLikelihood([0, 1], n_classes=2, learn_additional_noise=True).double()
    numbers = [ours.transformed_targets, ours.noise, *ours.parameters(), *ours.encode([1])]
    assert {number.dtype for number in numbers} == {DOUBLE}


# ---------------------------------------------------------------------------------------------------------------------
# New targets


def test_alpha_eps_is_kept_when_new_targets_come_where_gpytorch_forgets_it():
    y, new = torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1, 2, 1])
    latents = MultivariateNormal(torch.zeros(3, 5), torch.eye(5).expand(3, 5, 5))
    ours = MatchedClassificationLikelihood(y, n_classes=3, method="moment-ori", alpha_eps=0.3)
    theirs = DirichletClassificationLikelihood(y, alpha_epsilon=0.3)
    expected = SoftmaxLikelihood(3, 0.3, "moment-ori").encode(new).variance.T + 1.0
    assert_close(ours(latents, targets=new).variance, expected)
    assert (theirs(latents, targets=new).variance - expected).abs().max() > 1.0


@pytest.mark.parametrize("method", METHODS)
def test_new_targets_are_encoded_as_the_first_ones_though_some_classes_lack(method):
    y = torch.tensor([0, 1, 2, 1])
    ours = MatchedClassificationLikelihood(y, n_classes=3, method=method, alpha_eps=[0.3, 0.1, 0.7], label_variance=2.0)
    mean, noise = ours.encode([1])
    assert_close(mean, ours.transformed_targets[:, [1]], rtol=0, atol=0)
    assert_close(noise, ours.noise[:, [1]], rtol=0, atol=0)
    more = ours.get_fantasy_likelihood(targets=y[:2])
    assert_close(more.transformed_targets, ours.transformed_targets[:, [0, 1, 2, 3, 0, 1]], rtol=0, atol=0)
    assert_close(more.noise, ours.noise[:, [0, 1, 2, 3, 0, 1]], rtol=0, atol=0)
    assert ours.noise.shape == (3, 4)


def test_alpha_eps_is_the_likelihoods_own():
    alpha = torch.tensor([0.1, 0.2], requires_grad=True)
    ours = MatchedClassificationLikelihood([0, 1], n_classes=2, alpha_eps=alpha * 1.0)
    given = torch.tensor([0.1, 0.2], dtype=DOUBLE)
    same = MatchedClassificationLikelihood([0, 1], n_classes=2, alpha_eps=given)
    before = same.encode([0])
    given.fill_(5.0)
    assert_close(same.encode([0]), before, rtol=0, atol=0)
    assert_close(deepcopy(ours).encode([0]), before)  # copies, which what has a graph does not
    assert not ours.transformed_targets.requires_grad
    assert_close(ours.alpha_eps.tolist(), [0.1, 0.2], rtol=1e-6, atol=0)
    assert ours.method == "variational"


@pytest.mark.parametrize("batch_shape", [None, torch.Size()], ids=["one per class", "shared"])
def test_new_targets_get_the_additional_noise_once(batch_shape):
    options = {"learn_additional_noise": True, "batch_shape": batch_shape, "dtype": DOUBLE}
    model = fixed_model(*rows_and_labels(dtype=DOUBLE), **options)
    likelihood, (mean, noise) = model.likelihood, model.likelihood.encode([2, 0])
    latents = MultivariateNormal(torch.zeros(4, 2, dtype=DOUBLE), torch.eye(2, dtype=DOUBLE).expand(4, 2, 2))
    expected = noise + likelihood.second_noise
    assert likelihood.second_noise.numel() == (4 if batch_shape is None else 1)
    for new in ({"targets": [2, 0]}, {"noise": noise}):
        assert_close(likelihood(latents, **new).variance, expected + 1.0, **EXACT)
        assert_close(likelihood(mean, **new).variance, expected, **EXACT)
    expected_log_prob = likelihood.expected_log_prob(mean, latents, noise=noise)
    assert_close(expected_log_prob, -0.5 * ((mean**2 + 1.0) / expected + (2.0 * torch.pi * expected).log()), **EXACT)


# ---------------------------------------------------------------------------------------------------------------------
# Fantasies


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "fast_pred_var"])
@pytest.mark.parametrize(
    "options",
    [{}, {"learn_additional_noise": True}, {"learn_additional_noise": True, "batch_shape": torch.Size()}],
    ids=["fixed", "noise per class", "shared noise"],
)
@pytest.mark.parametrize("method", ["variational", "moment-ori"])
def test_fantasy_updates_match_a_model_given_all_rows_twice_in_a_row(method, options, fast):
    (x, y), (test_x, _) = rows_and_labels(40, dtype=DOUBLE), rows_and_labels(7, seed=1, dtype=DOUBLE)
    options = {"method": method, "alpha_eps": 0.3, **options}
    with settings.fast_pred_var(fast), torch.no_grad():
        model = fixed_model(x[:25], y[:25], **options)
        before = model(test_x).mean
        once = model.likelihood.get_fantasy_model(model, x[25:33], y[25:33])
        twice = once.likelihood.get_fantasy_model(once, x[33:], y[33:])
        for grown, n in ((once, 33), (twice, 40)):
            found, expected = grown(test_x), fixed_model(x[:n], y[:n], **options)(test_x)
            assert_close(found.mean, expected.mean, **EXACT)
            assert_close(found.covariance_matrix, expected.covariance_matrix, **EXACT)
            assert_close(grown.likelihood.predict_proba(found), model.likelihood.predict_proba(expected), **EXACT)
        assert (before - twice(test_x).mean).abs().max() > 0.1
        assert_close(model(test_x).mean, before, rtol=0, atol=0)


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "fast_pred_var"])
def test_gpytorchs_own_method_takes_what_encode_gives(fast):
    (x, y), (test_x, _) = rows_and_labels(40, dtype=DOUBLE), rows_and_labels(7, seed=1, dtype=DOUBLE)
    with settings.fast_pred_var(fast), torch.no_grad():
        model = fixed_model(x[:25], y[:25], learn_additional_noise=True)
        model(test_x)
        targets, noise = model.likelihood.encode(y[25:])
        found = model.get_fantasy_model(x[25:].expand(4, 15, 2), targets, noise=noise)
        expected = fixed_model(x, y, learn_additional_noise=True)
        assert_close(found(test_x).mean, expected(test_x).mean, **EXACT)
        assert_close(found(test_x).variance, expected(test_x).variance, **EXACT)
    assert_close(found.train_targets, expected.likelihood.transformed_targets, rtol=0, atol=0)
    with pytest.raises(GaussifyError, match="train_targets"):
        _ = found.likelihood.transformed_targets  # GPyTorch tells the likelihood of nothing but the noise


def test_gpytorchs_likelihood_cannot_be_grown():
    x, y = rows_and_labels(40)
    likelihood = DirichletClassificationLikelihood(y)
    model = TutorialModel(x, likelihood.transformed_targets, likelihood, 3).eval()
    model(x[:1])
    with pytest.raises(RuntimeError, match="targets"):
        model.get_fantasy_model(x[:5].expand(3, 5, 2), likelihood.transformed_targets[:, :5], noise=y[:5])


@pytest.mark.parametrize("shape", ["row", "matrix", "batch"])
def test_fantasy_inputs_may_be_of_any_shape_the_model_takes(shape):
    (x, y), test_x = rows_and_labels(20, dtype=DOUBLE), torch.linspace(-1, 1, 5, dtype=DOUBLE)
    x = x[:, 0]
    new = {"row": x[12:], "matrix": x[12:, None], "batch": x[12:, None].expand(4, 8, 1)}[shape]
    with torch.no_grad():
        model = fixed_model(x[:12], y[:12])
        model(test_x)
        found = model.likelihood.get_fantasy_model(model, new, y[12:])
        assert_close(found(test_x).mean, fixed_model(x, y)(test_x).mean, **EXACT)


def test_fantasies_bring_counts_and_classes_that_were_absent():
    x, y = rows_and_labels(40, dtype=DOUBLE)
    first, new = y < 2, y == 2
    counts = 2.0 * torch.nn.functional.one_hot(y, 4)
    every = torch.cat([counts[first] / 2.0, counts[new]])
    with torch.no_grad():
        model = fixed_model(x[first], y[first])
        model(x[:1])
        found = model.likelihood.get_fantasy_model(model, x[new], counts[new])
        expected = fixed_model(torch.cat([x[first], x[new]]), every)(x[::2] + 0.1)
        assert_close(found(x[::2] + 0.1).mean, expected.mean, **EXACT)
        assert (found.likelihood.predict_proba(found(x[new] + 0.01)).argmax(1) == 2).all()


def test_training_goes_on_after_a_fantasy():
    x, y = rows_and_labels(40, dtype=DOUBLE)
    model = fixed_model(x[:25], y[:25], learn_additional_noise=True)
    model(x[:1])
    grown, full = (
        model.likelihood.get_fantasy_model(model, x[25:], y[25:]),
        fixed_model(x, y, learn_additional_noise=True),
    )
    losses = []
    for each in (grown, full):
        each.train()
        objective = ExactMarginalLogLikelihood(each.likelihood, each)
        losses.append(objective(each(*each.train_inputs), each.likelihood.transformed_targets).sum())
        losses[-1].backward()
    assert_close(losses[0], losses[1], **EXACT)
    for (name, ours), (_, expected) in zip(grown.named_parameters(), full.named_parameters(), strict=True):
        assert_close(ours.grad, expected.grad, **EXACT, msg=name)
    assert all(parameter.grad is None for parameter in model.parameters())


# ---------------------------------------------------------------------------------------------------------------------
# Probabilities


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("predictive", ["quadrature", "mean-field"])
def test_probabilities_are_those_of_the_softmax_likelihood_given_the_latents(method, predictive):
    x, y = rows_and_labels(dtype=DOUBLE)
    test_x, _ = rows_and_labels(11, seed=1, dtype=DOUBLE)
    model = fixed_model(x, y, method=method)
    with torch.no_grad():
        latents = model(test_x)
        probs = model.likelihood.predict_proba(latents, predictive)
    assert probs.shape == (11, 4)
    assert_close(probs.sum(1), torch.ones(11, dtype=DOUBLE), **EXACT)
    expected = SoftmaxLikelihood(4, method=method).predict_proba(latents.mean.T, latents.variance.T, predictive)
    assert_close(probs, expected, rtol=0, atol=0)


def test_probabilities_agree_with_samples_of_the_latents():
    x, y = rows_and_labels(dtype=DOUBLE)
    model = fixed_model(x, y)
    with torch.no_grad():
        latents = model(x[:9] + 0.2)
        torch.manual_seed(0)
        sampled = latents.sample(torch.Size((20000,))).softmax(-2).mean(0).T
        assert_close(model.likelihood.predict_proba(latents), sampled, rtol=0, atol=0.02)


def test_probabilities_of_a_batch_of_models_keep_its_shape():
    mean = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    likelihood = MatchedClassificationLikelihood([0], n_classes=3)
    covariance = torch.eye(5).expand(2, 3, 5, 5)
    probs = likelihood.predict_proba(MultivariateNormal(mean, covariance))
    assert probs.shape == (2, 5, 3)
    assert_close(probs[1], likelihood.predict_proba(MultivariateNormal(mean[1], covariance[1])))


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize(
    ("latents", "came"),
    [
        (torch.zeros(3, 5), "Tensor"),
        (MultivariateNormal(torch.zeros(5), torch.eye(5)), r"MultivariateNormal of batch shape \(\)"),
        (MultivariateNormal(torch.zeros(2, 5), torch.eye(5).expand(2, 5, 5)), r"of batch shape \(2,\)"),
        (MultitaskMultivariateNormal(torch.zeros(3, 3), torch.eye(9)), r"Multitask.* of batch shape \(\)"),
    ],
    ids=["tensor", "no batch", "two classes", "multitask"],
)
def test_latents_of_another_kind_are_refused(latents, came):
    likelihood = MatchedClassificationLikelihood([0], n_classes=3)
    with pytest.raises(InvalidArgumentError, match=f"batch shape ends in 3.*; got .*{came}"):
        likelihood.predict_proba(latents)


# ---------------------------------------------------------------------------------------------------------------------
# A module like others


@pytest.mark.parametrize("copied", [deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_is_the_same_and_its_own(copied):
    ours = fixed_model(*rows_and_labels(), learn_additional_noise=True, alpha_eps=0.3).likelihood
    twin = copied(ours)
    for one, other in ((twin.noise, ours.noise), (twin.transformed_targets, ours.transformed_targets)):
        assert_close(one, other, rtol=0, atol=0)
    assert_close(twin.encode([1]), ours.encode([1]), rtol=0, atol=0)
    twin.second_noise = 7.0
    assert (ours.second_noise < 3.0).all()


def test_a_trained_model_can_be_copied():
    x, y = rows_and_labels()
    model, _ = train(x, MatchedClassificationLikelihood(y, n_classes=3), steps=3)
    expected = model(x[:4] + 0.1).mean
    assert_close(deepcopy(model)(x[:4] + 0.1).mean, expected)


def test_what_is_learnt_can_be_loaded_next_to_other_data():
    x, y = rows_and_labels(dtype=DOUBLE)
    likelihood = MatchedClassificationLikelihood(y, n_classes=3, learn_additional_noise=True, dtype=DOUBLE)
    model, _ = train(x, likelihood, steps=5)
    assert set(likelihood.state_dict()) == {
        "second_noise_covar.raw_noise",
        "second_noise_covar.raw_noise_constraint.lower_bound",
        "second_noise_covar.raw_noise_constraint.upper_bound",
    }
    for n in (len(y), 20):
        fresh = MatchedClassificationLikelihood(y[:n], n_classes=3, learn_additional_noise=True, dtype=DOUBLE)
        twin = TutorialModel(x[:n], fresh.transformed_targets, fresh, 3).to(x)
        twin.load_state_dict(model.state_dict())
        assert_close(fresh.second_noise, likelihood.second_noise, rtol=0, atol=0)
        if n == len(y):
            assert_close(twin.eval()(x[:5] + 0.1).mean, model(x[:5] + 0.1).mean, **EXACT)


def test_the_additional_noise_is_learnt_within_its_constraint():
    x, y = rows_and_labels()
    options = {"learn_additional_noise": True, "noise_constraint": GreaterThan(2.0)}
    likelihood = MatchedClassificationLikelihood(y, n_classes=3, **options)
    before = likelihood.second_noise.detach().clone()
    train(x, likelihood, steps=5)
    assert (likelihood.second_noise > 2.0).all()
    assert not torch.equal(likelihood.second_noise, before)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused

BAD_TARGETS = [
    pytest.param([0, 3], "integers from 0 to 2; got 3 at index 1", id="beyond n_classes"),
    pytest.param([0, -1], "integers from 0 to 2; got -1 at index 1", id="negative"),
    pytest.param(torch.tensor([0.0, 0.5]), "integers from 0 to 2; got 0.5 at index 1", id="fraction"),
    pytest.param(torch.tensor([0.0, torch.nan]), "integers from 0 to 2; got nan", id="nan"),
    pytest.param(torch.zeros(4, 1, dtype=torch.long), "must have 3 columns", id="a column"),
    pytest.param(torch.zeros(4, 2), "must have 3 columns", id="counts of two classes"),
    pytest.param(torch.zeros(2, 4, 3), "shape", id="three dimensions"),
    pytest.param(torch.tensor(1), "shape", id="a number"),
    pytest.param(["a", "b"], "must be numbers", id="text"),
]


@pytest.mark.parametrize(("targets", "message"), BAD_TARGETS)
def test_bad_targets_are_refused_wherever_they_come(targets, message):
    likelihood = MatchedClassificationLikelihood([0, 1, 2, 2], n_classes=3)
    latents = MultivariateNormal(torch.zeros(3, 2), torch.eye(2).expand(3, 2, 2))
    for use in (
        lambda: MatchedClassificationLikelihood(targets, n_classes=3),
        lambda: likelihood.encode(targets),
        lambda: likelihood.get_fantasy_likelihood(targets=targets),
        lambda: likelihood(latents, targets=targets),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            use()


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("n_classes", 1, "at least 2; got 1"),
        ("n_classes", 2.5, "at least 2; got 2.5"),
        ("n_classes", None, "at least 2; got None"),
        ("alpha_eps", float("nan"), "must be finite; got nan"),
        ("alpha_eps", float("inf"), "must be finite; got inf"),
        ("alpha_eps", 0.0, "must be positive; got 0"),
        ("alpha_eps", -0.1, "must be positive; got -0.1"),
        ("alpha_eps", [0.1, 0.2], "vector of length 3; got shape"),
        ("alpha_eps", "auto", "must be numbers; got 'auto'"),
        ("method", "laplce", "must be one of 'laplace', .*; got 'laplce'"),
        ("method", None, "must be one of 'laplace', .*; got None"),
        ("label_variance", 0.0, "must be positive; got 0"),
    ],
)
def test_bad_options_are_refused(option, value, message):
    with pytest.raises(InvalidArgumentError, match=f"'{option}' .*{message}"):
        MatchedClassificationLikelihood([0, 1, 2], **{"n_classes": 3, option: value})


def test_the_number_of_classes_is_never_guessed():
    with pytest.raises(TypeError, match="n_classes"):
        MatchedClassificationLikelihood([0, 1, 2])


def test_options_of_other_names_are_refused():
    with pytest.raises(TypeError, match="alpha_epsilon"):
        MatchedClassificationLikelihood([0, 1], n_classes=2, alpha_epsilon=0.01)


def test_a_fantasy_needs_either_targets_or_noise():
    likelihood = MatchedClassificationLikelihood([0, 1], n_classes=2)
    for both in ({}, {"targets": [0], "noise": torch.ones(2, 1)}):
        with pytest.raises(InvalidArgumentError, match="either 'targets' or 'noise'"):
            likelihood.get_fantasy_likelihood(**both)


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (torch.ones(3), "at least 2 dimensions"),
        (torch.ones(3, 4), r"shape \(..., 2, m\).*; got shape \(3, 4\)"),
        (-torch.ones(2, 3), "at least 0; got -1"),
        (torch.full((2, 3), torch.nan), "must be finite; got nan"),
    ],
    ids=["one row", "three classes", "negative", "nan"],
)
def test_noise_of_another_kind_is_refused(noise, message):
    likelihood = MatchedClassificationLikelihood([0, 1], n_classes=2)
    with pytest.raises(InvalidArgumentError, match=f"'noise' of .*{message}"):
        likelihood.get_fantasy_likelihood(noise=noise)


def test_fantasy_rows_and_labels_must_be_as_many():
    x, y = rows_and_labels(20, dtype=DOUBLE)
    model = fixed_model(x, y)
    model(x[:1])
    with pytest.raises(InvalidArgumentError, match="got inputs: 5, targets: 4"):
        model.likelihood.get_fantasy_model(model, x[:5], y[:4])

"""The policy: what it starts at, its normaliser, its distribution."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from q1pipe.config import PolicyCfg
from q1pipe.learn.policy import Critic, Normalizer, Policy, Shape, entropy, kl, log_prob

SHAPE = Shape(actor=9, critic=12, action=3, reference=2)
DEFAULT, SCALE = [0.1, -0.2, 0.3], [0.25, 0.5, 0.1]


def policy(**cfg: object) -> Policy:
    torch.manual_seed(0)
    return Policy(SHAPE, PolicyCfg(hidden=(16, 8), **cfg), DEFAULT, SCALE)


def test_first_action_targets_the_reference():
    obs = torch.randn(50, 9)
    target = torch.tensor(DEFAULT) + torch.tensor(SCALE) * policy()(obs).detach()
    np.testing.assert_allclose(target, obs[:, 2:5], atol=0.01)


def test_without_skip_the_first_action_is_about_zero():
    assert policy(skip=False)(torch.randn(50, 9)).abs().max() < 0.05


def test_initial_std():
    torch.testing.assert_close(policy(init_std=0.4).log_std.exp(), torch.full((3,), 0.4))


def test_observations_are_normalised_but_the_reference_is_not():
    p = policy()
    p.normalizer.update(3 + 2 * torch.randn(10_000, 9))
    x, offset = p.features(torch.full((1, 9), 3.0))
    assert x.abs().max() < 0.1
    torch.testing.assert_close(offset[0], (3 - torch.tensor(DEFAULT)) / torch.tensor(SCALE))


def test_evaluation_does_not_touch_the_normaliser():
    p = policy()
    p.normalizer.update(torch.randn(10, 9))
    before = {name: str(value) for name, value in p.state_dict().items()}
    p(torch.randn(50, 9))
    assert before == {name: str(value) for name, value in p.state_dict().items()}


@pytest.mark.parametrize("sizes", [[100], [1, 99], [30, 30, 40], [2] * 50])
def test_normaliser_equals_numpy_whatever_the_batches(sizes: list[int]):
    x = np.random.default_rng(1).normal(5, 3, (100, 4)).astype(np.float32)
    n = Normalizer(4)
    for part in np.split(x, np.cumsum(sizes)[:-1]):
        n.update(torch.from_numpy(part))
    assert n.count == 100
    np.testing.assert_allclose(n.mean, x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(n.var, x.var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(n(torch.from_numpy(x)), (x - x.mean(0)) / (x.std(0) + 0.01), atol=1e-4)


def test_normaliser_still_counts_single_rows_after_many():
    n = Normalizer(1)
    n.count = 2**24
    n.update(torch.zeros(1, 1))
    assert n.count == 2**24 + 1


def test_gaussian_against_torch():
    torch.manual_seed(3)
    mean, old_mean, action = torch.randn(3, 20, 5)
    log_std, old_log_std = 0.3 * torch.randn(2, 5)
    new = Independent(Normal(mean, log_std.exp().expand(20, 5)), 1)
    old = Independent(Normal(old_mean, old_log_std.exp().expand(20, 5)), 1)
    torch.testing.assert_close(log_prob(action, mean, log_std), new.log_prob(action))
    torch.testing.assert_close(entropy(log_std).expand(20), new.entropy())
    torch.testing.assert_close(kl(old_mean, old_log_std, mean, log_std), kl_divergence(old, new))


def test_record_rebuilds_the_same_policy():
    p = policy()
    p.normalizer.update(torch.randn(10, 9))
    again = Policy.from_record(p.record())
    obs = torch.randn(5, 9)
    assert torch.equal(p(obs), again(obs))
    assert again.normalizer.count == 10


def test_widths_come_from_the_shape():
    obs = torch.randn(4, 12)
    assert policy()(obs[:, :9]).shape == (4, 3)
    assert Critic(12, (8,))(obs).shape == (4,)

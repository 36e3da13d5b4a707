"""The policy of the workers against the one in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from q1pipe.config import PolicyCfg
from q1pipe.learn.policy import Policy, Shape
from q1pipe.sim import actor
from q1pipe.sim.actor import Explored, Net, Noise, act, parameters
from q1pipe.sim.draws import Purpose
from q1pipe.sim.randomization import uniform

SEED = np.uint64(7)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = Policy(Shape(9, 12, 3, 2), PolicyCfg(hidden=(20, 7)), [0.1, -0.2, 0.3], [0.2, 0.3, 0.4])
    policy.normalizer.update(5 + 3 * torch.randn(100, 9))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy


def explored(n, width, joints):
    """Room for what the policy did."""
    moments = np.zeros((2, n, width))
    return Explored(*(np.empty((n, w), np.float32) for w in (width, joints, joints)), moments)


def test_actions_are_those_of_the_torch_policy(policy):
    parts = {name: x.detach().numpy() for name, x in policy.parts().items()}
    assert {name: x.shape for name, x in parts.items()} == parameters(9, (20, 7), 3)
    rng = np.random.default_rng(0)
    rows, ids = 5 + 3 * rng.standard_normal((70, 12), np.float32), np.arange(70)
    apart, out = rng.standard_normal((70, 3), np.float32), explored(70, 9, 3)
    half, totals = np.float32([0, 0.5, 0, 0, 0, 2, 0, 0, 0]), np.zeros((2, 70, 9))
    for step in (4, 5):
        actions = apart.copy()
        act(Net.of(parts), Noise.of(SEED, half), ids, step, rows, 2, out, actions)
        observed = rows[:, :9].copy()
        observed[:, [1, 5]] += np.float32((2 * uniform(7, Purpose.NOISE, ids, np.full(70, step), 2) - 1) * [0.5, 2])
        totals += observed.astype(float), observed.astype(float) ** 2
    features, offsets = policy.features(torch.from_numpy(observed))
    assert (out.features == features.numpy()).all()
    np.testing.assert_allclose(out.offsets, offsets.numpy(), rtol=1e-6)
    expected = policy(torch.from_numpy(observed)).detach().numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(out.means, expected, rtol=0, atol=1e-5)
    assert (actions == apart + out.means).all()
    assert (out.moments == totals).all()


def test_elu_is_torchs():
    """Also where e^y is 0, where it is nearly 1, and beyond what fits into the bits of a power of two."""
    y = np.concatenate([np.linspace(-100, 20, 10001), [-1e30, -1e-30, 0, 1e-30, 1e30]]).astype(np.float32)
    expected = torch.nn.functional.elu(torch.from_numpy(y.copy())).numpy()
    actor._elu(y)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("hidden", [(256, 64), (512, 256, 128), (20, 7)])
def test_an_action_does_not_depend_on_the_other_environments_of_the_worker(hidden):
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(0, 0.1, shape).astype("f") for name, shape in parameters(119, hidden, 22).items()}
    obs, whole = rng.standard_normal((500, 119), np.float32), explored(500, 119, 22)
    noise, ids = Noise.of(SEED, np.full(119, 0.1, np.float32)), np.arange(500)
    act(Net.of(parts), noise, ids, 0, obs, 0, whole, np.zeros_like(whole.means))
    for rows in (slice(0, 1), slice(3, 4), slice(5, 42), slice(64, 96), slice(150, 400)):
        n = rows.stop - rows.start
        part = explored(n, 119, 22)
        act(Net.of(parts), noise, ids[rows], 0, obs[rows], 0, part, np.zeros_like(part.means))
        assert (part.means == whole.means[rows]).all(), rows

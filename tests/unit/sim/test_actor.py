"""The policy in numpy against the one in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from q1pipe.config import PolicyCfg
from q1pipe.learn.policy import Policy, Shape
from q1pipe.sim.actor import Actor, parameters


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = Policy(Shape(9, 12, 3, 2), PolicyCfg(hidden=(20, 7)), [0.1, -0.2, 0.3], [0.2, 0.3, 0.4])
    policy.normalizer.update(5 + 3 * torch.randn(100, 9))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy


def test_actions_are_those_of_the_torch_policy(policy):
    parts = {name: x.detach().numpy() for name, x in policy.parts().items()}
    assert {name: x.shape for name, x in parts.items()} == parameters(9, (20, 7), 3)
    obs, out = 5 + 3 * np.random.default_rng(0).standard_normal((70, 9), np.float32), np.empty((70, 3), np.float32)
    Actor(parts, slice(2, 5), 70).mean(obs, out)
    expected = policy(torch.from_numpy(obs)).detach().numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_an_action_does_not_depend_on_the_other_environments_of_the_worker():
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(0, 0.1, shape).astype("f") for name, shape in parameters(119, (256, 64), 22).items()}
    obs, whole = rng.standard_normal((100, 119), np.float32), np.empty((100, 22), np.float32)
    Actor(parts, slice(0, 22), 100).mean(obs, whole)
    for rows in (slice(0, 1), slice(3, 4), slice(5, 42), slice(64, 96)):
        part = np.empty((rows.stop - rows.start, 22), np.float32)
        Actor(parts, slice(0, 22), len(part)).mean(obs[rows], part)
        assert (part == whole[rows]).all(), rows

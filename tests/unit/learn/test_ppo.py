"""Losses by hand, the learning rate, and that an update goes where the advantages point."""

import math
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from q1pipe.config import PolicyCfg, PpoCfg
from q1pipe.learn.buffer import Batch
from q1pipe.learn.policy import Critic, Policy, Shape
from q1pipe.learn.ppo import Ppo, clipped_surrogate, clipped_value_loss, side_by_side, without_denormals

SHAPE = Shape(actor=4, critic=5, action=2, reference=0)


def ppo(**cfg: object) -> Ppo:
    torch.manual_seed(0)
    policy = Policy(SHAPE, PolicyCfg(hidden=(16,)), [0.0, 0.0], [1.0, 1.0])
    generator = torch.Generator().manual_seed(0)
    return Ppo(policy, Critic(5, (16,)), PpoCfg(**cfg), generator)


def batch_of(learner: Ppo, rows: int = 64) -> Batch:
    obs, critic_obs = torch.randn(rows, 4), torch.randn(rows, 5)
    policy = learner.policy
    with torch.no_grad():
        x, offset = policy.features(obs)
        means, values = policy.mean(x, offset), learner.critic.value(critic_obs)
        actions = means + policy.log_std.exp() * torch.randn(rows, 2)
        advantages = actions[:, 0] - means[:, 0]  # more of joint 0 is better
    advantages = (advantages - advantages.mean()) / advantages.std()
    log_std = policy.log_std.detach().clone()
    return Batch(x, offset, critic_obs, actions, means, values, values + 1, advantages, log_std)


def test_surrogate_by_hand():
    # A = 1: min(1.5, 1.2) = 1.2; A = -1: min(-1.5, -1.2) = -1.5
    # A = 1: min(0.5, 0.8) = 0.5; A = -1: min(-0.5, -0.8) = -0.8
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert clipped_surrogate(ratio, advantages, 0.2).item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)


def test_value_loss_by_hand():
    # old 0, return 1: value 0.5 is held at 0.2: max(0.25, 0.64) = 0.64
    # value 0.1 is inside: 0.81; value 3 is held at 0.2 too: max(4, 0.64) = 4
    values, old, returns = torch.tensor([0.5, 0.1, 3.0]), torch.zeros(3), torch.ones(3)
    assert clipped_value_loss(values, old, returns, 0.2).item() == pytest.approx((0.64 + 0.81 + 4) / 3)


@pytest.mark.parametrize(
    ("divergence", "expected"),
    [(0.021, 1e-3 / 1.5), (0.02, 1e-3), (0.01, 1e-3), (0.005, 1e-3), (0.004, 1.5e-3), (math.nan, 1e-3)],
)
def test_learning_rate_follows_kl(divergence: float, expected: float):
    learner = ppo()
    learner.adapt(divergence)
    assert learner.lr == learner.optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_learning_rate_stays_in_range():
    learner = ppo(learning_rate_range=(9e-4, 1.1e-3))
    for divergence, bound in ((1.0, 9e-4), (0.0, 1.1e-3)):
        for _ in range(3):
            learner.adapt(divergence)
        assert learner.lr == bound


@pytest.mark.parametrize("parameter", [-0.1, 3.0])
def test_std_stays_a_positive_number_whatever_its_parameter(parameter: float):
    """rsl_rl #33: where the parameter is the std itself, an update that pushes it below 0 loses the run."""
    learner = ppo(learning_rate=1.0, learning_rate_range=(1.0, 1.0), entropy=0.0)
    with torch.no_grad():
        learner.policy.log_std.fill_(parameter)
    learner.update(batch_of(learner))
    std = learner.policy.log_std.exp()
    assert ((std > 0) & torch.isfinite(std)).all()


def test_update_moves_the_mean_where_the_advantage_is_and_the_value_to_the_return():
    learner = ppo(entropy=0.0)
    batch = batch_of(learner)
    statistics = learner.update(batch)
    with torch.no_grad():
        moved = learner.policy.mean(batch.obs, batch.offset) - batch.means
        assert moved[:, 0].mean() > 0.01
        assert (learner.critic.value(batch.critic_obs) - batch.returns).abs().mean() < 1
    assert statistics.keys() == set(Ppo.STATISTICS)
    assert statistics["kl"] > 0


def test_entropy_bonus_widens_the_distribution():
    widths = []
    for bonus in (0.0, 1.0):
        learner = ppo(entropy=bonus)
        learner.update(batch_of(learner))
        widths.append(learner.policy.log_std.mean().item())
    assert widths[1] > widths[0]


def test_gradients_are_clipped_for_each_network():
    learner = ppo(epochs=1, mini_batches=1, max_grad_norm=1e-3)
    batch = batch_of(learner)
    batch.returns = batch.returns * 1e6
    learner.update(batch)
    for network in (learner.policy, learner.critic):
        norm = torch.stack([p.grad.norm() for p in network.parameters()]).norm()
        assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_update_is_reproducible_and_float32():
    states = []
    for _ in range(2):
        learner = ppo()
        learner.update(batch_of(learner))
        states.append([p.detach().clone() for p in learner.policy.parameters()])
        assert all(p.dtype == torch.float32 for p in [*learner.policy.parameters(), *learner.critic.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("fails", ["", "here", "there"])
def test_two_things_share_the_cores_and_leave_them_as_they_were(four_threads: None, fails: str):
    def there() -> int:
        if fails == "there":
            raise RuntimeError(fails)
        return torch.get_num_threads()

    with suppress(RuntimeError), side_by_side(torch.device("cpu")) as beside:
        other = beside(there)
        assert torch.get_num_threads() == 2
        if fails == "here":
            raise RuntimeError(fails)
        assert other() == 2
        assert not fails
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("bf16", [False, True])
def test_side_by_side_or_one_after_the_other_an_update_is_the_same(four_threads: None, bf16: bool):
    learned = []
    for threads in (1, 2):  # with one, nothing is beside anything
        torch.set_num_threads(threads)
        learner = ppo(epochs=2, mini_batches=2)
        learner.bf16 = bf16
        losses = learner.update(batch_of(learner))
        parameters = [*learner.policy.parameters(), *learner.critic.parameters()]
        learned.append([losses, *(x.detach().clone() for x in parameters)])
    assert learned[0][0] == learned[1][0]
    assert all(torch.equal(a, b) for a, b in zip(learned[0][1:], learned[1][1:], strict=True))


def test_updates_do_not_compute_with_what_is_nearly_nothing(four_threads: None):
    tiny, one = torch.tensor([1e-40]), torch.ones(1)
    with without_denormals(), side_by_side(torch.device("cpu")) as beside:
        assert (tiny * one).item() == beside(torch.mul, tiny, one)().item() == 0
    assert (tiny * one).item() > 0

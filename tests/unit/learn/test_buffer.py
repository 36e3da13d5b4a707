"""Advantages worked by hand."""

import torch

from q1pipe.learn.buffer import Rollout, gae
from q1pipe.learn.policy import Critic, Shape

GAMMA, LAM = 0.5, 0.5


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def test_gae_of_an_episode_that_goes_on():
    # delta_1 = 3 + 0.5*8 - 4 = 3          A_1 = 3
    # delta_0 = 1 + 0.5*4 - 2 = 1          A_0 = 1 + 0.25*3 = 1.75
    a = gae(column(1, 3), column(2, 4, 8), column(0, 0), column(0, 0), column(9, 9), GAMMA, LAM)
    torch.testing.assert_close(a, column(1.75, 3))


def test_gae_stops_at_a_termination():
    # delta_2 = 5 + 0.5*6 - 8 = 0          A_2 = 0
    # delta_1 = 3 + 0 - 4 = -1             A_1 = -1 (the value 8 belongs to the next episode)
    # delta_0 = 1 + 0.5*4 - 2 = 1          A_0 = 1 + 0.25*(-1) = 0.75
    a = gae(column(1, 3, 5), column(2, 4, 8, 6), column(0, 1, 0), column(0, 0, 0), column(9, 9, 9), GAMMA, LAM)
    torch.testing.assert_close(a, column(0.75, -1, 0))


def test_gae_bootstraps_a_truncation_with_the_true_final_value():
    # delta_1 = 3 + 0.5*10 - 4 = 4         A_1 = 4 (10, not the next episode's 8; and nothing of A_2)
    # delta_0 = 1 + 0.5*4 - 2 = 1          A_0 = 1 + 0.25*4 = 2
    a = gae(column(1, 3, 5), column(2, 4, 8, 6), column(0, 0, 0), column(0, 1, 0), column(0, 10, 0), GAMMA, LAM)
    torch.testing.assert_close(a, column(2, 4, 0))


def test_gae_keeps_environments_apart():
    rewards, values = torch.rand(4, 3), torch.rand(5, 3)
    ends = torch.tensor([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float32)
    zero = torch.zeros(4, 3)
    together = gae(rewards, values, ends, zero, zero, GAMMA, LAM)
    for n in range(3):
        one = slice(n, n + 1)
        alone = gae(rewards[:, one], values[:, one], ends[:, one], zero[:, one], zero[:, one], GAMMA, LAM)
        torch.testing.assert_close(together[:, one], alone)


def test_batch_multiplies_rewards_by_dt_and_gives_the_final_observation_to_its_own_step():
    torch.manual_seed(0)
    shape = Shape(actor=2, critic=3, action=1, reference=0)
    rollout, critic = Rollout.empty(2, 2, shape, torch.device("cpu")), Critic(3, (4,))
    rollout.rows.copy_(torch.rand(3, 2, 6))
    rollout.rows[1:, :, 4:] = 0
    rollout.rows[2, 1, 5] = 1  # step 1 of environment 1 was cut off: flat index 1·2 + 1
    final = torch.rand(1, 3)
    features = torch.zeros(2, 2, 2), torch.zeros(2, 2, 1)
    batch = rollout.batch(features, critic, torch.zeros(1), (final, torch.tensor([3])), dt=0.1, gamma=GAMMA, lam=LAM)

    values = critic(rollout.rows[..., :3]).detach()
    reward = rollout.rows[1:, :, 3] * 0.1
    after = torch.stack([values[2, 0], critic(final)[0].detach()])
    last = reward[1] + GAMMA * after - values[1]
    first = reward[0] + GAMMA * values[1] - values[0] + GAMMA * LAM * last
    advantages = torch.stack([first, last])
    torch.testing.assert_close(batch.returns, (advantages + values[:2]).reshape(-1))
    standard = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    torch.testing.assert_close(batch.advantages, standard.reshape(-1))
    assert critic.normalizer.count == 4  # the rows that actions were chosen on; the last one is the next iteration's

"""The work of the learner contest: one batch of made-up samples of G1's widths, for PPO's update alone."""

OBS, ACTIONS = 154, 29  # both networks see the same: stable-baselines3 has one observation for them
STD, CLIP, ENTROPY, MAX_GRAD_NORM = 0.5, 0.2, 0.005, 1.0

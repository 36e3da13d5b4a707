"""The learner: torch, and never mujoco."""

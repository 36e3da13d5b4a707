"""Every setting, once: models (keys, defaults, bounds), Settings (merging, checking, what a stage goes by).

Cheap to import (no numpy, torch or mujoco), because the Snakefile reads it whenever it is parsed.
"""

from q1pipe.config.layers import Layer, merged, of_arguments, of_file
from q1pipe.config.models import (
    Config,
    DeviceCfg,
    EvaluateCfg,
    ExportCfg,
    MotionCfg,
    NoiseCfg,
    PackageCfg,
    PolicyCfg,
    PpoCfg,
    RandomizationCfg,
    ReportCfg,
    ResetCfg,
    RewardCfg,
    RewardTerm,
    RobotCfg,
    SafetyCfg,
    Section,
    Sections,
    Sim2simCfg,
    SmokeCfg,
    TerminationCfg,
    TrainCfg,
    VideoCfg,
)
from q1pipe.config.settings import Settings, load_settings, settings_of
from q1pipe.config.workers import workers_for

__all__ = [
    "Config",
    "DeviceCfg",
    "EvaluateCfg",
    "ExportCfg",
    "Layer",
    "MotionCfg",
    "NoiseCfg",
    "PackageCfg",
    "PolicyCfg",
    "PpoCfg",
    "RandomizationCfg",
    "ReportCfg",
    "ResetCfg",
    "RewardCfg",
    "RewardTerm",
    "RobotCfg",
    "SafetyCfg",
    "Section",
    "Sections",
    "Settings",
    "Sim2simCfg",
    "SmokeCfg",
    "TerminationCfg",
    "TrainCfg",
    "VideoCfg",
    "load_settings",
    "merged",
    "of_arguments",
    "of_file",
    "settings_of",
    "workers_for",
]

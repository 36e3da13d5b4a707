"""Every configuration key, once, as pydantic models: default, bounds, and what it means.

Lengths are metres, angles radians, times seconds, torques N·m unless a key says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("is [low, high] with low <= high")
    return pair


def _without_null(named: Any) -> Any:
    return {k: v for k, v in named.items() if v is not None} if isinstance(named, dict) else named


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
ByName = Annotated[dict[str, Positive], BeforeValidator(_without_null)]  # an overlay removes a name by giving it null

SIDES = ("left", "right")


def _both(*stems: str) -> tuple[str, ...]:
    return tuple(f"{side}_{stem}_link" for stem in stems for side in SIDES)


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, numeric text is a number (YAML 1.1 reads 1e-3 as text)."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_default(cls, value: Any) -> Any:
        return {} if value is None else value


class RobotCfg(Section):
    """The robot: an MJCF and the names the task needs. `Q1_XML` in the environment overrides `xml`."""

    xml: str | None = Field(None, description="MJCF file; none: the PrimeBot Q1 stand-in that ships with q1pipe")
    root: str = Field("pelvis", description="floating base body")
    anchor: str = Field("torso_link", description="body that the reference is aligned to")
    tracked: tuple[str, ...] = Field(
        ("pelvis", "torso_link", *_both("hip_roll", "knee", "ankle_roll", "shoulder_roll", "elbow")),
        description="bodies whose pose and velocity are rewarded",
    )
    end_effectors: tuple[str, ...] = Field(
        _both("ankle_roll", "elbow"), description="bodies of the end-effector metrics"
    )
    feet: tuple[str, ...] = Field(_both("ankle_roll"), description="bodies whose geoms get the randomised friction")
    imu: str = Field("imu", description="site of the gyroscope; added at the root's origin when the MJCF has none")
    default_keyframe: str = Field("stand", description="keyframe of the default pose; zero pose when the MJCF has none")
    effort: ByName = Field(
        {}, description="N·m by joint-name pattern (* matches all), for MJCFs without position actuators"
    )
    armature: ByName = Field({}, description="kg·m² by joint-name pattern, where the MJCF has none")
    natural_frequency: Positive = Field(10.0, description="Hz, of derived gains: stiffness = armature·(2πf)²")
    damping_ratio: Positive = Field(2.0, description="ζ of derived gains: damping = 2ζ·armature·2πf")
    action_scale: Positive = Field(0.25, description="× effort / stiffness = rad per unit of action")
    soft_limit: Share = Field(0.9, description="share of each joint's range, about its middle, that is free of penalty")


class MotionCfg(Section):
    """Stage 1: how a motion file is read, what of it is used, and what makes it worth training on."""

    fps: Annotated[float, Field(ge=5, le=500)] | None = Field(None, description="frames per second; none: the file's")
    csv_quat: str = Field("xyzw", pattern="^(xyzw|wxyz)$", description="root quaternion of a CSV without header")
    up_axis: str = Field("auto", pattern="^(auto|y|z)$", description="auto: z, and an error where it looks like y")
    trust: str = Field("none", pattern="^(none|fps|velocity)$", description="where fps and velocities disagree")
    drop_joints: tuple[str, ...] = Field((), description="joints of the file that the robot lacks: names, or columns")
    allow_penetration: bool = Field(False, description="a clip deep in the floor is a warning instead of an error")
    allow_jumps: bool = Field(False, description="a lasting jump is kept, and no episode crosses it")
    strict: bool = Field(False, description="repairs are errors")
    frames: tuple[Annotated[int, Field(ge=0)], int] | None = Field(None, description="first and last frame used")
    speed: Annotated[float, Field(ge=0.05, le=20)] = Field(1.0, description="× the recorded speed")
    mirror: bool = Field(False, description="left and right exchanged")
    lead_in: Annotated[float, Field(ge=0, le=60)] = Field(0.0, description="s, blend from the robot's stand or lying")
    hold_out: Annotated[float, Field(ge=0, le=60)] = Field(0.0, description="s, the last pose held")
    hold_seconds: Annotated[float, Field(ge=0, le=60)] = Field(0.0, description="s, a pose of one frame held")
    max_body_error: Positive = Field(0.01, description="m, stored body positions against forward kinematics")
    max_support_gap: NonNegative = Field(0.03, description="m, CoM outside the support polygon while it moves slowly")
    slow_com_speed: Positive = Field(0.3, description="m/s, below it the support rule holds")
    max_carried: NonNegative = Field(0.5, description="× body weight that the contacts cannot supply, 95th percentile")
    contact_distance: Positive = Field(0.01, description="m from the floor that counts as contact")
    replay_gain: Positive = Field(2.0, description="× the robot's own gains, of the second dynamic replay")
    max_joint_speed: Positive = Field(20.0, description="rad/s")
    max_torque: Positive = Field(1.0, description="× the joint's torque limit, by inverse dynamics")
    max_self_penetration: NonNegative = Field(0.01, description="m, robot in robot")
    max_skating: NonNegative = Field(0.3, description="m/s, a foot that slides on the floor")
    min_score: Share = Field(0.8, description="share of the frames that break no limit; below: a warning")

    @field_validator("frames")
    @classmethod
    def _in_order(cls, frames: tuple[int, int] | None) -> tuple[int, int] | None:
        if frames is not None and frames[1] < frames[0]:
            raise ValueError("is [first, last] with first <= last")
        return frames


class DeviceCfg(Section):
    """Stage 2: where the policy runs."""

    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|(cuda|npu)(:\d+)?)$",
        description="auto: npu, else cuda, else cpu; anything else is a requirement",
    )
    timeout: Positive = Field(120.0, description="s, for the probe that must compute on the device")


class SmokeCfg(Section):
    """Stage 3: the real training code for a moment, before hours are spent on it."""

    num_envs: Count = Field(64, description="environments; at most train.num_envs are used")
    iterations: Count = Field(3, description="PPO iterations")
    min_median_episode: Count = Field(3, description="control steps; a shorter median episode is a termination storm")
    max_unstable: Share = Field(0.001, description="share of steps with unstable physics")


class PpoCfg(Section):
    """PPO, as everyone's numbers assume it (rsl_rl's defaults)."""

    epochs: Count = Field(5, description="passes over each batch")
    mini_batches: Count = Field(4, description="per epoch")
    learning_rate: Positive = Field(1e-3, description="at the start; adapted to target_kl")
    learning_rate_range: Range = Field((1e-5, 1e-2), description="bounds of the adaptation")
    target_kl: Positive = Field(0.01, description="nats per update")
    clip: Positive = Field(0.2, description="of the probability ratio, and of the value")
    entropy: NonNegative = Field(0.005, description="weight in the loss")
    value_loss: NonNegative = Field(1.0, description="weight in the loss")
    gamma: Share = Field(0.99, description="discount per control step")
    lam: Share = Field(0.95, description="λ of generalised advantages")
    max_grad_norm: Positive = Field(1.0, description="longest gradient")


class PolicyCfg(Section):
    """Actor and critic networks."""

    hidden: tuple[Count, ...] = Field((512, 256, 128), description="units of each layer, actor and critic")
    init_std: Positive = Field(0.5, description="of each action at the start")
    skip: bool = Field(True, description="mean action = network + the action that targets the reference pose")


class RewardTerm(Section):
    """exp(-error² / sigma²) · weight, for the six tracking terms."""

    sigma: Positive = Field(description="error at which the term has fallen to 1/e")
    weight: float = Field(description="its largest value")


class RewardCfg(Section):
    """Nine terms, summed each control step; PPO multiplies by the control dt."""

    root_pos: RewardTerm = Field(RewardTerm(sigma=0.3, weight=0.5), description="anchor position, world")
    root_ori: RewardTerm = Field(RewardTerm(sigma=0.4, weight=0.5), description="anchor orientation")
    body_pos: RewardTerm = Field(RewardTerm(sigma=0.3, weight=1.0), description="tracked bodies, rel")
    body_ori: RewardTerm = Field(RewardTerm(sigma=0.4, weight=1.0), description="tracked bodies, rel")
    body_lin_vel: RewardTerm = Field(RewardTerm(sigma=1.0, weight=1.0), description="tracked bodies, world")
    body_ang_vel: RewardTerm = Field(RewardTerm(sigma=3.14, weight=1.0), description="tracked bodies, world")
    action_rate: float = Field(-0.1, description="weight of the squared change of action")
    joint_limit: float = Field(-10.0, description="weight of rad beyond the soft limits")
    self_collision: float = Field(-10.0, description="weight of a robot–robot contact above contact_force")
    contact_force: Positive = Field(10.0, description="N")


class TerminationCfg(Section):
    """Early ends. Lengths are for a robot of reference_height and scale with the robot's standing height."""

    reference_height: Positive = Field(1.32, description="m, the robot that the lengths were made for")
    anchor_z: Positive = Field(0.25, description="m, |Δz| of the anchor")
    tilt: Positive = Field(1.0, description="norm of the difference of gravity in the anchor frame (tilt_axis: vector)")
    tilt_axis: str = Field("vector", pattern="^(vector|z)$", description="vector: ‖Δg‖; z: |Δg_z|, the usual form")
    body_z: ByName = Field(
        {**dict.fromkeys(_both("ankle_roll", "elbow"), 0.25), **dict.fromkeys(_both("knee"), 0.135)},
        description="m, |Δz| of each of these bodies against rel",
    )


class ResetCfg(Section):
    """Where episodes start: a frame of the reference plus noise (all ± half-ranges unless a pair)."""

    from_start: Share = Field(0.2, description="share of the episodes that start at frame 0")
    uniform: Share = Field(0.1, description="floor of the adaptive sampler: share that is uniform over the clip")
    adapt_rate: Share = Field(0.01, description="EMA rate of each bin's failures, per iteration")
    bin_seconds: Positive = Field(1.0, description="length of a bin of the adaptive sampler")
    xy: NonNegative = Field(0.05, description="± m")
    z: Range = Field((0.0, 0.01), description="m, never into the floor")
    roll_pitch: NonNegative = Field(0.1, description="± rad")
    yaw: NonNegative = Field(0.2, description="± rad")
    joint: NonNegative = Field(0.1, description="± rad, inside the limits")
    vel_xy: NonNegative = Field(0.5, description="m/s, of resets and pushes")
    vel_z: NonNegative = Field(0.2, description="m/s")
    vel_roll_pitch: NonNegative = Field(0.52, description="rad/s")
    vel_yaw: NonNegative = Field(0.78, description="rad/s")


class RandomizationCfg(Section):
    """What differs between environments, and pushes."""

    foot_friction: Range = Field((0.3, 1.2), description="coefficient")
    torso_com: tuple[NonNegative, NonNegative, NonNegative] = Field((0.025, 0.05, 0.05), description="± x, y, z")
    joint_zero: NonNegative = Field(0.01, description="± rad, encoder offset")
    push_interval: Range = Field((1.0, 3.0), description="s between pushes")
    push: Share = Field(1.0, description="× the reset velocity ranges; 0: no pushes")


class NoiseCfg(Section):
    """± uniform noise on the actor's observation in training."""

    anchor_ori: NonNegative = Field(0.05, description="of the matrix entries")
    base_ang_vel: NonNegative = Field(0.2, description="rad/s")
    joint_pos: NonNegative = Field(0.01, description="rad")
    joint_vel: NonNegative = Field(0.5, description="rad/s")


class TrainCfg(Section):
    """Stage 4."""

    num_envs: Count = Field(1024, description="environments; a multiple of num_workers")
    num_workers: Count = Field(
        32, description="physics processes; fewer where --cores gives fewer", validate_default=True
    )
    max_iterations: Count = Field(3000, description="PPO iterations; more: training goes on where it ended")
    steps_per_env: Count = Field(24, description="control steps per environment and iteration")
    save_interval: Count = Field(50, description="iterations between checkpoints and evaluations for model_best")
    seed: int = Field(1, description="of everything random")
    seeds: tuple[int, ...] = Field((), description="train with each of these instead, and publish the best")
    control_hz: Count = Field(50, description="Hz, control steps")
    substeps: Count = Field(4, description="physics steps per control step")
    episode_seconds: Positive = Field(10.0, description="s, longest episode")
    best_episodes: Count = Field(32, description="deterministic episodes from frame 0 that judge model_best")
    half_batches: bool | None = Field(
        None,
        description="true: the device acts in one half of the environments while the other steps; false: in all; "
        "null: true, but on cpu workers act",
    )
    autocast: str | None = Field(
        "auto",
        pattern="^(auto|bf16)$",
        description="bf16: matrices are multiplied in bfloat16 in training; null: float32; "
        "auto: bf16 where the learner is a processor with AMX, else float32",
    )
    ppo: PpoCfg = PpoCfg()
    policy: PolicyCfg = PolicyCfg()
    reward: RewardCfg = RewardCfg()
    termination: TerminationCfg = TerminationCfg()
    reset: ResetCfg = ResetCfg()
    randomization: RandomizationCfg = RandomizationCfg()
    noise: NoiseCfg = NoiseCfg()

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("are different numbers")
        return seeds

    @field_validator("num_workers")
    @classmethod
    def _even_split(cls, w: int, info: ValidationInfo) -> int:
        n = info.data.get("num_envs", w)
        if n % w:
            workers = _nearest([d for d in range(1, n + 1) if n % d == 0], w)
            envs = [m for m in (n // w * w, (n // w + 1) * w) if m]
            raise ValueError(
                f"num_envs {n} is not divisible by num_workers {w}; the nearest that work are "
                f"num_envs {either(envs)} with {w} workers, or num_workers {either(workers)} with {n} environments; "
                f"train: {{num_envs: {envs[-1]}, num_workers: {w}}}"
            )
        return w


def _nearest(values: list[int], target: int) -> list[int]:
    below = [v for v in values if v <= target][-1:]
    above = [v for v in values if v >= target][:1]
    return sorted({*below, *above})


def either(values: Iterable[object]) -> str:
    """``a or b``."""
    return " or ".join(map(str, values))


class EvaluateCfg(Section):
    """Stage 5: the verdict."""

    episodes: Count = Field(256, description="from frame 0, nominal and again disturbed")
    seed: int = Field(1000, description="of the episodes")
    hold_seconds: Positive = Field(0.5, description="s at the end that must hold the clip's final pose")
    hold_height: Share = Field(0.9, description="× the reference's anchor height")
    hold_tilt: Positive = Field(15.0, description="degrees of the anchor's gravity from the reference's")
    min_success: Share = Field(0.95, description="gate: share that reaches the end, nominal")
    min_finish: Share = Field(0.95, description="gate: share that holds the final pose, nominal")
    min_finish_disturbed: Share = Field(0.8, description="gate: the same under noise, randomisation and pushes")
    min_reward: float = Field(3.5, description="gate: mean_rew of at most 5, nominal")


class ExportCfg(Section):
    """Stage 5: the policy as ONNX, and the proof that it computes the same."""

    max_difference: Positive = Field(1e-4, description="largest difference of an action from torch's")
    rows: Count = Field(256, description="real and again random observations that are compared")
    episodes: Count = Field(16, description="episodes in simulation that the real observations are taken from")
    golden_rows: Count = Field(100, description="rows of the golden vectors in the deploy folder")


class SafetyCfg(Section):
    """What the robot's joint interface demands of commands (vendor SDK), and what we demand beyond it."""

    command_hz: Positive = Field(
        500.0, description="Hz, slowest rate of joint commands; targets are interpolated to it"
    )
    max_command_change: Positive = Field(0.2, description="rad from one command to the next")
    max_saturation: Share = Field(0.05, description="share of a joint's steps that ask for more than its torque limit")
    max_speed: Positive = Field(20.0, description="rad/s of any joint; the vendor gives no figure")
    max_beyond_limit: NonNegative = Field(0.05, description="rad of any joint beyond its hard limits")
    max_target_beyond: NonNegative = Field(
        0.4, description="rad of a target beyond a joint's hard limits; targets are not clamped"
    )
    max_soft_limit: Share = Field(0.1, description="share of the steps with a joint beyond its soft limits")
    max_first_change: Positive = Field(0.5, description="rad from the measured pose to the first target")
    damping: Positive = Field(5.0, description="N·m·s/rad, of the last command: stiffness 0, this damping")
    damping_seconds: Positive = Field(1.0, description="s that the robot is watched after it")


class Sim2simCfg(Section):
    """Stage 5: the exported policy in an independent simulation, in its own world and in others."""

    episodes: Count = Field(32, description="of each other world; the nominal one has evaluate.episodes")
    seed: int = Field(2000, description="of noise and pushes")
    friction: tuple[NonNegative, ...] = Field((0.3, 0.6, 0.9, 1.2), description="worlds: coefficient of the floor")
    mass: NonNegative = Field(0.1, description="worlds: ± share of every mass and inertia")
    strength: NonNegative = Field(0.15, description="worlds: ± share of gains and torque limits")
    delay: tuple[Count, ...] = Field((1, 2), description="worlds: control steps between observation and action")
    noise: NonNegative = Field(1.0, description="world: × the observation noise of training")
    push: NonNegative = Field(0.5, description="world: m/s in a random horizontal direction")
    push_interval: Positive = Field(2.0, description="s between pushes")
    tilt: NonNegative = Field(3.0, description="world: degrees that the floor slopes, in a random direction")
    max_difference: Positive = Field(1e-5, description="of an observation term from the recorded one, same physics")
    max_gap: Share = Field(0.02, description="gate: nominal success differs from evaluate's by at most this")
    min_success: Share = Field(0.95, description="gate: share that reaches the end, nominal")
    min_success_worlds: Share = Field(0.6, description="gate: the same, in each other world")
    safety: SafetyCfg = SafetyCfg()


class VideoCfg(Section):
    """Stage 6: pictures of the clip and of what sim2sim measured."""

    width: Annotated[int, Field(ge=32, le=7680)] = Field(640, description="pixels; rounded up to even")
    height: Annotated[int, Field(ge=32, le=4320)] = Field(480, description="pixels; rounded up to even")
    fps: Annotated[int, Field(ge=1, le=240)] = Field(50, description="frames per second of the file")
    codec: str = Field("libx264", description="ffmpeg's name of the encoder; else mpeg4, else a GIF")
    crf: Annotated[int, Field(ge=0, le=51)] = Field(23, description="of libx264: lower is better and larger")
    azimuth: float = Field(235.0, description="degrees, where the camera looks")
    elevation: float = Field(-15.0, description="degrees, negative looks down")
    distance: Positive = Field(1.8, description="× standing height, of the camera from the robot")
    contacts: bool = Field(True, description="mark contact points")
    ghost: str = Field("over", pattern="^(over|beside|none)$", description="the reference in the policy video")
    slow_motion: Share = Field(0.0, description="× speed of a second pass in the policy video; 0: no second pass")
    required: bool = Field(False, description="no video is an error; else a placeholder says why")


class ReportCfg(Section):
    """Stage 6: report.html."""

    language: str = Field("en", pattern="^(en|zh)$", description="en or zh")
    embed_mb: NonNegative = Field(8.0, description="MB, videos up to this size go into the file, larger ones beside it")


class PackageCfg(Section):
    """Stage 6: package.zip."""

    license: str = Field("", description="of the clip, as it goes into the package; empty: the package says it is open")
    contributor: str = Field("", description="whose contribution it is, in CONTRIBUTION.md")


class Sections(Section):
    """What the stages of one motion go by: one section per stage, and the robot."""

    robot: RobotCfg = RobotCfg()
    motion: MotionCfg = MotionCfg()
    device: DeviceCfg = DeviceCfg()
    smoke: SmokeCfg = SmokeCfg()
    train: TrainCfg = TrainCfg()
    evaluate: EvaluateCfg = EvaluateCfg()
    export: ExportCfg = ExportCfg()
    sim2sim: Sim2simCfg = Sim2simCfg()
    video: VideoCfg = VideoCfg()
    report: ReportCfg = ReportCfg()
    package: PackageCfg = PackageCfg()
    pin_code: bool = Field(False, description="true: code counts as in the last run without it")


class Config(Sections):
    """All of config/config.yaml: the sections, and what differs for single motions."""

    motions: dict[str, dict[str, Any]] = Field({}, description="overrides: motion name -> section -> key -> value")


def places(model: type[Section] = Sections, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Each section and each setting below a model, with its field; a table with names of a robot is one setting."""
    for name, field in model.model_fields.items():
        yield (*above, name), field
        if (inner := section_of(field)) is not None:
            yield from places(inner, (*above, name))


def section_of(field: FieldInfo) -> type[Section] | None:
    """The model of a field that is a section; None for a setting."""
    model = field.annotation
    return model if isinstance(model, type) and issubclass(model, Section) else None

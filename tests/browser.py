"""Headless Chromium through its DevTools protocol: what a page shows, as text and as a picture.

Commands go over a pipe (https://chromedevtools.github.io/devtools-protocol/, JSON messages that end
in a zero byte), so that no package and no port is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome") or ""
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
    # no page asks anybody outside of this machine
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
# Chromium reads commands from file 3 and writes answers to file 4
_PIPES = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
_SECONDS = 300  # a page that is not there by then will not come
_BETWEEN = 0.3


class Page:
    """One tab."""

    def __init__(self, browser: subprocess.Popen[bytes]) -> None:
        self._browser, self._asked, self._read = browser, 0, b""
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Size of the window in pixels, and the colours that the reader prefers."""
        shape: dict[str, Any] = {"width": width, "height": height}
        shape |= {"deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **shape)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def remember(self, local: dict[str, str]) -> None:
        """What all pages find in their local storage, as if they had been visited before."""
        script = f"Object.assign(localStorage, {json.dumps(local)})"
        self._call("Page.enable")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, address: str, until: str = "true") -> None:
        """Go to a page and wait until it is loaded and the JavaScript expression is true there.

        Raises:
            OSError: there is no such page.
            TimeoutError: as `wait`.
        """
        self._call("Page.navigate", url="about:blank")  # where only the part after # differs, too
        if why := self._call("Page.navigate", url=address).get("errorText"):
            raise OSError(f"{address}: {why}")
        self.wait(f"document.readyState === 'complete' && ({until})")

    def wait(self, until: str) -> None:
        """Wait until a JavaScript expression is true.

        Raises:
            TimeoutError: it never was; with the text that the page has.
        """
        end = time.monotonic() + _SECONDS
        while not self.value(f"Boolean({until})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{until}: {self.value('document.body.innerText')}")
            time.sleep(_BETWEEN)

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression; None where it fails, as on a page that is not there."""
        told = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return told["result"].get("value") if "exceptionDetails" not in told else None

    def click(self, element: str) -> None:
        """Press the left button in the middle of the element that a JavaScript expression names."""
        self.wait(element)
        x, y = self.value(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
            f"(({element}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, **where)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)  # points at nothing

    def type(self, text: str, *keys: tuple[str, int]) -> None:
        """Type a text where the cursor is, then keys: name and Windows' code of each."""
        if text:
            self._call("Input.insertText", text=text)
        for name, code in keys:
            for kind in ("rawKeyDown", "keyUp"):
                pressed = {"key": name, "code": name, "windowsVirtualKeyCode": code}
                self._call("Input.dispatchKeyEvent", type=kind, **pressed)

    def document(self) -> str:
        """The page's HTML as its scripts have left it."""
        return str(self.value("document.documentElement.outerHTML"))

    def picture(self, file: Path) -> Path:
        """A PNG of the window, once nothing moves there any more."""
        before, now = "", self._picture()
        while before != now:
            time.sleep(_BETWEEN)
            before, now = now, self._picture()
        file.write_bytes(base64.b64decode(now))
        return file

    def _picture(self) -> str:
        return str(self._call("Page.captureScreenshot", format="png")["data"])

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Answer of the browser to a command; what it tells of its own accord is passed over."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": arguments}
        message |= {"sessionId": self._session} if self._session else {}
        assert self._browser.stdin
        self._browser.stdin.write(json.dumps(message).encode() + b"\0")
        self._browser.stdin.flush()
        while (answer := self._answer()).get("id") != self._asked:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _answer(self) -> dict[str, Any]:
        assert self._browser.stdout
        source = self._browser.stdout.fileno()
        while b"\0" not in self._read:
            if not select.select([source], [], [], _SECONDS)[0]:
                raise TimeoutError("Chromium does not answer")
            if not (part := os.read(source, 1 << 20)):
                raise RuntimeError("Chromium exited")
            self._read += part
        message, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def page(width: int, height: int, *, dark: bool = False) -> Iterator[Page]:
    """A tab of a browser of its own, which has no history and is ended afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["sh", "-c", _PIPES, PROGRAM, *_FLAGS, f"--user-data-dir={profile}"]
        pipe = subprocess.PIPE
        # a session of its own: its processes are ended together
        browser = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        try:
            tab = Page(browser)
            tab.size(width, height, dark=dark)
            yield tab
        finally:
            os.killpg(browser.pid, 9)
            browser.communicate()

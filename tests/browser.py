"""Headless Chromium: what a page shows, as text and as a picture."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome") or ""
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--virtual-time-budget=20000"),
)


def _browse(*arguments: str) -> str:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
    return done.stdout


def document(address: str) -> str:
    """The page's HTML after its scripts have run."""
    return _browse("--dump-dom", address)


def screenshot(address: str, file: Path, width: int, height: int, *, dark: bool = False) -> Path:
    """A PNG of the page."""
    extra = ["--blink-settings=preferredColorScheme=0", "--force-dark-mode"] if dark else []
    _browse(f"--screenshot={file}", f"--window-size={width},{height}", *extra, address)
    return file

"""What PyTorch allocates while something runs: exact, and the same on every machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object]) -> int:
    """Bytes that `work` has allocated on the CPU at its peak, the insides of operations counted."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    totals = [event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]"]
    assert totals, "the profiler saw no memory"
    return int(max(totals))

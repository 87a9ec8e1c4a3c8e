"""Ranks of one host that run a small script: it stops at a signal, or dies some times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hadpsgd.training.ranks import Ranks

PATIENCE = 200.0
STOPS_AT_A_SIGNAL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
print('ready', flush=True)
time.sleep(300)
"""

# rank 1 dies `times` times; the others live until the head has heard of the last death
DIES = """
import os, sys, time
log = os.path.join({folder!r}, 'rank-1.log')
if os.environ['RANK'] == '1' and open(log).read().count('dying') < {times}:
    print('dying', os.getpid(), flush=True)
    {end}
def deaths():
    lines = open(log) if os.path.exists(log) else []
    return [line.split()[1] for line in lines if line.startswith('dying') and line[-1] == '\\n']
while len(deaths()) < {times} or os.path.exists('/proc/' + deaths()[-1]):
    time.sleep(0.05)
print('lived', flush=True)
"""
# the beginning of a script whose ranks hear in each other's logs what they have said
HEARS = """
import os, socket, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('life', life, flush=True)
def said(rank, word):
    log = os.path.join({folder!r}, f'rank-{{rank}}.log')
    return os.path.exists(log) and word in open(log).read()
"""
KILL = "os.kill(os.getpid(), 9)"


def ranks(folder: Path, script: str, count: int = 3, **how: Any) -> Ranks:
    """Ranks that run a Python script."""
    folder.mkdir(parents=True, exist_ok=True)
    return Ranks([sys.executable, "-S", "-c", script], {}, range(count), count, folder, **how)

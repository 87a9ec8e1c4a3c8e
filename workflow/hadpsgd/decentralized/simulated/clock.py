"""Virtual time: blocking code of many learners, run in one process as if each had its machine.

Tasks are ordinary functions, written as for real threads: they sleep, wait for conditions and
spawn other tasks. Of all tasks one runs at a time; it hands over only where it waits, to the task
whose moment comes next (ties: who asked first). So a run is deterministic, needs no locks, takes
the time of its real computing alone, and its clock shows what the machines would have needed.

    clock = VirtualClock()
    clock.spawn(learner, 0); clock.spawn(learner, 1)
    clock.run()                      # returns when every task is done; clock.now() is the end
"""

from __future__ import annotations

import functools
import heapq
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class DeadlockError(RuntimeError):
    """Every task that is left waits for a notification that nobody can give."""


class Cancelled(BaseException):
    """Raised inside tasks that are killed, or left when a run ends early, to unwind them."""


class Task:
    """A function in virtual time; see `VirtualClock.spawn`."""

    def __init__(self, clock: VirtualClock, name: str, body: Callable[[], Any]) -> None:
        self.name = name
        self.done = False
        self.killed = False
        self.daemon = False
        self.waits_for = "its start"
        self.finished = Condition(clock, f"the end of {name}")
        self._clock = clock
        self._body = body
        self._wakeup = 0
        self._baton = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the task is done; whether it is."""
        return self.finished.wait_for(lambda: self.done, timeout)

    def _main(self) -> None:
        self._baton.acquire()
        try:
            if not (self._clock._cancelling or self.killed):
                self._body()
        except Cancelled:
            pass
        except BaseException as error:
            self._clock._fail(error)
        finally:
            self.done = True
            self._clock._retire(self)


class Condition:
    """What tasks wait for; `notify_all` wakes them at the present moment.

    Takes the place of `threading.Condition`; only one task runs at a time, so there is no lock
    to hold (entering it does nothing).
    """

    def __init__(self, clock: VirtualClock, name: str) -> None:
        self.name = name
        self._clock = clock
        self._waiting: list[_Waiter] = []

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; False if `timeout` seconds passed first."""
        return self._wait(None, timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `predicate()` holds; whether it does, at most `timeout` seconds later.

        After a notification the predicate is asked first, by whoever runs, and the task is only
        woken if it holds: most notifications are about something else.
        """
        end = math.inf if timeout is None else self._clock.now() + timeout
        while not predicate():
            left = end - self._clock.now()
            if left <= 0:
                return False
            self._wait(predicate, None if timeout is None else left)
        return True

    def notify_all(self) -> None:
        """Wake every task that waits, at the present moment, in the order in which they came."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.predicate is None:
                self._clock._schedule(self._clock.now(), waiter.task, waiter.wakeup)
            else:
                self._clock.after(0, functools.partial(self._look, waiter))

    def _wait(self, predicate: Callable[[], bool] | None, timeout: float | None) -> bool:
        clock = self._clock
        task = clock._current_task()
        waiter = _Waiter(task, clock._expect(task, self.name), predicate)
        self._waiting.append(waiter)
        if timeout is not None:
            clock._schedule(clock.now() + timeout, task, waiter.wakeup)
        clock._hand_over(task)
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            return False
        return True

    def _look(self, waiter: _Waiter) -> None:
        if waiter.task.done or waiter.wakeup != waiter.task._wakeup:
            return  # its time was up before
        if waiter.predicate is None or waiter.predicate():
            self._clock._schedule(self._clock.now(), waiter.task, waiter.wakeup)
        else:
            self._waiting.append(waiter)


@dataclass(eq=False, frozen=True)
class _Waiter:
    task: Task
    wakeup: int
    predicate: Callable[[], bool] | None


class VirtualClock:
    """The moment, and the tasks that wait for later ones."""

    def __init__(self) -> None:
        self._now = 0.0
        self._heap: list[tuple[float, int, Task | Callable[[], Any], int]] = []
        self._sequence = 0
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._end = threading.Semaphore(0)
        self._until = math.inf
        self._error: BaseException | None = None
        self._cancelling = False

    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    def spawn(
        self, function: Callable[..., Any], *args: Any, name: str = "", daemon: bool = False
    ) -> Task:
        """Start `function(*args)` as a task at the present moment.

        A run ends when all tasks but the daemons are done.
        """
        task = Task(self, name or f"task {len(self._tasks)}", lambda: function(*args))
        task.daemon = daemon
        self._tasks.append(task)
        task._thread.start()
        self._schedule(self._now, task, task._wakeup)
        return task

    def condition(self, name: str = "a condition") -> Condition:
        """A condition to wait for; `name` is shown if nobody ever notifies it."""
        return Condition(self, name)

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass for the calling task.

        Raises:
            ValueError: negative or not a number.
        """
        if not seconds >= 0:
            raise ValueError(f"cannot sleep {seconds} seconds")
        task = self._current_task()
        self._schedule(self._now + seconds, task, self._expect(task, f"{seconds:g} s to pass"))
        self._hand_over(task)

    def after(self, seconds: float, function: Callable[[], Any]) -> None:
        """Call `function()` in `seconds`; it must not wait. Cheaper than a task that sleeps."""
        self._schedule(self._now + seconds, function, 0)

    def kill(self, task: Task) -> None:
        """End a task that waits, at the present moment; it can wait for nothing any more."""
        if not task.done:
            task.killed = True
            self._schedule(self._now, task, self._expect(task, "its end"))

    def run(self, until: float = math.inf) -> float:
        """Run until every task is done, or the clock would pass `until`; returns the time.

        Tasks that are left (daemons, or all when `until` comes) are unwound.

        Raises:
            DeadlockError: the tasks that are left can never go on; says what each waits for.
            BaseException: whatever a task raised.
        """
        self._until = until
        self._hand_over(None)
        self._unwind()
        if self._error is not None:
            raise self._error
        return self._now

    # --- handing over: the running task calls these, so no two run at once ---

    def _current_task(self) -> Task:
        if self._current is None or self._current._thread is not threading.current_thread():
            raise RuntimeError("only a task of this clock can wait on it")
        return self._current

    def _expect(self, task: Task, what: str) -> int:
        """Number of the task's next wake-up; older ones in the queue are void from now on."""
        task.waits_for = what
        task._wakeup += 1
        return task._wakeup

    def _schedule(self, moment: float, what: Task | Callable[[], Any], wakeup: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (moment, self._sequence, what, wakeup))

    def _hand_over(self, me: Task | None) -> None:
        """Run whoever is next; return when it is `me`'s turn again (None: when the run ends)."""
        if me is not None and (self._cancelling or me.killed):
            raise Cancelled
        following = self._next()
        if following is not me or me is None:
            (self._end if following is None else following._baton).release()
            (self._end if me is None else me._baton).acquire()
        if me is not None and (self._cancelling or me.killed):
            self._current = me
            raise Cancelled
        self._current = me

    def _next(self) -> Task | None:
        """The task that comes next, the clock set to its moment; None ends the run."""
        if self._error is not None or all(task.done or task.daemon for task in self._tasks):
            return None
        while self._heap:
            moment, _, what, wakeup = heapq.heappop(self._heap)
            if isinstance(what, Task) and (what.done or wakeup != what._wakeup):
                continue
            if moment > self._until:
                self._now = self._until
                return None
            self._now = moment
            if isinstance(what, Task):
                self._current = what
                return what
            try:
                what()
            except Exception as error:
                self._fail(error)
                return None
        waits = "; ".join(f"{t.name} waits for {t.waits_for}" for t in self._tasks if not t.done)
        self._error = DeadlockError(waits)
        return None

    def _retire(self, task: Task) -> None:
        """The end of a task's thread: tell those who wait for it, run whoever is next."""
        if self._cancelling:
            self._end.release()
            return
        task.finished.notify_all()
        following = self._next()
        (self._end if following is None else following._baton).release()

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error

    def _unwind(self) -> None:
        self._cancelling = True
        for task in self._tasks:
            if not task.done:
                self._current = task  # so that its `finally` blocks may still call the clock
                task._baton.release()
                self._end.acquire()
            task._thread.join()

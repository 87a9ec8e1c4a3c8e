"""Gradients of a GPU as CUDA graphs: all kernels of a minibatch begun by one call.

A minibatch of a few hundred subsequences is many short kernels, which a processor cannot begin as
fast as a GPU does them. A graph is of one shape of minibatch and of tensors at their places, so it
is made again where a parameter or its gradient has moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hadpsgd.training.metrics import say

WARM = 3
"""Gradients taken as usual before one is captured: libraries choose and compile their kernels."""
KEPT = 4
"""Graphs at most: a learner's minibatches differ in size by one."""
Key = tuple[object, ...]
Pool = Any
"""Memory of graphs, which take turns in it."""
Taking = Callable[[Tensor, Tensor], Tensor]
"""Adds the gradient of (features, pdf-ids) to a module's; its loss, on the device."""


class Captured:
    """Calls `take`, or replays what it did.

    `take` must not draw random numbers nor wait for the device, and `module` has no hooks: they
    would be called once. A graph has memory of its own, which all graphs share.
    """

    def __init__(self, take: Taking, module: nn.Module) -> None:
        self.take = take
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._seen: Counter[Key] = Counter()
        self._graphs: dict[Key, _Graph] = {}
        self._able = True
        cuda = any(p.is_cuda for p in self.parameters)
        self._pool: Pool = torch.cuda.graph_pool_handle() if cuda else None

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        """The loss, to be read before the next call."""
        key = self._key(x, targets)
        if key is None:
            return self.take(x, targets)
        if graph := self._graphs.get(key):
            return graph(x, targets)
        self._seen[key] += 1
        if self._seen[key] <= WARM or len(self._graphs) == KEPT:
            return self.take(x, targets)
        return self._capture(key, x, targets)

    def _key(self, x: Tensor, targets: Tensor) -> Key | None:
        if not self._able:
            return None
        places: list[object] = [x.shape, targets.shape]
        for parameter in self.parameters:
            if parameter.grad is None:  # backward would make one, in the graph's memory
                return None
            places += [parameter.data_ptr(), parameter.grad.data_ptr()]
        return tuple(places)

    def _capture(self, key: Key, x: Tensor, targets: Tensor) -> Tensor:
        graph, why = _captured(self.take, x, targets, self._pool)
        if graph is not None:
            self._graphs[key] = graph
            return graph(x, targets)
        self._able = False
        self._graphs.clear()  # their memory may be what was missing
        say(f"no CUDA graph, kernels are begun one by one: {why}")
        return self.take(x, targets)


def _captured(take: Taking, x: Tensor, targets: Tensor, pool: Pool) -> tuple[_Graph | None, str]:
    """A graph, or why there is none; nothing of a failed one is left."""
    stream = torch.cuda.current_stream(x.device) if x.is_cuda else None
    try:
        return _Graph(take, x, targets, pool), ""
    except RuntimeError as error:
        if stream is not None:
            torch.cuda.set_stream(stream)  # an end that fails leaves the capture's
        return None, str(error).splitlines()[0]


class _Graph:
    """Of one shape."""

    def __init__(self, take: Taking, x: Tensor, targets: Tensor, pool: Pool) -> None:
        self._x, self._targets = x.clone(), targets.clone()
        self._graph = torch.cuda.CUDAGraph()
        # other threads send weights and read examples meanwhile
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._loss = take(self._x, self._targets)

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        self._x.copy_(x)
        self._targets.copy_(targets)
        self._graph.replay()
        return self._loss

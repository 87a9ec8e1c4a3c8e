"""torchvision, also where its compiled operators do not fit the build of torch.

The package index has one build of torchvision, for CUDA. Beside a CPU build of torch its library
cannot be loaded, and `import torchvision` fails as it describes two operators that are not there
(non-maximum suppression). Networks, image folders and transforms use no operator of it, so these
two are declared, without code.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from hadpsgd.errors import UserError

_DECLARED: list[torch.library.Library] = []
_DESCRIBED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def torchvision() -> ModuleType:
    """The package.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise UserError(
            "the package torchvision is not installed",
            fix="It is the extra `images`: pip install 'hadpsgd[images]'",
        ) from None
    except RuntimeError as error:
        if _DECLARED or "operator torchvision::" not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _DESCRIBED:
        library.define(operator)
    _DECLARED.append(library)  # the declarations live as long as it does
    return importlib.import_module("torchvision")

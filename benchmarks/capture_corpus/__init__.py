"""Public modules in small configurations, one file a package: what `captures.py` captures."""

import sys

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_torchvision() -> None:
    """Make torchvision importable where its compiled part does not load: two operators declared."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _LIBRARIES.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}{_BOXES}")
        for name in [it for it in sys.modules if it.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


_LIBRARIES: list[torch.library.Library] = []
"""What is declared holds as long as these do."""

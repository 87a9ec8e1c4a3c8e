"""Image classification with the engine: ResNet-50 by Goyal et al.'s recipe (docs/images.md).

The second benchmark of the papers. It trains through `decentralize()` alone, as a script of one's
own would, and needs torch, numpy and torchvision (extra `images`).
"""

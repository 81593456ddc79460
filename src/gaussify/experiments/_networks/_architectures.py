"""The networks of the paper for images, in any width."""

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

Made = TypeVar("Made")
# Mean and standard deviation of the pixels of all training images of CIFAR-10, by channel.
_PIXEL_MEAN = (125.30691805, 122.95039414, 113.86538318)
_PIXEL_STD = (62.99321928, 62.08870764, 66.70489964)
_LAYERS = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def made(make: Callable[[], Made], seed: int) -> Made:
    """Return what a function makes with random numbers of this seed, such as a network with its first weights.

    Examples
    --------
    >>> first, other = (made(lambda: nn.Linear(2, 1), seed=0) for _ in range(2))
    >>> torch.equal(first.weight, other.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def standardised(images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n 3 32 32"]:
    """Return images with the channel means and standard deviations of CIFAR-10 removed, channels last in memory.

    Examples
    --------
    >>> standardised(torch.zeros(1, 32, 32, 3, dtype=torch.uint8))[0, :, 0, 0]
    tensor([-1.9892, -1.9802, -1.7070])
    """
    mean, std = (torch.tensor(numbers, device=images.device) for numbers in (_PIXEL_MEAN, _PIXEL_STD))
    return ((images - mean) / std).permute(0, 3, 1, 2)


class VGG11(nn.Module):
    """Eight convolutions with batch normalisation, five poolings down to one pixel, and one linear layer.

    ``width`` is a factor on the number of channels, 512 in the last layer for ``width=1``.
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for layer in _LAYERS:
            if isinstance(layer, str):
                layers.append(nn.MaxPool2d(2))
                continue
            wider = max(1, round(width * layer))
            layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
        self.stack = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth quicker on a CPU

    def forward(self, images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.head(self.stack(standardised(images)))


class MNISTNet(nn.Module):
    """The network of the appendix: two convolutions, one pooling and two linear layers, with dropout.

    ``width`` is a factor on the numbers of channels (32 and 64) and hidden units (128).
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        first, second, hidden = (max(1, round(width * n)) for n in (32, 64, 128))
        convolutions = [nn.Conv2d(1, first, 3), nn.ReLU(), nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2)]
        dense = [nn.Linear(second * 12 * 12, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, n_classes)]
        self.stack = nn.Sequential(*convolutions, nn.Dropout(0.25), nn.Flatten(), *dense)

    def forward(self, images: UInt8[Tensor, "n 28 28"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.stack((images.float() / 255.0 - 0.1307).div(0.3081)[:, None])  # mean and deviation of MNIST


class ResNet18(nn.Module):
    """Four stages of two residual blocks each (He et al., 2016), with a first layer for images of 32 × 32 pixels.

    ``width`` is a factor on the number of channels, 512 in the last stage for ``width=1``.
    """

    def __init__(self, width: float = 1.0, n_classes: int = 10) -> None:
        super().__init__()
        widths = [max(1, round(width * n)) for n in (64, 128, 256, 512)]
        blocks: list[nn.Module] = []
        before = widths[0]
        for stage, channels in enumerate(widths):
            blocks += [_Residual(before, channels, stride=1 if stage == 0 else 2), _Residual(channels, channels)]
            before = channels
        first = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
        self.stack = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(before, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on a CPU

    def forward(self, images: UInt8[Tensor, "n 32 32 3"]) -> Float[Tensor, "n c"]:
        """Return the logits."""
        return self.head(self.stack(standardised(images)))


class _Residual(nn.Module):
    """The sum of two convolutions and the input, which passes a 1 × 1 convolution if the shapes differ."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        first = [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        second = [nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        self.body = nn.Sequential(*first, *second)
        self.beside: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.beside = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.beside(x))

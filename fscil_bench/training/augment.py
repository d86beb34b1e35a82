"""Whole batches of uint8 images, augmented and normalised without a per-image loop.

Images are uint8 (n, H, W, 3); permuted to (n, 3, H, W) that layout is channels-last already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

from fscil_bench.backbone import Transform
from fscil_bench.data.pixels import margin

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Area and aspect ratio of a resized crop: torchvision's defaults, which the field uses."""

Operation = str | Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""The name of an operation, or what maps uint8 (n, H, W, 3) to other pixels from 0 to 255."""

TRIES = 10
CROP_PADDING = 4
"""Pixels of black border around an image before a crop of its own size is drawn (32×32: CEC)."""


def augment(
    images: torch.Tensor, operations: Sequence[Operation], generator: torch.Generator
) -> torch.Tensor:
    """Return the images with the named operations applied, each image by its own draw.

    A resized crop is not among them: see `resized_crops`, which comes first.

    `crop` pads by 4 pixels and cuts a window of the original size; `flip` mirrors half of the
    images left to right; `autoaugment_cifar10` and `autoaugment_imagenet` are torchvision's
    policies (Cubuk et al., 2019); `color_jitter` changes brightness, contrast and saturation by up
    to 40 % and hue by up to a tenth of the circle in 80 % of the images, `grayscale` takes the
    colour of 20 % (as in ALICE's code); `cutout` blackens a square of half the image's side around
    a pixel drawn at random, cut off at the borders (DeVries and Taylor, 2017; 16 pixels of 32 are
    the length in FACT's code). Crop and flip come first and in one gather, cutout last. A function
    among the operations is applied to the whole batch.
    """
    crop, flip = "crop" in operations, "flip" in operations
    if crop or flip:
        images = _crop_and_flip(images, crop, flip, generator)
    for operation in operations:
        if not isinstance(operation, str):
            images = operation(images, generator)
        elif operation.startswith("autoaugment_") or operation in ("color_jitter", "grayscale"):
            images = _by_torchvision(images, operation, generator)
    return _cutout(images, generator) if "cutout" in operations else images


def resized_crops(
    images: Sequence[torch.Tensor], size: int, generator: torch.Generator
) -> torch.Tensor:
    """Return a random window of each image, resized to uint8 (n, size, size, 3).

    Args:
        images: uint8 (H, W, 3) each, of any shapes.
        size: side of the result, in pixels.
        generator: where the windows are drawn from.

    The window's area and aspect ratio are drawn as torchvision's RandomResizedCrop draws them
    (Szegedy et al., 2015): up to ten tries, then the largest central window.
    """
    draws = torch.rand(len(images), TRIES, 4, generator=generator).tolist()
    result = torch.empty(len(images), size, size, 3, dtype=torch.uint8)
    for number, (image, draw) in enumerate(zip(images, draws, strict=True)):
        top, left, height, width = _window(image.shape[0], image.shape[1], draw)
        window = image[top : top + height, left : left + width].permute(2, 0, 1)[None]
        resized = F.interpolate(window, (size, size), mode="bilinear", antialias=True)
        result[number] = resized[0].permute(1, 2, 0)
    return result


def _window(height: int, width: int, draws: list[list[float]]) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a window from rows of four uniform draws."""
    for area_draw, ratio_draw, top_draw, left_draw in draws:
        area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * area_draw)
        low, high = math.log(RATIO[0]), math.log(RATIO[1])
        ratio = math.exp(low + (high - low) * ratio_draw)
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return int(top_draw * (height - h + 1)), int(left_draw * (width - w + 1)), h, w
    h = min(height, round(width / RATIO[0]))
    w = min(width, round(height * RATIO[1]))
    return margin(height, h), margin(width, w), h, w


def central(images: torch.Tensor, size: int) -> torch.Tensor:
    """Return the central squares of uint8 (n, H, W, 3), as (n, size, size, 3)."""
    top, left = margin(images.shape[1], size), margin(images.shape[2], size)
    return images[:, top : top + size, left : left + size]


def network_input(images: torch.Tensor, transform: Transform, device: torch.device) -> torch.Tensor:
    """Return square uint8 images (n, S, S, 3) as a network's input (n, 3, size, size), on `device`.

    Images of another size are resized with antialiasing, the whole batch at once.
    """
    if images.shape[1] == transform.size:
        return normalise(images, transform.mean, transform.std, device)
    pixels = images.to(device, non_blocking=True).permute(0, 3, 1, 2).float()
    side = (transform.size, transform.size)
    resized = F.interpolate(pixels, side, mode=transform.interpolation, antialias=True)
    # Bicubic curves overshoot; an image file's own resizing cuts them off as well.
    return _normalised(resized.clamp_(0, 255), transform.mean, transform.std)


def normalise(
    images: torch.Tensor, mean: Sequence[float], std: Sequence[float], device: torch.device
) -> torch.Tensor:
    """Return uint8 (n, H, W, 3) as normalised float32 (n, 3, H, W), channels-last, on `device`.

    `mean` and `std` are per channel, of values in [0, 1].
    """
    pixels = images.to(device, non_blocking=True).permute(0, 3, 1, 2).float()
    return _normalised(pixels, mean, std)


def _normalised(pixels: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Normalise float pixels (n, 3, H, W) of 0 to 255 where they are."""
    shift = torch.tensor(mean, device=pixels.device).view(1, 3, 1, 1) * 255
    factor = 1 / (torch.tensor(std, device=pixels.device).view(1, 3, 1, 1) * 255)
    return pixels.sub_(shift).mul_(factor)


def _crop_and_flip(
    images: torch.Tensor, crop: bool, flip: bool, generator: torch.Generator
) -> torch.Tensor:
    count, height, width, _ = images.shape
    rows = torch.arange(height).expand(count, height)
    columns = torch.arange(width).expand(count, width)
    if crop:
        span = 2 * CROP_PADDING + 1
        offsets = torch.randint(span, (2, count, 1), generator=generator)
        rows, columns = rows + offsets[0], columns + offsets[1]
        images = F.pad(images, (0, 0, *[CROP_PADDING] * 4))
    if flip:
        mirrored = torch.rand(count, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    samples = torch.arange(count)[:, None, None]
    return images[samples, rows[:, :, None], columns[:, None, :]]


def _cutout(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    count, height, width, _ = images.shape
    rows, columns = (
        _near(length, torch.randint(length, (count, 1), generator=generator))
        for length in (height, width)
    )
    square = rows[:, :, None] & columns[:, None, :]
    return images.masked_fill(square[..., None], 0)


def _near(length: int, centre: torch.Tensor) -> torch.Tensor:
    """Return which of `length` places lie in the window of half that length around each centre."""
    start = centre - length // 4
    places = torch.arange(length)
    return (places >= start) & (places < start + length // 2)


def _by_torchvision(
    images: torch.Tensor, operation: str, generator: torch.Generator
) -> torch.Tensor:
    from torchvision.transforms import v2

    if operation == "color_jitter":
        transform = v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
    elif operation == "grayscale":
        transform = v2.RandomGrayscale(p=0.2)
    else:
        transform = v2.AutoAugment(v2.AutoAugmentPolicy(operation.removeprefix("autoaugment_")))
    # torchvision draws from the global generator; it is forked, and seeded from ours.
    seed = int(torch.randint(2**62, (1,), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        changed = [transform(image) for image in images.permute(0, 3, 1, 2)]
    return torch.stack(changed).permute(0, 2, 3, 1).contiguous()

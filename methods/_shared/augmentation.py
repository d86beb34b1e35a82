"""Images turned, cropped, coloured and mixed, whole batches at once."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional as F

TRIES, RATIO = 10, (3 / 4, 4 / 3)
"""How often a window is drawn before the whole image is taken, and its aspect ratios."""

JITTER, HUE, COLOURED, GREY = 0.4, 0.1, 0.8, 0.2
"""Changes of brightness, contrast and saturation, of hue in turns; shares of images (MoCo v2)."""

LUMA = (0.299, 0.587, 0.114)
TO_YIQ = (LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


def drawn_share(beta: float, generator: torch.Generator) -> float:
    """Return a coefficient from Beta(beta, beta), its randomness taken from `generator`."""
    return float(drawn_shares(beta, 1, generator))


def drawn_shares(beta: float, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return coefficients (count,), float64, from Beta(beta, beta)."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(beta, beta, count))


def turned(pixels: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return square images (n, 3, S, S), each turned counter-clockwise by its quarters (n,)."""
    result = pixels.clone()
    for number in range(1, 4):
        own = (turns == number).nonzero()[:, 0].to(pixels.device)
        result[own] = torch.rot90(pixels[own], number, dims=(2, 3))
    return result


def drawn_windows(
    count: int,
    scale: tuple[float, float],
    generator: torch.Generator,
    near: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return windows (count, 4) of square images: top, left, height, width as parts of the side.

    Areas are uniform in `scale`, aspect ratios log-uniform from 3:4 to 4:3, as torchvision's
    RandomResizedCrop draws them. With `near` (count, 4) a window has at least a tenth of its area
    in common with that other one, where ten tries give one that has.
    """
    draws = torch.rand(4, count, TRIES, generator=generator)
    area = scale[0] + (scale[1] - scale[0]) * draws[0]
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = torch.exp(low + (high - low) * draws[1])
    height, width = (area / ratio).sqrt(), (area * ratio).sqrt()
    fits = (height <= 1) & (width <= 1)
    windows = torch.stack([draws[2] * (1 - height), draws[3] * (1 - width), height, width], dim=2)
    windows = torch.where(fits[:, :, None], windows, torch.tensor([0.0, 0.0, 1.0, 1.0]))
    rank = fits.int()
    if near is not None:
        rank = rank + (fits & (common_area(windows, near[:, None]) >= 0.1 * area)).int()
    return windows[torch.arange(count), rank.argmax(dim=1)]


def common_area(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the area that windows (..., 4) have in common with others (..., 4)."""
    start = torch.maximum(first[..., :2], second[..., :2])
    end = torch.minimum(first[..., :2] + first[..., 2:], second[..., :2] + second[..., 2:])
    return (end - start).clamp(min=0).prod(dim=-1)


def cropped(
    pixels: torch.Tensor, windows: torch.Tensor, mirrored: torch.Tensor, size: int
) -> torch.Tensor:
    """Return windows (n, 4) of images (n, 3, H, W), bilinear (n, 3, size, size).

    `mirrored` (n,) are shown left to right.
    """
    top, left, height, width = windows.unbind(dim=1)
    zero = torch.zeros_like(top)
    turn = torch.where(mirrored, -width, width)
    rows = [turn, zero, 2 * left + width - 1, zero, height, 2 * top + height - 1]
    affine = torch.stack(rows, dim=1).view(-1, 2, 3).to(pixels)
    grid = F.affine_grid(affine, [len(pixels), 3, size, size], align_corners=False)
    shown: torch.Tensor = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return shown


def recoloured(pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return images (n, 3, H, W) of values 0 to 1 in other colours, or in grey.

    Brightness, contrast, saturation and hue of 80 % of them change as MoCo v2's do, and 20 % lose
    their colour; hue turns in YIQ, where torchvision turns it in HSV, so that one linear map an
    image does it all.
    """
    draws = torch.rand(6, len(pixels), generator=generator)
    strength = torch.where(draws[4] < COLOURED, 1.0, 0.0)
    factors = 1 + strength * JITTER * (2 * draws[:3] - 1)
    hue = 2 * math.pi * HUE * strength * (2 * draws[3] - 1)
    saturation = torch.where(draws[5] < GREY, 0.0, factors[2])
    maps = colour_maps(factors[0], saturation, hue).to(pixels)
    changed = torch.einsum("nij,njhw->nihw", maps, pixels)
    contrast = factors[1].to(pixels)[:, None, None, None]
    luma = torch.tensor(LUMA).to(pixels)
    grey = torch.einsum("i,nihw->n", luma, changed) / changed[0, 0].numel()
    return (contrast * changed + (1 - contrast) * grey[:, None, None, None]).clamp(0, 1)


def colour_maps(
    brightness: torch.Tensor, saturation: torch.Tensor, hue: torch.Tensor
) -> torch.Tensor:
    """Return the maps (n, 3, 3) of RGB that multiply brightness (n,) and saturation (n,) so.

    `hue` (n,) is the angle by which colours turn in YIQ.
    """
    forth = torch.tensor(TO_YIQ)
    turn = torch.zeros(len(hue), 3, 3)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = saturation * hue.cos()
    turn[:, 2, 1] = saturation * hue.sin()
    turn[:, 1, 2] = -turn[:, 2, 1]
    back: torch.Tensor = torch.linalg.inv(forth)
    return brightness[:, None, None] * (back @ turn @ forth)

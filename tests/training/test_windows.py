"""Random windows of images: torchvision's areas, ratios and resizing, from a generator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from fscil_bench.data.pixels import Images
from fscil_bench.training.augment import RATIO, SCALE, central, resized_crops


def noise(shapes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (height, width, 3), np.uint8) for height, width in shapes]


def positions(height: int, width: int) -> torch.Tensor:
    """Return an image whose channels say row and column."""
    rows = torch.arange(height).view(height, 1).expand(height, width)
    columns = torch.arange(width).view(1, width).expand(height, width)
    return torch.stack([rows, columns, torch.zeros_like(rows)], dim=2).to(torch.uint8)


def windows(height: int, width: int) -> torch.Tensor:
    """Return top, left, height and width of 2000 drawn windows, float (2000, 4).

    They are read off the corners of the resized crops: the first and the last pixel of a smooth
    ramp say where a window begins and ends.
    """
    size, images = 8, [positions(height, width)] * 2000
    crops = resized_crops(images, size, torch.Generator().manual_seed(0)).float()
    step = (crops[:, -1, -1, :2] - crops[:, 0, 0, :2]) / (size - 1)
    first = crops[:, 0, 0, :2] + 0.5 - step / 2
    return torch.cat([first, step * size], dim=1)


def test_windows_have_torchvisions_areas_and_ratios() -> None:
    found = windows(200, 240)
    top, left, height, width = found.T
    assert (top > -2).all() and (top + height < 202).all()
    assert (left > -2).all() and (left + width < 242).all()
    area = height * width / (200 * 240)
    assert SCALE[0] - 0.02 < float(area.min()) < 0.1
    assert 0.8 < float(area.max()) <= SCALE[1] + 0.02
    torch.manual_seed(0)
    image = positions(200, 240).permute(2, 0, 1)
    params = [v2.RandomResizedCrop(8).make_params([image]) for _ in range(2000)]
    rows, columns = torch.tensor([[p["height"], p["width"]] for p in params]).float().T
    their_area, their_ratio = rows * columns / (200 * 240), columns / rows
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    for one, two in ((area, their_area), ((width / height).log(), their_ratio.log())):
        difference = torch.quantile(one, quantiles) - torch.quantile(two, quantiles)
        assert float(difference.abs().max()) < 0.05
    assert float((width / height).max()) < RATIO[1] * 1.1
    assert float((width / height).min()) > RATIO[0] / 1.1


@pytest.mark.parametrize("size", [8, 14, 32])
def test_a_window_by_hand_is_resized_as_theirs(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    # A quarter of 30×40 pixels at the ratio 4/3 are 15×20; 16 rows and 21 columns it may begin at.
    drawn = [(0.25 - SCALE[0]) / (SCALE[1] - SCALE[0]), 1.0, 3.5 / 16, 5.5 / 21]
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.tensor(drawn).expand(shape))
    image = torch.from_numpy(noise([(30, 40)])[0])
    (crop,) = resized_crops([image], size, torch.Generator())
    place = (3, 5, 15, 20)
    expected = tv.resized_crop(image.permute(2, 0, 1), *place, [size, size], antialias=True)
    assert torch.equal(crop.permute(2, 0, 1), expected)


def test_an_image_of_extreme_shape_gives_its_largest_central_window() -> None:
    for shape in ((8, 250), (250, 8)):
        crop = resized_crops([positions(*shape)], 8, torch.Generator().manual_seed(0))[0]
        long = 1 if shape[1] > shape[0] else 0
        middle = crop[:, :, long].float().mean()
        assert abs(float(middle) - 124.5) < 1.5, "the middle of the long side"
        assert 8 <= float(crop[-1, -1, long]) - float(crop[0, 0, long]) + 1 <= 11


def test_draws_belong_to_images_one_by_one_and_to_the_generator() -> None:
    images = [torch.from_numpy(image) for image in noise([(40, 50)] * 6)]

    def crops(seed: int) -> torch.Tensor:
        return resized_crops(images, 16, torch.Generator().manual_seed(seed))

    state = torch.get_rng_state()
    assert torch.equal(crops(1), crops(1))
    assert not torch.equal(crops(1), crops(2))
    same = resized_crops([images[0]] * 6, 16, torch.Generator().manual_seed(1))
    assert not torch.equal(same[0], same[1]), "each image has its own window"
    assert torch.equal(state, torch.get_rng_state())
    assert (crops(1).dtype, crops(1).shape) == (torch.uint8, (6, 16, 16, 3))


def test_central_squares_of_a_batch_are_the_stored_squares() -> None:
    images = noise([(14, 19)] * 3)
    batch = torch.from_numpy(np.stack(images))
    stored = Images.from_block(np.stack(images)).squares(np.arange(3), 9)
    assert torch.equal(central(batch, 9), stored)

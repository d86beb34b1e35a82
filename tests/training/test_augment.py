from __future__ import annotations

import numpy as np
import pytest
import torch

from fscil_bench.training.augment import CROP_PADDING, augment, normalise


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> torch.Tensor:
    values = np.random.default_rng(0).integers(1, 256, (40, 12, 12, 3), dtype=np.uint8)
    return torch.from_numpy(values)


def test_no_operation_changes_nothing(images: torch.Tensor) -> None:
    assert torch.equal(augment(images, (), generator()), images)


def test_a_crop_is_a_window_of_the_padded_image(images: torch.Tensor) -> None:
    cropped = augment(images, ("crop",), generator())
    assert cropped.shape == images.shape
    span = 2 * CROP_PADDING + 1
    offsets = set()
    for before, after in zip(images.numpy(), cropped.numpy(), strict=True):
        padded = np.pad(before, ((CROP_PADDING,) * 2, (CROP_PADDING,) * 2, (0, 0)))
        found = [
            (row, column)
            for row in range(span)
            for column in range(span)
            if np.array_equal(padded[row : row + 12, column : column + 12], after)
        ]
        assert len(found) == 1
        offsets.add(found[0])
    assert len(offsets) > 20, "each image has its own draw"


def test_a_flip_mirrors_about_half_of_the_images(images: torch.Tensor) -> None:
    flipped = augment(images, ("flip",), generator())
    mirrored = [torch.equal(a.flip(1), b) for a, b in zip(images, flipped, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(images, flipped, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 8 < sum(mirrored) < 32


@pytest.mark.parametrize(
    "operations",
    [
        ("autoaugment_cifar10",),
        ("autoaugment_imagenet",),
        ("color_jitter",),
        ("grayscale",),
        ("crop", "flip"),
    ],
)
def test_draws_are_our_generators_alone(images: torch.Tensor, operations: tuple[str, ...]) -> None:
    before = torch.get_rng_state()
    one = augment(images, operations, generator(1))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one, augment(images, operations, generator(1)))
    assert not torch.equal(one, augment(images, operations, generator(2)))
    assert (one.shape, one.dtype) == (images.shape, torch.uint8)


def test_about_a_fifth_of_the_images_lose_their_colour_and_four_fifths_change_it() -> None:
    images = torch.randint(256, (200, 4, 4, 3), dtype=torch.uint8, generator=generator())
    grey = augment(images, ("grayscale",), generator())
    lost = (grey == grey[..., :1]).flatten(1).all(dim=1)
    assert 20 <= int(lost.sum()) <= 60
    assert torch.equal(grey[~lost], images[~lost])
    jittered = augment(images, ("color_jitter",), generator())
    assert 140 <= int((jittered != images).flatten(1).any(dim=1).sum()) <= 180


def test_normalise_is_torchvisions_to_tensor_and_normalize(images: torch.Tensor) -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    result = normalise(images, mean, std, torch.device("cpu"))
    expected = images.permute(0, 3, 1, 2).float() / 255
    expected = (expected - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    torch.testing.assert_close(result, expected)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_cutout_blackens_one_square_of_half_the_side_cut_off_at_the_borders() -> None:
    images = torch.full((400, 32, 32, 3), 255, dtype=torch.uint8)
    changed = augment(images, ("cutout",), generator())
    black = (changed == 0).all(dim=3)
    assert bool(((changed == 0) | (changed == 255)).all())
    rows, columns = black.any(dim=2), black.any(dim=1)
    assert torch.equal(black, rows[:, :, None] & columns[:, None, :]), "one rectangle each"
    sides = torch.cat([rows.sum(dim=1), columns.sum(dim=1)])
    assert int(sides.max()) == 16 and int(sides.min()) == 8
    assert 0.5 < float((sides == 16).float().mean()) < 0.6  # 17 of 32 centres leave it whole
    assert len({tuple(image.flatten().tolist()) for image in black[:20]}) > 15

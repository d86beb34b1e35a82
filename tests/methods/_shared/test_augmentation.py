from __future__ import annotations

import pytest
import torch

from fscil_bench.methods._shared.augmentation import (
    colour_maps,
    common_area,
    cropped,
    drawn_share,
    drawn_windows,
    recoloured,
    turned,
)


def test_images_are_turned_counter_clockwise_one_by_one() -> None:
    corner = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).expand(4, 3, 2, 2)
    found = turned(corner, torch.tensor([0, 1, 2, 3]))[:, 0].flatten(1)
    assert found.argmax(dim=1).tolist() == [0, 2, 3, 1]  # down, across, up


def test_shares_are_draws_of_the_beta_distribution_that_the_generator_decides() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([drawn_share(2.0, generator) for _ in range(2000)])
    # Beta(2, 2) has the mean 1/2 and the variance 1/20.
    assert float(shares.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(shares.var()) == pytest.approx(0.05, abs=0.005)
    assert drawn_share(2.0, torch.Generator().manual_seed(0)) == pytest.approx(float(shares[0]))


def test_windows_have_the_areas_and_ratios_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    windows = drawn_windows(2000, (0.2, 0.7), generator)
    top, left, height, width = windows.unbind(dim=1)
    area, ratio = height * width, width / height
    assert 0.2 <= float(area.min()) < 0.21 and 0.69 < float(area.max()) <= 0.7
    assert float(area.mean()) == pytest.approx(0.45, abs=0.01)
    assert float(ratio.min()) >= 0.75 - 1e-6 and float(ratio.max()) <= 4 / 3 + 1e-6
    assert bool((top >= 0).all()) and float((top + height).max()) <= 1 + 1e-6
    assert bool((left >= 0).all()) and float((left + width).max()) <= 1 + 1e-6
    assert drawn_windows(3, (1.0, 1.0), generator)[:, 2:].max() <= 1


def test_windows_lie_near_others_where_they_shall() -> None:
    near = torch.tensor([0.0, 0.0, 0.3, 0.3]).expand(2000, 4)
    shares = []
    for condition in (None, near):
        windows = drawn_windows(2000, (0.05, 0.14), torch.Generator().manual_seed(0), condition)
        area = windows[:, 2] * windows[:, 3]
        shares.append(float((common_area(windows, near) >= 0.1 * area).float().mean()))
    assert shares[0] < 0.2, "by chance"
    assert shares[1] == pytest.approx(1 - (1 - shares[0]) ** 10, abs=0.03), "ten tries"


def test_common_area_of_windows() -> None:
    first = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.1, 0.1]])
    assert common_area(first, torch.tensor([0.25, 0.4, 0.5, 0.5])).tolist() == pytest.approx(
        [0.025, 0]
    )


def test_crops_show_their_window_mirrored_or_not() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4).expand(2, 3, 4, 4)
    windows = torch.tensor([0.5, 0.0, 0.5, 0.5]).expand(2, 4)
    found = cropped(image, windows, torch.tensor([False, True]), 2)
    assert found[0, 0].flatten().tolist() == pytest.approx([8, 9, 12, 13])
    assert found[1, 2].flatten().tolist() == pytest.approx([9, 8, 13, 12])


def test_colours_change_by_the_factors_and_luma_by_brightness_alone() -> None:
    one, none = torch.ones(1), torch.zeros(1)
    torch.testing.assert_close(colour_maps(one, one, none)[0], torch.eye(3))
    luma = torch.tensor([0.299, 0.587, 0.114])
    grey = colour_maps(one, none, one)[0]
    torch.testing.assert_close(grey, luma.expand(3, 3))
    turned_map = colour_maps(1.5 * one, 0.7 * one, 0.6 * one)[0]
    torch.testing.assert_close(luma @ turned_map, 1.5 * luma)
    torch.testing.assert_close(turned_map.sum(dim=1), torch.full((3,), 1.5))
    there = colour_maps(one, one, 0.4 * one)[0]
    torch.testing.assert_close(there @ colour_maps(one, one, -0.4 * one)[0], torch.eye(3))


def test_a_share_of_images_is_recoloured_and_another_grey() -> None:
    pixels = torch.rand(1, 3, 4, 4).mul(0.5).add(0.25).expand(2000, 3, 4, 4)
    found = recoloured(pixels, torch.Generator().manual_seed(0))
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    grey = (found.amax(dim=1) - found.amin(dim=1)).amax(dim=(1, 2)) < 1e-3
    assert float(grey.float().mean()) == pytest.approx(0.2, abs=0.03)
    kept = (found - pixels).abs().amax(dim=(1, 2, 3)) < 1e-3
    assert float(kept.float().mean()) == pytest.approx(0.2 * 0.8, abs=0.03)

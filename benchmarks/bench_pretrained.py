"""Features of a pre-trained backbone: images a second at each precision, and how far these differ.

Small uint8 images are resized, normalised and computed as `run` does it, which is in fp32. Times
are of the wall and, for a machine that does other things beside, of the processor; `cosine` is the
least between an image's features at both precisions, `error` the mean difference as a share of the
mean length.

    python benchmarks/bench_pretrained.py [--backbone efficientnet_lite0] [--size 128] [--pixels 32]
"""

from __future__ import annotations

import argparse
import time
from typing import get_args

import numpy as np
import torch
from torch.nn import functional as F

from fscil_bench.backbone import Backbone, Reading
from fscil_bench.data.pixels import Images
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec, Recipe
from fscil_bench.spec import Precision, RepresentationSpec
from fscil_bench.training.compute import autocast, resolve_device
from fscil_bench.training.loop import (
    LabelledImages,
    evaluation_batch,
    extract_features,
    input_transform,
)
from fscil_bench.training.weights import load_pretrained, resolve_pretraining

TARGET = 60_000
"""Images of CIFAR100, training and test."""


def specification(backbone: Backbone, pixels: int) -> RepresentationSpec:
    """Return the specification of a network that nothing is trained of."""
    images = ImageSpec(size=pixels, mean=(0.5,) * 3, std=(0.25,) * 3)
    return RepresentationSpec(
        name="pretrained",
        params={},
        seed=0,
        dataset="benchmark",
        data_fingerprint="",
        base_classes=1,
        backbone=backbone.called,
        pretraining="",
        images=images,
        recipe=Recipe(epochs=0),
        precision="fp32",
        code="",
        engine="",
        transform=backbone.input_of(images),
    )


def smooth_images(count: int, pixels: int) -> Images:
    """Return images of random blobs of colour, which are more like photographs than noise is."""
    coarse = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    fine = F.interpolate(coarse, (pixels, pixels), mode="bicubic").clamp(0, 1) * 255
    return Images.from_block(fine.permute(0, 2, 3, 1).round().to(torch.uint8).numpy())


def main() -> None:
    """Measure both precisions and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--size", type=int, default=128, help="side of the input; 0 is its own")
    parser.add_argument("--pixels", type=int, default=32, help="side of the stored images")
    parser.add_argument("--count", type=int, default=2000, help="images")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = resolve_device(options.device)
    backbone, _ = load_registry().backbone(options.backbone, Reading(size=options.size))
    network = backbone.fresh(seed=0)
    load_pretrained(network, backbone, resolve_pretraining(backbone, "published", None))
    network.to(device)
    stored, members = smooth_images(options.count, options.pixels), np.arange(options.count)
    images = LabelledImages(stored, members, np.zeros_like(members))

    spec = specification(backbone, options.pixels)
    side = input_transform(spec).size
    print(
        f"{backbone.called} at {side}×{side}, {options.count} images in batches of "
        f"{evaluation_batch(spec, device)}, {torch.get_num_threads()} threads, {device}"
    )
    print(f"{'':6} {'images/s':>9} {'by processor':>13} {TARGET:>9,} images take")
    found = {}
    for precision in get_args(Precision):
        with autocast(precision, device):
            next(extract_features(network, images, spec, device))  # prepares
            wall, processor = time.perf_counter(), time.process_time()
            found[precision] = torch.cat(list(extract_features(network, images, spec, device)))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        rates = [options.count / seconds for seconds in (wall, processor)]
        minutes = TARGET / rates[0] / 60
        print(f"{precision:6} {rates[0]:9.1f} {rates[1]:13.1f} {minutes:13.1f} minutes")
    full, half = found["fp32"], found["bf16"]
    cosine = float(F.cosine_similarity(full, half).min())
    error = float((full - half).norm(dim=1).mean() / full.norm(dim=1).mean())
    print(f"bf16 beside fp32: cosine {cosine:.5f}, error {error:.4f}")


if __name__ == "__main__":
    main()

"""Images of your own, one folder a class, become a protocol.

Here they are drawn: 10 classes of coloured stripes, 16 training and 8 test images of each.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import fscil_bench as fb

FOLDER = Path("stripes")


def main() -> None:
    """Draw the images, cut them into a base session and two of two classes, and run two methods."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:32, :32]
    for label in range(10):
        angle, colour = np.pi * label / 10, random.uniform(50, 250, 3)
        for half, count in (("train", 16), ("test", 8)):
            folder = FOLDER / half / f"angle_{18 * label:03}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                wave = np.cos(rows * np.sin(angle) + columns * np.cos(angle) + random.uniform(0, 6))
                noisy = colour * (1 + 0.2 * wave[..., None]) + random.normal(0, 150, (32, 32, 3))
                image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
                image.save(folder / f"{number:02}.png")
    scan = [
        sys.executable,
        "-m",
        "fscil_bench",
        "data",
        "scan",
        str(FOLDER),
        "--out",
        "stripes.toml",
    ]
    subprocess.run([*scan, "--force", "--way", "2", "--shot", "5", "--base", "6"], check=True)
    fb.run(["ncm", "teen"], "stripes.toml", seed="0-2", overrides={"epochs": 2})
    print(fb.make_report("main-table", "stripes.toml", params={"all": True}).text)


if __name__ == "__main__":
    main()

"""Data sets that are passed on as class folders, with the counts that tell a whole copy."""

from __future__ import annotations

from typing import ClassVar

from .reader import FolderReader

ADVICE = (
    "Fetch PILOT's copy (its address is in the README of the repository LAMDA-CL/LAMDA-PILOT), "
    "unpack it, and name the folder it lies in: --data-root DIR"
)


class ImageNetR(FolderReader):
    """ImageNet-R (Hendrycks et al., ICCV 2021): renditions of 200 classes of ImageNet.

    The data set itself has no halves. L2P takes a fifth of the images for testing; PILOT passes
    such a division on as folders, which ASP and SEC-Prompt read too. Classes are in the order of
    their WordNet ids.
    """

    name = "imagenet_r"
    advice = ADVICE
    reads_any = False
    folders = ("imagenet-r", "imagenet_r")
    counts: ClassVar = {200: (24_000, 6_000)}


class Cub200Pilot(FolderReader):
    """CUB-200-2011 in PILOT's division: four fifths of all images for training, as folders.

    The official lists have 5,994 + 5,794 images, of which 3,000 + 2,864 are of the first 100
    classes. Classes are in the order of the numbers that begin their folders' names.
    """

    name = "cub200_pilot"
    advice = ADVICE
    reads_any = False
    folders = ("cub", "cub200_pilot")
    counts: ClassVar = {100: (4_693, 1_171), 200: (9_430, 2_358)}

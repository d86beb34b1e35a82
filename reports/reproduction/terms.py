"""On what terms a published and a measured row were got, field by field."""

from __future__ import annotations

from collections.abc import Mapping

from fscil_bench.protocol import ImageSpec, Recipe
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import checkpoint_rule, precision_text

from ..published import PublishedRow

Terms = Mapping[str, str]
"""What is known of a row by field, "" where it is not."""

FIELDS = (
    *("objective", "epochs", "batch size", "learning rate", "schedule", "weight decay"),
    *("augmentation", "AutoAugment fills with", "temperature", "images a batch normalisation"),
    *("test images' shorter side", "precision", "checkpoint", "session 0 scored by"),
    *("shots", "data"),
)
"""What terms are, in the order of showing."""
SHOTS = {"canonical": "the published list", "seeded": "drawn by seed"}
FILL = "black"
"""What torchvision's AutoAugment fills uncovered places with, as `training.augment` calls it."""
PUBLISHED_COPY = "the published copy"


def published_terms(row: PublishedRow) -> Terms:
    """Return the terms of a published row."""
    told, chosen = row.training, row.terms.chosen_on_test
    checkpoint = f"best epoch on test data, by {chosen}" if row.test_chosen else "last epoch"
    brought = row.counterpart.representation if row.counterpart and told.source else ""
    return {
        "objective": told.objective or brought,
        "epochs": row.terms.epochs,
        "batch size": told.batch_size,
        "learning rate": told.lr,
        "schedule": told.schedule,
        "weight decay": told.weight_decay,
        "augmentation": told.augment,
        "AutoAugment fills with": told.fill,
        "temperature": told.temperature,
        "images a batch normalisation": told.batch_norm,
        "test images' shorter side": told.resize,
        "precision": told.precision,
        "checkpoint": checkpoint if chosen else "",
        "session 0 scored by": told.session_0,
        "shots": told.shots,
        "data": PUBLISHED_COPY,
    }


def recipe_terms(recipe: Recipe, images: ImageSpec) -> Terms:
    """Return those terms that a recipe decides."""
    schedule: str = recipe.schedule
    if schedule == "step":
        schedule += f", {recipe.gamma:g} at {', '.join(map(str, recipe.milestones))}"
    automatic = any(name.startswith("autoaugment") for name in recipe.augment)
    return {
        "epochs": str(recipe.epochs),
        "batch size": str(recipe.batch_size),
        "learning rate": f"{recipe.lr:g}",
        "schedule": schedule,
        "weight decay": f"{recipe.weight_decay:g}",
        "augmentation": ", ".join(recipe.augment) or "none",
        "AutoAugment fills with": FILL * automatic,
        "images a batch normalisation": str(recipe.batch_size),
        "test images' shorter side": str(images.resize or "none"),
        "checkpoint": checkpoint_rule(recipe),
    }


def measured_terms(rows: Chosen, label: str) -> Terms:
    """Return the terms of a table row."""
    brought, runs = rows.spec(label).representation, rows.of(label)
    temperature = brought.params.get("temperature")
    return {
        "objective": brought.name,
        **recipe_terms(brought.recipe, brought.images),
        "temperature": "" if temperature is None else f"{temperature:g}",
        "precision": precision_text(runs),
        "session 0 scored by": "the method",
        "shots": SHOTS.get(rows.spec(label).split, rows.spec(label).split),
        "data": PUBLISHED_COPY if runs["official"].all() else "another copy",
    }


def differing(published: Terms, measured: Terms) -> dict[str, tuple[str, str]]:
    """Return the fields that both know and that differ, with what each says."""
    return {
        name: (text, measured[name])
        for name, text in published.items()
        if text and measured.get(name) and text != measured[name]
    }


def not_told(published: Terms) -> list[str]:
    """Return the fields that are not known of a published row."""
    automatic = "autoaugment" in published["augmentation"]
    needless = set() if automatic else {"AutoAugment fills with"}
    return [name for name, text in published.items() if not text and name not in needless]


def obstacles(row: PublishedRow, backbone: str, pretraining: str) -> list[str]:
    """Return why a published row cannot be compared with what a network like that gives.

    Where it is not told whether the published network was pre-trained, that is no obstacle.
    """
    found = ["another division of the data into sessions"] if row.terms.other_protocol else []
    if row.backbone.lower() != backbone.lower():
        found.append(f"backbone {row.backbone}, here {backbone}")
    if not row.pretraining.startswith("not ") and (row.pretraining == "none") != (
        pretraining == "none"
    ):
        found.append(f"pre-training {row.pretraining}, here {pretraining}")
    return found

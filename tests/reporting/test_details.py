from __future__ import annotations

from fscil_bench.reporting.details import parameter_count


def test_parameters_of_the_backbone_by_hand() -> None:
    # 3·16 + 6·16² + (16·32 + 5·32²) + (32·64 + 5·64²), each times 3²; two numbers a channel of the
    # norms: 7 of 16, 6 of 32 and of 64, and those of the shortcuts if they have any.
    convolutions = 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    norms = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    assert parameter_count("resnet20") - convolutions - norms in (0, 16 * 32 + 32 * 64 + 192)

"""A plan's stages over the model's layers, as SVG.

stage 0            stage 1         stage 2
4 x 3072 MiB       4 x 1769 MiB    ...
| | |#|  | |#|     |#| | |         computing of each layer, upwards
-----------------------------------------------
  |#| |  |#| |     | | |#|         bytes of its parameters, downwards
"""

from __future__ import annotations

from dayfly.runs.choosing.cut import cut_of
from dayfly.runs.choosing.ranking import Option
from dayfly.runs.report.markup import text

# Pixels.
_WIDE, _LEFT, _HEAD, _UP, _DOWN, _FOOT = 1000, 92, 56, 110, 64, 22
_NARROW = 92


def chart(option: Option) -> str:
    """The drawing with its key; of a model that is not cut one stage."""
    layers, stages = cut_of(option)
    each = (_WIDE - _LEFT) / len(layers)
    most_s = max(layer.compute_s for layer in layers) or 1.0
    most_bytes = max(layer.parameter_bytes for layer in layers) or 1.0
    base = _HEAD + _UP
    whole_s = sum(layer.compute_s for layer in layers) or 1.0
    parts = []
    for number, stage in enumerate(stages):
        x, wide = _LEFT + stage.layers.start * each, len(stage.layers) * each
        look = "stage-a" if number % 2 == 0 else "stage-b"
        share = sum(layers[at].compute_s for at in stage.layers) / whole_s
        mb = sum(layers[at].parameter_bytes for at in stage.layers) / 1e6
        size = "any memory" if stage.memory_mib is None else f"{stage.memory_mib} MiB"
        title = (
            f"stage {number}, layers {stage.layers.start} to {stage.layers.stop - 1}: "
            f"{stage.replicas} x {size}, peak {stage.peak_mib:.0f} MiB; {share:.0%} of computing, "
            f"{mb:.4g} MB of parameters"
        )
        parts.append(
            f'<rect class="{look}" x="{x + 1:.1f}" y="{_HEAD - 12}" width="{wide - 2:.1f}" '
            f'height="7" rx="2"><title>{text(title)}</title></rect>'
        )
        if wide >= _NARROW:
            parts.append(f'<text class="strong" x="{x + 2:.1f}" y="14">stage {number}</text>')
            parts.append(
                f'<text x="{x + 2:.1f}" y="31">{text(f"{stage.replicas} x {size}")}</text>'
            )
        else:
            parts.append(f'<text class="strong" x="{x + 2:.1f}" y="31">{number}</text>')
        if number:
            parts.append(
                f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 16}" '
                f'y2="{base + _DOWN}"/>'
            )
        for at in stage.layers:
            layer, left = layers[at], _LEFT + at * each
            up, down = _UP * layer.compute_s / most_s, _DOWN * layer.parameter_bytes / most_bytes
            said = (
                f"layer {at}, {layer.name}: {1000 * layer.compute_s:.4g} ms a micro-batch, "
                f"{layer.parameter_bytes / 1e6:.4g} MB, passes on "
                f"{layer.output_bytes / 1e3:.4g} KB a sample"
            )
            gap = 0.5 if each < 4 else 1.0
            parts.append(
                f'<g><title>{text(said)}</title><rect class="{look}" x="{left + gap:.1f}" '
                f'y="{base - up:.1f}" width="{each - 2 * gap:.1f}" height="{up:.1f}"/>'
                f'<rect class="held" x="{left + gap:.1f}" y="{base + 1:.1f}" '
                f'width="{each - 2 * gap:.1f}" height="{down:.1f}"/></g>'
            )
    parts.append(f'<line class="base" x1="{_LEFT}" x2="{_WIDE}" y1="{base}" y2="{base}"/>')
    parts.append(f'<text x="{_LEFT - 8}" y="{base - 8}" text-anchor="end">computing</text>')
    parts.append(f'<text x="{_LEFT - 8}" y="{base + 16}" text-anchor="end">parameters</text>')
    every = max(1, -(-len(layers) // 20))
    for at in range(0, len(layers), every):
        parts.append(
            f'<text x="{_LEFT + (at + 0.5) * each:.1f}" y="{base + _DOWN + _FOOT - 4}" '
            f'text-anchor="middle">{at}</text>'
        )
    parts.append(
        f'<text x="{_LEFT - 8}" y="{base + _DOWN + _FOOT - 4}" text-anchor="end">layer</text>'
    )
    high = base + _DOWN + _FOOT
    return (
        f'<div class="drawing"><svg viewBox="0 0 {_WIDE} {high}" role="img" '
        f'aria-label="{text(f"{len(stages)} stages over {len(layers)} layers")}">'
        f"{''.join(parts)}</svg></div>"
    )

"""Tables of layers: how far each is off, and what each costs the accuracy in int8."""

from __future__ import annotations

import math

from converters.layers import SAMPLES
from converters.report import NOT_RUN, Attempt, LayerCost, LayerError, MixedSearch, Report
from converters.reportpage_html import Html, el, folded, join, name, section
from converters.reportpage_words import count, metric, number

_TO = " … "


def layers(report: Report) -> Html:
    """Return how far every op's output is from the float model's, worst first, with a bar for its signal to noise."""
    ordered = sorted(report.shown.layers, key=lambda layer: (layer.snr_db, layer.index))
    top = max((layer.snr_db for layer in ordered if math.isfinite(layer.snr_db)), default=0.0)
    rows = [_layer(layer, top) for layer in ordered]
    head = ("op", metric("snr_db"), metric("relative"), "output")
    told = f"{_measured(report.samples)} All errors of the ops before it are in an op's figure. The first op that is "
    told += "bad is where to look."
    listed = folded("Ops, worst first", head, rows, numbers=(2,))
    return section("Error, layer by layer", el("p", told), listed) if rows else Html()


def _measured(samples: int) -> str:
    """Say on what: the same tensor has other figures where an output's are told, which are of all samples."""
    if samples <= SAMPLES:
        return "Measured with the first runtime's own kernels."
    return (
        f"Measured on the first {SAMPLES} of {count(samples, 'sample')}, with the first runtime's own kernels: an "
        f"output's figures are a little different where all {samples:,} are counted."
    )


def _layer(layer: LayerError, top: float) -> list[str]:
    width = round(60 * max(0.0, layer.snr_db) / top) if top > 0 and math.isfinite(layer.snr_db) else 0
    bar = join([f"{layer.snr_db:.1f}", el("span", class_="bar", style=f"width:{width}px")])
    return [f"{layer.index} {layer.op}", bar, number(layer.relative), _tensor(layer)]


def _tensor(layer: LayerError) -> Html:
    """Return the tensor's name, and where it is an output of the model, that one's, as the other tables call it."""
    of_model = [" = output ", name(layer.output)] if layer.output else []
    return join([name(layer.tensor), *of_model])


def mixed(attempt: Attempt) -> Html:
    """Return the search for the layers to keep float: what each of them costs and brings."""
    search = attempt.mixed
    if search is None:
        return Html()
    told = (
        f"{search.tried} of at most {count(search.budget, 'conversion')} made. The score is the {search.score}, "
        f"a limit: below 0 it is missed, 1 is perfect. {_score(search.uniform, 'It')} with every layer int8, "
        f"{_score(search.final, 'it')} in the end."
    )
    return section("Mixed precision", el("p", told), _costs(search))


def _costs(search: MixedSearch) -> Html:
    kept = sum(cost.kept_float for cost in search.costs)
    head = ("layer", "kept float", "gained", "extra bytes", "score with it int8", "op")
    rows = [
        [
            _between(cost.layer),
            "◆ yes" if cost.kept_float else "no",
            *_gain(cost),
            cost.op,
        ]
        for cost in search.costs
    ]
    caption = f"What int8 costs, layer by layer ({kept} of {len(rows)} kept float)"
    return folded(caption, head, rows, numbers=(2, 3, 4))


def _gain(cost: LayerCost) -> list[str]:
    runs = cost.score > NOT_RUN
    return [
        f"{cost.gained:+.3g}" if runs else "runs at all",
        f"{cost.extra_bytes:,}",
        number(cost.score) if runs else "does not run",
    ]


def _score(score: float, it: str) -> str:
    return f"{it} did not run everywhere" if score <= NOT_RUN else f"{it} was {number(score)}"


def _between(layer: str) -> Html:
    """Return a layer's name; of a run of layers the last one without the path that it shares with the first."""
    first, to, last = layer.partition(_TO)
    shared = first.rpartition("/")[0] + "/"
    if not to or not last.startswith(shared):
        return name(layer)
    return el("span", name(first), _TO, name(last.removeprefix(shared)), title=layer)

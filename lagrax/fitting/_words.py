"""What a fit found, in sentences: for the terminal and for the report."""

import math

from ..series import Estimate, Holdout, Score, SeriesFit

METHODS = {"model": "the model", "naive": "the last value", "seasonal_naive": "the last season", "ar": "an autoregression"}
"""How a method of forecasting is called inside a sentence."""

_KINDS = {
    "neural": "neural delay",
    "nicholson": "Nicholson",
    "hutchinson": "Hutchinson",
    "mackey-glass": "Mackey–Glass",
    "delayed-feedback": "delayed-feedback",
}
ALIASES = {
    "zero": "a delay near zero, which only measures the slope",
    "period": "the period, which only repeats the last cycle",
    "embedding": "other delays, which explain the data nearly as well",
}

VERDICTS = {
    "identified": "the data and the equation agree on it.",
    "predictive only": "it helps to forecast; it need not be a delay of the mechanism.",
    "at bound": "the loss still falls at the edge of the range searched, so that it is no estimate; widen --delay-bounds.",
}

_STAGES = {
    "scan": "the search for delays",
    "training": "the fit of the training part",
    "fitting": "the fit of the whole record",
    "profile": "the loss over the delays",
    "bootstrap": "the intervals",
    "forecast": "the forecast of the model",
}


def number(value: float | None) -> str:
    """Four digits at most, without exponents where they can be avoided."""
    if value is None:
        return "–"
    size = abs(value)
    if size and not 1e-3 <= size < 1e6:
        return f"{value:.2e}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def with_interval(estimate: Estimate) -> tuple[str, str, str]:
    """An estimate and the ends of its interval, with more decimals than usual if they are close."""
    value, low, high = estimate.estimate, estimate.low, estimate.high
    if low is None or high is None or not 0 < high - low < 0.03 * abs(value) or not 1e-3 <= abs(value) < 1e6:
        return number(value), number(low), number(high)
    decimals = max(0, 1 - math.floor(math.log10(high - low)))
    return f"{value:.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}"


def symbol(name: str) -> str:
    """τ for tau, τ2 for tau2."""
    return name.replace("tau", "τ")


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def model_name(fit: SeriesFit) -> str:
    return f"{_KINDS.get(fit.kind, fit.kind)} model"


def headline(fit: SeriesFit) -> str:
    """Who forecasts best on the hold-out, and by how much."""
    scores = {method: score for method, score in fit.holdout.scores.items() if score is not None}
    if not scores:
        return f"There was too little data to compare forecasts; the one given is by {METHODS[fit.chosen]}."
    own = scores.get("model")
    others = {method: score for method, score in scores.items() if method != "model"}
    end = f"{_span(fit.holdout)} (mean absolute scaled error, lower is better)"
    if own is None:
        best = min(others, key=lambda method: others[method].mase)
        rest = f"of the baselines, {METHODS[best]} forecasts best: {_mase(others[best])}, {end}"
        return f"{missing(fit) if fit.missing else f'The {model_name(fit)} was refused'}; {rest}."
    if not others:
        return f"The {model_name(fit)} scores {_mase(own)} {end}."
    rival = min(others, key=lambda method: others[method].mase)
    rivals = f"{METHODS[rival]} {_mase(others[rival])}"
    if _mase(own) == _mase(others[rival]):
        return f"The {model_name(fit)} forecasts as well as {METHODS[rival]}: {_mase(own)}{_rest(others, rival)}, {end}."
    if own.mase < others[rival].mase:
        return f"The {model_name(fit)} forecasts best: {_mase(own)} against {rivals}{_rest(others, rival)}, {end}."
    winner = f"{METHODS[rival][0].upper()}{METHODS[rival][1:]}"
    return f"{winner} forecasts better than the {model_name(fit)}: {_mase(others[rival])} against {_mase(own)}, {end}."


def missing(fit: SeriesFit) -> str:
    """What a fit that was interrupted did not come to, as the beginning of a sentence."""
    names = [_STAGES.get(stage, stage) for stage in fit.missing]
    all_of = f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"
    return f"This fit was interrupted, and {all_of} missing"


def _rest(others: dict[str, Score], rival: str) -> str:
    rest = [f"{METHODS[method]} {_mase(score)}" for method, score in others.items() if method != rival]
    return f" ({', '.join(rest)})" if rest else ""


def _mase(score: Score) -> str:
    return f"{score.mase:.2f}"


def _span(holdout: Holdout) -> str:
    ahead = f"{holdout.horizon} samples ahead" if holdout.horizon != 1 else "one sample ahead"
    return f"{ahead} from {holdout.origins} origin{'s' * (holdout.origins != 1)} in the part held out"


def interval(estimate: Estimate, neural: bool) -> str:
    """Such as "95 %: 13.5 to 14.9"; for a neural model the range of its members, which is no interval of confidence.

    Where other delays explain the data as well, the bootstrap has seen only what is near the one that was lowest.
    """
    if estimate.low is None:
        return ""
    one_of_several = estimate.verdict == "predictive only" and estimate.aliases
    which = "members" if neural else "95 % if it is this one" if one_of_several else "95 %"
    _, low, high = with_interval(estimate)
    return f"{which}: {low} to {high}"


def delays(fit: SeriesFit) -> list[str]:
    """A sentence for each delay, with its interval, its verdict and its aliases."""
    return [_delay(estimate, fit.samples.unit, fit.kind == "neural") for estimate in fit.delays]


def _delay(estimate: Estimate, unit: str, neural: bool) -> str:
    within = interval(estimate, neural)
    kinds = dict.fromkeys(alias.kind for alias in estimate.aliases)
    also = [
        f"{', '.join(number(alias.value) for alias in estimate.aliases if alias.kind == kind)} ({ALIASES.get(kind, kind)})"
        for kind in kinds
    ]
    aliases = f"; not to be confused with {' or '.join(also)}" if also else ""
    value = f"{with_interval(estimate)[0]} {unit}".rstrip()
    verdict = estimate.verdict or "so far"
    return f"{symbol(estimate.name)} = {value}{f' ({within})' if within else ''}, {verdict}{aliases}."


def verdicts(fit: SeriesFit) -> list[str]:
    """What the verdicts mean, each said once."""
    found = dict.fromkeys(estimate.verdict for estimate in fit.delays if estimate.verdict)
    return [f"{verdict[0].upper()}{verdict[1:]}: {VERDICTS[verdict]}" for verdict in found if verdict in VERDICTS]

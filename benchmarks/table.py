"""The measured rows as a table: aligned text for the terminal, Markdown for the documentation."""

from typing import Any

HEADER = ("what", "peer", "ratio (lagrax : peer)", "target", "error: lagrax / peer")

Json = dict[str, Any]


def seconds(value: float) -> str:
    """Three digits and the unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def ratio_cell(row: Json) -> str:
    """The ratio, both times (lagrax's first) and the verdict."""
    per = "" if row["unit"] == "run" else f" per {row['unit']}"
    times = " : ".join(seconds(row["seconds"][side]["median"]) for side in ("lagrax", "peer"))
    digits = 0 if row["ratio"] >= 20 else 1 if row["ratio"] >= 10 else 2
    return f"{row['ratio']:.{digits}f}× {'met' if row['met'] else 'missed'} ({times}{per})"


def error_cell(row: Json) -> str:
    errors = [row["seconds"][side]["error"] for side in ("lagrax", "peer")]
    shown = [_power(error) for error in errors if error is not None]
    return "" if row["quantity"] is None else f"{row['quantity']}: " + " / ".join(shown)


def _power(error: float) -> str:
    """One digit and a power of ten, without the zero that Python pads it with."""
    digit, power = f"{error:.0e}".split("e")
    return f"{digit}e{int(power)}" if error else "0"


def cells(rows: list[Json]) -> list[tuple[str, ...]]:
    """One tuple per row, in the order of `HEADER`."""
    return [(row["what"], row["peer"], ratio_cell(row), row["target"], error_cell(row)) for row in rows]


def text(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    line = lambda row: "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    return "\n".join([line(HEADER), line(tuple("-" * width for width in widths)), *map(line, rows)])


def markdown(rows: list[Json], about: str) -> str:
    """The table, the line `about` the machine, and the rows' notes."""
    line = lambda row: "| " + " | ".join(row) + " |"
    table = [line(HEADER), line(("---",) * len(HEADER)), *map(line, cells(rows))]
    notes = [f"- *{row['what']}*: {row['note']}" for row in rows]
    return "\n".join([*table, "", about, "", *notes]) + "\n"

"""Times of two things that are done in turn, and the table of their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Times:
    """Seconds that one thing took, run by run."""

    seconds: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """The median in milliseconds."""
        return statistics.median(self.seconds) * 1000

    @property
    def spread(self) -> str:
        """The fastest and the slowest run in milliseconds."""
        return f"{digits(min(self.seconds) * 1000)}-{digits(max(self.seconds) * 1000)}"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `limit` is the most that `ours` may be, in its own unit; `aim` says how
    that came about."""

    what: str
    ours: float
    theirs: float | None = None
    aim: str = ""
    limit: float | None = None
    spread: str = ""

    @property
    def missed(self) -> bool:
        """Whether the aim is missed."""
        return self.limit is not None and self.ours > self.limit

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        ratio = f"{self.ours / self.theirs:.2f}" if self.theirs else ""
        theirs = digits(self.theirs) if self.theirs is not None else ""
        aim = self.aim and f"{self.aim} {'MISSED' if self.missed else 'ok'}"
        return self.what, digits(self.ours), theirs, ratio, aim, self.spread


HEADINGS = ("what", "ours ms", "yardstick ms", "ratio", "aim", "ours, yardstick from-to")


def digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def timed(work: Callable[[], object]) -> float:
    """The seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(*works: Callable[[], float], rounds: int, warm: int = 1) -> list[Times]:
    """Runs the works one after the other, round by round, and forgets the first `warm` rounds. Each
    returns the seconds that count, so that it says for itself where its clock begins."""
    found = [Times() for _ in works]
    for number in range(warm + rounds):
        for work, times in zip(works, found, strict=True):
            seconds = work()
            if number >= warm:
                times.seconds.append(seconds)
    return found


def compared(
    what: str, ours: Times, theirs: Times, factor: float | None = None, plus: float = 0
) -> Row:
    """The row of two things that were timed in turn, with the aim, if there is one, that ours takes
    under `factor` times the yardstick plus `plus` milliseconds."""
    spread = f"{ours.spread}, {theirs.spread}"
    if factor is None:
        return Row(what, ours.ms, theirs.ms, spread=spread)
    limit = factor * theirs.ms + plus
    aim = f"< {factor:g} x" + (f" + {digits(plus)} = {digits(limit)}" if plus else "")
    return Row(what, ours.ms, theirs.ms, aim, limit, spread)


def alone(what: str, times: Times, aim: str = "", limit: float | None = None) -> Row:
    """The row of something that has no yardstick."""
    return Row(what, times.ms, None, aim, limit, times.spread)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table that is also readable as it stands."""
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    align = (str.ljust, str.rjust, str.rjust, str.rjust, str.ljust, str.ljust)
    lines = [
        "| " + " | ".join(put(cell, width) for put, cell, width in zip(align, line, widths, strict=True))
        + " |"
        for line in cells
    ]  # fmt: skip
    rules = (
        "-" * (w + 1) + (":" if p is str.rjust else "-") for w, p in zip(widths, align, strict=True)
    )
    return "\n".join((lines[0], "|" + "|".join(rules) + "|", *lines[1:]))

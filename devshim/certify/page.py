"""The page of certified machines, made from the reports of `devshim certify --json`.

``python -m devshim.certify.page --write FOLDER PAGE`` makes the page from the JSON files of a folder; ``--check`` ends
with exit code 1 where the page differs from them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.certify.claims import FAIL, PASS, RATE, SKIP
from devshim.certify.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.certify.report import Framework

__all__ = ["page"]

HEAD = """# Real cards

Generated from the files in `docs/certified/`; do not edit it.

{state}

## Check your machine

On a machine with NVIDIA cards, with your frameworks installed beside devshim:

```console
$ devshim certify --json certified.json
```

It takes about ten minutes. Each framework runs in a separate process, and each claim of this documentation is
printed with PASS, FAIL or SKIP, as are the rates of this machine: small and large copies to the card and back, card to
card, and sums over all cards. `--quick` uses an eighth of the memory and fewer rounds, `--backend torch` checks one
framework, `--only 'tensors.*'` some claims, and `--simulate` tries the checks themselves on simulated GPUs.

| exit code | meaning |
|---|---|
| 0 | every claim is true, or was skipped for the reason printed |
| 1 | a claim is false |
| 2 | no card was found; the text gives the reason, as `devshim doctor` does |

If a framework ends the process, the claim that was running fails with the signal's name, and a new process continues
with the next one. Attach `certified.json` to a bug report: it has the models of the cards, the versions and every
result. It contains neither the name nor a serial number of the machine; it has the texts of errors as they were raised.

To list the machine here, add the file to `docs/certified/` and run `nox -s certified`.
"""
_NONE = """**No machine is certified yet.** devshim is developed and tested on simulated GPUs; no result on a real
card is recorded here. The first report is welcome: it takes the command below."""
_SOME = "On these machines, each listed framework was checked with its GPUs. Failures are listed, not hidden."


def page(reports: Sequence[Report]) -> str:
    """Return the page as Markdown."""
    lines = [HEAD.format(state=_SOME if reports else _NONE).rstrip("\n"), ""]
    for report in sorted(reports, key=lambda each: (each.date, each.cards), reverse=True):
        lines += _machine(report)
    return "\n".join(lines).rstrip("\n") + "\n"


def _machine(report: Report) -> Iterator[str]:
    quick = ", `--quick`" if report.quick else ""
    yield from (f"## {_cards(report.cards)}, {report.date}", "")
    yield from (f"NVIDIA driver {report.driver}, Python {report.python}, devshim {report.devshim}{quick}.", "")
    yield from ("| framework | GPUs | pass | fail | skipped |", "|---|---|---|---|---|")
    checked = [framework for framework in report.frameworks if framework.results]
    for each in checked:
        counts = " | ".join(str(each.count(status)) for status in (PASS, FAIL, SKIP))
        yield f"| {each.title} {each.version or ''} | {each.gpus} | {counts} |"
    yield ""
    for each in checked:
        yield from _details(each)


def _cards(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _details(framework: Framework) -> Iterator[str]:
    for result in framework.results:
        if result.status == FAIL:
            yield f"- **{framework.title} fails** `{result.name}`: {result.says} {result.note}"
    yield ""
    rates = [result for result in framework.results if result.status == RATE]
    if rates:
        yield from (f"| {framework.title} | measured |", "|---|---|")
        yield from (f"| {result.says} | {result.note} |" for result in rates)
        yield ""


def _read(folder: Path) -> list[Report]:
    reports = []
    for path in sorted(folder.glob("*.json")):
        report = Report.from_json(path.read_text(encoding="utf-8"))
        if report.simulated:
            msg = f"{path} was written with --simulate: it certifies no machine"
            raise SystemExit(msg)
        reports.append(report)
    return reports


def main(arguments: Sequence[str]) -> int:
    """Write or check the page, and return the exit code."""
    if len(arguments) != 3 or arguments[0] not in ("--write", "--check"):
        print(__doc__, file=sys.stderr)
        return 2
    folder, target = Path(arguments[1]), Path(arguments[2])
    made = page(_read(folder))
    if arguments[0] == "--write":
        target.write_text(made, encoding="utf-8")
        return 0
    if target.read_text(encoding="utf-8") == made:
        return 0
    print(f"{target} is not what {folder} makes: run `nox -s certified`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

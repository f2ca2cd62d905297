"""Print the lines of prose that are not plain, and their share: see `prose.py`."""

from __future__ import annotations

import sys

from prose import ROOT, faults, files, prose

total = found = 0
for path in files(sys.argv[1:]):
    for number, line in prose(path):
        total += 1
        wrong = faults(line)
        if wrong:
            found += 1
            print(f"{path.relative_to(ROOT)}:{number}: {line} ({'; '.join(wrong)})")
print(f"{found} of {total} lines of prose, {100 * found / max(total, 1):.2f} %")

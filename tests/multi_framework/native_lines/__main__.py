"""The command of `native_lines`."""

import sys

from native_lines import main

sys.exit(main(sys.argv[1:]))

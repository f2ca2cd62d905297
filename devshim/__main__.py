"""`python -m devshim` is the command `devshim`."""

from devshim.cli import main

main()

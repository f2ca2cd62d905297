"""`python -m devshim`: the same as the command `devshim`."""

from devshim.cli import main

main()

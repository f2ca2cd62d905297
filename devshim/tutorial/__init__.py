"""Tutorials that are written once and run on every framework: the code behind ``devshim tutorial``.

A page (`devshim.tutorial.page`) is a MyST notebook, a percent script or an ipynb file. Each framework runs it in an
separate environment (`environments`, `running`), with a small part inside the kernel (`kernel`) that records what
each cell did. The result is one `devshim.tutorial.record.Record` for each framework, which `comparing` compares.

Nothing here is imported by ``import devshim``. Only `kernel` runs inside the environments of the frameworks; the other
modules need the extra ``devshim[tutorial]``, and import its packages when they are used.
"""

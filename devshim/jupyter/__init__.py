"""The notebook extension: ``%load_ext devshim`` adds ``%devices``, ``%use``, ``%simulate`` and ``%%frameworks``.

``import devshim`` does not import this package. The HTML of devshim's objects is in ``devshim._html``; it needs no
extension.
"""

from __future__ import annotations

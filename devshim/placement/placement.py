"""`Placement`: a value that says which leaf lives on which device; it can be read, planned, saved and applied.

A key of a placement is a leaf's path (``"0.weight"``), the path of something above it (``"encoder"``), or a glob
(``"*.bias"``, as in `fnmatch`). A leaf that no key names is on the default device.
"""

from __future__ import annotations

from devshim.devices import parsing
from devshim.devices.device import Device
from devshim.errors import ArgumentError
from devshim.errors.formatting import show

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from devshim.devices.parsing import DeviceLike

__all__ = ["Placement", "placement_of"]

_FORMAT = "devshim.placement.placement"


class Placement:
    """A mapping from leaf paths to devices.

    A placement of one object also works where that object is an item of a list, tuple or dict, for example next to its
    optimizer. The first of these rules that finds a device decides:

    1. a key for the leaf's full path: the exact path, then the nearest path above it, then the first matching glob;
    2. a key for its path within the item, such as ``"0.weight"`` for the leaf ``"model.0.weight"``;
    3. the default;
    4. without a default, for a tensor of a tree and an optimizer's state: an exact key for the end of its path, so
       that state which mirrors the weights (optax's ``"1.0.mu.dense.kernel"``) goes where they go;
    5. without a default, for an optimizer's counts and a tree's numbers (0-d tensors): the first device named.

    The state of an optimizer goes where its parameter goes.

    Args:
        places: A mapping from a path, a path above, or a glob to a device.
        default: The device of leaves that no key names; without it, this is an error.

    Raises:
        ArgumentError: A key is not text.
        DeviceSpecError: A value does not name a device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> placement = ds.Placement({"head.*": "gpu:1"}, default="gpu:0")
        >>> placement.of_leaf("head.weight", "", False)
        Device('gpu', 1)
        >>> ds.Placement.from_json(placement.to_json()) == placement
        True
    """

    __slots__ = ("_default", "_globs", "_places", "_sizes")

    def __init__(self, places: Mapping[str, DeviceLike] | None = None, default: DeviceLike | None = None) -> None:
        if places is not None and not hasattr(places, "items"):
            from devshim.registry import argument_hints

            raise argument_hints.no_places(places)
        given = {} if places is None else dict(places)
        for key in given:
            if not isinstance(key, str):
                msg = f"a placement's key is {show(key)}, and it must be text"
                raise ArgumentError(
                    msg,
                    f"write a leaf's path, such as {{{str(key) if type(key) is int else '0.weight'!r}: 'gpu:0'}}; "
                    "ds.placement_of(model) shows the paths",
                )
        self._places = {key: place if type(place) is Device else parsing.device(place) for key, place in given.items()}
        self._globs = _globs(self._places)
        self._default = None if default is None else parsing.device(default)
        self._sizes: Mapping[str, int] = {}

    @property
    def default(self) -> Device | None:
        """The device of leaves that no key names."""
        return self._default

    @property
    def devices(self) -> frozenset[Device]:
        """The devices that the placement uses."""
        return frozenset(self._places.values()) | (frozenset() if self._default is None else {self._default})

    def items(self) -> Iterator[tuple[str, Device]]:
        """Yield the keys and their devices, in the order they were given."""
        return iter(self._places.items())

    def find(self, path: str) -> Device | None:
        """Return the device of a leaf, or None if the placement names none for it."""
        found = self._find_entry(path)
        return self._default if found is None else found

    def __getitem__(self, path: str) -> Device:
        found = self.find(path)
        if found is None:
            msg = f"the placement has no device for the leaf {path!r}"
            raise ArgumentError(msg, f"add {path!r}: 'cpu' to it, or a default: ds.Placement(places, default='cpu')")
        return found

    def _find_entry(self, path: str) -> Device | None:
        above = path
        while True:
            if above in self._places:
                return self._places[above]
            above, dot, _ = above.rpartition(".")
            if not dot:
                break
        if self._globs:
            from fnmatch import fnmatchcase

            for glob in self._globs:
                if fnmatchcase(path, glob):
                    return self._places[glob]
        return None

    def of_leaf(self, prefix: str, path: str, count: bool = False) -> Device:
        """Return the device of a leaf, by the rules of the class.

        Args:
            prefix: The key path of the model or tensor in the tree; empty if it is the tree itself.
            path: The leaf's path in the model; empty for a tensor.
            count: True if it is a number that belongs to no parameter.

        Raises:
            ArgumentError: No rule finds a device.
        """
        full = f"{prefix}.{path}" if prefix and path else prefix or path
        found = self._find_entry(full)
        if found is None and prefix:
            within = full.partition(".")[2]
            found = self._find_entry(within) if within else None
            if found is None and path and path != within:
                found = self._find_entry(path)
        if found is None and self._default is None:
            found = self._at_the_end_of(full) if count or not path else None
            if found is None and count and self._places:
                return next(iter(self._places.values()))
        found = self[full] if found is None else found
        return found if found.text else self[full]  # reads the text: see `devshim.devices.device`

    def _at_the_end_of(self, path: str) -> Device | None:
        """Return the device of an exact key for the longest matching end of a path."""
        while path:
            path = path.partition(".")[2]
            if path in self._places:
                return self._places[path]
        return None

    # ------------------------------------------------------------------ as a value
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return self._places == other._places and self._default is other._default and self._globs == other._globs

    def __hash__(self) -> int:
        return hash((frozenset(self._places.items()), self._default))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __reduce__(self) -> tuple[object, ...]:
        return (Placement, (self._places, self._default))

    def to_json(self) -> str:
        """Return the placement as JSON text, from which `from_json` makes an equal one."""
        import json

        places = {key: str(place) for key, place in self._places.items()}
        return json.dumps({"format": _FORMAT, "places": places, "default": self._default and str(self._default)})

    @classmethod
    def from_json(cls, text: str) -> Placement:
        """Return the placement that `to_json` wrote.

        Raises:
            ArgumentError: The text is not a placement.
        """
        import json

        try:
            read = json.loads(text)
        except (TypeError, ValueError) as error:
            raise _no_placement(error) from error
        if not isinstance(read, dict) or read.get("format") != _FORMAT or not isinstance(read.get("places"), dict):
            raise _no_placement("its form is invalid")
        return cls(read["places"], read.get("default"))

    @classmethod
    def balanced(
        cls,
        obj: object,
        devices: Sequence[DeviceLike],
        budgets: Mapping[Any, int | str] | Sequence[int | str] | None = None,
        default: DeviceLike | None = None,
    ) -> Placement:
        """Return a placement of a model, or of a tree of tensors, that spreads its bytes over devices.

        Args:
            obj: What to place; a model's weights must have their shapes.
            devices: The devices, in the order in which the parts run.
            budgets: The most bytes for each, as a mapping or in the order of the devices, in bytes or as text such as
                ``"4GiB"``; without it, the free memory now, if the framework reports it. A device that the mapping
                omits has no limit.
            default: The device of leaves that the plan does not name, such as layers added later; see `Placement`.

        Returns:
            The device of every parameter and buffer of models, and of every tensor of a tree; optimizers follow.
            Each device gets a run of consecutive blocks, in the order they run. A block that has over a tenth more
            than a device's share of the bytes is split into the blocks inside it, if that makes the fullest device
            emptier. The tensors of a layer stay together, unless they fit on no device; in a tree, so do the tensors
            directly in a dict or list below the top, such as a weight and its bias. Tied parameters stay together.
            The plan keeps the fullest device, in proportion to its budget, as empty as possible; a device without a
            budget takes only what the others cannot.

        Raises:
            OutOfMemoryError: It does not fit; the error says what is needed, and what is available.
            DeviceNotFoundError: ``budgets`` is not given, and the framework does not have one of the devices.
            ArgumentError: ``devices`` or ``budgets`` is invalid, or there is nothing to place.
        """
        from devshim.placement import planner

        planned = cls(None, default)
        planned._places, planned._sizes = planner.plan(obj, devices, budgets)  # paths and devices, so nothing to check
        planned._globs = _globs(planned._places)
        return planned

    def sized(self, sizes: Mapping[str, int]) -> Placement:
        """Return the same placement with the bytes of its leaves, which its table then shows."""
        new = Placement.__new__(Placement)  # its parts are checked, and never changed
        new._places, new._globs, new._default = self._places, self._globs, self._default
        new._sizes = dict(sizes)
        return new

    def __repr__(self) -> str:
        from devshim.placement import presentation

        return presentation.table(self._places, self._default, self._sizes) or "<Placement of nothing>"

    def _repr_html_(self) -> str:
        from devshim.placement import presentation

        return presentation.html(self._places, self._default, self._sizes)


def _globs(places: Mapping[str, Device]) -> list[str]:
    """Return the keys that may be patterns."""
    return [key for key in places if "*" in key or "?" in key or "[" in key]


def placement_of(obj: object) -> Placement:
    """Return the devices of a tensor, a model, an optimizer, or every tensor of a tree.

    Args:
        obj: Any of these. A leaf's path is the framework's name for it, below its key in the tree: ``"0.weight"``.

    Returns:
        The device of every tensor, parameter, buffer and state, by its path; the path of a single tensor is empty.
        An array of JAX that is sharded over several devices has a path for each part: ``"weight.shards.0"``.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> placement = ds.placement_of({"x": ds.ones(2), "y": [ds.zeros(3)]})
        >>> dict(placement.items())
        {'x': Device('cpu'), 'y.0': Device('cpu')}
    """
    from devshim.transfers import observing
    from devshim.trees import trees

    found, sizes = trees.placement_of(obj)
    shown = observing.explainer()
    if shown is not None:
        shown.tree("device_of", obj)
    return Placement(found).sized(sizes)


def _no_placement(why: object) -> ArgumentError:
    return ArgumentError(
        f"the text is not a placement: {why}", "ds.Placement.from_json(placement.to_json()) gives an equal one"
    )

"""The differences between a real card and a simulated GPU, each with its reason; the tests hold the list exact."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Statements that differ for one reason.

    Attributes:
        reason: Why they differ, in a sentence.
        statements: The statements.
        recorded: Instead of them, a pattern: every statement whose recorded text matches it differs.
        simulated: The pattern that the text of a simulated GPU then matches.
    """

    reason: str
    statements: tuple[str, ...] = ()
    recorded: str = ""
    simulated: str = ""

    def covers(self, statement: str, recorded: dict[str, str], seen: dict[str, str]) -> bool:
        """Return True if a statement may differ for this reason, given what it gives on each side."""
        if statement in self.statements:
            return True
        by_text = self.is_recorded(recorded) and re.search(self.simulated, seen.get("text", ""))
        return bool(by_text)

    def is_recorded(self, recorded: dict[str, str]) -> bool:
        """Return True if the recorded text matches the pattern."""
        return bool(self.recorded) and bool(re.search(self.recorded, recorded.get("text", "")))


NUMBERS = {"torch.cuda.memory_cached()", "torch.cuda.max_memory_cached()"}
"""Statements whose values are numbers of the card: only their types are compared."""

DIFFERENCES = {
    "torch": (
        Difference(
            "Many of CUDA's operators name the argument that is elsewhere, in words that change with each version of "
            "PyTorch; a simulated GPU uses the text of the other operators, with both devices. Both texts begin alike.",
            recorded=r"^Expected all tensors to be on the same device, but got \S+ is on \S+, different from other",
            simulated=r"^Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu",
        ),
        Difference(
            "CUDA's graphs record the work of a card, and are refused.",
            ("torch.cuda.graph_pool_handle().__class__.__name__", "captured()"),
        ),
        Difference(
            "An address in the memory of a card, or a handle of one of its libraries, has no counterpart on the host, "
            "where another library would misread it. It is refused.",
            (
                'hasattr(torch.ones(2, device="cuda"), "__cuda_array_interface__")',
                'sorted(torch.ones(2, device="cuda").__cuda_array_interface__)',
                "torch.cuda.current_blas_handle() != 0",
                "torch.cuda.caching_allocator_alloc(512) != 0",
            ),
        ),
        Difference(
            "DLPack's number for CUDA would let another library read the host's "
            "memory as a card's, so a simulated GPU has another device's number.",
            ('torch.ones(2, device="cuda").__dlpack_device__()',),
        ),
        Difference(
            "A simulated GPU's generator computes the CPU's numbers, so its state is the CPU's: a state that a card "
            "wrote cannot be restored.",
            ("torch.cuda.get_rng_state().dtype, torch.cuda.get_rng_state().shape, torch.cuda.get_rng_state().device",),
        ),
        Difference(
            "NCCL's own functions are refused; torch.distributed and torch.cuda.comm work.",
            ('torch.cuda.nccl.is_available([torch.ones(2, device="cuda")])',),
        ),
        Difference(
            "PyTorch prints the number of the GPU as the character with that number; a simulated GPU prints 7.",
            ("torch.cuda.memory_allocated(7)",),
        ),
    ),
    "jax": (
        Difference(
            "XLA compiles for its CPU, and asks the device for its client.", ("jax.devices()[0].client.platform",)
        ),
        Difference(
            "The number of allocations and the size of the largest are not counted.",
            ("sorted(jax.devices()[0].memory_stats())",),
        ),
        Difference(
            "An address in the memory of a card has no counterpart on the host; JAX's error is the one for its CPU.",
            ("sorted(jnp.ones(2).__cuda_array_interface__)",),
        ),
        Difference(
            "A card computes later, so the call returns; a simulated GPU reports immediately that its memory is full.",
            ("jnp.ones(1 << 50, dtype=jnp.uint8)",),
        ),
        Difference("The CPU's library rounds differently.", ("jnp.linalg.svd(jnp.eye(2))[1]",)),
    ),
}
"""The differences of each framework."""

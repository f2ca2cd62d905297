"""The blocks and layers of Keras models. A ``tf.Module`` is one block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.backend import Backend
from devshim_backends._keras.blocks import blocks_of, layers_of
from devshim_backends._tensorflow.models.traversal import CONTENTS

if TYPE_CHECKING:
    from devshim.contract.models import Block, Layer


class TensorflowBlocks(Backend):
    """The mixin for blocks and layers."""

    def blocks(self, model: Any) -> list[Block]:
        return blocks_of(self, CONTENTS, model)

    def layers(self, model: Any) -> list[Layer]:
        return layers_of(self, CONTENTS, model)

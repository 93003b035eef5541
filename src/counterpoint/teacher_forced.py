"""Hidden states of given replies for decoders of the Llama family, written out, with gradients for one adapter.

Of every row the prompt but for its last token is a beginning (ragged.py); its continuations are what the engine fed to sample
its replies: the prompt's last token and the reply's own but for its last. Every token of a continuation predicts one reply
token.

Anything else runs through transformers on packed rows (packing.py); both give the same gradients up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from counterpoint.layout import Layout
from counterpoint.llama import products
from counterpoint.models import Model
from counterpoint.packing import Row
from counterpoint.ragged import RaggedForward


class TeacherForced:
    """The written-out pass of one model."""

    def __init__(self, model: Model, *, recompute: bool = False) -> None:
        """`recompute` runs every layer again in the backward pass instead of keeping what is in it."""
        self.adapters = model.adapters
        self.forward = RaggedForward(model, recompute=recompute)
        self.products = products(model)

    def hidden(self, rows: Sequence[Row], agent: str | None) -> Float[Tensor, "M H"]:
        """What the head turns into logits of every reply token of `rows`, in order; under the parameters of `agent`'s
        adapter, or of the base model alone."""
        parameters = {} if agent is None else self.adapters.parameters(agent)

        def product(number: int, which: int, x: Tensor) -> Tensor:
            linears = self.products[number][which]
            return linears.product(x, self.adapters.scale, linears.pairs(parameters))

        return self.forward.continuations(layout_of(rows), product)


def layout_of(rows: Sequence[Row]) -> Layout:
    """Prompts and replies as beginnings and continuations."""
    fed = [(row.prompt[-1], *s.token_ids[:-1]) for row in rows for s in row.samples]
    return Layout.of([row.prompt[:-1] for row in rows], fed, [len(row.samples) for row in rows])

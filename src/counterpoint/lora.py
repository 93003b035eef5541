"""One LoRA per (agent, role) on one base model, mixed by row in a single forward pass.

PEFT makes, names, saves and loads the adapters. The forward pass is ours: every adapted linear layer adds
    delta = ((x A^T) * m) B^T * (alpha / r)
with the A and B of all adapters stacked and m[row] selecting the row's own block, so that rows of different agents ride
in one batch and gradients reach exactly the adapters whose rows are present. A learning batch of one adapter in float32
adds it to the weight instead (`Linears`): the thin products then cost nothing forward, and little backward.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from counterpoint.errors import ConfigError, ResumeError
from counterpoint.kernels import linear
from counterpoint.rng import fold
from counterpoint.settings import Settings


class LoraSettings(Settings):
    """The shape of every adapter."""

    r: int = 8
    """Rank of each adapter."""
    alpha: float = 16.0
    """Scale: the update is multiplied by alpha / r."""
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the linear layers that get an adapter, or "all-linear" (every one but the output head)."""


class Adapters:
    """Every adapter of one base model; holds the weights and knows which row uses which."""

    def __init__(self, base: nn.Module, names: Sequence[str], *, settings: LoraSettings, seed: int) -> None:
        from peft import LoraConfig, get_peft_model
        from peft.tuners.lora import LoraLayer

        self.names = tuple(names)
        self.settings = settings
        self.scale = settings.alpha / settings.r
        target = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
        config = LoraConfig(
            r=settings.r, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=target, task_type="CAUSAL_LM"
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers under a name that is going away
            self.peft = get_peft_model(base, config, adapter_name=self.names[0])
            for name in self.names[1:]:
                self.peft.add_adapter(name, config)
        self.layers = [m for m in self.peft.modules() if isinstance(m, LoraLayer)]
        if not self.layers:
            raise ConfigError(f"no linear layer matches lora.targets={settings.targets!r}; name layers of this model")
        if not all(self.names[0] in layer.lora_A for layer in self.layers):
            raise ConfigError(
                f"lora.targets={settings.targets!r} names an embedding; adapters go on linear layers only"
            )
        self.peft.base_model.disable_adapter_layers()
        self.peft.requires_grad_(False)
        for index, layer in enumerate(self.layers):
            for name in self.names:
                _initialise(layer, name, seed=fold(seed, "lora", name, index))
            layer.base_layer.forward = _adapted(self, index, layer.base_layer)
        self._mask: Tensor | None = None
        self._live = False
        self._only: str | None = None  # the one adapter of a batch that learns, where its weights can be merged
        self.merges = all(
            type(layer.base_layer) is nn.Linear and layer.base_layer.weight.dtype == torch.float32
            for layer in self.layers
        )
        self.stacks: list[tuple[Tensor, Tensor]] = []  # [K*r, in] and [out, K*r], scaled, of the last refresh
        self.refreshed = 0
        self.refresh()

    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        """The adapter's own parameters by a name that does not depend on the adapter."""
        found: dict[str, nn.Parameter] = {}
        for index, layer in enumerate(self.layers):
            found[f"{index}.A"] = layer.lora_A[name].weight
            found[f"{index}.B"] = layer.lora_B[name].weight
        return found

    def own(self) -> set[nn.Parameter]:
        """Every adapter's parameters."""
        return {p for name in self.names for p in self.parameters(name).values()}

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the current weights into use for generation."""
        self.stacks = [tuple(t.contiguous() for t in self._stack(layer)) for layer in self.layers]  # type: ignore[misc]
        self.refreshed += 1

    def refreshed_parameters(self, name: str) -> dict[str, Tensor]:
        """The adapter's parameters as of the last refresh, B scaled."""
        k, r = self.names.index(name), self.settings.r
        own = slice(k * r, (k + 1) * r)
        return {
            key: tensor
            for index, (a, b) in enumerate(self.stacks)
            for key, tensor in ((f"{index}.A", a[own]), (f"{index}.B", b[:, own]))
        }

    @contextlib.contextmanager
    def routed(self, rows: Int[Tensor, " B"], *, live: bool) -> Iterator[None]:
        """Inside, row b of every forward uses adapter `names[rows[b]]`, or the bare base model where rows[b] is -1.

        `live` reads the parameters themselves and lets gradients through (learning); otherwise the weights of the last
        `refresh` are used (generation).
        """
        before = self._mask, self._live, self._only
        self._mask, self._live = self.mask(rows), live
        self._only = self._single(rows) if live and self.merges else None
        try:
            yield
        finally:
            self._mask, self._live, self._only = before

    def _single(self, rows: Int[Tensor, " B"]) -> str | None:
        present = torch.unique(rows).tolist()
        return self.names[present[0]] if len(present) == 1 and present[0] >= 0 else None

    def mask(self, rows: Int[Tensor, " B"]) -> Float[Tensor, "B 1 Kr"]:
        """The routing mask of a batch: ones on the row's own block of the stacked rank axis."""
        one_hot = rows[:, None] == torch.arange(len(self.names), device=rows.device)[None]
        dtype = self.layers[0].lora_A[self.names[0]].weight.dtype
        return one_hot.to(dtype).repeat_interleave(self.settings.r, dim=1)[:, None]

    def set_mask(self, mask: Float[Tensor, "B 1 Kr"]) -> None:
        """Replace the routing of the batch inside `routed`, when rows leave or join it."""
        self._mask = mask

    def _stack(self, layer: Any) -> tuple[Tensor, Tensor]:
        a = torch.cat([layer.lora_A[n].weight for n in self.names], dim=0)
        b = torch.cat([layer.lora_B[n].weight for n in self.names], dim=1)
        return a, b * self.scale

    def delta(self, index: int, x: Tensor) -> Tensor | None:
        """What the adapters add to the output of adapted layer `index` for input x [B, T, in]."""
        if self._mask is None:
            return None
        if x.shape[0] != self._mask.shape[0]:
            raise ConfigError(
                "this model regroups rows inside a layer (a mixture of experts?); name lora.targets outside it"
            )
        a, b = self._stack(self.layers[index]) if self._live else self.stacks[index]
        hidden = (x.to(a.dtype) @ a.T) * self._mask
        return (hidden @ b.T).to(x.dtype)

    def state(self) -> dict[str, Tensor]:
        """Every adapter's current weights, on the CPU, as "AGENT/ROLE/LAYER.A" and ".B"."""
        return {
            f"{name}/{key}": parameter.detach().cpu().contiguous()
            for name in self.names
            for key, parameter in self.parameters(name).items()
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what `state` gave, possibly among the adapters of other models, into use."""
        for name in self.names:
            for key, parameter in self.parameters(name).items():
                parameter.copy_(state[f"{name}/{key}"])
        self.refresh()

    def save(self, folder: Path) -> None:
        """Write every adapter in PEFT's own format under folder/AGENT/ROLE/."""
        self.peft.save_pretrained(str(folder), selected_adapters=list(self.names), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        for name in self.names:
            _sort_targets(folder / name / "adapter_config.json")

    def load(self, folder: Path) -> None:
        """Read back what `save` wrote; raises ResumeError when an adapter is missing."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        for name in self.names:
            file = folder / name / "adapter_model.safetensors"
            if not file.is_file():
                raise ResumeError(f"no adapter for {name} at {file}; the checkpoint belongs to another team")
            set_peft_model_state_dict(self.peft, load_file(str(file)), adapter_name=name)
        self.refresh()


def _sort_targets(path: Path) -> None:
    """PEFT keeps target modules in a set: in a fixed order, equal adapters are equal files."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


@torch.no_grad()
def _initialise(layer: Any, name: str, *, seed: int) -> None:
    """A ~ U(-1/sqrt(in), 1/sqrt(in)) as PEFT draws it, B = 0; from a keyed seed, so no global state is read."""
    weight = layer.lora_A[name].weight
    bound = weight.shape[1] ** -0.5
    draw = torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    weight.copy_((draw * 2 - 1) * bound)
    layer.lora_B[name].weight.zero_()


def _adapted(adapters: Adapters, index: int, base: Any) -> Any:
    """The forward of an adapted linear layer: its own, and what the adapters of the rows add."""
    plain = base.forward
    alone = Linears([base.weight], base.bias, [index], [len(base.weight)])

    def forward(x: Tensor) -> Tensor:
        only = adapters._only
        if only is not None:
            layer = adapters.layers[index]
            pair = layer.lora_A[only].weight, layer.lora_B[only].weight
            return alone.product(x.flatten(0, -2), adapters.scale, pair).view(*x.shape[:-1], -1)
        output: Tensor = plain(x)
        delta = adapters.delta(index, x)
        return output if delta is None else output + delta

    return forward


# ---- one adapter alone ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Linears:
    """Frozen linear layers of one input, end to end, and which adapted layer each of them is."""

    weights: list[Float[Tensor, "out in"]]
    bias: Float[Tensor, " sum_out"] | None
    indices: list[int | None]
    sizes: list[int]

    def span(self, i: int) -> slice:
        """Where the outputs of layer i lie."""
        first = sum(self.sizes[:i])
        return slice(first, first + self.sizes[i])

    def pairs(self, parameters: Mapping[str, Tensor]) -> list[Tensor | None]:
        """A and B of every layer in turn, out of an adapter's parameters; None, None for a layer without."""
        keys = [(i, part) for i in self.indices for part in "AB"]
        return [None if i is None else parameters.get(f"{i}.{part}") for i, part in keys]

    def product(self, x: Float[Tensor, "N in"], scale: float, pairs: Sequence[Tensor | None]) -> Float[Tensor, "N out"]:
        """x times every weight with its A and B added, and the bias."""
        product: Tensor = _Product.apply(x, self, scale, *pairs)  # type: ignore[no-untyped-call]
        return product

    def merged(self, scale: float, pairs: Sequence[Tensor | None]) -> Float[Tensor, "sum_out in"]:
        """W + s B A of every layer, from A and B of each; None where a layer has no adapter."""
        if len(self.weights) == 1 and pairs[0] is None:
            return self.weights[0]
        whole = self.weights[0].new_empty(sum(self.sizes), self.weights[0].shape[1])
        for part, weight, a, b in zip(
            torch.split(whole, self.sizes), self.weights, pairs[::2], pairs[1::2], strict=True
        ):
            if a is None or b is None:
                part.copy_(weight)
            else:
                torch.addmm(weight, b, a, alpha=scale, out=part)
        return whole


class _Product(torch.autograd.Function):
    """x (W + s B A)^T for frozen weights of one input: a full product forward, one backward for x, thin ones for every A
    and B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, linears: Linears, scale: float, *pairs: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, *pairs)
        ctx.linears, ctx.scale = linears, scale
        return linear(x, linears.merged(scale, pairs), linears.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *pairs = ctx.saved_tensors
        grad, scale = grads[0], ctx.scale
        into = linear(grad, ctx.linears.merged(scale, pairs).T) if ctx.needs_input_grad[0] else None
        thin: list[Tensor | None] = [None] * len(pairs)
        owned = [i for i, needed in enumerate(ctx.needs_input_grad[3::2]) if needed]
        if owned:
            rank = len(pairs[2 * owned[0]])
            of_b = x.new_zeros(len(owned) * rank, grad.shape[1])  # every B transposed, block by block
            spans = [(slice(k * rank, (k + 1) * rank), ctx.linears.span(i)) for k, i in enumerate(owned)]
            for (rows, columns), i in zip(spans, owned, strict=True):
                of_b[rows, columns] = pairs[2 * i + 1].T
            below, above = linear(x, torch.cat([pairs[2 * i] for i in owned])), linear(grad, of_b)
            of_a = (above.T @ x).mul_(scale)
            for (rows, columns), i in zip(spans, owned, strict=True):
                thin[2 * i], thin[2 * i + 1] = of_a[rows], (below[:, rows].T @ grad[:, columns]).mul_(scale).T
        return into, None, None, *thin

"""A base model with its tokenizer and adapters: loaded once, however many agents and roles use it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from counterpoint.errors import ConfigError
from counterpoint.lora import Adapters, LoraSettings
from counterpoint.records import Message
from counterpoint.settings import Settings

BUNDLED = "tiny"


class ModelSettings(Settings):
    """Which base model, and how it is loaded."""

    name: str = BUNDLED
    """"tiny" (bundled), a hub name, or a path to a folder or a .gguf file."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    device: str = "auto"
    """auto: cuda when there is one, else cpu."""
    quantisation: Literal["none", "nf4"] = "none"
    """nf4: hold the frozen weights in 4 bits, by bitsandbytes; adapters stay as they are."""
    chat_template: str = "auto"
    """auto: the tokenizer's own; "plain": messages joined by blank lines, for base models without one."""
    thinking: bool = False
    """Whether templates that know `enable_thinking` (Qwen3) turn it on."""
    trust_remote_code: bool = False
    """Run code that a hub repository ships. Off unless you turn it on."""
    revision: str = "main"
    """Hub revision."""


class Model:
    """Weights, tokenizer, adapters; turns messages into ids and ids into text."""

    def __init__(self, settings: ModelSettings, adapters: Sequence[str], *, lora: LoraSettings, seed: int) -> None:
        self.settings = settings
        self.device = torch.device(device_of(settings.device))
        self.dtype = dtype_of(settings.dtype, self.device)
        base, self.tokenizer = _load(settings, self.dtype, self.device)
        base.eval() if settings.quantisation != "none" else base.to(self.device).eval()
        self.context = int(getattr(base.config, "max_position_embeddings", 0) or 1 << 30)
        self.sha256 = _hash(base)
        self.adapters = Adapters(base, adapters, settings=lora, seed=seed)
        self.base = base
        self.eos = _eos_ids(base, self.tokenizer)
        self.system_role = takes_system(self.tokenizer) if settings.chat_template == "auto" else True
        _check_attention(base.config, settings.name)
        self.plain_head = _plain_head(base)

    @property
    def vocab_size(self) -> int:
        return int(self.base.get_output_embeddings().weight.shape[0])

    def hidden(self, ids: Tensor, positions: Tensor, attention: Tensor) -> Tensor:
        """What `head` turns into logits: the backbone's output [B, L, H], or the logits themselves where a model scales
        or caps them. `attention` [B, 1, L, L] is True where a query may look."""
        call = self.base.base_model if self.plain_head else self.base
        out = call(input_ids=ids, position_ids=positions, attention_mask=attention, use_cache=False)
        return out.last_hidden_state if self.plain_head else out.logits  # type: ignore[no-any-return]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [M, V] of picked hidden states [M, H]."""
        return self.base.get_output_embeddings()(hidden) if self.plain_head else hidden

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Prompt ids of a chat, generation prompt included."""
        return encode_chat(self.tokenizer, messages, settings=self.settings, system_role=self.system_role)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def encode_chat(
    tokenizer: Any, messages: Sequence[Message], *, settings: ModelSettings, system_role: bool
) -> tuple[int, ...]:
    """Prompt ids of a chat under a model's settings; `system_role`: whether the template takes a system message."""
    if settings.chat_template == "plain":
        text = "\n\n".join(m.content for m in messages) + "\n\n"
        return tuple(tokenizer(text, add_special_tokens=True)["input_ids"])
    chat = [{"role": m.role, "content": m.content} for m in _merged(messages, keep=system_role)]
    text = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=False, enable_thinking=settings.thinking
    )
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def load_models(choice: Mapping[str, ModelSettings], *, lora: LoraSettings, seed: int) -> dict[str, Model]:
    """The model of every adapter "AGENT/ROLE"; equal settings are one model, loaded once with all its adapters."""
    models: dict[str, Model] = {}
    for settings in dict.fromkeys(choice.values()):
        own = [name for name, chosen in choice.items() if chosen == settings]
        models |= dict.fromkeys(own, Model(settings, own, lora=lora, seed=seed))
    return models


def distinct(models: Mapping[str, Model]) -> list[Model]:
    """Each model once, however many adapters are on it."""
    return list({id(model): model for model in models.values()}.values())


def device_of(name: str) -> str:
    """The device that a setting means here."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """The precision that a setting means on a device."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def model_path(name: str) -> str:
    """Where a model name points: the bundled folder for "tiny", otherwise the name itself."""
    return str(files("counterpoint") / "data" / "tiny") if name == BUNDLED else name


def _load(settings: ModelSettings, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from counterpoint.gguf import load_gguf

    path = model_path(settings.name)
    if path.endswith(".gguf"):
        if settings.quantisation != "none":
            raise ConfigError(
                f"model.quantisation={settings.quantisation} is not for .gguf files; name a folder or a hub model"
            )
        base, tokenizer = load_gguf(Path(path), dtype=dtype)
    else:
        options: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code, "revision": settings.revision}
        try:
            with _no_bars() if Path(path).is_dir() else contextlib.nullcontext():
                tokenizer = AutoTokenizer.from_pretrained(path, **options)
                base = AutoModelForCausalLM.from_pretrained(
                    path, dtype=dtype, **options, **_quantised(settings, dtype, device)
                )
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"cannot load model {settings.name!r}: {reason}") from error
    if settings.chat_template == "auto" and tokenizer.chat_template is None:
        raise ConfigError(
            f"model {settings.name!r} has no chat template; set model.chat_template=plain for a base model"
        )
    return base, tokenizer


def _quantised(settings: ModelSettings, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """What from_pretrained has to be told to hold weights in 4 bits, on the device where they stay."""
    if settings.quantisation == "none":
        return {}
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"model.quantisation={settings.quantisation} needs bitsandbytes, which is not installed; "
            'pip install "counterpoint[quantisation]", or set model.quantisation=none'
        )
    from transformers import BitsAndBytesConfig

    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": how, "device_map": {"": device}}


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Without a bar over weights that load in a blink; a download keeps its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _hash(base: Any) -> str:
    """sha256 over names, shapes and a fixed sample of every parameter: tells two models apart without reading all of them."""
    digest = hashlib.sha256()
    for name, value in sorted(base.state_dict().items()):
        flat = value.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // 1024)].float().cpu().numpy()
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(sample.tobytes())
    return digest.hexdigest()


def _eos_ids(base: Any, tokenizer: Any) -> tuple[int, ...]:
    eos = getattr(base.generation_config, "eos_token_id", None)
    ids = set(eos if isinstance(eos, list) else [eos]) | {tokenizer.eos_token_id}
    return tuple(sorted(int(i) for i in ids if i is not None))


def takes_system(tokenizer: Any) -> bool:
    """Whether the tokenizer's chat template accepts a system message."""
    from jinja2.exceptions import TemplateError

    probe = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    try:
        tokenizer.apply_chat_template(probe, tokenize=False)
    except TemplateError:
        return False
    return True


@torch.no_grad()
def _plain_head(base: Any) -> bool:
    """Whether logits are just the output layer over the backbone (no soft cap, no scale), tried on two tokens."""
    ids = torch.zeros(1, 2, dtype=torch.long, device=base.device)
    logits = base.get_output_embeddings()(base.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    return bool(torch.equal(logits, base(input_ids=ids, use_cache=False).logits))


def _merged(messages: Sequence[Message], *, keep: bool) -> Sequence[Message]:
    """Fold the system message into the user's for templates that refuse a system role."""
    if keep or messages[0].role != "system":
        return messages
    first, second, *rest = messages
    return (Message(second.role, f"{first.content}\n\n{second.content}"), *rest)


def _check_attention(config: Any, name: str) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f"model {name!r} has layers of kind {sorted(kinds)}; the hf engine supports attention layers only"
        )

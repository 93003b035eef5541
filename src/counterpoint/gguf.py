"""GGUF files through transformers, dequantised, and rebuilt so that nothing still claims to be quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from counterpoint.errors import ConfigError, MissingExtra


def load_gguf(path: Path, *, dtype: torch.dtype) -> tuple[Any, Any]:
    """Model and tokenizer of one .gguf file. Raises ConfigError when there is no such file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not path.is_file():
        raise ConfigError(f"no GGUF file at {path}")
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingExtra("gguf", "gguf", "loading a .gguf file") from error
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=dtype)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    base = AutoModelForCausalLM.from_config(config, dtype=dtype)
    base.load_state_dict(loaded.state_dict())
    base.generation_config = loaded.generation_config
    return base, tokenizer

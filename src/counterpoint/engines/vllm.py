"""Generation through offline vLLM: one vLLM engine a base model, one LoRA request an adapter and publication.

The learner's models stay in this process; vLLM loads the same base model beside them and reads the adapters from a temporary
folder that `publish` writes. Ids go in and ids come out, so both sides see the same tokens. Its log-probabilities are not the
learner's to the last bit: the learner computes them again and logs how far apart they are. Siblings are requests of their
own, which is what vLLM makes of n > 1 too, so that each is drawn from its own seed; its prefix cache shares their prompt.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from counterpoint.engines.base import EngineSettings, Roster, Versioned, encode
from counterpoint.errors import ConfigError, MissingExtra
from counterpoint.models import Model, distinct, model_path
from counterpoint.records import Completion, Request, Sampling
from counterpoint.rng import fold

SUPPORTED = ">=0.32,<0.33"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM makes room for


class VLLMSettings(EngineSettings):
    """vLLM on this machine, beside the learner's own copy of each base model."""

    exact_logprobs: ClassVar[bool] = False
    memory: float = Field(default=0.4, gt=0, le=1)
    """Share of a GPU's memory for vLLM's weights and cache; the learner needs the rest."""
    cache_gib: float = Field(default=0.0, ge=0)
    """Size of the key-value cache of each base model; 0: what `memory` leaves. To be set on a CPU."""
    max_rows: int = Field(default=256, ge=1)
    """Sequences decoded side by side."""
    context: int = Field(default=0, ge=0)
    """Longest prompt and reply together; 0: the model's own context, which the cache has to hold once."""
    compile: bool = True
    """Compile the model and capture graphs: minutes at the start, faster after; no difference to replies but rounding."""

    def open(self, roster: Roster, models: Mapping[str, Model]) -> VLLMEngine:
        check_version()
        return VLLMEngine(self, models)


def check_version() -> None:
    """Raises ConfigError where the installed vLLM is not one that this engine was written for."""
    from packaging.specifiers import SpecifierSet

    try:
        import vllm
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise ConfigError(
                f"vllm is installed without {error.name!r}, which it imports; see docs/scaling.md"
            ) from error
        raise MissingExtra("vllm", "vllm", "engine vllm") from error
    if not SpecifierSet(SUPPORTED).contains(vllm.__version__, prereleases=True):
        raise ConfigError(
            f"engine vllm is written for vllm{SUPPORTED}, installed is {vllm.__version__}; install another"
        )


def adapter_key(names: Sequence[str], name: str, publication: int) -> tuple[str, int]:
    """vLLM's name and number of an adapter as it was published: never used for other weights, so no cache is stale."""
    return f"{name}@{publication}", 1 + publication * len(names) + names.index(name)


def draw_options(sampling: Sampling, seed: int, eos: Sequence[int]) -> dict[str, Any]:
    """vLLM's sampling parameters of one sibling: nothing comes from the model's own generation config."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": sampling.max_new_tokens,
        "seed": seed,
        "stop_token_ids": list(eos),
        "logprobs": 0,
        "detokenize": False,
    }


def engine_options(settings: VLLMSettings, model: Model) -> dict[str, Any]:
    """Arguments of the vLLM engine that serves one base model with all of its adapters."""
    chosen, rank = model.settings, model.adapters.settings.r
    if chosen.name.endswith(".gguf"):
        raise ConfigError(f"engine vllm does not read {chosen.name!r}: name a folder or a hub model, or use engine=hf")
    if rank > RANKS[-1]:
        raise ConfigError(f"engine vllm takes adapters up to rank {RANKS[-1]}, got lora.r={rank}")
    options: dict[str, Any] = {
        "model": model_path(chosen.name),
        "revision": chosen.revision,
        "trust_remote_code": chosen.trust_remote_code,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": _context(settings, model),
        "max_num_seqs": settings.max_rows,
        "gpu_memory_utilization": settings.memory,
        "enforce_eager": not settings.compile,
        "enable_lora": True,
        "max_loras": len(model.adapters.names),
        "max_lora_rank": next(r for r in RANKS if r >= rank),
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # at the sampling temperature
        "generation_config": "vllm",
        "seed": 0,  # every request has its own
    }
    if model.device.type == "cpu":
        # a prompt run in pieces sets its request's generator back, which a generator on the CPU cannot
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(options["max_model_len"], 4096)
    if settings.cache_gib:
        options["kv_cache_memory_bytes"] = int(settings.cache_gib * 2**30)
    if Path(options["model"]).is_dir():
        del options["revision"]
    return options


def _context(settings: VLLMSettings, model: Model) -> int:
    return min(settings.context or model.context, model.context)


class VLLMEngine(Versioned):
    """Samples from vLLM with the adapters as they were last published."""

    def __init__(self, settings: VLLMSettings, models: Mapping[str, Model]) -> None:
        import vllm

        self.settings, self.models = settings, models
        self.distinct = distinct(models)
        self.servers = [vllm.LLM(**engine_options(settings, model)) for model in self.distinct]
        self.folder = Path(tempfile.mkdtemp(prefix="counterpoint-adapters-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.publication = 0
        self._write()

    def publish(self, version: int | None = None) -> int:
        self.publication += 1  # grows always; a resumed run may set the version back
        self._write()
        return super().publish(version)

    def _write(self) -> None:
        """The adapters' weights where vLLM reads them; those of the last publication are read no more."""
        for model in self.distinct:
            model.adapters.save(self.folder / str(self.publication))
        shutil.rmtree(self.folder / str(self.publication - 1), ignore_errors=True)

    def generate(
        self, requests: Sequence[Request], *, seeds: Sequence[int], sampling: Sampling
    ) -> list[list[Completion]]:
        prompts = [
            encode(self.models[r.agent], r, sampling, _context(self.settings, self.models[r.agent])) for r in requests
        ]
        replies: list[list[Completion]] = [[] for _ in requests]
        for model, server in zip(self.distinct, self.servers, strict=True):
            asked = [(i, j) for i, r in enumerate(requests) if self.models[r.agent] is model for j in range(r.n)]
            if not asked:
                continue
            outputs = server.generate(
                [{"prompt_token_ids": list(prompts[i])} for i, _ in asked],
                [self._parameters(sampling, fold(seeds[i], j), model) for i, j in asked],
                lora_request=[self._adapter(model, requests[i].agent) for i, _ in asked],
                use_tqdm=False,
            )
            for (i, _), output in zip(asked, outputs, strict=True):
                replies[i].append(self._completion(model, prompts[i], output.outputs[0]))
        return replies

    def _parameters(self, sampling: Sampling, seed: int, model: Model) -> Any:
        from vllm import SamplingParams

        return SamplingParams(**draw_options(sampling, seed, model.eos))

    def _adapter(self, model: Model, name: str) -> Any:
        from vllm.lora.request import LoRARequest

        key, number = adapter_key(model.adapters.names, name, self.publication)
        return LoRARequest(key, number, str(self.folder / str(self.publication) / name))

    def _completion(self, model: Model, prompt: tuple[int, ...], output: Any) -> Completion:
        ids = tuple(output.token_ids)
        return Completion(
            text=model.decode(ids),
            prompt_ids=prompt,
            token_ids=ids,
            logprobs=tuple(float(seen[i].logprob) for i, seen in zip(ids, output.logprobs, strict=True)),
            finish="stop" if ids[-1] in model.eos else "length",
            version=self.version,
        )

"""Ranks: the processes of one run that torchrun or accelerate launch started; one process alone is rank 0 of 1.

Every rank plays its share of the dialogues and learns from its share of every minibatch; what they found is gathered in one
order and gradients are summed, so that adapters, controllers and history are the same on all of them. Rank 0 writes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from counterpoint.errors import ConfigError, RankError
from counterpoint.settings import Settings

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")
AGAIN = "the run has stopped; start it again as before with --resume"


class RanksSettings(Settings):
    """Several processes on one run, under torchrun or accelerate launch."""

    timeout: float = Field(default=1800.0, gt=0)
    """Seconds that a rank waits for the others before the run stops."""
    shard: bool = False
    """Hold the frozen decoder layers in parts, one a rank (FSDP2); for engines that have weights of their own."""


class Ranks:
    """One process alone; what several do together is nothing more than this in each method."""

    def __init__(self, rank: int = 0, world: int = 1, *, sharded: bool = False) -> None:
        self.rank, self.world, self.sharded = rank, world, sharded

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of `items`."""
        return items[self.rank :: self.world] if self.world > 1 else items

    def gather(self, value: T, what: str) -> list[T]:
        """Every rank's value, in order of rank, on every rank; `what` is what an error says was waited for."""
        return [value]

    def sum_gradients(self, parameters: Sequence[nn.Parameter], what: str) -> None:
        """Each gradient becomes its sum over the ranks; a rank without one adds nothing."""

    def shard(self, layers: Iterable[nn.Module], whole: set[nn.Parameter]) -> None:
        """Where `sharded`, each rank keeps its part of each layer, all but the parameters in `whole`, and the layer gathers
        itself while it runs: from then on all ranks must run it equally often."""

    def told(self, make: Callable[[], T], what: str) -> T:
        """What `make` returns on rank 0, on every rank."""
        found: list[Any] = self.gather(make() if self.first else None, what)
        told: T = found[0]
        return told

    def agree(self, facts: Mapping[str, Any], what: str) -> None:
        """Wait for the others, and raise RankError unless they have the same facts."""
        for rank, other in enumerate(self.gather(dict(facts), what)):
            for key, value in facts.items():
                if other[key] != value:
                    raise RankError(
                        f"ranks differ in {key}: rank {self.rank} has {value!r}, rank {rank} has {other[key]!r}; "
                        "start all of them with one command, on files that all of them see"
                    )


ALONE = Ranks()


class TorchRanks(Ranks):
    """Several processes joined by torch.distributed."""

    def __init__(self, rank: int, world: int, settings: RanksSettings) -> None:
        super().__init__(rank, world, sharded=settings.shard)
        self.timeout = settings.timeout

    def gather(self, value: T, what: str) -> list[T]:
        from torch import distributed

        found: list[Any] = [None] * self.world
        with self._waiting(what):
            distributed.all_gather_object(found, value)
        return found

    def sum_gradients(self, parameters: Sequence[nn.Parameter], what: str) -> None:
        import torch
        from torch import distributed

        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        with self._waiting(what):
            distributed.all_reduce(flat)
        parts = torch.split(flat, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def shard(self, layers: Iterable[nn.Module], whole: set[nn.Parameter]) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if not self.sharded:
            return
        for layer in layers:
            device = next(layer.parameters()).device.type
            fully_shard(layer, mesh=init_device_mesh(device, (self.world,)), ignored_params=whole)

    @contextlib.contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch has no narrower class for a lost peer
            raise RankError(
                f"rank {self.rank} of {self.world} waited for {what} and another rank is lost or took longer than "
                f"ranks.timeout={self.timeout:g} s ({str(error).strip().splitlines()[0]}); {AGAIN}"
            ) from error


@contextlib.contextmanager
def joined(settings: RanksSettings) -> Iterator[Ranks]:
    """The ranks of this run: those a launcher started, by the environment it sets, or this process alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ALONE
        return
    rank = int(os.environ["RANK"])
    with _terminated(rank, world):
        ranks = TorchRanks(rank, world, settings)
        backend = _backend(int(os.environ.get("LOCAL_RANK", rank)))
        from torch import distributed

        for keeper in ("torch.distributed.nn", "torch.distributed.fsdp"):
            import_module(keeper)  # defaults in it keep the group found when it is imported, and so the group's threads
        with ranks._waiting("the others to start"):
            distributed.init_process_group(backend, timeout=timedelta(seconds=settings.timeout))
        try:
            yield ranks
        finally:
            distributed.destroy_process_group()


def _backend(local: int) -> str:
    """gloo for what lies on the CPU, nccl for what lies on this rank's own GPU."""
    import torch

    if not torch.cuda.is_available():
        return "gloo"
    if local >= torch.cuda.device_count():
        raise ConfigError(
            f"local rank {local} has no GPU of its own among {torch.cuda.device_count()}; "
            "start one rank a GPU, or set CUDA_VISIBLE_DEVICES= to run on CPUs"
        )
    torch.cuda.set_device(local)
    return "cpu:gloo,cuda:nccl"


@contextlib.contextmanager
def _terminated(rank: int, world: int) -> Iterator[None]:
    """Inside, SIGTERM is a RankError: with it a launcher stops the ranks that are left when one is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: Any) -> None:
        raise RankError(f"rank {rank} of {world} was told to stop (SIGTERM): another rank may be lost; {AGAIN}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

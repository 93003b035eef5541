"""Run directories that several tests look at: built once, never changed; take a copy to change one."""

import shutil

import pytest

from tests.report.build import build_run, hostile

OUTCOME = "method={name: propose_review, value: outcome, token_cost: 0.003}"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Finished runs by name."""
    root = tmp_path_factory.mktemp("runs")
    build_run(root / "immediate")
    build_run(root / "outcome", OUTCOME)
    build_run(root / "thinkers", "method=think_solve", "steps=3")
    build_run(root / "voters", "method=vote", "steps=2")
    build_run(root / "hostile", "steps=2", "sampling.max_new_tokens=150000", spoil=hostile)
    return root


@pytest.fixture
def copy(runs, tmp_path):
    """(name) -> a copy of a run that a test may spoil."""

    def make(name):
        shutil.copytree(runs / name, tmp_path / name)
        return tmp_path / name

    return make

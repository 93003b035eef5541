"""Imports point only up the list in DESIGN.md; importing the package loads neither torch nor transformers."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "counterpoint"
LEVELS = {
    "records": 0, "rng": 0, "errors": 0, "settings": 0, "hooks": 0,
    "algorithms": 1, "kernels": 1, "ranks": 1,
    "prompts": 2, "tasks": 2, "controllers": 2, "lora": 2, "gguf": 2, "models": 3,
    "shape": 4, "llama": 4, "layout": 1, "ragged": 4, "engines": 4,
    "dialogue": 4, "play": 5,
    "methods": 6,
    "packing": 6, "teacher_forced": 6, "probe": 6,
    "learner": 7, "store": 7,
    "config": 8, "team": 9, "progress": 9, "evaluate": 9, "run": 10, "step": 11, "train": 12, "compare": 13,
    "report": 10, "show": 10, "tables": 10, "watch": 10, "trackers": 7, "testing": 10, "estimate": 10,
    "cli": 14, "__main__": 15, "__init__": 0,
}  # fmt: skip
# engines/scripted and engines/sampling are below models; the package is placed by its highest file.


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = path.relative_to(ROOT).parts[:-1]
                base = base[: len(base) - node.level + 1]
                module = ".".join(("counterpoint", *base, *([module] if module else [])))
            if module.startswith("counterpoint."):
                found.add(module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("counterpoint.")}
    return found


def test_imports_point_up():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in _imports(path) - {own}:
            if LEVELS[other] > LEVELS[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong


def test_every_module_has_a_level():
    modules = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in ROOT.rglob("*.py")}
    assert modules <= LEVELS.keys()


def test_the_test_can_fail(tmp_path):
    (tmp_path / "x.py").write_text("from counterpoint.cli import main\nimport counterpoint.train\n")
    assert _imports(tmp_path / "x.py") == {"cli", "train"}


def test_importing_counterpoint_loads_neither_torch_nor_transformers():
    code = "import sys, counterpoint, counterpoint.records, counterpoint.play, counterpoint.methods, counterpoint.cli;"
    code += "counterpoint.methods.methods(); print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

"""The command line. A user's mistake ends in one line and exit code 2; a traceback is a bug."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.errors import ConfigError, CounterpointError

if TYPE_CHECKING:
    from counterpoint.config import Config

app = typer.Typer(
    help="Cooperative reasoning by several LLMs, learned with reinforcement.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[list[str] | None, typer.Argument(help="[CONFIG] [key=value ...], for example method.rounds=3")]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory; runs/CONFIG-seedSEED when not given.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Warnings only.")]


@app.command()
def train(
    words: Words = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the settings, print them and their cost, stop.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a team. Without CONFIG: the bundled model on the bundled tasks."""
    from counterpoint.config import load_config

    source, overrides = _split(words)
    config = load_config(source, overrides)
    if dry_run:
        _dry_run(config)
        return
    from counterpoint.progress import Progress
    from counterpoint.ranks import joined
    from counterpoint.report import write_report
    from counterpoint.tables import before_after
    from counterpoint.train import train as run

    folder = out or _default_out(source, config)
    with joined(config.ranks) as ranks:
        progress = Progress(quiet=quiet, silent=not ranks.first)
        summary = run(config, folder, resume=resume, progress=progress, ranks=ranks)
    if ranks.first:
        _console().print(before_after(summary))
        _console().print(f"report: {write_report([folder])}", markup=False)


@app.command()
def evaluate(
    target: Annotated[str, typer.Argument(metavar="RUN_OR_CONFIG", help="A run directory or a config.")],
    words: Words = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Measure a trained run (its newest checkpoint), or an untrained config."""
    from counterpoint.progress import Progress
    from counterpoint.ranks import joined
    from counterpoint.tables import measures
    from counterpoint.train import evaluate_only, evaluation_config

    _, overrides = _split(words, source_allowed=False)
    config = evaluation_config(target, overrides)
    with joined(config.ranks) as ranks:
        progress = Progress(quiet=quiet, silent=not ranks.first)
        summary, folder = evaluate_only(target, config, out, progress, ranks)
    if ranks.first:
        _console().print(measures(summary["eval"]))
        _console().print(f"written to: {folder}", markup=False)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    episode: Annotated[str | None, typer.Argument(help="An episode id, or the end of one.")] = None,
    worst: Annotated[
        str | None, typer.Option("--worst", help="Find examples instead: harmed, wrong or truncated.")
    ] = None,
) -> None:
    """Print one dialogue: who said what, what was decided, what it was worth, and what else could have been."""
    from counterpoint.show import show_episode, show_worst

    if (episode is None) == (worst is None):
        raise ConfigError("say which dialogue: an episode id, or --worst harmed, wrong or truncated")
    if worst is not None:
        show_worst(run, worst, console=_console())
    elif episode is not None:
        show_episode(run, episode, console=_console())


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    out: Annotated[Path | None, typer.Option("--out", help="HTML file; DIR/report.html when not given.")] = None,
    dialogues: Annotated[int, typer.Option("--dialogues", min=1, help="At most so many in the browser.")] = 20_000,
) -> None:
    """Write one self-contained HTML file about one run, or several beside each other."""
    from counterpoint.report import write_report

    path = write_report(runs, out, limit=dialogues)
    print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB)")


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    once: Annotated[bool, typer.Option("--once", help="Print how it stands and return.")] = False,
) -> None:
    """Follow a run in progress until it is finished."""
    from counterpoint.watch import watch as follow

    follow(run, console=_console(), once=once or not sys.stdout.isatty())


@app.command()
def compare(
    source: Annotated[str, typer.Argument(metavar="COMPARISON", help="A YAML file, or the name of a packaged one.")],
    out: Out = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Instead of the file's.")] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Runs side by side, each with its share of the cores.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every entry, print its cost, stop.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run methods x task sets x seeds, skipping what is on disk, and print one table."""
    from counterpoint.compare import compare as run
    from counterpoint.compare import load_comparison

    comparison = load_comparison(source)
    if seeds is not None:
        comparison = comparison.model_copy(update={"seeds": seeds})
    if dry_run:
        from counterpoint.estimate import estimate as count
        from counterpoint.estimate import one_line

        for entry in comparison.entries:
            print(f"{entry}, each of {comparison.seeds} seeds: {one_line(count(comparison.config(entry, 0)))}")
        return
    from counterpoint.progress import Progress
    from counterpoint.ranks import joined

    first = comparison.config(next(iter(comparison.entries)), 0)
    with joined(first.ranks) as ranks:
        progress = Progress(quiet=quiet, silent=not ranks.first)
        text = run(comparison, out or Path("runs") / Path(source).stem, progress=progress, jobs=jobs, ranks=ranks)
    if ranks.first:
        print(text)


@app.command()
def estimate(
    words: Words = None,
    devices: Annotated[int, typer.Option("--devices", min=1, help="How many share the work evenly.")] = 1,
    flops: Annotated[
        float | None, typer.Option("--flops", help="Effective FLOP/s of one device, for example 2e14.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Rates of a run instead: its tokens a second.")
    ] = None,
    parameters: Annotated[
        float | None, typer.Option("--parameters", help="Size of the base models instead of their own, as 7e9.")
    ] = None,
    reply_tokens: Annotated[
        int | None, typer.Option("--reply-tokens", min=1, help="Length of a reply; the most allowed when not given.")
    ] = None,
) -> None:
    """What a run will take: calls, tokens, FLOPs, memory and time, as upper bounds. Loads no weights, starts nothing."""
    from counterpoint.config import load_config
    from counterpoint.estimate import Rate, from_run, measured
    from counterpoint.estimate import estimate as count
    from counterpoint.tables import estimated, memory_needed

    for name, value in (("--flops", flops), ("--parameters", parameters)):
        if value is not None and value <= 0:
            raise ConfigError(f"{name} is above 0, got {value:g}")
    if flops is not None and run is not None:
        raise ConfigError("give a rate by --flops or by --from, not by both")
    source, overrides = _split(words)
    config = load_config(source, overrides)
    found = count(config, parameters=int(parameters) if parameters else None, reply_tokens=reply_tokens)
    rate = from_run(run) if run else Rate("as given", flops=flops) if flops else measured(config)
    console = _console()
    console.print(estimated(found, rate, devices))
    console.print(memory_needed(found))
    for note in (rate.text(devices), *found.notes):
        console.print(f"- {note}", markup=False, highlight=False)


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Lines with reply, gold, kind.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where outcomes go; FILE.graded.jsonl when not given.")
    ] = None,
    flexible: Annotated[
        bool, typer.Option("--flexible", help="Also read a last number without the answer format.")
    ] = False,
) -> None:
    """Grade replies of your own against gold answers."""
    from counterpoint.tasks.grade_file import grade_file, table

    counts = grade_file(file, out, "flexible" if flexible else "strict")
    _console().print(table(counts))


@app.command(name="list")
def list_(what: Annotated[str, typer.Argument(help="methods, tasks, engines, controllers or configs.")]) -> None:
    """List what a config can name."""
    from counterpoint.tables import catalogue

    for name, text in catalogue(what):
        _console().print(f"{name:<22} {text}", markup=False, highlight=False)


def main() -> None:
    """Entry point: exit 0 done, 2 bad settings or input, 1 a bug."""
    try:
        app(standalone_mode=True)
    except CounterpointError as error:
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("counterpoint: stopped; what is written can be continued with --resume", file=sys.stderr)
        sys.exit(130)


def _split(words: list[str] | None, *, source_allowed: bool = True) -> tuple[str | None, list[str]]:
    """[CONFIG] [key=value ...] apart."""
    words = list(words or [])
    source = words.pop(0) if source_allowed and words and "=" not in words[0] else None
    for word in words:
        if "=" not in word:
            raise ConfigError(f"{word!r} is neither a config (which comes first) nor key=value")
    return source, words


def _default_out(source: str | None, config: Config) -> Path:
    return Path("runs") / f"{Path(source).stem if source else 'tiny'}-seed{config.seed}"


def _dry_run(config: Config) -> None:
    from counterpoint.estimate import estimate as count
    from counterpoint.estimate import one_line

    print(config.to_yaml(), end="")
    print(one_line(count(config)))


def _console() -> Any:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


if __name__ == "__main__":
    main()

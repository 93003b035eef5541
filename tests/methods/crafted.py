"""Episodes written by hand: what a method would have recorded, with the outcomes a test asks for."""

from counterpoint.records import Completion, Episode, Fork, Task, Turn

TASK = Task("mini/train/1", "What is 3 + 4?", "7", "number")
RIGHT, WRONG, CUT = "right", "wrong", "cut"
TEXT = {RIGHT: "So\nFinal answer: 7", WRONG: "So\nFinal answer: 8", CUT: "So we"}


def completion(text, finish="stop", tokens=3):
    return Completion(text, (5,), tuple(range(3, 3 + tokens)), (-1.0,) * tokens, finish, 0)


def reply(outcome):
    return completion(TEXT[outcome], "length" if outcome == CUT else "stop")


def outcome(value):
    return RIGHT if value > 0 else WRONG


def dyad(joint, solo=(), *, ratings=None, task=TASK, step=1, thought="Add them."):
    """A think_solve dialogue with one answer a thought; joint "uncalled" is a thought that was cut off.

    `ratings`: pairs of reply texts (thinker's, solver's), one for each called thought.
    """
    id = f"train/{step}/{task.id}"
    thoughts = [completion(thought, "length" if j == "uncalled" else "stop") for j in joint]
    turns = [Turn(0, k, "agent0/thinker", "think", c) for k, c in enumerate(thoughts)]
    called = [j for j in joint if j != "uncalled"]
    turns += [Turn(1 + g, 0, "agent1/solver", "solve", reply(j)) for g, j in enumerate(called)]
    episode = Episode(id, task, tuple(turns), (), None)
    forks = []
    if len(solo):
        alone = tuple(Turn(0, k, "agent1/solver", "solo", reply(s)) for k, s in enumerate(solo))
        fork = Fork(id, 0, remove="agent0/thinker", n=len(solo))
        forks.append(Episode(f"{id}~0", task, alone, (), None, fork))
    if ratings is not None:
        texts = [text for pair in ratings for text in pair]
        rated = tuple(Turn(g, 0, "agent0/thinker", "rate", completion(text)) for g, text in enumerate(texts))
        forks.append(Episode(f"{id}~1", task, rated, (), None, Fork(id, 0, kind="rate")))
    return episode, forks


def ballots(*teams, task=TASK, names="abcdefgh"):
    """A vote: one list of answers a team (None cannot be read); agents are a, b, c, ..."""
    said = {None: "I do not know."}
    turns = [
        Turn(g, j, f"{names[g]}/solver", "vote", completion(said.get(team[g]) or f"Final answer: {team[g]}"))
        for g in range(len(teams[0]))
        for j, team in enumerate(teams)
    ]
    return Episode(f"train/1/{task.id}", task, tuple(turns), (), None)

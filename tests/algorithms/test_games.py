"""Regret matching in games whose answers are known (C5, C14): self-play with expected values, and Kuhn poker by CFR."""

from itertools import permutations

import numpy as np
import pytest

from counterpoint.algorithms import regret as rm

PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
# rock beats scissors for 2: value 0 at (1/4, 1/2, 1/4), where -p + 2s = r - s = -2r + p = 0
BIASED = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
SHAPLEY = (np.eye(3), np.roll(np.eye(3), 1, axis=1))


class SelfPlay:
    """Two players, T steps; both see the expected value of each action against the other's present strategy."""

    def __init__(
        self,
        first,
        second,
        steps,
        *,
        update=rm.plain_update,
        weight=rm.uniform_weight,
        start=(1.0, 0.5),
        alternate=False,
    ):
        payoffs = (first, second.T)
        cumulative = [np.linspace(start[i], 0, len(payoffs[i])) for i in range(2)]
        sums = [np.zeros(len(payoff)) for payoff in payoffs]
        self.regret = [np.zeros(len(payoff)) for payoff in payoffs]
        self.joint = np.zeros(first.shape)
        self.played = []
        for t in range(1, steps + 1):
            probs = [rm.regret_matching(R) for R in cumulative]
            for i in range(2):
                r = rm.instantaneous_regret(payoffs[i] @ probs[1 - i], probs[i])
                cumulative[i] = update(cumulative[i], r)
                if alternate:
                    probs[i] = rm.regret_matching(cumulative[i])
                self.regret[i] += r
            sums = [rm.accumulate(total, p, weight=weight(t)) for total, p in zip(sums, probs, strict=True)]
            self.joint += np.outer(*probs) / steps
            self.played.append(probs[0])
        self.average = [rm.average_strategy(total) for total in sums]

    def best_regrets(self, steps):
        return [max(0.0, regret.max() / steps) for regret in self.regret]


def cce_gap(joint, first, second):
    """Distance of a joint distribution from a coarse correlated equilibrium: the gains from fixed deviations."""
    gain_first = (first @ joint.sum(axis=0)).max() - (joint * first).sum()
    gain_second = (joint.sum(axis=1) @ second).max() - (joint * second).sum()
    return max(0.0, gain_first) + max(0.0, gain_second)


@pytest.mark.parametrize(
    ("payoff", "expected"),
    [(PENNIES, [1 / 2] * 2), (ROCK_PAPER_SCISSORS, [1 / 3] * 3), (BIASED, [0.25, 0.5, 0.25])],
)
def test_c14_zero_sum_averages_reach_the_equilibrium(payoff, expected):
    """C14: matching pennies 1/2, rock-paper-scissors 1/3, biased, to two places (RM+, linear weights)."""
    game = SelfPlay(payoff, -payoff, 2000, update=rm.plus_update, weight=rm.linear_weight, alternate=True)
    for average in game.average:
        assert average == pytest.approx(expected, abs=5e-3)


def test_c14_plain_regret_matching_on_rock_paper_scissors():
    game = SelfPlay(ROCK_PAPER_SCISSORS, -ROCK_PAPER_SCISSORS, 4000)
    for average in game.average:
        assert average == pytest.approx([1 / 3] * 3, abs=0.03)


def test_c14_dominated_actions_vanish():
    prisoners = np.array([[3.0, 0.0], [5.0, 1.0]])
    game = SelfPlay(prisoners, prisoners.T, 500)
    for average in game.average:
        assert average[1] > 0.99


@pytest.mark.parametrize(
    "game", [(PENNIES, -PENNIES), (BIASED, -BIASED), SHAPLEY], ids=["pennies", "biased", "shapley"]
)
@pytest.mark.parametrize("update", [rm.plain_update, rm.plus_update], ids=["rm", "rm_plus"])
def test_c5_joint_play_is_a_cce_up_to_regret(game, update):
    """C5: CCE distance of the average joint play = sum of average external regrets <= sum of bounds."""
    steps = 500
    played = SelfPlay(*game, steps, update=update, start=(0.0, 0.0))
    gap = cce_gap(played.joint, *game)
    assert gap == pytest.approx(sum(played.best_regrets(steps)), abs=1e-12)
    bounds = [rm.regret_bound(gap=float(np.ptp(m)), updates=steps, actions=len(m)) / steps for m in game]
    assert gap <= sum(bounds)


def test_c14_shapley_game_cycles_but_its_cce_gap_vanishes():
    """Shapley's 3 x 3 game: play never settles at the (uniform) equilibrium, yet the joint play becomes a CCE."""
    gaps = [cce_gap(SelfPlay(*SHAPLEY, steps).joint, *SHAPLEY) for steps in (100, 3000)]
    assert gaps[1] < 0.2 * gaps[0]
    assert gaps[1] < 0.02
    favourite = np.array(SelfPlay(*SHAPLEY, 3000).played).argmax(axis=1)
    turns = favourite[1:][np.diff(favourite) != 0]
    assert len(turns) >= 6
    assert (np.diff(turns) % 3 == 1).all()  # round and round: 0, 1, 2, 0, ... in ever longer phases


def test_c14_common_interest():
    """Both want the same: the gap obeys the bound, and here the better cell is found (welfare 4)."""
    payoff = np.array([[2.0, 0.0], [0.0, 1.0]])
    steps = 400
    game = SelfPlay(payoff, payoff, steps, start=(0.0, 0.0))
    assert cce_gap(game.joint, payoff, payoff) <= 2 * rm.regret_bound(gap=2, updates=steps) / steps
    assert (game.joint * 2 * payoff).sum() > 3.9


# Kuhn poker: three cards, one each; ante 1, bet 1. p: pass (check or fold), b: bet (or call).
TERMINAL = {"pp", "bp", "bb", "pbp", "pbb"}


def kuhn_payoff(history, cards):
    """What the first player wins."""
    showdown = 1.0 if cards[0] > cards[1] else -1.0
    return {"pp": showdown, "bb": 2 * showdown, "pbb": 2 * showdown, "bp": 1.0, "pbp": -1.0}[history]


def kuhn_values(history, cards, reach, strategy, values):
    """The first player's value; adds each information state's counterfactual action values into `values`."""
    if history in TERMINAL:
        return kuhn_payoff(history, cards)
    player = len(history) % 2
    state = (cards[player], history)
    probs, sign = strategy(state), 1 - 2 * player
    results = np.zeros(2)
    for a, letter in enumerate("pb"):
        moved = list(reach)
        moved[player] *= probs[a]
        results[a] = kuhn_values(history + letter, cards, moved, strategy, values)
    entry = values.setdefault(state, [np.zeros(2), 0.0])
    entry[0] += sign * reach[1 - player] * results
    entry[1] = reach[player]
    return float(probs @ results)


def test_kuhn_poker_value_by_cfr():
    """The first player loses 1/18 a hand (Kuhn 1950): counterfactual regret minimization over 12 information states."""
    cumulative, sums = {}, {}

    def current(state):
        return rm.regret_matching(cumulative.get(state, np.zeros(2)))

    def average(state):
        return rm.average_strategy(sums[state])

    deals = list(permutations(range(3), 2))
    for t in range(1, 601):
        values = {}
        frozen = {state: current(state) for state in cumulative}
        for cards in deals:
            kuhn_values("", cards, [1.0, 1.0], lambda s, f=frozen: f.get(s, np.full(2, 0.5)), values)
        for state, (value, reach) in values.items():
            probs = current(state)
            regret = rm.instantaneous_regret(value, probs)
            cumulative[state] = rm.plus_update(cumulative.get(state, np.zeros(2)), regret)
            sums[state] = rm.accumulate(sums.get(state, np.zeros(2)), probs, weight=rm.linear_weight(t) * reach)
    assert len(cumulative) == 12
    table = {state: average(state) for state in cumulative}
    value = np.mean([kuhn_values("", cards, [1.0, 1.0], table.__getitem__, {}) for cards in deals])
    assert value == pytest.approx(-1 / 18, abs=2e-3)
    # Equilibrium: first player bets the king three times as often as the jack; the second always bets the king, never
    # calls with the jack, and calls a bet with the queen one time in three.
    alpha = table[(0, "")][1]
    assert table[(2, "")][1] == pytest.approx(3 * alpha, abs=0.05)
    assert table[(2, "b")][1] > 0.99
    assert table[(0, "b")][1] < 0.01
    assert table[(1, "b")][1] == pytest.approx(1 / 3, abs=0.03)

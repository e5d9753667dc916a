"""Samples of ``make soak``: memory of a training and of a sweep, and the cost of watching attention."""

from soak.memory import grown
from soak.watching import counted


def test_memory_does_not_grow_with_updates():
    assert grown("train", 500, limit=8 << 20)["count"] == 500


def test_memory_does_not_grow_with_the_members_of_a_sweep():
    assert grown("sweep", 10, limit=8 << 20)["count"] == 10


def test_watching_attention_costs_less_than_a_hundredth():
    """By what is computed, as time is the machine's; the check itself is no check where nothing more is computed."""
    assert 0 < counted() < 1

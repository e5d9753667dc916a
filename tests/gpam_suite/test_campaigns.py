"""Samples of the random campaigns of ``make soak`` against numbers that lie."""

from soak import flips, mixing


def test_no_flipped_bit_is_read():
    found = flips.campaign(2, seed=1)
    assert found["flips"] == 2 * len(flips.KINDS) and found["refused"]


def test_no_table_mixes_runs_without_a_word():
    found = mixing.campaign(8, seed=1)
    assert found["runs"] == 8 and found["not_one_table"]

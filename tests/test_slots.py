"""Numbers of keys in a hash table over arrays: against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.decoding.slots import Slots

# few large keys, so that many come again; many, so that they collide and the table grows
KEYS = st.one_of(
    st.lists(st.integers(0, 30).map(lambda n: n << 40), max_size=60),
    st.integers(0, 2**16).map(
        lambda seed: np.random.default_rng(seed).integers(0, 2**50, 700).tolist()
    ),
)


@given(st.lists(KEYS, max_size=4), KEYS, st.booleans())
@settings(max_examples=60)
def test_against_a_dictionary(batches: list[list[int]], others: list[int], again: bool) -> None:
    slots, wanted = Slots(), dict[int, int]()
    if again:  # what was there before leaves nothing behind
        slots.add(np.array([*others, 1], np.int64))
        slots.clear()
    for keys in batches:
        new = [key for i, key in enumerate(keys) if key not in wanted and key not in keys[i + 1 :]]
        wanted.update({key: len(wanted) + i for i, key in enumerate(new)})
        found = slots.add(np.array(keys, np.int64))
        assert found.tolist() == [wanted[key] for key in keys]
        assert slots.keys.tolist() == list(wanted)
    looked = [*others, *wanted]
    found = slots.find(np.array(looked, np.int64))
    assert found.tolist() == [wanted.get(key, -1) for key in looked]

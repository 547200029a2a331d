"""Any JSON, in small pieces: what a hostile server or file may hold."""

from __future__ import annotations

from hypothesis import strategies as st

TEXT = st.text(max_size=8) | st.sampled_from(["filename", "images", "text", "a\ud800b", "\0"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)

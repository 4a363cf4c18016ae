"""A strategy of hypothesis: small sizes of a stack, for models of every position encoding."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tfbook.attention import POSITIONS
from tfbook.models.blocks import Config


@st.composite
def config(draw: st.DrawFn, **choices: SearchStrategy) -> Config:
    """Up to three heads and blocks, an even width for each head; `choices` draw the other fields of `Config`."""
    heads = draw(st.integers(1, 3))
    return Config(
        d_model=heads * 2 * draw(st.integers(1, 4)),
        heads=heads,
        d_ff=draw(st.integers(1, 20)),
        layers=draw(st.integers(1, 3)),
        position=draw(st.sampled_from([*POSITIONS])),
        **{name: draw(choice) for name, choice in choices.items()},
    )

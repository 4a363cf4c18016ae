"""A strategy of hypothesis: small sizes of a stack, for models of every position encoding."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tfbook.positions import POSITIONS
from tfbook.transformer import Sizes


@st.composite
def sizes(draw: st.DrawFn, **choices: SearchStrategy) -> Sizes:
    """Up to three heads and blocks, an even width for each head; `choices` draw the other fields of `Sizes`."""
    heads = draw(st.integers(1, 3))
    return Sizes(
        d_model=heads * 2 * draw(st.integers(1, 4)),
        heads=heads,
        d_ff=draw(st.integers(1, 20)),
        layers=draw(st.integers(1, 3)),
        position=draw(st.sampled_from([*POSITIONS])),
        **{name: draw(choice) for name, choice in choices.items()},
    )

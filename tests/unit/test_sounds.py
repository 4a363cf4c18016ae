"""Plucked strings keep their pitch, 8 bits keep their loudness, and a WAV file can be read again."""

import io
import math
import wave

import pytest
import torch

from tfbook.data.sounds import FADE, decay_of, from_mu_law, melody, mu_law, plucked, wav_bytes


def test_mu_law_is_the_formula_at_known_places() -> None:
    """0 lies between two levels; ±1 are the outer ones; half the levels are for amplitudes below 1/16."""
    assert mu_law(torch.tensor([-2.0, -1.0, 1.0, 2.0])).tolist() == [0, 0, 255, 255]
    x = torch.tensor([0.3])
    assert int(mu_law(x)) == math.floor((math.log(1 + 255 * 0.3) / math.log(256) + 1) / 2 * 255 + 0.5)
    assert int(mu_law(torch.tensor([1 / 17]))) - int(mu_law(torch.tensor([0.0]))) == pytest.approx(64, abs=1)


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_levels_come_back(levels: int) -> None:
    ids = torch.arange(levels)
    assert torch.equal(mu_law(from_mu_law(ids, levels=levels), levels=levels), ids)


def test_an_error_is_a_few_percent_of_the_amplitude() -> None:
    x = torch.linspace(-1, 1, 2001)
    assert (from_mu_law(mu_law(x)) - x).abs().max() < 0.025
    soft = x[x.abs() < 0.01]
    assert (from_mu_law(mu_law(soft)) - soft).abs().max() < 0.0005


@pytest.mark.parametrize("period", [18, 24, 36])
def test_a_string_has_the_period_n_and_a_half(period: int) -> None:
    """By the peak of its spectrum, and by its own rule."""
    sound = plucked(period, 4000)
    spectrum = torch.fft.rfft(sound * torch.hann_window(4000)).abs()
    assert int(spectrum.argmax()) == pytest.approx(4000 / (period + 0.5), abs=1)
    later, earlier = sound[period + 1 :], (sound[1:-period] + sound[: -period - 1]) / 2
    torch.testing.assert_close(later, decay_of(period, 4000) * earlier)
    assert sound[: period + 1].abs().max() == pytest.approx(0.8)


def test_overtones_fade_before_the_fundamental_which_leaves_about_what_is_said() -> None:
    sound = plucked(36, 400)
    early, late = (torch.fft.rfft(piece).abs() for piece in (sound[:73], sound[-73:]))
    assert late[2] / early[2] > 1.5 * late[16] / early[16]  # the eighth harmonic
    assert late[2] / early[2] == pytest.approx(FADE, rel=0.5)


def test_a_melody_is_one_string_after_the_other_under_hiss() -> None:
    quiet = melody([36, 18], 400, hiss=0.0)
    assert torch.equal(quiet, torch.cat([plucked(36, 400), plucked(18, 400)]))
    noisy = melody([36, 18], 400, hiss=0.1, generator=torch.Generator().manual_seed(0))
    assert float((noisy - quiet).std()) == pytest.approx(0.1, rel=0.1)
    assert torch.equal(noisy, melody([36, 18], 400, hiss=0.1, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("pick", [0.0, 1.0])
def test_a_string_is_plucked_between_its_ends(pick: float) -> None:
    with pytest.raises(ValueError, match=f"pick is {pick}; expected a share of the string"):
        plucked(20, 100, pick=pick)


def test_a_file_can_be_read_again() -> None:
    sound = torch.tensor([-1.0, 0.0, 0.5, 1.0, 3.0])
    with wave.open(io.BytesIO(wav_bytes(sound, 4000))) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (4000, 1, 1)
        frames = torch.tensor(list(reader.readframes(9)))
    torch.testing.assert_close(frames / 127.5 - 1, sound.clamp(-1, 1), atol=0.005, rtol=0)

"""Spoken digits: resonances by their formula, pitch as told, the same sound from the same numbers; tones and chords."""

import pytest
import torch

from tfbook.data.spoken import (
    LENGTH,
    PHONES,
    RATE,
    SLOWEST,
    SPELLED,
    Voice,
    pitch_of,
    recorded,
    resonances,
    speak,
    speaker,
    spoken,
    tones,
)


def test_a_resonance_is_highest_at_its_formant() -> None:
    """One formant alone: 1 at 0 Hz, F / B near F; and several multiply."""
    hz = torch.linspace(0, 4000, 4001)
    response = resonances(torch.tensor([[500.0], [2000.0]]), hz)
    assert response[:, 0].tolist() == pytest.approx([1, 1])
    assert response.argmax(dim=1).tolist() == pytest.approx([500, 2000], abs=10)
    assert response[0, 500] == pytest.approx(500 / 75, rel=1e-4)
    both = resonances(torch.tensor([[500.0, 2000.0]]), hz)
    torch.testing.assert_close(both[0], response[0] * response[1])


@pytest.mark.parametrize("pitch", [100, 160, 240])
def test_a_vowel_has_the_voices_pitch(pitch: int) -> None:
    """In the middle of "two", a long vowel, nearly all energy lies at multiples of the pitch, and some at itself."""
    sound = speak(2, Voice(pitch=pitch, fall=0.0, breath=0.0))
    middle = sound[len(sound) // 2 :][:1600]
    spectrum = torch.fft.rfft(middle * torch.hann_window(1600)).abs().square()
    hz = torch.arange(len(spectrum)) * RATE / 1600
    from_multiple = (hz / pitch - (hz / pitch).round()).abs() * pitch
    assert spectrum[from_multiple < 12].sum() > 0.97 * spectrum.sum()
    assert spectrum[(hz - pitch).abs() < 12].sum() > 0.02 * spectrum.sum()


def test_a_vowels_first_formant_is_that_of_the_mouth() -> None:
    """ "four" holds "ao": most of its energy lies below 1,100 Hz; that of "three", "iy", below 500."""
    shares = {}
    for digit, top in ((4, 1100), (3, 500)):
        sound = speak(digit, Voice(drift=0.0, breath=0.0))
        spectrum = torch.fft.rfft(sound[len(sound) // 2 :][:800]).abs().square()
        shares[digit] = float(spectrum[: int(top / (RATE / 800))].sum() / spectrum.sum())
    assert min(shares.values()) > 0.9


def test_all_digits_are_spelled_in_known_sounds() -> None:
    assert [*SPELLED] == list(range(10))
    assert {name for names in SPELLED.values() for name in names} == set(PHONES)


def test_the_same_numbers_make_the_same_sound() -> None:
    voice = speaker(5)
    assert torch.equal(recorded(3, voice, seed=4), recorded(3, voice, seed=4))
    assert not torch.equal(recorded(3, voice, seed=4), recorded(3, voice, seed=5))
    assert speaker(5) == voice != speaker(6)


def test_speed_shortens_and_start_places() -> None:
    slow, fast = (len(speak(1, Voice(speed=speed))) for speed in (0.8, 1.6))
    assert slow == pytest.approx(2 * fast, rel=0.05)
    early, late = (recorded(1, Voice(), noise=0.0, start=start) for start in (0.0, 1.0))
    assert early[-500:].abs().max() == late[:500].abs().max() == 0
    assert len(speak(0, Voice(speed=SLOWEST))) <= LENGTH


def test_a_set_has_each_digit_of_each_speaker() -> None:
    data = spoken([3, 8], takes=2)
    assert data.sounds.shape == (40, LENGTH)
    assert data.sounds.abs().max() <= 1
    assert sorted(zip(data.speakers.tolist(), data.digits.tolist(), strict=True)) == sorted(
        (number, digit) for number in (3, 8) for digit in range(10) for _ in range(2)
    )
    assert torch.equal(spoken([8], takes=2).sounds, data.sounds[20:]), "a speaker's clips do not depend on others"


def test_a_chord_holds_its_notes_and_octaves_double() -> None:
    assert pitch_of("A") == 440
    assert pitch_of("C", 5) == pytest.approx(2 * pitch_of("C"))
    pitches = [pitch_of(note) for note in ("C", "E", "G")]
    spectrum = torch.fft.rfft(tones(pitches, seconds=1.0, overtones=0)).abs()
    peaks = spectrum.topk(3).indices.sort().values.tolist()
    assert peaks == pytest.approx(pitches, abs=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Voice(pitch=20), "pitch is 20; expected 60 to 400"),
        (lambda: Voice(speed=3), "speed is 3; expected 0.6 to 1.8"),
        (lambda: speak(10), "digit is 10; expected 0 to 9"),
        (lambda: pitch_of("H"), "note is 'H'; expected one of C, C♯"),
        (lambda: tones([]), r"pitches is \[\]; expected one or more"),
        (lambda: tones([5000]), "each between 0 and 4000 Hz"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()

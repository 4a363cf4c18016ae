"""Spectrograms against PyTorch's and the mel bands of transformers; the audio Transformer against a ViT."""

import numpy as np
import pytest
import torch

from tfbook.models.audio import AudioConfig, AudioTransformer, cut_into_pieces, log_mel, mel, mel_bands, spectrogram
from tfbook.models.vit import Vit, VitConfig

pytestmark = pytest.mark.usefixtures("float32")


@pytest.mark.parametrize(("time", "window", "hop"), [(500, 64, 20), (256, 256, 80), (1000, 128, 128), (300, 50, 7)])
def test_a_spectrogram_is_that_of_stft(time: int, window: int, hop: int) -> None:
    sound = torch.randn(2, time)
    expected = torch.stft(
        sound, window, hop, window=torch.hann_window(window), center=False, return_complex=True
    ).abs()  # fmt: skip
    torch.testing.assert_close(spectrogram(sound, window, hop), expected.square(), rtol=1e-4, atol=1e-4)


def test_a_tone_is_where_its_pitch_is() -> None:
    t = torch.arange(2000) / 8000
    energy = spectrogram((2 * torch.pi * 1000 * t).sin())
    assert energy.argmax(dim=0).unique().tolist() == [1000 * 256 // 8000]


def test_a_sound_is_at_least_a_window() -> None:
    with pytest.raises(ValueError, match="sound has 100 samples; expected at least window, 256"):
        spectrogram(torch.randn(100))


@pytest.mark.parametrize(("bands", "window", "rate"), [(32, 256, 8000), (80, 1024, 16000), (10, 128, 8000)])
def test_mel_bands_are_those_of_kaldi(bands: int, window: int, rate: int) -> None:
    from transformers.audio_utils import mel_filter_bank

    bins = window // 2 + 1
    expected = mel_filter_bank(
        bins, bands, 0, rate / 2, rate, norm=None, mel_scale="kaldi", triangularize_in_mel_space=True
    )
    np.testing.assert_allclose(mel_bands(bands, bins, rate).numpy(), expected.T, atol=1e-4)


def test_neighboring_bands_share_each_bin() -> None:
    """Between the first peak and the last, the triangles sum to 1."""
    hz = torch.linspace(0, 4000, 129)
    peaks = torch.linspace(0, float(mel(torch.tensor(4000.0))), 34)
    inside = (mel(hz) >= peaks[1]) & (mel(hz) <= peaks[-2])
    torch.testing.assert_close(mel_bands(32, 129, 8000).sum(dim=0)[inside], torch.ones(int(inside.sum())))


def test_silence_has_the_floors_logarithm() -> None:
    values = log_mel(torch.zeros(3, 1000))
    torch.testing.assert_close(values, torch.full((3, 32, 10), 1e-6).log())


def test_pieces_are_cut_row_by_row() -> None:
    picture = torch.arange(24).float().view(4, 6)
    assert cut_into_pieces(picture, (2, 3)).tolist() == [
        [0, 1, 2, 6, 7, 8],
        [3, 4, 5, 9, 10, 11],
        [12, 13, 14, 18, 19, 20],
        [15, 16, 17, 21, 22, 23],
    ]
    with pytest.raises(ValueError, match=r"size is \(3, 3\) and pictures are 4 × 6; expected it to divide both sides"):
        cut_into_pieces(picture, (3, 3))


def test_with_squares_it_is_a_vit_over_the_picture() -> None:
    sizes = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2}
    audio = AudioTransformer(5, AudioConfig(**sizes, bands=8, frames=12, piece=(4, 4), position="sinusoidal")).eval()
    vit = Vit(5, VitConfig(**sizes, height=8, width=12, channels=1, patch=4, tokens=0, position="sinusoidal")).eval()
    state = audio.state_dict() | {
        "patches.weight": audio.embed.weight.view(16, 1, 4, 4),
        "patches.bias": audio.embed.bias,
    }
    vit.load_state_dict({name: value for name, value in state.items() if not name.startswith("embed")})
    for block, other in zip(vit.stack.blocks, audio.stack.blocks, strict=True):
        for branch in (block.mixer, block.feed_forward):
            branch.norm.eps = other.mixer.norm.eps
        block.feed_forward.branch.activation = other.feed_forward.branch.activation
    vit.stack.norm.eps = audio.stack.norm.eps
    sound = torch.randn(3, audio.config.samples)
    with torch.no_grad():
        torch.testing.assert_close(audio(sound), vit(audio.picture(sound)[:, None]))


def test_loudness_does_not_matter() -> None:
    model = AudioTransformer(3, AudioConfig(d_model=8, heads=2, d_ff=8, layers=1)).eval()
    sound = torch.randn(2, model.config.samples)
    with torch.no_grad():
        torch.testing.assert_close(model(sound), model(8 * sound), rtol=1e-3, atol=1e-4)


def test_sizes_have_to_fit() -> None:
    with pytest.raises(ValueError, match=r"piece is \(5, 4\) and pictures are 32 × 80"):
        AudioConfig(piece=(5, 4))
    model = AudioTransformer(3, AudioConfig(d_model=8, heads=2, d_ff=8, layers=1))
    with pytest.raises(ValueError, match="sound has 99 samples; expected 6576"):
        model(torch.zeros(1, 99))

"""Images: what each set holds, that both parts are apart, batches; files of the right form read and others refused."""

import gzip
import hashlib
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tfbook import data
from tfbook.data.download import File
from tfbook.data.images import ImageBatches, Images, LabeledImages, read_cifar10, read_fashion_mnist, unpacked_to
from tfbook.data.registry import DATASETS


def part(labels: list[int]) -> LabeledImages:
    """Images of 2 × 3 pixels in two channels, each filled with its number."""
    images = torch.arange(len(labels)).float()[:, None, None, None].expand(-1, 2, 2, 3)
    return LabeledImages(images, torch.tensor(labels))


@pytest.fixture
def images() -> Images:
    train, test = part([0, 1, 0, 1, 0, 2, 1, 2, 0]), part([0, 1, 2])
    return Images(name="toy", labels=("cat", "dog", "fox"), train=train, test=test)


class TestLabeledImages:
    def test_whole_numbers_become_shares_of_white(self) -> None:
        pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)
        found = LabeledImages.from_pixels(pixels, torch.tensor([4]))
        assert found.images.flatten().tolist() == pytest.approx([0.0, 0.2, 1.0])
        assert LabeledImages.from_pixels(pixels, torch.tensor([4]), white=51).images[0, 0, 0, 1] == 1

    def test_rows_are_chosen_with_their_labels(self) -> None:
        chosen = part([7, 8, 9])[torch.tensor([2, 0])]
        assert (chosen.images[:, 0, 0, 0].tolist(), chosen.labels.tolist()) == ([2, 0], [9, 7])
        assert part([7, 8, 9])[1:].labels.tolist() == [8, 9]
        assert len(chosen) == 2

    def test_they_go_to_a_device_together(self) -> None:
        there = part([1, 2]).to("meta")
        assert there.images.device.type == there.labels.device.type == "meta"


class TestImages:
    def test_few_are_as_many_of_each_label(self, images: Images) -> None:
        few = images.few_shot(2, seed=1)
        assert few.labels.tolist() == [0, 0, 1, 1, 2, 2]
        places = few.images[:, 0, 0, 0].long()
        assert len(set(places.tolist())) == 6
        assert torch.equal(images.train.labels[places], few.labels)

    def test_a_larger_draw_holds_the_smaller(self, images: Images) -> None:
        draws = [
            [set(images.few_shot(count, seed=seed).images[:, 0, 0, 0].tolist()) for count in (1, 2)]
            for seed in range(9)
        ]
        assert all(one < two for one, two in draws)
        assert len({frozenset(one) for one, _ in draws}) > 1

    def test_an_integer_of_numpy_is_a_seed(self, images: Images) -> None:
        one, other = (images.few_shot(1, seed=seed).labels for seed in (3, np.int64(3)))
        assert torch.equal(one, other)
        batches = (ImageBatches(part(list(range(9))), size=4, seed=seed) for seed in (3, np.int64(3)))
        assert torch.equal(*(batch(0).labels for batch in batches))

    @pytest.mark.parametrize("count", [0, 3])
    def test_more_than_there_are_cannot_be_drawn(self, images: Images, count: int) -> None:
        message = f"count is {count}; expected 1 to 2, the images of the rarest label"
        with pytest.raises(ValueError, match=message):
            images.few_shot(count, seed=0)

    def test_standardised_the_training_images_have_mean_0_and_deviation_1(self) -> None:
        """Channel by channel; the test images are shifted and scaled by the same numbers."""
        train, test = torch.rand(50, 2, 4, 4) * torch.tensor([1.0, 9.0])[:, None, None] + 3, torch.rand(5, 2, 4, 4)
        labels = torch.zeros(50, dtype=torch.int64)
        before = Images(
            name="toy", labels=("a",), train=LabeledImages(train, labels), test=LabeledImages(test, labels[:5])
        )
        after = before.standardized()
        assert after.train.images.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-5)
        assert after.train.images.std(dim=(0, 2, 3)).tolist() == pytest.approx([1, 1], abs=1e-5)
        for channel in range(2):
            mean, deviation = train[:, channel].mean(), train[:, channel].std()
            torch.testing.assert_close(after.test.images[:, channel], (test[:, channel] - mean) / deviation)
        assert before.train.images is train

    def test_standardised_a_constant_channel_is_0(self) -> None:
        """As scikit-learn's scaler has it, though rounding gives the same number 50 times a deviation of 2 · 10⁻⁹."""
        train, test = torch.rand(50, 2, 4, 4), torch.rand(5, 2, 4, 4)
        train[:, 1] = 0.1
        parts = [LabeledImages(pixels, torch.zeros(len(pixels), dtype=torch.int64)) for pixels in (train, test)]
        after = Images(name="toy", labels=("a",), train=parts[0], test=parts[1]).standardized()
        scaler = StandardScaler().fit(train.movedim(1, -1).flatten(0, -2).double().numpy())
        for pixels, found in zip((train, test), (after.train, after.test), strict=True):
            rows = scaler.transform(pixels.movedim(1, -1).flatten(0, -2).double().numpy())
            torch.testing.assert_close(
                found.images.movedim(1, -1).flatten(0, -2), torch.from_numpy(rows).float(), atol=1e-3, rtol=1e-3
            )
        assert not after.train.images[:, 1].any()

    def test_it_says_its_size(self, images: Images) -> None:
        assert str(images) == "toy: 9 images train, 3 test, each 2 × 2 × 3; labels cat, dog, fox"


class TestImageBatches:
    def test_an_epoch_holds_every_image_once(self) -> None:
        batches = ImageBatches(part(list(range(10))), size=4, seed=1)
        epochs = [[batches(step) for step in range(3 * epoch, 3 * epoch + 3)] for epoch in range(2)]
        assert len(batches) == 3
        orders = []
        for epoch in epochs:
            assert sorted(map(len, epoch)) == [2, 4, 4]
            assert all(torch.equal(batch.images[:, 0, 0, 0].long(), batch.labels) for batch in epoch)
            orders.append(torch.cat([batch.labels for batch in epoch]).tolist())
        assert all(sorted(order) == list(range(10)) for order in orders)
        assert orders[0] != orders[1]

    def test_a_step_s_batch_depends_on_seed_and_step_alone(self) -> None:
        one, same, other = (ImageBatches(part(list(range(100))), size=50, seed=seed) for seed in (1, 1, 2))
        assert torch.equal(one(3).labels, same(3).labels)
        assert not torch.equal(one(3).labels, other(3).labels)

    def test_what_cannot_be_batched_is_refused(self) -> None:
        with pytest.raises(ValueError, match="part is empty; expected at least one image"):
            ImageBatches(part([1])[1:], size=4, seed=1)
        with pytest.raises(ValueError, match="size is 0; expected 1 or more per batch"):
            ImageBatches(part([1]), size=0, seed=1)


class TestScikitLearn:
    def test_digits_are_there_without_a_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert data.available("digits")
        digits = data.load("digits")
        size, license = capsys.readouterr().out.splitlines()
        assert size == "digits: 1,361 images train, 436 test, each 1 × 8 × 8; labels 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
        assert license.startswith("license CC BY 4.0, E. Alpaydin and C. Kaynak (1998)")
        for images, labels in (vars(part).values() for part in (digits.train, digits.test)):
            assert sorted(set((16 * images).flatten().tolist())) == list(range(17))
            assert int(labels.bincount(minlength=10).min()) > len(labels) / 15

    def test_no_digit_of_the_test_is_one_of_the_training(self) -> None:
        digits = data.load("digits")
        train, test = ({image.tobytes() for image in part.images.numpy()} for part in (digits.train, digits.test))
        assert not train & test
        again = data.load("digits")
        assert torch.equal(again.train.images, digits.train.images)

    def test_a_digit_looks_like_its_label(self) -> None:
        """The nearest of the ten mean images tells nine in ten."""
        digits = data.load("digits")
        means = torch.stack([digits.train.images[digits.train.labels == label].mean(dim=0) for label in range(10)])
        nearest = torch.cdist(digits.test.images.flatten(1), means.flatten(1)).argmin(dim=1)
        assert float((nearest == digits.test.labels).float().mean()) > 0.85

    def test_the_photographs_are_there_without_a_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert data.available("photographs")
        photographs = data.load("photographs")
        size, license = capsys.readouterr().out.splitlines()
        assert size == "photographs: china 427 × 640, flower 427 × 640"
        assert license.startswith("license CC BY 2.0, danielbuechele (china) and vultilion (flower) on Flickr")
        for name in photographs.pictures:
            picture = photographs[name]
            assert picture.shape == (3, 427, 640)
            assert 0 <= float(picture.min()) < 0.1 < 0.9 < float(picture.max()) <= 1

    def test_the_flower_is_red_and_the_sky_over_china_blue(self) -> None:
        """So channels are in order, and rows run from the top."""
        photographs = data.load("photographs")
        red, _, blue = photographs["flower"][:, 180:240, 280:340].mean(dim=(1, 2))
        assert red > 2 * blue
        red, _, blue = photographs["china"][:, :40].mean(dim=(1, 2))
        assert blue > red

    def test_no_other_photograph_is_there(self) -> None:
        with pytest.raises(KeyError, match="no photograph is called 'cat'; there are china, flower"):
            data.load("photographs")["cat"]


# ---- what is fetched, in small -----------------------------------------------------------------------------------


def write_idx(path: Path, numbers: np.ndarray) -> None:
    """The format of MNIST: two zeros, 8 for bytes, how many axes, their lengths, the numbers."""
    head = struct.pack(f">HBB{numbers.ndim}I", 0, 8, numbers.ndim, *numbers.shape)
    path.write_bytes(gzip.compress(head + numbers.astype(np.uint8).tobytes()))


class TestFashionMnist:
    NAMES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    NAMES += ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")

    def test_its_reader_takes_the_four_files(self, tmp_path: Path) -> None:
        train, test = (np.random.default_rng(0).integers(256, size=(count, 28, 28)) for count in (5, 3))
        paths = [tmp_path / name for name in self.NAMES]
        for path, numbers in zip(paths, (train, np.arange(5), test, np.array([9, 0, 4])), strict=True):
            write_idx(path, numbers)
        found = read_fashion_mnist(*paths)
        assert found.name == "fashion-mnist"
        assert (found.labels[0], found.labels[9]) == ("T-shirt/top", "Ankle boot")
        assert found.train.labels.tolist() == [0, 1, 2, 3, 4]
        assert found.test.labels.tolist() == [9, 0, 4]
        for images, pixels in ((found.train.images, train), (found.test.images, test)):
            torch.testing.assert_close(images, torch.from_numpy(pixels)[:, None].float() / 255)

    def test_another_content_is_refused_and_another_wrapper_is_not(self, tmp_path: Path) -> None:
        content, path = b"clothes", tmp_path / "clothes.gz"
        file = File(
            path="clothes.gz", urls=("https://clothes",), check=unpacked_to(hashlib.sha256(content).hexdigest())
        )
        for level in (0, 9):
            path.write_bytes(gzip.compress(content, level, mtime=level))
            file.verify(path)
        path.write_bytes(gzip.compress(b"shoes"))
        with pytest.raises(ValueError, match=r"sha256 of what it holds is .*; expected 5c5f9b87"):
            file.verify(path)
        path.write_bytes(gzip.compress(content)[:-9])
        with pytest.raises(ValueError, match="EOFError"):
            file.verify(path)

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither to verify it nor to read it; its size is known at its end only."""
        monkeypatch.setattr("tfbook.data.images.MOST", 10**6)
        paths = [tmp_path / name for name in self.NAMES]
        for path in paths:
            path.write_bytes(gzip.compress(bytes(10**7)))
        for read in (unpacked_to("0"), lambda path: read_fashion_mnist(*paths)):
            with pytest.raises(ValueError, match=rf"{paths[0]} unpacks to more than 1,000,000 bytes"):
                read(paths[0])

    def test_each_file_has_a_stamp_of_its_own(self) -> None:
        """So that a version of tfbook which expects another content verifies anew."""
        assert len({file.check.__qualname__ for file in DATASETS["fashion-mnist"].files}) == 4

    @pytest.mark.real
    def test_the_real_one_is_typed_and_announced(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = data.load("fashion-mnist")
        size, license = capsys.readouterr().out.splitlines()
        assert size.startswith("fashion-mnist: 60,000 images train, 10,000 test, each 1 × 28 × 28; labels T-shirt/top")
        assert license == "license MIT, Zalando SE (Xiao, Rasul and Vollgraf, 2017)"
        assert found.train.labels.bincount().tolist() == [6000] * 10
        assert found.test.labels.bincount().tolist() == [1000] * 10
        assert (float(found.train.images.min()), float(found.train.images.max())) == (0.0, 1.0)
        assert float(found.train.images.mean()) == pytest.approx(0.2860, abs=1e-4)
        assert float(found.train.images.std()) == pytest.approx(0.3530, abs=1e-4)


class TestCifar10:
    @pytest.fixture
    def archive(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Tensor, Tensor]:
        """Six files of three images each and one with the labels, packed; torchvision told what they hash to."""
        from torchvision.datasets import CIFAR10

        pixels = torch.randint(256, (18, 3, 32, 32), dtype=torch.uint8)
        labels, folder = torch.arange(18) % 2, tmp_path / "cifar-10-batches-py"
        folder.mkdir()
        names = [name for name, _ in CIFAR10.train_list + CIFAR10.test_list]
        for number, name in enumerate(names):
            rows = slice(3 * number, 3 * number + 3)
            batch = {"data": pixels[rows].flatten(1).numpy(), "labels": labels[rows].tolist()}
            (folder / name).write_bytes(pickle.dumps(batch))
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["airplane", "frog"]}))
        hashed = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        monkeypatch.setattr(CIFAR10, "train_list", [[name, hashed[name]] for name in names[:5]])
        monkeypatch.setattr(CIFAR10, "test_list", [[names[5], hashed[names[5]]]])
        monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": hashed["batches.meta"]})
        with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as archive:
            archive.add(folder, folder.name)
        return tmp_path / "cifar.tar.gz", pixels, labels

    def test_its_reader_takes_the_archive(self, archive: tuple[Path, Tensor, Tensor]) -> None:
        path, pixels, labels = archive
        found = read_cifar10(path)
        assert (found.name, found.labels) == ("cifar-10", ("airplane", "frog"))
        images = torch.cat([found.train.images, found.test.images])
        torch.testing.assert_close(images, pixels.float() / 255)
        assert images.is_contiguous()
        assert torch.equal(torch.cat([found.train.labels, found.test.labels]), labels)
        assert len(found.test) == 3

    def test_a_bomb_is_not_unpacked(
        self, archive: tuple[Path, Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whichever file of the archive is too large, or all together."""
        monkeypatch.setattr("tfbook.data.images.MOST", 30_000)
        with pytest.raises(ValueError, match=r"cifar\.tar\.gz unpacks to more than 30,000 bytes"):
            read_cifar10(archive[0])

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "cifar.tar.gz").write_bytes(b"no images")
        (file,) = DATASETS["cifar-10"].files
        with pytest.raises(ValueError, match=r"sha256 is .*; expected 6d958be074577803"):
            file.verify(tmp_path / "cifar.tar.gz")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10"])
def test_digits_take_the_place_of_what_cannot_be_had(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFBOOK_OFFLINE", "1")
    assert data.load(name, fallback="digits").name == "digits"
    assert f"{name} isn't available here, so digits takes its place" in capsys.readouterr().out

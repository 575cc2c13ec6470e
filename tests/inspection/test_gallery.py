"""Pictures: no byte is lost, every one says that it is synthetic, and differences have the right sign."""

import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from blindsight.errors import InvalidInput
from blindsight.samples import gallery


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(28, 28), (5, 9), (8, 8, 1), (8, 8, 3), (8, 8, 4)])
def test_png_keeps_every_byte_and_says_what_it_is(shape):
    image = noise(*shape)
    data = gallery.png(image)
    assert np.array_equal(gallery.from_png(data).reshape(shape), image)
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.info["Source"] == "synthetic"


def test_what_is_no_png_is_refused():
    with pytest.raises(InvalidInput, match="not a valid PNG"):
        gallery.from_png(b"GIF89a")


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 1), (28, 28, 3), (28, 28, 4), (64, 200, 3)])
def test_the_stamp_lies_below_the_picture_and_is_readable(shape):
    image = noise(*shape)
    stamped = gallery.stamped(image)
    factor = max(1, 112 // shape[1])
    picture, strip = stamped[: factor * shape[0]], stamped[factor * shape[0] :]
    assert np.array_equal(picture[::factor, ::factor].reshape(shape), image)
    assert strip.shape[0] == gallery.STRIP
    ink = strip[..., :3].max() if strip.ndim == 3 else strip.max()
    assert ink > 200
    assert np.median(strip[..., 0] if strip.ndim == 3 else strip) == 52
    if shape[2:] == (4,):
        assert np.all(strip[..., 3] == 255)


@pytest.mark.parametrize("channels", [(), (3,)])
def test_a_large_picture_is_reduced(channels):
    large = np.repeat(np.repeat(noise(100, 112, *channels), 4, axis=0), 4, axis=1)
    assert np.array_equal(gallery.stamped(large)[:100], large[::4, ::4])
    assert gallery.stamped(noise(2, 1000, *channels)).shape[:2] == (2 + gallery.STRIP, 1000)  # too flat to reduce


def test_a_float_picture_is_stamped_as_bytes():
    assert gallery.stamped(np.ones((28, 28)))[0, 0] == 255
    assert gallery.as_bytes(np.array([-1.0, 0.5, 2.0])).tolist() == [0, 128, 255]


@pytest.mark.parametrize("shape", [(12, 28, 28), (12, 28, 28, 1), (12, 28, 28, 3)])
def test_a_grid_has_all_samples_row_by_row(shape):
    samples = np.zeros(shape, np.uint8)
    samples[10] = 255
    sheet = gallery.grid(samples, columns=10)
    tile = (112 + gallery.STRIP + 4, 116)
    assert sheet.shape[:2] == (2 * tile[0], 10 * tile[1])
    assert np.all(sheet[tile[0] + 10, 10] == 255)
    assert np.all(sheet[tile[0] + 10, tile[1] + 10] == 0)
    assert np.all(sheet[tile[0] :, 2 * tile[1] :] == 255)  # empty places
    with pytest.raises(InvalidInput, match="at least one"):
        gallery.grid(samples[:0])


def test_classes_weigh_the_same_in_the_mean():
    samples = np.stack([np.full((2, 2), value, np.uint8) for value in (0, 0, 0, 255)])
    labels = np.array([3, 3, 3, 7])
    assert gallery.class_mean(samples, labels) == pytest.approx(0.5)
    assert gallery.class_mean(samples, None) == pytest.approx(0.25)
    assert {label: mean.mean() for label, mean in gallery.class_means(samples, labels).items()} == {3: 0.0, 7: 1.0}


def test_contrast_is_the_largest_distance_from_the_first_arm():
    first = np.zeros((3, 4, 4), np.uint8)
    second, third = first.copy(), first.copy()
    second[1] = 51
    third[2, :2] = 255
    assert gallery.contrast([first, second, third]) == pytest.approx([0.0, 0.2, 0.5])
    assert gallery.contrast([first]).tolist() == [0, 0, 0]
    colour = np.repeat(second[..., None], 3, axis=3)
    assert gallery.contrast([np.zeros_like(colour), colour]) == pytest.approx([0.0, 0.2, 0.0])


def test_transparency_is_no_brightness():
    assert gallery.luminance(np.array([[[[0, 0, 0, 255]]]], np.uint8)).item() == 0


def test_signed_differences_are_blue_below_zero_white_at_it_and_red_above():
    blue, white, red, clipped = gallery.diverging(np.array([-0.5, 0.0, 0.5, 9.0]), 0.5)
    assert blue[2] > blue[0]
    assert red[0] > red[2]
    assert white.tolist() == [247] * 3
    assert clipped.tolist() == red.tolist()
    assert gallery.diverging(np.array([1.0]), 0.0).tolist() == [[247] * 3]


def test_the_histogram_holds_shares_from_black_to_white():
    samples = np.array([[[0, 0], [0, 255]]], np.uint8)
    shares = gallery.histogram(samples, bins=4)
    assert shares.tolist() == [0.75, 0, 0, 0.25]


def test_pictures_side_by_side_are_coloured_and_apart():
    row = gallery.side_by_side([np.ones((3, 3)), noise(3, 3, 3), noise(3, 3, 1)])
    assert row.shape == (3, 3 * 3 + 2 * 2, 3)
    assert np.all(row[:, :3] == 1)
    assert np.all(row[:, 3:5] == 0)
    assert row.max() <= 1


def test_pixels_are_printed_with_and_without_colour():
    image = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    plain = Console(file=io.StringIO(), width=40, color_system=None)
    plain.print(gallery.Pixels(image))
    assert plain.file.getvalue().splitlines() == ["  @@", "@@  ", "  @@"]  # pyright: ignore[reportAttributeAccessIssue]
    colour = Console(file=io.StringIO(), width=40, color_system="truecolor", force_terminal=True)
    colour.print(gallery.Pixels(image))
    printed = colour.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert printed.count("▀") == 4
    assert "38;2;0;0;0;48;2;255;255;255" in printed

"""Primary models: any function, a classifier, an ONNX file; and what does not fit is refused in one sentence."""

import dataclasses
import json
import struct
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from wire_files import varint

from blindsight.data import embedded
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.models import CNN, MLP, Logistic
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Learnt, Primary, gather, primary
from blindsight.models.scaling import Scaling


def ten(images: np.ndarray) -> np.ndarray:
    return np.zeros((len(images), 10))


def images_of(dtype, high, shape=(28, 28), classes=10) -> Population:
    image = np.linspace(0, high, 4 * int(np.prod(shape))).reshape(4, *shape).astype(dtype)
    names = tuple(map(str, range(classes)))
    columns = {"image": image, "label": np.zeros(4, np.int32)}
    return Population(columns, sizes=[0, 4], name="pictures", classes={"label": names})


def test_scores_are_those_of_one_call_however_they_are_batched():
    image = embedded("digits").columns["image"][:50]
    model = MLP((8, 8), 10, key=jax.random.key(0))
    whole = np.asarray(model(jax.numpy.asarray(image)))
    for size in (7, 50, 64):
        np.testing.assert_allclose(primary(model, batch_size=size).scores(image), whole, rtol=1e-5, atol=1e-6)
    assert primary(model).scores(image[:0]).shape == (0, 10)
    predicted, sure = primary(model).predict(image)
    np.testing.assert_array_equal(predicted, whole.argmax(axis=1))
    np.testing.assert_allclose(sure, np.asarray(jax.nn.softmax(whole, axis=1)).max(axis=1), rtol=1e-4)


def test_a_model_is_never_called_without_examples():
    """scikit-learn refuses an empty batch, and so does `reshape(0, -1)`; a dry run has no examples to show."""

    def strict(inputs: np.ndarray) -> np.ndarray:
        return ten(inputs.reshape(len(inputs), -1))

    for by_row in (True, False):
        model = dataclasses.replace(primary(strict), by_row=by_row)
        assert model.scores(np.zeros((0, 28, 28), np.uint8)).shape == (0, 10)
        predicted, sure = model.predict_by_client(np.zeros((0, 28, 28), np.uint8), np.zeros(0, int))
        assert len(predicted) == len(sure) == 0


@pytest.mark.parametrize(
    ("model", "population", "words"),
    [
        (primary(ten, shape=(8, 8)), images_of(np.uint8, 255), r"reads examples of shape \[8, 8\] and image has"),
        (primary(ten, dtype=np.float32), images_of(np.uint8, 255), "reads float32 and image holds uint8: convert"),
        (primary(ten, dtype=np.uint8), images_of(np.float32, 1), "reads uint8 and image holds float32"),
        (primary(ten, value_range=(0, 1)), images_of(np.uint8, 255), "from 0 to 1 and image holds bytes from 0 to 255"),
        (
            primary(ten, value_range=(0, 1)),
            images_of(np.float32, 255),
            "from 0 to 1 and image holds numbers of another",
        ),
        (primary(ten, value_range=(0, 255)), images_of(np.float32, 1), "from 0 to 255 and image holds numbers of ano"),
        (primary(ten), images_of(np.uint8, 255, classes=62), "has 10 classes and 'label' of pictures has 62"),
        (primary(lambda x: np.zeros(len(x)), name="flat"), images_of(np.uint8, 255), "flat must return a finite score"),
        (primary(lambda x: ten(x) * np.nan, name="nan"), images_of(np.uint8, 255), "nan must return a finite score"),
        (
            primary(CNN((28, 28), 10, key=jax.random.key(0))),
            images_of(np.uint8, 255, (8, 8)),
            "CNN cannot read",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_it_is_used(model, population, words):
    with pytest.raises(InvalidInput, match=words):
        model.check(population, public=population.columns["image"])


def test_models_that_fit_pass():
    primary(ten).check(images_of(np.uint8, 255))
    primary(ten, value_range=(0, 1), dtype="float32", shape=(28, 28)).check(images_of(np.float32, 1))
    primary(CNN((28, 28), 10, key=jax.random.key(0)), value_range=(0, 1)).check(images_of(np.uint8, 255))


def test_fields_that_are_not_there_or_are_text_are_refused():
    with pytest.raises(InvalidInput, match="reads 'picture', but pictures has image, label"):
        primary(ten).check(images_of(np.uint8, 255), "picture")
    said = Population({"said": np.array(["a", "b"])}, sizes=[2], name="talk")
    with pytest.raises(InvalidInput, match="'said' of talk is text"):
        primary(ten).check(said, "said")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="a function of a batch"):
        primary(3)
    with pytest.raises(InvalidInput, match="there is no model"):
        primary(tmp_path / "absent.onnx")
    with pytest.raises(InvalidInput, match="batch_size"):
        primary(ten, batch_size=0)
    made = primary(ten)
    assert primary(made) is made
    assert isinstance(made, Primary)


def test_several_fields_are_read_side_by_side():
    columns = {"a": np.arange(3), "b": np.ones(3)}
    assert gather(columns, ("a", "b")).tolist() == [[0, 1], [1, 1], [2, 1]]
    assert gather(columns, "a") is columns["a"]
    assert gather(columns, ["b"]) is columns["b"]


def test_fitting_learns_what_it_is_shown():
    digits = embedded("digits").columns
    model = fit(
        MLP((8, 8), 10, key=jax.random.key(0)), digits["image"], digits["label"], key=jax.random.key(1), epochs=8
    )
    assert (primary(model).predict(digits["image"])[0] == digits["label"]).mean() > 0.9


# --- ONNX: a file is written here by hand, field by field of its protocol buffers


def _field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def _tensor_type(kind: int, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(_field(1, _field(2, d) if isinstance(d, str) else _field(1, d)) for d in shape)
    return _field(1, _field(1, kind) + _field(2, dims))


def write_onnx(path: Path, metadata: dict[str, str], reads: tuple[int | str, ...] = ("n", 1, 2, 2)) -> Path:
    """Flattens a (n, 1, 2, 2) input of floats into (n, 4): the pixels are the scores."""
    axis = _field(1, "axis") + _field(3, 1) + _field(20, 2)
    node = _field(1, "x") + _field(2, "y") + _field(4, "Flatten") + _field(5, axis)
    value = lambda name, shape: _field(1, name) + _field(2, _tensor_type(1, shape))  # noqa: E731
    graph = _field(1, node) + _field(2, "g") + _field(11, value("x", reads)) + _field(12, value("y", ("n", 4)))
    about = b"".join(_field(14, _field(1, key) + _field(2, text)) for key, text in metadata.items())
    path.write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13)) + about)
    return path


def test_an_onnx_file_says_how_its_input_is_laid_out(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    about = {"layout": "NCHW", "range": "0,1", "mean": "0.5", "std": "0.25"}
    model = primary(write_onnx(tmp_path / "m.onnx", about))
    image = np.array([[[0, 255], [51, 102]]], np.uint8)
    np.testing.assert_allclose(model.scores(image), [[-2, 2, -1.2, -0.4]], atol=1e-5)
    model.check(Population({"image": image}, sizes=[1], name="one"), "image", None)
    floats = image.astype(np.float32)
    with pytest.raises(InvalidInput, match="from 0 to 1 and image holds numbers of another range"):
        model.check(Population({"image": floats}, sizes=[1], name="one"), "image", None, public=floats)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, bool])
def test_the_range_of_public_numbers_is_checked_whatever_their_type(dtype):
    """A column of whole numbers once ended in an OverflowError."""
    ages = np.arange(5).astype(dtype)
    primary(ten).check(Population({"age": ages}, sizes=[5], name="people"), "age", None, public=ages)


def test_an_onnx_file_that_does_not_say_its_range_takes_no_bytes(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = primary(write_onnx(tmp_path / "m.onnx", {"layout": "NCHW"}))
    with pytest.raises(InvalidInput, match="reads float32 and image holds uint8"):
        model.check(Population({"image": np.zeros((1, 2, 2), np.uint8)}, sizes=[1], name="one"), "image", None)
    with pytest.raises(InvalidInput, match="cannot read image"):
        model.check(Population({"image": np.zeros((1, 3, 3), np.float32)}, sizes=[1], name="one"), "image", None)


@pytest.mark.parametrize(
    ("metadata", "words"), [({"layout": "HCN"}, "has the layout 'HCN'"), ({"range": "black,white"}, "not numbers")]
)
def test_onnx_metadata_that_make_no_sense_are_refused(tmp_path, metadata, words):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with pytest.raises(InvalidInput, match=words):
        primary(write_onnx(tmp_path / "m.onnx", metadata))


def test_a_file_that_is_no_onnx_is_refused(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    (tmp_path / "m.onnx").write_bytes(struct.pack("<d", 3.0))
    with pytest.raises(InvalidInput, match="not an ONNX model"):
        primary(str(tmp_path / "m.onnx"))


# --- scikit-learn: files that its converter wrote (sklearn/write.py)

SKLEARN = Path(__file__).parent / "sklearn"
EXPECTED = json.loads((SKLEARN / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "rows"])
def test_scikit_learns_two_outputs_are_scores_and_classes_in_their_order(name):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, rows = primary(SKLEARN / f"{name}.onnx"), np.array(EXPECTED["rows"], np.float32)
    assert model.classes == tuple(EXPECTED[name]["classes"])
    expected = np.array(EXPECTED[name]["scores"])
    np.testing.assert_allclose(np.exp(model.scores(rows)), expected, atol=1e-4)
    predicted, sure = model.predict(rows)
    np.testing.assert_array_equal(predicted, expected.argmax(axis=1))
    np.testing.assert_allclose(sure, expected.max(axis=1), atol=1e-4)


def test_a_model_gets_nan_if_it_can_read_it_and_public_values_otherwise():
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    gaps = np.array([[0.5, np.nan], [np.nan, np.nan], [-1.0, 2.0]], np.float32)
    full = np.array([[0.5, -0.25], [0.75, -0.25], [-1.0, 2.0]], np.float32)
    linear, forest = (primary(SKLEARN / f"{name}.onnx") for name in ("logistic-tensor", "forest-numbers"))
    np.testing.assert_array_equal(linear.filling([0.75, -0.25], [False, False]).scores(gaps), linear.scores(full))
    np.testing.assert_array_equal(forest.filling([0.75, -0.25], [False, False]).scores(gaps), forest.scores(gaps))
    codes = np.array([[0.5, -2.0], [0.5, -1.0], [0.5, 1.0]], np.float32)  # the second is a category
    filled = np.array([[0.5, 2.0], [0.5, 2.0], [0.5, 1.0]], np.float32)
    np.testing.assert_array_equal(linear.filling([0.0, 2.0], [False, True]).scores(codes), linear.scores(filled))


def test_the_range_and_layout_of_an_onnx_file_can_be_given(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    silent = write_onnx(tmp_path / "m.onnx", {})
    image = np.array([[[0, 255], [51, 102]]], np.uint8)
    people = Population({"image": image}, sizes=[1], name="one")
    with pytest.raises(InvalidInput, match=r"reads float32 and image holds uint8.*--model-range 0:1, 0:255 or -1:1"):
        primary(silent).check(people, "image", None)
    with pytest.raises(InvalidInput, match="--model-layout NCHW, NHWC, NHW or NF"):
        primary(silent, value_range=(0, 1)).check(people, "image", None)
    for ends, scores in (((0, 1), [0, 1, 0.2, 0.4]), ((0, 255), [0, 255, 51, 102]), ((-1, 1), [-1, 1, -0.6, -0.2])):
        model = primary(silent, value_range=ends, layout="nchw")
        model.check(people, "image", None)
        np.testing.assert_allclose(model.scores(image), [scores], atol=1e-5)
    last = write_onnx(tmp_path / "last.onnx", {"layout": "NCHW", "range": "0,1"}, ("n", 2, 2, 1))
    np.testing.assert_allclose(primary(last, layout="NHWC", value_range=(0, 255)).scores(image), [[0, 255, 51, 102]])
    with pytest.raises(InvalidInput, match="has the layout 'HWN': write NF, NHW, NHWC or NCHW"):
        primary(silent, layout="HWN")


def test_rows_are_scaled_one_by_one_even_if_there_are_none():
    scaling = Scaling.of(np.array([[0.0, 10.0], [2.0, 30.0]]))
    np.testing.assert_allclose(scaling(np.array([[2.0, 10.0], [np.nan, 20.0]])), [[1, -1], [0, 0]], atol=1e-5)
    assert scaling(np.zeros((0, 2), np.float32)).shape == (0, 2)  # a client without rows


def test_rows_are_scaled_before_a_model_that_mixes_them_client_by_client():
    """Scaling treats each row alone, which says nothing of the model after it."""
    scaling = Scaling.of(np.array([[0.0, 10.0], [2.0, 30.0]]))
    learnt = Learnt()
    rows, sizes = np.array([[0.0, 12.0], [1.0, 20.0], [2.0, 14.0]]), np.array([1, 2])

    def standardised(batch: np.ndarray) -> np.ndarray:
        return np.stack([-batch[:, 0], batch[:, 0]], axis=1) - batch.mean()

    model = scaling.before(standardised, name="mixes rows", learnt=learnt)
    other = rows.copy()
    other[0] += 100
    seen, seen_beside_another = (model.scores_by_client(one, sizes)[1:] for one in (rows, other))
    np.testing.assert_array_equal(seen, seen_beside_another)
    assert scaling.before(Logistic((2,), 2, key=jax.random.key(0)), name="ours", learnt=learnt).by_row


# --- models of other libraries


def rows_of(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    return x, np.array(["low", "middle", "high"])[np.digitize(x.sum(axis=1), [-0.5, 0.5])]


ESTIMATORS = {
    "logistic": lambda: LogisticRegression(),
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(3, random_state=0),
    "margins": lambda: LinearSVC(),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_scikit_learn_classifier_predicts_as_it_does_itself(name, classes):
    x, y = rows_of()
    y = np.where(y == "high", "middle", y) if classes == 2 else y
    estimator = ESTIMATORS[name]().fit(x, y)
    model = primary(estimator)
    assert model.classes == tuple(estimator.classes_)
    assert model.scores(x).shape == (60, classes)
    named = np.array(model.classes)[model.predict(x)[0]]
    assert named.tolist() == np.asarray(estimator.predict(x)).tolist()
    probabilities = getattr(estimator, "predict_proba", None)
    if probabilities is not None:
        _, sure = model.predict(x)
        np.testing.assert_allclose(sure, probabilities(x).max(axis=1), atol=1e-5)


def test_a_scikit_learn_classifier_reads_images_as_rows_and_is_checked():
    digits = embedded("digits")
    estimator = GaussianNB().fit(digits.columns["image"].reshape(-1, 64), digits.columns["label"])
    model = primary(estimator, name="bayes")
    model.check(digits)
    assert np.mean(model.predict(digits.columns["image"])[0] == digits.columns["label"]) > 0.8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogisticRegression(), "LogisticRegression has no classes_: fit the classifier first"),
        (lambda: LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), "LinearRegression has no classes_"),
        (lambda: Perceptron().fit, None),
    ],
)
def test_what_is_no_classifier_is_refused(make, words):
    if words is None:
        assert primary(make()).name == "fit"  # any callable is a model
        return
    with pytest.raises(InvalidInput, match=words):
        primary(make())


def test_a_pytorch_module_is_read_in_its_layout_and_without_dropout():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(144, 10)
    )
    digits = embedded("digits")
    images = digits.columns["image"][:5]
    model = primary(net.train(), layout="NCHW")
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(images[:, None])).numpy()
    np.testing.assert_allclose(primary(net.train(), layout="NCHW").scores(images), expected, atol=1e-5)
    model.check(digits)
    with pytest.raises(InvalidInput, match="reads float32 and image holds uint8"):
        model.check(images_of(np.uint8, 255, (8, 8)))
    scaled = primary(net, layout="NCHW", value_range=(0, 1))
    of_bytes = (images * 255).astype(np.uint8)
    close = scaled.scores((of_bytes / np.float32(255)).astype(np.float32))
    np.testing.assert_allclose(scaled.scores(of_bytes), close, atol=1e-4)


def test_a_hugging_face_output_has_its_logits_taken_and_its_names_read():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Output(dict):
        @property
        def logits(self):
            return self["logits"]

    class Classifier(torch.nn.Module):
        config = types.SimpleNamespace(id2label={1: "dog", 0: "cat"})

        def forward(self, x):
            return Output(logits=x[:, :2])

    model = primary(Classifier())
    assert model.classes == ("cat", "dog")
    assert model.scores(np.array([[1.0, 2.0, 3.0]], np.float32)).tolist() == [[1.0, 2.0]]

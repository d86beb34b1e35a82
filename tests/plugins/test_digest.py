"""What moves the digest of a plug-in or of the engine, and what does not."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.episodes.run import EPISODES
from fscil_bench.errors import UsageError
from fscil_bench.plugins.digest import (
    ENGINE,
    FOLDERS,
    NOT_FOLLOWED,
    Trace,
    engine_digest,
    source_digest,
    trace,
)
from fscil_bench.plugins.registry import Plugin, load_registry
from fscil_bench.running.origins import FromFile, Given, Released, Trained
from fscil_bench.running.workbench import RUN

Files = Mapping[str, str]

MODEL = '''\
"""A model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..shared import power
from . import tools
from .tools import *

BETA = 0.5
BETA += 1
LOW, HIGH = 0, 1
TABLE = {}
TABLE["a"] = 1
if math.pi > 3:
    SIGN = 1
else:
    SIGN = -1


def twice(count):
    def wrap(function):
        return function
    return wrap


class Base:
    offset = 3


@dataclass
class Params:
    steps: int = 8


class Model(Base):
    """What it is."""

    def scores(self, x, scale=16):
        """Return scores."""
        if x is None:
            raise ValueError(f"no {x}")
        return power(x, BETA) * SIGN + tools.shift(x) + starred(x) + TABLE["a"] + LOW - self.more(x)

    @twice(2)
    def more(self, x):
        from .late import later

        return math.sqrt(later(x)) + Params().steps


class Other:
    scale = 16
'''

FILES: Files = {
    "pack/__init__.py": "",
    "pack/family/__init__.py": "",
    "pack/family/model.py": MODEL,
    "pack/family/tools.py": "STEP = 2\n\ndef shift(x):\n    return x + STEP\n\n"
    "def starred(x):\n    return x\n\ndef unused(x):\n    return x\n",
    "pack/family/late.py": "def later(x):\n    return x\n",
    "pack/shared/__init__.py": "from .maths import power as power\n",
    "pack/shared/maths.py": "from .constants import ROOT\n\ndef power(x, beta):\n"
    "    return x ** beta * ROOT\n",
    "pack/shared/constants.py": "ROOT = 4\n",
}


def written(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def edited(files: Files, name: str, old: str, new: str) -> Files:
    assert old in files[name]
    return {**files, name: files[name].replace(old, new)}


def digest(folder: Path, files: Files, file: str = "pack/family/model.py") -> str:
    return source_digest(written(folder, files) / file, "Model")


HERE, TOOLS = "pack/family/model.py", "pack/family/tools.py"


KEPT = {
    "docstring edited": (HERE, '"""What it is."""', '"""What it was."""'),
    "docstring removed": (HERE, '    """What it is."""\n', ""),
    "comment": (HERE, "LOW, HIGH = 0, 1", "LOW, HIGH = 0, 1  # bounds"),
    "formatting": (HERE, 'TABLE["a"] + LOW', "(TABLE[\n            'a'\n        ]) + LOW"),
    "annotations of a function": (
        HERE,
        "scores(self, x, scale=16):",
        "scores(self, x: float, scale: int = 16) -> float:",
    ),
    "annotation of a variable": (HERE, "BETA = 0.5", "BETA: float = 0.5"),
    "annotation of a field": (HERE, "steps: int = 8", "steps: float = 8"),
    "imports in another order, and again": (
        HERE,
        "import math\nfrom dataclasses import dataclass\n",
        "from dataclasses import dataclass\nimport math\nimport math\nimport math.nothing\n",
    ),
    "a package by its full name": (HERE, "from ..shared import", "from pack.shared import"),
    "an import that nothing uses": (
        HERE,
        "from . import tools\n",
        "if 0:\n    from .elsewhere import nothing\nfrom . import tools\n",
    ),
    "a library's function by its bare name": (
        HERE,
        "        from .late import later\n\n        return math.sqrt",
        "        from math import sqrt\n        from .late import later\n\n        return sqrt",
    ),
    "text of an error": (HERE, 'f"no {x}"', '"no number"'),
    "another class of the file": (HERE, "    scale = 16", "    scale = 8"),
    "another function of a helper": (TOOLS, "unused(x):\n    return x", "unused(x):\n    return 2"),
    "title and citation": (
        HERE,
        '"""What it is."""',
        'title = "It"\n    bibtex = "@misc{it}" + twice',
    ),
    "what it does as a script": (
        HERE,
        "class Other",
        "if __name__ == '__main__':\n    Model()\n\nclass Other",
    ),
    "logging": (
        HERE,
        "class Other",
        "import logging\nlogging.getLogger('a').setLevel(3)\n\nclass Other",
    ),
    "stub for type checkers": (
        "pack/family/late.py",
        "def later",
        "from typing import overload\n@overload\ndef later(x: int) -> int: ...\ndef later",
    ),
    "annotation of an attribute of a class": (HERE, "offset = 3", "offset: ClassVar[int] = 3"),
    "an import for types": (
        HERE,
        "class Other",
        "if TYPE_CHECKING:\n    from .late import later\n\nclass Other",
    ),
    "docstring of a helper": ("pack/shared/maths.py", "def power", '"""Powers."""\n\n\ndef power'),
}


@pytest.mark.parametrize("edit", KEPT)
def test_how_it_is_written_keeps_the_digest(tmp_path: Path, edit: str) -> None:
    assert digest(tmp_path / "b", edited(FILES, *KEPT[edit])) == digest(tmp_path / "a", FILES)


MOVED = {
    "default": (HERE, "scale=16):", "scale=8):"),
    "operator": (HERE, "* SIGN +", "* SIGN -"),
    "argument of a decorator": (HERE, "@twice(2)", "@twice(3)"),
    "decorator": (HERE, "    @twice(2)\n", ""),
    "constant": (HERE, "BETA = 0.5", "BETA = 0.4"),
    "augmented assignment": (HERE, "BETA += 1", "BETA += 2"),
    "item": (HERE, 'TABLE["a"] = 1', 'TABLE["a"] = 2'),
    "call at import": (HERE, 'TABLE["a"] = 1', 'TABLE["a"] = 1\nTABLE.update(a=2)'),
    "tuple": (HERE, "LOW, HIGH = 0, 1", "LOW, HIGH = 1, 1"),
    "another name of the tuple": (HERE, "+ LOW -", "+ HIGH -"),
    "condition": (HERE, "math.pi > 3", "math.pi > 4"),
    "branch": (HERE, "SIGN = -1", "SIGN = -2"),
    "base class": (HERE, "class Model(Base)", "class Model"),
    "inherited": (HERE, "offset = 3", "offset = 4"),
    "field or not": (HERE, "steps: int = 8", "steps: ClassVar[int] = 8"),
    "attribute of a library": (HERE, "math.sqrt", "math.exp"),
    "library under the same name": (HERE, "import math\n", "import cmath as math\n"),
    "constant of a sibling": (TOOLS, "STEP = 2", "STEP = 3"),
    "star import": (TOOLS, "def starred(x):\n    return x", "def starred(x):\n    return -x"),
    "import in a function": ("pack/family/late.py", "return x", "return -x"),
    "helper behind a package's re-export": ("pack/shared/maths.py", "x ** beta", "x * beta"),
    "constant two imports away": ("pack/shared/constants.py", "ROOT = 4", "ROOT = 5"),
}


@pytest.mark.parametrize("edit", MOVED)
def test_what_it_does_moves_the_digest(tmp_path: Path, edit: str) -> None:
    assert digest(tmp_path / "b", edited(FILES, *MOVED[edit])) != digest(tmp_path / "a", FILES)


def test_a_helper_may_move_to_another_file_or_package(tmp_path: Path) -> None:
    same_package = edited(FILES, "pack/shared/maths.py", ".constants", ".numbers")
    numbers = {"pack/shared/numbers.py": FILES["pack/shared/constants.py"]}
    same_package = {k: v for k, v in same_package.items() if "constants" not in k} | numbers
    one_file = {
        "alone/model.py": MODEL.replace("from ..shared import power", "from .helper import power")
        .replace("from . import tools", "from . import helper as tools")
        .replace("from .tools import *", "from .helper import starred")
        .replace("from .late import later", "from .helper import later"),
        "alone/helper.py": FILES["pack/family/tools.py"]
        + FILES["pack/family/late.py"]
        + "ROOT = 4\ndef power(x, beta):\n    return x ** beta * ROOT\n",
    }
    before = digest(tmp_path / "a", FILES)
    assert digest(tmp_path / "b", same_package) == before
    assert digest(tmp_path / "c", one_file, "alone/model.py") == before


def test_two_helpers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    model = "from .a import f\nfrom .b import f as g\n\nclass Model:\n    x = f(1) - g(1)\n"
    files = {"model.py": model, "a.py": "def f(x): return x\n", "b.py": "def f(x): return -x\n"}
    exchanged = {**files, "a.py": files["b.py"], "b.py": files["a.py"]}
    imports = "from .b import f\nfrom .a import f as g\n"
    both = {**exchanged, "model.py": imports + "".join(model.splitlines(keepends=True)[2:])}
    before = digest(tmp_path / "1", files, "model.py")
    assert digest(tmp_path / "2", exchanged, "model.py") != before
    assert digest(tmp_path / "3", both, "model.py") == before, "both the files and the imports"


USES: dict[str, tuple[str, str, str]] = {
    "definitions that refer to one another": (
        "from .a import even\n\nclass Model:\n    x = even(4)\n",
        "from . import b\n\ndef even(n): return n == 0 or b.odd(n - 1)\n",
        "from . import a\n\ndef odd(n): return n != 0 and a.even(n - 1)\n",
    ),
    "branches of a conditional import": (
        "try:\n    from .a import f\nexcept ImportError:\n    from .b import f\n\n"
        "class Model:\n    x = f(1)\n",
        "def f(n): return n - 1\n",
        "def f(n): return n - 1\n",
    ),
    "an import in one method and in another": (
        "from .a import f\n\nclass Model:\n    def g(self):\n"
        "        from .b import f\n        return f(1)\n    def h(self):\n        return f(1)\n",
        "def f(n): return n - 1\n",
        "def f(n): return n - 1\n",
    ),
    "modules that are handed on as a whole": (
        "from . import a, b\n\nclass Model:\n    x = getattr(a, 'g'), getattr(b, 'g')\n",
        "def f(n): return n\n\ndef g(n): return n - 1\n",
        "def g(n): return n - 1\n",
    ),
}


@pytest.mark.parametrize("changed", ["a.py", "b.py"])
@pytest.mark.parametrize("use", USES)
def test_what_is_used_in_any_way_counts(tmp_path: Path, use: str, changed: str) -> None:
    files = dict(zip(("model.py", "a.py", "b.py"), USES[use], strict=True))
    before = digest(tmp_path / "1", files, "model.py")
    assert digest(tmp_path / "2", edited(files, changed, "n - 1", "n - 2"), "model.py") != before


MODEL_OF_HEADS = "from .a import HEADS\n\nclass Model:\n    x = HEADS['plain'](3)\n"
ACTING: dict[str, tuple[str, str, str, str]] = {
    "the call of a factory": (
        "def make(s):\n    class M:\n        sign = s\n    return M\n\nModel = make(7)\n",
        *("", "", ""),
    ),
    "a decorator that registers": (
        MODEL_OF_HEADS,
        "HEADS = {}\n\ndef head(f):\n    HEADS[f.__name__] = f\n    return f\n\n"
        "@head\ndef plain(x):\n    return x * 7\n",
        *("", ""),
    ),
    "a call that registers": (
        MODEL_OF_HEADS,
        "HEADS = {}\n\ndef plain(x):\n    return x * 7\n\n_ = HEADS.setdefault('plain', plain)\n",
        *("", ""),
    ),
    "a variant of a generic function": (
        "from .a import f\n\nclass Model:\n    x = f(3)\n",
        "from functools import singledispatch\n\n@singledispatch\ndef f(x):\n    return x\n\n"
        "@f.register\ndef _(x: int):\n    return x * 7\n",
        *("", ""),
    ),
    "a base class that hears of its subclasses": (
        MODEL_OF_HEADS,
        "from .b import Head\nHEADS = Head.known\n\nclass Near(Head):\n    pass\n\n"
        "class plain(Near):\n    scale = 7\n",
        "class Head:\n    known = {}\n\n    def __init_subclass__(cls):\n"
        "        Head.known[cls.__name__] = cls\n",
        "",
    ),
    "a module imported for what it does": (
        "import pack.a\nfrom .b import SIGN\n\nclass Model:\n    x = SIGN\n",
        "from . import b as consts\nconsts.SIGN = 7\n",
        "SIGN = 1\n",
        "",
    ),
    "the package of a helper": (
        "from .deep.c import SIGN\n\nclass Model:\n    x = SIGN\n",
        *("", ""),
        "from . import c\nc.SIGN = 7\n",
    ),
    "a module imported in a method": (
        "class Model:\n    def f(self):\n        from . import a\n        from .b import SIGN\n"
        "        return SIGN\n",
        "from . import b\nb.SIGN = 7\n",
        "SIGN = 1\n",
        "",
    ),
    "an attribute set where the class is brought": (
        "from .a import Model\n\nModel.sign = 7\n",
        "class Model:\n    sign = 1\n",
        *("", ""),
    ),
    "a base class patched by its importer": (
        "from .a import Base\nBase.sign = 7\n\nclass Model(Base):\n    pass\n",
        "class Base:\n    sign = 1\n",
        *("", ""),
    ),
    "a condition around imports": (
        "if 7 > 8:\n    from .a import f\nelse:\n    from .b import f\n\n"
        "class Model:\n    x = f(3)\n",
        "def f(x): return x\n",
        "def f(x): return -x\n",
        "",
    ),
}


@pytest.mark.parametrize("acting", ACTING)
def test_what_is_done_at_import_counts(tmp_path: Path, acting: str) -> None:
    names = ("pack/model.py", "pack/a.py", "pack/b.py", "pack/deep/__init__.py")
    files = {**dict(zip(names, ACTING[acting], strict=True)), "pack/__init__.py": ""}
    files["pack/deep/c.py"] = "SIGN = 1\n"
    changed = {name: text.replace("7", "9") for name, text in files.items()}
    before = digest(tmp_path / "1", files, "pack/model.py")
    assert digest(tmp_path / "2", changed, "pack/model.py") != before
    commented = {name: "# seen\n" + text for name, text in files.items()}
    assert digest(tmp_path / "3", commented, "pack/model.py") == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("KNOWN.append(1)\n", "SCALE = len(KNOWN)\n"),
        ("SCALE = 1\n", "SCALE = 2\n"),
        ("KNOWN.append(1)\n", "KNOWN.clear()\n"),
        ("from math import pi as SCALE\n", "SCALE = 2\n"),
    ],
)
def test_the_order_of_what_is_done_at_import_counts(
    tmp_path: Path, first: str, second: str
) -> None:
    head = "KNOWN = [2]\nSCALE = 0\n"
    model = "\nclass Model:\n    x = KNOWN, SCALE\n"
    files = ({"model.py": head + both + model} for both in (first + second, second + first))
    one, other = (digest(tmp_path / str(i), f, "model.py") for i, f in enumerate(files))
    assert one != other


def test_a_deep_expression_is_read(tmp_path: Path) -> None:
    text = "class Model:\n    x = " + " + ".join(["1"] * 900)
    one, other = (digest(tmp_path / end, {"m.py": text + end}, "m.py") for end in ("", " + 2"))
    assert one != other


@pytest.mark.parametrize("line", ["import helper", "from helper import f", "import helper.deep"])
def test_what_lies_beside_a_file_given_by_path_counts(tmp_path: Path, line: str) -> None:
    call = "f(1)" if "from" in line else "helper.f(1)"
    model = f"{line}\n\nclass Model:\n    x = {call}\n"
    is_package = "deep" in line
    helper = "helper/__init__.py" if is_package else "helper.py"
    files = {"model.py": model, helper: "def f(x): return x\n", "helper/deep.py": ""}
    changed = edited(files, helper, "return x", "return -x")
    one, other = (written(tmp_path / n, f) / "model.py" for n, f in (("1", files), ("2", changed)))
    assert source_digest(one, "Model", beside=True) != source_digest(other, "Model", beside=True)
    assert source_digest(one, "Model") == source_digest(other, "Model"), "else it is a library's"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of engine and plug-ins in another place."""
    place = tmp_path_factory.mktemp("elsewhere")
    ignored = shutil.ignore_patterns("__pycache__")
    beside = (ENGINE.parent / name for name in FOLDERS if not (ENGINE / name).is_dir())
    for folder in (ENGINE, *beside):
        shutil.copytree(folder, place / folder.name, ignore=ignored)
    return place


def test_no_plugins_digest_depends_on_where_the_checkout_lies(elsewhere: Path) -> None:
    plugins = [plugin for known in load_registry().plugins.values() for plugin in known.values()]
    for plugin in plugins:
        if plugin.origin == "built in" and plugin.kind != "protocol":
            file = elsewhere / plugin.file.relative_to(ENGINE.parent)
            assert source_digest(file, plugin.value.__qualname__) == plugin.digest(), plugin.name


def traced(parts: tuple[Any, ...], root: Path = ENGINE) -> Trace:
    plain = [inspect.unwrap(part) for part in parts]
    files = [root / Path(inspect.getfile(part)).relative_to(ENGINE) for part in plain]
    return trace([(file, part.__qualname__) for file, part in zip(files, plain, strict=True)])


def modules(found: Trace) -> set[str]:
    return {str(file.relative_to(ENGINE).with_suffix("")) for file in found.files}


TRAINING, GIVEN = Trained.roots, Given.roots
TAKING = (*RUN, Given.make)
DECIDING = {
    *("backbone", "data/pixels", "method", "protocol", "representation"),
    *("running/sessions", "seeding"),
    *(f"training/{name}" for name in ("augment", "compute", "loop", "weights")),
}


def test_the_engines_digest_covers_what_a_run_calls_and_no_more() -> None:
    for name in NOT_FOLLOWED:
        place = ENGINE.joinpath(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name
    assert modules(traced(TRAINING)) == DECIDING
    assert modules(traced(GIVEN)) <= DECIDING | {"training/given"}
    later = {"data/reader", "metrics", "running/runner", "running/workbench", "spec"}
    later |= {"training/features"}
    running = DECIDING - {"representation", "training/weights"} | later
    assert modules(traced(RUN)) == running
    makers: dict[Any, set[str]] = {
        Trained: set(),
        Given: {"given"},
        Released: {"networks"},
        FromFile: {"given"},
    }
    for origin, own in makers.items():
        found = modules(traced((*RUN, origin.make))) - DECIDING
        assert found == later | {"running/origins", *(f"training/{name}" for name in own)}
    both = {"episodes/draws", "episodes/run", "metrics", "protocol", "running/runner", "seeding"}
    assert modules(traced(EPISODES)) == both, "beside what a run calls, on which they stand"


@pytest.mark.parametrize(
    ("file", "old", "new", "moved"),
    [
        ("training/augment.py", "Return", "Give back", ()),
        ("training/compute.py", "torch.bfloat16", "torch.float16", (TRAINING, RUN, TAKING)),
        ("seeding.py", "[:8]", "[:7]", (TRAINING, RUN, TAKING)),
        ("running/runner.py", "argmax(axis=1)", "argmin(axis=1)", (RUN, TAKING)),
        ("running/workbench.py", '"plain", "plain"', '"rot90", "plain"', (RUN, TAKING)),
        ("running/pseudo.py", '"pseudo test images"', '"pseudo"', ()),
        ("running/origins.py", "base network from a file", "network", ()),
        ("running/origins.py", "train.labels[base]),", "train.labels),", (TAKING,)),
        ("training/features.py", ".flip(2)", ".flip(1)", (RUN, TAKING)),
        ("training/given.py", "classes / 2", "classes / 3", (GIVEN, TAKING)),
        ("running/costs.py", "peak_memory()", "0", ()),
        ("running/workbench.py", '"method", spec.method, ', '"method", ', (RUN, TAKING)),
        ("errors.py", "did you mean", "perhaps", ()),
    ],
)
def test_an_edit_of_the_engine(elsewhere: Path, file: str, old: str, new: str, moved: Any) -> None:
    path = elsewhere / "fscil_bench" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        for parts in (TRAINING, GIVEN, RUN, TAKING):
            same = traced(parts, elsewhere / "fscil_bench").digest == engine_digest(*parts)
            assert same == (parts not in moved)
    finally:
        path.write_text(text)


def test_a_plugin_that_is_loaded_keeps_its_digest(tmp_path: Path) -> None:
    file = written(tmp_path, FILES) / HERE
    plugin = Plugin("method", "model", type("Model", (), {}), file, "built in")
    before = plugin.digest()
    file.write_text(MODEL.replace("BETA = 0.5", "BETA = 0.4"))
    assert plugin.digest() == before != source_digest(file, "Model")
    with pytest.raises(UsageError, match=r"model\.py: defines no 'Missing'"):
        source_digest(file, "Missing")

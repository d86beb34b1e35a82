"""What moves the digest of a plug-in or of the engine, and what does not."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path

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
from fscil_bench.running.workbench import GIVEN, RUN, TRAINING

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


HERE = "pack/family/model.py"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (HERE, '"""What it is."""', '"""What it was."""'),
        (HERE, '    """What it is."""\n', ""),
        (HERE, "LOW, HIGH = 0, 1", "LOW, HIGH = 0, 1  # bounds"),
        (HERE, 'TABLE["a"] + LOW', "(TABLE[\n            'a'\n        ]) + LOW"),
        (HERE, "scores(self, x, scale=16):", "scores(self, x: float, scale: int = 16) -> float:"),
        (HERE, "BETA = 0.5", "BETA: float = 0.5"),
        (HERE, "steps: int = 8", "steps: float = 8"),
        (
            HERE,
            "import math\nfrom dataclasses import dataclass\n",
            "from dataclasses import dataclass\nimport math\n",
        ),
        (
            HERE,
            "from . import tools\n",
            "if 0:\n    from .elsewhere import nothing\nfrom . import tools\n",
        ),
        (
            HERE,
            "        from .late import later\n\n        return math.sqrt",
            "        from math import sqrt\n        from .late import later\n\n        return sqrt",
        ),
        (HERE, "import math\n", "import math\nimport math\nimport math.nothing\n"),
        (HERE, 'f"no {x}"', '"no number"'),
        (HERE, "class Other:\n    scale = 16", "class Other:\n    scale = 8"),
        (
            "pack/family/tools.py",
            "def unused(x):\n    return x",
            "def unused(x):\n    return 2 * x",
        ),
        ("pack/shared/maths.py", "def power", '"""Powers."""\n\n\ndef power'),
    ],
    ids=[
        "docstring edited",
        "docstring removed",
        "comment",
        "formatting",
        "annotations of a function",
        "annotation of a variable",
        "annotation of a field",
        "order of imports",
        "an import that nothing uses",
        "a library's function by its bare name",
        "an import repeated",
        "text of an error",
        "another class of the file",
        "another function of a helper",
        "docstring of a helper",
    ],
)
def test_how_it_is_written_keeps_the_digest(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert digest(tmp_path / "b", edited(FILES, file, old, new)) == digest(tmp_path / "a", FILES)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (HERE, "scale=16):", "scale=8):"),
        (HERE, "* SIGN +", "* SIGN -"),
        (HERE, "@twice(2)", "@twice(3)"),
        (HERE, "    @twice(2)\n", ""),
        (HERE, "BETA = 0.5", "BETA = 0.4"),
        (HERE, "BETA += 1", "BETA += 2"),
        (HERE, 'TABLE["a"] = 1', 'TABLE["a"] = 2'),
        (HERE, 'TABLE["a"] = 1', 'TABLE["a"] = 1\nTABLE.update(a=2)'),
        (HERE, "LOW, HIGH = 0, 1", "LOW, HIGH = 1, 1"),
        (HERE, "+ LOW -", "+ HIGH -"),
        (HERE, "math.pi > 3", "math.pi > 4"),
        (HERE, "SIGN = -1", "SIGN = -2"),
        (HERE, "class Model(Base)", "class Model"),
        (HERE, "offset = 3", "offset = 4"),
        (HERE, "steps: int = 8", "steps: ClassVar[int] = 8"),
        (HERE, "math.sqrt", "math.exp"),
        (HERE, "import math\n", "import cmath as math\n"),
        ("pack/family/tools.py", "STEP = 2", "STEP = 3"),
        ("pack/family/tools.py", "def starred(x):\n    return x", "def starred(x):\n    return -x"),
        ("pack/family/late.py", "return x", "return -x"),
        ("pack/shared/maths.py", "x ** beta", "x * beta"),
        ("pack/shared/constants.py", "ROOT = 4", "ROOT = 5"),
    ],
    ids=[
        "default",
        "operator",
        "argument of a decorator",
        "decorator",
        "constant",
        "augmented assignment",
        "item",
        "call at import",
        "tuple",
        "another name of the tuple",
        "condition",
        "branch",
        "base class",
        "inherited",
        "field or not",
        "attribute of a library",
        "library under the same name",
        "constant of a sibling",
        "star import",
        "import in a function",
        "helper behind a package's re-export",
        "constant two imports away",
    ],
)
def test_what_it_does_moves_the_digest(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert digest(tmp_path / "b", edited(FILES, file, old, new)) != digest(tmp_path / "a", FILES)


def test_a_helper_may_move_to_another_file_or_package(tmp_path: Path) -> None:
    same_package = {**FILES, "pack/shared/numbers.py": FILES["pack/shared/constants.py"]}
    same_package |= edited(FILES, "pack/shared/maths.py", ".constants", ".numbers") | {
        "pack/shared/numbers.py": FILES["pack/shared/constants.py"]
    }
    del same_package["pack/shared/constants.py"]
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
    renamed = {**exchanged, "model.py": model.replace(".a ", ".c ").replace(".b ", ".a ")}
    renamed["model.py"] = renamed["model.py"].replace(".c ", ".b ")
    before = digest(tmp_path / "1", files, "model.py")
    assert digest(tmp_path / "2", exchanged, "model.py") != before
    assert digest(tmp_path / "3", renamed, "model.py") == before, "both the files and the imports"


def test_definitions_that_refer_to_one_another_are_followed_once(tmp_path: Path) -> None:
    files = {
        "model.py": "from .a import even\n\nclass Model:\n    x = even(4)\n",
        "a.py": "from . import b\n\ndef even(n): return n == 0 or b.odd(n - 1)\n",
        "b.py": "from . import a\n\ndef odd(n): return n != 0 and a.even(n - 1)\n",
    }
    before = digest(tmp_path / "1", files, "model.py")
    assert digest(tmp_path / "2", edited(files, "b.py", "n - 1", "n - 2"), "model.py") != before


@pytest.mark.parametrize("branch", ["a", "b"])
def test_both_branches_of_a_conditional_import_count(tmp_path: Path, branch: str) -> None:
    files = {
        "model.py": "try:\n    from .a import f\nexcept ImportError:\n    from .b import f\n\n"
        "class Model:\n    x = f(1)\n",
        "a.py": "def f(x): return x\n",
        "b.py": "def f(x): return x\n",
    }
    changed = edited(files, f"{branch}.py", "return x", "return -x")
    before = digest(tmp_path / "1", files, "model.py")
    assert digest(tmp_path / "2", changed, "model.py") != before


def test_an_import_in_one_method_hides_nothing_from_another(tmp_path: Path) -> None:
    files = {
        "model.py": "from .a import f\n\nclass Model:\n    def g(self):\n"
        "        from .b import f\n        return f(1)\n    def h(self):\n        return f(1)\n",
        "a.py": "def f(x): return x\n",
        "b.py": "def f(x): return x\n",
    }
    changed = edited(files, "a.py", "return x", "return -x")
    assert digest(tmp_path / "1", files, "model.py") != digest(tmp_path / "2", changed, "model.py")


def test_a_module_that_is_handed_on_counts_as_a_whole(tmp_path: Path) -> None:
    files = {
        "model.py": "from . import a\n\nclass Model:\n    x = getattr(a, 'g')\n",
        "a.py": "def f(x): return x\n\ndef g(x): return x\n",
    }
    changed = edited(files, "a.py", "def g(x): return x", "def g(x): return -x")
    assert digest(tmp_path / "1", files, "model.py") != digest(tmp_path / "2", changed, "model.py")


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


def test_a_package_is_followed_by_its_full_name(tmp_path: Path) -> None:
    absolute = edited(FILES, HERE, "from ..shared import", "from pack.shared import")
    before = digest(tmp_path / "a", FILES)
    assert digest(tmp_path / "b", absolute) == before
    changed = edited(absolute, "pack/shared/constants.py", "4", "5")
    assert digest(tmp_path / "c", changed) != before


def test_what_a_file_does_not_define_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"model\.py: defines no 'Missing'"):
        source_digest(written(tmp_path, FILES) / HERE, "Missing")


PLUGINS = [
    plugin
    for known in load_registry().plugins.values()
    for plugin in known.values()
    if plugin.origin == "built in" and plugin.kind != "protocol"
]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of engine and plug-ins in another place."""
    place = tmp_path_factory.mktemp("elsewhere")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in (ENGINE, *(ENGINE.parent / name for name in FOLDERS)):
        shutil.copytree(folder, place / folder.name, ignore=ignored)
    return place


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: f"{p.kind}-{p.name}")
def test_no_plugins_digest_depends_on_where_the_checkout_lies(
    plugin: Plugin, elsewhere: Path
) -> None:
    file = elsewhere / plugin.file.relative_to(ENGINE.parent)
    assert source_digest(file, plugin.value.__qualname__) == plugin.digest()


def traced(parts: tuple[object, ...], root: Path = ENGINE) -> Trace:
    found = []
    for part in parts:
        plain = inspect.unwrap(part)  # type: ignore[arg-type]
        file = Path(inspect.getfile(plain)).relative_to(ENGINE)  # type: ignore[arg-type]
        found.append((root / file, plain.__qualname__))  # type: ignore[attr-defined]
    return trace(found)


def modules(found: Trace) -> set[str]:
    return {str(file.relative_to(ENGINE).with_suffix("")) for file in found.files}


DECIDING = {
    "data/pixels",
    "method",
    "protocol",
    "representation",
    "running/sessions",
    "seeding",
    "training/augment",
    "training/backbones",
    "training/compute",
    "training/loop",
    "training/weights",
}


def test_the_engines_digest_covers_what_a_run_calls_and_no_more() -> None:
    assert modules(traced(TRAINING)) == DECIDING
    assert modules(traced(GIVEN)) <= DECIDING | {"training/given"}
    later = {
        "data/reader",
        "metrics",
        "running/runner",
        "running/workbench",
        "spec",
        "training/features",
        "training/given",
    }
    assert modules(traced(RUN)) == DECIDING | later
    both = {"episodes/draws", "episodes/run", "metrics", "protocol", "running/runner", "seeding"}
    assert modules(traced(EPISODES)) == both, "beside what a run calls, on which they stand"


@pytest.mark.parametrize(
    ("file", "old", "new", "moved"),
    [
        ("training/augment.py", "Return", "Give back", ()),
        ("training/compute.py", "torch.bfloat16", "torch.float16", (TRAINING, RUN)),
        ("seeding.py", "[:8]", "[:7]", (TRAINING, RUN)),
        ("running/runner.py", "argmax(axis=1)", "argmin(axis=1)", (RUN,)),
        ("running/runner.py", "that are not finite", "which are not finite", ()),
        ("running/workbench.py", '"plain", "plain"', '"rot90", "plain"', (RUN,)),
        ("running/pseudo.py", '"pseudo test images"', '"pseudo"', ()),
        ("training/features.py", ".flip(2)", ".flip(1)", (RUN,)),
        ("training/given.py", "classes / 2", "classes / 3", (GIVEN, RUN)),
        ("running/workbench.py", "peak_memory()", "0", ()),
        (
            "running/workbench.py",
            '"method", spec.method, spec.split',
            '"method", spec.split',
            (RUN,),
        ),
        ("store/tensors.py", "import", "import abc\nimport", ()),
        ("errors.py", "did you mean", "perhaps", ()),
    ],
)
def test_an_edit_of_the_engine(
    elsewhere: Path, file: str, old: str, new: str, moved: tuple[object, ...]
) -> None:
    path = elsewhere / "fscil_bench" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        for parts in (TRAINING, GIVEN, RUN):
            same = traced(parts, elsewhere / "fscil_bench").digest == engine_digest(*parts)
            assert same == (parts not in moved)
    finally:
        path.write_text(text)


def test_what_is_not_followed_exists() -> None:
    for name in NOT_FOLLOWED:
        place = ENGINE.joinpath(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_a_plugin_that_is_loaded_keeps_its_digest(tmp_path: Path) -> None:
    file = written(tmp_path, FILES) / HERE
    plugin = Plugin("method", "model", type("Model", (), {}), file, "built in")
    before = plugin.digest()
    file.write_text(MODEL.replace("BETA = 0.5", "BETA = 0.4"))
    assert plugin.digest() == before != source_digest(file, "Model")

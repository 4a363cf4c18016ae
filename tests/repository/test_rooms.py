"""The rooms of the package: who may import whom, no circles, a name means one thing, a model loads little."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tfbook.course.lessons import LESSONS

ROOT = Path(__file__).parents[2]
ALLOWED: dict[str, set[str]] = {  # what a room may import besides itself
    "checks": set(),
    "console": set(),
    "files": set(),
    "modes": set(),
    "parts": set(),
    "plot": set(),
    "runtime": {"checks"},
    "text": {"checks", "files"},
    "attention": {"checks", "parts"},
    "models": {"attention", "text", "checks", "parts", "modes"},
    "parallel": {"models", "attention", "checks", "files", "training"},
    "training": {"runtime", "files", "checks", "text", "attention", "modes", "parts"},
    "generation": {"models", "attention", "text", "checks", "parts", "runtime", "modes"},
    "data": {"text", "files", "checks", "console"},
    "interop": {"models", "attention", "text", "data"},
}
ALLOWED["pretrain"] = set(ALLOWED)
ALLOWED["course"] = set(ALLOWED)
ALLOWED["lessons"] = set(ALLOWED)
ALLOWED["page"] = {"attention", "models", "text", "data", "pretrain", "training", "files", "console", "parts"}
ALLOWED["__main__"] = {"course", "console", "page"}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_bytes())
    for path in (ROOT / "tfbook").rglob("*.py")
}
FOLDERS = {lesson.slug: lesson.number for lesson in LESSONS if lesson.written}
OWN = ("figures", "schematics", "claims", "answers")  # files of a lesson that no other lesson may import


def run_time(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, those inside functions included, but not what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_time(child)


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of tfbook that a module imports, by their full names."""
    for node in run_time(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


IMPORTS = {name: set(imported(tree)) for name, tree in MODULES.items()}


def room(module: str) -> str:
    """The room of a module: "models" for "tfbook.models.gpt"; empty for tfbook itself."""
    return [*module.split("."), ""][1]


def test_every_room_is_known() -> None:
    assert {room(name) for name in MODULES} - {""} == set(ALLOWED)
    assert IMPORTS["tfbook"] == set()


def test_imports_go_along_the_arrows() -> None:
    wrong = [
        f"{importer} → {name}"
        for importer, names in IMPORTS.items()
        for name in names
        if room(name) not in ALLOWED.get(room(importer), set()) | {room(importer)}
    ]
    assert sorted(wrong) == []


def test_every_written_lesson_has_a_folder_named_by_its_slug() -> None:
    folders = {name.split(".")[2] for name in MODULES if name.startswith("tfbook.lessons.")}
    assert folders == FOLDERS.keys()
    for slug in folders:
        files = {name.split(".")[3] for name in MODULES if name.startswith(f"tfbook.lessons.{slug}.")}
        assert {"exercises", "study", "figures", "claims"} <= files, slug


def test_files_of_lessons_are_short() -> None:
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "tfbook/lessons").rglob("*.py")}
    assert {path.name: count for path, count in lines.items() if count > 450} == {}


def wrong_arrow(importer: str, name: str) -> bool:
    """Whether a lesson's module imports one of a later lesson, or another lesson's figures, claims or answers."""
    (own, _), (other, file) = (module.split(".")[2:4] for module in (importer, name))
    return own != other and (FOLDERS[other] > FOLDERS[own] or file in OWN)


def test_no_lesson_imports_a_later_one_nor_anothers_figures_or_claims() -> None:
    arrows = [
        (importer, name)
        for importer, names in IMPORTS.items()
        for name in names
        if importer.count(".") == name.count(".") == 3 and room(importer) == room(name) == "lessons"
    ]
    assert len(arrows) > 30, "otherwise there is nothing to judge"
    assert [arrow for arrow in arrows if wrong_arrow(*arrow)] == []
    assert wrong_arrow("tfbook.lessons.decoding.study", "tfbook.lessons.bert_masking.study")
    assert wrong_arrow("tfbook.lessons.decoding.study", "tfbook.lessons.transformer.figures")
    assert not wrong_arrow("tfbook.lessons.decoding.study", "tfbook.lessons.transformer.study")


def test_no_module_imports_itself_by_a_detour() -> None:
    """Importing in functions counts; graphlib raises a CycleError that names the modules of a circle."""
    order = list(TopologicalSorter(IMPORTS).static_order())
    assert set(order) == set(MODULES)


def test_imports_are_seen_wherever_they_stand() -> None:
    """Otherwise the tests above would pass by having nothing to judge."""
    source = "import tfbook.runtime\ndef f():\n    from tfbook.plot import house, lines\n"
    source += "if TYPE_CHECKING:\n    import tfbook.data"
    assert sorted(imported(ast.parse(source))) == ["tfbook.plot", "tfbook.plot.house", "tfbook.runtime"]
    assert "tfbook.models.blocks" in IMPORTS["tfbook.models.gpt"]


def test_a_public_name_means_one_thing() -> None:
    """Functions and classes of all rooms; the lessons and the learner's own file may have names of their own."""
    homes = defaultdict(list)
    for name, tree in MODULES.items():
        for node in tree.body if room(name) != "lessons" and name != "tfbook.course.my_gpt" else []:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_a_model_loads_little() -> None:
    """`import tfbook.models.gpt` in a fresh interpreter: models, their parts, and at most 20 modules."""
    code = "import sys, tfbook.models.gpt; print(*(name for name in sys.modules if name.partition('.')[0] == 'tfbook'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert {room(name) for name in loaded} <= {"", "models", *ALLOWED["models"]}
    assert len(loaded) <= 20, sorted(loaded)

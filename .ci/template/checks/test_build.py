"""What sam build makes is what make build makes, and both are what Lambda takes.

Everything is built in copies of the tree, without .git and without what was built before, at two places: so the paths
must not show in the result, and nobody's edits get in between.
"""

import hashlib
import itertools
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path

from samcli.lib.package.utils import make_zip_with_lambda_permissions, zip_folder

from checks import commands, template

BUDGETS = {"dispatch": 8_000_000, "migrate": 6_000_000}  # bytes, zipped
FILES = {"dispatch": {"bootstrap": 0o755, "routes.yaml": 0o644}, "migrate": {"bootstrap": 0o755}}


def copy_tree(to):
    ignored = {line.strip("/") for line in (template.ROOT / ".gitignore").read_text().splitlines() if line.startswith("/")}

    def skip(folder, names):
        return (ignored | {".git"}) & set(names) if Path(folder) == template.ROOT else set()

    shutil.copytree(template.ROOT, to, ignore=skip)
    return to


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listing(archive):
    """Names and permissions in a zip."""
    with zipfile.ZipFile(archive) as z:
        return {i.filename: (i.external_attr >> 16) & 0o777 for i in z.infolist()}


class BuildTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.first = copy_tree(Path(cls.folder.name) / "first")
        cls.second = Path(cls.folder.name) / "a" / "second" / "place"
        shutil.copytree(cls.first, cls.second)
        cls.command(["make", "build"], cls.first)
        cls.command(["make", "build"], cls.second)
        shutil.rmtree(cls.second / "dist" / "dispatch")  # sam build must not find anything to copy
        shutil.rmtree(cls.second / "dist" / "migrate")
        cls.command([*commands.SAM, "build"], cls.second)
        cls.command([*commands.SAM, "build", "--build-in-source", "--build-dir", ".aws-sam/in-source"], cls.second)
        cls.sam = cls.second / ".aws-sam" / "build"

    @classmethod
    def command(cls, command, folder):
        code, out = commands.run(command, folder)
        if code != 0:
            raise AssertionError(f"{' '.join(command)} failed with {code}:\n{out}")

    def test_sam_builds_what_make_builds(self):
        for place, (name, files) in itertools.product(["build", "in-source"], FILES.items()):
            built = self.sam.parent / place / name.capitalize()
            self.assertEqual({str(p.relative_to(built)) for p in built.rglob("*")}, set(files), f"{place}: {name}")
            for file, mode in files.items():
                with self.subTest(f"{place}: {name}: {file}"):
                    self.assertEqual(digest(built / file), digest(self.first / "dist" / name / file))
                    self.assertEqual((built / file).stat().st_mode & 0o777, mode)

    def test_sam_uploads_the_files_at_the_root_with_their_modes(self):
        for name, files in FILES.items():
            with zip_folder(str(self.sam / name.capitalize()), make_zip_with_lambda_permissions) as (archive, _):
                self.assertEqual(listing(archive), files, name)

    def test_two_builds_make_the_same_archives(self):
        for name in FILES:
            archive = f"dist/{name}.zip"
            self.assertEqual(digest(self.first / archive), digest(self.second / archive), archive)

    def test_archives_hold_the_files_at_the_root_with_their_modes(self):
        for name, files in FILES.items():
            self.assertEqual(listing(self.first / "dist" / f"{name}.zip"), files, name)

    def test_the_program_is_for_arm64(self):
        for name in FILES:
            with zipfile.ZipFile(self.first / "dist" / f"{name}.zip") as archive, archive.open("bootstrap") as program:
                header = program.read(20)
            self.assertEqual(header[:6], b"\x7fELF\x02\x01", f"{name}: 64 bits, little endian")
            self.assertEqual(int.from_bytes(header[18:20], "little"), 183, f"{name}: AArch64")

    def test_archives_keep_their_budgets(self):
        for name, most in BUDGETS.items():
            self.assertLessEqual((self.first / "dist" / f"{name}.zip").stat().st_size, most, name)

    def test_the_built_template_is_the_one_that_was_checked(self):
        # sam build writes it anew; only where the code lies may differ.
        built = template.yaml_parse((self.sam / "template.yaml").read_text())
        want = template.yaml_parse((self.first / "template.yaml").read_text())
        for name in ("Dispatch", "Migrate"):
            self.assertEqual(built["Resources"][name]["Properties"].pop("CodeUri"), name)
            built["Resources"][name]["Metadata"] = want["Resources"][name]["Metadata"]
        del want["Globals"]["Function"]["CodeUri"]
        built["Globals"]["Function"].pop("CodeUri", None)
        self.assertEqual(built, want)

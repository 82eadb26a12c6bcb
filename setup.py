"""Which modules are compiled: every one whose first lines carry a ``# cython:`` directive.

The extensions are optional. Without a compiler or Python's headers the install succeeds, and the very same
``.py`` files, which stay in the wheel beside their ``.so``, run as ordinary Python.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
DIRECTIVE = "# cython: "
FIRST_LINES = 20


def compiled_modules() -> list[Path]:
    return [
        path
        for path in sorted((SOURCE / "mqpcap").rglob("*.py"))
        if any(line.startswith(DIRECTIVE) for line in path.read_text(encoding="utf-8").splitlines()[:FIRST_LINES])
    ]


def extensions() -> list[Extension]:
    found = [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [path.as_posix()],
            extra_compile_args=[] if sys.platform == "win32" else ["-O2", "-g0"],
        )
        for path in compiled_modules()
    ]
    if not found:
        return []
    from Cython.Build import cythonize

    made = list(cythonize(found, build_dir="build/cython", language_level=3))
    for extension in made:
        extension.optional = True  # cythonize makes new objects and forgets this one
    return made


class FreshBuild(build):
    """Builds from nothing, so that no module of an earlier build is shipped."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class ParallelBuild(build_ext):
    """Compiles as many modules at a time as there are cores."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()


setup(ext_modules=extensions(), cmdclass={"build": FreshBuild, "build_ext": ParallelBuild})

"""The compiled backend's library, built for these tests where there is a C compiler."""

import shutil

import pytest

from gpam.attention.backends import calibration
from gpam.attention.backends.compiled import library


@pytest.fixture(scope="session", autouse=True)
def compiled_library(tmp_path_factory):
    """The library, or None where there is no compiler."""
    built = tmp_path_factory.mktemp("library") / "attention.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "path", lambda: built)
        said = library.build()
        compilers = [name for name in library.c_library.COMPILERS if shutil.which(name)]
        assert (library.load() is not None) == bool(compilers), said
        patch.setattr(calibration, "path", lambda: built.with_name("backends.json"))  # never measured
        calibration._of_this_process.cache_clear()
        yield library.load()
    calibration._of_this_process.cache_clear()
    library.load.cache_clear()

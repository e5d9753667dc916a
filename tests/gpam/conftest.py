"""The compiled backend's library, built for these tests where there is a C compiler."""

import shutil

import pytest

from gpam.attention.backends.compiled import library


@pytest.fixture(scope="session", autouse=True)
def compiled_library(tmp_path_factory):
    """The library, or None where there is no compiler."""
    built = tmp_path_factory.mktemp("library") / "attention.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "path", lambda: built)
        said = library.build()
        compilers = [name for name in library._COMPILERS if shutil.which(name)]
        assert (library.load() is not None) == bool(compilers), said
        yield library.load()
    library.load.cache_clear()

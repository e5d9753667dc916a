"""The processor's name."""

import builtins
import io
import platform

import pytest

from gpam import processor

PYTHON_SAYS = platform.processor() or platform.machine()
TWO_CORES = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n"
    "processor\t: 1\nmodel name\t: another\n"
)


@pytest.mark.parametrize(
    "said, want",
    [
        (TWO_CORES, "AMD EPYC (family 25, model 17)"),
        (TWO_CORES.replace("model name", "some name"), f"{PYTHON_SAYS} (family 25, model 17)"),
        ("processor\t: 0\nmodel name\t: ARMv8\n", "ARMv8"),
        (None, PYTHON_SAYS),
    ],
)
def test_it_is_named_with_its_generation(monkeypatch, said, want):
    def opened(name, *rest, **more):
        assert name == "/proc/cpuinfo"
        if said is None:
            raise FileNotFoundError(name)
        return io.StringIO(said)

    monkeypatch.setattr(builtins, "open", opened)
    assert processor.name() == want

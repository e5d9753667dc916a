"""Write docs/mechanisms.md from the registry and the benchmark."""

from gpam_suite.common.files import write_atomically
from gpam_suite.tools.catalogue import PAGE, catalogue

if __name__ == "__main__":
    print(write_atomically(PAGE, catalogue()))

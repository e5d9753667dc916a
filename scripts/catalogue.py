"""Write docs/mechanisms.md from the registry and the benchmark."""

from gpam_suite.tools.catalogue import write_catalogue

if __name__ == "__main__":
    print(write_catalogue())

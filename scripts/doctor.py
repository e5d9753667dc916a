"""Print what is installed, what this machine has, and what would run here."""

from gpam_suite.tools.doctor import lines

if __name__ == "__main__":
    print("\n".join(lines()))

"""``python -m gpam.attention.backends.compiled`` builds the library."""

from gpam.attention.backends.compiled.library import build

print(build())

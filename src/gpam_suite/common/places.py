"""Where this project's files lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / "configs"
PUBLISHED = ROOT / "results"

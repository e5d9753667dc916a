"""Everything that is read, and how often."""

from fuzzing import of_archives, of_configs, of_models, of_records, of_text
from fuzzing.target import Target

TARGETS: tuple[Target, ...] = (
    *of_text.TARGETS,
    *of_archives.TARGETS,
    *of_records.TARGETS,
    *of_models.TARGETS,
    *of_configs.TARGETS,
)

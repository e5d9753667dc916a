"""The schema of ``record.json``: what one run writes down about itself.

Everything a table, a figure or a reader needs is in the record; nothing is looked up elsewhere later. A field that is
not known is null, never left out, so that a reader sees that it was not measured.
"""

from typing import Any

from gpam_suite.common.strict_json import KEY
from gpam_suite.common.tasks import TASKS, Task

SCHEMA_VERSION = 1
PARAMETERS = ("total", "embedding", "attention", "mechanism", "other")
"""A model's parameters by part."""

_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1}
_LABEL = {**_NAME, "format": "text without control characters"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 0}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_ISO_8601 = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$",
}


def _map_of(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **more}


def _finished(task: Task) -> dict[str, Any]:
    """A finished run of ``task`` has no reason for failing, its headline number, and the protocol that number needs."""
    return {
        "if": {"properties": {"status": {"const": "finished"}, "task": {"const": task.name}}},
        "then": {
            "properties": {
                "metrics": {"required": [task.headline], "properties": {task.headline: {"type": "number"}}},
                "protocol": {"required": list(task.protocol)},
            }
        },
    }


_ADDED_LATER: dict[str, Any] = {
    "checksums": _map_of(_NAME, description="SHA-256 of the evaluated checkpoint, its scores, dictionaries and codes"),
    "gradient_norms": _map_of(_NUMBER_OR_NULL, description="map/module to the median of its norm over the history"),
    "learned_scalars": _map_of(_NUMBER_OR_NULL, description="name/module to a learned lambda's last value"),
    KEY: {"type": "string", "description": "SHA-256 of the rest of the record"},
}
"""Fields that records of earlier runs lack."""

_PROPERTIES: dict[str, Any] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "status": {"enum": ["finished", "failed", "diverged"]},
    "reason": {**_TEXT_OR_NULL, "description": "why the run failed or diverged; null when it finished"},
    "experiment": _LABEL,
    "model": {**_LABEL, "description": "name of the model config, e.g. dagpam"},
    "model_label": {**_LABEL, "description": "what tables and figures print, e.g. daGPAM"},
    "options": {"type": "object", "description": "the model group's options, defaults included"},
    "overrides_label": {
        **_LABEL,
        "description": "the options part of the folder's name; 'default' if none was changed",
    },
    "dataset": _LABEL,
    "dataset_label": _LABEL,
    "task": {"enum": sorted(TASKS)},
    "recipe": _LABEL,
    "seed": {"type": "integer"},
    "gpu": {**_LABEL, "description": "name of the gpu config, e.g. cpu or multi4"},
    "world_size": {"type": "integer", "minimum": 1},
    "metrics": _map_of(
        {**_NUMBER_OR_NULL, "minimum": 0},
        description="perplexities by protocol.unit, losses in nats, the others in percent",
    ),
    "protocol": {"type": "object", "description": "everything two numbers must share to be comparable"},
    "parameters": _map_of(
        _COUNT_OR_NULL,
        required=list(PARAMETERS),
        description="parameters by part; mechanism counts what the mechanism adds to softmax attention",
    ),
    "flops": {"oneOf": [{"type": "null"}, _map_of(_NUMBER_OR_NULL, required=["train_per_token"])]},
    "speed": _map_of(_NUMBER_OR_NULL, required=["train_tokens_per_second", "train_seconds", "evaluate_seconds"]),
    "memory": _map_of(_COUNT_OR_NULL, required=["peak_bytes"]),
    "data": {
        "type": "object",
        "required": ["checksum", "name", "counts"],
        "properties": {
            "checksum": _NAME,
            "name": _NAME,
            "counts": _map_of(_COUNT_OR_NULL),
            "left_out": {**_COUNT, "description": "training pairs that are too long"},
            "begins_from": _map_of(
                _NAME, description="option to the SHA-256 of a file that first parameters come from"
            ),
        },
    },
    "attention_modules": _map_of(_TEXT, description="module path to class name, every attention module built"),
    "versions": _map_of(_TEXT_OR_NULL),
    "git": {
        "oneOf": [
            {"type": "null"},
            {
                "type": "object",
                "additionalProperties": False,
                "required": ["commit", "dirty"],
                "properties": {"commit": _NAME, "dirty": {"type": "boolean"}},
            },
        ]
    },
    "hardware": _map_of(
        _SCALAR,
        description="what it ran on: processor, cores, memory_bytes, gpu, gpus, and what the fast step made use of",
    ),
    "command": _NAME,
    "started": _ISO_8601,
    "finished": {**_ISO_8601, "description": "when the record was written, whatever the status"},
    "updates": _COUNT,
    "config_hash": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Record of one training run",
    "type": "object",
    "additionalProperties": False,
    "required": list(_PROPERTIES),
    "properties": {**_PROPERTIES, **_ADDED_LATER},
    "allOf": [
        {
            "if": {"properties": {"status": {"const": "finished"}}},
            "then": {"properties": {"reason": {"type": "null"}}},
            "else": {"properties": {"reason": _NAME}},
        },
        *map(_finished, TASKS.values()),
    ],
}
"""JSON Schema (draft 2020-12) of a record."""

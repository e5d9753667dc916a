"""A checkpoint back into a model, with a clear word when it is cut off or belongs to another model."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from gpam.errors import UsageError, in_a_line

_NOT_OURS = "not as training wrote it; use the checkpoint that the run left"


def read_checkpoint(path: Path) -> dict[str, Any]:
    """fairseq's checkpoint, on the CPU.

    Raises:
        UsageError: it is not there, or cut off.
    """
    import gpam_fairseq.compat  # noqa: F401  (before fairseq: its loader takes plain data only)

    # isort: split
    from fairseq import checkpoint_utils

    if not path.is_file():
        raise UsageError(
            f"no checkpoint at {path}; name another with evaluation.checkpoint, or delete the run's folder and train "
            "again"
        )
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # what torch's reader and fairseq's upgrades raise for damaged bytes is no short list
        said = in_a_line(error)
        raise UsageError(f"{path} cannot be read, it seems cut off ({said}); delete it and train again") from None
    model = state.get("model")
    if not zipfile.is_zipfile(path):
        raise UsageError(f"{path} is of a format that holds no checksums; delete it and train again")
    if not isinstance(model, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in model.values()):
        raise UsageError(f"{path} cannot be read, it holds no model's parameters; delete it and train again")
    for name, tensor in model.items():
        if tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
            raise UsageError(f"{path} holds {name} as {tensor.dtype} ({tensor.layout}), {_NOT_OURS}")
    return state


def _check_own_configuration(path: Path, state: dict[str, Any], complete: DictConfig) -> None:
    """Refuse a checkpoint whose own configuration describes another model: mechanisms without parameters differ in
    nothing else."""
    own = (state.get("cfg") or {}).get("model") or {}
    for key, wanted in complete.model.items():
        if key in own and own[key] != wanted:
            raise UsageError(
                f"{path} belongs to another model: its {key} is {own[key]}, the configuration's is {wanted}; evaluate "
                "it with the configuration it was trained with"
            )


def load_model(path: Path, fairseq_config: DictConfig, task: Any) -> torch.nn.Module:
    """The model that ``fairseq_config`` describes with the parameters of the checkpoint at ``path``, for evaluation,
    on the GPU where the configuration uses one.

    Raises:
        UsageError: no such file, a spoilt file, or a checkpoint of another model or data type.
    """
    from gpam_fairseq.config import attention_and_options
    from gpam_fairseq.install import check_attention

    state = read_checkpoint(path)
    model = task.build_model(fairseq_config.model)
    wanted, found = model.state_dict(), state["model"]
    model.upgrade_state_dict(found)
    _check_own_configuration(path, state, fairseq_config)
    half = {torch.float16: fairseq_config.common.fp16, torch.bfloat16: fairseq_config.common.bf16}
    types = {torch.float32, *(dtype for dtype, used in half.items() if used)}
    for name, tensor in found.items():
        if name in wanted and wanted[name].is_floating_point() and tensor.dtype not in types:
            raise UsageError(f"{path} holds {name} as {tensor.dtype}, {_NOT_OURS}")
    differing = [name for name in wanted if name not in found or found[name].shape != wanted[name].shape]
    differing += [name for name in found if name not in wanted]
    if differing:
        raise UsageError(
            f"{path} belongs to another model: {len(differing)} parameters differ from the configuration, the first "
            f"is {differing[0]}; evaluate it with the configuration it was trained with"
        )
    model.load_state_dict(found, strict=True)
    check_attention(model, *attention_and_options(fairseq_config.model))
    uses_gpu = torch.cuda.is_available() and not fairseq_config.common.cpu
    return (model.cuda() if uses_gpu else model).eval()

"""A report in wandb that puts two models of an experiment side by side, softmax and daGPAM by default."""

from typing import Any

from gpam.errors import UsageError, in_a_line
from gpam_suite.common.tasks import TASKS

SHOWN = {
    "Training loss (bits)": "train/loss_bits",
    "Validation perplexity per token": "valid/token_perplexity",
    "Norm of the gradient": "train/gradient_norm",
}


def report(entity: str, project: str, experiment: str, models: tuple[str, str] = ("softmax", "dagpam")) -> Any:
    """The report, not saved yet: its ``save()`` makes a draft in wandb and gives its ``url``.

    Runs are found by what :class:`gpam_suite.run.tracking.Tracker` tells wandb: their group (the experiment), and the
    model among their tags.
    """
    import wandb_workspaces.reports.v2 as wandb_reports

    place = {"entity": entity, "project": project}
    found = {model: f"Metric('group') == '{experiment}' and Tags() in ['{model}']" for model in models}
    panels = [wandb_reports.LinePlot(title=title, x="update", y=[key]) for title, key in SHOWN.items()]
    bars = {task.headline: f"metrics/{task.headline}" for task in TASKS.values()}
    bars["Training tokens a second"] = "speed/train_tokens_per_second"
    panels += [wandb_reports.BarPlot(title=title, metrics=[key]) for title, key in bars.items()]
    words = (
        "Curves show every seed. Two bars that differ prove nothing alone: see the intervals in the table of the "
        "experiment."
    )
    return wandb_reports.Report(
        **place,
        title=f"{experiment}: {' and '.join(models)}",
        description="Every run is one seed. Differences, intervals and tests: make compare, make tables.",
        blocks=[
            wandb_reports.H1(text=" and ".join(models)),
            wandb_reports.P(text=words),
            wandb_reports.PanelGrid(
                runsets=[wandb_reports.Runset(**place, name=name, filters=only) for name, only in found.items()],
                panels=[*panels, wandb_reports.RunComparer(diff_only=True)],
            ),
        ],
    )


def save(path: str, experiment: str, models: tuple[str, str]) -> str:
    """Save it as a draft in ``path`` (``<entity>/<project>``) and return its address.

    Raises:
        UsageError: wandb knows no such project, or nobody is logged in.
    """
    if path.count("/") != 1 or not all(path.split("/")):
        raise UsageError(f"got '{path}', wanted <entity>/<project>")
    try:
        draft = report(*path.split("/"), experiment, models)
        draft.save(draft=True)
    except Exception as error:  # wandb raises plain Exception where nobody is logged in
        raise UsageError(
            f"wandb does not take the report: {in_a_line(error)}; make tables and make compare need no wandb"
        ) from None
    return draft.url

"""The questions of ``docs/experiment-plan.md`` and what the published records answer, by the plan's own rules."""

"""What a results folder holds of what is decoded beside the runs: the GMM-HMM, and ensembles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.config import Config, beside_rows, ensemble_keys, run_key
from hadpsgd.tracking.metrics_file import Row
from hadpsgd.tracking.results import (
    FAILED,
    SUMMARY,
    Result,
    read_if_there,
    results_folder,
    scores_of,
    sets,
    state_of,
)


@dataclass(frozen=True, kw_only=True)
class Beside(Result):
    """The GMM-HMM, or an ensemble of runs."""

    runs: tuple[str, ...] = ()
    """Ids of the runs that are decoded together; none of the GMM-HMM alone."""
    gmm: str = ""
    """Name of the GMM-HMM's row, where it is this one or one of them."""

    @property
    def members(self) -> list[str]:
        """The runs, and the GMM-HMM, by the names of their rows."""
        return [*self.runs, *filter(None, [self.gmm])]

    @property
    def together(self) -> str:
        """Of an ensemble: `runs a, b together`, `run a and gmm-sat together`."""
        runs = f"run{'s' * (len(self.runs) > 1)} {', '.join(self.runs)}"
        return f"{runs}{' and ' * bool(self.gmm)}{self.gmm} together"

    @property
    def kind(self) -> str:
        """In MLflow, as the tag of that name."""
        return "ensemble" if self.runs else "gmm"


def read_beside(config: Config, unfinished: Collection[str] = ()) -> list[Beside]:
    """The rows below the runs', as `read_result`; what ended the training of one of several runs
    ended an ensemble of it."""
    base, ensembles = results_folder(config), ensemble_keys(config)
    found = []
    for row, key in beside_rows(config).items():
        runs = config.together(row) if row in ensembles else []
        gmm = config.gmm_row if not runs or config.has_gmm(row) else ""
        folders = {run: base / "runs" / run_key(config, run) for run in runs}
        trained, failed = _ended(folders) if runs else (_gmm(base), {})
        models = [folder / SUMMARY for folder in folders.values()]
        models += [base / "ali" / "train"] if gmm else []
        scores = (
            scores_of(base, key, sets(config), models=models, unfinished=unfinished)
            if trained and "diverged" not in trained
            else {}
        )
        unscored = [name for name in sets(config) if name not in scores]
        state, why = state_of(trained, failed=failed, unscored=unscored)
        why = why.removeprefix("trained, and ") if runs else why  # its runs are rows of their own
        score = base / "score" / key
        tuned = read_if_there(score / "tuned.json") if scores else {}
        found.append(
            Beside(
                name=row,
                key=key,
                scored=score,
                scores=scores,
                tuned=tuned,
                state=state,
                why=why,
                runs=tuple(runs),
                gmm=gmm,
            )
        )
    return found


def _gmm(base: Path) -> Row:
    """Something where it is trained."""
    return {"trained": True} if (base / "ali" / "train").is_dir() else {}


def _ended(folders: dict[str, Path]) -> tuple[Row, Row]:
    """As `state_of` takes them: what the trainings left in all, and how one of them failed."""
    summaries = {run: read_if_there(folder / SUMMARY) for run, folder in folders.items()}
    for run, summary in summaries.items():
        if "diverged" in summary:
            return {"diverged": f"{run}: {summary['diverged']}"}, {}
    if all(summaries.values()):
        return {"trained": True}, {}
    for run, folder in folders.items():
        if not summaries[run] and (failed := read_if_there(folder / FAILED)):
            return {}, {"why": f"{run}: {failed.get('why', '')}"}
    return {}, {}

"""Pages of a finished workflow as a browser shows them (`make screenshots`); needs chromium.

    python docs/make_screenshots.py --config results/demo/config.yaml

writes docs/pictures/{mlflow-runs,mlflow-model,mlflow-compare,report,errors,site}.png. MLflow's
pages are of a copy of the store where that is a file; `make docs` has made the site.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from make_pictures import with_256_colours
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402
from servers import mlflow_server  # noqa: E402

from hadpsgd.config import Config, load, run_key  # noqa: E402
from hadpsgd.errors import UserError  # noqa: E402
from hadpsgd.reports import compare  # noqa: E402
from hadpsgd.tracking.models.champion import ALIAS  # noqa: E402
from hadpsgd.tracking.models.versions import by_alias, registered_name  # noqa: E402
from hadpsgd.tracking.results import results_folder, sets  # noqa: E402
from hadpsgd.tracking.scoring_run import WER  # noqa: E402
from hadpsgd.tracking.uri import (  # noqa: E402
    database_file,
    experiment_name,
    set_environment,
    tracking_uri,
)

# a fresh browser gets a chat, an advertisement and menus for language models from MLflow
_ACQUAINTED = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
    "mlflow.assistant.panelOpen_v1": "false",
    "_mlflow_model_registry_promo_modal_dismissed_v1": "true",
}
_RUNS_PAGE = 'MLflowLocalStorage-1.1-ExperimentPage-["{}"]-ReactComponentState'
_BACKSPACE, _ENTER, _ESCAPE = ("Backspace", 8), ("Enter", 13), ("Escape", 27)
_is_axis = (
    "name => [...document.querySelectorAll('svg text')].some(text => text.textContent === name)"
)


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A page and its picture."""

    name: str
    address: str
    shows: Sequence[str]
    """Texts that are there once the page is whole."""
    size: tuple[int, int] = (1280, 800)
    remembered: Mapping[str, str] = field(default_factory=dict)
    """What a former visit has left in the browser."""
    then: Callable[[browser.Page], None] | None = None
    """What is pressed there."""

    def open(self, tab: browser.Page) -> None:
        """Wait until the page is whole."""
        tab.remember(_ACQUAINTED | dict(self.remembered))
        here = "text => document.body.innerText.includes(text)"
        tab.open(self.address, until=f"{json.dumps(self.shows)}.every({here})")
        if self.then:
            self.then(tab)


def main() -> int:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="config of a finished workflow")
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="folder of `make docs`")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures", help="folder")
    args = parser.parse_args()
    set_environment()
    from mlflow import MlflowClient  # what was set decides what it does

    try:
        if not browser.PROGRAM:
            raise UserError("no chromium", fix="Install it (Debian: apt-get install chromium)")
        config = load(args.config)
        files = [*report_pages(config), site_page(args.site)]
        with served(config) as server:
            take([*files, *mlflow_pages(config, MlflowClient(server), server)], args.out)
    except UserError as error:
        print(f"make_screenshots: {error}", file=sys.stderr)
        return 2
    return 0


def report_pages(config: Config) -> list[Shot]:
    """The report, and the errors of the first run that is decoded.

    Raises:
        UserError: a page is missing.
    """
    results = results_folder(config)
    run = next((run.id for run in config.training.members if run.decode), None)
    if run is None:
        raise UserError("no run of the config is decoded")
    errors = results / "errors" / run_key(config, run) / "index.html"
    return [
        Shot(name="report", address=_file(results / "index.html"), shows=[run], size=(1200, 1700)),
        Shot(
            name="errors",
            address=_file(errors),
            shows=[run, "Substituted"],
            size=(1100, 1200),
            then=_scroll_to_confusions,
        ),
    ]


def site_page(site: Path) -> Shot:
    """The first page of the documentation.

    Raises:
        UserError: it is not there.
    """
    return Shot(name="site", address=_file(site / "README.html"), shows=["Start"])


def _file(page: Path) -> str:
    if not page.is_file():
        raise UserError("no such page", where=page, fix="Finish the workflow and `make docs`")
    return page.absolute().as_uri()


@contextmanager
def served(config: Config) -> Iterator[str]:
    """Address of an MLflow server of a config's store; of a copy, where the store is a file."""
    uri = tracking_uri(config)
    with tempfile.TemporaryDirectory() as work:
        if file := database_file(uri):
            if not file.is_file():
                raise UserError("no store of MLflow", where=file)
            uri = f"sqlite:///{work}/mlflow.db"
            with (
                closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(f"{work}/mlflow.db")) as copy,
            ):
                source.backup(copy)
        if uri.startswith("http"):
            yield uri
            return
        with mlflow_server(uri, Path(work)) as server:
            yield server


def mlflow_pages(config: Config, client: Any, server: str) -> list[Shot]:
    """Runs, the best run's model and the comparison of the decoded runs.

    Args:
        config: of the workflow.
        client: MlflowClient of the store.
        server: address of the pages.

    Raises:
        UserError: the store lacks the runs or their models.
    """
    name = experiment_name(config)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        raise UserError(f"MLflow has no experiment {name!r}", fix="Run the workflow")
    model = registered_name(name)
    best = by_alias(client, model, alias=ALIAS)
    if best is None:
        raise UserError(f"MLflow has no model {model!r} with the alias {ALIAS}")
    runs = [run for entry in config.training.members for run in compare.find(entry.id, config)]
    scored = [run for run in runs if run.scores]
    comparison = compare.link(scored, server)
    if not comparison:
        raise UserError("MLflow has fewer than two scored runs of this config")
    identifier = experiment.experiment_id
    columns = ["attributes.`Dataset`", "attributes.`Models`"]
    columns += [f"metrics.`{WER}/{each}`" for each in sets(config)]
    state = {_RUNS_PAGE.format(identifier): json.dumps({"selectedColumns": columns})}
    return [
        Shot(
            name="mlflow-runs",
            address=f"{server}/#/experiments/{identifier}/runs",
            shows=[
                *("Dataset", f"{config.corpus.kind}/train", "Models"),
                *(run.label for run in runs),
                *(registered_name(f"{name}-{run.label}") for run in scored),
            ],
            size=(1600, 640),
            remembered=state,
        ),
        Shot(
            name="mlflow-model",
            address=f"{server}/#/models/{quote(model)}/versions/{best.version}",
            shows=[model, ALIAS, "Inputs", "Outputs"],
            size=(1280, 1250),
            then=_unfold_schema,
        ),
        Shot(
            name="mlflow-compare",
            address=comparison,
            shows=[run.mlflow_run for run in scored],
            size=(1530, 1100),
            then=partial(_draw, metrics=[f"{WER}/{each}" for each in sets(config)]),
        ),
    ]


def _scroll_to_confusions(tab: browser.Page) -> None:
    headings = f"[...document.querySelectorAll('h3')].filter({_starts('Substituted')})"
    tab.value(f"{headings}[0].scrollIntoView()")


def _unfold_schema(tab: browser.Page) -> None:
    """On a model's page: types of what it takes and gives."""
    for heading in ("Inputs (", "Outputs ("):
        cells = f"[...document.querySelectorAll('[role=cell]')].filter({_starts(heading)})"
        tab.click(f"{cells}[0].querySelector('svg')")


def _draw(tab: browser.Page, *, metrics: Sequence[str]) -> None:
    """On the page of a comparison: these metrics in the plot, which begins with another one."""
    fields = f"[...document.querySelectorAll('div')].filter({_starts('Metrics:')})"
    field = f"{fields}.at(-1).nextElementSibling"
    tab.click(f"{field}.querySelector('input')")
    tab.type("", _BACKSPACE)
    for metric in metrics:
        tab.type(metric, _ENTER)
        tab.wait(f"{field}.innerText.includes({json.dumps(metric)})")
    tab.type("", _ESCAPE)
    tab.value("document.activeElement.blur()")
    tab.wait(f"{json.dumps(metrics)}.every({_is_axis})")


def _starts(text: str) -> str:
    return f"element => element.innerText.startsWith({json.dumps(text)})"


def take(shots: Sequence[Shot], out: Path) -> None:
    """A picture of each page, of few colours."""
    out.mkdir(parents=True, exist_ok=True)
    for shot in shots:
        with browser.page(*shot.size) as tab:
            shot.open(tab)
            file = tab.picture(out / f".{shot.name}.png")
        with_256_colours(Image.open(file)).save(file, optimize=True)
        file.rename(out / f"{shot.name}.png")
        print(f"{shot.name}.png: {(out / f'{shot.name}.png').stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    raise SystemExit(main())

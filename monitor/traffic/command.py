"""The command `evenhand log`: look at a log, add outcomes to it, and take out what must go."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from monitor.bundle.manifest import MODEL_NAME
from monitor.config import load_config
from monitor.errors import TrafficError
from monitor.settings import Config

if TYPE_CHECKING:
    from monitor.traffic.erasure import LogPlace, Receipt
    from monitor.traffic.privacy import Pseudonyms
    from monitor.traffic.store import Store

__all__ = ["log"]

_PATH = click.Path(path_type=Path, readable=False)
_OUTCOMES_MODE = 0o700
_INCOMPLETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where the logs are, by the options or else by the config."""

    config: Config
    log: str | None
    outcomes: str | None

    @property
    def log_store(self) -> Store | None:
        from monitor.traffic.store import Store

        return None if self.log is None else Store.open(self.log)

    @property
    def outcomes_store(self) -> Store | None:
        from monitor.traffic.store import Store

        return None if self.outcomes is None else Store.open(self.outcomes, mode=_OUTCOMES_MODE)

    @property
    def pseudonyms(self) -> Pseudonyms:
        from monitor.traffic.privacy import Pseudonyms

        return Pseudonyms.read(self.config.traffic.key_path)

    @property
    def both(self) -> list[LogPlace]:
        """With the folders of their segments."""
        from monitor.traffic.erasure import LogPlace
        from monitor.traffic.store import Store

        found = []
        for store, part, mode in (
            (self.log_store, self.config.traffic, 0o750),
            (self.outcomes_store, self.config.outcomes, _OUTCOMES_MODE),
        ):
            if store is not None:
                home = store if store.is_local else None
                # A place that was named by an option has nothing to do with the config's folder.
                if part.path is not None and store.place == str(part.store or part.path):
                    home = Store.open(part.path, mode=mode)
                found.append(LogPlace(store=store, home=home))
        return found


def _placed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say where the logs are."""
    for option in (
        click.option("--outcomes", help="The outcomes: a folder or an address such as s3://…"),
        click.option("--log", "log_place", help="The log: a folder or an address such as s3://…"),
        click.option("--config", "file", type=_PATH, help="A config file that names them."),
    ):
        command = option(command)
    return command


def _places(file: Path | None, log_place: str | None, outcomes: str | None) -> _Places:
    config = load_config(file)

    def named(given: str | None, store: str | None, path: Path | None) -> str | None:
        return given or store or (None if path is None else str(path))

    return _Places(
        config=config,
        log=named(log_place, config.traffic.store, config.traffic.path),
        outcomes=named(outcomes, config.outcomes.store, config.outcomes.path),
    )


@click.group()
def log() -> None:
    """Inspect the traffic log, import outcomes, delete what is old, erase a person."""


@log.command()
@_placed
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def inspect(
    *, file: Path | None, log_place: str | None, outcomes: str | None, as_json: bool
) -> None:
    """Say what a log holds: span, rows, models, verdicts, outcomes, and what is missing or lost."""
    places = _places(file, log_place, outcomes)
    if places.log is None:
        raise click.UsageError("Name a log: --log, or a config whose traffic.path does.")
    try:
        # The audits' engine reads it; the monitor itself never depends on them.
        summarise = importlib.import_module("offline_audit.log_summary").summarise
    except ModuleNotFoundError as error:
        raise TrafficError(
            f"{error.name} is not installed; `pip install 'evenhand[audit]'` brings what reads logs"
        ) from None
    try:
        summary = summarise(places.log, places.outcomes)
    except importlib.import_module("offline_audit.errors").OfflineAuditError as error:
        raise TrafficError(str(error)) from None
    click.echo(json.dumps(summary.to_dict(), indent=1) if as_json else str(summary))


@log.command("import")
@click.argument("path", type=_PATH)
@_placed
@click.option("--bundle", type=_PATH, help="The model's bundle, whose groups are checked against.")
@click.option("--model", help="The model's name, where there is no bundle at hand.")
@click.option("--skip-bad", is_flag=True, help="Import the rest where rows cannot be used.")
def import_(
    *,
    path: Path,
    file: Path | None,
    log_place: str | None,
    outcomes: str | None,
    bundle: Path | None,
    model: str | None,
    skip_bad: bool,
) -> None:
    """Add outcomes from a Parquet or CSV file.

    Columns: request_id, row, label, group_<attribute>, observed_at; all but the first are optional.
    The same file is never added twice.
    """
    from monitor.traffic.importing import import_outcomes

    places = _places(file, log_place, outcomes)
    store = places.outcomes_store
    if store is None:
        raise click.UsageError(
            "Name the outcomes: --outcomes, or a config whose outcomes.path does."
        )
    name, known = _model_of(places.config, bundle, model)
    found = import_outcomes(
        path, store, places.pseudonyms, model=name, known=known, skip_bad=skip_bad
    )
    if found.already:
        click.echo(f"{path} was imported before; nothing was done")
        return
    groups = "".join(f", {count:,} with {name}" for name, count in found.groups.items())
    click.echo(f"imported {found.rows:,} outcomes, {found.labels:,} with a label{groups}")
    if found.skipped:
        click.echo(f"skipped {found.skipped:,} rows that cannot be used")


def _model_of(
    config: Config, bundle: Path | None, model: str | None
) -> tuple[str, dict[str, tuple[str, ...]] | None]:
    """The model's name, and its attributes and groups if there is a bundle."""
    path = bundle or (config.bundle.path if model is None else None)
    if path is None:
        if model is None:
            raise click.UsageError("Say whose outcomes they are: --bundle or --model.")
        if not re.fullmatch(MODEL_NAME, model):
            raise click.UsageError("--model is no name that a model can have.")
        return model, None
    from monitor.bundle.reader import Bundle

    manifest = Bundle.read(path).manifest
    return manifest.model.name, {a.name: a.groups for a in manifest.protected_attributes}


@log.command()
@_placed
@click.option("--findings", help="The audits' findings, a folder.")
@click.option("--traffic-days", type=click.IntRange(1), help="Days that traffic is kept.")
@click.option("--outcomes-days", type=click.IntRange(1), help="Days that outcomes are kept.")
@click.option("--findings-days", type=click.IntRange(1), help="Days that findings are kept.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def expire(
    *,
    file: Path | None,
    log_place: str | None,
    outcomes: str | None,
    findings: str | None,
    dry_run: bool,
    **days: int | None,
) -> None:
    """Delete what is older than retention.* in the config, or the options, allow."""
    from monitor.traffic.expiry import expire as expire_store
    from monitor.traffic.store import Store

    places = _places(file, log_place, outcomes)
    stores = {
        "traffic": places.log_store,
        "outcomes": places.outcomes_store,
        "findings": None if findings is None else Store.open(findings),
    }
    today = dt.datetime.now(dt.UTC).date()
    done = False
    for name, store in stores.items():
        kept = days[f"{name}_days"] or getattr(places.config.retention, f"{name}_days")
        if store is None or kept is None:
            continue
        done = True
        found = expire_store(store, today - dt.timedelta(days=kept), dry_run=dry_run)
        words = "would be deleted" if dry_run else "deleted"
        click.echo(
            f"{name}: {found.files:,} files, {found.rows:,} rows, {found.bytes:,} bytes of more "
            f"than {kept} days ago {words}"
        )
    if not done:
        raise click.UsageError(
            "Nothing to expire: name a place (--log, --outcomes, --findings or --config) and for "
            "how long it is kept (--traffic-days and so on, or retention.* in the config)."
        )


@log.command()
@_placed
@click.option("--request-id", required=True, help="As the sidecar returned it.")
@click.option("--receipt", type=_PATH, help="File to write the receipt to, as JSON.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for a sidecar.")
@click.pass_context
def erase(
    ctx: click.Context,
    *,
    file: Path | None,
    log_place: str | None,
    outcomes: str | None,
    request_id: str,
    receipt: Path | None,
    wait: float,
) -> None:
    """Take a request out of every file of the log and its outcomes, and give a receipt.

    The receipt holds the hashes of every file before and after, and not the request. What is sent
    to a person for review is looked through too, where the config names it. Exits with 1 if
    something could not be looked through: then say it again once that is mended.
    """
    from monitor.traffic.erasure import erase as erase_request

    if not request_id:
        raise click.UsageError("--request-id is empty; give the id that the sidecar returned.")
    places = _places(file, log_place, outcomes)
    if not places.both:
        raise click.UsageError("Name a log: --log, --outcomes, or a config that does.")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking through files", total=None)
        found = erase_request(
            request_id,
            places.both,
            places.pseudonyms,
            review=places.config.policy.review_path,
            patience=wait,
            tell=lambda _: progress.advance(task),
        )
    if receipt is not None:
        _write_receipt(receipt, found)
    if found.complete and not found.rows and not found.blanked:
        click.echo("nothing was found of that request", err=True)
    click.echo(str(found))
    if not found.complete:
        ctx.exit(_INCOMPLETE)


def _write_receipt(path: Path, found: Receipt) -> None:
    """For the eyes of whoever erased."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(found.to_dict(), indent=1) + "\n")

"""`evenhand log`: inspect a log, import outcomes, delete old files and erase requests."""

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
    from monitor.traffic.erasure import LogLocation, Receipt
    from monitor.traffic.privacy import Pseudonyms
    from monitor.traffic.store import Store

__all__ = ["log"]

_PATH = click.Path(path_type=Path, readable=False)
_OUTCOMES_MODE = 0o700
_INCOMPLETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locations:
    """Locations of the logs, from the options or else from the config."""

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
    def both(self) -> list[LogLocation]:
        """Both logs, with the directories of their segments."""
        from monitor.traffic.erasure import LogLocation
        from monitor.traffic.store import Store

        logs = []
        for store, part, mode in (
            (self.log_store, self.config.traffic, 0o750),
            (self.outcomes_store, self.config.outcomes, _OUTCOMES_MODE),
        ):
            if store is not None:
                home = store if store.is_local else None
                # A location from an option has no segments in the config's directory.
                if part.path is not None and store.location == str(part.store or part.path):
                    home = Store.open(part.path, mode=mode)
                logs.append(LogLocation(store=store, home=home))
        return logs


def _location_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that locate the logs."""
    for option in (
        click.option("--outcomes", help="Outcomes: a directory, or an address such as s3://…"),
        click.option(
            "--log", "log_path", help="Traffic log: a directory, or an address such as s3://…"
        ),
        click.option("--config", "file", type=_PATH, help="Config file with the locations."),
    ):
        command = option(command)
    return command


def _locations(file: Path | None, log_path: str | None, outcomes: str | None) -> _Locations:
    config = load_config(file)

    def named(given: str | None, store: str | None, path: Path | None) -> str | None:
        return given or store or (None if path is None else str(path))

    return _Locations(
        config=config,
        log=named(log_path, config.traffic.store, config.traffic.path),
        outcomes=named(outcomes, config.outcomes.store, config.outcomes.path),
    )


@click.group()
def log() -> None:
    """Inspect the traffic log, import outcomes, delete old files, erase a request."""


@log.command()
@_location_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(
    *, file: Path | None, log_path: str | None, outcomes: str | None, as_json: bool
) -> None:
    """Summarise a log: time span, rows, models, verdicts, outcomes, missing and lost rows."""
    locations = _locations(file, log_path, outcomes)
    if locations.log is None:
        raise click.UsageError("No log given: use --log, or a config with traffic.path.")
    try:
        # Imported by name, since monitor does not depend on offline_audit.
        summarise = importlib.import_module("offline_audit.window.summary").summarise
    except ModuleNotFoundError as error:
        raise TrafficError(
            f"{error.name} is not installed; run `pip install 'evenhand[audit]'`"
        ) from None
    try:
        summary = summarise(locations.log, locations.outcomes)
    except importlib.import_module("offline_audit.errors").OfflineAuditError as error:
        raise TrafficError(str(error)) from None
    click.echo(json.dumps(summary.to_dict(), indent=1) if as_json else str(summary))


@log.command("import")
@click.argument("path", type=_PATH)
@_location_options
@click.option("--bundle", type=_PATH, help="Bundle of the model; groups are checked against it.")
@click.option("--model", help="Name of the model, if there is no bundle.")
@click.option("--skip-bad", is_flag=True, help="Import the valid rows if some are invalid.")
def import_(
    *,
    path: Path,
    file: Path | None,
    log_path: str | None,
    outcomes: str | None,
    bundle: Path | None,
    model: str | None,
    skip_bad: bool,
) -> None:
    """Import outcomes from a Parquet or CSV file.

    Columns: request_id, row, label, group_<attribute>, observed_at; all but the first are optional.
    A file that was imported before is skipped.
    """
    from monitor.traffic.importing import import_outcomes

    locations = _locations(file, log_path, outcomes)
    store = locations.outcomes_store
    if store is None:
        raise click.UsageError("No outcomes given: use --outcomes, or a config with outcomes.path.")
    name, known = _model_of(locations.config, bundle, model)
    imported = import_outcomes(
        path, store, locations.pseudonyms, model=name, known=known, skip_bad=skip_bad
    )
    if imported.already:
        click.echo(f"{path} was imported before; nothing to do")
        return
    groups = "".join(f", {count:,} with {name}" for name, count in imported.groups.items())
    click.echo(f"imported {imported.rows:,} outcomes, {imported.labels:,} with a label{groups}")
    if imported.skipped:
        click.echo(f"skipped {imported.skipped:,} invalid rows")


def _model_of(
    config: Config, bundle: Path | None, model: str | None
) -> tuple[str, dict[str, tuple[str, ...]] | None]:
    """Name of the model, and its groups by attribute if there is a bundle."""
    path = bundle or (config.bundle.path if model is None else None)
    if path is None:
        if model is None:
            raise click.UsageError("No model given: use --bundle or --model.")
        if not re.fullmatch(MODEL_NAME, model):
            raise click.UsageError("--model: not a valid model name.")
        return model, None
    from monitor.bundle.reader import Bundle

    manifest = Bundle.read(path).manifest
    return manifest.model.name, {a.name: a.groups for a in manifest.protected_attributes}


@log.command()
@_location_options
@click.option("--findings", help="Directory of the audits' findings.")
@click.option("--traffic-days", type=click.IntRange(1), help="Retention of traffic in days.")
@click.option("--outcomes-days", type=click.IntRange(1), help="Retention of outcomes in days.")
@click.option("--findings-days", type=click.IntRange(1), help="Retention of findings in days.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
def expire(
    *,
    file: Path | None,
    log_path: str | None,
    outcomes: str | None,
    findings: str | None,
    dry_run: bool,
    **days: int | None,
) -> None:
    """Delete files older than the retention time (options, or retention.* in the config)."""
    from monitor.traffic.retention import expire as expire_store
    from monitor.traffic.store import Store

    locations = _locations(file, log_path, outcomes)
    stores = {
        "traffic": locations.log_store,
        "outcomes": locations.outcomes_store,
        "findings": None if findings is None else Store.open(findings),
    }
    today = dt.datetime.now(dt.UTC).date()
    done = False
    for name, store in stores.items():
        retention = days[f"{name}_days"] or getattr(locations.config.retention, f"{name}_days")
        if store is None or retention is None:
            continue
        done = True
        expired = expire_store(store, today - dt.timedelta(days=retention), dry_run=dry_run)
        action = "would delete" if dry_run else "deleted"
        click.echo(
            f"{name}: {action} {expired.files:,} files, {expired.rows:,} rows, "
            f"{expired.bytes:,} bytes, older than {retention} days"
        )
    if not done:
        raise click.UsageError(
            "Nothing to expire: give a location (--log, --outcomes, --findings or --config) and "
            "its retention (--traffic-days and so on, or retention.* in the config)."
        )


@log.command()
@_location_options
@click.option("--request-id", required=True, help="Request id that the sidecar returned.")
@click.option("--receipt", "receipt_path", type=_PATH, help="File for the receipt, as JSON.")
@click.option(
    "--wait", default=60.0, show_default=True, help="Seconds to wait for a running sidecar."
)
@click.pass_context
def erase(
    ctx: click.Context,
    *,
    file: Path | None,
    log_path: str | None,
    outcomes: str | None,
    request_id: str,
    receipt_path: Path | None,
    wait: float,
) -> None:
    """Erase a request from all files of the log and its outcomes, and print a receipt.

    The receipt holds the hashes of the changed files before and after, but not the request id.
    Predictions for human review are searched too, if the config has policy.review_path. Exit code
    1 if something could not be searched: fix what the receipt names and erase again.
    """
    from monitor.traffic.erasure import erase as erase_request

    if not request_id:
        raise click.UsageError("--request-id is empty; use the id that the sidecar returned.")
    locations = _locations(file, log_path, outcomes)
    if not locations.both:
        raise click.UsageError("No log given: use --log, --outcomes or --config.")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("searching files", total=None)
        receipt = erase_request(
            request_id,
            locations.both,
            locations.pseudonyms,
            review=locations.config.policy.review_path,
            timeout=wait,
            progress=lambda _: progress.advance(task),
        )
    if receipt_path is not None:
        _write_receipt(receipt_path, receipt)
    if receipt.complete and not receipt.rows and not receipt.blanked:
        click.echo("the request was not found", err=True)
    click.echo(str(receipt))
    if not receipt.complete:
        ctx.exit(_INCOMPLETE)


def _write_receipt(path: Path, receipt: Receipt) -> None:
    """Write a receipt that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(receipt.to_dict(), indent=1) + "\n")

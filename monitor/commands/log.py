"""`evenhand log`: inspect and compact a log, import outcomes, delete files, erase requests."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from monitor.bundle.manifest import MODEL_NAME
from monitor.cli import BAD_INPUT
from monitor.config import load_config
from monitor.errors import TrafficError
from monitor.settings import Config

if TYPE_CHECKING:
    from monitor.traffic.erasure import LogLocation, Receipt
    from monitor.traffic.privacy import Pseudonyms
    from monitor.traffic.store import Store
    from monitor.traffic.waiting import WaitingRows

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
    """Inspect or compact the traffic log, import outcomes, delete old files, erase requests."""


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
    waiting = _waiting(locations)
    if as_json:
        content = summary.to_dict() | {"waiting": {n: asdict(w) for n, w in waiting.items()}}
        click.echo(json.dumps(content, indent=1, default=str))
        return
    click.echo(str(summary))
    for location, rows in waiting.items():
        amount = f"{_count(rows.rows, 'row')} in {_count(rows.segments, 'segment')}"
        since = "" if rows.since is None else f" since {rows.since:%Y-%m-%d %H:%M:%S} UTC"
        advice = (
            "a running sidecar converts them when they are large or old enough "
            "(traffic.roll_bytes, traffic.roll_seconds)"
            if rows.running
            else "no sidecar is running there: `evenhand log compact` converts them"
        )
        click.echo(
            f"{location}: {amount} wait for their conversion to Parquet{since} and are not in the "
            f"figures above; {advice}"
        )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _waiting(locations: _Locations) -> dict[str, WaitingRows]:
    """Rows in segments by local directory, where there are any."""
    from monitor.traffic.waiting import waiting_rows

    counted = {log.home.location: waiting_rows(log.home) for log in locations.both if log.home}
    return {location: rows for location, rows in counted.items() if rows.rows}


@log.command()
@_location_options
def compact(*, file: Path | None, log_path: str | None, outcomes: str | None) -> None:
    """Convert segments that a stopped sidecar left behind to Parquet.

    Segments of a running sidecar are left to it. Exit code 1 if a file is not a valid segment.
    """
    from monitor.traffic.waiting import compact_waiting

    homes = [(found.home, found.store) for found in _locations(file, log_path, outcomes).both]
    if not any(home for home, _ in homes):
        raise click.UsageError("No local log given: use --log, --outcomes or --config.")
    unreadable = False
    for home, store in homes:
        if home is None:
            continue
        done = compact_waiting(home, store)
        if done.running:
            click.echo(
                f"{home.location}: a sidecar is running and converts its own segments, after "
                "traffic.roll_seconds (300 by default) or when it stops; nothing was changed"
            )
            continue
        converted = f"{_count(done.segments, 'segment')}, {_count(done.rows, 'row')}"
        click.echo(f"{home.location}: converted {converted}")
        for name in done.unreadable:
            unreadable = True
            click.echo(f"{home.location}: {name} is not a valid segment and was left", err=True)
    if unreadable:
        click.get_current_context().exit(_INCOMPLETE)


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
    return manifest.model.name, {a.name: a.recorded_groups for a in manifest.protected_attributes}


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
@click.option(
    "--request-id", "request_ids", required=True, multiple=True,
    help="Request id that the sidecar returned; may be repeated.",
)  # fmt: skip
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
    request_ids: tuple[str, ...],
    receipt_path: Path | None,
    wait: float,
) -> None:
    """Erase requests from all files of the log and its outcomes, and print a receipt for each.

    A receipt holds the hashes of the changed files before and after, but not the request id; of
    several, --receipt is a JSON list. Predictions for human review are searched too, if the config
    has policy.review_path. Exit code 1 if something could not be searched: fix what the receipt
    names and erase again. Exit code 2 if a request was not found; the others are erased.
    """
    from monitor.traffic.erasure import erase as erase_request

    if not all(request_ids):
        raise click.UsageError("--request-id is empty; use the id that the sidecar returned.")
    locations = _locations(file, log_path, outcomes)
    if not locations.both:
        raise click.UsageError("No log given: use --log, --outcomes or --config.")
    receipts: dict[str, Receipt] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("searching files", total=None)
        for request_id in request_ids:
            receipts[request_id] = erase_request(
                request_id,
                locations.both,
                locations.pseudonyms,
                review=locations.config.policy.review_path,
                timeout=wait,
                progress=lambda _: progress.advance(task),
            )
    if receipt_path is not None:
        _write_receipts(receipt_path, list(receipts.values()))
    for receipt in receipts.values():
        click.echo(str(receipt))
    absent = [name for name, receipt in receipts.items() if not receipt.found]
    for name in absent:
        click.echo(
            f"error: the request was not found: {name!r}; use the id that the sidecar returned "
            "(evenhand_request_id). Rows in segments on other machines are removed when they are "
            "converted",
            err=True,
        )
    if not all(receipt.complete for receipt in receipts.values()):
        ctx.exit(_INCOMPLETE)
    if absent:
        ctx.exit(BAD_INPUT)


def _write_receipts(path: Path, receipts: list[Receipt]) -> None:
    """Write receipts that only their owner can read; one alone is not in a list."""
    contents = [receipt.to_dict() for receipt in receipts]
    path.touch(mode=0o600)
    path.write_text(json.dumps(contents[0] if len(contents) == 1 else contents, indent=1) + "\n")

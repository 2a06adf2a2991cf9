"""Conversion of dashboards to Grafana's JSON, with Grafana's SDK."""

from __future__ import annotations

import json
import warnings
from typing import Any, Final

with warnings.catch_warnings():
    # The SDK deprecates schema v1, but file provisioning and the sidecar do not load v2 yet.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import common as commons
    from grafana_foundation_sdk.builders import dashboard as dashboards
    from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from infra.domain import naming
from infra.observability.dashboards.model import (
    RUN_UID,
    TEAM_UID,
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Variable,
)

SOURCE: Final = common.DataSourceRef(type_val="prometheus", uid="${source}")
"""The data source that the viewer selects."""
_Builder = timeseries.Panel | stat.Panel | table.Panel


def as_json(found: Dashboard) -> str:
    """Return the dashboard's JSON with sorted keys, for readable diffs."""
    text = json.dumps(_built(found), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False)
    return f"{text}\n"


def _built(found: Dashboard) -> models.Dashboard:
    builder = (
        dashboards.Dashboard(found.title)
        .uid(found.uid)
        .description(found.description)
        .tags([naming.PROJECT])
        .readonly()
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(found.since, "now")
        .refresh("1m")
        .link(_neighbours())
        .with_variable(dashboards.DatasourceVariable("source").label("Source").type("prometheus"))
    )
    for variable in found.variables:
        builder.with_variable(_variable(variable))
    number = 0
    for row in found.rows:
        number += 1
        builder.with_row(dashboards.Row(row.title).id(number))
        number = _fill(builder, row, number)
    return builder.build()


def _fill(builder: dashboards.Dashboard, row: Row, number: int) -> int:
    """Add a row's panels with IDs after `number`; return the last ID."""
    for panel in row.panels:
        number += 1
        builder.with_panel(_panel(panel, number))
    return number


def _neighbours() -> dashboards.DashboardLink:
    return (
        dashboards.DashboardLink("Trainyard")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([naming.PROJECT])
        .as_dropdown(True)
        .keep_time(True)
        .include_vars(False)
    )


def _variable(variable: Variable) -> dashboards.QueryVariable:
    return (
        dashboards.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE)
        .query(variable.query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(variable.several)
        .include_all(variable.several)
    )


_MAKERS: Final[dict[Kind, type[_Builder]]] = {
    Kind.LINES: timeseries.Panel,
    Kind.NUMBER: stat.Panel,
    Kind.TABLE: table.Panel,
}


def _panel(panel: Panel, number: int) -> _Builder:
    builder: Any = _MAKERS[panel.kind]()
    builder = (
        builder.id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit.value)
        .span(panel.width)
        .height(panel.height)
        .data_links(_links(panel))
    )
    for bound, put in ((panel.minimum, builder.min), (panel.maximum, builder.max)):
        if bound is not None and panel.kind is not Kind.TABLE:
            put(bound)
    if panel.thresholds:
        builder.thresholds(_thresholds(panel))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        builder.with_target(_target(query, panel, letter))
    _finish(builder, panel)
    return builder  # type: ignore[no-any-return]


def _finish(builder: Any, panel: Panel) -> None:
    """Set the options of one panel type."""
    if panel.kind is Kind.LINES:
        calcs = ["lastNotNull", "max"]
        legend = commons.VizLegendOptions().show_legend(True).calcs(calcs)
        mode = common.LegendDisplayMode.LIST
        builder.legend(legend.display_mode(mode).placement(common.LegendPlacement.BOTTOM))
        builder.fill_opacity(30 if panel.stacked else 0).line_width(1)
        if panel.stacked:
            builder.stacking(commons.StackingConfig().mode(common.StackingMode.NORMAL))
        if panel.logarithmic:
            scale = commons.ScaleDistributionConfig().type(common.ScaleDistribution.LOG)
            builder.scale_distribution(scale.log(10))
    elif panel.kind is Kind.NUMBER:
        builder.reduce_options(commons.ReduceDataOptions().calcs(["lastNotNull"]))
        builder.graph_mode(common.BigValueGraphMode.AREA)
    else:
        hidden = dict.fromkeys(("Time", "job", "instance", "__name__"), True)
        order = {name: index for index, name in enumerate(panel.columns)}
        options = {"excludeByName": hidden, "indexByName": order}
        builder.with_transformation(
            models.DataTransformerConfig(id_val="organize", options=options)
        )


def _target(query: Query, panel: Panel, letter: str) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .ref_id(letter)
        .datasource(SOURCE)
        .expr(query.expression)
        .legend_format(query.legend or "__auto")
    )
    if panel.kind is Kind.TABLE:
        return target.instant().format(PromQueryFormat.TABLE)
    return target.range()


def _thresholds(panel: Panel) -> dashboards.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    steps += [models.Threshold(value=value, color=color) for value, color in panel.thresholds]
    mode = models.ThresholdsMode.ABSOLUTE
    return dashboards.ThresholdsConfig().mode(mode).steps(steps)


def _links(panel: Panel) -> list[Any]:
    """Return links from series of a run or a team to its dashboard."""
    shown = " ".join(query.legend for query in panel.queries) + " ".join(
        f"{{{{{column}}}}}" for column in panel.columns
    )
    found = []
    for label, uid in (("run_id", RUN_UID), ("team", TEAM_UID)):
        if f"{{{{{label}}}}}" in shown:
            value = f"${{__field.labels.{label}}}"
            if panel.kind is Kind.TABLE:
                value = f"${{__data.fields.{label}}}"
            found.append(
                dashboards.DashboardLink(f"This {label.removesuffix('_id')}")
                .type(models.DashboardLinkType.LINK)
                .url(f"/d/{uid}?var-{label}={value}&${{__url_time_range}}")
            )
    return found

#!/usr/bin/env python3
"""Writes the Grafana dashboard: packages/deploy/dashboard.py > packages/deploy/grafana-dashboard.json

A panel is a line below: its title, its unit, and its queries with their legends. `.ci/run deploy` checks that the file is what
this program writes.
"""

import json
import sys

# Every query is for the server that the dashboard's list of instances selects.
SELECTED = 'instance=~"$instance"'

STATE = [
    ("Up", "bool", {"": f'up{{job="redlatch", {SELECTED}}}'}),
    ("Uptime", "s", {"": f"redlatch_uptime_in_seconds{{{SELECTED}}}"}),
    ("Quarantine", "ms", {"": f"redlatch_quarantine_left_ms{{{SELECTED}}}"}),
    ("Locks held", "short", {"": f"sum(redlatch_locks_held{{{SELECTED}}})"}),
    ("Requests that wait", "short", {"": f"redlatch_lock_waiters{{{SELECTED}}}"}),
    ("Clients", "short", {"": f"redlatch_connected_clients{{{SELECTED}}}"}),
]


def rate(metric: str, by: str = "") -> str:
    """The sum of the rates of a counter, by a label."""
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{{{SELECTED}}}[$__rate_interval]))"


def quantiles(histogram: str) -> dict[str, str]:
    """The median and the 99th percentile of a histogram."""
    buckets = rate(f"{histogram}_bucket", "le")
    return {f"p{int(q * 100)}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.99)}


ROWS = [
    (
        "Locks",
        [
            ("Locks held", "short", {"{{kind}}": f"redlatch_locks_held{{{SELECTED}}}"}),
            (
                "Granted and refused",
                "ops",
                {
                    "granted {{kind}}": rate("redlatch_lock_acquired_total", "kind"),
                    "refused": rate("redlatch_lock_refused_total"),
                },
            ),
            (
                "Trouble",
                "ops",
                {
                    "expired while held": rate("redlatch_locks_expired_total"),
                    "deleted by others": rate("redlatch_locks_deleted_by_others_total"),
                },
            ),
        ],
    ),
    (
        "Waiting",
        [
            ("Wait for a lock", "s", quantiles("redlatch_lock_wait_seconds")),
            ("Hold of a lock", "s", quantiles("redlatch_lock_hold_seconds")),
            ("Hand-over to the next", "s", quantiles("redlatch_lock_handover_seconds")),
            (
                "Queues",
                "short",
                {
                    "waiting": f"redlatch_lock_waiters{{{SELECTED}}}",
                    "longest queue": f"redlatch_lock_queue_longest{{{SELECTED}}}",
                },
            ),
        ],
    ),
    (
        "Commands",
        [
            (
                "Commands per second",
                "ops",
                {"{{command}}": f"topk(10, {rate('redlatch_command_calls_total', 'command')})"},
            ),
            (
                "Time of a command",
                "s",
                {
                    "{{command}}": "topk(10, "
                    + rate("redlatch_command_seconds_total", "command")
                    + " / "
                    + rate("redlatch_command_calls_total", "command")
                    + ")"
                },
            ),
            ("Errors", "ops", {"errors": rate("redlatch_error_replies_total")}),
        ],
    ),
    (
        "Resources",
        [
            (
                "Memory",
                "bytes",
                {
                    "used": f"redlatch_used_memory{{{SELECTED}}}",
                    "resident": f"redlatch_used_memory_rss{{{SELECTED}}}",
                    "limit": f"redlatch_maxmemory{{{SELECTED}}} > 0",
                },
            ),
            (
                "Processor",
                "percentunit",
                {"user": rate("redlatch_used_cpu_user_total"), "system": rate("redlatch_used_cpu_sys_total")},
            ),
            (
                "Network",
                "Bps",
                {
                    "received": rate("redlatch_net_input_bytes_total"),
                    "sent": rate("redlatch_net_output_bytes_total"),
                },
            ),
            (
                "Workers",
                "percentunit",
                {"worker {{worker}}": rate("redlatch_worker_busy_seconds_total", "worker")},
            ),
            ("Journal", "bytes", {"size": f"redlatch_aof_current_size{{{SELECTED}}}"}),
            ("Connections rejected", "ops", {"rejected": rate("redlatch_rejected_connections_total")}),
        ],
    ),
]

WIDTH = 24


def panel(kind: str, title: str, unit: str, queries: dict[str, str], place: tuple[int, int, int, int]) -> dict:
    x, y, width, height = place
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend or "__auto"}
        for index, (legend, query) in enumerate(queries.items())
    ]
    return {
        "type": kind,
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def panels() -> list[dict]:
    width = WIDTH // len(STATE)
    made = [panel("stat", *each, (index * width, 0, width, 4)) for index, each in enumerate(STATE)]
    top = 4
    for title, row in ROWS:
        made.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1}}
        )
        width = WIDTH // len(row)
        made += [panel("timeseries", *each, (index * width, top + 1, width, 8)) for index, each in enumerate(row)]
        top += 9
    return [{"id": number, **each} for number, each in enumerate(made, start=1)]


def variable(name: str, kind: str, query: str, **more: object) -> dict:
    return {"name": name, "type": kind, "query": query, **more}


DASHBOARD = {
    "uid": "redlatch",
    "title": "redlatch",
    "tags": ["redlatch"],
    "schemaVersion": 39,
    "refresh": "15s",
    "time": {"from": "now-1h", "to": "now"},
    "timezone": "browser",
    "templating": {
        "list": [
            variable("datasource", "datasource", "prometheus"),
            variable(
                "instance",
                "query",
                "label_values(redlatch_connected_clients, instance)",
                datasource={"type": "prometheus", "uid": "${datasource}"},
                includeAll=True,
                multi=True,
                refresh=2,
            ),
        ]
    },
    "panels": panels(),
}

if __name__ == "__main__":
    json.dump(DASHBOARD, sys.stdout, indent=1)
    print()

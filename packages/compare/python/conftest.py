"""Prints what pytest has measured: fixtures, which start the server, and the body of the test."""


def pytest_runtest_logreport(report):
    if report.when in ("setup", "call"):
        name = {"setup": "start", "call": "body"}[report.when]
        print(f"stopwatch {name} {report.duration:.6f}")

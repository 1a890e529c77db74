"""Starts the program as the files for deployment do, and evaluates the alerts with what it measures.

Each file is tried alone, and with `cluster-etcd` as a leader and a standby. Ports are free ones of 127.0.0.1. systemd is played: the
commands of the unit run with its environment, and its socket is told when the server is ready.
"""

import base64
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import yaml

import cluster

HERE = pathlib.Path(__file__).resolve().parent
ALERTS = HERE / "prometheus-alerts.yaml"
PASSWORD = "secret"
SCRAPE_SECS = 15
SCRAPES = 80
# A healthy server has run for longer than the alert about starts looks back.
UPTIME_SECS = 3600
UPTIME = "redlatch_uptime_in_seconds"
# A leader commits five times a second.
COMMITS = "redlatch_cluster_commits_total"


def unit() -> dict[str, list[str]]:
    """The settings of the unit; one may be there several times."""
    found: dict[str, list[str]] = {}
    for line in (HERE / "redlatch.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def environments() -> dict[str, dict[str, str]]:
    """The variables that each file gives to the program. The manifests are for the image, and have its variables, too."""
    dockerfile = (HERE.parents[1] / "Dockerfile").read_text()
    image = dict(re.findall(r"\b(REDLATCH_\w+)=(\S+)", dockerfile.split("\nENV ", 1)[1].split("\nEXPOSE", 1)[0]))
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())["services"]["redlatch"]["environment"]
    documents = yaml.safe_load_all((HERE / "kubernetes.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "StatefulSet"]
    kubernetes = {each["name"]: each.get("value", PASSWORD) for each in pod["containers"][0]["env"]}
    service = dict(each.split("=", 1) for each in unit()["Environment"])
    return {
        "redlatch.service": service,
        "Dockerfile": image,
        "compose.yaml": image | compose,
        "kubernetes.yaml": image | kubernetes,
    }


def node_environments() -> dict[str, dict[str, str]]:
    """As environments(), of the files for nodes of a cluster."""
    image = environments()["Dockerfile"]
    compose = yaml.safe_load((HERE / "compose-cluster.yaml").read_text())["services"]["redlatch-0"]["environment"]
    documents = yaml.safe_load_all((HERE / "kubernetes-cluster.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    kubernetes = {each["name"]: each.get("value", PASSWORD) for each in pod["containers"][0]["env"]}
    return {
        "compose-cluster.yaml": image | compose | {"REDLATCH_REQUIREPASS": PASSWORD},
        "kubernetes-cluster.yaml": image | kubernetes,
    }


class Server:
    """A process with the settings of a file."""

    def __init__(self, processes: cluster.Cluster, name: str, settings: dict[str, str], more: dict[str, str]):
        home = processes.directory / re.sub(r"\W", "-", name)
        home.mkdir()
        self.name, self.password = name, settings.get("REDLATCH_REQUIREPASS")
        self.port, self.http = cluster.free_ports(2)
        local = {"REDLATCH_BIND": "127.0.0.1", "REDLATCH_HTTP_BIND": "127.0.0.1"}
        ports = {"REDLATCH_PORT": str(self.port), "REDLATCH_HTTP_PORT": str(self.http)}
        if "REDLATCH_CLUSTER_ANNOUNCE" in settings:
            local["REDLATCH_CLUSTER_ANNOUNCE"] = f"127.0.0.1:{self.port}"
        directory = {"REDLATCH_DIR": str(home / "state")} if "REDLATCH_DIR" in settings else {}
        os_variables = {key: value for key, value in os.environ.items() if not key.startswith("REDLATCH_")}
        self.environment = os_variables | settings | local | ports | directory | more
        self.processes, self.messages = processes, None
        if settings.get("REDLATCH_SUPERVISED") == "systemd":
            self.messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.messages.bind(str(home / "notify"))
            self.messages.settimeout(cluster.PATIENCE_SECS)
            self.environment["NOTIFY_SOCKET"] = str(home / "notify")

    def start(self, program: str) -> None:
        if self.messages is None:
            self.processes.start(self.name.replace("/", "-"), program, env=self.environment)
            return
        before, command = ([program, *shlex.split(unit()[name][0])[1:]] for name in ["ExecStartPre", "ExecStart"])
        subprocess.run(before, env=self.environment, check=True, stdout=subprocess.DEVNULL)
        self.processes.start(self.name.replace("/", "-"), *command, env=self.environment)
        while "READY=1" not in self.messages.recv(4096).decode().split("\n"):
            pass

    def get(self, path: str) -> tuple[int, str]:
        """The status and the body. 0: nobody answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}")
        if self.password:
            login = base64.b64encode(f":{self.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=cluster.PATIENCE_SECS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def await_status(self, path: str, wanted: int, words: str = "") -> None:
        until = time.monotonic() + cluster.PATIENCE_SECS
        while True:
            status, text = self.get(path)
            if status == wanted and words in text:
                return
            assert time.monotonic() < until, f"{self.name}: {path} answers {status}: {text}"
            time.sleep(0.02)

    def take_and_release(self) -> None:
        connection = cluster.Connection(self.port)
        if self.password:
            assert connection.ask("AUTH", self.password) == "OK"
        assert connection.ask("LOCK.ACQUIRE", "check:lock", "check", "LEASE", 30_000) is not None, self.name
        assert connection.ask("LOCK.RELEASE", "check:lock", "check") == 1, self.name
        assert connection.ask("SET", "check:plain", "check", "NX", "PX", 30_000) == "OK", self.name
        assert connection.ask("DEL", "check:plain") == 1, self.name

    def scrape(self) -> dict[str, float]:
        """The samples, as Prometheus would have them."""
        status, text = self.get("/metrics")
        found = {'up{job="redlatch",instance="%s"}' % self.name: float(status == 200)}
        for line in text.splitlines() if status == 200 else []:
            if line.startswith("#"):
                continue
            sample, value = line.rsplit(" ", 1)
            name, _, labels = sample.partition("{")
            labels = labels.rstrip("}") + "," if labels else ""
            found['%s{%sjob="redlatch",instance="%s"}' % (name, labels, self.name)] = float(value)
        return found


def fired(scrapes: list[tuple[dict[str, float], dict[str, float]]], commits_rise: bool = True) -> set[str]:
    """The alerts that fire for servers whose samples go from the first to the second ones of each pair."""
    series = []
    for before, after in scrapes:
        for name, value in after.items():
            half = SCRAPES // 2
            steps = f"{before.get(name, value):f}+0x{half} {value:f}+0x{half}"
            if name.startswith(UPTIME):
                steps = f"{UPTIME_SECS}+{SCRAPE_SECS}x{SCRAPES}"
            if name.startswith(COMMITS) and value > 0:
                steps = f"{value}+{5 * SCRAPE_SECS if commits_rise else 0}x{SCRAPES}"
            series.append({"series": name, "values": steps})
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    times = [f"{minute}m" for minute in range(2, SCRAPES * SCRAPE_SECS // 60)]
    tests = [{"eval_time": at, "alertname": name, "exp_alerts": []} for name in names for at in times]
    test = {"interval": f"{SCRAPE_SECS}s", "input_series": series, "alert_rule_test": tests}
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "test.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [test]}))
        done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    output = done.stdout + done.stderr
    found = set(re.findall(r"alertname: *(\w+)", output))
    assert (done.returncode == 0) == (not found) and found <= set(names), output
    return found


def check_alerts(servers: list[Server], names: str) -> None:
    """No alert fires while healthy servers serve, and those fire that say that they do not."""
    if shutil.which("promtool") is None:
        print("skipped: promtool is not installed")
        return
    before = [server.scrape() for server in servers]
    servers[0].take_and_release()
    scrapes = list(zip(before, [server.scrape() for server in servers]))
    assert all(after[f'up{{job="redlatch",instance="{server.name}"}}'] for server, (_, after) in zip(servers, scrapes))
    alerts = fired(scrapes)
    assert not alerts, f"{names}: {sorted(alerts)}"

    def with_all(start: str, value: float) -> set[str]:
        return fired([tuple({k: value if k.startswith(start) else v for k, v in each.items()} for each in pair)
                      for pair in scrapes])

    assert with_all("up{", 0) == {"RedlatchDown"}
    assert with_all("redlatch_leads{", 0) == {"RedlatchNobodyLeads"}
    assert with_all("redlatch_cluster_restored{", 1) == {"RedlatchLogRestored"}
    if any(name.startswith(COMMITS) and value for _, after in scrapes for name, value in after.items()):
        assert with_all("redlatch_cluster_nodes{", 1) == {"RedlatchNoStandby"}
        assert fired(scrapes, commits_rise=False) == {"RedlatchCommitsStand"}
    print(f"{names}: no alert fires")


def has_etcd(program: str) -> bool:
    """Whether the program can be a node, and etcd is here."""
    checked = subprocess.run([program, "check-config", "--port", "auto", "--cluster-etcd", "127.0.0.1:1"], capture_output=True)
    return checked.returncode == 0 and shutil.which("etcd") is not None


def check(path: pathlib.Path) -> None:
    program = str(path.resolve())
    with tempfile.TemporaryDirectory(prefix="redlatch-deployed-") as directory:
        processes = cluster.Cluster(program, "etcd", pathlib.Path(directory))
        try:
            check_alone(processes)
            if has_etcd(program):
                check_nodes(processes)
            else:
                print("skipped: nodes of a cluster, because etcd is not here or the program lacks the feature")
        finally:
            processes.end()


def check_alone(processes: cluster.Cluster) -> None:
    servers = []
    for name, settings in environments().items():
        server = Server(processes, name, settings, {})
        server.start(processes.redlatch)
        server.await_status("/readyz", 200)
        server.take_and_release()
        servers.append(server)
    print(f"started by itself with the settings of {', '.join(server.name for server in servers)}")
    check_alerts(servers, "servers by themselves")


def check_nodes(processes: cluster.Cluster) -> None:
    processes.start_etcd(1)
    for name, settings in (environments() | node_environments()).items():
        more = {"REDLATCH_CLUSTER_ETCD": processes.endpoints, "REDLATCH_CLUSTER_PREFIX": f"/{name}/"}
        leader, standby = (Server(processes, f"{name}/{role}", settings, more) for role in ["leader", "standby"])
        leader.start(processes.redlatch)
        leader.await_status("/readyz", 200)
        standby.start(processes.redlatch)
        standby.await_status("/healthz", 200, f":{leader.port} leads")
        leader.await_status("/metrics", 200, "\nredlatch_cluster_nodes 2\n")
        standby.take_and_release()
        check_alerts([leader, standby], f"{name}, a leader and a standby")

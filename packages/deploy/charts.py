"""Checks the chart with Helm's own library: it has no fault, and with its defaults it says what the manifests beside it say.

Needs the packages `helm-python-sdk`, `kubernetes-validate` and `pyyaml`. No cluster is asked.
"""

import pathlib

import helm_python
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE / "chart"
ETCD = ["http://etcd-0.etcd:2379", "http://etcd-1.etcd:2379", "http://etcd-2.etcd:2379"]
LABELS = {"labels", "matchLabels", "selector"}
# Each is wrong in another way.
REFUSED = [
    {"storrage": {"size": "2Gi"}},
    {"image": {"pullPolicy": "Sometimes"}},
    {"cluster": {"etcd": ["etcd-0:2379"]}},
    {"cluster": {"replicas": 0}},
    {"settings": {"MAXMEMORY": "1gb"}},
    {"tls": {"secret": "certificates", "port": 70_000}},
    {"tls": {"secret": "certificates", "port": 6379}},
    {"extraVolumes": ["authorities"]},
    {"auth": {"secret": ""}},
]


def render(path: pathlib.Path, values: dict, name: str = "redlatch") -> list[dict]:
    """The manifests, which must fit the schemas of Kubernetes."""
    chart = helm_python.Chart.load(path)
    files = chart.render(chart.merge_values(values), name=name, namespace="locks")
    texts = [text for file, text in sorted(files.items()) if file.endswith(".yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    (pods,) = [each["spec"]["template"]["metadata"]["labels"] for each in documents if "template" in each["spec"]]
    for document in documents:
        selector = document["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= pods.items(), document
    return documents


def plain(value: object, key: str = "") -> object:
    """A manifest without what a chart must name otherwise: labels, the tag of the image. Lists of variables have no order."""
    if isinstance(value, dict):
        return {name: plain(each, name) for name, each in value.items() if name not in LABELS}
    if isinstance(value, list):
        made = [plain(each) for each in value]
        return sorted(made, key=str) if key == "env" else made
    return str(value).split(":")[0] if key == "image" else value


def by_kind(documents: list[dict]) -> dict[str, object]:
    assert len({document["kind"] for document in documents}) == len(documents), documents
    return {document["kind"]: plain(document) for document in documents}


def check_alike(path: pathlib.Path) -> None:
    """With its defaults, and as a cluster, the chart renders the manifests for `kubectl apply`."""
    for file, values in {"kubernetes.yaml": {}, "kubernetes-cluster.yaml": {"cluster": {"etcd": ETCD}}}.items():
        wanted = by_kind(list(yaml.safe_load_all((HERE / file).read_text())))
        rendered = by_kind(render(path, values))
        assert rendered == wanted, f"the chart and {file} differ:\n{yaml.dump(rendered)}\n{yaml.dump(wanted)}"


def check_values(path: pathlib.Path) -> None:
    """Values of the user arrive, and wrong ones are refused."""
    values = {
        "image": {"repository": 'registry.example/"redlatch"', "tag": "9.9.9"},
        "settings": {"maxmemory": "400mb", "startup-guard": 60, "maxclients": 1_000_000, "appendonly": True},
        "storage": {"class": "fast", "size": "2Gi"},
        "service": {"type": "LoadBalancer", "port": 7000, "annotations": {"a": "b"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
        "podAnnotations": {"c": "d"},
    }
    documents = {each["kind"]: each for each in render(path, values, "prod")}
    service, server = documents["Service"], documents["StatefulSet"]
    assert service["metadata"]["name"] == server["spec"]["serviceName"] == "prod-redlatch"
    assert service["spec"]["type"] == "LoadBalancer" and service["spec"]["ports"][0]["port"] == 7000
    pod = server["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == 'registry.example/"redlatch":9.9.9'
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["REDLATCH_MAXMEMORY"] == "400mb" and env["REDLATCH_STARTUP_GUARD"] == "60"
    assert (env["REDLATCH_MAXCLIENTS"], env["REDLATCH_APPENDONLY"]) == ("1000000", "true")
    assert pod["nodeSelector"] == {"disk": "ssd"} and pod["tolerations"] and pod["imagePullSecrets"]
    assert server["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    check_secrets(path)
    # A name may be a number.
    render(path, {}, "12")
    for wrong in REFUSED:
        try:
            chart = helm_python.Chart.load(path)
            chart.validate_schema(chart.merge_values(wrong))
            render(path, wrong)
        except helm_python.HelmError:
            continue
        raise AssertionError(f"the chart takes {wrong}")


def check_secrets(path: pathlib.Path) -> None:
    """Certificates and users come from secrets, for one server and for nodes, and TLS has a port."""
    values = {
        "tls": {"secret": "certificates", "port": 7443},
        "acl": {"secret": "people", "key": "lines"},
        "extraVolumes": [{"name": "authorities", "hostPath": {"path": "/etc/ssl/certs"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    }
    for more in [{}, {"cluster": {"etcd": ETCD}}]:
        documents = {each["kind"]: each for each in render(path, values | more)}
        ports = {each["name"]: (each["port"], each["targetPort"]) for each in documents["Service"]["spec"]["ports"]}
        assert ports == {"redis": (6379, "redis"), "tls": (7443, "tls")}, ports
        pod = documents["Deployment" if more else "StatefulSet"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        volumes = {each["name"]: each.get("secret", {}) for each in pod["volumes"]}
        claimed = set() if more else {"journal"}
        assert set(places) == volumes.keys() | claimed and "authorities" in places, (places, volumes)
        assert (volumes["tls"]["secretName"], volumes["acl"]["secretName"]) == ("certificates", "people")
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env["REDLATCH_TLS_CERT_FILE"] == places["tls"] + "/tls.crt" and env["REDLATCH_ACLFILE"] == places["acl"] + "/lines"
        assert env["REDLATCH_TLS_PORT"] == str(next(each["containerPort"] for each in container["ports"] if each["name"] == "tls"))
        assert env["REDLATCH_TLS_AUTH_CLIENTS"] == "no" and "REDLATCH_TLS_CA_CERT_FILE" not in env
    values["tls"]["clients"] = True
    (server,) = [each for each in render(path, values) if each["kind"] == "StatefulSet"]
    env = {each["name"] for each in server["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert "REDLATCH_TLS_CA_CERT_FILE" in env and "REDLATCH_TLS_AUTH_CLIENTS" not in env and "REDLATCH_REQUIREPASS" in env
    assert "REDLATCH_PROTECTED_MODE" not in env
    # An ACL file may have no line for `default`, which then has no password.
    values["auth"] = {"secret": ""}
    for more in [{}, {"cluster": {"etcd": ETCD}}]:
        (pods,) = [each["spec"]["template"]["spec"] for each in render(path, values | more) if "template" in each["spec"]]
        env = {each["name"]: each.get("value") for each in pods["containers"][0]["env"]}
        assert env["REDLATCH_PROTECTED_MODE"] == "yes" and "REDLATCH_REQUIREPASS" not in env, env


def check(path: pathlib.Path = CHART) -> None:
    """A chart: a folder, or the file of a release."""
    for values in [{}, {"cluster": {"etcd": ETCD}}]:
        report = helm_python.lint(path, values, strict=True)
        complaints = [message for message in report["messages"] if message["severity"] > 1]
        assert not complaints and not report["errors"], report
    check_alike(path)
    check_values(path)
    print(f"Helm {helm_python.helm_sdk_version()} reads {path.name}, which says what the manifests say")

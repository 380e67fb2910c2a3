"""The files of `deploy/`: valid by the schemas of those who read them, and true of this server."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource

from sagehen.base.config import PREFIX
from sagehen.base.settings import Settings
from support.cli import run_command
from support.postgres import running_postgres
from support.server import SAGEHEN, Server, eventually

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SCHEMAS = Path(__file__).with_name("schemas")
KINDS = {
    "Secret": "io.k8s.api.core.v1.Secret",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "Service": "io.k8s.api.core.v1.Service",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
}


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_bytes())
    return found


def validate(document: Any, described: dict[str, Any]) -> None:
    registry = Registry().with_resource(
        "kubernetes.json", Resource.from_contents(schema("kubernetes"))
    )
    jsonschema.Draft202012Validator(described, registry=registry).validate(document)


def validate_manifest(document: dict[str, Any]) -> None:
    if document["kind"] == "RayCluster":
        validate(document, schema("raycluster"))
    else:
        validate(document, {"$ref": f"kubernetes.json#/$defs/{KINDS[document['kind']]}"})


def manifests(folder: str = "kuberay") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / folder / "sagehen.yaml").read_text()))


def stateful_set() -> dict[str, Any]:
    return next(each for each in manifests("kubernetes") if each["kind"] == "StatefulSet")


def ray_cluster() -> dict[str, Any]:
    return next(each for each in manifests() if each["kind"] == "RayCluster")


def pods() -> list[dict[str, Any]]:
    spec = ray_cluster()["spec"]
    return [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


def compose() -> dict[str, Any]:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.mark.parametrize(
    ("folder", "kind"), [("kuberay", "RayCluster"), ("kubernetes", "StatefulSet")]
)
def test_the_manifests_are_valid(folder: str, kind: str) -> None:
    documents = manifests(folder)
    assert {kind, "NetworkPolicy", "Service"} <= {each["kind"] for each in documents}
    for document in documents:
        validate_manifest(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "workerGroupSpecs", 0, "replica"), 2),
        (("spec", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "volumeMount"), []),
        (("spec", "headGroupSpec", "template", "spec", "containers", 1, "envFrom", 0), "sagehen"),
    ],
)
def test_a_wrong_field_is_an_error(path: tuple[str | int, ...], value: object) -> None:
    document = ray_cluster()
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate_manifest(document)


def test_the_manifests_belong_together() -> None:
    by_kind = {each["kind"]: each for each in manifests()}
    for pod in pods():
        labels = pod["metadata"]["labels"].items()
        assert by_kind["Service"]["spec"]["selector"].items() <= labels
        for kind in ("NetworkPolicy", "PodDisruptionBudget"):
            spec = by_kind[kind]["spec"]
            selector = spec.get("podSelector") or spec["selector"]
            assert selector["matchLabels"].items() <= labels
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {each["name"] for each in container["volumeMounts"]} <= volumes.keys()
            for each in container.get("envFrom", ()):
                assert each["secretRef"]["name"] == by_kind["Secret"]["metadata"]["name"]
        claims = [
            each["persistentVolumeClaim"]
            for each in volumes.values()
            if len(each) == 2 and "persistentVolumeClaim" in each
        ]
        assert all(
            claim["claimName"] == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
            for claim in claims
        )
    # Ray's own programs are in the first container; the driver in the second shares its files.
    ray, server = pods()[0]["spec"]["containers"]
    shared = {"/tmp/ray", "/dev/shm"}
    for container in (ray, server):
        assert shared <= {each["mountPath"] for each in container["volumeMounts"]}


def test_the_stateful_set_belongs_to_its_manifests() -> None:
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in manifests("kubernetes")}
    spec = stateful_set()["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert by_name["Service", spec["serviceName"]]["spec"]["clusterIP"] == "None"
    for kind, name in by_name.keys() - {("Secret", "sagehen"), ("StatefulSet", "sagehen")}:
        its = by_name[kind, name]["spec"]
        selector = its.get("podSelector") or its["selector"]
        assert selector.get("matchLabels", selector) == labels
    (container,) = spec["template"]["spec"]["containers"]
    volumes = {each["name"] for each in spec["template"]["spec"]["volumes"]}
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert container["envFrom"][0]["secretRef"]["name"] == "sagehen"
    assert container["envFrom"][1]["secretRef"] == {"name": "sagehen-token", "optional": True}


def variables_of_a_pod(address: str) -> dict[str, str]:
    """What the container of the StatefulSet is given, at this address, as settings' names."""
    container = stateful_set()["spec"]["template"]["spec"]["containers"][0]
    limits = container["resources"]["limits"]
    given = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        value = each.get("value")
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "status.podIP"
            value = address
        elif "resourceFieldRef" in source:
            reference = source["resourceFieldRef"]
            value = limits[reference["resource"].removeprefix("limits.")]
            value = value.removesuffix(reference.get("divisor", "").lstrip("1"))
        given[each["name"].removeprefix(PREFIX).lower()] = str(value)
    # A pod has all addresses and ports to itself.
    assert given.pop("host") == "0.0.0.0"
    return given | {"host": address, "cluster_leave_seconds": "0"}


def test_pods_of_the_stateful_set_make_a_cluster(make_server: Any, server: Server) -> None:
    server.client("s3").create_bucket(Bucket="pods")
    options = {
        "endpoint": server.url,
        "access_key_id": server.env["AWS_ACCESS_KEY_ID"],
        "secret_access_key": server.env["AWS_SECRET_ACCESS_KEY"],
        "region": "us-east-1",
        "virtual_hosted_style_request": "false",
    }
    (secret,) = (each for each in manifests("kubernetes") if each["kind"] == "Secret")
    with running_postgres("127.0.0.1") as url:
        shared = dict.fromkeys(settings_in(secret["stringData"]), "")
        shared |= {
            "database_url": url,
            "object_store_url": "s3://pods/sagehen",
            "object_store_options": json.dumps(options),
        }
        assert len(shared) == len(secret["stringData"])
        first = make_server(gates=False, **shared, **variables_of_a_pod("127.0.0.2"))
        told = run_command("cluster", "token", "--home", first.home)
        assert told.status == 0, told.stderr
        token = {"cluster_token": told.stdout.strip()}
        second = make_server(gates=False, **shared, **variables_of_a_pod("127.0.0.3"), **token)

        def nodes() -> list[dict[str, Any]]:
            told = run_command("cluster", "status", "--json", "--home", second.home)
            found = json.loads(told.stdout) if told.status == 0 else {}
            return list(found.get("nodes", ()))

        eventually(lambda: [each["state"] for each in nodes()] == ["ready", "ready"])
        second.stop()
        first.stop()


@pytest.mark.ray
def test_rays_autoscaler_understands_the_cluster() -> None:
    program = """
import json, sys
from ray.autoscaler._private.kuberay import autoscaling_config
found = autoscaling_config._derive_autoscaling_config_from_ray_cr(json.load(sys.stdin))
print(json.dumps(found["available_node_types"]))
"""
    document = ray_cluster()
    document["metadata"]["namespace"] = "default"
    done = subprocess.run(
        [str(Path(SAGEHEN).with_name("python")), "-c", program],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )
    assert done.returncode == 0, done.stderr
    types = json.loads(done.stdout.splitlines()[-1])
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["cpu"]["resources"]["CPU"] == 8
    assert (types["cpu"]["min_workers"], types["cpu"]["max_workers"]) == (2, 10)


def test_the_compose_file_is_valid() -> None:
    validate(compose(), schema("compose"))
    wrong = compose()
    wrong["services"]["server"]["port"] = [9000]
    with pytest.raises(jsonschema.ValidationError):
        validate(wrong, schema("compose"))


def test_variables_of_the_compose_file_are_in_the_example() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    needed = set(re.findall(r"\$\{([A-Z_]+):\?", text))
    example = (DEPLOY / "compose" / "env.example").read_text()
    assert needed <= set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))


def settings_in(environment: Any) -> set[str]:
    names = environment if isinstance(environment, dict) else [each["name"] for each in environment]
    return {name.removeprefix(PREFIX).lower() for name in names if name.startswith(PREFIX)}


def test_all_settings_exist() -> None:
    used = set()
    for service in compose()["services"].values():
        used |= settings_in(service.get("environment", {}))
    for document in manifests():
        used |= settings_in(document.get("stringData", {}))
    (secret,) = (each for each in manifests("kubernetes") if each["kind"] == "Secret")
    used |= settings_in(secret["stringData"])
    for pod in (*pods(), stateful_set()["spec"]["template"]):
        for container in pod["spec"]["containers"]:
            used |= settings_in(container.get("env", []))
    unit = (DEPLOY / "systemd" / "sagehen.service").read_text()
    used |= settings_in(dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE)))
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    used |= settings_in(dict(re.findall(r"\b(SAGEHEN_\w+)=(\S+)", dockerfile)))
    assert {"database_url", "cluster_host", "home"} <= used
    assert used <= Settings.model_fields.keys()


def test_all_commands_exist() -> None:
    containers = [each for pod in pods() for each in pod["spec"]["containers"]]
    commands = [each["args"] for each in containers if "args" in each]
    commands += [
        each["lifecycle"]["preStop"]["exec"]["command"][1:]
        for each in containers
        if "lifecycle" in each
    ]
    unit = (DEPLOY / "systemd" / "sagehen.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    commands.append(shlex.split(start)[1:])
    assert len(commands) == 3
    for command in commands:
        told = run_command(*command, "--help")
        assert told.status == 0, told.stderr


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "systemd" / "sagehen.service").read_text()
    unit = tmp_path / "sagehen.service"
    # It looks for the program, too.
    unit.write_text(text.replace("/opt/sagehen/bin/sagehen", "/bin/true"))
    assert verify(unit) == ""
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillModes=mixed"))
    assert "KillModes" in verify(unit)


def verify(unit: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "".join(line for line in done.stderr.splitlines(keepends=True) if unit.name in line)

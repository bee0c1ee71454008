"""Deployments: what can be read in their files without starting anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from places import ROOT
from processes import family, listening

FOLDER = ROOT / "deployments"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc")
SCRIPTS = [path for path in FILES if path.suffix in {".sh", ".sbatch"}]
PLACES = sorted(path.parent.name for path in FOLDER.glob("*/README.md"))
KINDS = sorted(path.name for path in (FOLDER / "kubernetes").glob("[!k]*.yaml"))  # no overlay


def label(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def documents(path: Path) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the operator's definitions are long
    return [found for found in yaml.load_all(path.read_text(), loader) if found]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = documents(FOLDER / "compose" / "compose.yaml")[0]
    return found


def manifests() -> list[Any]:
    return [found for name in KINDS for found in documents(FOLDER / "kubernetes" / name)]


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a tree."""
    if isinstance(tree, dict):
        yield tree
    children = tree.values() if isinstance(tree, dict) else tree
    for child in children if isinstance(tree, dict | list) else ():
        yield from nodes(child)


def pods() -> list[dict[str, Any]]:
    """Every specification of a pod in the Kubernetes files."""
    return [node for found in manifests() for node in nodes(found) if "containers" in node]


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of Dask in the files for containers."""
    services = compose()["services"]
    found = [(f"compose {name}", service["command"]) for name, service in services.items()]
    for manifest in manifests():
        for node in nodes(manifest):
            for one in node.get("containers", ()):
                found.append((f"{manifest['kind']} {one['name']}", one["args"]))
    return [(name, [str(word) for word in words]) for name, words in found if words[0] == "dask"]


# ------------------------------------------------------------------------------------- every file


def test_each_place_tells_what_it_needs_and_how_it_is_run() -> None:
    assert PLACES == ["compose", "kubernetes", "local", "slurm"]
    for place in PLACES:
        text = (FOLDER / place / "README.md").read_text()
        words = re.findall(r"^\*\*(\w+)", text, re.MULTILINE)
        known = [word for word in words if word in {"Needs", "Up", "Run", "Look", "Down"}]
        assert known == ["Needs", "Up", "Run", "Look", "Down"], place
        assert "rff-stream fit" in text or "fit.sbatch fit" in text, place


def test_commands_in_the_readmes_have_options_that_exist() -> None:
    from rff_stream.cli.fit import fit

    known = {option for parameter in fit.params for option in parameter.opts}
    for path in FILES:
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"(?:rff-stream|fit\.sbatch) fit .*", text):
            assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= known, (label(path), line)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_no_file_holds_a_secret(path: Path) -> None:
    text = path.read_text()
    secret = r"-----BEGIN|AKIA[0-9A-Z]{16}|\b(password|secret_key|token)\s*[:=]"
    assert not re.search(secret, text, re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_nothing_listens_on_every_address(path: Path) -> None:
    text = path.read_text()
    assert "0.0.0.0:" not in text
    assert "--no-dashboard" not in text.replace("# --no-dashboard", "")


@pytest.mark.parametrize("path", SCRIPTS, ids=label)
def test_shell_scripts_are_checked(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    beside = Path(sys.executable).with_name("shellcheck")
    checker = beside if beside.exists() else shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed; make lint runs it.")
    subprocess.run([checker, "--shell=bash", path], check=True)


@pytest.mark.parametrize("path", SCRIPTS, ids=label)
def test_shell_scripts_stop_at_the_first_fault(path: Path) -> None:
    text = path.read_text()
    assert "\nset -euo pipefail\n" in text or "To be sourced" in text


# ------------------------------------------------------------------------- Dask's configuration


def test_every_line_of_dasks_configuration_says_why() -> None:
    for line in (FOLDER / "dask.yaml").read_text().splitlines():
        sets = not line.startswith("#") and not re.fullmatch(r"\s*[\w-]+:", line)
        assert not sets or re.search(r" # \S+", line), line


def test_every_setting_is_known_to_dask_or_to_us() -> None:
    import distributed

    defaults = yaml.safe_load((Path(distributed.__file__).parent / "distributed.yaml").read_text())
    ours = documents(FOLDER / "dask.yaml")[0]
    source = "".join(path.read_text() for path in (ROOT / "rff_stream").rglob("*.py"))
    assert set(ours["rff-stream"]) <= set(re.findall(r'\bseconds\("([\w-]+)"', source))

    def check(mine: Any, theirs: Any, place: str) -> None:
        for name, value in mine.items():
            assert name in theirs, f"{place}.{name}"
            if isinstance(value, dict):
                check(value, theirs[name], f"{place}.{name}")

    check(ours["distributed"], defaults["distributed"], "distributed")


def test_tls_is_the_only_way_in() -> None:
    comm = documents(FOLDER / "dask.yaml")[0]["distributed"]["comm"]
    assert comm["require-encryption"] is True
    for name, words in commands():
        assert "--protocol=tls" in words, name
        assert any(word.startswith("--dashboard-address=127.0.0.1:") for word in words), name
        assert any(word.startswith(("--host=", "--interface=")) for word in words), name
    for path in FILES:
        if path.parent.name != "local":
            addresses = re.findall(r"\b(\w+)://[\w.$({-]*(?:scheduler|ADDRESS)", path.read_text())
            assert set(addresses) <= {"tls"}, label(path)


def test_a_job_starts_what_a_cluster_starts() -> None:
    lines = dict(commands())
    for role in ("scheduler", "worker"):
        assert lines[f"DaskJob {role}"] == lines[f"DaskCluster {role}"]


@pytest.mark.parametrize(("name", "words"), commands(), ids=[name for name, _ in commands()])
def test_options_of_dask_are_those_of_its_help(name: str, words: list[str]) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    program = {"scheduler": dask_scheduler, "worker": dask_worker}[words[1]].main
    known = {option for one in program.params for option in (*one.opts, *one.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known


# --------------------------------------------------------------------------------------- the image


def test_the_image_is_pinned_and_runs_as_nobody() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(bases) == 2
    for base in bases:
        name = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base)
        assert re.search(r":\d[\w.-]+@sha256:[0-9a-f]{64}$", name), base
    last = text[text.rindex("\nFROM ") :]
    (user,) = re.findall(r"^USER (\d+):\d+$", last, re.MULTILINE)
    assert int(user) > 1000
    assert "apt-get" not in text
    assert text.count("--require-hashes --only-binary=:all:") == 2


def test_the_lock_holds_what_the_package_needs() -> None:
    locked = {}
    for entry in re.split(r"\n(?=\S)", (FOLDER / "requirements.lock").read_text().strip())[1:]:
        name, _, rest = entry.partition("==")
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", rest)) in (1, 2), name
        assert name not in locked
        locked[name] = rest.split()[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"]["s3"]]:
        need = Requirement(text)
        assert need.specifier.contains(locked[need.name.lower()]), text
    assert "prometheus" not in (FOLDER / "dask.yaml").read_text() or "prometheus-client" in locked


# ------------------------------------------------------------------------------------------ compose


def test_containers_of_compose_are_locked_down() -> None:
    found = compose()
    assert found["networks"]["cluster"]["internal"] is True
    for name, service in found["services"].items():
        assert not {"ports", "privileged", "network_mode", "env_file"} & service.keys(), name
        assert service["user"].count(":?") == 2, "who runs it must be said; there is no default"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["networks"] == ["cluster"]
        assert service["mem_limit"] and service["pids_limit"] and service["cpus"]
        assert service["restart"] == ("no" if name == "job" else "always")
        assert "environment" not in service, "secrets are files"
        assert {secret["target"] for secret in service["secrets"]} == {
            f"/run/secrets/dask/{file}.pem" for file in ("ca", "cert", "key")
        }
        own = {"scheduler": "scheduler", "worker": "worker", "job": "client"}[name]
        assert {secret["source"] for secret in service["secrets"]} == {"ca", own, f"{own}-key"}
        for volume in service.get("volumes", ()):
            assert volume.get("read_only") or volume["target"] == "/models"
        written = {one["target"] for one in service.get("volumes", ()) if "read_only" not in one}
        assert written == (set() if name == "scheduler" else {"/models"}), "predict writes there"
    for name in ("scheduler", "worker"):
        service = found["services"][name]
        (port,) = re.findall(r"--dashboard-address=127.0.0.1:(\d+)", " ".join(service["command"]))
        check = service["healthcheck"]["test"][-1]
        assert f"127.0.0.1/{port} " in check and "GET /health HTTP/1.0\r\n\r'" in check
    assert all(set(secret) == {"file"} for secret in found["secrets"].values())


def test_memory_of_a_container_holds_what_its_worker_spills() -> None:
    """Scratch is in memory: the kernel counts a spilled byte as one of the container's."""
    from dask.utils import parse_bytes

    worker = compose()["services"]["worker"]
    assert worker["tmpfs"][0].startswith("/tmp:") and "--local-directory=/tmp" in worker["command"]
    (limit,) = re.findall(r"--memory-limit=\$\{RFF_MEMORY:-(\w+)\}", " ".join(worker["command"]))
    (container,) = re.findall(r"^\$\{RFF_MEMORY_WITH_NANNY:-(\d+)m\}$", worker["mem_limit"])
    spilled = documents(FOLDER / "dask.yaml")[0]["distributed"]["worker"]["memory"]["max-spill"]
    more = parse_bytes(spilled) + 2**29
    assert int(container) * 2**20 == parse_bytes(limit) + more
    text = (FOLDER / "compose" / "README.md").read_text()
    ((limit, container),) = re.findall(r"RFF_MEMORY=(\w+) RFF_MEMORY_WITH_NANNY=(\d+)m", text)
    assert int(container) * 2**20 == parse_bytes(limit) + more


# --------------------------------------------------------------------------------------- kubernetes


def test_pods_are_locked_down() -> None:
    found = pods()
    assert len(found) == 6
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        person = pod["securityContext"]
        assert person["runAsNonRoot"] is True
        assert min(person["runAsUser"], person["runAsGroup"], person["fsGroup"]) > 1000
        assert person["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.get("restartPolicy", "Always") in {"Always", "OnFailure"}
        assert pod.get("restartPolicy") != "OnFailure" or pod["activeDeadlineSeconds"] > 0
        for container in pod["containers"]:
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
            locked = container["securityContext"]
            assert locked["allowPrivilegeEscalation"] is False
            assert locked["readOnlyRootFilesystem"] is True
            assert locked["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in container.get("ports", ()))
            assert not {"envFrom", "privileged"} & container.keys()
        for volume in pod["volumes"]:
            assert "hostPath" not in volume
            assert volume.get("emptyDir", {"sizeLimit": ""}).keys() == {"sizeLimit"}
            assert volume.get("secret", {"defaultMode": 0o440})["defaultMode"] == 0o440


def test_what_starts_again_goes_on() -> None:
    """Sums are kept beside the model: it stands where a restart finds it, and is no URL."""
    script = (FOLDER / "slurm" / "fit.sbatch").read_text()
    assert "\n#SBATCH --requeue" in script and "\n#SBATCH --signal=TERM@" in script
    assert "--model M.zarr" in script
    (job,) = (found["spec"]["job"]["spec"] for found in manifests() if found["kind"] == "DaskJob")
    assert job["restartPolicy"] == "OnFailure"
    (container,) = job["containers"]
    places = {one["name"]: one for one in container["volumeMounts"] if not one.get("readOnly")}
    lasting = {one["name"] for one in job["volumes"] if "persistentVolumeClaim" in one}
    (model,) = (word.partition("=")[2] for word in container["args"] if "--model=" in word)
    (kept,) = places.keys() & lasting
    assert Path(model).parent == Path(places[kept]["mountPath"])
    service = compose()["services"]["job"]
    assert {one["target"]: one["type"] for one in service["volumes"]}["/models"] == "bind"
    for place in PLACES:
        text = (FOLDER / place / "README.md").read_text()
        assert "goes on" in text and ".checkpoint`" in text, place
        assert "anew" not in text


def test_images_have_a_version_and_are_one() -> None:
    places = nodes([compose()["services"], manifests()])
    images = {node["image"] for node in places if "image" in node}
    assert {image.rpartition("/")[2] for image in images} == {f"rff-stream:{version('rff_stream')}"}


def test_services_are_for_the_cluster_alone() -> None:
    services = [node["service"] for node in nodes(manifests()) if "service" in node]
    assert len(services) == 2
    for service in services:
        assert service["type"] == "ClusterIP"
        assert [port["port"] for port in service["ports"]] == [8786]
        assert service["selector"]["dask.org/component"] == "scheduler"


def test_the_namespace_lets_nothing_in_that_is_not_named() -> None:
    found = documents(FOLDER / "kubernetes" / "namespace.yaml")
    (namespace,) = (one for one in found if one["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    chosen = [one for one in found if one["kind"] == "NetworkPolicy"]
    policies = {one["metadata"]["name"]: one["spec"] for one in chosen}
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name in ("to-scheduler", "to-workers"):
        for rule in policies[name]["ingress"]:
            assert rule["from"], name
            assert all(one.keys() == {"podSelector"} for one in rule["from"]), name
    assert {"ResourceQuota", "PodDisruptionBudget"} <= {one["kind"] for one in found}
    assert {one["metadata"].get("namespace", "rff") for one in manifests()} == {"rff"}


def test_workers_go_to_the_scheduler_of_their_own_cluster() -> None:
    for found in manifests():
        for node in nodes(found):
            if node.get("name") == "DASK_SCHEDULER_ADDRESS":
                own = found["metadata"]["name"].replace("desk", "rff")
                assert node["value"] == f"tls://{own}-scheduler.rff.svc:8786"


def test_every_pod_may_speak_and_is_heard() -> None:
    """Labels of the policies are those that clusters, jobs and the desk carry."""
    for found in manifests():
        if found["kind"] in {"DaskCluster", "DaskJob", "Pod"}:
            labels = found["metadata"]["labels"]
            assert labels["app.kubernetes.io/part-of"] == "rff-stream"
            if found["kind"] == "DaskJob":
                labels = found["spec"]["job"]["metadata"]["labels"]
            assert found["kind"] == "DaskCluster" or labels["rff-stream/role"] == "client"


def crds() -> Path:
    """The operator's definitions of its resources, as it installs them."""
    import importlib.util

    spec = importlib.util.find_spec("dask_kubernetes")
    if spec is None or spec.origin is None:
        pytest.skip("dask-kubernetes is not installed (extra manifests).")
    inside = "operator/deployment/helm/dask-kubernetes-operator/crds"
    return Path(spec.origin).parent / inside


@pytest.mark.optional
@pytest.mark.parametrize("kind", ["DaskCluster", "DaskJob"])
def test_manifests_are_what_the_operator_expects(kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    (definition,) = documents(crds() / f"{kind.lower()}.yaml")
    schema = closed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    (found,) = (one for one in manifests() if one["kind"] == kind)
    jsonschema.validate(found, schema)
    for broken in ("replicas", "args"):
        holder = next(node for node in nodes(found) if broken in node)
        holder[broken + "s"] = holder.pop(broken)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found, schema)
        holder[broken] = holder.pop(broken + "s")


@pytest.mark.optional
def test_the_overlay_sets_what_is_yours_and_fits_the_schemas() -> None:
    """Dask's kinds by the operator's definitions, the others by those of Kubernetes."""
    jsonschema = pytest.importorskip("jsonschema")
    kubernetes = pytest.importorskip("kubernetes_validate")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed.")
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER / "kubernetes"], capture_output=True, text=True, check=True
    )
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert {"DaskCluster", "Pod"}.isdisjoint({each["kind"] for each in found})
    assert len(found) == 10
    for each in found:
        if each["kind"] == "DaskJob":
            (definition,) = documents(crds() / "daskjob.yaml")
            schema = closed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
            jsonschema.validate(each, schema)
        else:
            kubernetes.validate(each, "1.29", strict=True)


def test_the_overlay_starts_from_the_values_of_the_files() -> None:
    (overlay,) = documents(FOLDER / "kubernetes" / "kustomization.yaml")
    assert overlay["resources"] == ["namespace.yaml", "cluster.yaml", "job.yaml"] == [
        "namespace.yaml", *KINDS[:2]
    ]  # fmt: skip
    (image,) = overlay["images"]
    assert image["name"] == image["newName"] and image["newTag"] == version("rff_stream")
    (job,) = (found["spec"] for found in manifests() if found["kind"] == "DaskJob")
    (patch,) = (each for each in overlay["patches"] if each["target"]["kind"] == "DaskJob")
    args, replicas = yaml.safe_load(patch["patch"])
    assert args["value"] == job["job"]["spec"]["containers"][0]["args"]
    assert replicas["value"] == job["cluster"]["spec"]["worker"]["replicas"]


# ------------------------------------------------------------------------------------------- conda


def test_the_recipe_for_conda_asks_for_what_the_package_needs() -> None:
    (recipe,) = documents(FOLDER / "conda" / "recipe.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needs = [f"python{project['project']['requires-python']}"]
    needs += [
        text.replace("dask[array]", "dask-core") for text in project["project"]["dependencies"]
    ]
    assert [text.replace(" ", "") for text in recipe["requirements"]["run"]] == needs
    built = [text.replace(" ", "") for text in recipe["requirements"]["host"]]
    assert built == [needs[0], "pip", *project["build-system"]["requires"]]
    assert recipe["context"]["version"] == version("rff_stream")
    (entry,) = recipe["build"]["python"]["entry_points"]
    name, _, place = entry.partition(" = ")
    assert project["project"]["scripts"] == {name: place}
    urls = project["project"]["urls"]
    about = recipe["about"]
    assert (about["homepage"], about["documentation"]) == (urls["Homepage"], urls["Documentation"])


@pytest.mark.optional
def test_the_recipe_for_conda_is_one_that_its_tool_reads() -> None:
    conda = pytest.importorskip("rattler_build")
    recipe = conda.Stage0Recipe.from_file(str(FOLDER / "conda" / "recipe.yaml"))
    (variant,) = recipe.render(conda.VariantConfig(), conda.RenderConfig())
    found = variant.recipe.to_dict()
    assert found["package"] == {"name": "rff_stream", "version": version("rff_stream")}
    assert found["build"]["noarch"] == "python"


def closed(schema: Any) -> Any:
    """A schema that refuses what it does not name: Kubernetes would drop it in silence."""
    for node in nodes(schema):
        named = isinstance(node.get("properties"), dict)
        if named and not node.get("x-kubernetes-preserve-unknown-fields"):
            node.setdefault("additionalProperties", False)
        if node.get("x-kubernetes-int-or-string"):
            node.pop("type", None)
    schema["additionalProperties"] = True  # apiVersion, kind and metadata
    return schema


# -------------------------------------------------------------------------------------------- local


@pytest.mark.cluster
def test_the_local_cluster_comes_up_and_goes_down(tmp_path: Path) -> None:
    from distributed import Client

    script = FOLDER / "local" / "cluster.sh"
    folder = tmp_path / "cluster"
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"CLUSTER_FOLDER": str(folder), "PATH": binaries}
    with (tmp_path / "out").open("w") as out:
        up = [script, "up", "1", "1GiB"]
        subprocess.run(up, env=environment, stdout=out, check=True, timeout=90)
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    try:
        address = (folder / "address").read_text().strip()
        assert address.startswith("tcp://127.0.0.1:")
        with Client(address, timeout=60) as client:
            client.wait_for_workers(1, timeout=90)
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
            found = listening([one for pid in pids for one in family(pid)])
            assert {address for address, _ in found} == {"127.0.0.1"}
    finally:
        subprocess.run([script, "down"], env=environment, check=True, timeout=60)
    assert not folder.exists()
    assert len(pids) == 2

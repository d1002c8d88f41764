"""What an autoscaler may add, by `ray up` and by KubeRay: pytest tests/study/cluster/test_autoscaler.py

A server on loopback, with a certificate of its own, stands for that of Kubernetes.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from helpers.kuberay_schema import shipped_job
from helpers.places import PATIENCE_SECONDS, ROOT

from study.cluster.ray_cluster import RayNodes
from study.cluster.resources import Autoscaler, Resources, WorkerKind

pytestmark = pytest.mark.slow

SPECIFICATION = shipped_job()["spec"]["rayClusterSpec"]
RAY_CLUSTER = {"metadata": {"name": "study", "namespace": "lab"}, "spec": SPECIFICATION}
ASK = """
import sys; from pathlib import Path
from study.cluster import resources
resources.ACCOUNT = Path(sys.argv[1])
print(resources.Autoscaler.read())
"""


def answer(cluster: dict | None) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/apis/ray.io/v1/namespaces/lab/rayclusters/study" and cluster is not None
            self.send_response(200 if found else 403)
            self.end_headers()
            self.wfile.write(json.dumps(cluster).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Answer


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"]
    named = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run(["openssl", "req", "-x509", *made, *named], check=True, capture_output=True)
    return tmp_path / "certificate"


@pytest.fixture
def kubernetes(request: pytest.FixtureRequest, tmp_path: Path, certificate: Path) -> Iterator[dict[str, str]]:
    """The environment of the head's pod; the server answers with the parameter."""
    (tmp_path / "namespace").write_text("lab\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), answer(request.param))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield {
        "RAY_CLUSTER_NAME": "study",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT_HTTPS": str(server.server_port),
        "RAY_KUBERAY_CA_CERT_PATH": str(certificate),
        "RAY_KUBERAY_CLIENT_CERT_PATH": str(certificate),
        "RAY_KUBERAY_CLIENT_KEY_PATH": str(tmp_path / "key"),
    }
    server.shutdown()
    server.server_close()
    thread.join(timeout=PATIENCE_SECONDS)


def here(environment: dict[str, str], account: Path) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", ASK, str(account)]
    own = os.environ | {"HOME": str(account)} | environment
    return subprocess.run(run, env=own, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("kubernetes", [RAY_CLUSTER], indirect=True)
def test_kuberay_says_which_workers_of_the_shipped_job_may_come(kubernetes, tmp_path):
    memory = 12 * 2**30
    kind = WorkerKind(name="gpu-worker", resources={"CPU": 3, "GPU": 1, "memory": memory}, most=8)
    eight = Autoscaler(most=8, kinds=(kind,))
    done = here(kubernetes, tmp_path)
    assert done.stdout == f"{eight}\n", done.stderr
    assert Resources(nodes=RayNodes(), cpus=1, gpus=0.5, autoscaler=eight).count_slots_to_come() == 16


@pytest.mark.parametrize(
    "kubernetes",
    [None, {**RAY_CLUSTER, "spec": {**SPECIFICATION, "enableInTreeAutoscaling": False}}],
    ids=["not allowed", "does not scale"],
    indirect=True,
)
def test_fixed_or_unreadable_cluster_has_no_autoscaler(kubernetes, tmp_path):
    done = here(kubernetes, tmp_path)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_ray_up_file_is_read_first(tmp_path):
    assert here({}, tmp_path).stdout == "None\n"
    shutil.copy(ROOT / "cluster.yaml", tmp_path / "ray_bootstrap_config.yaml")
    expected = Autoscaler.from_configuration(yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    assert here({"RAY_CLUSTER_NAME": "study"}, tmp_path).stdout == f"{expected}\n"
    assert (expected.most, [kind.name for kind in expected.kinds]) == (8, ["gpu_worker"])

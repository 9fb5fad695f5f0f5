"""Run a real Kubernetes API server, with etcd from Debian's package; it has no kubelet, so pods never run.

The API server and kubectl are built from Kubernetes' modules. The build takes minutes, but only once: the cache keeps
both programs.
"""

import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from lakefeed_local.part import LOOPBACK, choose_free
from lakefeed_local.servers import GoProgram
from tests.support.servers.authority import Authority
from tests.support.servers.debian import unpack_packages
from tests.support.servers.process import answers, running

VERSION = "v1.36.3"
_STAMP = "k8s.io/component-base/version.git"
_STAMPS = f"-X {_STAMP}Version={VERSION} -X {_STAMP}Major=1 -X {_STAMP}Minor=36"
PROGRAM = GoProgram(
    name="kube-apiserver",
    # The API server and kubectl.
    package="./...",
    version=VERSION,
    module=Path(__file__).parent / "kubernetes",
    flags=("-trimpath", "-ldflags", f"-s -w {_STAMPS}"),
)
ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class KubernetesApi:
    """A running API server.

    Attributes:
        url: the server's address.
        folder: the folder of the files of the server and its users.
        authority: the certificate (PEM) of the authority that signed the server's certificate.
        tokens: the login token of each user.
    """

    url: str
    folder: Path
    authority: Path
    tokens: dict[str, str]

    def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as a user, and wait for its end."""
        return subprocess.run(
            [str(self._kubectl), *arguments],
            env=self.environment(user),
            cwd=self.folder,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def do(self, *arguments: str, user: str = ADMIN, stdin: str | None = None) -> str:
        """Run kubectl, which must succeed; return its output."""
        done = self.kubectl(*arguments, user=user, stdin=stdin)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def environment(self, user: str = ADMIN) -> dict[str, str]:
        """Return the variables of a user's shell, in which kubectl is on the path and finds the server."""
        home = self.folder / user
        home.mkdir(exist_ok=True)
        config = home / "config"
        if not config.exists():
            config.write_text(_kubeconfig(self.url, self.authority, self.tokens[user]))
        path = f"{self._kubectl.parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(home), "KUBECONFIG": str(config)}

    @property
    def _kubectl(self) -> Path:
        return PROGRAM.path.with_name("kubectl")


def _kubeconfig(url: str, authority: Path, token: str) -> str:
    return (
        f"apiVersion: v1\nkind: Config\ncurrent-context: test\n"
        f"clusters: [{{name: test, cluster: {{server: '{url}', certificate-authority: '{authority}'}}}}]\n"
        f"users: [{{name: test, user: {{token: '{token}'}}}}]\n"
        "contexts: [{name: test, context: {cluster: test, user: test}}]\n"
    )


@contextmanager
def kubernetes_api(folder: Path, *, users: tuple[str, ...] = ()) -> Iterator[KubernetesApi]:
    """Run an API server until the block ends; ``users`` have no rights until a test grants some."""
    PROGRAM.build(log=folder / "build.log")
    authority = Authority(folder / "authority")
    own = authority.sign("kube-apiserver", "localhost", LOOPBACK, "kubernetes.default.svc")
    public = folder / "accounts.pub"
    private = serialization.load_pem_private_key(own.key.read_bytes(), None)
    public.write_bytes(
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    tokens = {name: secrets.token_hex(16) for name in (ADMIN, *users)}
    lines = [
        f"{token},{name},{name}" + (',"system:masters"' if name == ADMIN else ",") for name, token in tokens.items()
    ]
    known = folder / "tokens.csv"
    known.write_text("\n".join(lines) + "\n")
    with ExitStack() as servers:
        store = servers.enter_context(_etcd(folder))
        port = choose_free(avoid=())
        options = {
            "etcd-servers": store,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": str(port),
            "tls-cert-file": str(own.certificate),
            "tls-private-key-file": str(own.key),
            "service-account-issuer": f"https://localhost:{port}",
            "service-account-key-file": str(public),
            "service-account-signing-key-file": str(own.key),
            "token-auth-file": str(known),
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            # The plug-in ServiceAccount adds tokens that a controller creates, but no controller runs here.
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",
        }
        api = KubernetesApi(url=f"https://localhost:{port}", folder=folder, authority=authority.file, tokens=tokens)
        command = [str(PROGRAM.path), *(f"--{name}={value}" for name, value in options.items())]
        servers.enter_context(running(command, log=folder / "kube-apiserver.log", ready=lambda: _is_ready(api)))
        yield api


@contextmanager
def _etcd(folder: Path) -> Iterator[str]:
    program = unpack_packages("etcd-server") / "usr" / "bin" / "etcd"
    port = choose_free(avoid=())
    url, peers = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{choose_free(avoid=(port,))}"
    options = {"data-dir": str(folder / "etcd"), "listen-client-urls": url, "advertise-client-urls": url}
    options["listen-peer-urls"] = peers
    command = [str(program), *(f"--{name}={value}" for name, value in options.items()), "--unsafe-no-fsync"]

    with running(command, log=folder / "etcd.log", ready=lambda: answers(f"{url}/health")):
        yield url


def _is_ready(api: KubernetesApi) -> bool:
    context = ssl.create_default_context(cafile=str(api.authority))
    asked = urllib.request.Request(f"{api.url}/readyz", headers={"Authorization": f"Bearer {api.tokens[ADMIN]}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(asked, timeout=2) as answer:
            return bool(answer.read() == b"ok")
    except (OSError, urllib.error.HTTPError):
        return False

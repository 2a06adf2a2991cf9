"""The run page's add-on: what it renders, with which rights, and what its section of the stack file rejects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.addons import run_page
from infra.cli.render import ROOT
from infra.config import ConfigError, StackConfig, add_ons, parse, platform_record, stack_values
from infra.domain import naming
from infra.tenancy import access

DIGEST = "@sha256:" + "1" * 64
SECTION: dict[str, Any] = {
    "image": f"registry.test/ops{DIGEST}",
    "proxyImage": f"quay.io/oauth2-proxy/oauth2-proxy{DIGEST}",
    "url": "https://runs.acme.test",
    "issuer": "https://id.acme.test",
    "clientId": "page",
    "secretName": "page-oidc",
}


def stack(**changes: Any) -> StackConfig:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    return parse(values | {"runPage": SECTION | changes})


def rendered(**changes: Any) -> dict[str, Any]:
    found = add_ons.plan(run_page.RUN_PAGE, stack(**changes))
    return {one["kind"]: one for one in (*found.before, *found.objects)}


def test_a_stack_has_the_page_only_with_its_section() -> None:
    bare = parse(stack_values(ROOT / "Pulumi.local.yaml"))
    assert "runPage" not in platform_record.installed(bare)
    assert "runPage" in platform_record.installed(stack())


def test_only_the_proxy_is_reached_and_only_it_reaches_the_page() -> None:
    found = rendered()
    page, proxy = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert page["args"][:3] == ["-m", "ops", "ui"] and "--behind-proxy" in page["args"]
    assert "ports" not in page and "httpGet" not in page["readinessProbe"]
    assert f"--upstream=http://127.0.0.1:{run_page.PORT}/" in proxy["args"]
    assert "--skip-auth-strip-headers=true" in proxy["args"]
    policy = found["NetworkPolicy"]["spec"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": run_page.PROXY_PORT}]}]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert proxy["ports"] == [{"name": "http", "containerPort": run_page.PROXY_PORT}]


def test_pods_have_no_privileges_and_secrets_come_from_a_secret() -> None:
    spec = rendered()["Deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
    sources = [one["valueFrom"]["secretKeyRef"]["name"] for one in spec["containers"][1]["env"]]
    assert sources == ["page-oidc", "page-oidc"]


def test_its_rights_are_reads_and_reviews_and_in_teams_what_every_member_sees() -> None:
    found = rendered()
    verbs = {
        (resource, verb)
        for rule in found["ClusterRole"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {v for r, v in verbs if r != "subjectaccessreviews"} == {"get", "list"}
    assert {v for r, v in verbs if r == "subjectaccessreviews"} == {"create"}
    assert not {"pods", "configmaps", "secrets", "users"} & {r for r, _ in verbs}
    for rule in access.PAGE_RULES:
        assert {*rule["verbs"]} <= {"get", "list"} and "secrets" not in rule["resources"]
    role, binding = access.page_access("research")
    assert role["metadata"]["namespace"] == naming.namespace("research")
    [subject] = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == ("trainyard-page", "run-page")


def test_an_ingress_has_the_host_and_tls() -> None:
    assert "Ingress" not in rendered()
    ingress = {
        "className": "alb",
        "tlsSecretName": "page-tls",
        "annotations": {"alb.ingress.kubernetes.io/scheme": "internal"},
    }
    found = rendered(ingress=ingress)["Ingress"]
    assert found["spec"]["tls"] == [{"hosts": ["runs.acme.test"], "secretName": "page-tls"}]
    assert found["spec"]["rules"][0]["host"] == "runs.acme.test"
    assert found["metadata"]["annotations"] == ingress["annotations"]


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"image": "registry.test/ops:v1"}, "image-reference", "runPage.image"),
        ({"image": "sandbox.trainyard.dev/ops@source"}, "image-without-digest", "runPage.image"),
        ({"url": "http://runs.acme.test"}, "url", "runPage.url"),
        ({"groupsPrefix": "system:"}, "prefix", "runPage.groupsPrefix"),
        ({"clientId": "a b"}, "text", "runPage.clientId"),
        ({"secretName": None}, "", "runPage.secretName"),
        ({"ingres": {}}, "unknown-key", "runPage.ingres"),
    ],
)
def test_a_bad_section_is_one_issue(change: dict[str, Any], code: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stack(**change)
    [issue] = caught.value.issues
    assert not isinstance(issue, str) and issue.path == path
    assert code in ("", issue.code)

"""Where an S3 store's settings come from, and that a changed setting is seen."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

import skipstone as sk
from skipstone.errors import ReadError, UsageError
from skipstone.store.objects import open_obstore
from skipstone.store.options import StoreOptions, option_name, with_credentials

KEYS = ("aws_access_key_id", "aws_secret_access_key")


@pytest.fixture
def uri(s3: dict[str, str]) -> str:
    """A lake of one file in the bucket."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"i": [1, 2, 3]}), sink)
    config = {name.removeprefix("aws_"): value for name, value in s3.items()}
    S3Store("bucket", config=config).put("settings/f.parquet", sink.getvalue().to_pybytes())
    return "s3://bucket/settings"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, and no settings in the environment."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


def profiles(home: Path, config: str, credentials: str = "") -> None:
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(credentials)


def count(uri: str, **options: Any) -> int:
    return sk.open(uri, **options).scan("i > 1").count()


def refusal(uri: str, **options: Any) -> str:
    with pytest.raises((ReadError, UsageError)) as info:
        count(uri, **options)
    return str(info.value)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("aws_endpoint", "127.0.0.1:9000", "aws_endpoint is not a URL"),
        ("endpoint", "", "endpoint is not a URL"),
        ("AWS_ENDPOINT_URL", "localhost", "AWS_ENDPOINT_URL is not a URL"),
        ("aws_endpoint", " http://127.0.0.1:1", "aws_endpoint begins or ends with white space"),
        ("AWS_ACCESS_KEY_ID", "key\n", "AWS_ACCESS_KEY_ID begins or ends with white space"),
        ("aws_region", "us\teast", "aws_region begins or ends with white space, or contains control"),
    ],
)
def test_settings_that_obstore_would_panic_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    options: dict[str, str] = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    if name.isupper():
        monkeypatch.setenv(name, value)
    else:
        options[name] = value
    told = refusal("s3://bucket/settings", storage_options=options)
    assert problem in told
    assert f"fix {name}" in told or f"scheme to {name}" in told


def test_settings_of_the_client_among_those_of_the_store(home: Path, uri: str, s3: dict[str, str]) -> None:
    assert count(uri, storage_options={**s3, "timeout": "9s", "aws_connect_timeout": "9s"}) == 2


def test_settings_that_come_later_help(
    uri: str, s3: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure names the next setting, in one process, until it works."""
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # and not the one of this machine
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3["aws_endpoint"])
    assert re.search(r"no credentials found \(.*AWS_PROFILE, or AWS_ACCESS_KEY_ID", refusal(uri))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert "plain HTTP is not allowed (set AWS_ALLOW_HTTP=true" in refusal(uri)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert count(uri) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "AWS_ENDPOINT_URL" in refusal(uri, retry=sk.RetryPolicy(attempts=1))
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3["aws_endpoint"])
    assert count(uri) == 2
    assert "plain HTTP" in refusal(uri, storage_options={"allow_http": False})
    monkeypatch.setenv("AWS_ALLOW_HTTP", "perhaps")
    assert "setting AWS_ALLOW_HTTP is not true or false" in refusal(uri)


def test_one_environment_shares_one_store(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_obstore("s3://bucket", s3, "s3://bucket/x")
    assert open_obstore("s3://bucket", s3, "s3://bucket/y") is first
    monkeypatch.setenv("AWS_USER_AGENT", "another")
    assert open_obstore("s3://bucket", s3, "s3://bucket/y") is not first


def test_a_profile_gives_keys_region_and_endpoint(
    uri: str, s3: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "aws_access_key_id = testing\naws_secret_access_key = te%st=ing\naws_session_token = t\n"
    profiles(
        home,
        f"[profile dev]\nregion = us-east-1\nendpoint_url = {s3['aws_endpoint']}\n"
        f"[profile  whole]\nregion=us-east-1\nendpoint_url = {s3['aws_endpoint']}\n{keys}"
        "[profile parts]\nservices = mine\n"
        f"[services mine]\ns3 =\n  endpoint_url = {s3['aws_endpoint']}\ndynamodb =\n  endpoint_url = http://x\n",
        f"[dev]\n{keys}[parts]\n{keys}",
    )
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("dev", "whole", "parts"):
        monkeypatch.setenv("AWS_PROFILE", name)
        assert count(uri) == 2
    monkeypatch.delenv("AWS_PROFILE")
    assert count(uri, storage_options={"profile": "dev"}) == 2
    monkeypatch.setenv("AWS_PROFILE", "prod")
    assert re.search(r"config: AWS profile 'prod' does not exist \(.*dev, parts, whole\)", refusal(uri))
    monkeypatch.setenv("AWS_PROFILE", "dev")
    assert count(uri) == 2
    # What is given, or set, stands before it.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in refusal(uri, retry=sk.RetryPolicy(attempts=1))
    assert count(uri, storage_options={"endpoint": s3["aws_endpoint"]}) == 2


def test_the_default_profile_and_other_files(
    uri: str, s3: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    profiles(
        home,
        f"[default]\nregion = us-east-1\nendpoint_url = {s3['aws_endpoint']}\n",
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n",
    )
    assert count(uri) == 2
    (home / ".aws" / "config").rename(home / "config")
    (home / ".aws" / "credentials").rename(home / "credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "~/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    assert count(uri) == 2
    (home / "config").write_text("no section\n")
    assert f"{home / 'config'}: can't parse the AWS profiles" in refusal(uri)


def test_a_profile_of_a_role(
    uri: str, s3: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles(
        home,
        f"[profile base]\nregion = us-east-1\nendpoint_url = {s3['aws_endpoint']}\n"
        f"[profile role]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n"
        f"region = us-east-1\nendpoint_url = {s3['aws_endpoint']}\n",
        "[base]\naws_access_key_id = a\naws_secret_access_key = b\n",
    )
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_PROFILE", "role")
    assert count(uri) == 2


def test_a_role_among_the_options(
    uri: str, s3: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credentials of role_arn, and not those that assume it, sign requests."""
    role = {**s3, "role_arn": "arn:aws:iam::123456789012:role/reader", "endpoint_url_sts": s3["aws_endpoint"]}
    assert count(uri, storage_options=role) == 2
    assert count(uri, storage_options={**role, "role_session_name": "me"}) == 2
    wrong = {**role, "endpoint_url_sts": "http://127.0.0.1:9"}
    assert "127.0.0.1:9" in refusal(uri, storage_options=wrong, retry=sk.RetryPolicy(attempts=1))
    # Keys of a profile.
    location = f"[profile dev]\nendpoint_url = {role.pop('aws_endpoint')}\n"
    profiles(home, location, "[dev]\naws_access_key_id = a\naws_secret_access_key = b\n")
    for name in (*KEYS,):
        role.pop(name)
    assert count(uri, storage_options={**role, "profile": "dev"}) == 2


def test_a_role_without_boto3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    profiles(home, "[default]\ncredential_process = /bin/false\n")
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert "AWS profile 'default' has no access keys" in refusal("s3://bucket/x")
    role = {"role_arn": "arn:aws:iam::123456789012:role/reader"}
    assert "role_arn in storage_options needs boto3" in refusal("s3://bucket/x", storage_options=role)


def test_what_a_pickle_keeps_of_options() -> None:
    client = {"timeout": "9s", "default_headers": {"authorization": "hush"}, "proxy_url": "http://u:hush@p"}
    options = StoreOptions(
        aws_region="eu",
        AWS_SECRET_ACCESS_KEY="hush",
        aws_access_key_id="hush",
        token="hush",
        endpoint_url="http://me:hush@host",
        azure_storage_account_name="name",
        azure_storage_account_key="hush",
        sas_key="hush",
        google_service_account_key="hush",
        an_option_of_tomorrow="hush",
        allow_http="true",
        profile="dev",
        client_options=client,
    )
    kept = {
        "aws_region": "eu",
        "azure_storage_account_name": "name",
        "allow_http": "true",
        "profile": "dev",
        "client_options": {"timeout": "9s"},
    }
    assert b"hush" not in pickle.dumps(options)
    assert "hush" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == kept
    assert pickle.loads(pickle.dumps(with_credentials(options))) == options
    # And not for longer than that one pickle.
    assert pickle.loads(pickle.dumps(options)) == kept
    assert option_name("AWS_DEFAULT_REGION") == option_name("region") == "region"

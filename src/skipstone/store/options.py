"""Settings of object stores: storage options, then the environment, then the AWS profile.

Pickles leave out credentials unless ``with_credentials`` is used: the process that reads them finds
credentials in its own environment.
"""

from __future__ import annotations

import configparser
import os
import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from skipstone.errors import ReadError, UsageError, did_you_mean, scrub

# -- names -------------------------------------------------------------------------------------

Kind = Literal["AWS", "GOOGLE", "AZURE", ""]
"""Prefix of a store's variables; "" for HTTP servers."""

_SCHEMES: dict[str, Kind] = {
    **dict.fromkeys(("s3", "s3a"), "AWS"),
    **dict.fromkeys(("gs",), "GOOGLE"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "AZURE"),
    **dict.fromkeys(("http", "https", "memory"), ""),
}

STORE_NAMES: dict[Kind, tuple[str, ...]] = {
    "AWS": (
        *("access_key_id", "secret_access_key", "session_token", "profile", "skip_signature"),
        *("region", "endpoint", "virtual_hosted_style_request"),
        *("role_arn", "role_session_name", "web_identity_token_file", "endpoint_url_sts"),
        *("container_credentials_relative_uri", "container_credentials_full_uri"),
        *("container_authorization_token_file", "metadata_endpoint", "imdsv1_fallback"),
        *("request_payer", "s3_express", "unsigned_payload", "checksum_algorithm", "disable_tagging"),
        *("disable_bulk_delete", "conditional_put", "copy_if_not_exists", "server_side_encryption"),
        *("sse_kms_key_id", "sse_bucket_key_enabled", "sse_customer_key_base64"),
    ),
    "GOOGLE": (
        *("application_credentials", "service_account", "service_account_key", "bearer_token"),
        *("skip_signature", "base_url"),
    ),
    "AZURE": (
        *("account_name", "account_key", "sas_key", "token", "skip_signature", "use_azure_cli"),
        *("tenant_id", "client_id", "client_secret", "authority_host", "credential_type"),
        *("federated_token_file", "msi_endpoint", "object_id", "msi_resource_id"),
        *("endpoint", "use_emulator", "use_fabric_endpoint", "encryption_key", "disable_tagging"),
        *("fabric_token_service_url", "fabric_workload_host", "fabric_session_token"),
        *("fabric_cluster_identifier",),
    ),
    "": (),
}
"""Options of each kind of store."""
CLIENT_NAMES = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"),
    *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url"),
    *("randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent"),
)
"""Options of the HTTP client."""
RETRY_NAMES = ("max_retries", "retry_timeout")
"""Options of the HTTP client's retries."""
ALIASES: dict[Kind, dict[str, str]] = {
    "AWS": {
        "endpoint_url": "endpoint",
        "endpoint_url_s3": "endpoint",
        "default_region": "region",
        "token": "session_token",
        "sts_endpoint": "endpoint_url_sts",
        "ca_bundle": "root_certificate",
    },
    "GOOGLE": {"service_account_path": "service_account", "endpoint": "base_url"},
    "AZURE": {
        "access_key": "account_key",
        "master_key": "account_key",
        "sas_token": "sas_key",
        "bearer_token": "token",
        "authority_id": "tenant_id",
        "identity_endpoint": "msi_endpoint",
    },
    "": {},
}
"""Other names of options."""
ICEBERG_NAMES: dict[str, tuple[Kind, str]] = {
    **{
        f"{prefix}.{name.replace('_', '-')}": ("AWS", name)
        for prefix in ("s3", "client")
        for name in ("access_key_id", "secret_access_key", "session_token", "region", "role_arn")
    },
    "s3.role-session-name": ("AWS", "role_session_name"),
    "client.role-session-name": ("AWS", "role_session_name"),
    "s3.profile-name": ("AWS", "profile"),
    "client.profile-name": ("AWS", "profile"),
    "s3.endpoint": ("AWS", "endpoint"),
    "s3.anonymous": ("AWS", "skip_signature"),
    "s3.force-virtual-addressing": ("AWS", "virtual_hosted_style_request"),
    "s3.connect-timeout": ("AWS", "connect_timeout"),
    "s3.request-timeout": ("AWS", "timeout"),
    "s3.proxy-uri": ("AWS", "proxy_url"),
    "gcs.oauth2.token": ("GOOGLE", "bearer_token"),
    "gcs.service.host": ("GOOGLE", "base_url"),
    "adls.account-name": ("AZURE", "account_name"),
    "adls.account-key": ("AZURE", "account_key"),
    "adls.sas-token": ("AZURE", "sas_key"),
    "adls.token": ("AZURE", "token"),
    "adls.anon": ("AZURE", "skip_signature"),
    "adls.tenant-id": ("AZURE", "tenant_id"),
    "adls.client-id": ("AZURE", "client_id"),
    "adls.client-secret": ("AZURE", "client_secret"),
}
"""pyiceberg's names of options; where two mean the same, pyiceberg prefers the first."""

# Options not listed here can be secrets.
_PUBLIC = frozenset(
    (
        *("conditional_put", "copy_if_not_exists", "checksum_algorithm", "disable_tagging"),
        *("disable_bulk_delete", "endpoint", "endpoint_url_sts", "base_url", "imdsv1_fallback", "profile"),
        *("region", "request_payer", "role_arn", "role_session_name", "s3_express", "skip_signature"),
        *("unsigned_payload", "virtual_hosted_style_request", "account_name", "tenant_id"),
        *("use_emulator", "use_fabric_endpoint", "use_azure_cli", "application_credentials"),
        *("service_account", "retry_config", "client_options", *CLIENT_NAMES, *RETRY_NAMES),
    )
) - {"proxy_url"}
_URLS = frozenset({"endpoint", "base_url", "endpoint_url_sts", "metadata_endpoint", "msi_endpoint"})
_FLAGS = frozenset(
    (
        *("skip_signature", "virtual_hosted_style_request", "imdsv1_fallback", "s3_express"),
        *("unsigned_payload", "disable_tagging", "disable_bulk_delete", "sse_bucket_key_enabled"),
        *("use_azure_cli", "use_emulator", "use_fabric_endpoint", "allow_http", "http1_only", "http2_only"),
        *("allow_invalid_certificates", "http2_keep_alive_while_idle", "randomize_addresses"),
    )
)
_TIMES = frozenset(name for name in (*CLIENT_NAMES, *RETRY_NAMES) if name.endswith(("timeout", "interval")))
# Whole objects, not settings; passed on as they are.
_OBJECTS = ("client_options", "retry_config", "credential_provider")
_PREFIXES: dict[str, Kind] = {
    "aws_": "AWS",
    "azure_storage_": "AZURE",
    "azure_": "AZURE",
    "google_": "GOOGLE",
}
_SHOWN = 8


def store_kind(uri: str) -> Kind:
    """The kind of store that a URI names."""
    return _SCHEMES.get(uri.partition("://")[0].lower(), "")


def option_name(name: str, kind: Kind = "AWS") -> str:
    """The canonical name of an option that is accepted under several names.

    >>> option_name("AWS_DEFAULT_REGION"), option_name("s3.endpoint"), option_name("sas_token", "AZURE")
    ('region', 'endpoint', 'sas_key')
    """
    lower = name.lower()
    if lower in ICEBERG_NAMES:
        return ICEBERG_NAMES[lower][1]
    bare = lower[len(_prefix(lower)) :]
    return ALIASES[kind].get(bare, bare)


def _prefix(lower: str) -> str:
    return next((prefix for prefix in _PREFIXES if lower.startswith(prefix)), "")


def canonical_options(options: Mapping[str, Any], uri: str) -> dict[str, Any]:
    """The options of a store under their canonical names; those of other stores are left out.

    A prefix, as in ``aws_region``, says which store an option is for, so that one mapping can serve several.
    """
    kind = store_kind(uri)
    named: dict[str, Any] = {}
    passed: dict[str, str] = {}
    for name, value in options.items():
        own = _own_kind(name, kind)
        canonical = option_name(name, own)
        if canonical not in _accepted(own):
            raise _unknown_option(name, kind)
        if own != kind or value is None:
            continue
        if canonical in named and named[canonical] != value:
            raise UsageError(
                f"storage options {passed[canonical]} and {name} are the same setting",
                hint="pass one of them",
            )
        if isinstance(value, str):
            _check_value(name, canonical, value)
        named[canonical], passed[canonical] = value, name
    return named


def _own_kind(name: str, kind: Kind) -> Kind:
    """The kind of store that an option is for."""
    lower = name.lower()
    iceberg = ICEBERG_NAMES.get(lower)
    return iceberg[0] if iceberg is not None else _PREFIXES.get(_prefix(lower), kind)


def _accepted(kind: Kind) -> tuple[str, ...]:
    return (*STORE_NAMES[kind], *CLIENT_NAMES, *RETRY_NAMES, *_OBJECTS)


def _unknown_option(name: str, kind: Kind) -> UsageError:
    bare = name.lower()[len(_prefix(name.lower())) :]
    if bare in ("bucket", "bucket_name", "container", "container_name"):
        hint = "name the bucket or container in the URI"
    else:
        names = [*_accepted(kind), *ALIASES[kind]]
        some = f"available: {', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more; see the documentation"
        hint = did_you_mean(bare, names, some)
    return UsageError(f"unknown storage option {name!r}", hint=hint)


# -- pickles -----------------------------------------------------------------------------------

_CARRIES: ContextVar[bool] = ContextVar("carries credentials", default=False)


class StoreOptions(dict[str, Any]):
    """Options of an object store; pickles leave out secrets, and the repr shows only names."""

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreOptions, (dict(self) if _CARRIES.get() else _public(self),)

    def __repr__(self) -> str:
        return f"StoreOptions({', '.join(self)})"


def _public(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not secret; an endpoint can contain a password."""
    public = {name: value for name, value in options.items() if option_name(name) in _PUBLIC}
    if "client_options" in public:
        public["client_options"] = _public(public["client_options"])
    return {n: value for n, value in public.items() if option_name(n) not in _URLS or "@" not in str(value)}


def carries_credentials() -> bool:
    """Whether the current pickle includes credentials."""
    return _CARRIES.get()


def dump_with_credentials(value: object, dumps: Callable[[object], bytes] = pickle.dumps) -> bytes:
    """Pickle a value together with the credentials of its stores."""
    before = _CARRIES.set(True)
    try:
        return dumps(value)
    finally:
        _CARRIES.reset(before)


class WithCredentials:
    """Result of ``with_credentials``; unpickles as the value itself."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (dump_with_credentials(self._value),)

    def __repr__(self) -> str:
        return f"with_credentials({self._value!r})"


def with_credentials(value: object) -> WithCredentials:
    """Wrap a plan, a task, a lake or a table so that its pickle includes storage credentials.

    Otherwise a pickle leaves them out. Whoever can read such a pickle can read and write the stores.

    Args:
        value: The object to pickle.

    Examples:
        >>> import pickle
        >>> import skipstone as sk
        >>> plan = sk.open("events").scan("event_id = 7").plan()
        >>> pickle.loads(pickle.dumps(sk.with_credentials(plan))) == plan
        True
    """
    return WithCredentials(value)


# -- environment -------------------------------------------------------------------------------


def environment_state(base: str) -> tuple[object, ...]:
    """Variables and profile files that a store depends on beside its options; part of its cache key."""
    variables = sorted(_variables(base).items())
    if store_kind(base) != "AWS":
        return tuple(variables)
    return (*variables, *(_stat(path) for path in _profile_files()))


def _variables(base: str) -> dict[str, str]:
    """The variables of a store."""
    kind = store_kind(base)
    if not kind:
        return {}
    return {name: value for name, value in os.environ.items() if value and name.startswith(f"{kind}_")}


def check_variables(base: str, options: Mapping[str, Any]) -> None:
    """Refuse variables that obstore would panic on, would not name in errors, or would prefer to options."""
    variables = _variables(base)
    kind = store_kind(base)
    for name, value in variables.items():
        if option_name(name, kind) in _accepted(kind):
            _check_value(name, option_name(name, kind), value)
    endpoint, specific = options.get("endpoint"), variables.get("AWS_ENDPOINT_URL_S3")
    if endpoint and specific and endpoint != specific:
        raise UsageError(
            "AWS_ENDPOINT_URL_S3 would override the endpoint in storage_options",
            hint="unset AWS_ENDPOINT_URL_S3, or set AWS_ENDPOINT_URL instead",
        )


def _check_value(name: str, canonical: str, value: str) -> None:
    problem, hint = "", f"fix {name} in {'the environment' if name.isupper() else 'storage_options'}"
    if canonical.endswith("_certificate"):
        return
    if value != value.strip() or any(ord(sign) < 32 for sign in value):
        problem = "begins or ends with white space, or contains control characters"
    elif canonical in _URLS and not re.match(r"https?://[^/\s]", value):
        problem = "is not a URL: an endpoint begins with http:// or https://"
        hint = f"add the scheme to {name}, as in http://{value or 'localhost:9000'}"
    elif canonical in _FLAGS and value.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        problem, hint = "is not true or false", f"set {name} to true or false"
    elif canonical in _TIMES and not _DURATION.fullmatch(value):
        problem, hint = "is not a duration", f"set {name} to seconds, or as in 500ms, 30s or 2min"
    elif canonical == "max_retries" and not value.isdecimal():
        problem, hint = "is not a number", f"set {name} to a number of retries; 0 for none"
    if problem:
        raise UsageError(f"setting {name} {problem}", hint=hint)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?) ?(us|ms|sec|s|min|m|h)?")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern} ?)+")


def client_settings(base: str) -> dict[str, str]:
    """The environment's settings of the HTTP client, which obstore ignores if any are passed."""
    named = {option_name(name, store_kind(base)): value for name, value in _variables(base).items()}
    return {name: named[name] for name in (*CLIENT_NAMES, *RETRY_NAMES) if name in named}


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


# -- AWS profiles ------------------------------------------------------------------------------

_KEYS = ("access_key_id", "secret_access_key", "session_token")
# obstore finds credentials by these itself, so the profile's are not needed.
_OTHER_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE"),
)
_ROLES = (
    *("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file"),
    *("credential_source", "login_session"),
)


def with_profile(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an S3 store; the AWS profile supplies those missing in them and the environment."""
    completed = {name: value for name, value in options.items() if name != "profile"}
    requested = options.get("profile")
    environment = {option_name(name) for name in _variables("s3://")}
    role = "role_arn" in completed and "web_identity_token_file" not in completed.keys() | environment
    has_keys = role or bool(completed.keys() & {"access_key_id", "credential_provider", "skip_signature"})
    if requested is None:
        has_keys |= any(os.environ.get(name) for name in _OTHER_CREDENTIALS)
    if not has_keys or not {"region", "endpoint"} <= completed.keys() | environment:
        profile, name = _profile(requested)
        for theirs, ours in (("region", "region"), ("endpoint_url", "endpoint")):
            if profile.get(theirs) and ours not in completed.keys() | environment:
                completed[ours] = profile[theirs]
        if not has_keys and any(profile.get(role) for role in _ROLES):
            completed["credential_provider"] = _boto_provider(name)
        elif not has_keys and profile.get("aws_access_key_id"):
            completed.update({key: profile[f"aws_{key}"] for key in _KEYS if profile.get(f"aws_{key}")})
    return _with_role(completed, requested) if role else _without_foreign_token(completed, environment)


def s3_location() -> dict[str, str]:
    """Endpoint and region of S3 in the environment or the AWS profile, for libraries that ignore them."""
    settings: dict[str, str] = {}
    with suppress(ReadError):
        profile = _profile(None)[0]
        settings = {"endpoint": profile.get("endpoint_url", ""), "region": profile.get("region", "")}
    for name in ("ENDPOINT", "ENDPOINT_URL", "ENDPOINT_URL_S3", "DEFAULT_REGION", "REGION"):
        settings[option_name(name)] = os.environ.get(f"AWS_{name}") or settings.get(option_name(name), "")
    return {name: value for name, value in settings.items() if value}


def _without_foreign_token(options: dict[str, Any], environment: set[str]) -> dict[str, Any]:
    """Keep obstore from combining the keys of options or a profile with the environment's token."""
    if "access_key_id" not in options:
        return options
    if "skip_signature" in environment:
        options.setdefault("skip_signature", "false")
    if "session_token" in environment and "session_token" not in options:
        keys = {name: options.pop(name, "") for name in _KEYS[:2]}
        options["credential_provider"] = partial(dict, keys, token=None, expires_at=None)
    return options


def _with_role(options: dict[str, Any], profile: str | None) -> dict[str, Any]:
    """Options with the credentials of ``role_arn``, which the other credentials may assume."""
    boto3 = _boto3("role_arn in storage_options")
    keys = {f"aws_{name}": options.pop(name, None) for name in _KEYS}
    session = boto3.Session(**keys, profile_name=profile, region_name=options.get("region"))
    arguments = {
        "RoleArn": options.pop("role_arn"),
        "RoleSessionName": options.pop("role_session_name", "skipstone"),
    }
    endpoint = options.pop("endpoint_url_sts", None)

    def assume() -> dict[str, Any]:
        reply = session.client("sts", endpoint_url=endpoint).assume_role(**arguments)["Credentials"]
        return {
            "access_key_id": reply["AccessKeyId"],
            "secret_access_key": reply["SecretAccessKey"],
            "token": reply["SessionToken"],
            "expires_at": reply["Expiration"].astimezone(UTC),
        }

    return {**options, "credential_provider": assume}


def _profile_files() -> tuple[Path, Path]:
    home = Path(os.path.expanduser("~")) / ".aws"  # noqa: PTH111  (Path's raises where there is no home)
    return (
        Path(os.path.expanduser(os.environ.get("AWS_CONFIG_FILE") or home / "config")),  # noqa: PTH111
        Path(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")),  # noqa: PTH111
    )


def _profile(requested: str | None) -> tuple[dict[str, str], str]:
    """The requested profile, or the default one, which need not exist; and its name."""
    requested = requested or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name = requested or "default"
    config, credentials = (_sections(path) for path in _profile_files())
    heading = name if name == "default" else f"profile {name}"
    sections = [part for part in (config.get(heading), credentials.get(name)) if part is not None]
    if not sections and requested:
        headings = (h for h in config if h == "default" or h.startswith("profile "))
        profiles = sorted({*credentials, *(h.removeprefix("profile ") for h in headings)})
        raise ReadError(
            f"AWS profile {name!r} does not exist",
            path=str(_profile_files()[0]),
            hint=f"set AWS_PROFILE to one of {', '.join(profiles)}" if profiles else "unset AWS_PROFILE",
        )
    profile = {key: value for part in sections for key, value in part.items()}
    services = config.get(f"services {profile.get('services')}", {})
    own = re.search(r"^\s*endpoint_url\s*=\s*(\S+)", services.get("s3", ""), re.MULTILINE)
    return ({**profile, "endpoint_url": own[1]} if own else profile), name


def _sections(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False, default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, ValueError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, ValueError) else type(error).__name__
        raise ReadError(f"can't parse the AWS profiles: {reason}", path=str(path)) from None
    return {" ".join(name.split()): dict(parser[name]) for name in parser.sections()}


def _boto_provider(name: str) -> Any:
    boto3 = _boto3(f"AWS profile {name!r} has no access keys: its role or login")
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider(boto3.Session(profile_name=name))


def _boto3(what: str) -> Any:
    try:
        import boto3
    except ImportError:
        raise UsageError(
            f"{what} needs boto3, which is not installed",
            hint="pip install boto3, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
        ) from None
    return boto3


# -- opening -----------------------------------------------------------------------------------


def split_uri(uri: str) -> tuple[str, str]:
    """Split a URI into base URI and key."""
    parts = urlsplit(uri)
    if not parts.netloc and parts.scheme != "memory":
        raise UsageError(
            "bucket is missing", path=uri, hint=f"name the bucket, as in {parts.scheme}://bucket/path"
        )
    web = parts.scheme in ("http", "https")
    if parts.query and web:
        raise ReadError("can't read a URL with a query string", path=uri, hint="pass a file object instead")
    key = unquote(parts.path) if web else uri.split("://", 1)[1].partition("/")[2]
    return f"{parts.scheme}://{parts.netloc}", key.lstrip("/")


def open_obstore(base: str, storage_options: Mapping[str, Any] | None, uri: str) -> Any:
    """The obstore store of a base URI; shared by equal options, since it holds the connections."""
    options = storage_options or {}
    try:
        named = tuple(sorted(canonical_options(options, base).items()))
        if _hashable(named):
            return _shared_store(base, named, environment_state(base))
        return _make_store(base, dict(named))
    except (ReadError, UsageError) as error:
        error.path = error.path or uri
        raise
    except Exception as error:
        # Any value in the message can be a secret.
        text = scrub(
            error, [value for value in options.values() if isinstance(value, str) and len(value) > 3]
        )
        hint = next((hint for part, hint in _INCOMPLETE.items() if part in text), None)
        raise ReadError(
            f"can't open the store: {text}",
            path=uri,
            hint=hint or "check storage_options and the environment variables of the store",
        ) from error


_INCOMPLETE = {
    "Account must be specified": "set AZURE_STORAGE_ACCOUNT_NAME, or account_name in storage_options, "
    "or name the account in the URI, as in abfss://container@account.dfs.core.windows.net/path",
    "Missing SecretAccessKey": "set AWS_SECRET_ACCESS_KEY, or secret_access_key in storage_options",
    "Missing AccessKeyId": "set AWS_ACCESS_KEY_ID, or access_key_id in storage_options",
    "service account file": "check service_account and application_credentials in storage_options, "
    "GOOGLE_SERVICE_ACCOUNT and GOOGLE_APPLICATION_CREDENTIALS",
}


@lru_cache(maxsize=32)
def _shared_store(base: str, options: tuple[tuple[str, Any], ...], _environment: tuple[object, ...]) -> Any:
    return _make_store(base, dict(options))


def _hashable(options: tuple[tuple[str, Any], ...]) -> bool:
    return all(isinstance(value, str | int | float | bool | None) for _, value in options)


def _make_store(base: str, options: dict[str, Any]) -> Any:
    from obstore.store import HTTPStore, MemoryStore, from_url

    if base.startswith("memory"):
        return MemoryStore()
    check_variables(base, options)
    own: dict[str, Any] = {name: options.pop(name) for name in _OBJECTS if name in options}
    plain = {"allow_http": "true"} if base.startswith("http://") else {}
    client: dict[str, Any] = {**_CLIENT, **client_settings(base), **plain}
    client |= {name: options.pop(name) for name in (*CLIENT_NAMES, *RETRY_NAMES) if name in options}
    retry = dict(_RETRY)
    if "max_retries" in client:
        retry["max_retries"] = int(client.pop("max_retries"))
    if "retry_timeout" in client:
        retry["retry_timeout"] = read_duration(client.pop("retry_timeout"))
    client = {name: _client_value(name, value) for name, value in client.items()}
    own["client_options"] = {**client, **own.get("client_options", {})}
    own["retry_config"] = {**retry, **own.get("retry_config", {})}
    if base.startswith("http"):
        return HTTPStore.from_url(base, **own)
    if base.startswith("s3"):
        options = with_profile({**options, **own})
        own = {name: options.pop(name) for name in _OBJECTS if name in options}
    config: Any = {name: _word(value) for name, value in options.items()}
    return from_url(base, config=config, **own)


def _client_value(name: str, value: Any) -> Any:
    """A value of the HTTP client as obstore expects it."""
    if name in _TIMES:
        return read_duration(value)
    if name.endswith("_certificate") and "-----BEGIN" not in str(value):
        try:
            return Path(str(value)).read_text()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not a PEM file"
            hint = f"set {name}, or AWS_CA_BUNDLE, to the path of a PEM file"
            raise UsageError(f"can't read {name}: {reason}", hint=hint) from None
    return value if isinstance(value, bytes) else _word(value)


def read_duration(value: Any) -> timedelta:
    """A duration; a number without a unit is in seconds."""
    if isinstance(value, timedelta):
        return value
    parts = _DURATION_PART.findall(str(value))
    return timedelta(seconds=sum(float(number) * _UNITS[unit or "s"] for number, unit in parts))


def _word(value: object) -> str:
    text = str(value)
    return text.lower() if text in ("True", "False") else text


# obstore's defaults, ten retries over three minutes, are too long to wait for an unreachable store.
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}
_RETRY: dict[str, Any] = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}

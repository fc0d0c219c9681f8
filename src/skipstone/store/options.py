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
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from skipstone.errors import ReadError, scrub

# -- names -------------------------------------------------------------------------------------

_ALIASES = {
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "default_region": "region",
    "token": "session_token",
}
_PREFIX = re.compile(r"^(?:aws|azure_storage|azure|google)_")
_CLIENT_NAMES = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"),
    *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url"),
    *("randomize_addresses", "read_timeout", "timeout", "user_agent"),
)
# Options not listed here can be secrets.
_PUBLIC = frozenset(
    (
        *("bucket", "conditional_put", "copy_if_not_exists", "checksum_algorithm", "disable_tagging"),
        *(
            "endpoint",
            "imdsv1_fallback",
            "profile",
            "region",
            "request_payer",
            "s3_express",
            "skip_signature",
        ),
        *("unsigned_payload", "virtual_hosted_style_request", "account_name", "container_name", "tenant_id"),
        *("use_emulator", "use_fabric_endpoint", "application_credentials", "service_account"),
        *("retry_config", "client_options", *_CLIENT_NAMES),
    )
) - {"proxy_url"}


def option_name(name: str) -> str:
    """The canonical name of an option that obstore accepts under several names."""
    bare = _PREFIX.sub("", name.lower())
    return _ALIASES.get(bare, bare)


def is_client_option(name: str) -> bool:
    """Whether an option belongs to the HTTP client, not to the store."""
    return option_name(name) in _CLIENT_NAMES


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
    return {n: value for n, value in public.items() if option_name(n) != "endpoint" or "@" not in str(value)}


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

_SCHEMES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_"}


def environment_state(base: str) -> tuple[object, ...]:
    """Variables and profile files that a store depends on beside its options; part of its cache key."""
    prefix = _variables(base)
    variables = sorted(item for item in os.environ.items() if item[0].upper().startswith(prefix))
    if prefix != "AWS_":
        return tuple(variables)
    return (*variables, *(_stat(path) for path in _profile_files()))


def check_options(base: str, options: Mapping[str, Any]) -> None:
    """Refuse settings that obstore would panic on."""
    passed = {name: value for name, value in options.items() if isinstance(value, str)}
    variables = {n: value for n, value in os.environ.items() if n.upper().startswith(_variables(base))}
    for name, value in {**variables, **passed}.items():
        if value != value.strip() or any(ord(sign) < 32 for sign in value):
            raise ReadError(
                f"setting {name} begins or ends with white space, or contains control characters",
                hint=f"fix {name} in storage_options or the environment",
            )
        endpoint = option_name(name) == "endpoint" and (name in passed or value)
        if endpoint and not re.match(r"https?://[^/\s]", value):
            raise ReadError(
                f"setting {name} is not a URL: an endpoint begins with http:// or https://",
                hint=f"add the scheme to {name}, as in http://{value or 'localhost:9000'}",
            )


def client_settings(base: str) -> dict[str, str]:
    """The environment's settings of the HTTP client, which obstore ignores if any are passed."""
    prefix = _variables(base)
    settings = ((name, os.environ.get(f"{prefix}{name.upper()}")) for name in _CLIENT_NAMES)
    return {name: value for name, value in settings if value}


def _variables(base: str) -> str:
    return _SCHEMES.get(base.partition("://")[0], "AZURE_")


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


# -- AWS profiles ------------------------------------------------------------------------------

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
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
    completed = {name: value for name, value in options.items() if option_name(name) != "profile"}
    requested = next((str(value) for name, value in options.items() if name not in completed), None)
    passed = {option_name(name) for name in completed}
    environment = {
        option_name(name) for name, value in os.environ.items() if value and name.startswith("AWS_")
    }
    has_keys = bool(passed & {"access_key_id", "credential_provider", "skip_signature"})
    if requested is None:
        has_keys |= any(os.environ.get(name) for name in _OTHER_CREDENTIALS)
    if has_keys and {"region", "endpoint"} <= passed | environment:
        return completed
    profile, name = _profile(requested)
    for theirs, ours in (("region", "region"), ("endpoint_url", "endpoint")):
        if profile.get(theirs) and ours not in passed | environment:
            completed[ours] = profile[theirs]
    if has_keys:
        return completed
    if any(profile.get(role) for role in _ROLES):
        completed["credential_provider"] = _boto(name)
    elif profile.get("aws_access_key_id"):
        completed.update({key: profile[key] for key in _KEYS if profile.get(key)})
    return completed


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


def _boto(name: str) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ReadError(
            f"AWS profile {name!r} has no access keys, and boto3 is not installed to obtain them",
            hint="pip install boto3, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=name))


# -- opening -----------------------------------------------------------------------------------


def split_uri(uri: str) -> tuple[str, str]:
    """Split a URI into base URI and key."""
    parts = urlsplit(uri)
    web = parts.scheme in ("http", "https")
    if parts.query and web:
        raise ReadError("can't read a URL with a query string", path=uri, hint="pass a file object instead")
    key = unquote(parts.path) if web else uri.split("://", 1)[1].partition("/")[2]
    return f"{parts.scheme}://{parts.netloc}", key.lstrip("/")


def open_obstore(base: str, storage_options: Mapping[str, Any] | None, uri: str) -> Any:
    """The obstore store of a base URI; shared by equal options, since it holds the connections."""
    options = tuple(sorted((storage_options or {}).items()))
    try:
        if _hashable(options):
            return _shared_store(base, options, environment_state(base))
        return _make_store(base, dict(options))
    except ReadError as error:
        error.path = error.path or uri
        raise
    except Exception as error:
        # Any value in the message can be a secret.
        text = scrub(error, [value for _, value in options if isinstance(value, str) and len(value) > 3])
        raise ReadError(
            f"can't open the store: {text}",
            path=uri,
            hint="check storage_options and the environment variables of the store",
        ) from error


@lru_cache(maxsize=32)
def _shared_store(base: str, options: tuple[tuple[str, Any], ...], _environment: tuple[object, ...]) -> Any:
    return _make_store(base, dict(options))


def _hashable(options: tuple[tuple[str, Any], ...]) -> bool:
    return all(isinstance(value, str | int | float | bool | None) for _, value in options)


def _make_store(base: str, options: dict[str, Any]) -> Any:
    from obstore.store import HTTPStore, MemoryStore, from_url

    if base.startswith("memory"):
        return MemoryStore()
    check_options(base, options)
    names = ("client_options", "retry_config", "credential_provider")
    own: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    # Other libraries accept these as store options; obstore panics on them unless they are client options.
    clients = [name for name in options if is_client_option(name)]
    allowed = {option_name(name): _word(options.pop(name)) for name in clients}
    if base.startswith("http"):
        plain = {"allow_http": "true"} if base.startswith("http://") else {}
        own["client_options"] = {**_CLIENT, **plain, **allowed, **own.get("client_options", {})}
        return HTTPStore.from_url(base, **{"retry_config": _RETRY, **own})
    if base.startswith("s3"):
        options = with_profile(options)
        if "credential_provider" in options:
            own["credential_provider"] = options.pop("credential_provider")
    own["client_options"] = {**_CLIENT, **client_settings(base), **allowed, **own.get("client_options", {})}
    config: Any = options or None
    return from_url(base, config=config, **{"retry_config": _RETRY, **own})


def _word(value: object) -> str:
    text = str(value)
    return text.lower() if text in ("True", "False") else text


# obstore's defaults, ten retries over three minutes, are too long to wait for an unreachable store.
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}
_RETRY = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}

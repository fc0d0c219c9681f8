"""How an object store is opened: options given, environment, AWS profiles; and which of them stay at home.

What is given comes first, then the environment, then the profile. A pickle carries only what is not secret,
unless it is asked to: the process that reads it finds credentials in its own environment.
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
# Whatever is not named here may be a secret.
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
    """The one word for an option that obstore knows under several."""
    bare = _PREFIX.sub("", name.lower())
    return _ALIASES.get(bare, bare)


def is_client_option(name: str) -> bool:
    """Whether an option is of the HTTP client, not of the store."""
    return option_name(name) in _CLIENT_NAMES


# -- pickles -----------------------------------------------------------------------------------

_CARRIES: ContextVar[bool] = ContextVar("carries credentials", default=False)


class StoreOptions(dict[str, Any]):
    """Options of an object store, of which a pickle holds no secrets and a repr only names."""

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreOptions, (dict(self) if _CARRIES.get() else _public(self),)

    def __repr__(self) -> str:
        return f"StoreOptions({', '.join(self)})"


def _public(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are no secrets; an endpoint may have a password in it."""
    kept = {name: value for name, value in options.items() if option_name(name) in _PUBLIC}
    if "client_options" in kept:
        kept["client_options"] = _public(kept["client_options"])
    return {n: value for n, value in kept.items() if option_name(n) != "endpoint" or "@" not in str(value)}


def carries_credentials() -> bool:
    """Whether what is being pickled now shall hold credentials."""
    return _CARRIES.get()


def carry(value: object, dumps: Callable[[object], bytes] = pickle.dumps) -> bytes:
    """``value`` pickled together with the credentials of its stores."""
    before = _CARRIES.set(True)
    try:
        return dumps(value)
    finally:
        _CARRIES.reset(before)


class WithCredentials:
    """What ``with_credentials`` gives: it is unpickled as the value itself."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (carry(self._value),)

    def __repr__(self) -> str:
        return f"with_credentials({self._value!r})"


def with_credentials(value: object) -> WithCredentials:
    """Something to pickle in the place of a plan, a task, a lake or a table, which keeps storage credentials.

    Without it a pickle leaves them out. Whoever can read this one can read and write the stores.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(with_credentials("plan")))
    'plan'
    """
    return WithCredentials(value)


# -- environment -------------------------------------------------------------------------------

_SCHEMES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_"}


def surroundings(base: str) -> tuple[object, ...]:
    """All that a store of this base depends on beside its options: another one needs another store."""
    prefix = _variables(base)
    named = sorted(item for item in os.environ.items() if item[0].upper().startswith(prefix))
    if prefix != "AWS_":
        return tuple(named)
    return (*named, *(_stat(path) for path in _profile_files()))


def check_options(base: str, options: Mapping[str, Any]) -> None:
    """Refuse settings that obstore would panic on, by the name that they were given under."""
    given = {name: value for name, value in options.items() if isinstance(value, str)}
    around = {name: value for name, value in os.environ.items() if name.upper().startswith(_variables(base))}
    for name, value in {**around, **given}.items():
        if value != value.strip() or any(ord(sign) < 32 for sign in value):
            raise ReadError(
                f"setting {name} begins or ends with white space, or holds control characters",
                hint=f"fix {name}, in storage_options or the environment",
            )
        endpoint = option_name(name) == "endpoint" and (name in given or value)
        if endpoint and not re.match(r"https?://[^/\s]", value):
            raise ReadError(
                f"setting {name} is not an endpoint: it must begin with http:// or https://",
                hint=f"give {name} with its scheme, such as http://{value or 'localhost:9000'}",
            )


def client_settings(base: str) -> dict[str, str]:
    """The environment's settings of the HTTP client, which obstore forgets where it is given others."""
    prefix = _variables(base)
    found = ((name, os.environ.get(f"{prefix}{name.upper()}")) for name in _CLIENT_NAMES)
    return {name: value for name, value in found if value}


def _variables(base: str) -> str:
    return _SCHEMES.get(base.partition("://")[0], "AZURE_")


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        told = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), told.st_mtime_ns, told.st_size


# -- AWS profiles ------------------------------------------------------------------------------

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
# What finds credentials by itself, so that a profile's are not asked for.
_OTHER_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE"),
)
_ROLES = (
    *("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file"),
    *("credential_source", "login_session"),
)


def with_profile(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an S3 store, with what they and the environment leave to the AWS profile."""
    made = {name: value for name, value in options.items() if option_name(name) != "profile"}
    asked = next((str(value) for name, value in options.items() if name not in made), None)
    given = {option_name(name) for name in made}
    environment = {
        option_name(name) for name, value in os.environ.items() if value and name.startswith("AWS_")
    }
    keyed = bool(given & {"access_key_id", "credential_provider", "skip_signature"})
    if asked is None:
        keyed |= any(os.environ.get(name) for name in _OTHER_CREDENTIALS)
    if keyed and {"region", "endpoint"} <= given | environment:
        return made
    profile, name = _profile(asked)
    for theirs, ours in (("region", "region"), ("endpoint_url", "endpoint")):
        if profile.get(theirs) and ours not in given | environment:
            made[ours] = profile[theirs]
    if keyed:
        return made
    if any(profile.get(role) for role in _ROLES):
        made["credential_provider"] = _boto(name)
    elif profile.get("aws_access_key_id"):
        made.update({key: profile[key] for key in _KEYS if profile.get(key)})
    return made


def _profile_files() -> tuple[Path, Path]:
    home = Path(os.path.expanduser("~")) / ".aws"  # noqa: PTH111  (Path's raises where there is no home)
    return (
        Path(os.path.expanduser(os.environ.get("AWS_CONFIG_FILE") or home / "config")),  # noqa: PTH111
        Path(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")),  # noqa: PTH111
    )


def _profile(asked: str | None) -> tuple[dict[str, str], str]:
    """The profile that is named, or the default one, which need not be there; and its name."""
    named = asked or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name = named or "default"
    config, credentials = (_sections(path) for path in _profile_files())
    heading = name if name == "default" else f"profile {name}"
    found = [part for part in (config.get(heading), credentials.get(name)) if part is not None]
    if not found and named:
        headings = (h for h in config if h == "default" or h.startswith("profile "))
        known = sorted({*credentials, *(h.removeprefix("profile ") for h in headings)})
        raise ReadError(
            f"there is no AWS profile {name!r}",
            path=str(_profile_files()[0]),
            hint=f"set AWS_PROFILE to one of {', '.join(known)}" if known else "unset AWS_PROFILE",
        )
    profile = {key: value for part in found for key, value in part.items()}
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
        raise ReadError(f"the AWS profiles can't be read: {reason}", path=str(path)) from None
    return {" ".join(name.split()): dict(parser[name]) for name in parser.sections()}


def _boto(name: str) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ReadError(
            f"the AWS profile {name!r} has no keys of its own, and boto3 is needed to get some",
            hint="pip install boto3, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=name))


# -- opening -----------------------------------------------------------------------------------


def split_uri(uri: str) -> tuple[str, str]:
    """The store's part of a URI and the key in it."""
    parts = urlsplit(uri)
    web = parts.scheme in ("http", "https")
    if parts.query and web:
        raise ReadError("a URL with a query can't be read", path=uri, hint="pass a file object instead")
    key = unquote(parts.path) if web else uri.split("://", 1)[1].partition("/")[2]
    return f"{parts.scheme}://{parts.netloc}", key.lstrip("/")


def open_obstore(base: str, storage_options: Mapping[str, Any] | None, uri: str) -> Any:
    """The store of a URI's first part; the same one for the same options, since it holds the connections."""
    options = tuple(sorted((storage_options or {}).items()))
    try:
        if _hashable(options):
            return _shared_store(base, options, surroundings(base))
        return _make_store(base, dict(options))
    except ReadError as error:
        error.path = error.path or uri
        raise
    except Exception as error:
        # Nobody can tell which of the values it complains of are secret.
        text = scrub(error, [value for _, value in options if isinstance(value, str) and len(value) > 3])
        raise ReadError(
            f"the store can't be opened: {text}",
            path=uri,
            hint="check storage_options and the environment's settings of the store",
        ) from error


@lru_cache(maxsize=32)
def _shared_store(base: str, options: tuple[tuple[str, Any], ...], _around: tuple[object, ...]) -> Any:
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
    # Other libraries take these as store options; obstore panics on them unless they are client options.
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
    return from_url(base, config=options or None, **{"retry_config": _RETRY, **own})


def _word(value: object) -> str:
    text = str(value)
    return text.lower() if text in ("True", "False") else text


# obstore's own ten retries over three minutes keep a user waiting for a store that is not there.
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}
_RETRY = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}

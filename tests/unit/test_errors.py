"""What errors show, and what they don't."""

from __future__ import annotations

import pickle
import traceback

import pytest

from skipstone import errors
from skipstone.errors import ParseError, ReadError, SkipstoneError, redact, scrub, shorten

HUSH = "hUsH0123456789abcdefHuSh"
SHOWN = [
    f"postgresql+psycopg2://me:{HUSH}@db.example:5432/x",
    f"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Credential={HUSH}%2Fus&X-Amz-Signature={HUSH}&x=1",
    f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={HUSH}",
    f"https://storage.googleapis.com/b/k?X-Goog-Signature={HUSH}&X-Goog-Credential={HUSH}",
    f"https://a.blob.core.windows.net/c?sv=2022&sig={HUSH}&se=2030",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={HUSH};EndpointSuffix=core",
    f"SharedAccessSignature={HUSH}",
    f"{{'aws_secret_access_key': '{HUSH}', 'region': 'eu'}}",
    f"{{'s3.secret-access-key': '{HUSH}', 's3.session-token': '{HUSH}'}}",
    f"{{'token': '{HUSH}', 'credential': '{HUSH}'}}",
    f'{{"adls.account-key": "{HUSH}", "client_secret": "{HUSH}"}}',
    f"secret_access_key={HUSH} region=eu",
    f"AWS_SECRET_ACCESS_KEY={HUSH}",
    f"password={HUSH}",
    f"Authorization: Bearer {HUSH}",
    f"authorization: AWS4-HMAC-SHA256 Credential={HUSH}/eu, SignedHeaders=host, Signature={HUSH}",
    f"<Error><AWSAccessKeyId>{HUSH}</AWSAccessKeyId><SignatureProvided>{HUSH}</SignatureProvided></Error>",
    f"-----BEGIN RSA PRIVATE KEY-----\n{HUSH}\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", SHOWN, ids=[text[:30] for text in SHOWN])
def test_secrets_are_taken_out_of_every_part(text: str) -> None:
    error = ReadError(f"it says {text}", path=text, hint=f"look at {text}")
    for shown in (str(error), repr(error), error.message, error.path, error.hint, str(error.args)):
        assert HUSH not in str(shown)
    assert HUSH not in str(pickle.loads(pickle.dumps(error)))


PLAIN = [
    "s3://bucket/lake/user=7/f.parquet",
    "http://127.0.0.1:5000/bucket/a@b.parquet?list-type=2&prefix=x%2F",
    "file:///data/secret/password/token.parquet",
    "column token: 'a' (string) can't be compared with a column of type int64",
    "the rows can't be tested for token = 5 AND key > 3",
    "there is no such column (the schema has secret, password, signature)",
    "Basic conditions: bearer of news",
    "C:\\lake\\f.parquet: row group 3",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_every_error_is_bounded() -> None:
    long = "x" * 100_000
    kinds = [kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), SkipstoneError)]
    assert len(kinds) > 10
    for kind in kinds:
        error = kind(f"begin {long} end", path=long, unit=long, column=long, hint=f"{long} last")
        assert len(str(error)) < 11_000
        assert len(repr(error)) < 3_000
        assert error.message.startswith("begin x")
        assert error.message.endswith("x end")
        assert str(error).endswith("last)")
        assert len(str(pickle.loads(pickle.dumps(error)))) < 11_000
    assert shorten("short") == "short"
    assert shorten("a" * 50 + "b" * 50, 10) == "aaaaa … 90 characters … bbbbb"


def test_redacting_takes_no_time_for_long_texts() -> None:
    """Each of these would take minutes if a pattern looked back again and again."""
    parts = ("a.", "_", "a_", "secret", "://a:", "x=", "'token", "-----BEGIN PRIVATE KEY-----", "bearer ")
    for part in parts:
        assert len(str(ParseError(part * 50_000))) < 3_000


def test_a_foreign_cause_is_scrubbed_as_well() -> None:
    def fail() -> None:
        try:
            try:
                raise ValueError(f"password={HUSH}")
            except ValueError as error:
                raise RuntimeError(f"no such thing as {HUSH[:10]}", f"sig={HUSH}") from error
        except RuntimeError as error:
            line = scrub(error, [HUSH[:10]])
            raise ReadError(line, path="p") from error

    with pytest.raises(ReadError) as info:
        fail()
    text = "".join(traceback.format_exception(info.value, chain=True))
    told = [line for line in text.splitlines() if "raise " not in line]
    assert HUSH not in "\n".join(told)
    assert HUSH[:10] not in str(info.value)
    assert "no such thing as ***" in "\n".join(told)

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from hermesd.agent.settings import ModelSettings

KEY = "sk-very-secret-123"


def no_credential(_folder, _name):
    return None


def test_a_model_is_asked_only_with_a_name_and_a_base():
    assert not ModelSettings().enabled
    assert not ModelSettings(model_name="m").enabled
    assert not ModelSettings(api_base="http://127.0.0.1/v1").enabled
    assert ModelSettings(model_name="m", api_base="http://127.0.0.1/v1").enabled


def test_the_environment_counts_before_the_file():
    settings = ModelSettings(model_name="filed", api_base="http://filed/v1", max_tokens=99)
    environ = {"MODEL_NAME": "given", "API_BASE": "https://given/v1/", "API_KEY": KEY}
    merged = settings.with_environment(environ, no_credential)
    assert (merged.model_name, merged.api_base, merged.max_tokens) == ("given", "https://given/v1", 99)
    assert merged.api_key.get_secret_value() == KEY


def test_without_an_environment_the_file_stays():
    settings = ModelSettings(model_name="filed", api_base="http://filed/v1")
    assert settings.with_environment({}, no_credential) == settings


def test_a_credential_counts_before_the_environments_key():
    asked = []

    def read(folder, name):
        asked.append((folder, name))
        return "sk-credential\n"

    settings = ModelSettings().with_environment({"CREDENTIALS_DIRECTORY": "/run/c", "API_KEY": KEY}, read)
    assert asked == [("/run/c", "api_key")]
    assert settings.api_key.get_secret_value() == "sk-credential"


def test_no_form_of_printing_shows_the_key():
    settings = ModelSettings().with_environment({"API_KEY": KEY}, no_credential)
    for shown in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert KEY not in shown
    assert "api_key" not in settings.model_dump()


def test_a_key_in_a_file_is_refused_without_being_shown():
    with pytest.raises(ValidationError, match="does not belong in this file") as caught:
        ModelSettings.model_validate({"api_key": KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-a\r\nX-Evil: 1", "sk a", "sk-é", "sk-\x00"])
def test_a_key_that_would_write_into_the_request_is_refused_without_being_shown(key):
    with pytest.raises(ValidationError, match="characters that no key has") as caught:
        ModelSettings(api_key=SecretStr(key))
    assert key not in str(caught.value)
    with pytest.raises(ValidationError):
        ModelSettings().with_environment({"API_KEY": key}, no_credential)


@pytest.mark.parametrize(
    "base",
    [
        "127.0.0.1:8000",
        "ftp://host/v1",
        "http:///v1",
        "http://user:pass@host/v1",
        "http://host/v1?key=1",
        "http://host/v1#x",
        "unix:///run/docker.sock",
        "file:///etc/passwd",
    ],
)
def test_a_base_that_is_no_plain_address_is_refused_without_being_shown(base):
    with pytest.raises(ValidationError) as caught:
        ModelSettings().with_environment({"API_BASE": base}, no_credential)
    assert base not in str(caught.value)

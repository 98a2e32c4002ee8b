import tomllib
from pathlib import Path

import pytest

from hermesd.confd import ConfigError, Document, read_folder, shipped
from hermesd.config import load_config
from hermesd.sources.settings import HostSettings, MqttSettings, WebhookSettings, read_source

TOPIC = '\n[[topic]]\nfilter = "a/#"\n'
CHECK = '\n[[check]]\nname = "web"\n'
HEALTH = 'kind = "health"' + CHECK


def document(text, name="local"):
    path = Path(f"/etc/hermesd/conf.d/sources/{name}.toml")
    return Document(name, path, tomllib.loads(text), ((path, text),))


def test_a_source_is_named_after_its_file_unless_it_says_otherwise():
    assert read_source(document('kind = "host"', "disks")).name == "disks"
    assert read_source(document('kind = "host"\nname = "other"', "disks")).name == "other"


def test_each_kind_is_read_by_its_own_model():
    assert isinstance(read_source(document('kind = "host"')), HostSettings)
    assert isinstance(read_source(document('kind = "mqtt"' + TOPIC)), MqttSettings)
    assert isinstance(read_source(document('kind = "webhook"')), WebhookSettings)


def test_what_ships_is_valid_and_only_what_listens_to_this_host_is_on():
    sources = [read_source(one) for one in read_folder([shipped()], "sources")]
    assert {source.kind: source.enabled for source in sources} == {
        "host": True,
        "mqtt": False,
        "webhook": False,
        "health": False,
        "units": True,
    }


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("enabled = true", 0, "kind: want one of host, mqtt, webhook, health, units"),
        ('enabled = true\nkind = "hsot"', 2, "kind: want one of"),
        ('kind = ["host"]', 1, "kind: want one of"),
        ('kind = "host"\ninterval = 5', 2, "interval: there is no such setting"),
        ('kind = "host"\ninterval_s = 0.1', 2, "greater than or equal to 0.2"),
        ('kind = "host"\n[[folder]]\npath = "var"\nbudget_bytes = 1', 3, "match pattern"),
        ('kind = "mqtt"', 0, "topic is missing"),
        ('kind = "mqtt"\n[[topic]]\nfilter = "a/b#"', 2, "'#' the whole last one"),
        ('kind = "mqtt"\npassword = { file = "/x" }' + TOPIC, 0, "a password needs a username"),
        ('kind = "mqtt"\nusername = "u"\npassword = {}' + TOPIC, 3, "name exactly one"),
        ('kind = "webhook"\nlisten = "0.0.0.0"', 0, "beyond loopback needs a token"),
        ('kind = "webhook"\nlisten = ""', 0, "nobody could reach it"),
        (HEALTH + 'url = "ftp://x"', 2, "url: want http://"),
        (HEALTH + 'url = "tls://x"', 2, "tls needs a port"),
        (HEALTH + 'url = "dns://192.0.2.1/"', 2, "dns needs a name"),
        (HEALTH + 'url = "command:rm -rf"', 2, "or command:NAME"),
        (HEALTH + 'url = "tcp://x:1"\nbody = "a"', 2, "body means nothing for tcp:"),
        (HEALTH + 'url = "http://x/"\nbody = "("', 2, "body is no regular expression"),
        (
            'kind = "health"' + CHECK + 'url = "https://x/"\nverify_tls = false\nca_file = "/a"',
            2,
            "ca_file means nothing with",
        ),
        (
            'kind = "health"' + CHECK + 'url = "dns:///x"\nrecord = "MX"',
            2,
            "asked for addresses only",
        ),
        (
            'kind = "webhook"\nlisten = "0.0.0.0"\ntls = { cert_file = "c", key_file = "k" }',
            0,
            "beyond loopback",
        ),
        (
            'kind = "webhook"\ntoken.file = "/t"\nbasic = { username = "u", password.file = "/p" }',
            0,
            "name one",
        ),
        (
            'kind = "webhook"\n[hmac]\nsecret = { file = "/s" }\nsigned = "{body}"',
            0,
            "signed: want {timestamp} and {body}",
        ),
        ('kind = "webhook"\n[[hook]]\npath = "/events"\nmap = {}', 0, "/events is there already"),
        (
            'kind = "webhook"\n[[hook]]\npath = "/x"\nmap = {}\n[[hook]]\npath = "/x"\nmap = {}',
            0,
            "two hooks have the same path",
        ),
        (
            'kind = "webhook"\nlisten = ""\nsocket = "/s"\ntls = { cert_file = "c", key_file = "k" }',
            0,
            "tls means nothing",
        ),
        ('kind = "mqtt"\nca_file = "/c"' + TOPIC, 0, "mean nothing without tls"),
        ('kind = "mqtt"\ntls = true\ncert_file = "/c"' + TOPIC, 0, "given together"),
        ('kind = "mqtt"' + TOPIC + 'mode = "text"\nmap = { value = "a" }', 0, "map means nothing"),
        ('kind = "mqtt"' + TOPIC + 'fields = ["a"]', 0, "fields and timestamp_unit mean nothing"),
        ('kind = "mqtt"' + TOPIC + '[publish]\nprefix = "a/#"', 5, "match pattern"),
        (HEALTH + 'url = "ftp://x"', 0, "url: want http://"),
        (HEALTH + 'url = "tcp://x"', 0, "tcp needs a port"),
        (HEALTH + 'url = "http://u:p@x"', 0, "credentials do not belong"),
        ('kind = "health"' + 2 * (CHECK + 'url = "http://x"'), 0, "two checks have the same name"),
    ],
)
def test_a_wrong_file_names_itself_the_line_and_the_reason(text, line, reason):
    with pytest.raises(ConfigError) as caught:
        read_source(document(text))
    fault = caught.value.faults[0]
    assert fault.file.name == "local.toml"
    assert reason in fault.reason
    if line:
        assert fault.line == line


def test_a_webhook_beyond_loopback_is_allowed_with_a_token():
    text = 'kind = "webhook"\nlisten = "0.0.0.0"\ntoken = { credential = "webhook_token" }'
    assert read_source(document(text)).listen == "0.0.0.0"


def test_two_files_that_claim_one_name_are_refused_with_the_line_of_the_second(tmp_path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "disks.toml").write_text('kind = "host"')
    (tmp_path / "sources" / "other.toml").write_text('kind = "host"\nname = "disks"')
    with pytest.raises(ConfigError) as caught:
        load_config([tmp_path], {})
    (fault,) = caught.value.faults
    assert (fault.file.name, fault.line) == ("other.toml", 2)
    assert fault.reason == "name: 'disks' is the name of disks.toml already"

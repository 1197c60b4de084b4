import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.redaction import (
    MARK,
    SIZE_LIMITS,
    beginning,
    digest,
    redacted,
    redacted_json,
    size_level,
)

SECRETS = [
    "sk-proj-abcdefghijklmnop1234567890",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "xoxb-123456789012-abcdefghij",
    "glpat-abcdefghij0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQdGBF\n-----END PGP PRIVATE KEY BLOCK-----",
    "sk_live_abcdefghijklmnop",
    "gsk_abcdefghijklmnop1234",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_of_common_shapes_are_redacted_anywhere(secret):
    assert redacted(f"before {secret} after", {}) == f"before {MARK} after"
    in_json = json.dumps({"note": f"before\n{secret}\nafter"})
    assert json.loads(redacted(in_json, {})) == {"note": f"before\n{MARK}\nafter"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2", f"password={MARK}"),
        ("api_key: abc123, next", f"api_key: {MARK}, next"),
        ('{"client_secret": "a \\" b", "q": "x"}', f'{{"client_secret": "{MARK}", "q": "x"}}'),
        ("MY_ACCESS_TOKEN='abc'", f"MY_ACCESS_TOKEN='{MARK}'"),
        ("Authorization: Bearer abcdefgh12345678", f"Authorization: Bearer {MARK}"),
        ("Authorization: Basic bWU6c2VjcmV0 now", f"Authorization: Basic {MARK} now"),
        ('{"authorization": "token abc123"}', f'{{"authorization": "token {MARK}"}}'),
        ("postgres://me:s3cret@host/db", f"postgres://{MARK}@host/db"),
        ("redis://:p@ss@host", f"redis://{MARK}@host"),
        ("get?q=1&key=abc123&n=2", f"get?q=1&key={MARK}&n=2"),
        ("password=ab,c(d;", f"password={MARK};"),
        ('{"password": "cut off', f'{{"password": "{MARK}'),
        ('{"passwords": ["hunter2"]}', f'{{"passwords": ["{MARK}"]}}'),
        ("curl --password hunter2 -s", f"curl --password {MARK} -s"),
        ("curl -u me:hunter2 host", f"curl -u me:{MARK} host"),
        ("machine host login me password hunter2", f"machine host login me password {MARK}"),
        ("STRIPE_KEY=abc123", f"STRIPE_KEY={MARK}"),
        ("<password>hunter2</password>", f"<password>{MARK}</password>"),
        ('password = """hunter2"""', f'password = """{MARK}"""'),
        ("password = '''\nhunter2\n'''", f"password = '''\n{MARK}\n'''"),
        ("secret: |\n  hunter2\nnext: 1", f"secret: |\n  {MARK}\nnext: 1"),
        ("password: >-\n    hunter2", f"password: >-\n    {MARK}"),
        (r'"{\"password\": \"hunter2\"}"', rf'"{{\"password\": \"{MARK}\"}}"'),
    ],
)
def test_values_with_secret_names_are_redacted_and_the_remainder_stays(text, expected):
    assert redacted(text, {}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "How many tokens has this text?",
        "the secret of the house",
        "keyboard: qwerty",
        "http://host:8080/x@y",
        "monkey=1",
        '"max_tokens": 512, "token_count": 12, "key": "value"',
        "password=None, secret: null",
        "Basic training for the secretary: Anna",
        "PWD=/home/me",
    ],
)
def test_ordinary_text_is_unchanged(text):
    assert redacted(text, {}) == text


def test_values_of_secret_variables_are_redacted():
    environ = {"MY_API_KEY": "correct horse", "EDITOR": "vim staple", "PIN_TOKEN": "123"}
    assert redacted("correct horse, vim staple, 123", environ) == f"{MARK}, vim staple, 123"


@pytest.mark.parametrize("written", [json.dumps, quote, str])
def test_values_of_secret_variables_are_redacted_in_every_encoding(written):
    secret = 'say "ö"\nand more'
    output = redacted(f"<{written(secret)}>", {"MY_SECRET": f"{secret} "})
    assert MARK in output
    assert "more" not in output


def test_a_short_value_of_a_secret_variable_is_redacted_only_as_a_word():
    assert (
        redacted("abc12, xabc12x, true", {"DB_PASS": "abc12", "USE_TOKEN": "true"})
        == f"{MARK}, xabc12x, true"
    )


def test_variables_with_names_similar_to_secrets_are_not_redacted():
    environ = {
        "KEYBOARD_LAYOUT": "german-layout",
        "TOKENIZERS_PARALLELISM": "parallel",
        "PASSENGER_ROOT": "/opt/thing",
    }
    assert (
        redacted("german-layout parallel /opt/thing", environ)
        == "german-layout parallel /opt/thing"
    )


PIECES = st.sampled_from(
    [
        *SECRETS,
        MARK,
        "password",
        "_KEY",
        "token",
        "Bearer ",
        "://",
        "a:b@",
        "=",
        ": ",
        '"',
        '\\"',
        "'",
        "\n",
        "[",
        "x1",
    ]
)


@given(st.text(max_size=400) | st.lists(PIECES, max_size=12).map("".join))
def test_a_secret_is_redacted_after_any_text(text):
    assert "hunter2" not in redacted(f"{text}\npassword=hunter2", {})


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_redacting_twice_changes_nothing(text):
    once = redacted(text, {})
    assert redacted(once, {}) == once


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "token",
        "token-",
        "--",
        "pass=>",
        'password"',
        "user x ",
        "bearer ",
        ":/",
        '="\\"',
        "eyJa.",
        " ",
        "mysql ",
        "zip -P",
    ],
)
def test_redacting_long_texts_that_resemble_secrets_ends(piece):
    # with a backtracking pattern, these would take hours
    text = piece * (300_000 // len(piece))
    assert len(redacted(text, {})) >= 100


def test_a_shortened_text_has_no_part_of_a_secret():
    key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    assert beginning(f"{'x' * 490} {key} and more", {}, 500) == f"{'x' * 490} {MARK[:9]}"
    assert "ghp_" not in beginning(" ".join([key] * 1_000), {}, 500)
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEow\n" * 3_000
    assert beginning(pem, {}, 500) == MARK
    assert "hidden" not in beginning("hidden" * 5_000, {"THE_SECRET": "hidden" * 100}, 500)


def test_arguments_stay_valid_json_of_limited_length():
    arguments = {
        "path": "a.txt",
        "api_key": {"value": ["abc"]},
        "content": "x" * 9_000,
        "note": "\nghp_" + "a1" * 12,
    }
    output = redacted_json(arguments, {}, 2_000)
    assert len(output) <= 2_000
    result = json.loads(output)
    assert (result["path"], result["api_key"], result["note"]) == ("a.txt", MARK, f"\n{MARK}")
    assert result["content"] == "x" * 1_000 + "…"
    assert len(redacted_json({str(number): "x" * 90 for number in range(900)}, {}, 2_000)) == 2_000


def test_the_value_of_a_secret_option_in_a_list_is_redacted():
    output = redacted_json({"argv": ["login", "--password", "hunter2", "--all", "x"]}, {}, 2_000)
    assert json.loads(output) == {"argv": ["login", "--password", MARK, "--all", "x"]}


def test_arguments_that_json_cannot_represent_are_replaced():
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    odd = {
        "deep": deep,
        "set": {1},
        "bytes": b"x",
        "none": None,
        "secret": None,
        "count": 3,
        "half": "\ud800",
    }
    result = json.loads(redacted_json(odd, {}, 2_000))
    assert [result[key] for key in ("set", "none", "secret", "count", "half")] == [
        "…",
        None,
        None,
        3,
        "\ud800",
    ]


def test_a_digest_distinguishes_texts_but_not_secrets():
    assert digest("one", {}) != digest("two", {})
    assert digest("x" * 9_000 + "one", {}) != digest("x" * 9_000 + "two", {})
    assert digest("password=1234", {}) == digest("password=5678", {})
    assert digest("\ud800", {}) != digest("", {})


def test_size_levels_follow_the_limits():
    assert [size_level(count) for count in (0, *(limit + 1 for limit in SIZE_LIMITS))] == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aws_secret_access_key wJalrXUtnFEMI/K7MDENG", f"aws_secret_access_key {MARK}"),
        ("set my_api_key  'abcd1234'", f"set my_api_key  '{MARK}'"),
        ("the api_key parameter and the user_token", "the api_key parameter and the user_token"),
        ("max_tokens 12345678", "max_tokens 12345678"),
    ],
)
def test_a_key_after_a_secret_name_and_a_space_is_redacted(text, expected):
    assert redacted(text, {}) == expected


def test_a_login_in_a_list_of_arguments_is_redacted():
    output = redacted_json({"argv": ["curl", "-u", "me:hunter2", "-u", "me", "host:80"]}, {}, 2_000)
    assert json.loads(output) == {"argv": ["curl", "-u", MARK, "-u", "me", "host:80"]}


def test_a_secret_with_json_escapes_is_redacted_in_values_and_keys():
    secret = 'a"b\\c-longer'
    output = redacted_json({secret: f"x {secret} y"}, {"MY_SECRET": secret}, 2_000)
    assert json.loads(output) == {MARK: f"x {MARK} y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql -u root -pHunter2Passw0rd shop", f"mysql -u root -p{MARK} shop"),
        ("mysqldump -p'hunter2' shop", f"mysqldump -p'{MARK}' shop"),
        ("/usr/bin/mariadb-dump -phunter2", f"/usr/bin/mariadb-dump -p{MARK}"),
        ("sshpass -p hunter2 ssh -p 8080 host", f"sshpass -p {MARK} ssh -p 8080 host"),
        ("sshpass -phunter2 scp a host:", f"sshpass -p{MARK} scp a host:"),
        ("docker login -u me -p hunter2 host", f"docker login -u me -p {MARK} host"),
        ("redis-cli -h host -a hunter2 ping", f"redis-cli -h host -a {MARK} ping"),
        ("unzip -P hunter2 a.zip", f"unzip -P {MARK} a.zip"),
        ("7z x -phunter2 a.7z", f"7z x -p{MARK} a.7z"),
        ("mongosh -u me -p hunter2", f"mongosh -u me -p {MARK}"),
        ("curl -ume:hunter2 host", f"curl -ume:{MARK} host"),
        ("curl -u 'me:hunter2' host", f"curl -u 'me:{MARK}' host"),
        ("mysql --password=hunter2 shop", f"mysql --password={MARK} shop"),
        ("PGPASSWORD=hunter2 psql", f"PGPASSWORD={MARK} psql"),
        ('["mysql", "-phunter2"]', f'["mysql", "-p{MARK}"]'),
        ('["sshpass", "-p", "hunter2"]', f'["sshpass", "-p", "{MARK}"]'),
    ],
)
def test_a_password_in_a_short_option_is_redacted_for_known_commands(text, expected):
    assert redacted(text, {}) == expected
    assert redacted(expected, {}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ssh -p 8080 host",
        "ssh -p8080 host",
        "docker run -p 8080:80 --name mysql mysql:8",
        "docker run --name mysql -p3306:3306 mysql:8",
        "mysql -u root -p shop",
        "mysql -P3306 -h host",
        "mkdir -p a/b; curl -s host",
        "zip -r a.zip -p",
        "tar -czpf a.tgz a",
    ],
)
def test_ports_and_other_short_options_are_unchanged(text):
    assert redacted(text, {}) == text


def test_a_password_in_a_short_option_is_redacted_in_a_list_of_arguments():
    words = (
        ["mysql", "-u", "root", "-phunter2"],
        ["docker", "login", "-p", "hunter2"],
        ["ssh", "-p", "8080"],
    )
    output = redacted_json({"argv": words}, {}, 2_000)
    assert json.loads(output)["argv"] == [
        ["mysql", "-u", "root", f"-p{MARK}"],
        ["docker", "login", "-p", MARK],
        ["ssh", "-p", "8080"],
    ]

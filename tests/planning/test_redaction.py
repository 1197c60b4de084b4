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
def test_keys_of_the_usual_shapes_are_taken_out_wherever_they_stand(secret):
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
def test_what_is_named_like_a_secret_is_taken_out_and_its_surroundings_stay(text, expected):
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
def test_other_words_are_left_alone(text):
    assert redacted(text, {}) == text


def test_values_of_secret_variables_are_taken_out_and_others_stay():
    environ = {"MY_API_KEY": "correct horse", "EDITOR": "vim staple", "PIN_TOKEN": "123"}
    assert redacted("correct horse, vim staple, 123", environ) == f"{MARK}, vim staple, 123"


@pytest.mark.parametrize("written", [json.dumps, quote, str])
def test_values_of_secret_variables_are_found_however_they_are_written(written):
    secret = 'say "ö"\nand more'
    told = redacted(f"<{written(secret)}>", {"MY_SECRET": f"{secret} "})
    assert MARK in told
    assert "more" not in told


def test_a_short_value_of_a_secret_variable_is_only_taken_out_as_a_word():
    assert redacted("abc12, xabc12x, true", {"DB_PASS": "abc12", "USE_TOKEN": "true"}) == f"{MARK}, xabc12x, true"


def test_variables_whose_names_only_sound_like_secrets_are_left_alone():
    environ = {"KEYBOARD_LAYOUT": "german-layout", "TOKENIZERS_PARALLELISM": "parallel", "PASSENGER_ROOT": "/opt/thing"}
    assert redacted("german-layout parallel /opt/thing", environ) == "german-layout parallel /opt/thing"


PIECES = st.sampled_from(
    [*SECRETS, MARK, "password", "_KEY", "token", "Bearer ", "://", "a:b@", "=", ": ", '"', '\\"', "'", "\n", "[", "x1"]
)


@given(st.text(max_size=400) | st.lists(PIECES, max_size=12).map("".join))
def test_a_secret_is_taken_out_whatever_stands_before_it(text):
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
def test_long_texts_that_almost_hold_secrets_come_to_an_end(piece):
    # with a pattern that goes back and forth, one of these would take hours
    text = piece * (300_000 // len(piece))
    assert len(redacted(text, {})) >= 100


def test_the_beginning_of_a_text_holds_no_part_of_a_secret_that_is_cut():
    key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    assert beginning(f"{'x' * 490} {key} and more", {}, 500) == f"{'x' * 490} {MARK[:9]}"
    assert "ghp_" not in beginning(" ".join([key] * 1_000), {}, 500)
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEow\n" * 3_000
    assert beginning(pem, {}, 500) == MARK
    assert "hidden" not in beginning("hidden" * 5_000, {"THE_SECRET": "hidden" * 100}, 500)


def test_arguments_stay_json_without_secrets_however_long_they_are():
    arguments = {"path": "a.txt", "api_key": {"value": ["abc"]}, "content": "x" * 9_000, "note": "\nghp_" + "a1" * 12}
    told = redacted_json(arguments, {}, 2_000)
    assert len(told) <= 2_000
    kept = json.loads(told)
    assert (kept["path"], kept["api_key"], kept["note"]) == ("a.txt", MARK, f"\n{MARK}")
    assert kept["content"] == "x" * 1_000 + "…"
    assert len(redacted_json({str(number): "x" * 90 for number in range(900)}, {}, 2_000)) == 2_000


def test_what_follows_a_secret_option_in_a_command_line_is_taken_out():
    told = redacted_json({"argv": ["login", "--password", "hunter2", "--all", "x"]}, {}, 2_000)
    assert json.loads(told) == {"argv": ["login", "--password", MARK, "--all", "x"]}


def test_odd_arguments_are_kept_as_far_as_json_goes():
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    odd = {"deep": deep, "set": {1}, "bytes": b"x", "none": None, "secret": None, "count": 3, "half": "\ud800"}
    kept = json.loads(redacted_json(odd, {}, 2_000))
    assert (kept["set"], kept["none"], kept["secret"], kept["count"], kept["half"]) == ("…", None, None, 3, "\ud800")


def test_a_digest_tells_texts_apart_and_not_their_secrets():
    assert digest("one", {}) != digest("two", {})
    assert digest("x" * 9_000 + "one", {}) != digest("x" * 9_000 + "two", {})
    assert digest("password=1234", {}) == digest("password=5678", {})
    assert digest("\ud800", {}) != digest("", {})


def test_levels_of_size_grow_with_the_size():
    assert [size_level(count) for count in (0, *(limit + 1 for limit in SIZE_LIMITS))] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aws_secret_access_key wJalrXUtnFEMI/K7MDENG", f"aws_secret_access_key {MARK}"),
        ("set my_api_key  'abcd1234'", f"set my_api_key  '{MARK}'"),
        ("the api_key parameter and the user_token", "the api_key parameter and the user_token"),
        ("max_tokens 12345678", "max_tokens 12345678"),
    ],
)
def test_what_follows_such_a_name_after_a_blank_is_taken_out_when_it_looks_like_a_key(text, expected):
    assert redacted(text, {}) == expected


def test_a_login_in_a_command_line_of_words_is_taken_out():
    told = redacted_json({"argv": ["curl", "-u", "me:hunter2", "-u", "me", "host:80"]}, {}, 2_000)
    assert json.loads(told) == {"argv": ["curl", "-u", MARK, "-u", "me", "host:80"]}


def test_a_secret_that_json_escapes_is_taken_out_of_values_and_keys():
    secret = 'a"b\\c-longer'
    told = redacted_json({secret: f"x {secret} y"}, {"MY_SECRET": secret}, 2_000)
    assert json.loads(told) == {MARK: f"x {MARK} y"}


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
def test_a_password_behind_one_letter_is_taken_out_of_the_command_it_belongs_to(text, expected):
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
def test_a_port_and_other_options_of_one_letter_stay(text):
    assert redacted(text, {}) == text


def test_a_password_behind_one_letter_is_taken_out_of_a_command_line_of_words():
    words = ["mysql", "-u", "root", "-phunter2"], ["docker", "login", "-p", "hunter2"], ["ssh", "-p", "8080"]
    told = redacted_json({"argv": words}, {}, 2_000)
    assert json.loads(told)["argv"] == [
        ["mysql", "-u", "root", f"-p{MARK}"],
        ["docker", "login", "-p", MARK],
        ["ssh", "-p", "8080"],
    ]

//! What `punctual.enqueue` accepts and refuses.

use punctual_core::callback::target_of;
use punctual_testkit::fixtures::Dice;

use super::*;

/// Arguments that break one rule each.
const BROKEN: &[&str] = &[
    "type => 'a b'",
    "type => ''",
    "type => NULL",
    "type => repeat('x', 256)",
    "type => E't\\n'",
    "type => 't\u{e9}'",
    "type => 't', queue => ''",
    "type => 't', queue => 'a,b'",
    "type => 't', tenant => ''",
    "type => 't', tenant => 'a/b'",
    "type => 't', tenant => repeat('x', 65)",
    "type => 't', priority => -1",
    "type => 't', priority => 10",
    "type => 't', idempotency_key => ''",
    "type => 't', idempotency_key => ' k'",
    "type => 't', idempotency_key => 'k '",
    "type => 't', idempotency_key => E'k\\t'",
    "type => 't', idempotency_key => 'k\u{e9}'",
    "type => 't', idempotency_key => repeat('k', 256)",
    "type => 't', payload => to_jsonb(repeat('x', 262143))",
    "type => 't', payload => (repeat('[', 128) || repeat(']', 128))::jsonb",
    "type => 't', payload => (repeat('{\"a\":', 127) || '{}' || repeat('}', 127))::jsonb",
    "type => 't', payload => '{\"a\": [1, -1e309]}'",
    "type => 't', execute_at => now(), delay_seconds => 1",
    "type => 't', execute_at => 'infinity'",
    "type => 't', execute_at => '-infinity'",
    "type => 't', execute_at => '10000-01-01 00:00:00+00'",
    "type => 't', execute_at => '0001-12-31 00:00:00+00 BC'",
    "type => 't', delay_seconds => -0.001",
    "type => 't', delay_seconds => 3155760000.001",
    "type => 't', delay_seconds => 'NaN'",
    "type => 't', delay_seconds => 'Infinity'",
    "type => 't', expires_at => now() - interval '1 second'",
    "type => 't', expires_at => now() + interval '1 hour', execute_at => now() + interval '1 hour'",
    "type => 't', expires_at => now() + interval '1 second', delay_seconds => 5",
    "type => 't', expires_at => 'infinity'",
    "type => 't', timeout_seconds => 0",
    "type => 't', timeout_seconds => -1",
    "type => 't', timeout_seconds => 86400.0001",
    "type => 't', timeout_seconds => 'NaN'",
    "type => 't', callback_headers => '{\"X\": \"1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '[]'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": 1}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": null}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"\": \"1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X Y\": \"1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"HOST\": \"1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"Punctual-X\": \"1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": \" 1\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": \"1\\t\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": \"a\\r\\nHost: b\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": \"\u{e9}\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => '{\"X\": \"1\", \"x\": \"2\"}'",
    "type => 't', callback_url => 'http://h/', callback_headers => jsonb_build_object('X', repeat('v', 8192))",
    "type => 't', callback_url => 'http://h/', callback_headers =>
        (SELECT jsonb_object_agg('X' || n, '1') FROM generate_series(1, 33) AS n)",
    "type => 't', callback_body => 'envelope'",
    "type => 't', callback_url => 'http://h/', callback_body => 'whole'",
    "type => 't', metadata => '\"a\"'",
    "type => 't', metadata => '{\"a\": 1}'",
    "type => 't', metadata => '{\"\": \"1\"}'",
    "type => 't', metadata => jsonb_build_object(repeat('k', 65), '1')",
    "type => 't', metadata => jsonb_build_object('k', repeat('v', 513))",
    "type => 't', metadata => '{\"a\": \"\\u0085\"}'",
    "type => 't', metadata => '{\"\\u007f\": \"1\"}'",
    "type => 't', metadata => (SELECT jsonb_object_agg('k' || n, '1') FROM generate_series(1, 33) AS n)",
    "type => 't', ordering_key => ''",
    "type => 't', ordering_key => repeat('k', 256)",
    "type => 't', ordering_key => E'a\\tb'",
    "type => 't', ordering_key => 'a\u{85}b'",
    "type => 't', concurrency_key => ''",
    "type => 't', concurrency_key => repeat('k', 256)",
    "type => 't', concurrency_key => E'a\\tb'",
    "type => 't', on_dependency_failure => 'stop'",
    "type => 't', depends_on => ARRAY[NULL]",
    "type => 't', depends_on => '{task_1}'",
    "type => 't', depends_on => ARRAY[1]",
    "type => 't', depends_on => ARRAY['task_01981E2C-5b7a-7c3e-9f00-3a4b5c6d7e8f']",
    "type => 't', depends_on => ARRAY['task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f']",
    "type => 't', depends_on => array_fill(gen_random_uuid(), ARRAY[10001])",
    "type => 't', retry_policy => '3'",
    "type => 't', retry_policy => '{\"retries\": 3}'",
    "type => 't', retry_policy => '{\"max_retries\": 1001}'",
    "type => 't', retry_policy => '{\"max_retries\": -1}'",
    "type => 't', retry_policy => '{\"max_retries\": 3.0}'",
    "type => 't', retry_policy => '{\"max_retries\": \"3\"}'",
    "type => 't', retry_policy => '{\"backoff\": \"cubic\"}'",
    "type => 't', retry_policy => '{\"jitter\": true}'",
    "type => 't', retry_policy => '{\"backoff_seconds\": -1}'",
    "type => 't', retry_policy => '{\"backoff_seconds\": \"1\"}'",
    "type => 't', retry_policy => '{\"max_backoff_seconds\": 2592001}'",
    "type => 't', retry_policy => '{\"delays_seconds\": 60}'",
    "type => 't', retry_policy => '{\"delays_seconds\": []}'",
    "type => 't', retry_policy => '{\"delays_seconds\": [\"60\"]}'",
    "type => 't', retry_policy => '{\"delays_seconds\": [60, 2592001]}'",
    "type => 't', retry_policy => '{\"delays_seconds\": [60], \"max_retries\": 2}'",
    "type => 't', retry_policy => '{\"delays_seconds\": [60], \"backoff\": \"fixed\"}'",
    "type => 't', retry_policy => jsonb_build_object('delays_seconds', array_fill(1, ARRAY[101]))",
    "type => 't', retry_policy => '{\"retry_on\": \"5xx\"}'",
    "type => 't', retry_policy => '{\"retry_on\": [\"5xx\", \"200\"]}'",
    "type => 't', retry_policy => '{\"retry_on\": [402]}'",
    "type => 't', retry_policy => jsonb_build_object('retry_on', array_fill('402'::text, ARRAY[51]))",
    "type => 't', retry_policy => '{\"backoff_seconds\": 5, \"max_backoff_seconds\": 4.9}'",
];

#[tokio::test]
async fn every_refusal_has_a_hint() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    for arguments in BROKEN {
        let error = refused(&client, arguments).await;
        assert_eq!(error.code().code(), "22023", "{arguments}: {error:?}");
        assert!(
            error.hint().is_some_and(|hint| hint.len() > 10) && error.message().len() > 10,
            "{arguments}: {error:?}"
        );
        assert!(error.message().len() < 1_000, "{arguments}: the message repeats the whole value");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM inbox").await, 0);
}

#[tokio::test]
async fn values_at_the_limits_are_accepted() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    for arguments in [
        "repeat('x', 255), queue => repeat('q', 255), tenant => repeat('t', 64), idempotency_key => repeat('k', 255)",
        "'t', priority => 0, delay_seconds => 0, timeout_seconds => 0.0000001",
        "'t', priority => 9, delay_seconds => 3155760000, timeout_seconds => 86400, idempotency_key => 'a b ~'",
        "'t', execute_at => '9999-12-31 23:59:59.999+00'",
        "'t', execute_at => '0001-01-01 00:00:00+00', expires_at => '9999-12-31 23:59:59.999+00'",
        "'t', payload => to_jsonb(repeat('x', 262142))",
        "'t', payload => (repeat('[', 127) || '1' || repeat(']', 127))::jsonb",
        "'t', payload => '[1.7976931348623157e308, -1.7976931348623157e308, 1e-400]'",
        "'t', payload => NULL, execute_at => NULL, queue => NULL, tenant => NULL, priority => NULL, metadata => 'null',
            callback_headers => 'null', retry_policy => 'null'",
        "'t', callback_headers => '{}', metadata => '{}', retry_policy => '{}'",
        "'t', retry_policy => '{\"max_retries\": 1000, \"backoff\": null, \"backoff_seconds\": 0,
            \"max_backoff_seconds\": 2592000, \"jitter\": \"none\"}'",
        "'t', retry_policy => '{\"delays_seconds\": [0, 0.5, 2592000], \"max_retries\": 3, \"backoff\": null,
            \"retry_on\": [\"4xx\", \"599\", \"timeout\", \"connection\"]}'",
        "'t', retry_policy => '{\"delays_seconds\": null, \"retry_on\": []}'",
        "'t', ordering_key => repeat('\u{1f600}', 255), on_dependency_failure => 'fail'",
        "'t', metadata => jsonb_build_object(repeat('\u{1f600}', 64), repeat('\u{1f600}', 512))",
        "'t', callback_url => 'http://h/', callback_headers => jsonb_build_object('X', repeat('v', 8191))",
    ] {
        enqueue(&client, arguments).await;
    }
}

/// The parts of generated URLs. The first of each is valid and comes at least half of the time.
const PARTS: &[&[&str]] = &[
    &["http", "https", "HTTP", "Https", "ftp", "javascript", ""],
    &["://", ":", ":/", ":///", ":\\\\", "://u@", "://u:p@", "://@"],
    &[
        "h",
        "example.com",
        "EXAMPLE.com",
        "a_b.c-d",
        "-a.b",
        "a-.b",
        "a..b",
        ".a",
        "a.",
        "1.2.3.4",
        "1.2.3",
        "01.2.3.4",
        "256.1.1.1",
        "1.2.3.4.5",
        "a.1",
        "1.a",
        "0x7f.1",
        "a.0x1",
        "2130706433",
        "[::1]",
        "[::ffff:1.2.3.4]",
        "[1::2::3]",
        "[::1",
        "::1",
        "[fe80::1%25eth0]",
        "[]",
        "xn--bcher-kva.example",
        "b\u{fc}cher.example",
        "a b",
        "a%41",
        "",
        "localhost",
        "a.b.c.d.e.f",
        "9a.b9",
        "a~b",
        "a,b",
    ],
    &["", ":80", ":0", ":65535", ":65536", ":", ":99999", ":8a", ":00080"],
    &[
        "",
        "/",
        "/a/../b",
        "/a//b/.",
        "?q=1",
        "#f",
        "/a?b#c",
        "?'",
        "/%zz",
        "/%",
        "/a b",
        "/\u{e9}",
        "/\\",
        "/\"",
        "/{a}",
        "/a\n",
        "/^",
        "/`",
        "/|",
        "/[a]",
        "x",
        "@b",
        "/@b:c",
        "/!$&'()*+,;=~_-.",
    ],
];

/// A URL that is accepted here must not be refused later, when its submitter is gone.
#[tokio::test]
async fn an_accepted_url_is_valid_to_the_product() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let mut dice = Dice::new(4);
    let mut texts: Vec<String> =
        (0..4_000).map(|_| PARTS.iter().map(|part| part[dice.below(part.len()) * dice.below(2)]).collect()).collect();
    for length in [2_030, 2_031, 2_032, 2_033, 2_034] {
        texts.push(format!("http://example.com/{}", "a".repeat(length)));
        texts.push(format!("http://example.com?{}", "a".repeat(length)));
        texts.push(format!("http://example.com/?''{}", "a".repeat(length - 6)));
    }
    let check = "SELECT t.url, punctual.inbox_is_url(t.url) FROM unnest($1::text[]) AS t (url)";
    let mut accepted = 0;
    for row in client.query(check, &[&texts]).await.unwrap() {
        let (text, is_url): (&str, bool) = (row.get(0), row.get(1));
        if is_url {
            accepted += 1;
            assert!(target_of(text).is_ok(), "{text:?} is accepted, but {:?}", target_of(text));
        }
    }
    assert!(accepted > 200 && accepted < 2_000, "too few or too many valid URLs: {accepted}");
    let long = format!("http://example.com/{}", "a".repeat(2_029));
    for plain in [
        "http://example.com",
        "https://Example.COM:8443/a/../b?q='1'&r=%20#part",
        "http://127.0.0.1:1/",
        "http://[::1]:65535/x",
        "http://xn--bcher-kva.example/%C3%BC",
        "http://a_b.internal?x",
        &long,
    ] {
        enqueue(&client, &format!("'t', callback_url => {}", literal(plain))).await;
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[tokio::test]
async fn settings_of_the_session_change_nothing() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    let settings = "CREATE SCHEMA evil; CREATE FUNCTION evil.inbox_refuse(text, text) RETURNS void LANGUAGE sql AS '';
        CREATE TEMP TABLE inbox (LIKE punctual.inbox INCLUDING DEFAULTS);
        CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$;
        SET search_path = evil, pg_temp, punctual, pg_catalog; SET standard_conforming_strings = off; SET DateStyle = 'SQL, DMY';
        SET TimeZone = 'Asia/Kathmandu'; SET bytea_output = 'escape'; SET extra_float_digits = -15";
    client.batch_execute(settings).await.unwrap();
    let arguments = "'t', execute_at => '2030-01-02 03:04:05.0000001+00', callback_url => 'http://1.2.3.4/', idempotency_key => 'k'";
    let first = enqueue(&client, arguments).await;
    assert_eq!(enqueue(&client, arguments).await, first);
    assert_eq!(refused(&client, "'t', callback_url => 'http://1.2.3.400/'").await.code().code(), "22023");
    let stored = fixture.sql("SELECT submission FROM punctual.inbox").await;
    assert!(stored[0][0].as_ref().unwrap().contains("2030-01-02T03:04:05.000000Z"), "{stored:?}");
    assert_eq!(first.uuid().get_version_num(), 7);
}

#[tokio::test]
async fn a_lower_payload_limit_holds_for_the_next_call() {
    let fixture = Fixture::open().await;
    let client = connect(&fixture.url).await;
    enqueue(&client, "'t', payload => to_jsonb(repeat('x', 20000))").await;
    let (store, validate) = (fixture.store.clone(), Arc::new(validate));
    let taking = tokio::spawn(async move { store.receive(validate, 10_000, std::future::pending()).await });
    eventually("the limit is the server's", SOON, async || {
        let limit = fixture.number("SELECT payload_bytes FROM inbox_watch").await;
        if limit == 10_000 { Ok(()) } else { Err(limit.to_string()) }
    })
    .await;
    let error = refused(&client, "'t', payload => to_jsonb(repeat('x', 20000))").await;
    assert!(error.hint().unwrap().contains("10000"), "{error:?}");
    taking.abort();
}

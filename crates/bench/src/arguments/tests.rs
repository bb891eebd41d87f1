//! Which arguments are accepted, and which are refused.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: BenchArguments,
}

fn parse(line: &str) -> Result<BenchArguments, String> {
    let words = ["bench"].into_iter().chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.arguments).map_err(|error| error.to_string())
}

fn check(line: &str) -> Result<(), String> {
    parse(line)?.check().map_err(|error| error.to_string())
}

#[test]
fn zero_of_anything_is_refused() {
    for line in [
        "submit --tasks 0",
        "submit --batch 0",
        "submit --connections 0",
        "drain --tasks 0",
        "lateness --rate 0",
        "lateness --seconds 0",
        "herd --tasks 0",
        "backlog --waiting 0",
        "backlog --probe 0",
        "fairness --backlog 0",
        "fairness --rate 0",
        "fairness --seconds 0",
        "overload --seconds 0",
        "overload --times 0",
        "idle --seconds 0",
        "handover --store postgres://a --rate 0",
        "handover --store postgres://a --seconds 0",
        "held --store postgres://a --tasks 0",
        "held --store postgres://a --seconds 0",
        "drain --nodes 0",
    ] {
        let refusal = check(line).expect_err(line);
        assert!(refusal.contains("invalid value '0' for '--"), "{line}: {refusal}");
        assert!(refusal.contains("must be a whole number from 1 to "), "{line}: {refusal}");
        assert_eq!(check(&line.replace('0', "1")), Ok(()), "{line} with 1");
    }
}

#[test]
fn numbers_that_would_overflow_are_refused() {
    for line in ["submit --tasks 18446744073709551615", "lateness --rate 1000001", "idle --seconds 86401"] {
        assert!(check(line).expect_err(line).contains("must be a whole number"), "{line}");
    }
}

#[test]
fn a_batch_is_no_larger_than_a_call_may_lease() {
    for scenario in ["drain", "herd", "lateness", "backlog", "fairness"] {
        assert_eq!(check(&format!("{scenario} --batch 1000")), Ok(()));
        let refusal = check(&format!("{scenario} --batch 1001")).expect_err(scenario);
        assert!(refusal.contains("at most 1000 tasks"), "{scenario}: {refusal}");
    }
    for scenario in
        ["submit", "overload", "drain --webhook", "lateness --webhook", "herd --webhook", "fairness --webhook"]
    {
        assert_eq!(check(&format!("{scenario} --batch 10000")), Ok(()));
        assert!(check(&format!("{scenario} --batch 10001")).is_err(), "{scenario}");
    }
}

#[test]
fn the_connections_flag_wins_over_the_defaults() {
    let connections = |line| parse(line).map(|it| (it.options.few_connections(), it.options.many_connections()));
    assert_eq!(connections("drain"), Ok((4, 64)));
    assert_eq!(connections("drain --connections 64"), Ok((64, 64)));
    assert_eq!(connections("drain --connections 2"), Ok((2, 2)));
}

#[test]
fn a_url_is_the_address_of_a_server() {
    for url in ["http://127.0.0.1:7400", "http://[::1]:7400/", "http://punctual.example/scheduler"] {
        assert_eq!(check(&format!("submit --url {url}")), Ok(()));
    }
    for url in ["nonsense", "localhost:7400", "127.0.0.1:7400", "ftp://a.example", "http://", "http://a.example/?b"] {
        let refusal = check(&format!("submit --url {url}")).expect_err(url);
        assert!(refusal.contains("must be the address of a server"), "{url}: {refusal}");
    }
    assert!(check("idle --url http://127.0.0.1:7400").expect_err("idle").contains("leave out --url"));
    assert!(check("submit --url https://a.example").expect_err("https").contains("plain HTTP only"));
}

#[test]
fn several_servers_share_a_postgres() {
    for line in [
        "drain --nodes 3 --store postgres://a@127.0.0.1:5432/b",
        "drain --nodes 1 --store sqlite",
        "herd --hold-open --store postgresql://a",
        "handover --store postgres://a",
        "waiting --tasks 5 --store postgres://a",
    ] {
        assert_eq!(check(line), Ok(()), "{line}");
    }
    for (line, expected) in [
        ("drain --nodes 2", "belongs to one server"),
        ("drain --nodes 2 --store sqlite", "belongs to one server"),
        ("drain --hold-open", "on PostgreSQL only"),
        ("submit --hold-open --store postgres://a", "with drain and herd only"),
        ("held", "on PostgreSQL only"),
        ("handover", "on PostgreSQL only"),
        ("handover --nodes 1 --store postgres://a", "no node takes over"),
        ("drain --url http://127.0.0.1:7400 --store sqlite", "leave out --store"),
        ("drain --url http://127.0.0.1:7400 --nodes 1", "leave out --store"),
    ] {
        let refusal = check(line).expect_err(line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
}

#[test]
fn a_handover_has_three_servers_by_default() {
    let nodes = |line| parse(line).map(|arguments| arguments.nodes());
    assert_eq!(nodes("handover"), Ok(3));
    assert_eq!(nodes("handover --nodes 2"), Ok(2));
    assert_eq!(nodes("drain"), Ok(1));
}

#[test]
fn a_store_is_sqlite_or_a_postgres() {
    for store in ["mysql://a:secret@b", "postgres", "/var/lib/secret", ""] {
        let refusal = check(&format!("submit --store={store}")).expect_err(store);
        assert!(refusal.contains("must be sqlite, or a PostgreSQL"), "{store}: {refusal}");
    }
}

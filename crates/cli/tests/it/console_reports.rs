//! Reports in the console: the built program proves a small pool, sends its report, and the console shows it.

use crate::{
    console_pages::{ServedConsole, crawl},
    online_verbs::make_token,
    pool_drives::done,
    spindle::{Bench, answered, json_of},
};
use std::fs;

/// A pool with a volume for a run.
const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = 'none'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.4
[[volume]]
name = 'store'
group = 'mail'
gb = 0.25
[[nbd]]
name = 'store'
volume = 'store'
";

#[test]
fn a_run_on_a_small_pool_is_shown_whole_under_the_policy_of_the_console() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, SITE);
    let cookie = console.login(&bench, "state/admin-token");
    assert!(console.get("/reports", &cookie).text.contains("No report is kept."));
    let uri = console.uri("/store").to_owned();
    let shape = ["--size", "16MiB", "--cache", "4MiB", "--duration", "1s", "--report", "night", "--quiet"];
    let run = bench.run(&[&["prove", &uri], &shape[..]].concat());
    answered(&run);
    let sent = bench.run(&["report", "night.run", "--send", "--state", "state"]);
    assert_eq!(sent.code, run.code, "{}", sent.stderr);
    assert!(sent.stdout.contains("its console shows it at /reports/night"), "{}", sent.stdout);
    // The record and the report are the same, and one that is there is not replaced.
    let same = bench.run(&["report", "night.json", "--send", "--state", "state", "--json"]);
    assert_eq!(
        (same.code, json_of(&same.stdout)["name"].as_str()),
        (Some(0), Some("night")),
        "{}",
        same.stderr
    );

    let written: serde_json::Value = json_of(&fs::read_to_string(bench.path("night.json")).unwrap());
    let document = &written["document"];
    let text =
        |value: &serde_json::Value| value.as_str().unwrap().replace('&', "&#38;").replace('\'', "&#39;");
    let list = console.get("/reports", &cookie);
    assert!(list.text.contains(&text(&document["verdict"]["headline"])), "{}", list.text);
    let page = console.get("/reports/night", &cookie);
    page.check("/reports/night");
    assert!(page.text.contains(&text(&document["verdict"]["headline"])), "{}", page.text);
    let whole = console.get("/reports/night/whole", &cookie);
    whole.check("/reports/night/whole");
    let standing = fs::read_to_string(bench.path("night.html")).unwrap();
    let body = |page: &str| page.split_once("<main").unwrap().1.to_owned();
    assert_eq!(body(&whole.text), body(&standing), "all that the file has");
    let style = whole.values("href").into_iter().find(|path| path.starts_with("/assets/report.css")).unwrap();
    let style = console.get(&style, &cookie);
    assert_eq!((style.status, style.header("content-type")), (200, "text/css; charset=utf-8"));
    assert!(standing.contains(&style.text), "the same style");
    let found = crawl(&console, &cookie, |path, page| page.check(path));
    assert!(found.contains("/reports/night/whole"), "{found:?}");

    make_token(&bench, "reader", &["--role", "read"]);
    let reader = console.login(&bench, "reader");
    let page = console.get("/reports/night", &reader);
    assert!(page.status == 200 && !page.text.contains("/delete"), "{}", page.text);
    assert_eq!(console.post("/reports/night/delete", &reader, &[("typed", "night")]).status, 403);
    assert_eq!(console.post("/reports/night/delete", &cookie, &[("typed", "nigh")]).status, 400);
    let deleted = console.post("/reports/night/delete", &cookie, &[("typed", "night")]);
    assert_eq!(deleted.header("location"), "/reports?done=deleted", "{}", deleted.text);
    assert_eq!(console.get("/reports/night", &cookie).status, 404);
    console.end();
}

#[test]
fn a_report_that_cannot_be_read_is_listed_with_the_reason_and_deleted() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, SITE);
    let cookie = console.login(&bench, "state/admin-token");
    bench.make_folder("state/reports");
    bench.make_file("state/reports/torn.json", b"{\"format\": \"spindle-re");
    bench.make_file("state/reports/other.json", b"{\"a\": 1}");
    bench.make_file("state/reports/notes.txt", b"mine");
    bench.make_file("secret.json", b"{\"format\": \"spindle-report\"}");
    let list = console.get("/reports", &cookie);
    list.check("/reports");
    assert_eq!(list.text.matches(">not readable</span>").count(), 2, "{}", list.text);
    assert!(
        list.text.contains("JSON, but not a Spindle report") && !list.text.contains("notes"),
        "{}",
        list.text
    );
    let page = console.get("/reports/torn", &cookie);
    page.check("/reports/torn");
    assert!(page.text.contains("not a readable report"), "{}", page.text);
    assert_eq!(console.get("/reports/torn/whole", &cookie).status, 409);
    for path in ["/reports/..%2F..%2Fsecret", "/reports/..%2F..%2Fsecret/whole", "/reports/nothing"] {
        assert_eq!(console.get(path, &cookie).status, 404, "{path}");
    }
    assert_eq!(console.post("/reports/torn/delete", &cookie, &[("typed", "torn")]).status, 303);
    assert!(!console.get("/reports", &cookie).text.contains("torn"));

    let refused = |words: &[&str]| {
        let said = bench.run(&[words, &["--state", "state"]].concat());
        assert_eq!(said.code, Some(2), "{}", said.stdout);
        said.stderr
    };
    bench.make_file("no.json", b"{}");
    assert!(refused(&["report", "no.json", "--send"]).contains("not a Spindle report"));
    assert!(refused(&["report", "no.json"]).contains("it is no run record"));
    let other = refused(&["report", "no.json", "--send", "--name", "../up"]);
    assert!(other.contains("is no name of a report") && !bench.path("state/up.json").exists(), "{other}");
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("PUT /v1/reports/no") && audit.contains("2 bytes with SHA-256"), "{audit}");
    console.end();
}

//! The web console judged in Chromium by Playwright and axe-core: with 4,096 volumes, and at one of two sites. In full runs.

use crate::{
    browser::Browser,
    console_pages::{MORE, ServedConsole},
    judged_exports::until,
    pool_drives::done,
    sites_served::SITE,
    spindle::{Bench, answered},
    two_sites::{has_clients, pair},
};
use std::{
    env,
    ffi::OsString,
    fs,
    net::TcpListener,
    process::{Command, Stdio},
};

/// The judge: it prints a line for each thing that it has found.
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/console.py");
/// With the one of the site, as many as a pool can have.
const VOLUMES: usize = 4095;

/// A Python with playwright; none if this is no full run.
fn playwright() -> Option<OsString> {
    let python = env::var_os("SPINDLE_PLAYWRIGHT_PYTHON");
    if python.is_none() {
        println!("skipped: playwright is for full runs (cargo xtask test --full --install)");
    }
    python
}

/// Has the console of a server in the folder of a bench judged.
fn judge(python: OsString, (bench, address): (&Bench, &str)) {
    let axe = env::var("SPINDLE_AXE").unwrap_or_else(|_| {
        println!("note: axe-core is not there (npm has it): nothing judges WCAG");
        "-".to_owned()
    });
    let mut judge = Command::new(python);
    judge.arg(JUDGE).arg(format!("http://{address}")).arg(bench.path("state/admin-token")).arg(axe);
    let judged = judge.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}\n{}", String::from_utf8_lossy(&judged.stderr));
    said.lines().filter(|line| !line.starts_with('{')).for_each(|line| println!("note: {line}"));
}

#[test]
fn chromium_finds_every_page_small_quick_quiet_and_within_reach_of_everybody() {
    let Some(python) = playwright() else { return };
    let volumes: String = (0..VOLUMES)
        .map(|number| format!("[[volume]]\nname = 'box{number:04}'\ngroup = 'mail'\ngb = 0.0009765625\n"))
        .collect();
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, &format!("{SITE}{MORE}{volumes}"));
    let run = ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration", "1s", "--report", "night"];
    answered(&bench.run(&run));
    let sent = bench.run(&["report", "night.json", "--send", "--state", "state"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let of_server = ["--server", "unix:state/spindle.sock"];
    for words in [
        &["group", "create", "post", "mail/store", "logs/log"][..],
        &["group", "snapshot", "mail/post@monday"],
    ] {
        done(&bench.run(&[words, &of_server].concat()));
    }
    judge(python, (&bench, &console.browser.address));
    console.end();
}

#[test]
fn chromium_finds_the_pages_of_a_secondary_in_order_while_a_failover_is_rehearsed() {
    let Some(python) = playwright() else { return };
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = pair("sync");
    let text = fs::read_to_string(denver.bench.path("site.toml")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let text = text.replacen("[serve]", &format!("[serve]\napi = '{address}'"), 1);
    denver.kill();
    denver.bench.make_file("site.toml", text.as_bytes());
    denver.start();
    until("denver follows again", || denver.is("secondary", "following"));
    // The last write is in doubt until another one comes.
    boston.io(&["write -P 17 0 4k"]);
    let group = denver.row()["group"].as_str().unwrap().to_owned();
    let socket = Browser::of_socket(&denver.bench.path("state/spindle.sock"));
    until("it can be rehearsed", || {
        let fields = [("idle_minutes", "30"), ("hours", "1")];
        socket.post(&format!("/replication/{group}/rehearsals"), "", &fields).status == 303
    });
    judge(python, (&denver.bench, &address));
}

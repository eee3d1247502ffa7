//! The web console with 4,096 volumes, judged in Chromium by Playwright and axe-core. In full runs.

use crate::{
    console_pages::{MORE, ServedConsole},
    sites_served::SITE,
    spindle::{Bench, answered},
};
use std::{
    env,
    process::{Command, Stdio},
};

/// The judge: it prints a line for each thing that it has found.
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/console.py");
/// With the one of the site, as many as a pool can have.
const VOLUMES: usize = 4095;

#[test]
fn chromium_finds_every_page_small_quick_quiet_and_within_reach_of_everybody() {
    let Some(python) = env::var_os("SPINDLE_PLAYWRIGHT_PYTHON") else {
        return println!("skipped: playwright is for full runs (cargo xtask test --full --install)");
    };
    let axe = env::var("SPINDLE_AXE").unwrap_or_else(|_| {
        println!("note: axe-core is not there (npm has it): nothing judges WCAG");
        "-".to_owned()
    });
    let volumes: String = (0..VOLUMES)
        .map(|number| format!("[[volume]]\nname = 'box{number:04}'\ngroup = 'mail'\ngb = 0.0009765625\n"))
        .collect();
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, &format!("{SITE}{MORE}{volumes}"));
    let run = ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration", "1s", "--report", "night"];
    answered(&bench.run(&run));
    let sent = bench.run(&["report", "night.json", "--send", "--state", "state"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let mut judge = Command::new(python);
    judge
        .arg(JUDGE)
        .arg(format!("http://{}", console.browser.address))
        .arg(bench.path("state/admin-token"))
        .arg(axe);
    let judged = judge.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}\n{}", String::from_utf8_lossy(&judged.stderr));
    said.lines().filter(|line| !line.starts_with('{')).for_each(|line| println!("note: {line}"));
    console.end();
}

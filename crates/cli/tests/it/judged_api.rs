//! The API, judged by schemathesis: requests made of its own description, valid and not, in sequences that follow what was
//! created. In full runs.

use crate::{judged_exports::until, spindle::Bench};
use std::{
    env, fs,
    process::{Command, Stdio},
};

/// Checks that are left out, with the reasons.
const EXCLUDED: [(&str, &str); 2] = [
    (
        "positive_data_acceptance",
        "a schema cannot say which names are free, that one change is asked for at a time, or which ETag is the present \
         one; and it takes 3.0 for an integer",
    ),
    ("ignored_auth", "after ten wrong tokens a minute the answer is 429, which the check does not know"),
];

const SITE: &[u8] = b"
[serve]
nbd = 'none'
iscsi = 'none'
api = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.3
[[group]]
name = 'logs'
drives = 2
drive_gb = 0.3
[[volume]]
name = 'store'
group = 'mail'
gb = 0.015625
[[volume]]
name = 'log'
group = 'logs'
gb = 0.015625
";

#[test]
fn schemathesis_finds_no_failure_of_the_api() {
    let Some(schemathesis) = env::var_os("SPINDLE_SCHEMATHESIS") else {
        return println!("skipped: schemathesis is for full runs (cargo xtask test --full --install)");
    };
    let bench = Bench::new();
    bench.make_file("site.toml", SITE);
    let mut command = bench.command(&["serve", "site.toml", "--state", "state"]);
    let [out, log] = ["out", "log"].map(|name| fs::File::create(bench.path(name)).unwrap());
    let mut server = command.stdout(out).stderr(log).spawn().unwrap();
    let said = || fs::read_to_string(bench.path("out")).unwrap();
    until("it serves before long", || said().contains("serving;"));
    let text = said();
    let line =
        text.lines().find_map(|line| line.strip_prefix("API: http://")).expect("the address of the API");
    let token = fs::read_to_string(bench.path("state/admin-token")).unwrap();
    // Of each operation, in four phases: more than 100,000 requests, in three quarters of an hour.
    let examples = env::var("SPINDLE_EXAMPLES").unwrap_or_else(|_| "800".to_owned());
    let mut judge = Command::new(schemathesis);
    judge.current_dir(bench.path("")).args(["run", &format!("http://{line}"), "--no-color", "--checks=all"]);
    judge.args(["--max-examples", &examples, "--header", &format!("Authorization: Bearer {token}")]);
    // A page of events is waited for, up to 30 s.
    judge.args(["--request-timeout", "45", "--max-response-time", "45"]);
    judge.args(EXCLUDED.map(|(check, _)| format!("--exclude-checks={check}")));
    // A caller may delete its own token, apply what ends the port's use, and say that the power is low: all is refused then.
    judge.args(
        ["/v1/tokens/{name}", "/v1/site/apply", "/v1/power"].map(|path| format!("--exclude-path={path}")),
    );
    let judged = judge.stdin(Stdio::null()).output().unwrap();
    let report = String::from_utf8_lossy(&judged.stdout);
    assert!(server.try_wait().unwrap().is_none(), "the server has ended: {}", said());
    let _ = server.kill();
    let _ = server.wait();
    assert!(judged.status.success(), "{report}\n{}", String::from_utf8_lossy(&judged.stderr));
    let counted = report.lines().find(|line| line.contains(" generated, "));
    println!("{}", counted.expect("a line of counts"));
}

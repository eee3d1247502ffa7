//! Tokens for some pools, on works that take several: groups, snapshots at one moment, copies and moves.

use crate::{
    online_verbs::{make_token, served_with_port},
    pool_drives::done,
    spindle::json_of,
};

const MAIL: &str = "state/pools/mail";
const LOGS: &str = "state/pools/logs";

#[test]
fn a_token_for_one_pool_reaches_no_work_that_takes_another() {
    let (bench, served, address) = served_with_port();
    for pool in [MAIL, LOGS] {
        done(&bench.run(&["volume", "create", &format!("{pool}/box"), "4MiB"]));
        done(&bench.run(&["volume", "snapshot", &format!("{pool}/box@monday")]));
    }
    done(&bench.run(&["group", "create", "both", &format!("{MAIL}/box"), &format!("{LOGS}/box")]));
    done(&bench.run(&["group", "snapshot", &format!("{MAIL}/both@friday")]));
    done(&bench.run(&["volume", "create", &format!("{LOGS}/plain"), "4MiB"]));
    make_token(&bench, "logger", &["--role", "admin", "--pool", "logs"]);
    let there = |arguments: &[&str]| {
        bench.run(&[arguments, &["--server", &address, "--token-file", "logger"]].concat())
    };
    let state = || {
        let shown = [MAIL, LOGS].map(|pool| json_of(&done(&bench.run(&["pool", "show", pool, "--json"]))));
        shown.map(|pool| (pool["volumes"].clone(), pool["snapshots"].clone(), pool["groups"].clone()))
    };
    let before = state();
    for refused in [
        &["group", "snapshot", "logs/both@x"][..],
        &["group", "clone", "logs/both@friday", "--suffix", "-try"],
        &["group", "rollback", "logs/both@friday", "--yes", "both"],
        &["group", "delete", "logs/both"],
        &["group", "create", "other", "logs/box", "mail/box"],
        &["volume", "snapshot", "logs/box", "mail/box", "--as", "x"],
        &["volume", "clone", "mail/box@monday", "logs/copy", "--independent"],
        &["volume", "clone", "logs/box@monday", "mail/copy", "--independent"],
        &["volume", "refresh", "logs/box", "--from", "mail/box@monday"],
        &["volume", "move", "logs/box", "mail/moved"],
        &["volume", "diff", "logs/box@monday", "mail/box"],
        &["pool", "settle", "mail"],
        &["job", "list", "mail"],
    ] {
        let said = there(refused);
        assert_eq!(said.code, Some(2), "{refused:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("mail") || said.stderr.contains("both"), "{}", said.stderr);
    }
    assert_eq!(state(), before);
    // Within its pool it may do all of it.
    done(&there(&["volume", "snapshot", "logs/box@tuesday"]));
    done(&there(&["group", "create", "own", "logs/plain"]));
    done(&there(&["group", "snapshot", "logs/own@wednesday"]));
    done(&there(&["volume", "clone", "logs/box@monday", "logs/copy", "--independent"]));
    done(&there(&["pool", "settle", "logs"]));
    served.end();
}

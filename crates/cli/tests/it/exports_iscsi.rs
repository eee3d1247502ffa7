//! iSCSI exports, as libiscsi and its tests see them.

use crate::spindle::{Bench, is_full_run, signal};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
    sync::Mutex,
    thread,
    time::Duration,
};

/// Two initiators that the tool has.
const INITIATORS: [&str; 2] = [
    "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test",
    "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test-2",
];
/// Tests it has.
const TESTS: usize = 230;
/// As many may be skipped at most.
const SKIPS_MAX: usize = 25;

/// True if libiscsi's programs are installed. If not, prints a line, and fails where judges are required.
pub fn libiscsi_is_here() -> bool {
    let here = Command::new("iscsi-test-cu").arg("--help").output().is_ok();
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "iscsi-test-cu is required: apt-get install libiscsi-bin");
    if !here {
        println!("skipped: iscsi-test-cu is not installed (apt-get install libiscsi-bin)");
    }
    here
}

/// A server, ended when dropped.
pub struct Serving {
    child: Child,
    pub portal: String,
    /// Addresses of the exports.
    pub uris: Vec<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// Ends it as Ctrl-C does, and returns all it printed.
    pub fn end(mut self, bench: &Bench) -> String {
        signal(&self.child, "INT");
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(bench.path("log")).unwrap()
    }

    pub fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        // // Port 0 selects a free one, which the program prints.
        let mut command = bench.command(&["export", "--iscsi", "127.0.0.1:0"]);
        let log = fs::File::create(bench.path("log")).unwrap();
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        let mut serving = Self { child: command.spawn().unwrap(), portal: String::new(), uris: Vec::new() };
        loop {
            let ended = serving.child.try_wait().unwrap();
            let said = fs::read_to_string(bench.path("log")).unwrap();
            // // It prints its addresses first, and then that it serves.
            if said.contains("serving; Ctrl-C ends it\n") {
                let uri = |line: &str| {
                    line.starts_with("iscsi://").then(|| line.split(' ').next().unwrap().to_owned())
                };
                serving.uris = said.lines().filter_map(uri).collect();
                serving.portal = serving.uris[0].split('/').nth(2).unwrap().to_owned();
                return serving;
            }
            assert!(ended.is_none(), "it says where it is: {arguments:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn write_secret(bench: &Bench, name: &str, secret: &str) {
    let path = bench.make_file(name, format!("{secret}\n").as_bytes());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Outcome of a test that did not simply pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Skips,
    Fails,
}

/// Expected outcomes for a format.
fn listed(format: &str) -> BTreeMap<String, Outcome> {
    let lines = include_str!("iscsi_test_cu.txt").lines().filter(|line| !line.starts_with('#'));
    let mut listed = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() > 3, "each has a reason: {line}");
        if words[0] == "all" || words[0] == format {
            let went = if words[1] == "skips" { Outcome::Skips } else { Outcome::Fails };
            assert!(listed.insert(words[2].to_owned(), went).is_none(), "{line} is listed twice");
        }
    }
    listed
}

/// Outcomes of the tests the tool ran, by name.
fn outcomes(said: &str) -> BTreeMap<String, Option<Outcome>> {
    let mut outcomes = BTreeMap::new();
    let mut suite = "";
    for part in said.split("\nSuite: ").skip(1) {
        let mut tests = part.split("\n  Test: ");
        suite = tests.next().and_then(|name| name.split_whitespace().next()).unwrap_or(suite);
        for test in tests {
            let test = test.split("\nRun Summary").next().unwrap_or(test);
            let name = test.split_whitespace().next().expect("tests have names");
            let ends = |line: &str| line.trim_end().ends_with("FAILED") && !line.contains("[FAILED]");
            let went = match (test.lines().any(ends), test.contains("SKIPPED]")) {
                (true, _) => Some(Outcome::Fails),
                (false, true) => Some(Outcome::Skips),
                (false, false) => None,
            };
            outcomes.insert(format!("{suite}.{name}"), went);
        }
    }
    outcomes
}

/// Suites, and tests of suites that sleep long. First what wants a disk of zeroes (of 257 blocks MultipathIO compares it
/// clears 256), then the sleepers.
fn pieces() -> Vec<String> {
    let output = Command::new("iscsi-test-cu").args(["--list", "iscsi://none/none/0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut pieces = BTreeSet::new();
    for line in said.lines().filter(|line| line.starts_with("ALL.")) {
        let words: Vec<&str> = line.trim().split('.').collect();
        let sleeps = matches!(words[1], "Reserve6" | "iSCSIcmdsn");
        let length = if sleeps { 3 } else { 2 };
        if words.len() >= length {
            let rank = if words[1] == "MultipathIO" { 0 } else { 1 + u8::from(!sleeps) };
            pieces.insert((rank, words[..length].join(".")));
        }
    }
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// Runs all tests at the targets `0`, `1`, …, one lane at each.
fn run_all(serving: &Serving, lanes: usize, user: &str, query: &str) -> BTreeMap<String, Option<Outcome>> {
    let pieces = Mutex::new(pieces().into_iter());
    let outcomes_of_all = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (pieces, outcomes_of_all) = (&pieces, &outcomes_of_all);
            scope.spawn(move || {
                let url = serving.uris[lane].replacen("iscsi://", &format!("iscsi://{user}"), 1) + query;
                loop {
                    let Some(piece) = pieces.lock().unwrap().next() else { return };
                    // Twice the same: what there is for several paths has two.
                    let mut command = Command::new("iscsi-test-cu");
                    command.args(["--dataloss", "--allow-sanitize", "--test", &piece, &url, &url]);
                    command.env("LIBISCSI_CHAP_TARGET_USERNAME", "array");
                    if !user.is_empty() {
                        command.env("LIBISCSI_CHAP_TARGET_PASSWORD", "a secret of the array");
                    } else {
                        command.env_remove("LIBISCSI_CHAP_TARGET_USERNAME");
                    }
                    let output = command.output().unwrap();
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    let found = outcomes(&said);
                    assert!(!found.is_empty(), "{piece}: {said}{}", String::from_utf8_lossy(&output.stderr));
                    outcomes_of_all.lock().unwrap().extend(found);
                }
            });
        }
    });
    outcomes_of_all.into_inner().unwrap()
}

#[track_caller]
fn compare(format: &str, outcomes: &BTreeMap<String, Option<Outcome>>) {
    assert_eq!(outcomes.len(), TESTS, "all were run");
    let listed = listed(format);
    let skipped = listed.values().filter(|went| **went == Outcome::Skips).count();
    assert!(skipped <= SKIPS_MAX, "{skipped} are skipped");
    for (test, went) in outcomes {
        assert_eq!(*went, listed.get(test).copied(), "{test}, with blocks of {format}");
    }
}

/// Path of an image whose writes need not survive the machine.
fn fast(bench: &Bench, name: &str) -> String {
    let folder = Path::new("/dev/shm");
    let own = format!("spindle-{}-{name}", std::process::id());
    if folder.is_dir() {
        folder.join(own).display().to_string()
    } else {
        bench.path(name).display().to_string()
    }
}

/// Runs all tests with blocks of that format at a server with those arguments.
fn all_tests(format: &str, lanes: usize, user: &str, query: &str, more: &dyn Fn(&Bench) -> Vec<String>) {
    let bench = Bench::new();
    let images: Vec<String> = (0..lanes).map(|lane| fast(&bench, &format!("{format}-{lane}"))).collect();
    let mut arguments: Vec<String> = images.clone();
    for lane in 0..lanes {
        arguments.extend(["--name".to_owned(), lane.to_string()]);
    }
    arguments
        .extend(["--create", "64MiB", "--write-cache", "--removable", "--blocks", format].map(str::to_owned));
    arguments.extend(more(&bench));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcomes = {
        let serving = Serving::begin(&bench, &arguments);
        run_all(&serving, lanes, user, query)
    };
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("iscsi-test uses "), "it says who comes: {log}");
    assert!(!log.contains("a secret of"), "and no secret");
    for image in &images {
        let _ = fs::remove_file(image);
    }
    compare(format, &outcomes);
}

#[test]
fn libiscsi_finds_nothing_wrong_with_a_disk() {
    if libiscsi_is_here() {
        all_tests("512e", 4, "", "", &|_| Vec::new());
    }
}

#[test]
fn libiscsi_finds_nothing_wrong_with_chap_both_ways_and_header_digests() {
    if !is_full_run("libiscsi with CHAP and digests") {
        return;
    }
    if !libiscsi_is_here() {
        return;
    }
    all_tests("512n", 4, "tester%a secret of the tester@", "?header_digest=crc32c", &|bench| {
        write_secret(bench, "tester.secret", "a secret of the tester");
        write_secret(bench, "array.secret", "a secret of the array");
        let mut access = "[own]\nuser = 'array'\nsecret-file = 'array.secret'\n".to_owned();
        for initiator in INITIATORS {
            access += &format!("[[initiator]]\nname = '{initiator}'\nuser = 'tester'\n");
            access += "secret-file = 'tester.secret'\nuses = ['0', '1', '2', '3']\n";
        }
        let path = bench.make_file("access.toml", access.as_bytes());
        vec!["--access".to_owned(), path.display().to_string()]
    });
}

#[test]
fn libiscsi_finds_nothing_wrong_with_large_blocks() {
    if is_full_run("libiscsi on a disk of large blocks") && libiscsi_is_here() {
        all_tests("4kn", 4, "", "", &|_| Vec::new());
    }
}

#[test]
fn libiscsi_finds_nothing_wrong_with_a_disk_that_is_only_read() {
    if !libiscsi_is_here() {
        return;
    }
    let bench = Bench::new();
    bench.make_file("kept.img", &vec![7; 4 << 20]);
    let serving = Serving::begin(&bench, &["kept.img", "--name", "0", "--read-only"]);
    let url = &serving.uris[0];
    for suite in ["ALL.ReadOnly", "ALL.ModeSense6", "ALL.Inquiry", "ALL.Read16", "ALL.ReadCapacity16"] {
        let output =
            Command::new("iscsi-test-cu").args(["--dataloss", "--test", suite, url, url]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = outcomes(&said);
        assert!(!found.is_empty() && found.values().all(Option::is_none), "{suite}: {said}");
    }
    drop(serving);
    assert!(fs::read(bench.path("kept.img")).unwrap().iter().all(|&byte| byte == 7), "nothing was written");
}

#[test]
fn a_taken_port_is_refused_in_a_line() {
    let bench = Bench::new();
    bench.make_file("a.img", &[0; 4096]);
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for flags in [&["--iscsi", &taken][..], &["--iscsi", "127.0.0.1:0", "--portal", &taken]] {
        let said = bench.refused(&[&["export", "a.img"], flags].concat());
        let flag = flags[flags.len() - 2];
        let wanted = format!("end the program that listens there, or choose another address with {flag}");
        assert!(
            said.contains(&taken) && said.contains(&wanted) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn libiscsi_finds_nothing_wrong_with_a_volume_of_a_pool() {
    // Plain runs have a volume behind the portal of three.
    if is_full_run("libiscsi on a volume of one pool") && libiscsi_is_here() {
        test_volume_of(&["pool"]);
    }
}

#[test]
fn libiscsi_finds_nothing_wrong_with_a_volume_behind_the_portal_of_three_pools() {
    if !is_full_run("libiscsi through the portal of three pools") {
        return;
    }
    if libiscsi_is_here() {
        test_volume_of(&["one", "pool", "other"]);
    }
}

/// Runs the tests of a thin disk at the volume of "pool", served with those of the other pools.
fn test_volume_of(pools: &[&str]) {
    let bench = Bench::new();
    let mut exports = Vec::new();
    for pool in pools {
        let made = bench.run(&["pool", "create", pool, "--drives", "2", "--size", "96MiB"]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let volume = format!("{pool}/of-{pool}");
        assert_eq!(bench.run(&["volume", "create", &volume, "64MiB"]).code, Some(0));
        exports.push(volume);
    }
    let serving = Serving::begin(&bench, &exports.iter().map(String::as_str).collect::<Vec<_>>());
    let url = serving.uris.iter().find(|uri| uri.contains("of-pool")).unwrap();
    let listed = listed("512e");
    for suite in
        ["Unmap", "WriteSame16", "WriteSame10", "GetLBAStatus", "Inquiry", "CompareAndWrite", "Write16"]
    {
        let output = Command::new("iscsi-test-cu")
            .args(["--dataloss", "--test", &format!("ALL.{suite}"), url, url])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = outcomes(&said);
        assert!(!found.is_empty(), "{suite}: {said}");
        for (test, went) in found {
            assert_eq!(went, listed.get(&test).copied(), "{test}: {said}");
        }
    }
}

/// The example of the book.
fn example() -> String {
    let book = include_str!("../../../../docs/targets.md");
    let (_, rest) = book.split_once("```toml\n").expect("the book has an example");
    rest.split_once("```").expect("it ends").0.to_owned()
}

#[test]
fn the_example_of_the_book_grants_the_rights_it_describes() {
    let bench = Bench::new();
    for disk in ["mail.img", "logs.img"] {
        bench.make_file(disk, &vec![0; 1 << 20]);
    }
    bench.make_file("access.toml", example().as_bytes());
    write_secret(&bench, "array.secret", "a secret of the array");
    let made = bench.run(&["export", "--chap-make"]);
    let secret = made.stdout.trim().to_owned();
    assert!(made.code == Some(0) && secret.len() == 16, "{}", made.stdout);
    assert_ne!(secret, bench.run(&["export", "--chap-make"]).stdout.trim(), "each is another one");
    let arguments = ["mail.img", "logs.img", "--access", "access.toml"];
    bench.make_file("mail1.secret", secret.as_bytes());
    fs::set_permissions(bench.path("mail1.secret"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = bench.refused(&[&["export", "--iscsi", "127.0.0.1:0"], &arguments[..]].concat());
    assert!(refused.contains("mail1.secret: others may read this secret; chmod 600"), "{refused}");
    write_secret(&bench, "mail1.secret", &secret);
    if !libiscsi_is_here() {
        return;
    }
    let serving = Serving::begin(&bench, &arguments);
    let list = |initiator: &str, user: &str| {
        let url = format!("iscsi://{user}{}", serving.portal);
        let output = Command::new("iscsi-ls").args(["-s", "-i", initiator, &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mail1 = "iqn.2026-11.org.example:mail1";
    let seen = list(mail1, &format!("mail1%{secret}@"));
    assert!(seen.contains(":mail Portal") && seen.matches("DIRECT_ACCESS").count() == 2, "{seen}");
    assert!(!list(mail1, "").contains("Target:"), "it has to show who it is");
    assert!(!list(mail1, "mail1%another secret it is@").contains("Target:"));
    let seen = list("iqn.2026-11.org.example:backup", "");
    assert!(seen.contains(":mail Portal") && seen.matches("DIRECT_ACCESS").count() == 1, "{seen}");
    assert!(!list("iqn.2026-11.org.example:other", "").contains("Target:"), "nobody else sees anything");
}

//! Verbs while a server has the pools open: the same words as with stopped pools, under clients.

use crate::{
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, ProgramOutput, json_of},
};
use std::{
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use world::{World, real};

fn served_bench() -> (Bench, Served) {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    (bench, served)
}

/// The same site, made and not served.
fn stopped_bench() -> Bench {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    bench
}

/// Runs a command with the usual state folder in the bench.
fn run_here(bench: &Bench, arguments: &[&str]) -> ProgramOutput {
    let mut command = bench.command(arguments);
    let output = command.env("STATE_DIRECTORY", bench.path("state")).output().unwrap();
    bench.said(output)
}

#[track_caller]
fn refused_with(said: &ProgramOutput, problem: &str) {
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains(problem), "{}", said.stderr);
}

#[test]
fn a_file_is_applied_and_the_site_printed_through_the_server() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    let stopped = stopped_bench();
    let changed = SITE
        .replace("gb = 0.015625", "gb = 0.03125\niops_max = 5000")
        .replace("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", "")
        .replace("[[target]]", "[[volume]]\nname = 'new'\ngroup = 'mail'\ngb = 0.0078125\n[[target]]");
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 8M", "wrote", 1).await;
        for bench in [&bench, &stopped] {
            bench.make_file("changed.toml", changed.as_bytes());
        }
        for extra in [&["--dry-run"][..], &["--dry-run", "--json"]] {
            let both = [&bench, &stopped].map(|bench| {
                let said = bench.run(&[&["apply", "changed.toml", "--state", "state"], extra].concat());
                assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
                said.stdout
            });
            assert_eq!(both[0], both[1]);
        }
        let said = done(&bench.run(&["apply", "changed.toml", "--state", "state"]));
        assert!(said.starts_with("changed.toml: 4 changes\n") && said.contains("\ndone"), "{said}");
        assert!(said.contains("applies its own file again at its next start"), "{said}");
        client.says("write -P 2 8M 4M", "wrote", 2).await;
        client.end().await;
    });
    let again = bench.run(&["apply", "changed.toml", "--state", "state", "--dry-run"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "changed.toml: nothing to change\n"),
        "{}",
        again.stderr
    );
    // Paths begin at the file, wherever it is.
    bench.make_folder("elsewhere");
    let there =
        changed.replace("name = 'mail'\ndrives", "name = 'mail'\nfolder = '../state/pools/mail'\ndrives");
    bench.make_file("elsewhere/site.toml", there.as_bytes());
    let said = done(&bench.run(&["apply", "elsewhere/site.toml", "--state", "state"]));
    assert_eq!(said, "elsewhere/site.toml: nothing to change\n");
    // A wrong file is refused as without a server.
    let wrong = [&bench, &stopped].map(|bench| {
        bench.make_file("wrong.toml", b"[[volume]\n");
        let said = bench.run(&["apply", "wrong.toml", "--state", "state"]);
        refused_with(&said, "the site file: line 1");
        said.stderr
    });
    assert_eq!(wrong[0], wrong[1]);
    let printed = bench.run(&["site", "--state", "state"]);
    done(&printed);
    served.end();
    let after = bench.run(&["site", "--state", "state"]);
    assert_eq!((&printed.stdout, &printed.stderr), (&after.stdout, &after.stderr));
}

#[test]
fn the_space_of_a_volume_is_that_of_its_blocks_served_and_stopped() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    let space_of = |path: &str| json_of(&done(&run_here(&bench, &["volume", "space", path, "--json"])));
    let figures = |space: &serde_json::Value| {
        let keys = ["used_bytes", "volume_bytes", "snapshots_bytes", "others_bytes", "reclaimable_bytes"];
        let snapshots = space["snapshots"].as_array().unwrap();
        let freed = snapshots.iter().map(|snapshot| snapshot["reclaimable_bytes"].as_u64().unwrap());
        let kept = keys.iter().map(|key| space[key].as_u64().unwrap());
        kept.chain(freed).map(|bytes| bytes >> 20).collect::<Vec<_>>()
    };
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 8M", "wrote", 1).await;
        for (name, number) in [("monday", 2), ("tuesday", 3)] {
            done(&run_here(&bench, &["volume", "snapshot", &format!("mail/store@{name}")]));
            client.says("write -P 2 0 2M", "wrote", number).await;
        }
        client.end().await;
    });
    // 8 MiB of monday, of which 2 MiB were overwritten twice; of tuesday 2 MiB.
    let wanted = [12, 8, 4, 0, 12, 2, 2];
    let space = space_of("mail/store");
    assert_eq!(figures(&space), wanted, "{space}");
    assert!(space["as_of"].is_string(), "{space}");
    done(&run_here(&bench, &["volume", "delete", "mail/store@monday", "--yes", "monday"]));
    assert_eq!(figures(&space_of("mail/store")), [10, 8, 2, 0, 10, 2]);
    done(&run_here(&bench, &["volume", "clone", "mail/store@tuesday", "mail/try"]));
    let said = done(&run_here(&bench, &["volume", "space", "mail/store"]));
    for line in [
        "mail/store: 10.0 MiB used, as of ",
        "  0 B kept by its snapshots beyond it\n",
        "  2.00 MiB kept by clones and by what rollbacks left\n",
        "deleting mail/store@tuesday frees 0 B\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let served_figures = figures(&space_of("mail/store"));
    served.end();
    let stopped = space_of("state/pools/mail/store");
    assert_eq!((figures(&stopped), stopped["as_of"].is_null()), (served_figures, true), "{stopped}");
    refused_with(&run_here(&bench, &["volume", "space", "state/pools/mail/none"]), "none");
}

#[test]
fn volume_verbs_answer_the_same_served_and_stopped() {
    let (bench, served) = served_bench();
    let stopped = stopped_bench();
    let benches = [&bench, &stopped];
    let both = |arguments: &[&str]| {
        let said = benches.map(|bench| bench.run(&[&["volume"], arguments].concat()));
        assert_eq!(said[0].code, said[1].code, "{arguments:?}: {}{}", said[0].stderr, said[1].stderr);
        said
    };
    for arguments in [
        &["create", "POOL/a", "8MiB", "--limit", "6MiB", "--iops", "500"][..],
        &["create", "POOL/b", "4MiB", "--write-cache"],
        &["set", "POOL/a", "--limit", "none", "--write-cache", "on"],
        &["resize", "POOL/a", "9MiB"],
        &["resize", "POOL/a", "8MiB", "--shrink", "--yes", "a"],
        &["rename", "POOL/b", "c"],
        &["snapshot", "POOL/a@monday", "--note", "before"],
        &["clone", "POOL/a@monday", "POOL/d"],
        &["fill", "POOL/d", "--cancel"],
        &["rollback", "POOL/a@monday", "--yes", "a"],
        &["rollback", "POOL/a~1", "--yes", "a~1"],
        &["readmit", "POOL/a", "--all"],
        &["snapshot", "POOL/a", "POOL/c", "--as", "tuesday"],
        &["delete", "POOL/a@tuesday", "--yes", "tuesday"],
        &["create", "POOL/a", "8MiB"],
        &["create", "POOL/a", "1GiB"],
        &["snapshot", "POOL/a@monday", "--note", "before"],
        &["delete", "POOL/none", "--yes", "none"],
        &["delete", "POOL/a@none", "--yes", "none"],
        &["set", "POOL/none", "--iops", "5"],
    ] {
        let arguments: Vec<String> =
            arguments.iter().map(|word| word.replace("POOL", "state/pools/mail")).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = both(&[&arguments[..], &["--json"]].concat());
        match said[0].code {
            Some(0) => {
                let [served, stopped] = said.each_ref().map(|said| json_of(&said.stdout));
                assert_eq!(served, stopped, "{arguments:?}");
            }
            _ => assert_eq!(said[0].stderr, said[1].stderr, "{arguments:?}"),
        }
    }
    let said = both(&["resize", "state/pools/mail/c", "8MiB"]);
    assert_eq!(said[0].stdout, said[1].stdout);
    let said = both(&["resize", "state/pools/mail/c", "4MiB", "--shrink"]);
    assert_eq!(said[0].stderr, said[1].stderr);
    refused_with(&said[0], "c: 8.00 MiB → 4.00 MiB; what lies behind is lost, and nothing brings it back");
    let said = both(&["delete", "state/pools/mail/d"]);
    assert_eq!(said[0].stderr, said[1].stderr);
    refused_with(
        &said[0],
        "d: 8.00 MiB → deleted; nothing brings it back: the name confirms that; say --yes d",
    );
    let shrink = ["volume", "resize", "state/pools/mail/store", "4MiB", "--shrink"];
    refused_with(&bench.run(&shrink), ", served as NBD export store, unit ");
    let said = both(&["resize", "state/pools/mail/c", "4MiB"]);
    assert!(said[0].stderr.contains("say --shrink if that is meant"), "{}", said[0].stderr);
    let said = bench.run(&["volume", "fill", "state/pools/mail/d", "--json"]);
    assert_eq!(json_of(&done(&said))["done"], "being filled");
    let said =
        done(&bench.run(&["volume", "clone", "state/pools/mail/a", "state/pools/mail/e", "--independent"]));
    assert!(said.contains("that goes on in the server"), "{said}");
    let said = bench.run(&["volume", "delete", "state/pools/mail/store", "--yes", "store"]);
    refused_with(&said, "mail/store is served as NBD export store, unit ");
    refused_with(&said, "take it out of the site file and apply that first");
    let said = done(&bench.run(&["volume", "diff", "state/pools/mail/a@monday"]));
    assert!(said.contains("from @monday to now: 0 B of 8.00 MiB changed"), "{said}");
    let both_pools = ["volume", "snapshot", "state/pools/mail/a", "state/pools/logs/log", "--as", "x"];
    done(&bench.run(&both_pools));
    done(&bench.run(&["volume", "diff", "state/pools/logs/log@x"]));
    done(&bench.run(&["group", "show", "state/pools/mail"]));
    let link = bench.path("state/pools/mail/spindle-server.json");
    assert!(link.exists());
    let left = fs::read(&link).unwrap();
    served.end();
    assert!(!link.exists());
    // One that a killed server has left is not believed.
    fs::write(&link, left).unwrap();
    done(&bench.run(&["volume", "diff", "state/pools/mail/a@monday"]));
    done(&bench.run(&["volume", "delete", "state/pools/mail/c@tuesday", "--yes", "tuesday"]));
    done(&bench.run(&["pool", "scrub", "state/pools/mail"]));
}

#[test]
fn a_forced_rollback_shows_whom_it_concerns_and_how_it_is_undone() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    let volume = "state/pools/mail/store";
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 1M", "wrote", 1).await;
        client.says("flush", "qemu-io>", 2).await;
        done(&bench.run(&["volume", "snapshot", "state/pools/mail/store@monday"]));
        client.says("write -P 2 0 1M", "wrote", 2).await;
        let roll_back = ["volume", "rollback", "state/pools/mail/store@monday", "--yes", "store"];
        let said = bench.run(&roll_back);
        refused_with(&said, "state/pools/mail/store is served as NBD export store, unit ");
        refused_with(&said, "or say --force");
        let said = bench.run(&["volume", "rollback", "state/pools/mail/store@monday", "--force"]);
        refused_with(&said, "say --yes store");
        let said = bench.run(&[&roll_back[..], &["--force"]].concat());
        let text = done(&said);
        assert!(said.stderr.contains("it is withheld from each client"), "{}", said.stderr);
        assert!(text.contains("withheld from all NBD clients"), "{text}");
        assert!(text.ends_with(&format!("undo: spindle volume rollback {volume}~1 --force\n")), "{text}");
        client.says("read 0 4k", "failed", 1).await;
        let readmitted = done(&bench.run(&["volume", "readmit", volume, "--nbd"]));
        assert_eq!(readmitted, format!("{volume}: readmitted: all NBD clients\n"));
        let mut after = QemuIo::begin(&bench, &world, "after", served.uri("/store"));
        after.says("read -P 1 0 1M", "read 1048576", 1).await;
        let undone = bench.run(&[
            "volume",
            "rollback",
            &format!("{volume}~1"),
            "--yes",
            "store~1",
            "--force",
            "--json",
        ]);
        let answer = json_of(&done(&undone));
        assert_eq!(
            (&answer["withheld_from_nbd"], &answer["left"]),
            (&true.into(), &format!("{volume}~2").into())
        );
    });
    served.end();
}

/// A socket in front of another one, which loses the first answer to a request that begins with `lost`, once it is done, and
/// says `instead`.
fn lossy_socket(at: &Path, server: PathBuf, (lost, instead): (&'static str, &'static str)) {
    let listener = UnixListener::bind(at).unwrap();
    thread::spawn(move || {
        let mut has_lost = false;
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
            let mut bytes = vec![0; 65_536];
            let length = client.read(&mut bytes).unwrap();
            server.write_all(&bytes[..length]).unwrap();
            if bytes.starts_with(lost.as_bytes()) && !has_lost {
                has_lost = true;
                assert!(server.read(&mut bytes).unwrap() > 0, "it is done");
                client.write_all(instead.as_bytes()).unwrap();
                continue;
            }
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let _ = io::copy(&mut server, &mut client);
        }
    });
}

#[test]
fn an_apply_that_takes_long_is_waited_for() {
    let (bench, served) = served_bench();
    let (socket, moved) = (bench.path("state/spindle.sock"), bench.path("state/moved.sock"));
    fs::rename(&socket, &moved).unwrap();
    let problem = "{\"type\":\"urn:spindle:goes-on\",\"status\":504,\"title\":\"\",\"detail\":\"no answer within 50 s\"}";
    let reply = format!("HTTP/1.1 504 Gateway Timeout\r\ncontent-length: {}\r\n\r\n{problem}", problem.len());
    lossy_socket(&socket, moved, ("POST /v1/site/apply", reply.leak()));
    let changed = SITE.replace("gb = 0.015625", "gb = 0.03125");
    bench.make_file("site.toml", changed.as_bytes());
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert!(done(&said).contains("\ndone"), "{}", said.stdout);
    assert!(said.stderr.contains("the server goes on with it"), "{}", said.stderr);
    let again = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert_eq!(done(&again), "site.toml: nothing to change\n");
    served.end();
}

#[test]
fn a_change_whose_answer_is_lost_is_done_once() {
    let (bench, served) = served_bench();
    done(&bench.run(&["volume", "create", "state/pools/mail/a", "1MiB"]));
    for arguments in [
        &["create", "mail/b", "1MiB"][..],
        &["snapshot", "mail/a@monday"],
        &["snapshot", "mail/a", "mail/store", "--as", "tuesday"],
        &["clone", "mail/a@monday", "mail/c"],
        &["rollback", "mail/a@monday", "--yes", "a"],
    ] {
        let path = bench.path("lossy.sock");
        let _ = fs::remove_file(&path);
        lossy_socket(&path, bench.path("state/spindle.sock"), ("POST", ""));
        let socket = format!("unix:{}", path.display());
        done(&bench.run(&[&["volume"], arguments, &["--server", &socket]].concat()));
    }
    served.end();
    let shown = json_of(&done(&bench.run(&["pool", "show", "state/pools/mail", "--json"])));
    let volumes = shown["volumes"].as_array().unwrap().iter();
    let mut names: Vec<&str> = volumes.map(|volume| volume["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "a~1", "b", "c", "store"]);
    // Asked for, done, and answered again from the audit's journal: one announcement each.
    let again = Served::begin(&bench);
    let lines = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert_eq!(lines.matches("\"outcome\":\"begun\"").count(), 6, "{lines}");
    again.end();
}

#[test]
fn a_volume_is_destroyed_by_name_through_the_server() {
    let (bench, served) = served_bench();
    let less = SITE.replace("[[volume]]\nname = 'log'\ngroup = 'logs'\ngb = 0.0078125\n", "");
    let less = less.replace("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", "");
    bench.make_file("less.toml", less.as_bytes());
    let apply = |extra: &[&str]| bench.run(&[&["apply", "less.toml", "--state", "state"], extra].concat());
    let said = done(&apply(&[]));
    assert!(
        said.contains("  not in the file: volume logs/log, 8.00 MiB: it stays, and is not served"),
        "{said}"
    );
    refused_with(&apply(&["--destroy", "mail/store"]), "mail/store is in the file, so it is not destroyed");
    let said = done(&apply(&["--destroy", "logs/log"]));
    assert!(said.contains("- volume logs/log: 8.00 MiB"), "{said}");
    refused_with(
        &bench.run(&["volume", "delete", "state/pools/logs/log", "--yes", "log"]),
        "the pool has no volume \"log\"",
    );
    served.end();
}

/// A server with an API on a port, and the port's address.
pub fn served_with_port() -> (Bench, Served, String) {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.replacen("[serve]", "[serve]\napi = '127.0.0.1:0'", 1).as_bytes());
    let served = Served::begin(&bench);
    for _ in 0..1_000 {
        let log = fs::read_to_string(bench.path("log")).unwrap();
        if let Some((_, rest)) = log.split_once("API: http://")
            && let Some((address, _)) = rest.split_once('/')
        {
            return (bench, served, address.to_owned());
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", fs::read_to_string(bench.path("log")).unwrap());
}

/// Makes a token, and keeps it in a file.
pub fn make_token(bench: &Bench, name: &str, rights: &[&str]) {
    let said = bench.run(&[&["token", "create", name, "--state", "state"], rights].concat());
    let token = done(&said);
    assert!(token.starts_with("spindle_") && token.lines().count() == 1, "{token}");
    assert!(said.stderr.starts_with(&format!("{name}: ")), "{}", said.stderr);
    let path = bench.make_file(name, token.as_bytes());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_token_gives_its_role_on_its_pools_until_it_is_deleted() {
    let (bench, served, address) = served_with_port();
    make_token(&bench, "reader", &["--role", "read"]);
    make_token(&bench, "logger", &["--role", "operate", "--pool", "logs", "--days", "2"]);
    let there = |arguments: &[&str], token: &str| {
        bench.run(&[arguments, &["--server", &address, "--token-file", token]].concat())
    };
    let create = |volume: &'static str| ["volume", "create", volume, "1MiB"];
    refused_with(
        &there(&create("mail/x"), "reader"),
        "token reader may not do this: it takes the role operate",
    );
    let problem = format!("the server at {address} has no pool mail; it has logs");
    refused_with(&there(&create("mail/x"), "logger"), &problem);
    assert_eq!(done(&there(&create("logs/x"), "logger")), "logs/x: a volume of 1.00 MiB\n");
    refused_with(&there(&["volume", "delete", "logs/x", "--yes", "x"], "logger"), "it takes the role admin");
    refused_with(&there(&["token", "list"], "logger"), "it takes the role admin");
    let list = done(&there(&["token", "list"], "state/admin-token"));
    assert!(
        list.contains("logger: operate, pool logs, made 2") && list.contains(", valid until 2"),
        "{list}"
    );
    let rows = json_of(&done(&bench.run(&["token", "list", "--state", "state", "--json"])));
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["admin", "logger", "reader"]);
    let twice = bench.run(&["token", "create", "reader", "--role", "admin", "--state", "state"]);
    refused_with(&twice, "there is a token \"reader\"");
    done(&bench.run(&["token", "delete", "logger", "--state", "state"]));
    refused_with(&there(&create("logs/y"), "logger"), "the token is unknown or has expired");
    refused_with(&bench.run(&["volume", "create", "logs/y", "1MiB", "--server", &address]), "needs a token");
    fs::set_permissions(bench.path("reader"), fs::Permissions::from_mode(0o644)).unwrap();
    refused_with(&there(&create("mail/x"), "reader"), "reader: others may read this token; chmod 600 it");
    served.end();
}

#[test]
fn a_changed_line_of_the_audit_is_found() {
    let (bench, served) = served_bench();
    for volume in ["a", "b", "c"] {
        done(&bench.run(&["volume", "create", &format!("state/pools/mail/{volume}"), "1MiB"]));
    }
    let check = |arguments: &[&str]| bench.run(&[&["audit", "check"], arguments].concat());
    let exported = done(&bench.run(&["audit", "export", "--state", "state"]));
    bench.make_file("audit.jsonl", exported.as_bytes());
    let lines: Vec<&str> = exported.lines().collect();
    assert_eq!(lines.len(), 6, "each change and its outcome: {exported}");
    let second = json_of(lines[1]);
    assert_eq!((&second["number"], &second["of"], &second["outcome"]), (&2.into(), &1.into(), &"201".into()));
    assert_eq!(done(&check(&["audit.jsonl"])), "audit.jsonl: lines 1 to 6 are whole and in order\n");
    let said = json_of(&done(&check(&["--state", "state", "--json"])));
    assert_eq!(said, serde_json::json!({"lines": 6, "first": 1, "last": 6}));
    let rest = done(&bench.run(&["audit", "export", "--state", "state", "--after", "4"]));
    assert_eq!(rest.lines().collect::<Vec<_>>(), lines[4..]);
    bench.make_file("changed.jsonl", exported.replacen("\\\"b\\\"", "\\\"d\\\"", 1).as_bytes());
    let said = check(&["changed.jsonl"]);
    let found = "changed.jsonl: line 3: its contents do not match its hash\n";
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), found), "{}", said.stderr);
    bench.make_file("less.jsonl", [&lines[..2], &lines[3..]].concat().join("\n").as_bytes());
    let said = check(&["less.jsonl", "--json"]);
    assert_eq!((said.code, &json_of(&said.stdout)["broken"]["number"]), (Some(1), &4.into()));
    refused_with(&check(&["site.toml"]), "its first line is no line of an audit");
    served.end();
}

#[test]
fn the_pool_that_is_meant_is_found_or_refused() {
    let (bench, served) = served_bench();
    refused_with(
        &bench.run(&["token", "list", "--state", "none"]),
        "no server runs with the state folder none",
    );
    // No such folder: the pool of this name at the usual server.
    assert_eq!(
        done(&run_here(&bench, &["volume", "create", "logs/x", "1MiB"])),
        "logs/x: a volume of 1.00 MiB\n"
    );
    refused_with(&bench.run(&["volume", "create", "logs/y", "1MiB"]), "logs is no pool");
    // A folder of the same name, which is another pool.
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB", "--drives", "1"]));
    let said = run_here(&bench, &["volume", "create", "mail/x", "1MiB"]);
    refused_with(
        &said,
        "mail is the folder of a pool, and a pool of the server at unix:DIR/state/spindle.sock",
    );
    refused_with(
        &said,
        "say ./mail/VOLUME for the folder, or --server unix:DIR/state/spindle.sock for the pool",
    );
    done(&run_here(&bench, &["volume", "create", "./mail/here", "1MiB"]));
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    done(&run_here(&bench, &["volume", "create", "mail/there", "1MiB", "--server", &socket]));
    served.end();
    let shown = |pool: &str| done(&bench.run(&["pool", "show", pool]));
    assert!(shown("mail").contains("volume here") && !shown("mail").contains("volume there"));
    assert!(shown("state/pools/mail").contains("volume there"));
    let said = run_here(&bench, &["volume", "create", "logs/z", "1MiB"]);
    refused_with(&said, "logs is no pool");
}

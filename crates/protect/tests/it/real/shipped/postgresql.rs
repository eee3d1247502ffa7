//! PostgreSQL under load, with its filesystem frozen around a cut.

use super::{Cleanup, CopyCutter, LoopMount, expect_within, free_port, is_installed, round, shell, shipped};
use protect::backup::BackupLabel;
use std::{
    cell::Cell,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use world::real::{RealOptions, run};

/// `AS` runs as the server's user, `BIN` is the folder of its programs.
const START: &str = "
chmod 755 FOLDER; mkdir MOUNT/data FOLDER/run; chown postgres MOUNT/data FOLDER/run
AS BIN/initdb -D MOUNT/data -A trust >/dev/null
AS BIN/pg_ctl -D MOUNT/data -w -l FOLDER/run/log -o '-p PORT -k FOLDER/run -h \"\"' start >/dev/null 2>&1
AS psql -h FOLDER/run -p PORT -c 'CREATE TABLE mail (number bigint PRIMARY KEY, text text)'
";

/// The server on the restored data, and the numbers in it.
const RESTORED: &str = "
rm -f RESTORED/data/postmaster.pid
AS BIN/pg_ctl -D RESTORED/data -w -l FOLDER/run/log2 -o '-p PORT -k FOLDER/run -h \"\"' start >/dev/null 2>&1
AS psql -h FOLDER/run -p PORT -qAt -c 'SELECT count(*), max(number) FROM mail'
AS BIN/pg_ctl -D RESTORED/data -m immediate -w stop >/dev/null 2>&1
";

#[test]
fn a_cut_of_postgresql_over_a_frozen_filesystem_has_every_answered_commit() {
    if !is_installed(&["psql", "pg_config", "runuser"]) {
        return;
    }
    let bin = shell("pg_config --bindir 2>/dev/null || dirname $(readlink -f $(command -v postgres))");
    let bin = bin.trim().to_owned();
    if !is_installed(&[&format!("{bin}/initdb")]) {
        return;
    }
    let Some(mounted) = LoopMount::make("ext4") else { return };
    let folder = mounted.folder().display().to_string();
    let mount = mounted.point().display().to_string();
    let (port, port2) = (free_port().to_string(), free_port().to_string());
    let fill = |text: &str, port: &str| {
        let text = text.replace("AS", "cd /; runuser -u postgres --").replace("BIN", &bin);
        text.replace("FOLDER", &folder).replace("MOUNT", &mount).replace("PORT", port)
    };
    let end = "kill -INT $(head -1 MOUNT/data/postmaster.pid); sleep 1; kill -QUIT $(head -1 MOUNT/data/postmaster.pid)";
    let _cleanup = Cleanup::new(&fill(end, ""));
    shell(&fill(START, &port));

    let answered = Arc::new(AtomicU64::new(0));
    let insert = "i=1; while echo \"INSERT INTO mail VALUES ($i, repeat('x', 500)) RETURNING number;\"; do \
                  i=$((i + 1)); done | runuser -u postgres -- psql -qAt -h \"$1\" -p \"$2\"";
    let mut client = Command::new("sh");
    client
        .args(["-c", insert, "sh", &format!("{folder}/run"), &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let counter = Arc::clone(&answered);
    let reader = thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| counter.store(line.parse().unwrap(), Relaxed));
    });
    expect_within(Duration::from_secs(30), "rows are inserted", || answered.load(Relaxed) > 100);

    run(7, RealOptions::default(), async |world| {
        let arguments = ["--host", &format!("{folder}/run"), "--port", &port];
        let mut settings = shipped(mounted.folder(), "postgresql", "", &arguments);
        settings.user = Some("postgres".to_owned());
        let cutter = CopyCutter::new(&mounted);
        let at_cut = Rc::new(Cell::new(0));
        let (seen, watched) = (Rc::clone(&at_cut), Arc::clone(&answered));
        cutter.meanwhile.replace(Some(Box::new(move || seen.set(watched.load(Relaxed)))));
        let cut = cutter.cut.clone();
        let (outcome, runs) = round(&world, &settings, Some(&mounted), cutter).await;
        assert_eq!(outcome.label, Some(BackupLabel::Filesystem), "{outcome:?} {runs:?}");
        // Commits go on.
        let then = answered.load(Relaxed);
        expect_within(Duration::from_secs(20), "commits go on", || answered.load(Relaxed) > then + 10);

        let restored = mounted.mount_cut(&cut).display().to_string();
        let found = shell(&fill(RESTORED, &port2).replace("RESTORED", &restored));
        let (count, most) = found.trim().split_once('|').unwrap();
        let (count, most): (u64, u64) = (count.parse().unwrap(), most.parse().unwrap());
        println!("note: {} commits were answered before the cut, {most} are in it", at_cut.get());
        assert!(count == most && most >= at_cut.get(), "{found}");

        // Alone it is no freeze, and a server that would not recover is refused.
        let (outcome, _) = round(&world, &settings, None, CopyCutter::new(&mounted)).await;
        assert_eq!(outcome.label, Some(BackupLabel::Crash("nothing was to be frozen".to_owned())));
        let off = format!(
            "cd /; runuser -u postgres -- psql -qAt -h {folder}/run -p {port} -c 'ALTER SYSTEM SET fsync = off' \
             -c 'SELECT pg_reload_conf()'"
        );
        shell(&off);
        let (outcome, _) = round(&world, &settings, None, CopyCutter::new(&mounted)).await;
        let Some(BackupLabel::Crash(reason)) = &outcome.label else { panic!("{outcome:?}") };
        assert!(reason.ends_with("fsync is off: PostgreSQL would not recover from the cut"), "{reason}");
    });
    client.kill().unwrap();
    client.wait().unwrap();
    drop(_cleanup);
    reader.join().unwrap();
}

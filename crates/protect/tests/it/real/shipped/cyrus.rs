//! Cyrus IMAP under load, paused around a cut.
//!
//! Debian installs it or Dovecot, not both. `CYRUS_ROOT` is a folder in which its packages are unpacked, with the
//! libraries that they need in `LD_LIBRARY_PATH`; without it, this machine's.

use super::{
    Cleanup, CopyCutter, LoopMount, expect_within, free_port, is_installed,
    mail::{Conversation, expect_numbers},
    round, shell, shipped,
};
use protect::backup::{BackupLabel, hooks::HookPhase};
use std::{
    cell::Cell,
    env,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use world::real::{RealOptions, run};

/// A server NAME with databases and mails below PLACE.
const START: &str = r#"
chmod 755 FOLDER; mkdir -p PLACE/conf PLACE/mail; chown mail:mail PLACE/conf PLACE/mail
cat > FOLDER/NAME.conf <<E
configdirectory: PLACE/conf
partition-default: PLACE/mail
cyrus_user: mail
cyrus_group: mail
admins: admin
allowplaintext: yes
sasl_pwcheck_method: alwaystrue
sasl_mech_list: PLAIN
autocreate_quota: 0
autocreate_post: 1
E
cat > FOLDER/NAME.services <<E
START {
  recover cmd="ROOT/usr/lib/cyrus/bin/ctl_cyrusdb -C FOLDER/NAME.conf -r"
}
SERVICES {
  imap cmd="ROOT/usr/lib/cyrus/bin/imapd -C FOLDER/NAME.conf" listen="127.0.0.1:PORT" prefork=1
}
E
ROOT/usr/sbin/cyrmaster -C FOLDER/NAME.conf -M FOLDER/NAME.services -p FOLDER/NAME.pid -d -L FOLDER/log \
    >/dev/null 2>&1
"#;

/// Ends both servers, also one that a failed test left paused.
const END: &str = "
for pid in $(cat FOLDER/live.pid FOLDER/restored.pid); do
    ps -e -o pid= -o ppid= | awk -v main=$pid '$1 == main || $2 == main { print $1 }' | xargs kill -CONT
    kill $pid
done
sleep 0.5
";

fn client(port: u16) -> Conversation {
    let mut client = Conversation::open(port);
    client.expect("* OK");
    client.say("a login bob secret", "a OK");
    client
}

#[test]
fn a_cut_of_cyrus_has_all_that_was_answered() {
    let root = env::var("CYRUS_ROOT").unwrap_or_default();
    if !is_installed(&[&format!("{root}/usr/sbin/cyrmaster"), "ps"]) {
        return;
    }
    let Some(mounted) = LoopMount::make("xfs") else { return };
    let (port, port2) = (free_port(), free_port());
    let folder = mounted.folder().display().to_string();
    let fill = |text: &str| text.replace("FOLDER", &folder).replace("ROOT", &root);
    let start = |name: &str, place: &str, port: u16| {
        let text = fill(START).replace("NAME", name).replace("PLACE", place);
        shell(&text.replace("PORT", &port.to_string()));
    };
    let _cleanup = Cleanup::new(&fill(END));
    let mount = mounted.point().display().to_string();
    start("live", &mount, port);

    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counter, mut appending) = (Arc::clone(&stop), Arc::clone(&answered), client(port));
    let load = thread::spawn(move || {
        while !stopped.load(Relaxed) {
            let number = counter.load(Relaxed) + 1;
            let mail = format!("Subject: imap-{number}.\r\n\r\n{}\r\n", "text ".repeat(400));
            appending.say(&format!("b append INBOX {{{}+}}\r\n{mail}", mail.len()), "b OK");
            counter.store(number, Relaxed);
        }
    });
    expect_within(Duration::from_secs(20), "mails are delivered", || answered.load(Relaxed) > 20);

    run(7, RealOptions::default(), async |world| {
        let variables = fill(
            "export CYRUS_PID_FILE=FOLDER/live.pid CYRUS_CONFIG=FOLDER/live.conf \
             CTL_CYRUSDB=ROOT/usr/lib/cyrus/bin/ctl_cyrusdb",
        );
        let settings = shipped(mounted.folder(), "cyrus", &variables, &[&mount]);
        let cutter = CopyCutter::new(&mounted);
        let at_cut = Rc::new(Cell::new(0));
        let (seen, watched) = (Rc::clone(&at_cut), Arc::clone(&answered));
        cutter.meanwhile.replace(Some(Box::new(move || {
            seen.set(watched.load(Relaxed));
            thread::sleep(Duration::from_secs(1));
            assert_eq!(watched.load(Relaxed), seen.get(), "a paused server answered");
        })));
        let cut = cutter.cut.clone();
        let (outcome, runs) = round(&world, &settings, None, cutter).await;
        assert_eq!(outcome.label, Some(BackupLabel::Filesystem), "{outcome:?} {runs:?}");
        assert!(outcome.problems.is_empty() && runs[0].phase == HookPhase::Prepare, "{outcome:?} {runs:?}");
        let then = at_cut.get();
        expect_within(Duration::from_secs(10), "deliveries go on", || answered.load(Relaxed) > then + 5);

        // A second server on the restored folders recovers its databases, and has the mails.
        start("restored", &mounted.mount_cut(&cut).display().to_string(), port2);
        let mut reading = client(port2);
        reading.say("b select INBOX", "b OK");
        let subjects = reading.say("c fetch 1:* body.peek[header.fields (subject)]", "c OK");
        expect_numbers(&subjects, "imap-", then);
        println!("note: {then} mails were answered before the cut");
    });
    stop.store(true, Relaxed);
    load.join().unwrap();
}

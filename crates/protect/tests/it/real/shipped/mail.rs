//! Dovecot (Maildir and mdbox) and Postfix under load, paused around a cut.

use super::{Cleanup, CopyCutter, LoopMount, expect_within, free_port, is_installed, round, shell, shipped};
use protect::backup::BackupLabel;
use std::{
    cell::Cell,
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use world::real::{RealOptions, run};

/// Settings of both servers; `FOLDER`, `MOUNT`, `FORMAT`, `IMAP` and `SMTP` are replaced.
const START: &str = r"
chmod 755 FOLDER; cd FOLDER; mkdir -p run conf MOUNT/mail MOUNT/queue MOUNT/data MOUNT/box
chown mail:mail MOUNT/mail MOUNT/box; chown postfix MOUNT/data
cat > dovecot.conf <<E
base_dir = FOLDER/run
state_dir = FOLDER/run
log_path = FOLDER/dovecot.log
protocols = imap
ssl = no
disable_plaintext_auth = no
mail_location = FORMAT:MOUNT/mail/%u
first_valid_uid = 1
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=mail gid=mail home=MOUNT/mail/%u
}
service imap-login {
  chroot =
  inet_listener imap {
    address = 127.0.0.1
    port = IMAP
  }
  inet_listener imaps {
    port = 0
  }
}
service anvil {
  chroot =
}
E
cat > conf/main.cf <<E
compatibility_level = 3.6
queue_directory = MOUNT/queue
data_directory = MOUNT/data
maillog_file = FOLDER/postfix.log
maillog_file_prefixes = FOLDER
myhostname = mail.example.org
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = loopback-only
virtual_mailbox_domains = example.org
virtual_mailbox_base = MOUNT/box
virtual_mailbox_maps = static:all/
virtual_uid_maps = static:8
virtual_gid_maps = static:8
virtual_minimum_uid = 1
defer_transports = virtual
alias_maps =
multi_instance_name = postfix-spindle-test
multi_instance_enable = yes
E
sed -E -e '/^(smtp +inet|#)/d' -e 's/^(\S+\s+\S+\s+\S+\s+\S+\s+)y/\1n/' /etc/postfix/master.cf > conf/master.cf
echo '127.0.0.1:SMTP inet n - n - - smtpd' >> conf/master.cf
dovecot -c FOLDER/dovecot.conf >/dev/null 2>&1
postfix -c FOLDER/conf start >/dev/null 2>&1
";

/// Ends both, also if a failed test left them paused.
const END: &str = "
for main in $(cat FOLDER/run/master.pid MOUNT/queue/pid/master.pid); do
    ps -e -o pid= -o ppid= | awk -v main=$main '$1 == main || $2 == main { print $1 }' | xargs kill -CONT
done
doveadm -c FOLDER/dovecot.conf stop; postfix -c FOLDER/conf stop; sleep 0.5
";

/// Dovecot and Postfix with mails and queue below one mount.
struct MailServers {
    imap: u16,
    smtp: u16,
    folder: String,
    mount: String,
    _cleanup: Cleanup,
}

impl MailServers {
    fn start(mounted: &LoopMount, format: &str) -> Self {
        let (imap, smtp) = (free_port(), free_port());
        let folder = mounted.folder().display().to_string();
        let mount = mounted.point().display().to_string();
        let fill = |text: &str| text.replace("FOLDER", &folder).replace("MOUNT", &mount);
        let settings = fill(START).replace("FORMAT", format);
        shell(&settings.replace("IMAP", &imap.to_string()).replace("SMTP", &smtp.to_string()));
        let _cleanup = Cleanup::new(&fill(END));
        Self { imap, smtp, folder, mount, _cleanup }
    }

    /// The shell's words that tell the hook where the servers are.
    fn variables(&self) -> String {
        let (folder, mount) = (&self.folder, &self.mount);
        format!(
            "export DOVECOT_PID_FILE={folder}/run/master.pid POSTFIX_PID_FILE={mount}/queue/pid/master.pid"
        )
    }

    fn imap_client(&self) -> Conversation {
        let mut client = Conversation::open(self.imap);
        client.expect("* OK");
        client.say("a login bob secret", "a OK");
        client
    }

    fn smtp_client(&self) -> Conversation {
        let mut client = Conversation::open(self.smtp);
        client.expect("220 ");
        client.say("HELO test", "250 ");
        client
    }
}

/// A connection in which lines are said and answered.
pub(super) struct Conversation(BufReader<TcpStream>);

impl Conversation {
    pub fn open(port: u16) -> Self {
        let mut stream = None;
        expect_within(Duration::from_secs(20), "the server listens", || {
            stream = TcpStream::connect(("127.0.0.1", port)).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads until a line with this start; all lines.
    pub fn expect(&mut self, start: &str) -> String {
        let mut lines = String::new();
        loop {
            let before = lines.len();
            assert_ne!(self.0.read_line(&mut lines).unwrap(), 0, "no line starts with {start}: {lines}");
            if lines[before..].starts_with(start) {
                return lines;
            }
        }
    }

    pub fn say(&mut self, line: &str, answer: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.expect(answer)
    }
}

/// Clients that deliver numbered mails one after another, and count the answers.
struct Load {
    stop: Arc<AtomicBool>,
    answered: [Arc<AtomicU64>; 2],
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(servers: &MailServers) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered: [Arc<AtomicU64>; 2] = Default::default();
        let start = |counter: &Arc<AtomicU64>, mut deliver: Box<dyn FnMut(u64) + Send>| {
            let (stop, counter) = (Arc::clone(&stop), Arc::clone(counter));
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    deliver(counter.load(Relaxed) + 1);
                    counter.fetch_add(1, Relaxed);
                }
            })
        };
        let (mut imap, mut smtp) = (servers.imap_client(), servers.smtp_client());
        let append = move |number| {
            let mail = format!("Subject: imap-{number}.\r\n\r\n{}\r\n", "text ".repeat(400));
            imap.say(&format!("b append INBOX {{{}+}}\r\n{mail}", mail.len()), "b OK");
        };
        let submit = move |number| {
            smtp.say("MAIL FROM:<eve@example.org>", "250 ");
            smtp.say("RCPT TO:<bob@example.org>", "250 ");
            smtp.say("DATA", "354 ");
            smtp.say(&format!("Subject: smtp-{number}.\r\n\r\ntext\r\n."), "250 ");
        };
        let threads = vec![start(&answered[0], Box::new(append)), start(&answered[1], Box::new(submit))];
        Self { stop, answered, threads }
    }

    fn answered(&self) -> [u64; 2] {
        [0, 1].map(|index| self.answered[index].load(Relaxed))
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn check_cut(kind: &str, format: &str) {
    if !is_installed(&["dovecot", "postfix", "ps"]) {
        return;
    }
    let Some(mounted) = LoopMount::make(kind) else { return };
    let servers = MailServers::start(&mounted, format);
    let (folder, mount) = (&servers.folder, &servers.mount);
    run(7, RealOptions::default(), async |world| {
        let load = Rc::new(Load::start(&servers));
        expect_within(Duration::from_secs(20), "mails are delivered", || {
            load.answered().iter().all(|&count| count > 20)
        });
        let arguments = [format!("{mount}/mail"), format!("{mount}/queue")];
        let arguments = arguments.each_ref().map(|argument| &**argument);
        let settings = shipped(mounted.folder(), "dovecot-postfix", &servers.variables(), &arguments);
        let cutter = CopyCutter::new(&mounted);
        let at_cut = Rc::new(Cell::new([0; 2]));
        let (seen, watched) = (Rc::clone(&at_cut), Rc::clone(&load));
        cutter.meanwhile.replace(Some(Box::new(move || {
            seen.set(watched.answered());
            thread::sleep(Duration::from_secs(1));
            assert_eq!(watched.answered(), seen.get(), "a paused server answered");
        })));
        let cut = cutter.cut.clone();
        let (outcome, runs) = round(&world, &settings, None, cutter).await;
        assert_eq!(outcome.label, Some(BackupLabel::Filesystem), "{outcome:?} {runs:?}");
        assert!(outcome.problems.is_empty(), "{outcome:?}");
        let at_cut = at_cut.get();
        expect_within(Duration::from_secs(10), "deliveries go on", || {
            load.answered().iter().zip(at_cut).all(|(&now, then)| now > then + 5)
        });
        let Ok(load) = Rc::try_unwrap(load) else { panic!("the cut is over") };
        load.end();

        let restored = mounted.mount_cut(&cut).display().to_string();
        let fetch = format!(
            "sed 's#^mail_location = .*#mail_location = {format}:{restored}/mail/%u#' {folder}/dovecot.conf \
             > {folder}/restored.conf; doveadm -c {folder}/restored.conf fetch -u bob hdr.subject all"
        );
        expect_numbers(&shell(&fetch), "imap-", at_cut[0]);
        let queue = shell(&format!("grep -arho 'smtp-[0-9]*\\.' {restored}/queue || true"));
        expect_numbers(&queue, "smtp-", at_cut[1]);
        println!("note: {at_cut:?} mails were answered before the cut");
    });
}

/// All numbers up to `most` are there, and at most one that was not answered.
pub(super) fn expect_numbers(text: &str, start: &str, most: u64) {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix(start)?.strip_suffix('.'));
    let numbers: BTreeSet<u64> = words.map(|word| word.parse().unwrap()).collect();
    assert!(
        (1..=most).all(|number| numbers.contains(&number)),
        "of {most} some are missing: {numbers:?} {text}"
    );
    assert!(numbers.iter().all(|&number| number <= most + 1), "{numbers:?}");
}

#[test]
fn a_cut_of_maildir_and_queue_has_all_that_was_answered() {
    check_cut("ext4", "maildir");
}

#[test]
fn a_cut_of_mdbox_and_queue_has_all_that_was_answered() {
    check_cut("xfs", "mdbox");
}

#[test]
fn paused_servers_go_on_at_the_deadline_if_the_program_that_runs_hooks_is_gone() {
    if !is_installed(&["dovecot", "postfix", "ps"]) {
        return;
    }
    let Some(mounted) = LoopMount::make("ext4") else { return };
    let servers = MailServers::start(&mounted, "maildir");
    let (folder, mount) = (&servers.folder, &servers.mount);
    let mut client = servers.imap_client();
    client.say("b noop", "b OK");
    let hook = super::hook_file("dovecot-postfix").display().to_string();
    let phase = |phase: &str, deadline_ms: u32| {
        format!(
            "{}\nexport SPINDLE_HOOKS_STATE={folder}/states SPINDLE_SET=mail SPINDLE_POINT=b1
            SPINDLE_DEADLINE_MS={deadline_ms} SPINDLE_PHASE={phase} {hook} {mount}/mail",
            servers.variables()
        )
    };
    let code = |command: String, code: i32| {
        let answer = shell(&format!("({command}) && exit 1 || code=$?; echo $code"));
        let (text, last) = answer.trim_end().rsplit_once('\n').unwrap_or(("", answer.trim_end()));
        assert_eq!(last, code.to_string(), "{answer}");
        text.to_owned()
    };
    // Nobody calls the thaw hook. What the freeze hook started outlives it and its group.
    let began = Instant::now();
    assert!(shell(&phase("freeze", 1500)).contains("spindle-consistency: filesystem"));
    client.say("c noop", "c OK");
    let span = began.elapsed();
    assert!(span >= Duration::from_millis(1400) && span < Duration::from_secs(4), "{span:?}");
    assert_eq!(code(phase("thaw", 1500), 3), "the deadline had thawed it");
    assert_eq!(code(phase("thaw", 1500), 3), "nothing was frozen");
    // A service manager ends the watchdog with the rest: it thaws at once.
    shell(&phase("freeze", 60_000));
    shell(&format!("kill -TERM $(cat {folder}/states/*/watchdog)"));
    client.say("d noop", "d OK");
    // The servers go on before the watchdog notes that it is over.
    shell(&format!("for try in $(seq 200); do ls {folder}/states/*/over && break; sleep 0.05; done 2>&1"));
    // A second freeze is not now while the first is held.
    shell(&phase("freeze", 60_000));
    code(phase("freeze", 60_000), 75);
    // Somebody else lets a process go on: that is in the evidence.
    shell(&format!("kill -CONT $(cat {folder}/run/master.pid)"));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(code(phase("thaw", 1500), 3), "it was no longer frozen");
    client.say("e noop", "e OK");
}

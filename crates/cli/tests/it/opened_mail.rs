//! The most frequent day of a mail host: a user's mails are deleted, and come back from a backup. Dovecot has a Maildir on XFS and
//! an mdbox on ext4, Postfix its queue there, in one set.

use crate::{
    exported::{is_here, judge, text},
    mail_host::{EXT4_GB, MailHost, XFS_GB, can_mount, wait_until},
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

/// Settings of both servers; `FOLDER`, `MAIL`, `BOX` and `SMTP` are replaced. Anna has a Maildir, Bert an mdbox.
const START: &str = r"
set -e
cd FOLDER; mkdir -p run conf MAIL/vmail BOX/vmail BOX/queue BOX/data BOX/box
chown mail:mail MAIL/vmail BOX/vmail BOX/box; chown postfix BOX/data
cat > dovecot.conf <<E
base_dir = FOLDER/run
state_dir = FOLDER/run
log_path = FOLDER/dovecot.log
protocols =
ssl = no
mail_location = maildir:MAIL/vmail/%u/Maildir
first_valid_uid = 1
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=mail gid=mail home=MAIL/vmail/%u
}
service anvil {
  chroot =
}
E
cat > conf/main.cf <<E
compatibility_level = 3.6
queue_directory = BOX/queue
data_directory = BOX/data
maillog_file = FOLDER/postfix.log
maillog_file_prefixes = FOLDER
myhostname = mail.example.org
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = loopback-only
virtual_mailbox_domains = example.org
virtual_mailbox_base = BOX/box
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

const MAILS: usize = 6;

/// Both servers, ended when dropped.
struct MailServers {
    folder: String,
    smtp: u16,
    bert: String,
}

impl MailServers {
    fn begin(host: &MailHost) -> Self {
        let smtp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = text(&host.bench.make_folder("servers"));
        // Servers that drop their privileges enter it.
        judge("chmod", &["755", &text(&host.bench.path("")), &folder]);
        let (mail, boxes) = (text(&host.live("mail")), text(&host.live("box")));
        let script = START.replace("FOLDER", &folder).replace("MAIL", &mail).replace("BOX", &boxes);
        shell(&script.replace("SMTP", &smtp.to_string()));
        Self { folder, smtp, bert: format!("mail_location=mdbox:{boxes}/vmail/bert/mdbox") }
    }

    /// Runs doveadm as the administrator does.
    #[track_caller]
    fn doveadm(&self, user: &str, verb: &str, rest: &[&str], input: &str) -> String {
        let mut command = Command::new("doveadm");
        command.args(["-c", &format!("{}/dovecot.conf", self.folder)]);
        if user == "bert" {
            command.args(["-o", &self.bert]);
        }
        command.args([verb, "-u", user]).args(rest);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "doveadm {verb} {rest:?}: {said}{complaint}");
        said
    }

    fn deliver(&self, user: &str) {
        for number in 1..=MAILS {
            let body = "text ".repeat(300);
            let mail = format!("From: eve@example.org\nSubject: {user}-{number}.\n\n{body}\n");
            self.doveadm(user, "save", &[], &mail);
        }
    }

    /// Subjects of all mails of a user, sorted.
    fn subjects(&self, user: &str) -> Vec<String> {
        let said = self.doveadm(user, "fetch", &["hdr.subject", "all"], "");
        let mut subjects: Vec<String> =
            said.lines().filter_map(|line| line.strip_prefix("hdr.subject: ")).map(str::to_owned).collect();
        subjects.sort();
        subjects
    }

    /// Mails that wait in Postfix's queue.
    fn submit(&self, count: usize) {
        let mut stream = None;
        wait_until("Postfix listens", || {
            stream = TcpStream::connect(("127.0.0.1", self.smtp)).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut lines = BufReader::new(stream);
        let mut say = |line: String, answer: &str| {
            if !line.is_empty() {
                lines.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
            }
            let mut said = String::new();
            while !said.lines().last().is_some_and(|last| last.starts_with(answer)) {
                assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
            }
        };
        say(String::new(), "220 ");
        say("HELO test".to_owned(), "250 ");
        for number in 1..=count {
            say("MAIL FROM:<eve@example.org>".to_owned(), "250 ");
            say("RCPT TO:<bob@example.org>".to_owned(), "250 ");
            say("DATA".to_owned(), "354 ");
            say(format!("Subject: queued-{number}.\r\n\r\ntext\r\n."), "250 ");
        }
    }
}

impl Drop for MailServers {
    fn drop(&mut self) {
        let folder = &self.folder;
        let end = format!("doveadm -c {folder}/dovecot.conf stop; postfix -c {folder}/conf stop; sleep 0.3");
        let _ = Command::new("sh").args(["-c", &end]).output();
    }
}

#[track_caller]
fn shell(script: &str) -> String {
    judge("sh", &["-c", script])
}

#[test]
fn deleted_mails_of_maildir_mdbox_and_queue_come_back_from_a_backup() {
    let programs = [
        ("mkfs.ext4", "e2fsprogs"),
        ("mkfs.xfs", "xfsprogs"),
        ("curl", "curl"),
        ("dovecot", "dovecot-core"),
        ("doveadm", "dovecot-core"),
        ("postfix", "postfix"),
    ];
    if !can_mount(&programs) || !is_here("ps", "procps") {
        return;
    }
    let host = MailHost::begin(&[("mail", "xfs", XFS_GB), ("box", "ext4", EXT4_GB)]);
    let servers = MailServers::begin(&host);
    for user in ["anna", "bert"] {
        servers.deliver(user);
    }
    servers.submit(3);
    let before = ["anna", "bert"].map(|user| servers.subjects(user));
    assert_eq!(before.each_ref().map(Vec::len), [MAILS; 2]);
    let good = host.back_up();
    // The day: both users' mails are deleted, and the queue.
    servers.doveadm("anna", "expunge", &["mailbox", "INBOX", "all"], "");
    servers.doveadm("bert", "expunge", &["mailbox", "INBOX", "all"], "");
    servers.doveadm("bert", "purge", &[], "");
    shell(&format!("postsuper -c {}/conf -d ALL", servers.folder));
    let late = host.back_up();
    assert_eq!(["anna", "bert"].map(|user| servers.subjects(user).len()), [0; 2]);

    // The search: the newest first.
    let found = host.answer(&["find", "post", "--mailbox", "anna", "--at-most", "2"]);
    let mails = |found: &serde_json::Value, number: &str| {
        let row = found
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["number"] == number.parse::<u64>().unwrap())
            .unwrap();
        (row["found"][0]["layout"].clone(), row["found"][0]["mails"].clone(), row["found"][0]["path"].clone())
    };
    assert_eq!(found[0]["number"].to_string(), late, "the newest is first: {found}");
    let path = serde_json::Value::from("vmail/anna/Maildir");
    assert_eq!(mails(&found, &late), ("maildir".into(), 0.into(), path.clone()), "{found}");
    assert_eq!(mails(&found, &good), ("maildir".into(), MAILS.into(), path), "{found}");
    let found = host.answer(&["find", "post", "--mailbox", "bert"]);
    assert_eq!(mails(&found, &good).0, "mdbox", "{found}");
    // A path of this host is one of the filesystem that is mounted there.
    let live = text(&host.live("mail/vmail/anna/Maildir/cur"));
    let found = host.answer(&["find", "post", &live, "--first"]);
    assert_eq!(found[0]["found"][0]["path"], "vmail/anna/Maildir/cur", "{found}");
    let none = host.protect(&["find", "post", "--mailbox", "zoe", "--at-most", "1"]);
    assert_eq!(none.code, Some(1), "{}{}", none.stdout, none.stderr);
    host.expect_nothing_left();

    // Anna's mails are copied back; the queue is there, too.
    let folder = host.open(&good, &[]);
    let (lost, live) = (folder.join("mail/vmail/anna/Maildir"), host.live("mail/vmail/anna/Maildir"));
    shell(&format!("cp -a {}/new/. {}/cur/. {}/new/", text(&lost), text(&lost), text(&live)));
    assert_eq!(servers.subjects("anna"), before[0]);
    let queue = shell(&format!("grep -arho 'queued-[0-9]*' {} | sort -u", text(&folder.join("box/queue"))));
    assert_eq!(queue, "queued-1\nqueued-2\nqueued-3\n");
    host.done(&["close", &text(&folder)]);
    // Dovecot writes to an mdbox that it reads, as it does on the clone here.
    let folder = host.open(&good, &["--read-write"]);
    let source = format!("mdbox:{}", text(&folder.join("box/vmail/bert/mdbox")));
    servers.doveadm("bert", "import", &[&source, "", "all"], "");
    assert_eq!(servers.subjects("bert"), before[1]);
    host.done(&["close", "--all"]);
    host.expect_nothing_left();
    assert!(fs::metadata(host.live("mail/vmail/anna")).is_ok());
}

//! Events that leave the server: a webhook receiver and a mail sink of Python's standard library, commands, power and drives.

use crate::{
    exported::is_here,
    exports_tls::Authority,
    pool_drives::done,
    sites_served::{SITE, Served},
    spindle::{Bench, json_of},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Checks each signature with Python's own hmac, and prints what it accepts: a JSON object on a line.
const RECEIVER: &str = r#"
import hashlib, hmac, http.server, json, ssl, sys
SECRET = b"of the receiver"
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        stamp = self.headers["spindle-timestamp"]
        wanted = "sha256=" + hmac.new(SECRET, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        is_good = hmac.compare_digest(wanted, self.headers["spindle-signature"])
        self.send_response(204 if is_good else 403)
        self.send_header("content-length", "0")
        self.end_headers()
        if is_good:
            print(json.dumps({"id": self.headers["spindle-id"], "body": json.loads(body)}), flush=True)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(json.dumps({"port": server.server_port}), flush=True)
server.serve_forever()
"#;

/// Takes mail as RFC 5321 says, but says no goodbye, and prints each as a JSON object on a line, read by Python's own parser.
pub const MAIL_SINK: &str = r#"
import base64, email, email.policy, json, socketserver, ssl, sys
context = None
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
LOGIN = base64.b64encode(b"\0spindle\0of the receiver").decode()
class Handler(socketserver.StreamRequestHandler):
    def say(self, text): self.wfile.write(text.encode() + b"\r\n")
    def handle(self):
        self.say("220 sink"); to = []; is_open = context is None; is_plain = True
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"EHLO":
                self.say("250-sink")
                if context: self.say("250-STARTTLS" if is_plain else "250-AUTH PLAIN")
                self.say("250 8BITMIME")
            elif verb == b"STAR":
                self.say("220 go on"); is_plain = False
                stream = context.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = stream.makefile("rb"), stream.makefile("wb", buffering=0)
            elif verb == b"AUTH":
                is_open = not is_plain and line.decode().split()[1:] == ["PLAIN", LOGIN]
                self.say("235 ok" if is_open else "535 who are you")
            elif not is_open and verb in (b"MAIL", b"RCPT", b"DATA"): self.say("530 log in")
            elif verb == b"RCPT" and b"gone@" in line: self.say("550 no such person")
            elif verb == b"RCPT": to.append(line.strip().decode()); self.say("250 ok")
            elif verb == b"DATA":
                self.say("354 go on"); body = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    if not part.endswith(b"\r\n"): return
                    body += part[1:] if part.startswith(b".") else part
                mail = email.message_from_bytes(body, policy=email.policy.default)
                print(json.dumps({"to": to, "subject": mail["subject"], "id": mail["message-id"],
                    "date": mail["date"].datetime.isoformat(), "text": mail.get_content()}), flush=True)
                self.say("250 taken")
            elif verb == b"QUIT": pass
            else: self.say("250 ok")
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
"#;

/// A mail server of others (aiosmtpd of PyPI), which is strict about RFC 5321.
const AIOSMTPD: &str = r#"
import email, email.policy, json, socket, sys, threading
from aiosmtpd.controller import Controller
class Handler:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        print(json.dumps({"from": envelope.mail_from, "to": envelope.rcpt_tos, "subject": mail["subject"],
            "text": mail.get_content(), "defects": [str(defect) for defect in mail.defects]}), flush=True)
        return "250 taken"
free = socket.socket(); free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]; free.close()
Controller(Handler(), hostname="127.0.0.1", port=port).start()
print(json.dumps({"port": port}), flush=True)
threading.Event().wait()
"#;

/// A program of Python's that prints a JSON object on each line; killed when dropped.
pub struct PythonServer {
    child: Child,
    lines: std::sync::mpsc::Receiver<Value>,
    pub port: u64,
}

impl PythonServer {
    pub fn begin(script: &str, port: u64) -> Self {
        Self::begin_with(script, port, &[])
    }

    fn begin_with(script: &str, port: u64, files: &[&Path]) -> Self {
        let mut command = Command::new("python3");
        let command = command.args(["-c", script, &port.to_string()]).args(files);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (give, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if give.send(json_of(&line)).is_err() {
                    return;
                }
            }
        });
        let first = lines.recv_timeout(Duration::from_secs(20)).expect("it begins");
        Self { child, lines, port: first["port"].as_u64().unwrap() }
    }

    /// The next line for which that is true.
    #[track_caller]
    pub fn until(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(30);
        let mut others = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if is_it(&line) => return line,
                Ok(line) => others.push(line),
                Err(_) => panic!("{what} did not come; others did: {others:#?}"),
            }
        }
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn site_with(bench: &Bench, notifiers: &str) {
    let secret = bench.make_file("secret", b"of the receiver\n");
    fs::set_permissions(secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    bench.make_file("site.toml", format!("{SITE}{notifiers}").as_bytes());
}

fn webhook(port: u64) -> String {
    format!(
        "[[notify]]\nname = 'ops'\nkind = 'webhook'\nurl = 'http://127.0.0.1:{port}/hook'\nsecret_file = 'secret'\n"
    )
}

/// A drive of the pool "mail", by its name.
fn drive_of_mail(bench: &Bench) -> String {
    let shown = done(&bench.run(&["pool", "show", "state/pools/mail", "--json"]));
    let status = json_of(&shown);
    let drives = status["drives"].as_array().unwrap_or_else(|| panic!("{shown}"));
    drives[0]["drive"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[test]
fn events_reach_a_webhook_and_a_mail_sink_once_up_once_down_and_over_a_kill() {
    if !is_here("python3", "python3") {
        return;
    }
    let bench = Bench::new();
    let (receiver, sink) = (PythonServer::begin(RECEIVER, 0), PythonServer::begin(MAIL_SINK, 0));
    let mail = format!(
        "[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = '127.0.0.1:{}'\nfrom = 'Spindle <spindle@example.org>'\n\
         to = ['ops@example.org', 'größer@example.org']\n",
        sink.port
    );
    let mail = mail.replace("größer", "more");
    site_with(&bench, &format!("{}{mail}", webhook(receiver.port)));
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    let said = done(&here(&["event", "test"]));
    assert_eq!(said, "ops: delivered\npost: delivered\n");
    assert_eq!(receiver.until("the test", |_| true)["body"]["event"], "test");
    let test = sink.until("the test", |_| true);
    assert_eq!(
        (&test["subject"], &test["to"][1]),
        (&"[Spindle] test".into(), &"RCPT TO:<more@example.org>".into())
    );
    assert_eq!(json_of(&done(&here(&["event", "conditions", "--json"]))).as_array().unwrap().len(), 0);

    let drive = drive_of_mail(&bench);
    let said = done(&here(&["drive", "warn", &drive, "24 pending sectors"]));
    assert!(said.contains("24 pending sectors") && said.contains("spindle pool retire mail"), "{said}");
    done(&here(&["drive", "warn", &drive, "25 pending sectors"]));
    let is_warned = |line: &Value| line["body"]["event"] == "drive_warned";
    let raised = receiver.until("the warning", is_warned);
    assert_eq!(
        (&raised["body"]["details"]["state"], &raised["body"]["pool"]),
        (&"raised".into(), &"mail".into())
    );
    let message = raised["body"]["message"].as_str().unwrap();
    assert!(
        message.contains("For mail now: ") && message.contains("Can it wait till morning: yes."),
        "{message}"
    );
    let mail =
        sink.until("the warning", |mail| mail["text"].as_str().unwrap().contains("24 pending sectors"));
    assert!(mail["subject"].as_str().unwrap().starts_with("[Spindle] "), "{mail}");
    let open = here(&["event", "conditions"]);
    assert_eq!(open.code, Some(1), "{}", open.stderr);
    let id = format!("warned:mail:{drive}");
    assert!(open.stdout.contains(&id) && open.stdout.contains("25 pending sectors"), "{}", open.stdout);
    done(&here(&["event", "acknowledge", &id]));
    done(&here(&["event", "conditions"]));
    let refused = here(&["event", "acknowledge", "space:none"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);

    // Killed while the receiver is away: both come later, in order, and the acknowledgement holds.
    let port = receiver.port;
    drop(receiver);
    done(&here(&["drive", "warn", &drive, "--withdraw"]));
    done(&here(&["drive", "warn", &drive, "it came back"]));
    thread::sleep(Duration::from_millis(1_500));
    drop(served);
    let receiver = PythonServer::begin(RECEIVER, port);
    let served = Served::begin(&bench);
    let states: Vec<Value> = (0..2)
        .map(|_| receiver.until("what happened meanwhile", is_warned)["body"]["details"]["state"].clone())
        .collect();
    assert_eq!(states, ["cleared", "raised"]);
    receiver.until("the kill", |line| line["body"]["event"] == "server_killed");
    let events = done(&here(&["event", "--json"]));
    let ids: Vec<u64> = events.lines().map(|line| json_of(line)["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted() && ids.len() > 5, "{ids:?}");
    assert!(events.contains("24 pending sectors"), "kept over the kill");
    served.end();
}

#[test]
fn a_receiver_with_another_secret_is_said_and_the_mail_takes_over() {
    if !is_here("python3", "python3") {
        return;
    }
    let bench = Bench::new();
    let (receiver, sink) = (PythonServer::begin(RECEIVER, 0), PythonServer::begin(MAIL_SINK, 0));
    let mail = format!(
        "fallback = 'post'\nfallback_minutes = 0\n[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = '127.0.0.1:{}'\n\
         from = 'spindle@example.org'\nto = ['ops@example.org']\nseverity = 'error'\n",
        sink.port
    );
    site_with(&bench, &format!("{}{mail}", webhook(receiver.port)));
    bench.make_file("secret", b"another\n");
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    let said = here(&["event", "test", "ops"]);
    assert_eq!((said.code, said.stdout.trim()), (Some(1), "ops: not delivered: it answered 403 Forbidden"));
    done(&here(&["drive", "warn", &drive_of_mail(&bench), "it is warm"]));
    let mail = sink.until("the warning", |mail| mail["text"].as_str().unwrap().contains("it is warm"));
    let text = mail["text"].as_str().unwrap();
    assert!(text.contains("meant for the notifier ops, which does not deliver: it answered 403"), "{text}");
    served.end();
}

#[test]
fn a_command_runs_for_each_event_one_at_a_time_and_goes_on_after_failures() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let out = bench.path("out");
    let command = format!(
        "cat >> {0}; echo \"$SPINDLE_EVENT $SPINDLE_STATE\" >> {0}.env; echo done; test \"$SPINDLE_STATE\" != raised",
        out.display()
    );
    let mut follower = bench
        .command(&[
            "event",
            "--follow",
            "--after",
            "0",
            "--severity",
            "note",
            "--exec",
            &command,
            "--state",
            "state",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let drive = drive_of_mail(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    done(&here(&["drive", "warn", &drive, "it's \"warm\"; $(false)"]));
    done(&here(&["drive", "warn", &drive, "--withdraw"]));
    let errors = BufReader::new(follower.stderr.take().unwrap());
    let mut lines = Vec::new();
    for line in errors.lines().map_while(Result::ok) {
        // The end of the warning comes after its beginning, which fails.
        let has_failed = lines.iter().any(|line: &String| line.contains("ended with exit code 1"));
        let is_last = has_failed && line.contains("exit code 0");
        lines.push(line);
        if is_last {
            break;
        }
    }
    let _ = follower.kill();
    let _ = follower.wait();
    assert!(lines.iter().any(|line| line.trim() == "done"), "{lines:?}");
    let states = fs::read_to_string(bench.path("out.env")).unwrap();
    assert!(states.contains("drive_warned raised\ndrive_warned cleared\n"), "{states}");
    let told = fs::read_to_string(&out).unwrap();
    let warned: Vec<Value> =
        told.lines().map(json_of).filter(|event| event["event"] == "drive_warned").collect();
    assert_eq!(warned.len(), 2, "{told}");
    assert!(warned[0]["text"].as_str().unwrap().ends_with("it's \"warm\"; $(false)"), "{told}");
    served.end();
}

#[test]
fn power_suspends_caches_closes_pools_and_serves_again() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    let said = done(&here(&["power", "on-battery"]));
    assert!(said.contains("write caches are off, and flushed"), "{said}");
    let conditions = || here(&["event", "conditions"]).stdout;
    assert!(conditions().contains("power:power"), "{}", conditions());
    done(&here(&["power", "low"]));
    assert!(conditions().contains("the battery is low"), "{}", conditions());
    // The pool is closed: whoever opens it finds it so.
    done(&bench.run(&["pool", "show", "state/pools/mail"]));
    let refused = here(&["apply", "site.toml"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("power is low, and nothing is served"), "{}", refused.stderr);
    done(&here(&["power", "on-line"]));
    assert!(!conditions().contains("power"), "{}", conditions());
    let shown = json_of(&done(&here(&["power", "--json"])));
    assert_eq!(shown["power"], "on-line");
    done(&here(&["apply", "site.toml", "--dry-run"]));
    let kinds: Vec<String> = done(&here(&["event", "--json"]))
        .lines()
        .map(json_of)
        .filter(|event| event["details"]["condition"] == "power:power")
        .map(|event| format!("{} {}", event["event"], event["details"]["state"]).replace('"', ""))
        .collect();
    assert_eq!(kinds, ["on_battery raised", "battery_low raised", "battery_low cleared"]);
    served.end();
}

#[test]
fn a_drive_without_a_light_is_named_with_its_serial_number_and_path() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let drive = drive_of_mail(&bench);
    let said = done(&bench.run(&["drive", "locate", &drive, "--state", "state"]));
    assert!(said.contains("this machine knows no light for it; serial number "), "{said}");
    let refused = bench.run(&["drive", "locate", "none", "--state", "state"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("no pool has a drive \"none\""),
        "{}",
        refused.stderr
    );
    served.end();
}

#[test]
fn webhooks_and_mail_go_over_tls_to_those_who_should_get_them_and_certificates_are_watched() {
    if !is_here("python3", "python3") {
        return;
    }
    let bench = Bench::new();
    let (authority, stranger) = (Authority::called("authority"), Authority::called("stranger"));
    authority.folder(&bench, "tls", "server");
    authority.folder_until(&bench, ("old", "server"), (1990, 1, 1));
    bench.make_file("stranger.pem", stranger.pem.as_bytes());
    let files = [bench.path("tls/server-cert.pem"), bench.path("tls/server-key.pem")];
    let files = [files[0].as_path(), files[1].as_path()];
    let receiver = PythonServer::begin_with(RECEIVER, 0, &files);
    let sink = PythonServer::begin_with(MAIL_SINK, 0, &files);
    let webhook = |name: &str, authority: &str| {
        let url = format!("https://localhost:{}/", receiver.port);
        format!(
            "[[notify]]\nname = '{name}'\nkind = 'webhook'\nurl = '{url}'\nsecret_file = 'secret'\nca_file = '{authority}'\n"
        )
    };
    let mail = |name: &str, more: &str| {
        format!(
            "[[notify]]\nname = '{name}'\nkind = 'mail'\nsmtp = 'localhost:{}'\nca_file = 'tls/ca-cert.pem'\n\
             from = 'spindle@example.org'\nto = ['ops@example.org']\n{more}",
            sink.port
        )
    };
    let all = [
        webhook("ops", "tls/ca-cert.pem"),
        webhook("fooled", "stranger.pem"),
        mail("post", "tls = true\nuser = 'spindle'\nsecret_file = 'secret'\n"),
        mail("nobody", "tls = true\nuser = 'other'\nsecret_file = 'secret'\n"),
        mail("clear", ""),
        webhook("hidden", "tls/ca-cert.pem").replacen("url = ", "url_file = 'url'\n# ", 1),
    ];
    let url = bench.make_file("url", format!("https://localhost:{}/T0/secret\n", receiver.port).as_bytes());
    fs::set_permissions(url, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    site_with(&bench, &all.concat());
    let site = fs::read_to_string(bench.path("site.toml")).unwrap();
    bench.make_file("site.toml", site.replace("[serve]", "[serve]\nnbd_tls = 'old'").as_bytes());
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    let outcome = |name: &str| here(&["event", "test", name]).stdout.trim().to_owned();
    assert_eq!(
        (outcome("ops"), outcome("post")),
        ("ops: delivered".to_owned(), "post: delivered".to_owned())
    );
    // The old certificate is told as well.
    receiver.until("the test", |line| line["body"]["event"] == "test");
    sink.until("the test", |mail| mail["subject"] == "[Spindle] test");
    let fooled = outcome("fooled");
    assert!(
        fooled.starts_with("fooled: not delivered: TLS: ") && fooled.contains("UnknownIssuer"),
        "{fooled}"
    );
    let refused = "nobody: not delivered: the mail server refused AUTH: 535 who are you";
    assert_eq!(outcome("nobody"), refused);
    assert_eq!(outcome("clear"), "clear: not delivered: the mail server refused MAIL FROM: 530 log in");
    assert_eq!(outcome("hidden"), "hidden: delivered");
    // Conditions are looked at once a second.
    let expired = "server-cert.pem expired 1990-01-01 00:00:00 UTC";
    let mut conditions = String::new();
    for _ in 0..200 {
        conditions = here(&["event", "conditions"]).stdout;
        if conditions.contains(expired) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(conditions.contains(expired), "{conditions}");
    served.end();
}

#[test]
fn many_wrong_tokens_are_one_condition() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let ask = || {
        let mut stream = UnixStream::connect(bench.path("state/spindle.sock")).unwrap();
        let request =
            "GET /v1/pools HTTP/1.1\r\nhost: x\r\nauthorization: Bearer none\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer[..12].to_owned()
    };
    let answers: Vec<String> = (0..12).map(|_| ask()).collect();
    assert_eq!((&*answers[0], &*answers[11]), ("HTTP/1.1 401", "HTTP/1.1 429"));
    let end = Instant::now() + Duration::from_secs(20);
    let conditions = || bench.run(&["event", "conditions", "--state", "state"]).stdout;
    while !conditions().contains("[logins:api]") {
        assert!(Instant::now() < end, "{}", conditions());
        thread::sleep(Duration::from_millis(200));
    }
    served.end();
}

#[test]
fn a_receiver_that_is_gone_keeps_the_others_from_nothing() {
    if !is_here("python3", "python3") {
        return;
    }
    let bench = Bench::new();
    let sink = PythonServer::begin(MAIL_SINK, 0);
    let mail = format!(
        "[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = '127.0.0.1:{}'\nfrom = 'spindle@example.org'\n\
         to = ['gone@example.org', 'ops@example.org']\n",
        sink.port
    );
    site_with(&bench, &mail);
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    let said = here(&["event", "test"]).stdout;
    assert!(said.contains("to some alone: the mail server refused RCPT TO gone@example.org: 550"), "{said}");
    assert_eq!(sink.until("the test", |_| true)["to"], serde_json::json!(["RCPT TO:<ops@example.org>"]));
    done(&here(&["drive", "warn", &drive_of_mail(&bench), "it is warm"]));
    sink.until("the warning", |mail| mail["text"].as_str().unwrap().contains("it is warm"));
    let end = Instant::now() + Duration::from_secs(20);
    let conditions = || here(&["event", "conditions"]).stdout;
    while !conditions().contains("[receiver:notify:post]") {
        assert!(Instant::now() < end, "{}", conditions());
        thread::sleep(Duration::from_millis(200));
    }
    assert!(!conditions().contains("notifier_failing"), "{}", conditions());
    served.end();
}

/// It is not installed by tests: `pip install aiosmtpd`.
#[test]
fn mail_is_taken_by_aiosmtpd() {
    let has_it = || Command::new("python3").args(["-c", "import aiosmtpd"]).stderr(Stdio::null()).status();
    if !is_here("python3", "python3") || !has_it().is_ok_and(|status| status.success()) {
        println!("note: skipped: Python has no aiosmtpd here");
        return;
    }
    let bench = Bench::new();
    let sink = PythonServer::begin(AIOSMTPD, 0);
    let mail = format!(
        "[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = '127.0.0.1:{}'\nfrom = 'Spindle <spindle@example.org>'\n\
         to = ['ops@example.org', 'Night <night@example.org>']\n",
        sink.port
    );
    site_with(&bench, &mail);
    let served = Served::begin(&bench);
    let here = |arguments: &[&str]| bench.run(&[arguments, &["--state", "state"]].concat());
    assert_eq!(done(&here(&["event", "test"])), "post: delivered\n");
    let test = sink.until("the test", |_| true);
    assert_eq!(test["to"], serde_json::json!(["ops@example.org", "night@example.org"]));
    assert_eq!((&test["from"], &test["defects"]), (&"spindle@example.org".into(), &serde_json::json!([])));
    let text = format!("größer als {}\n.\nQUIT", "x".repeat(400));
    done(&here(&["drive", "warn", &drive_of_mail(&bench), &text]));
    let mail = sink.until("the warning", |mail| mail["text"].as_str().unwrap().contains("größer als xxx"));
    assert!(mail["text"].as_str().unwrap().contains(&format!("{} . QUIT", "x".repeat(400))), "{mail}");
    assert!(mail["subject"].as_str().unwrap().contains("größer"), "{mail}");
    served.end();
}

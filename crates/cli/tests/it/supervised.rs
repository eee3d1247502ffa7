//! `spindle serve` under a service manager, which this test plays: readiness, reloads, the watchdog, the end.

use crate::{
    sites_served::SITE,
    spindle::{Bench, pause, signal},
};
use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Longest wait for a message that comes at once on an idle machine.
const WITHIN: Duration = Duration::from_secs(60);
/// Time of the watchdog, and a span in which several of its messages come.
const WATCHDOG: Duration = Duration::from_secs(4);

/// A service manager: the socket to which a service reports.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn at(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket }
    }

    /// The lines of the next message; `None` if none came for a moment.
    fn next(&self) -> Option<Vec<String>> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).ok()?;
        let text = String::from_utf8(bytes[..count].to_vec()).unwrap();
        Some(text.lines().map(str::to_owned).collect())
    }

    /// The message with this line, passing over others.
    #[track_caller]
    fn expect(&self, line: &str) -> Vec<String> {
        let begun = Instant::now();
        while begun.elapsed() < WITHIN {
            if let Some(message) = self.next()
                && message.iter().any(|said| said.starts_with(line))
            {
                return message;
            }
        }
        panic!("{line} never came");
    }

    /// Messages of the watchdog in a span of time.
    fn pings(&self, span: Duration) -> usize {
        let begun = Instant::now();
        let mut count = 0;
        while begun.elapsed() < span {
            count += usize::from(self.next() == Some(vec!["WATCHDOG=1".to_owned()]));
        }
        count
    }
}

/// A server under a manager, killed when dropped.
struct Service(Child);

impl Service {
    fn start(bench: &Bench, notify: &str, more: &[(&str, &str)]) -> Self {
        let mut command = bench.command(&["serve", "site.toml", "--state", "state"]);
        command.env("NOTIFY_SOCKET", notify).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        command.envs(more.iter().copied()).stdout(Stdio::null());
        let log = fs::File::create(bench.path("log")).unwrap();
        Self(command.stderr(log).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(more: &[(&str, &str)]) -> (Bench, Manager, Service) {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let path = bench.path("notify");
    let manager = Manager::at(UnixDatagram::bind(&path).unwrap());
    let service = Service::start(&bench, path.to_str().unwrap(), more);
    (bench, manager, service)
}

#[test]
fn a_service_manager_learns_when_the_server_serves_reloads_and_stops() {
    let (bench, manager, mut service) = started(&[]);
    manager.expect("STATUS=opening pools");
    let ready = manager.expect("READY=1");
    assert_eq!(ready, ["READY=1", "STATUS=serving 2 pools"]);
    // Several in the time after which the manager would end the server.
    let pings = manager.pings(WATCHDOG);
    assert!(pings >= 2, "{pings} messages of the watchdog in its time");

    signal(&service.0, "HUP");
    let reloading = manager.expect("RELOADING=1");
    assert!(reloading.iter().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading:?}");
    manager.expect("READY=1");
    // A wrong file ends the reload too: what was served is served on.
    bench.make_file("site.toml", b"[[volume]\n");
    signal(&service.0, "HUP");
    manager.expect("RELOADING=1");
    manager.expect("READY=1");

    signal(&service.0, "TERM");
    manager.expect("STOPPING=1");
    assert!(service.0.wait().unwrap().success());
}

#[test]
fn a_manager_with_an_abstract_socket_is_told_too() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let name = format!("spindle-supervised-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager::at(UnixDatagram::bind_addr(&address).unwrap());
    let _service = Service::start(&bench, &format!("@{name}"), &[]);
    manager.expect("READY=1");
}

#[test]
fn the_watchdog_is_not_told_once_the_thread_of_a_pool_is_held() {
    let bench = Bench::new();
    let planted = format!("pool mail={}", bench.path("hang").display());
    let (_bench, manager, service) = started(&[("SPINDLE_PLANTED_HANG", &planted)]);
    manager.expect("READY=1");
    assert!(manager.pings(WATCHDOG) >= 2);
    bench.make_file("hang", b"");
    let status = manager.expect("STATUS=no step of the thread pool mail has ended for 2");
    assert_eq!(status.len(), 1, "{status:?}");
    assert_eq!(manager.pings(2 * WATCHDOG), 0, "the manager ends the server now");
    drop(service);
}

#[test]
fn the_watchdog_is_told_while_drives_hang_because_the_thread_turns() {
    let bench = Bench::new();
    // The drives are served by another process, which is stopped.
    let socket = bench.path("shelf");
    let nbd = format!("unix:{}", socket.display());
    let mut shelf = bench.command(&["export", "a.img", "b.img", "--create", "150MiB", "--nbd", &nbd]);
    let shelf = Service(shelf.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < WITHIN, "the drives are served");
        std::thread::sleep(Duration::from_millis(10));
    }
    let uri = |name: &str| format!("'nbd+unix:///{name}?socket={}'", socket.display());
    let site = format!(
        "[[group]]\nname = 'mail'\ndevices = [{}, {}]\n[[volume]]\nname = 'store'\ngroup = 'mail'\ngb = 0.015625\n",
        uri("a.img"),
        uri("b.img")
    );
    bench.make_file("site.toml", site.as_bytes());
    let path = bench.path("notify");
    let manager = Manager::at(UnixDatagram::bind(&path).unwrap());
    let _service = Service::start(&bench, path.to_str().unwrap(), &[]);
    manager.expect("READY=1");
    pause(&shelf.0);
    let volume = ["volume", "create", "state/pools/mail/late", "4MiB"];
    let mut waiting = Service(bench.command(&volume).stdout(Stdio::null()).spawn().unwrap());
    // Longer than the manager would wait for a thread that is held.
    let pings = manager.pings(2 * WATCHDOG);
    assert!(waiting.0.try_wait().unwrap().is_none(), "a write to the pool waits for its drives");
    assert!(pings >= 4, "{pings} messages of the watchdog in twice its time");
    let resumed = Command::new("kill").args(["-s", "CONT", &shelf.0.id().to_string()]).status();
    assert!(resumed.unwrap().success());
    assert!(waiting.0.wait().unwrap().success(), "and is done when they answer");
}

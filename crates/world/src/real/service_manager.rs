//! The service manager that started this process, and the messages it expects (sd_notify(3)).
//!
//! A message is one datagram to the socket that the environment names. Sending never waits: a manager that does not read
//! must not hold the thread that reports.

use crate::{IoError, IoResult};
use rustix::time::{ClockId, clock_gettime};
use std::{
    env,
    ffi::OsStr,
    fmt::Write,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::Duration,
};

/// A message to the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState<'s> {
    /// The start is over, or a reload.
    Ready,
    /// A reload begins; [`ServiceState::Ready`] ends it.
    Reloading,
    /// The service ends.
    Stopping,
    /// All threads turn.
    Watchdog,
    /// One line for people.
    Status(&'s str),
}

/// The socket of the service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the environment names (`NOTIFY_SOCKET`); `None` if there is none.
    ///
    /// # Errors
    ///
    /// The name is neither a path from the root nor an abstract one (`@NAME`), or the system has no socket left.
    pub fn from_environment() -> IoResult<Option<Self>> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let number = |variable: &str| env::var(variable).ok()?.parse::<u64>().ok();
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&micros| is_own && micros > 0);
        Self::at(&name, watchdog.map(Duration::from_micros)).map(Some)
    }

    fn at(name: &OsStr, watchdog: Option<Duration>) -> IoResult<Self> {
        let fail = |error| {
            IoError::from_os(error, format!("using NOTIFY_SOCKET={}, the service manager's", name.display()))
        };
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            [b'/', ..] => SocketAddr::from_pathname(name),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        let socket = UnixDatagram::unbound().map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        Ok(Self { socket, address: address.map_err(fail)?, watchdog })
    }

    /// The manager ends the process if [`ServiceState::Watchdog`] does not come for this long; `None` if it does not watch.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends the states in one message.
    ///
    /// # Errors
    ///
    /// The manager is gone, or does not read its messages.
    pub fn send(&self, states: &[ServiceState]) -> IoResult<()> {
        let sent = self.socket.send_to_addr(message(states).as_bytes(), &self.address);
        let fail = |error| IoError::from_os(error, "telling the service manager");
        sent.map(drop).map_err(fail)
    }
}

/// Lines `KEY=value`.
fn message(states: &[ServiceState]) -> String {
    let mut text = String::new();
    for state in states {
        let written = match state {
            ServiceState::Ready => writeln!(text, "READY=1"),
            // The manager tells by the time which of two reloads has ended.
            ServiceState::Reloading => writeln!(text, "RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()),
            ServiceState::Stopping => writeln!(text, "STOPPING=1"),
            ServiceState::Watchdog => writeln!(text, "WATCHDOG=1"),
            ServiceState::Status(line) => writeln!(text, "STATUS={}", line.replace('\n', " ")),
        };
        written.expect("a string takes all");
    }
    text
}

fn monotonic_micros() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_with_a_path_and_an_abstract_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let at_path = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        manager.send(&[ServiceState::Ready, ServiceState::Status("two\nlines")]).unwrap();
        assert_eq!(received(&at_path), "READY=1\nSTATUS=two lines\n");

        let name = format!("spindle-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager::at(OsStr::new(&format!("@{name}")), None).unwrap();
        manager.send(&[ServiceState::Watchdog]).unwrap();
        assert_eq!(received(&at_name), "WATCHDOG=1\n");
    }

    #[test]
    fn a_reload_is_told_with_the_time_at_which_it_began() {
        let before = monotonic_micros();
        let text = message(&[ServiceState::Reloading]);
        let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("both keys").trim_end();
        let time: i64 = time.parse().unwrap();
        assert!((before..=monotonic_micros()).contains(&time), "{text}");
    }

    #[test]
    fn a_manager_that_does_not_read_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _unread = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        let refused = (0..100_000).find_map(|_| manager.send(&[ServiceState::Watchdog]).err());
        assert!(refused.is_some(), "its queue is full before");
    }

    #[test]
    fn a_name_that_is_no_socket_is_refused() {
        let refused = ServiceManager::at(OsStr::new("vsock:2:1234"), None).unwrap_err();
        assert!(refused.to_string().contains("NOTIFY_SOCKET=vsock:2:1234"), "{refused}");
    }
}

//! Users of this machine, as programs run under them.
//!
//! The name service is asked by `getent` and `id`, not by reading `/etc/passwd`: users of a directory service count
//! as well, and the C library's lookup is neither safe in a process with threads nor free of its own helpers.

use crate::{IoError, IoErrorKind, IoResult};
use rustix::{
    fs::Mode,
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    uid: Uid,
    gid: Gid,
    /// The first and the supplementary groups.
    groups: Vec<Gid>,
    home: String,
}

/// Checks that programs of this process can run as that user, and waits for the name service.
///
/// # Errors
/// `NotFound` if the user does not exist, `PermissionDenied` if this process may not become that user.
pub fn check_user(name: &str) -> IoResult<()> {
    let checked = User::named(name).and_then(|user| user.expect_allowed());
    checked.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => IoError::new(IoErrorKind::NotFound, error.to_string()),
        io::ErrorKind::PermissionDenied => IoError::new(IoErrorKind::PermissionDenied, error.to_string()),
        _ => IoError::from_os(error, format!("looking up the user {name:?}")),
    })
}

/// Gives a file to a user of this machine and the user's first group. Its permissions stay.
///
/// # Errors
/// `NotFound` if the user does not exist; else the system's.
pub fn give_file(path: &Path, name: &str) -> IoResult<()> {
    let given =
        User::named(name).and_then(|user| Ok(rustix::fs::chown(path, Some(user.uid), Some(user.gid))?));
    given.map_err(|error| refused(&error, format!("giving {} to {name:?}", path.display())))
}

/// Gives a file to the first group of a user, who may read it from then on; others may not. Its owner stays.
///
/// # Errors
/// As of [`give_file`].
pub fn share_file(path: &Path, name: &str) -> IoResult<()> {
    let shared = User::named(name).and_then(|user| {
        rustix::fs::chown(path, None, Some(user.gid))?;
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(0o640))?)
    });
    shared.map_err(|error| refused(&error, format!("sharing {} with {name:?}", path.display())))
}

fn refused(error: &io::Error, context: String) -> IoError {
    match error.kind() {
        io::ErrorKind::NotFound => IoError::new(IoErrorKind::NotFound, format!("{context}: {error}")),
        _ => IoError::from_os(io::Error::new(error.kind(), error.to_string()), context),
    }
}

impl User {
    /// Asks the name service; `NotFound` if it knows no such user.
    pub(super) fn named(name: &str) -> io::Result<Self> {
        let missing = || {
            let story = format!("no user {name:?} on this machine; name one that `getent passwd` shows");
            io::Error::new(io::ErrorKind::NotFound, story)
        };
        // A name that starts with a dash would be an option.
        if name.is_empty() || name.starts_with('-') || name.contains(['\0', ':']) {
            return Err(missing());
        }
        let line = answer_of("getent", &["passwd", name])?.ok_or_else(missing)?;
        let groups = answer_of("id", &["-G", name])?.ok_or_else(missing)?;
        Self::parse(&line, &groups).ok_or_else(|| {
            io::Error::other(format!("the name service's answer about the user {name:?} is not understood"))
        })
    }

    /// `line` as in passwd(5), `groups` as `id -G` prints them.
    fn parse(line: &str, groups: &str) -> Option<Self> {
        let fields: Vec<&str> = line.trim_end().split(':').collect();
        let [name, _, uid, gid, _, home, _] = fields[..] else { return None };
        let groups: Option<Vec<Gid>> =
            groups.split_whitespace().map(|number| Some(Gid::from_raw(number.parse().ok()?))).collect();
        Some(Self {
            name: name.to_owned(),
            uid: Uid::from_raw(uid.parse().ok()?),
            gid: Gid::from_raw(gid.parse().ok()?),
            groups: groups?,
            home: home.to_owned(),
        })
    }

    fn expect_allowed(&self) -> io::Result<()> {
        if geteuid().is_root() || geteuid() == self.uid {
            return Ok(());
        }
        let story =
            format!("only root can run programs as {:?}; leave the user out, or start as root", self.name);
        Err(io::Error::new(io::ErrorKind::PermissionDenied, story))
    }

    /// Has the command run as this user. The standard library's way would leave the user without groups.
    pub(super) fn take(self, command: &mut Command) -> io::Result<()> {
        self.expect_allowed()?;
        command.env("HOME", &self.home).env("USER", &self.name).env("LOGNAME", &self.name).current_dir("/");
        if geteuid() == self.uid {
            return Ok(());
        }
        let become_user = move || {
            set_thread_groups(&self.groups)?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
            set_thread_res_uid(self.uid, self.uid, self.uid)?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes three system calls that rustix makes without libc. It
        // takes no lock and no memory: the groups were allocated before the fork.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(become_user);
        }
        Ok(())
    }
}

/// The output of a program, or `None` if it says that there is no such user.
fn answer_of(program: &str, arguments: &[&str]) -> io::Result<Option<String>> {
    let answer = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| io::Error::other(format!("running {program}: {error}")))?;
    Ok(answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_parsed_with_all_their_groups() {
        let user = User::parse("mail:x:8:8:mail,,,:/var/mail:/usr/sbin/nologin\n", "8 12 100\n").unwrap();
        assert_eq!((user.uid.as_raw(), user.gid.as_raw(), &*user.home), (8, 8, "/var/mail"));
        assert_eq!(user.groups.iter().map(|group| group.as_raw()).collect::<Vec<_>>(), [8, 12, 100]);
        assert_eq!(User::parse("mail:x:eight:8:::", "8"), None);
        assert_eq!(User::parse("mail:x:8:8", "8"), None);
    }

    #[test]
    fn an_unknown_user_is_one_line() {
        for name in ["no-such-user", "", "-h", "root:x"] {
            let error = check_user(name).unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::NotFound, "{name}");
            let line = format!("no user {name:?} on this machine; name one that `getent passwd` shows");
            assert_eq!(error.to_string(), line);
        }
        let root = check_user("root").map_err(|error| error.kind());
        assert_eq!(root, if geteuid().is_root() { Ok(()) } else { Err(IoErrorKind::PermissionDenied) });
    }
}

//! Paths and mailboxes in a mounted filesystem.
//!
//! It blocks, and reads files of a filesystem that another thread of this process may serve: never on a thread of a world.
//!
//! Invariant: nothing outside the filesystem is looked at. A path is resolved within its root, and a search follows no link.

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, lstat, open, openat2},
    io::Errno,
};
use serde::Serialize;
use std::{
    collections::VecDeque,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};
use world::{IoError, IoErrorKind, IoResult, real::host_files};

/// Folders that a search for a mailbox enters, at most.
const FOLDERS_MAX: usize = 500_000;
/// Depth below the root at which a mailbox's folder may lie: `/srv/vmail/d/do/domain/u/us/user` and some more.
const DEPTH_MAX: usize = 12;
/// Folders in which mails of a user are, inside the user's own.
const INNER: [&str; 6] = ["Maildir", "maildir", "mdbox", "sdbox", "mail", "Mail"];
/// Depth of a folder of mailboxes in another.
const INNER_DEPTH_MAX: usize = 24;

/// The layout of something that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MailLayout {
    Maildir,
    /// Dovecot's files of many mails each.
    Mdbox,
    /// Dovecot's files of one mail each.
    Sdbox,
    Folder,
    File,
    /// Records of a database in Spindle's own format.
    Database,
}

/// Something that was found in a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundPath {
    /// From the root of the filesystem; the file of a database.
    pub path: PathBuf,
    pub layout: MailLayout,
    /// Of its files; of the bodies of its mails in a database.
    pub bytes: u64,
    /// Mails, where each is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mails: Option<u64>,
    /// Time of its newest mail, or of its newest file where mails are not files; seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_s: Option<i64>,
}

/// Looks for a path from the root of a filesystem; links in it lead nowhere else.
///
/// # Errors
///
/// It cannot be read.
pub fn find_path(root: &Path, path: &Path) -> IoResult<Option<FoundPath>> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let fail = |error: Errno| IoError::from_os(error.into(), format!("looking for {}", path.display()));
    let folder =
        open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
    let wanted = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = match openat2(&folder, wanted, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    // The target of the links, by a path that a listing can take.
    let real = host_files::canonical(&PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd())))?;
    measure(root, &real).map(Some)
}

/// Looks for a mailbox by the name of its user, `NAME` or `NAME@DOMAIN`, in the layouts in which Dovecot is set up usually: a
/// folder `NAME`, `NAME@DOMAIN` or `DOMAIN/…/NAME` that is a Maildir, an mdbox or an sdbox, or has one in it.
///
/// # Errors
///
/// It cannot be read, or has too many folders.
pub fn find_mailboxes(root: &Path, name: &str) -> IoResult<Vec<FoundPath>> {
    let (user, domain) = name.split_once('@').map_or((name, None), |(user, domain)| (user, Some(domain)));
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(root.to_owned(), 0)]);
    let mut count = 0;
    while let Some((folder, depth)) = waiting.pop_front() {
        count += 1;
        if count > FOLDERS_MAX {
            let context = format!("more than {FOLDERS_MAX} folders: give the path of the mailbox");
            return Err(IoError::new(IoErrorKind::Unsupported, context));
        }
        for (entry, kind) in entries(&folder)? {
            if kind != FileType::Directory || entry == "lost+found" {
                continue;
            }
            let path = folder.join(&entry);
            let is_below = |domain: &str| folder.iter().any(|part| part.eq_ignore_ascii_case(domain));
            let is_meant = entry.eq_ignore_ascii_case(name)
                || (entry.eq_ignore_ascii_case(user) && domain.is_none_or(is_below));
            let layout = layout_of(&path)?;
            if is_meant {
                let mail = match layout {
                    MailLayout::Folder => inner(&path)?,
                    _ => Some(path.clone()),
                };
                if let Some(mail) = mail {
                    found.push(measure(root, &mail)?);
                    continue;
                }
            }
            // Mails of somebody else have no users in them.
            if layout == MailLayout::Folder && depth + 1 < DEPTH_MAX {
                waiting.push_back((path, depth + 1));
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The mails in the folder of a user.
fn inner(folder: &Path) -> IoResult<Option<PathBuf>> {
    for name in INNER {
        let path = folder.join(name);
        if is_folder(&path) && layout_of(&path)? != MailLayout::Folder {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn is_folder(path: &Path) -> bool {
    lstat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

/// The layout of a folder by what is in it.
fn layout_of(folder: &Path) -> IoResult<MailLayout> {
    Ok(match () {
        () if ["cur", "new"].iter().all(|name| is_folder(&folder.join(name))) => MailLayout::Maildir,
        () if is_folder(&folder.join("storage")) && is_folder(&folder.join("mailboxes")) => MailLayout::Mdbox,
        () if is_folder(&folder.join("mailboxes")) => MailLayout::Sdbox,
        () => MailLayout::Folder,
    })
}

/// Measures a file, or a folder with all that is in it.
fn measure(root: &Path, path: &Path) -> IoResult<FoundPath> {
    let shown = path.strip_prefix(root).unwrap_or(path).to_owned();
    let found = lstat(path).map_err(|error| IoError::from_os(error.into(), path.display().to_string()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Ok(FoundPath {
            path: shown,
            layout: MailLayout::File,
            bytes: u64::try_from(found.st_size).unwrap_or_default(),
            mails: None,
            newest_s: Some(found.st_mtime),
        });
    }
    let layout = layout_of(path)?;
    let mut sums = Sums { layout, bytes: 0, mails: 0, newest_mail: None, newest_file: None };
    sums.add(path, 0)?;
    let has_mails = matches!(layout, MailLayout::Maildir | MailLayout::Sdbox) || sums.mails > 0;
    Ok(FoundPath {
        path: shown,
        layout,
        bytes: sums.bytes,
        mails: has_mails.then_some(sums.mails),
        newest_s: if has_mails { sums.newest_mail } else { sums.newest_file },
    })
}

struct Sums {
    layout: MailLayout,
    bytes: u64,
    mails: u64,
    newest_mail: Option<i64>,
    newest_file: Option<i64>,
}

impl Sums {
    fn add(&mut self, folder: &Path, depth: usize) -> IoResult<()> {
        let own = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for (name, kind) in entries(folder)? {
            let path = folder.join(&name);
            match kind {
                FileType::Directory if depth < INNER_DEPTH_MAX => self.add(&path, depth + 1)?,
                FileType::RegularFile => {
                    // A file that is gone meanwhile was not there: filesystems opened for writing change.
                    let Ok(found) = lstat(&path) else { continue };
                    self.bytes += u64::try_from(found.st_size).unwrap_or_default();
                    self.newest_file = self.newest_file.max(Some(found.st_mtime));
                    if self.is_mail(&own, &name) {
                        self.mails += 1;
                        self.newest_mail = self.newest_mail.max(Some(found.st_mtime));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// True for a file that is one mail.
    fn is_mail(&self, folder: &str, name: &str) -> bool {
        match self.layout {
            MailLayout::Sdbox => folder == "dbox-Mails" && name.starts_with("u."),
            MailLayout::Mdbox | MailLayout::Database => false,
            // A folder of many users too, or one in a Maildir.
            MailLayout::Maildir | MailLayout::Folder | MailLayout::File => {
                (folder == "cur" || folder == "new") && !name.starts_with("dovecot")
            }
        }
    }
}

/// Names in a folder with their kinds; links are links.
fn entries(folder: &Path) -> IoResult<Vec<(String, FileType)>> {
    let kind = |name: &String| lstat(folder.join(name)).map(|found| FileType::from_raw_mode(found.st_mode));
    let names = host_files::list(folder)?.into_iter();
    Ok(names.filter_map(|name| kind(&name).ok().map(|kind| (name, kind))).collect())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn scene() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in [
            "users/anna/Maildir/cur",
            "users/anna/Maildir/new",
            "users/anna/Maildir/.Sent/cur",
            "vmail/example.org/anna/cur",
            "vmail/example.org/anna/new",
            "vmail/example.net/anna/mdbox/storage",
            "vmail/example.net/anna/mdbox/mailboxes",
            "srv/anna",
        ] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("users/anna/Maildir/cur/1.a:2,S"), "12345").unwrap();
        fs::write(at("users/anna/Maildir/.Sent/cur/2.a"), "123").unwrap();
        fs::write(at("users/anna/Maildir/dovecot-uidlist"), "1").unwrap();
        fs::write(at("vmail/example.net/anna/mdbox/storage/m.1"), "1234567").unwrap();
        symlink("/etc", at("vmail/out")).unwrap();
        symlink("/users/anna", at("srv/link")).unwrap();
        root
    }

    fn check(name: &str, expected: &[(&str, MailLayout, u64, Option<u64>)]) {
        let root = scene();
        let found = find_mailboxes(root.path(), name).unwrap();
        let found: Vec<_> =
            found.iter().map(|one| (one.path.to_str().unwrap(), one.layout, one.bytes, one.mails)).collect();
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn a_mailbox_is_found_in_the_layouts_of_dovecot_and_nothing_else_is_one() {
        let own = ("users/anna/Maildir", MailLayout::Maildir, 9, Some(2));
        let net = ("vmail/example.net/anna/mdbox", MailLayout::Mdbox, 7, None);
        let org = ("vmail/example.org/anna", MailLayout::Maildir, 0, Some(0));
        check("anna", &[own, net, org]);
        check("Anna", &[own, net, org]);
        check("anna@example.net", &[net]);
        check("bert", &[]);
        check("Maildir", &[("users/anna/Maildir", MailLayout::Maildir, 9, Some(2))]);
    }

    #[test]
    fn a_path_is_resolved_within_its_root() {
        let root = scene();
        let path = |path: &str| find_path(root.path(), Path::new(path)).unwrap().map(|found| found.path);
        assert_eq!(path("/users/anna/Maildir"), Some(PathBuf::from("users/anna/Maildir")));
        assert_eq!(
            path("srv/link/Maildir/cur/1.a:2,S"),
            Some(PathBuf::from("users/anna/Maildir/cur/1.a:2,S"))
        );
        assert_eq!(path("vmail/out/passwd"), None);
        assert_eq!(path("../../../../etc/passwd"), None);
        assert_eq!(path("users/bert"), None);
        assert_eq!(path("users/anna/Maildir/dovecot-uidlist/x"), None);
    }
}

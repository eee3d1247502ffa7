//! Answers of a set-up: from the command line, or from questions on a terminal.

use super::{
    arguments::SetupArguments,
    disk_choice::{FREE, chosen, free_disks},
    division::{DiskDivision, SetupStorage, VolumeSizes},
    site_text::{SetupHost, SetupMail, SetupSite},
};
use crate::{console::Console, disks::lines_of};
use report::Refusal;
use serving::pool::disks::ListedDisk;
use std::{net::IpAddr, path::Path};
use world::{
    Address, ByteCount,
    real::{
        host::filesystem_of,
        host_files::{self, PathKind},
    },
};

/// Port of mail servers.
const SMTP_PORT: u16 = 25;
/// Longest iSCSI name (RFC 7143, 4.2.7.2).
const IQN_BYTES_MAX: usize = 223;
/// Drives in files take at most one part of so many of the free space, as the server takes it.
const FREE_PART: u64 = 10;

/// The way to a person; silent with `--yes`.
pub struct Questions<'a> {
    pub console: &'a Console,
    pub is_silent: bool,
}

impl Questions<'_> {
    /// The answer; `None` without a terminal, or without an answer.
    pub fn ask(&self, question: &str) -> Option<String> {
        if self.is_silent { None } else { self.console.ask(question) }
    }

    /// True if somebody may answer.
    fn can_ask(&self) -> bool {
        !self.is_silent && self.console.can_ask()
    }

    /// The value that was given, or else the answer.
    ///
    /// # Errors
    ///
    /// Neither; `flag` is the one to say.
    fn needed(
        &self,
        given: Option<&str>,
        question: &str,
        (what, flag): (&str, &str),
    ) -> Result<String, Refusal> {
        let answer = given.map(str::to_owned).or_else(|| self.ask(question));
        answer.ok_or_else(|| Refusal::new(format!("{what} is not said"), format!("say {flag}")))
    }
}

/// The site as it was said and answered.
///
/// # Errors
///
/// Something is missing or wrong; the line names the flag, or the disk and who uses it.
pub fn choose(
    arguments: &SetupArguments,
    listed: &[ListedDisk],
    questions: &Questions<'_>,
) -> Result<SetupSite, Refusal> {
    let storage = match (&arguments.folder, arguments.gb) {
        (Some(folder), Some(gb)) => files(folder, gb)?,
        _ => disks(arguments, listed, questions)?,
    };
    let sizes = VolumeSizes { databases: arguments.database_gb, logs: arguments.log_gb };
    let division = DiskDivision::of(&storage, sizes)?;
    let host = questions.needed(
        arguments.host.as_deref(),
        "The mail host's iSCSI name (on it: cat /etc/iscsi/initiatorname.iscsi): ",
        ("the mail host", "⟨host⟩ IQN, as /etc/iscsi/initiatorname.iscsi of the host has it"),
    )?;
    let host = host_of(&host)?;
    let address = questions.needed(
        arguments.address.as_deref(),
        "The IP address of this machine at which that host reaches it: ",
        ("the address for hosts", "⟨address⟩ ADDRESS, an IP address of this machine"),
    )?;
    let address = address_of(&address)?;
    let mail = mail(arguments, questions)?;
    Ok(SetupSite { division, host, address, mail })
}

fn files(folder: &Path, gb: f64) -> Result<SetupStorage, Refusal> {
    let whole = |path: &Path| host_files::canonical(path);
    // The folder may be missing; what it lies in is not.
    let folder = match (whole(folder), folder.parent(), folder.file_name()) {
        (Ok(folder), ..) => folder,
        (Err(_), Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let parent = whole(parent).map_err(|error| {
                Refusal::new(error.to_string(), "give ⟨folder⟩ a folder that is there, or a new one in it")
            })?;
            parent.join(name)
        }
        (Err(error), ..) => return Err(Refusal::new(error.to_string(), "give another ⟨folder⟩")),
    };
    let pool = folder.join("mail");
    if !matches!(host_files::kind(&pool), Ok(PathKind::Missing)) {
        let problem = format!("{} is there already, and would be the pool", pool.display());
        return Err(Refusal::new(problem, "give another ⟨folder⟩"));
    }
    let there = folder.ancestors().find(|path| whole(path).is_ok()).unwrap_or(Path::new("/"));
    let free =
        filesystem_of(there).map_err(|error| Refusal::new(error.to_string(), "check the folder"))?.free;
    let bytes = ByteCount((gb * 1e9) as u64);
    if bytes.0 > free.0 / FREE_PART {
        let most = (free.0 / FREE_PART) as f64 / 1e9;
        let problem = format!(
            "{gb} GB of drive files are more than a tenth of the free space below {}, which is {most:.1} GB",
            there.display()
        );
        return Err(Refusal::new(problem, "say a smaller ⟨gb⟩, or another ⟨folder⟩"));
    }
    Ok(SetupStorage::Files { folder, bytes })
}

fn disks(
    arguments: &SetupArguments,
    listed: &[ListedDisk],
    questions: &Questions<'_>,
) -> Result<SetupStorage, Refusal> {
    let mut names = arguments.disks.clone();
    let mut log_names = arguments.log_disks.clone();
    let is_asked = names.is_empty() && questions.can_ask();
    if is_asked {
        let free = free_disks(listed);
        if free.is_empty() {
            return Err(Refusal::new(
                "no disk is free",
                "'spindle disks' says what is on each; to try it without disks, say ⟨folder⟩ FOLDER ⟨gb⟩ N",
            ));
        }
        lines_of(&free).iter().for_each(|line| questions.console.say(line));
        let question = format!(
            "Disks for the pools, with commas between their names (Enter: all {} above): ",
            free.len()
        );
        names = questions.ask(&question).map_or(vec![FREE.to_owned()], |answer| words_of(&answer));
    }
    if names.is_empty() {
        return Err(Refusal::new(
            "the disks are not said",
            "say ⟨disks⟩ DISK,DISK or ⟨disks⟩ free; 'spindle disks --free' lists them",
        ));
    }
    if is_asked && log_names.is_empty() {
        let question =
            "Disks of the logs among them (Enter: chosen by their number and kind; none: one pool of all): ";
        log_names = questions.ask(question).map_or(Vec::new(), |answer| words_of(&answer));
    }
    let (disks, logs) = chosen(listed, &names, &log_names)?;
    Ok(SetupStorage::Disks { disks, logs })
}

fn words_of(answer: &str) -> Vec<String> {
    let words = answer.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// A host as `IQN` or `IQN=NAME`.
fn host_of(text: &str) -> Result<SetupHost, Refusal> {
    let (iqn, name) = match text.split_once('=') {
        Some((iqn, name)) => (iqn, Some(name.to_owned())),
        None => (text, None),
    };
    let is_iqn = ["iqn.", "eui.", "naa."].iter().any(|kind| iqn.starts_with(kind) && iqn.len() > kind.len());
    let is_plain = iqn.chars().all(|c| c.is_ascii_alphanumeric() || "-.:".contains(c));
    if !is_iqn || !is_plain || iqn.len() > IQN_BYTES_MAX {
        return Err(Refusal::new(
            format!("{iqn:?} is no iSCSI name"),
            "say ⟨host⟩ IQN as /etc/iscsi/initiatorname.iscsi of the host has it, such as iqn.2026-11.org.example:mail1",
        ));
    }
    let end = iqn.rsplit([':', '.']).next().filter(|end| !end.is_empty());
    let name = name.unwrap_or_else(|| end.unwrap_or("host").to_owned());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) || name.starts_with('-') {
        let problem = format!("{name:?} is no name for a host: it has letters, digits, '-' and '_'");
        return Err(Refusal::new(problem, "say ⟨host⟩ IQN=NAME"));
    }
    Ok(SetupHost { iqn: iqn.to_owned(), name })
}

fn address_of(text: &str) -> Result<Address, Refusal> {
    let refuse = |problem: String| Refusal::new(problem, "say ⟨address⟩ IP or IP:PORT, such as 192.0.2.10");
    let address = Address::parse(text, iscsi::PORT).map_err(|error| refuse(error.to_string()))?;
    match &address {
        Address::Tcp { host, .. } if host.parse::<IpAddr>().is_ok() => Ok(address),
        // Hosts record the address that they are given here.
        _ => Err(refuse(format!("{text:?} is no IP address"))),
    }
}

fn mail(arguments: &SetupArguments, questions: &Questions<'_>) -> Result<Option<SetupMail>, Refusal> {
    let asked = || questions.ask("Mail address for warnings and errors (Enter: none): ");
    let Some(to) = arguments.mail.clone().or_else(asked) else { return Ok(None) };
    let server = questions.needed(
        arguments.mail_server.as_deref(),
        "The mail server, HOST or HOST:PORT: ",
        ("the mail server", "⟨mail-server⟩ HOST"),
    )?;
    let server = Address::parse(&server, SMTP_PORT)
        .map_err(|error| Refusal::new(error.to_string(), "say ⟨mail-server⟩ HOST:PORT"))?;
    let is_encrypted = !arguments.mail_unencrypted && !server.is_local();
    Ok(Some(SetupMail { to, server, is_encrypted }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_by_the_end_of_its_iscsi_name_unless_it_is_said() {
        let of = |text: &str| {
            host_of(text).map(|host| (host.iqn, host.name)).map_err(|refusal| refusal.to_string())
        };
        let long = "iqn.1993-08.org.debian:01:ab12cd".to_owned();
        assert_eq!(of(&long), Ok((long.clone(), "ab12cd".to_owned())));
        assert_eq!(of(&format!("{long}=mail1")), Ok((long, "mail1".to_owned())));
        for wrong in ["mail1", "iqn.", "iqn.2026-11.org.example:mail 1", "iqn.2026-11.org.example:m=../x", ""]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_is_of_the_internet_protocol_since_hosts_record_it() {
        assert_eq!(address_of("192.0.2.10").unwrap().to_string(), "192.0.2.10:3260");
        assert_eq!(address_of("[2001:db8::1]:3261").unwrap().to_string(), "[2001:db8::1]:3261");
        for wrong in ["array.example.org", "unix:/run/x", "192.0.2.10:x"] {
            assert!(address_of(wrong).unwrap_err().to_string().contains("⟨address⟩"), "{wrong}");
        }
    }
}

//! The site file that `spindle setup` writes, with comments.

use super::division::{DiskDivision, PlannedDrives, PlannedPool};
use crate::console::in_options;
use std::path::Path;
use world::Address;

/// Name of the notifier.
pub const NOTIFIER: &str = "mail";

/// All that a site file says.
#[derive(Clone, Debug)]
pub struct SetupSite {
    pub division: DiskDivision,
    pub host: SetupHost,
    /// The address of iSCSI.
    pub address: Address,
    pub mail: Option<SetupMail>,
}

/// The host that uses the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupHost {
    /// Its iSCSI name.
    pub iqn: String,
    /// Its user for CHAP.
    pub name: String,
}

/// Mail of warnings and errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupMail {
    pub to: String,
    pub server: Address,
    pub is_encrypted: bool,
}

impl SetupSite {
    /// Name of the file of the host's CHAP secret, beside the site file.
    pub fn secret_file(&self) -> String {
        format!("{}.chap-secret", self.host.name)
    }

    /// The site file.
    pub fn to_text(&self) -> String {
        let Self { division, address, .. } = self;
        let mut text = format!(
            "# A mail site, made by 'spindle setup'. docs/site.md describes every key; after a change:\n\
             #   spindle apply FILE --dry-run      shows what would change\n\
             #   systemctl reload spindle          applies it under the host's sessions, or send the server SIGHUP\n\
             name = \"mail\"\n\
             \n\
             # Hosts reach the volumes here. Others reach nothing: NBD is off, and the API is a socket of this machine.\n\
             [serve]\n\
             iscsi = {}\n\
             nbd = \"none\"\n\n",
            quoted(&address.to_string())
        );
        for reason in &division.reasons {
            text += &comment(&in_options(reason));
        }
        division.pools.iter().for_each(|pool| text += &group_text(pool));
        text += "# Volumes are thin: they take what is written, and share the room of their pool with their backups.\n";
        for pool in &division.pools {
            for volume in &pool.volumes {
                text += &format!(
                    "[[volume]]\nname = {}\nrole = {}\ngroup = {}\ngb = {}\n\n",
                    quoted(volume.name),
                    quoted(volume.role),
                    quoted(pool.name),
                    volume.gb
                );
            }
        }
        text += &self.backups_text();
        text += &self.access_text();
        text += &self.mail_text();
        text
    }

    fn backups_text(&self) -> String {
        let pools: Vec<String> = self.division.pools.iter().map(|pool| quoted(pool.name)).collect();
        format!(
            "# Backups of all volumes at one moment: one an hour, of which 24 stay, and one a day, of which 14 stay. Nothing\n\
             # freezes the applications: each backup is what a crash at that moment would leave. To have it freeze them:\n\
             # [[protect]] (docs/protect.md).\n\
             [[snapshots]]\n\
             name = \"backups\"\n\
             groups = [{}]\n\
             schedules = [\"24x1h\", \"14x1d\"]\n\
             # zone = \"Europe/Berlin\"\n\n",
            pools.join(", ")
        )
    }

    fn access_text(&self) -> String {
        let mut text = "# Units of a target are of one pool.\n".to_owned();
        for pool in &self.division.pools {
            text += &format!("[[target]]\nname = {}\n\n", quoted(pool.name));
            for (number, volume) in pool.volumes.iter().enumerate() {
                let volume = quoted(&format!("{}/{}", pool.name, volume.name));
                text += &format!("[[target.unit]]\nnumber = {number}\nvolume = {volume}\n\n");
            }
        }
        let targets: Vec<String> = self.division.pools.iter().map(|pool| quoted(pool.name)).collect();
        let SetupHost { iqn, name } = &self.host;
        text += &format!(
            "# The host logs in with this user and the secret in the file, and sees nothing else. Other hosts are refused.\n\
             [[initiator]]\n\
             name = {}\n\
             user = {}\n\
             secret_file = {}\n\
             uses = [{}]\n",
            quoted(iqn),
            quoted(name),
            quoted(&self.secret_file()),
            targets.join(", ")
        );
        text
    }

    fn mail_text(&self) -> String {
        let Some(SetupMail { to, server, is_encrypted }) = &self.mail else {
            return "\n# Nobody is told of warnings and errors yet. To have them mailed:\n\
                    # [[notify]]\n\
                    # name = \"mail\"\n\
                    # kind = \"mail\"\n\
                    # smtp = \"mail.example.org\"\n\
                    # tls = true\n\
                    # from = \"spindle@example.org\"\n\
                    # to = [\"ops@example.org\"]\n"
                .to_owned();
        };
        let way = match (is_encrypted, server.is_local()) {
            (true, _) => "tls = true\n",
            (false, true) => "",
            (false, false) => "unencrypted = true\n",
        };
        format!(
            "\n# Warnings and errors go there; 'spindle event test' sends a test message.\n\
             [[notify]]\n\
             name = {}\n\
             kind = \"mail\"\n\
             smtp = {}\n\
             {way}\
             from = {to}\n\
             to = [{to}]\n",
            quoted(NOTIFIER),
            quoted(&server.to_string()),
            to = quoted(to)
        )
    }
}

fn group_text(pool: &PlannedPool) -> String {
    let raid = if pool.drive_count() == 2 { "raid1" } else { "raid10" };
    let head = format!("[[group]]\nname = {}\nraid = {}\n", quoted(pool.name), quoted(raid));
    let spares = format!("spares = {}\n", pool.spares);
    let drives = match &pool.drives {
        PlannedDrives::Devices(devices) => {
            let listed: String = devices.iter().map(|path| format!("    {},\n", quoted_path(path))).collect();
            format!("devices = [\n{listed}]\n")
        }
        PlannedDrives::Files { folder, count, drive_gb } => {
            format!("folder = {}\ndrives = {count}\ndrive_gb = {drive_gb}\n", quoted_path(folder))
        }
    };
    format!("{head}{drives}{spares}\n")
}

/// A line of a comment, wrapped at 110 columns.
fn comment(line: &str) -> String {
    const COLUMNS: usize = 110;
    let mut lines = vec!["#".to_owned()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("one at least");
        if last.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("#   {word}"));
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A string of TOML: JSON's have the same form.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string")
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

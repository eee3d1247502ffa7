//! Hosts from which volumes of DR groups are withheld, each with the steps that bring it back.

use crate::{dr::group_view::WithheldHost, view::PoolView};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A host from which volumes of a group are withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrWithheldRow {
    /// iSCSI name of its initiator; left out for all NBD clients, which have no names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// The volumes, POOL/VOLUME.
    pub volumes: Vec<String>,
    /// The last failover or rollback that withheld them.
    pub since: String,
    /// The steps that bring it back, in their order.
    pub steps: Vec<String>,
}

impl DrWithheldRow {
    /// The host in a line.
    pub fn host(&self) -> &str {
        self.initiator.as_deref().unwrap_or("all NBD clients")
    }

    fn of(pool: &str, names: Vec<String>, host: &WithheldHost) -> Self {
        let volumes: Vec<String> = names.iter().map(|name| format!("{pool}/{name}")).collect();
        let steps = steps(host.initiator.as_deref(), &volumes);
        Self { initiator: host.initiator.clone(), volumes, since: utc_time(host.since_unix_s), steps }
    }
}

/// Stop, unmount, log out, log in, check, mount.
fn steps(initiator: Option<&str>, volumes: &[String]) -> Vec<String> {
    let (leave, who, come) = match initiator {
        Some(initiator) => ("log out", format!("--initiator {initiator}"), "log in here"),
        None => ("disconnect", "--nbd".to_owned(), "connect here"),
    };
    let readmit = |volume: &String| format!("'spindle volume readmit {volume} {who}'");
    let readmit = volumes.iter().map(readmit).collect::<Vec<_>>().join(", ");
    let readmit = match initiator {
        Some(_) => format!("if it is still named in 'spindle dr status': {readmit}"),
        None => readmit,
    };
    vec![
        "stop what uses it".to_owned(),
        "unmount it".to_owned(),
        leave.to_owned(),
        readmit,
        come.to_owned(),
        "check the file systems, or the databases".to_owned(),
        "mount it".to_owned(),
    ]
}

/// Rows of all hosts from which volumes of a group are withheld.
pub(super) fn withheld_rows((pool, view): (&str, &PoolView), hosts: &[WithheldHost]) -> Vec<DrWithheldRow> {
    let name_of =
        |id| view.volumes.iter().find(|volume| volume.volume == id).map(|volume| volume.name.clone());
    let row = |host: &WithheldHost| {
        let names = host.volumes.iter().filter_map(|&id| name_of(id)).collect();
        DrWithheldRow::of(pool, names, host)
    };
    hosts.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_steps_in_their_order() {
        let host =
            WithheldHost { initiator: Some("iqn.x:a".to_owned()), volumes: Vec::new(), since_unix_s: 0 };
        let row = DrWithheldRow::of("mail", vec!["disk".to_owned()], &host);
        let steps = row.steps.join("; ");
        let order = [
            "stop",
            "unmount",
            "log out",
            "readmit mail/disk --initiator iqn.x:a",
            "log in",
            "check",
            "mount",
        ];
        let mut from = 0;
        for step in order {
            from += steps[from..].find(step).unwrap_or_else(|| panic!("{step} is next in {steps}")) + 1;
        }
        let nbd =
            DrWithheldRow::of("mail", vec!["disk".to_owned()], &WithheldHost { initiator: None, ..host });
        assert_eq!(nbd.steps[3], "'spindle volume readmit mail/disk --nbd'");
    }
}

//! The answer of a set-up as JSON.

use super::{SetupFiles, division::PlannedDrives, site_text::SetupSite};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::export::name_of;
use std::path::PathBuf;

#[derive(Serialize)]
pub struct SetupOutcome {
    site_file: PathBuf,
    secret_file: PathBuf,
    pub is_written: bool,
    /// A running server has made it.
    pub is_applied: bool,
    /// `None` if no test message was sent.
    pub is_test_delivered: Option<bool>,
    /// The reasons of the division.
    reasons: Vec<String>,
    pools: Vec<PoolOutcome>,
    address: String,
    initiator: String,
    user: String,
    /// `None` if nothing was written.
    pub secret: Option<String>,
    targets: Vec<String>,
    pub start_commands: Vec<String>,
    pub host_commands: Vec<String>,
    /// The site file.
    pub text: String,
}

#[derive(Serialize)]
struct PoolOutcome {
    name: &'static str,
    /// Empty if drives are files.
    devices: Vec<PathBuf>,
    folder: Option<PathBuf>,
    drives: usize,
    spares: u32,
    room_bytes: u64,
    volumes: Vec<VolumeOutcome>,
}

#[derive(Serialize)]
struct VolumeOutcome {
    name: &'static str,
    role: &'static str,
    gb: f64,
}

impl SetupOutcome {
    /// Of a set-up that has written nothing yet.
    pub fn of(site: &SetupSite, files: &SetupFiles, text: String) -> Self {
        let pools = site.division.pools.iter().map(|pool| PoolOutcome {
            name: pool.name,
            devices: match &pool.drives {
                PlannedDrives::Devices(devices) => devices.clone(),
                PlannedDrives::Files { .. } => Vec::new(),
            },
            folder: match &pool.drives {
                PlannedDrives::Devices(_) => None,
                PlannedDrives::Files { folder, .. } => Some(folder.clone()),
            },
            drives: pool.drive_count(),
            spares: pool.spares,
            room_bytes: pool.room.0,
            volumes: pool
                .volumes
                .iter()
                .map(|volume| VolumeOutcome { name: volume.name, role: volume.role, gb: volume.gb })
                .collect(),
        });
        Self {
            site_file: files.site.clone(),
            secret_file: files.secret.clone(),
            is_written: false,
            is_applied: false,
            is_test_delivered: None,
            reasons: site.division.reasons.clone(),
            pools: pools.collect(),
            address: site.address.to_string(),
            initiator: site.host.iqn.clone(),
            user: site.host.name.clone(),
            secret: None,
            targets: site.division.pools.iter().map(|pool| name_of(pool.name)).collect(),
            start_commands: Vec::new(),
            host_commands: Vec::new(),
            text,
        }
    }

    /// Prints the answer as JSON, if that is wanted.
    pub fn show(&self, console: &Console, status: ExitStatus) -> Result<ExitStatus, Refusal> {
        if console.is_for_programs() {
            console.json_of(self)?;
        }
        console.finish(status)
    }
}

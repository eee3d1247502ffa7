//! Rows of the site and jobs, changed over the API by the caller of `api_crashes`: drawn, sent, and in a model.

use crate::api_crashes::{POOLS, json};
use control::web::client::{
    ApiClient, ApiReply, ExportRow, InitiatorRow, NewExportBody, NewInitiatorBody, NewScheduleBody,
    NewTargetBody, RowChangeResult, SchedulePatchBody, ScheduleRow, TargetPatchBody, TargetRow,
};
use control::web::health_rows::JobRow;
use std::collections::BTreeMap;
use world::Random;

/// A change of a row, or of a job.
#[derive(Clone, Debug)]
pub enum RowKind {
    CreateTarget { name: String, open: bool },
    SetTarget { name: String, open: bool },
    DeleteTarget { name: String },
    CreateInitiator { name: String, uses: String },
    DeleteInitiator { name: String },
    CreateExport { name: String, volume: String },
    DeleteExport { name: String },
    CreateSchedule { name: String, keep: u32 },
    SetSchedule { name: String, keep: u32 },
    DeleteSchedule { name: String },
    BeginScrub { pool: &'static str },
    EndScrub { pool: &'static str },
}

/// The rows that there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRows {
    /// Open or not.
    targets: BTreeMap<String, bool>,
    /// Targets that it uses.
    initiators: BTreeMap<String, Vec<String>>,
    volumes: BTreeMap<String, String>,
    /// Snapshots that are kept.
    schedules: BTreeMap<String, u32>,
}

/// Beginning of the names of schedules, and of their snapshots.
pub const SCHEDULE: &str = "w";

impl RowKind {
    /// `volumes` are those that there are, as POOL/VOLUME.
    pub fn draw(random: &mut Random, volumes: &[String]) -> Self {
        let (number, keep) = (random.below(2), 1 + random.below(3) as u32);
        let target = format!("t{number}");
        let initiator = format!("iqn.x:{number}");
        let (export, schedule) = (format!("e{number}"), format!("{SCHEDULE}{number}"));
        let (open, pool) = (random.percent(70.0), POOLS[random.below(2) as usize]);
        match random.below(15) {
            0 | 1 => Self::CreateTarget { name: target, open },
            2 => Self::SetTarget { name: target, open },
            3 => Self::DeleteTarget { name: target },
            4 | 5 => Self::CreateInitiator { name: initiator, uses: target },
            6 => Self::DeleteInitiator { name: initiator },
            7 | 8 if !volumes.is_empty() => {
                let volume = volumes[random.below(volumes.len() as u64) as usize].clone();
                Self::CreateExport { name: export, volume }
            }
            7..=9 => Self::DeleteExport { name: export },
            10 => Self::CreateSchedule { name: schedule, keep },
            11 => Self::SetSchedule { name: schedule, keep },
            12 => Self::DeleteSchedule { name: schedule },
            13 => Self::BeginScrub { pool },
            _ => Self::EndScrub { pool },
        }
    }

    /// Method, path and body.
    pub fn request(&self, pools: &BTreeMap<&'static str, String>) -> (&'static str, String, Option<String>) {
        let of = |kind: &str, name: &str| format!("/v1/{kind}/{name}");
        let all = |kind: &str| format!("/v1/{kind}");
        match self.clone() {
            Self::CreateTarget { name, open } => {
                ("POST", all("targets"), json(&NewTargetBody { name, open, ..NewTargetBody::default() }))
            }
            Self::SetTarget { name, open } => {
                ("PATCH", of("targets", &name), json(&TargetPatchBody { open }))
            }
            Self::DeleteTarget { name } => ("DELETE", of("targets", &name), None),
            Self::CreateInitiator { name, uses } => {
                let body = NewInitiatorBody { name, uses: vec![uses], ..NewInitiatorBody::default() };
                ("POST", all("initiators"), json(&body))
            }
            Self::DeleteInitiator { name } => ("DELETE", of("initiators", &name), None),
            Self::CreateExport { name, volume } => {
                ("POST", all("exports"), json(&NewExportBody { name, volume, read_only: false }))
            }
            Self::DeleteExport { name } => ("DELETE", of("exports", &name), None),
            Self::CreateSchedule { name, keep } => {
                let pools = vec!["mail".to_owned()];
                let body =
                    NewScheduleBody { name, every_hours: 744.0, keep, pools, at: None, volumes: Vec::new() };
                ("POST", all("schedules"), json(&body))
            }
            Self::SetSchedule { name, keep } => {
                let body = SchedulePatchBody { keep: Some(keep), ..SchedulePatchBody::default() };
                ("PATCH", of("schedules", &name), json(&body))
            }
            Self::DeleteSchedule { name } => ("DELETE", of("schedules", &name), None),
            Self::BeginScrub { pool } => ("PUT", of("pools", &format!("{}/scrub", pools[pool])), None),
            Self::EndScrub { pool } => ("DELETE", of("pools", &format!("{}/scrub", pools[pool])), None),
        }
    }
}

impl ModelRows {
    /// Makes a change that was answered with a success.
    pub fn answered(&mut self, kind: &RowKind, reply: &ApiReply) -> Result<(), String> {
        let parsed = |error: serde_json::Error| format!("{error}: {reply:?}");
        match kind.clone() {
            RowKind::BeginScrub { .. } => {
                let row: JobRow = serde_json::from_str(&reply.body).map_err(parsed)?;
                return row.request.map(drop).ok_or_else(|| format!("nobody has asked for it: {reply:?}"));
            }
            RowKind::EndScrub { .. } => return Ok(()),
            _ => drop(serde_json::from_str::<RowChangeResult>(&reply.body).map_err(parsed)?),
        }
        match kind.clone() {
            RowKind::CreateTarget { name, open } | RowKind::SetTarget { name, open } => {
                self.targets.insert(name, open);
            }
            RowKind::DeleteTarget { name } => {
                self.targets.remove(&name);
                self.initiators.values_mut().for_each(|uses| uses.retain(|used| *used != name));
            }
            RowKind::CreateInitiator { name, uses } => drop(self.initiators.insert(name, vec![uses])),
            RowKind::DeleteInitiator { name } => drop(self.initiators.remove(&name)),
            RowKind::CreateExport { name, volume } => drop(self.volumes.insert(name, volume)),
            RowKind::DeleteExport { name } => drop(self.volumes.remove(&name)),
            RowKind::CreateSchedule { name, keep } | RowKind::SetSchedule { name, keep } => {
                self.schedules.insert(name, keep);
            }
            RowKind::DeleteSchedule { name } => drop(self.schedules.remove(&name)),
            RowKind::BeginScrub { .. } | RowKind::EndScrub { .. } => {}
        }
        Ok(())
    }

    /// Fails unless the server shows these rows.
    pub async fn check(&self, client: &ApiClient) -> Result<(), String> {
        let said = |refusal: report::Refusal| refusal.to_string();
        let targets: Vec<TargetRow> = client.get("/v1/targets").await.map_err(said)?;
        let initiators: Vec<InitiatorRow> = client.get("/v1/initiators").await.map_err(said)?;
        let exports: Vec<ExportRow> = client.get("/v1/exports").await.map_err(said)?;
        let schedules: Vec<ScheduleRow> = client.get("/v1/schedules").await.map_err(said)?;
        let found = Self {
            targets: targets.into_iter().map(|row| (row.site_name, row.open)).collect(),
            initiators: initiators.into_iter().map(|row| (row.name, row.uses)).collect(),
            volumes: exports.into_iter().map(|row| (row.name, row.volume)).collect(),
            schedules: schedules.into_iter().map(|row| (row.name, row.keep.unwrap_or_default())).collect(),
        };
        // A target that nobody may use is open to its machine.
        let is_used = |name: &String| self.initiators.values().any(|uses| uses.contains(name));
        let mut wanted = self.clone();
        wanted.targets.iter_mut().for_each(|(name, open)| *open |= !is_used(name));
        match found == wanted {
            true => Ok(()),
            false => Err(format!("the server has {found:#?}, and was asked for {wanted:#?}")),
        }
    }
}

//! Modes of DR groups as people say them, and `spindle dr set`.

use super::{
    GROUPS_PATH,
    arguments::{BehindBounds, DrModeName, DrModeSettings, OverBound},
    find, status,
};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::{
    dr::mode::{DrMode, EVERY_MS, HOLD_MS, KEEP},
    web::client::{DrGroupPatch, Method},
};
use report::Refusal;
use std::time::Duration;
use world::ByteCount;

/// The settings of a mode that were said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaidMode {
    pub failsafe: Option<bool>,
    pub settings: DrModeSettings,
}

impl SaidMode {
    /// The mode of a name: what is not said has its default.
    ///
    /// # Errors
    ///
    /// Something of another mode is said.
    pub fn mode(self, name: DrModeName) -> Result<DrMode, Refusal> {
        let Self { failsafe, settings: DrModeSettings { hold, behind, over, every, keep } } = self;
        match name {
            DrModeName::Sync | DrModeName::Periodic if behind.is_some() || over.is_some() => {
                Err(Refusal::new(
                    "⟨behind⟩ and ⟨over⟩ are of asynchronous groups",
                    "say ⟨mode⟩ async, or leave them out",
                ))
            }
            DrModeName::Sync | DrModeName::Async if every.is_some() || keep.is_some() => Err(Refusal::new(
                "⟨every⟩ and ⟨keep⟩ are of periodic groups",
                "say ⟨mode⟩ periodic, or leave them out",
            )),
            DrModeName::Sync => Ok(DrMode::Sync {
                hold_ms: hold.map_or(HOLD_MS, milliseconds),
                failsafe: failsafe.unwrap_or(false),
            }),
            DrModeName::Async | DrModeName::Periodic if hold.is_some() || failsafe.is_some() => {
                Err(Refusal::new(
                    "⟨hold⟩ and ⟨failsafe⟩ are of groups in sync",
                    "say ⟨mode⟩ sync, or leave them out",
                ))
            }
            DrModeName::Async => {
                let BehindBounds { time, size } = behind.unwrap_or(BehindBounds::DEFAULT);
                Ok(DrMode::Async {
                    behind_ms: milliseconds(time),
                    behind_bytes: size.0,
                    push_back: over == Some(OverBound::PushBack),
                })
            }
            DrModeName::Periodic => Ok(DrMode::Periodic {
                every_ms: every.map_or(EVERY_MS, milliseconds),
                keep: keep.unwrap_or(KEEP),
            }),
        }
    }

    /// The mode of a group that has one: what is not said stays, unless it goes over to another one.
    ///
    /// # Errors
    ///
    /// Something of another mode is said.
    fn changed(self, name: Option<DrModeName>, before: &DrMode) -> Result<DrMode, Refusal> {
        let mut stays = self;
        let settings = &mut stays.settings;
        let known = match *before {
            DrMode::Sync { hold_ms, failsafe } => {
                settings.hold.get_or_insert(Duration::from_millis(hold_ms));
                stays.failsafe.get_or_insert(failsafe);
                DrModeName::Sync
            }
            DrMode::Async { behind_ms, behind_bytes, push_back } => {
                let (time, size) = (Duration::from_millis(behind_ms), ByteCount(behind_bytes));
                settings.behind.get_or_insert(BehindBounds { time, size });
                settings.over.get_or_insert(if push_back { OverBound::PushBack } else { OverBound::Behind });
                DrModeName::Async
            }
            DrMode::Periodic { every_ms, keep } => {
                settings.every.get_or_insert(Duration::from_millis(every_ms));
                settings.keep.get_or_insert(keep);
                DrModeName::Periodic
            }
        };
        match name {
            Some(name) if name != known => self.mode(name),
            _ => stays.mode(known),
        }
    }
}

/// Gives a group another mode.
pub async fn set(
    server: &ServerConnection,
    group: &str,
    (name, said): (Option<DrModeName>, SaidMode),
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if name.is_none() && said == SaidMode::default() {
        let next = "say ⟨mode⟩, ⟨hold⟩, ⟨failsafe⟩, ⟨behind⟩, ⟨over⟩, ⟨every⟩ or ⟨keep⟩";
        return Err(Refusal::new("nothing is said that is to change", next));
    }
    let before = find(server, group).await?;
    let patch = DrGroupPatch { mode: said.changed(name, &before.mode)? };
    let path = format!("{GROUPS_PATH}/{}", before.group);
    let row = server.change(Method::PATCH, &path, Some(&patch)).await?.parsed()?;
    match patch.mode == before.mode {
        true => console.say(&format!("{group}: {} as before", before.mode)),
        false => console.say(&format!("{group}: {} → {}", before.mode, patch.mode)),
    }
    status::show_change(&row, console)
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays_unless_the_mode_is_another_one() {
        let before = DrMode::Async { behind_ms: 5_000, behind_bytes: 4096, push_back: true };
        let none = SaidMode::default();
        let of = |settings| SaidMode { settings, ..none };
        let over = of(DrModeSettings { over: Some(OverBound::Behind), ..DrModeSettings::default() });
        let changed = DrMode::Async { behind_ms: 5_000, behind_bytes: 4096, push_back: false };
        assert_eq!(over.changed(None, &before).unwrap(), changed);
        assert_eq!(none.changed(Some(DrModeName::Async), &before).unwrap(), before);
        let hold = of(DrModeSettings { hold: Some(Duration::from_secs(3)), ..DrModeSettings::default() });
        assert!(hold.changed(None, &before).is_err(), "it is not in sync");
        let sync = DrMode::Sync { hold_ms: 3_000, failsafe: false };
        assert_eq!(hold.changed(Some(DrModeName::Sync), &before).unwrap(), sync);
        let failsafe = SaidMode { failsafe: Some(true), ..none };
        assert_eq!(failsafe.changed(None, &sync).unwrap(), DrMode::Sync { hold_ms: 3_000, failsafe: true });
        let keep = of(DrModeSettings { keep: Some(2), ..DrModeSettings::default() });
        let periodic = DrMode::Periodic { every_ms: 60_000, keep: 9 };
        assert_eq!(keep.changed(None, &periodic).unwrap(), DrMode::Periodic { every_ms: 60_000, keep: 2 });
        assert_eq!(
            none.changed(Some(DrModeName::Periodic), &sync).unwrap(),
            DrMode::Periodic { every_ms: EVERY_MS, keep: KEEP }
        );
    }
}

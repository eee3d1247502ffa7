//! The mode of a DR group in forms: one of three, and the settings of each.

use crate::fields::Fields;
use control::{
    dr::mode::{BEHIND_BYTES, BEHIND_MS, DrMode, EVERY_MS, HOLD_MS, KEEP},
    web::ApiProblem,
};

const SECOND_MS: f64 = 1_000.0;
const MINUTE_MS: f64 = 60_000.0;
const MIB: f64 = 1_048_576.0;

/// A mode as a form shows it: what was typed, or what the group has, or what is usual.
pub(crate) struct ModeFields<'a> {
    sent: &'a Fields,
    now: Option<DrMode>,
}

impl<'a> ModeFields<'a> {
    pub fn new(sent: &'a Fields, now: Option<&DrMode>) -> Self {
        Self { sent, now: now.cloned() }
    }

    pub fn is(&self, kind: &str) -> bool {
        let known = match self.now {
            None | Some(DrMode::Sync { .. }) => "sync",
            Some(DrMode::Async { .. }) => "async",
            Some(DrMode::Periodic { .. }) => "periodic",
        };
        self.sent.text_or("mode", known) == kind
    }

    pub fn hold_s(&self) -> String {
        let hold_ms = match self.now {
            Some(DrMode::Sync { hold_ms, .. }) => hold_ms,
            _ => HOLD_MS,
        };
        self.number("hold_s", hold_ms as f64 / SECOND_MS)
    }

    pub fn behind_s(&self) -> String {
        let behind_ms = match self.now {
            Some(DrMode::Async { behind_ms, .. }) => behind_ms,
            _ => BEHIND_MS,
        };
        self.number("behind_s", behind_ms as f64 / SECOND_MS)
    }

    pub fn behind_mib(&self) -> String {
        let behind_bytes = match self.now {
            Some(DrMode::Async { behind_bytes, .. }) => behind_bytes,
            _ => BEHIND_BYTES,
        };
        self.number("behind_mib", behind_bytes as f64 / MIB)
    }

    pub fn every_min(&self) -> String {
        let every_ms = match self.now {
            Some(DrMode::Periodic { every_ms, .. }) => every_ms,
            _ => EVERY_MS,
        };
        self.number("every_min", every_ms as f64 / MINUTE_MS)
    }

    pub fn keep(&self) -> String {
        let keep = match self.now {
            Some(DrMode::Periodic { keep, .. }) => keep,
            _ => KEEP,
        };
        self.number("keep", keep.into())
    }

    pub fn is_failsafe(&self) -> bool {
        self.is_checked("failsafe", matches!(self.now, Some(DrMode::Sync { failsafe: true, .. })))
    }

    pub fn pushes_back(&self) -> bool {
        self.is_checked("push_back", matches!(self.now, Some(DrMode::Async { push_back: true, .. })))
    }

    fn number(&self, name: &str, usual: f64) -> String {
        self.sent.text_or(name, &usual.to_string()).to_owned()
    }

    /// A form that was sent has its mode, whatever is checked.
    fn is_checked(&self, name: &str, usual: bool) -> bool {
        if self.sent.text("mode").is_empty() { usual } else { self.sent.is_checked(name) }
    }
}

/// The mode that a form says.
///
/// # Errors
///
/// A number is none, or no mode is chosen. The API looks at bounds.
pub(crate) fn mode_of(fields: &Fields) -> Result<DrMode, ApiProblem> {
    let rounded =
        |name: &str, unit: f64| Ok::<u64, ApiProblem>((fields.number::<f64>(name)? * unit).round() as u64);
    Ok(match fields.text("mode") {
        "sync" => {
            DrMode::Sync { hold_ms: rounded("hold_s", SECOND_MS)?, failsafe: fields.is_checked("failsafe") }
        }
        "async" => DrMode::Async {
            behind_ms: rounded("behind_s", SECOND_MS)?,
            behind_bytes: rounded("behind_mib", MIB)?,
            push_back: fields.is_checked("push_back"),
        },
        "periodic" => {
            DrMode::Periodic { every_ms: rounded("every_min", MINUTE_MS)?, keep: fields.number("keep")? }
        }
        other => {
            let problem = format!("{other:?} is no mode of a DR group");
            return Err(ApiProblem::bad_request(problem, "choose sync, async or periodic"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_sent_as_it_is_shown() {
        for mode in [
            DrMode::Sync { hold_ms: 2_500, failsafe: true },
            DrMode::Async { behind_ms: 30_000, behind_bytes: 256 << 20, push_back: true },
            DrMode::Periodic { every_ms: 90_000, keep: 9 },
        ] {
            let none = Fields::default();
            let shown = ModeFields::new(&none, Some(&mode));
            let kind = ["sync", "async", "periodic"].into_iter().find(|kind| shown.is(kind)).unwrap();
            let checked = |is: bool| if is { "on" } else { "" };
            let sent = Fields::of(&[
                ("mode", kind),
                ("hold_s", &shown.hold_s()),
                ("failsafe", checked(shown.is_failsafe())),
                ("behind_s", &shown.behind_s()),
                ("behind_mib", &shown.behind_mib()),
                ("push_back", checked(shown.pushes_back())),
                ("every_min", &shown.every_min()),
                ("keep", &shown.keep()),
            ]);
            assert_eq!(mode_of(&sent).unwrap(), mode);
        }
        for wrong in [&[][..], &[("mode", "fast")], &[("mode", "sync"), ("hold_s", "long")]] {
            assert!(mode_of(&Fields::of(wrong)).is_err(), "{wrong:?}");
        }
    }
}

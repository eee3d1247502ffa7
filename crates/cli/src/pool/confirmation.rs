//! Confirmation of verbs that destroy something: by its name, typed on the terminal or given with `--yes`.

use super::{
    arguments::VolumeVerb,
    volume_access::{EndangeredVolume, VolumeAccess},
};
use crate::console::Console;
use report::Refusal;
use serving::pool::{folder::VolumePath, volume_change::VolumeRef};
use std::path::Path;

/// A name that a person types, or gives with `--yes`, before something is done.
pub struct NameConfirmation<'a> {
    /// The question on the terminal, without the name.
    pub question: &'a str,
    pub name: &'a str,
    /// The end of the refusal of another name: `"x" is not …`.
    pub meant: &'a str,
    /// The problem without a name.
    pub unnamed: &'a str,
}

impl NameConfirmation<'_> {
    /// Fails unless `yes`, or the answer on the terminal, is the name.
    ///
    /// # Errors
    ///
    /// Another name, or none. Nothing was done.
    pub fn ask(&self, console: &Console, yes: Option<&str>) -> Result<(), Refusal> {
        let Self { question, name, meant, unnamed } = self;
        let typed =
            yes.map(str::to_owned).or_else(|| console.ask(&format!("{question}\nType {name} to go on: ")));
        let remedy = format!("say --yes {name}");
        match typed {
            Some(typed) if typed == *name => Ok(()),
            Some(typed) => Err(Refusal::new(format!("{typed:?} is not {meant}"), remedy)),
            None => Err(Refusal::new(*unnamed, remedy)),
        }
    }
}

/// The destruction of something.
pub struct Destruction {
    /// Old → new, who is connected, and what undoes it, in a line.
    pub line: String,
    /// The name that confirms it.
    pub name: String,
}

impl Destruction {
    /// Fails unless `yes`, or the answer on the terminal, is the name.
    ///
    /// # Errors
    ///
    /// Another name, or none. Nothing was done.
    pub fn confirm(&self, console: &Console, yes: Option<&str>) -> Result<(), Refusal> {
        let Self { line, name } = self;
        let confirmation = NameConfirmation {
            question: line,
            name,
            meant: &format!("{name}, and nothing was done"),
            unnamed: &format!("{line}: the name confirms that"),
        };
        confirmation.ask(console, yes)
    }

    /// Shows a destruction that was done to those who were not asked on a terminal.
    pub fn tell_done(&self, console: &Console, yes: Option<&str>) {
        if yes.is_some() {
            console.say_progress(&self.line);
        }
    }

    /// The destruction by a verb of a volume; `None` if it destroys nothing, or is refused anyway.
    ///
    /// # Errors
    ///
    /// The pool does not answer.
    pub async fn by_verb(
        verb: &VolumeVerb,
        (path, wanted): (&Path, &VolumePath),
        access: &VolumeAccess,
    ) -> Result<Option<Self>, Refusal> {
        if !matches!(verb, VolumeVerb::Delete { .. } | VolumeVerb::Resize { shrink: true, .. }) {
            return Ok(None);
        }
        let volume = VolumeRef::from(wanted.volume.as_str());
        let Some(facts) = access.facts(&volume, wanted.snapshot.as_deref()).await? else { return Ok(None) };
        let EndangeredVolume { size, is_needed, uses, .. } = &facts;
        let shown = path.display();
        Ok(match (verb, &wanted.snapshot) {
            (VolumeVerb::Resize { size: new, .. }, _) if new < size => Some(Self {
                line: format!(
                    "{shown}: {size} → {new}{uses}; what lies behind is lost, and nothing brings it back"
                ),
                name: wanted.volume.clone(),
            }),
            (VolumeVerb::Delete { .. }, Some(snapshot)) => Some(Self {
                line: format!("{shown}: a snapshot of {size} → deleted; nothing brings it back"),
                name: snapshot.clone(),
            }),
            (VolumeVerb::Delete { .. }, None) if !is_needed => Some(Self {
                line: format!("{shown}: {size} → deleted; nothing brings it back"),
                name: wanted.volume.clone(),
            }),
            _ => None,
        })
    }
}

//! Settings of hooks, and their refusals.

use super::HookPhase;
use crate::backup::Consistency;
use std::time::Duration;
use thiserror::Error;

/// Time of a step unless people choose another.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time of a step. A thaw waits for a freeze hook that hangs (2 s from SIGTERM to SIGKILL), takes this long
/// itself, and 2 s more if it hangs: together less than the 20 s after which nobody waits for it.
const TIMEOUT_MAX: Duration = Duration::from_secs(15);
/// Time of the preparation, while work goes on. Less than the 60 s after which nobody waits for it.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(55);

/// A program and its arguments. No shell reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    program: String,
    arguments: Vec<String>,
}

impl HookCommand {
    /// The command with these words; the first is the program's path.
    ///
    /// # Errors
    /// There is no word, the path is not absolute, or a word holds a zero byte.
    pub fn new(words: &[String]) -> Result<Self, HookRefusal> {
        let (program, arguments) = words.split_first().ok_or(HookRefusal::Empty)?;
        if !program.starts_with('/') {
            return Err(HookRefusal::RelativePath(program.clone()));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(HookRefusal::ZeroByte(program.replace('\0', "\\0")));
        }
        Ok(Self { program: program.clone(), arguments: arguments.to_vec() })
    }

    pub fn program(&self) -> &str {
        &self.program
    }

    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }
}

/// The hooks of a set. Freeze and thaw are needed, since only a thaw hook knows whether the freeze was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSettings {
    pub prepare: Option<HookCommand>,
    pub freeze: HookCommand,
    pub thaw: HookCommand,
    pub after: Option<HookCommand>,
    /// User of the hooks; `None`: that of this process.
    pub user: Option<String>,
    /// The worth of a cut unless the hooks say less.
    pub consistency: Consistency,
    timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HookRefusal {
    #[error("a hook without a program: name the program's path, then its arguments")]
    Empty,
    #[error("the hook {0:?} is no absolute path: name it from / on, so that PATH does not matter")]
    RelativePath(String),
    #[error("the hook {0:?} has a zero byte in a word: programs cannot be given one")]
    ZeroByte(String),
    #[error("a timeout of {} ms for hooks is impossible; it must be 1 ms to {} s", .0.as_millis(), TIMEOUT_MAX.as_secs())]
    Timeout(Duration),
}

impl HookSettings {
    /// Hooks of freeze and thaw alone, with 8 s each, as this process's user, for *application* cuts.
    pub fn new(freeze: HookCommand, thaw: HookCommand) -> Self {
        let (prepare, after, user) = (None, None, None);
        let (consistency, timeout) = (Consistency::Application, TIMEOUT);
        Self { prepare, freeze, thaw, after, user, consistency, timeout }
    }

    /// The same hooks with another time for each step, repetitions included. Preparation keeps its 55 s.
    ///
    /// # Errors
    /// The time is zero or more than 15 s.
    pub fn with_timeout(self, timeout: Duration) -> Result<Self, HookRefusal> {
        if timeout < Duration::from_millis(1) || timeout > TIMEOUT_MAX {
            return Err(HookRefusal::Timeout(timeout));
        }
        Ok(Self { timeout, ..self })
    }

    /// Time of a step, repetitions included.
    pub fn timeout(&self, phase: HookPhase) -> Duration {
        if phase == HookPhase::Prepare { PREPARE_TIMEOUT } else { self.timeout }
    }

    pub fn command(&self, phase: HookPhase) -> Option<&HookCommand> {
        match phase {
            HookPhase::Prepare => self.prepare.as_ref(),
            HookPhase::Freeze => Some(&self.freeze),
            HookPhase::Thaw => Some(&self.thaw),
            HookPhase::After => self.after.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Result<HookCommand, HookRefusal> {
        HookCommand::new(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn impossible_hooks_are_refused_in_one_line() {
        let check = |words: &[&str], refusal: &str| {
            assert_eq!(command(words).expect_err("impossible").to_string(), refusal);
        };
        check(&[], "a hook without a program: name the program's path, then its arguments");
        check(
            &["quiet", "now"],
            "the hook \"quiet\" is no absolute path: name it from / on, so that PATH does not matter",
        );
        check(
            &["/bin/quiet", "\0"],
            "the hook \"/bin/quiet\" has a zero byte in a word: programs cannot be given one",
        );
        let hook = command(&["/bin/quiet", "a b"]).expect("possible");
        assert_eq!((hook.program(), hook.arguments()), ("/bin/quiet", &["a b".to_owned()][..]));
        let settings = HookSettings::new(hook.clone(), hook);
        let refusal = settings.clone().with_timeout(Duration::from_secs(16)).expect_err("too long");
        let line = "a timeout of 16000 ms for hooks is impossible; it must be 1 ms to 15 s";
        assert_eq!(refusal.to_string(), line);
        let settings = settings.with_timeout(Duration::from_secs(3)).expect("possible");
        assert_eq!(settings.timeout(HookPhase::Freeze), Duration::from_secs(3));
        assert_eq!(settings.timeout(HookPhase::Prepare), Duration::from_secs(55));
    }
}

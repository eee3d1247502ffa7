//! Programs of the mail host around a restore: one that ends the mail server, unmounts and disconnects, and one that undoes that.
//!
//! The second runs once, also if the restore was refused or the first one failed; but not over volumes of which only some were
//! taken back.

use super::volumes::EarlyEnd;
use crate::console::Console;
use clap::Args;
use control::sets::{RestoreHooks, wanted_sets};
use plan::site::{Site, SiteIndex};
use protect::backup::hooks::HookCommand;
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::{
    program::{ProgramCall, ProgramEnd, ProgramResult, Programs},
    real::{RealPrograms, host_files},
};

/// Time between SIGTERM and SIGKILL for a hook that does not end.
const GRACE: Duration = Duration::from_secs(2);

/// Options of verbs that put other databases into the places of a set's.
#[derive(Clone, Debug, Args)]
pub struct PlaceArguments {
    /// Show what would be done, and who uses the volumes
    #[arg(long)]
    pub dry_run: bool,

    /// Run the hooks that this site file has under [protect.restore], on this host: before, to end the mail server and
    /// disconnect, and after, to connect and start it
    #[arg(long, value_name = "SITE.TOML")]
    pub hooks: Option<PathBuf>,
}

/// The hooks of one restore.
pub struct HostHooks<'h> {
    set: &'h str,
    backup: &'h str,
    hooks: RestoreHooks,
    console: &'h Console,
}

impl<'h> HostHooks<'h> {
    /// The hooks that a site file has for the set.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has no hooks for it.
    fn of_site(
        site: &Path,
        (set, backup): (&'h str, &'h str),
        console: &'h Console,
    ) -> Result<Self, Refusal> {
        let refused = |problem: String| Refusal::new(format!("{}: {problem}", site.display()), "");
        let text = host_files::read_to_string(site).map_err(|error| Refusal::new(error.to_string(), ""))?;
        let parsed = Site::from_toml(&text).map_err(|error| refused(error.to_string()))?;
        let sets = wanted_sets(&SiteIndex::of(&parsed))?;
        let known = sets.into_iter().find(|known| known.settings.name == set);
        let hooks = known.ok_or_else(|| refused(format!("there is no set {set:?}")))?.restore;
        if hooks.before.is_none() && hooks.after.is_none() {
            return Err(refused(format!("the set {set:?} has no hooks under [protect.restore]")));
        }
        Ok(Self { set, backup, hooks, console })
    }

    /// Does the work of a restore between the hooks of a site file, if one is named. The second hook runs also if the first or the
    /// work failed, but not over a restore that is half done.
    ///
    /// # Errors
    ///
    /// The first hook failed, or the work did.
    pub async fn around<T>(
        site: Option<&Path>,
        named: (&'h str, &'h str),
        console: &'h Console,
        work: impl AsyncFnOnce() -> Result<T, EarlyEnd>,
    ) -> Result<T, EarlyEnd> {
        let hooks = site.map(|site| Self::of_site(site, named, console)).transpose()?;
        let Some(hooks) = hooks else { return Box::pin(work()).await };
        let done = async {
            hooks.before().await?;
            Box::pin(work()).await
        };
        let done = done.await;
        match done.as_ref().is_err_and(|early| early.has_changed) {
            false => hooks.after().await,
            true => console.warn("the hook after was not run: the restore is half done"),
        }
        done
    }

    /// Runs the hook before the restore.
    ///
    /// # Errors
    ///
    /// It failed: nothing may be restored.
    async fn before(&self) -> Result<(), Refusal> {
        self.run("restore-before", self.hooks.before.as_ref()).await
    }

    /// Runs the hook after the restore. A failure is said: the restore stands.
    async fn after(&self) {
        if let Err(refusal) = self.run("restore-after", self.hooks.after.as_ref()).await {
            self.console.warn(&format!("{refusal}: connect, mount and start by hand"));
        }
    }

    async fn run(&self, phase: &str, hook: Option<&HookCommand>) -> Result<(), Refusal> {
        let Some(hook) = hook else { return Ok(()) };
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let deadline_ms = self.hooks.timeout.as_millis().to_string();
        let call = ProgramCall {
            program: hook.program().to_owned(),
            arguments: hook.arguments().to_vec(),
            environment: vec![
                variable("SPINDLE_SET", self.set),
                variable("SPINDLE_POINT", self.backup),
                variable("SPINDLE_PHASE", phase),
                variable("SPINDLE_DEADLINE_MS", &deadline_ms),
            ],
            time_limit: self.hooks.timeout,
            grace: GRACE,
            user: None,
        };
        self.console.say_progress(&format!("{phase}: {}", hook.program()));
        let refused = |problem: String| Refusal::new(format!("{phase}: {}: {problem}", hook.program()), "");
        let ended = RealPrograms::default().run(call).await.map_err(|error| refused(error.to_string()))?;
        match problem_of(&ended) {
            None => Ok(()),
            Some(problem) => Err(refused(problem)),
        }
    }
}

fn problem_of(ended: &ProgramResult) -> Option<String> {
    let problem = match ended.end {
        ProgramEnd::Exited(0) => return None,
        ProgramEnd::Exited(code) => format!("it exited with {code}"),
        ProgramEnd::Signalled(signal) => format!("signal {signal} ended it"),
        ProgramEnd::TimedOut => "it had not ended in its time".to_owned(),
    };
    let output = String::from_utf8_lossy(&ended.output.bytes).into_owned();
    let last = output.lines().rev().find(|line| !line.trim().is_empty());
    Some(match last {
        Some(last) => format!("{problem}: {last}"),
        None => problem,
    })
}

//! One step of a hook: its program, started again while it says *not now*.

use super::{HookPhase, HookSettings, HookStatement};
use crate::planted::{self, BackupBug};
use std::{fmt::Write, time::Duration};
use world::{IoResult, Moment, ProgramCall, ProgramEnd, ProgramResult, Programs, World};

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// First pause before a hook is started again; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Characters of a hook's last line in a message.
const LINE_CHARS_MAX: usize = 200;

/// *Not now*: EX_TEMPFAIL of sysexits.h.
pub const EXIT_NOT_NOW: i32 = 75;
/// *It was no longer frozen*, from a thaw hook.
pub const EXIT_NOT_FROZEN: i32 = 3;

/// The record of a step, for the catalogue and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRun {
    pub phase: HookPhase,
    pub program: String,
    /// Starts of the program; more than one if it said *not now*.
    pub attempts: u32,
    /// Time from the first start to the last end.
    pub span: Duration,
    pub end: HookEnd,
    /// Output of the last start, at most 64 KiB.
    pub output: String,
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEnd {
    /// It exited with 0, and said so much about the cut.
    Done(Option<HookStatement>),
    /// A thaw hook found it no longer frozen.
    NotFrozen,
    /// The reason in words that follow the program's name.
    Failed(String),
}

/// The surroundings of a step.
pub(super) struct HookStep<'s> {
    pub world: &'s World,
    pub programs: &'s dyn Programs,
    pub settings: &'s HookSettings,
    pub phase: HookPhase,
    pub set: &'s str,
    pub point: &'s str,
    /// The end of the freeze; of other phases, nothing.
    pub freeze_deadline: Option<Moment>,
}

impl HookStep<'_> {
    /// Runs the step to its end. `None` if the set has no hook for this phase.
    pub async fn run(self, is_wanted: impl Fn() -> bool) -> Option<HookRun> {
        let command = self.settings.command(self.phase)?;
        let began = self.world.now();
        let until = began + self.settings.timeout(self.phase);
        let until = self.freeze_deadline.map_or(until, |deadline| until.min(deadline));
        let (mut attempts, mut pause, mut output) = (0, PAUSE_MIN, String::new());
        let end = loop {
            let left = until.since(self.world.now());
            if left.is_zero() {
                break HookEnd::Failed("had no time left to be started".to_owned());
            }
            attempts += 1;
            let result = self.programs.run(self.call(left, until)).await;
            if let Ok(result) = &result {
                output = String::from_utf8_lossy(&result.output.bytes).into_owned();
            }
            let is_not_now = matches!(&result, Ok(result) if result.end == ProgramEnd::Exited(EXIT_NOT_NOW));
            if !is_not_now || planted::is(BackupBug::NotNowIsDone) {
                break self.judge(result, left);
            }
            if self.world.now() + pause >= until || !is_wanted() {
                let times = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
                let story = format!("said {times} that it could not now{}", last_line(&output));
                break HookEnd::Failed(story);
            }
            self.world.sleep(pause).await;
            let factor = if planted::is(BackupBug::PauseNotGrown) { 1 } else { 2 };
            pause = (pause * factor).min(PAUSE_MAX);
        };
        let program = command.program().to_owned();
        let span = self.world.now().since(began);
        Some(HookRun { phase: self.phase, program, attempts, span, end, output })
    }

    fn call(&self, left: Duration, until: Moment) -> ProgramCall {
        let command = self.settings.command(self.phase).expect("run has looked");
        // A freeze hook learns when its application must thaw; the others, how long they may take.
        let deadline = self.freeze_deadline.unwrap_or(until).since(self.world.now());
        let variables = [
            ("SPINDLE_SET", self.set.to_owned()),
            ("SPINDLE_POINT", self.point.to_owned()),
            ("SPINDLE_PHASE", self.phase.to_string()),
            ("SPINDLE_DEADLINE_MS", deadline.as_millis().to_string()),
        ];
        ProgramCall {
            program: command.program().to_owned(),
            arguments: command.arguments().to_vec(),
            environment: variables.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            time_limit: left,
            grace: GRACE,
            user: self.settings.user.clone(),
        }
    }

    fn judge(&self, result: IoResult<ProgramResult>, limit: Duration) -> HookEnd {
        let result = match result {
            Ok(result) => result,
            Err(error) => return HookEnd::Failed(format!("was not started ({error})")),
        };
        let output = String::from_utf8_lossy(&result.output.bytes);
        let mut story = match result.end {
            ProgramEnd::Exited(0) => {
                return HookStatement::of_output(&result.output).map_or_else(
                    |problem| HookEnd::Failed(format!("is not understood: {problem}")),
                    HookEnd::Done,
                );
            }
            ProgramEnd::Exited(EXIT_NOT_NOW) if planted::is(BackupBug::NotNowIsDone) => {
                return HookEnd::Done(None);
            }
            ProgramEnd::Exited(EXIT_NOT_FROZEN) if self.phase == HookPhase::Thaw => {
                return HookEnd::NotFrozen;
            }
            ProgramEnd::Exited(code) => format!("exited with {code}"),
            ProgramEnd::Signalled(signal) => format!("was ended by signal {signal}"),
            ProgramEnd::TimedOut => {
                format!("did not end within {} ms and was ended", limit.as_micros().div_ceil(1000))
            }
        };
        story.write_str(&last_line(&output)).expect("a text takes all");
        HookEnd::Failed(story)
    }
}

/// `: ` and the last line that says something, or nothing.
fn last_line(output: &str) -> String {
    let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| {
        format!(": {}", line.chars().take(LINE_CHARS_MAX).collect::<String>())
    })
}

//! `spindle pool salvage`.

use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serving::pool::{
    damaged::open_as,
    salvage::{Salvage, SalvageAnswer, SalvageObserver},
};
use std::{
    cell::{Cell, RefCell},
    path::Path,
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Cancellation, Job, Moment, World, real::signals::interrupted};

/// Interval of progress updates.
const GLANCE: Duration = Duration::from_millis(200);
/// Ranges that are printed; the map has all.
const RANGES_SHOWN: usize = 8;

/// Copies `path`, a volume or a snapshot, to `out`.
pub async fn salvage(world: &World, path: &Path, out: &Path, json: bool) -> Result<ExitStatus, Refusal> {
    let salvage = Salvage::open(world, path, out).await?;
    let console = Console::new(json, false);
    let condition = salvage.condition();
    if !condition.is_whole() {
        console.say(&format!("{}: not whole", salvage.folder().display()));
        open_as(condition).iter().for_each(|line| console.say(&format!("  {line}")));
    }
    let progress = SalvageProgress::begin(world, &console);
    let answer = salvage.copy(world, &progress).await;
    progress.end().await;
    tell(&console, &answer?, json)
}

fn tell(console: &Console, answer: &SalvageAnswer<'_>, json: bool) -> Result<ExitStatus, Refusal> {
    let SalvageAnswer { path, out, map, unreadable, .. } = answer;
    if json {
        console.json_of(answer)?;
    }
    let out = out.display();
    console.say(&format!(
        "{out}: {}, of which {} were copied from {}",
        ByteCount(answer.size_bytes),
        ByteCount(answer.copied_bytes),
        path.display()
    ));
    if answer.unreadable_bytes > 0 {
        let ranges = unreadable.iter().take(RANGES_SHOWN).map(|(at, length)| format!("{length} at {at}"));
        let mut ranges: Vec<_> = ranges.collect();
        if unreadable.len() > ranges.len() {
            ranges.push(format!("and {} more ranges", unreadable.len() - ranges.len()));
        }
        console.say(&format!(
            "  {} could not be read and are zero there: bytes {}; {} names all",
            ByteCount(answer.unreadable_bytes),
            ranges.join(", "),
            map.display()
        ));
    }
    if answer.may_be_older {
        console.say("  the last acknowledged writes may be missing here");
    }
    if answer.not_tried_bytes > 0 {
        let rest = ByteCount(answer.not_tried_bytes);
        return Err(Refusal::new(
            format!(
                "ended early: {rest} of {} were not copied, which {} names",
                path.display(),
                map.display()
            ),
            "remove both files and begin again",
        ));
    }
    let is_whole = answer.unreadable_bytes == 0 && !answer.may_be_older;
    if is_whole {
        console.say("  all of it could be read");
    }
    console.finish(if is_whole { ExitStatus::Pass } else { ExitStatus::Fail })
}

/// A phase of the copy.
struct SalvagePhase {
    name: &'static str,
    job: Job,
    began: Moment,
}

/// Progress display, and what ends the copy early.
struct SalvageProgress {
    world: World,
    phase: Rc<RefCell<Option<SalvagePhase>>>,
    is_over: Rc<Cell<bool>>,
    cancellation: Cancellation,
    drawing: world::JoinHandle<()>,
}

impl SalvageProgress {
    fn begin(world: &World, console: &Console) -> Self {
        let (cancellation, ended, said) = (Cancellation::default(), interrupted(), console.clone());
        let interrupting = cancellation.clone();
        world.spawn("interrupted", async move {
            ended.await;
            said.say_progress("ending; Ctrl-C again ends it at once");
            interrupting.cancel();
        });
        let (is_over, phase) = (Rc::<Cell<bool>>::default(), Rc::<RefCell<Option<_>>>::default());
        let mut view = ProgressView::new(console);
        let began = world.now();
        let (over, looked, shown) = (Rc::clone(&is_over), world.clone(), Rc::clone(&phase));
        let drawing = world.spawn("progress", async move {
            while !over.get() {
                let status = shown.borrow().as_ref().map(|phase| status_of(phase, looked.now()));
                view.tell(looked.now().since(began), status.as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
            view.tell(looked.now().since(began), None, &[]);
        });
        Self { world: world.clone(), phase, is_over, cancellation, drawing }
    }

    async fn end(self) {
        self.is_over.set(true);
        self.drawing.await;
    }
}

impl SalvageObserver for SalvageProgress {
    fn at(&self, name: &'static str, done: u64, all: u64) {
        let mut phase = self.phase.borrow_mut();
        if phase.as_ref().is_none_or(|known| known.name != name) {
            *phase = Some(SalvagePhase { name, job: Job::under_way(&self.world), began: self.world.now() });
        }
        phase.iter().for_each(|phase| phase.job.reach(done, all));
    }

    fn is_interrupted(&self) -> bool {
        self.cancellation.is_cancelled()
    }
}

fn status_of(phase: &SalvagePhase, now: Moment) -> ProgressStatus {
    ProgressStatus::of_job(phase.name, &phase.job.progress(), now.since(phase.began))
}

//! `spindle pool salvage`.

use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serving::pool::{
    damaged::open_as,
    salvage::{Salvage, SalvageAnswer, SalvageObserver},
};
use std::{cell::Cell, path::Path, rc::Rc, time::Duration};
use world::{ByteCount, Moment, World, real::signals::interrupted};

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

/// Bytes done of a phase, and its time.
#[derive(Clone, Copy)]
struct PhaseProgress {
    phase: &'static str,
    done: u64,
    all: u64,
    elapsed: Duration,
}

/// Progress display, and the flag that ends the copy early.
struct SalvageProgress {
    world: World,
    began: Cell<Moment>,
    progress: Rc<Cell<Option<PhaseProgress>>>,
    is_over: Rc<Cell<bool>>,
    is_interrupted: Rc<Cell<bool>>,
    drawing: world::JoinHandle<()>,
}

impl SalvageProgress {
    fn begin(world: &World, console: &Console) -> Self {
        let (is_interrupted, ended, said) = (Rc::<Cell<bool>>::default(), interrupted(), console.clone());
        let interrupting = Rc::clone(&is_interrupted);
        world.spawn("interrupted", async move {
            ended.await;
            said.say_progress("ending; Ctrl-C again ends it at once");
            interrupting.set(true);
        });
        let (is_over, progress) = (Rc::<Cell<bool>>::default(), Rc::<Cell<Option<_>>>::default());
        let mut view = ProgressView::new(console);
        let began = world.now();
        let (over, looked, shown) = (Rc::clone(&is_over), world.clone(), Rc::clone(&progress));
        let drawing = world.spawn("progress", async move {
            while !over.get() {
                let status = shown.get().map(status_of);
                view.tell(looked.now().since(began), status.as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
            view.tell(looked.now().since(began), None, &[]);
        });
        Self { world: world.clone(), began: Cell::new(began), progress, is_over, is_interrupted, drawing }
    }

    async fn end(self) {
        self.is_over.set(true);
        self.drawing.await;
    }
}

impl SalvageObserver for SalvageProgress {
    fn at(&self, phase: &'static str, done: u64, all: u64) {
        if self.progress.get().is_none_or(|known| known.phase != phase) {
            self.began.set(self.world.now());
        }
        let elapsed = self.world.now().since(self.began.get());
        self.progress.set(Some(PhaseProgress { phase, done, all, elapsed }));
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }
}

fn status_of(progress: PhaseProgress) -> ProgressStatus {
    ProgressStatus::of_bytes(progress.phase, progress.done, progress.all, progress.elapsed)
}

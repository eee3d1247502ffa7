//! A file with the times of the server thread's steps, a line of JSON a second.
//!
//! If a line cannot be written, a warning is printed, and the server goes on without the file.

use crate::notices::Notices;
use report::Refusal;
use serde::Serialize;
use std::{
    cell::Cell,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use world::{
    IoErrorKind, Moment, World,
    real::{AppendFile, Engine, LONG_STEP, StepTimes, Workers, host_files},
};

const INTERVAL: Duration = Duration::from_secs(1);

/// A file of step times, and the thread that writes it.
pub struct StepTimesFile {
    world: World,
    notices: Rc<dyn Notices>,
    path: PathBuf,
    file: Arc<Mutex<AppendFile>>,
    writer: Workers,
    /// Time of the latest line; `None` before the first span.
    last: Cell<Option<Moment>>,
    has_failed: Cell<bool>,
}

/// A span of time.
#[derive(Serialize)]
struct StepTimesLine {
    /// Its end, in seconds since 1970.
    at: f64,
    seconds: f64,
    steps: u64,
    p999_us: f64,
    longest_us: f64,
    /// A longer step is long.
    limit_us: f64,
    long: u64,
    tasks: Vec<TaskLine>,
}

/// Long steps of the tasks of one name.
#[derive(Serialize)]
struct TaskLine {
    task: &'static str,
    long: u64,
    longest_us: f64,
    /// Those that used more processor time than the limit.
    processor_long: u64,
    processor_longest_us: f64,
}

impl StepTimesFile {
    /// Makes the file, which is removed again if it is dropped before [`StepTimesFile::begin`].
    ///
    /// # Errors
    ///
    /// It exists, or cannot be made.
    pub fn create(path: &Path, world: &World, notices: &Rc<dyn Notices>) -> Result<Rc<Self>, Refusal> {
        let file = AppendFile::create(path).map_err(|error| {
            let remedy = match error.kind() {
                IoErrorKind::AlreadyExists => "give ⟨step-times⟩ the name of a new file",
                _ => "give ⟨step-times⟩ another name",
            };
            Refusal::new(error.to_string(), remedy)
        })?;
        Ok(Rc::new(Self {
            world: world.clone(),
            notices: Rc::clone(notices),
            path: path.to_owned(),
            file: Arc::new(Mutex::new(file)),
            writer: Workers::new(NonZeroUsize::MIN),
            last: Cell::new(None),
            has_failed: Cell::new(false),
        }))
    }

    /// Begins now, without the steps before.
    pub fn begin(self: &Rc<Self>) {
        drop(Engine::current().take_step_times());
        self.last.set(Some(self.world.now()));
        let file = Rc::clone(self);
        self.world.spawn("step times", async move {
            loop {
                file.world.sleep(INTERVAL).await;
                file.write_line().await;
            }
        });
    }

    /// Writes the times since the latest line.
    pub async fn write_line(&self) {
        let now = self.world.now();
        let last = self.last.replace(Some(now)).expect("lines are written after the beginning");
        let span = now.since(last);
        let times = Engine::current().take_step_times().expect("the caller's world times its steps");
        let wall = self.world.wall();
        let at = wall.seconds as f64 + f64::from(wall.nanos) / 1e9;
        let line = StepTimesLine::new(at, span, &times);
        let text = serde_json::to_string(&line).expect("plain fields") + "\n";
        let file = Arc::clone(&self.file);
        let append = move || {
            // No holder of this lock panics.
            file.lock().unwrap_or_else(PoisonError::into_inner).append(text.as_bytes())
        };
        if let Err(error) = self.writer.run(append).await
            && !self.has_failed.replace(true)
        {
            self.notices.warn(&format!("step times are missing: {error}"));
        }
    }
}

impl Drop for StepTimesFile {
    fn drop(&mut self) {
        if self.last.get().is_none() {
            // The refusal that ends the program is the news.
            let _ = host_files::remove_file(&self.path);
        }
    }
}

impl StepTimesLine {
    fn new(at: f64, span: Duration, times: &StepTimes) -> Self {
        let us = |span: Duration| span.as_nanos() as f64 / 1e3;
        let tasks = times.tasks.iter().map(|steps| TaskLine {
            task: steps.task,
            long: steps.count,
            longest_us: us(steps.longest),
            processor_long: steps.processor_count,
            processor_longest_us: us(steps.processor_longest),
        });
        Self {
            at,
            seconds: span.as_secs_f64(),
            steps: times.count,
            p999_us: us(times.p999),
            longest_us: us(times.longest),
            limit_us: us(LONG_STEP),
            long: times.long_count,
            tasks: tasks.collect(),
        }
    }
}

//! The record of a run, written while it runs: a thread that receives news, and a file.
//!
//! Lines reach the file within a tenth of a second, so that the death of this process loses only
//! what the groups had not yet sent; they are synced every few seconds, in case of a power loss. If the
//! record can no longer be written, a warning is printed and the run continues.

use report::Refusal;
use std::{
    path::{Path, PathBuf},
    task::{Context, Poll, Waker},
    time::Duration,
};
use workload::database::record::{RecordHeader, RecordWriter, Recorder, RunEvent, RunEvents, channel};
use world::{
    IoResult, World,
    real::{self, AppendFile, RealOptions, ThreadHandle, host_files},
};

/// Interval of polling for news.
const LOOK: Duration = Duration::from_millis(100);
/// Least interval of syncs.
const SYNC: Duration = Duration::from_secs(5);

pub struct RunRecord {
    path: PathBuf,
    recorder: Recorder,
    thread: ThreadHandle<IoResult<()>>,
}

fn unwritable(error: &str) -> Refusal {
    Refusal::new(
        format!("the run could not be recorded: {error}"),
        "give another prefix, such as ⟨report⟩ ~/spindle-report",
    )
}

impl RunRecord {
    /// Makes the file and begins to write.
    pub fn begin(path: &Path, header: RecordHeader) -> Result<Self, Refusal> {
        let file = AppendFile::create(path).map_err(|error| unwritable(&error.to_string()))?;
        Self::begin_in(file, path, header).inspect_err(|_| {
            // A record that could not be begun is removed.
            let _ = host_files::remove_file(path);
        })
    }

    fn begin_in(mut file: AppendFile, path: &Path, header: RecordHeader) -> Result<Self, Refusal> {
        let mut writer = RecordWriter::new();
        let opening = writer.line(0.0, RunEvent::Header(Box::new(header)));
        file.append(&opening).and_then(|()| file.sync()).map_err(|error| unwritable(&error.to_string()))?;
        let (recorder, news) = channel();
        // It moves no data under test: it needs no ring.
        let options = RealOptions::plain(true);
        let thread = real::spawn_thread("record", 0, options, move |world| {
            Box::pin(async move { write(&world, file, writer, news).await })
        });
        let thread =
            thread.map_err(|error| Refusal::new(format!("no thread for the record: {error}"), ""))?;
        Ok(Self { path: path.to_owned(), recorder, thread })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Writes the `last` news and ends the record; returns the reason if the record is incomplete.
    pub async fn end(self, last: RunEvent) -> Option<String> {
        self.recorder.tell(last);
        drop(self.recorder);
        let written = self.thread.join().await;
        written.err().map(|error| format!("the record {} is not whole: {error}", self.path.display()))
    }

    /// Ends a record without anything worth keeping, and removes it.
    pub async fn abandon(self) {
        drop(self.recorder);
        // It is removed, even if it could not be written.
        let _ = self.thread.join().await;
        let _ = host_files::remove_file(&self.path);
    }
}

/// Writes news as they come, until all recorders are gone.
async fn write(
    world: &World,
    mut file: AppendFile,
    mut writer: RecordWriter,
    mut news: RunEvents,
) -> IoResult<()> {
    let began = world.now();
    let mut synced = began;
    let mut is_dirty = false;
    loop {
        let mut lines = Vec::new();
        let is_over = loop {
            match news.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(one)) => {
                    lines.append(&mut writer.line(world.now().since(began).as_secs_f64(), one));
                }
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if !lines.is_empty() {
            file.append(&lines)?;
            is_dirty = true;
        }
        if is_dirty && (is_over || world.now().since(synced) >= SYNC) {
            file.sync()?;
            (is_dirty, synced) = (false, world.now());
        }
        if is_over {
            return Ok(());
        }
        world.sleep(LOOK).await;
    }
}

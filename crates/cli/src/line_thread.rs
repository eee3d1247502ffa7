//! Lines of a program that serves, written by a thread of their own.
//!
//! Their reader may be slow: a pipe whose reader takes nothing is full after 64 KiB, and a terminal can be stopped. A
//! write then blocks its thread, and with it whatever else that thread serves.
//!
//! Invariants:
//!
//! 1. A thread that gives a line never waits for its reader.
//! 2. Lines are written whole, in the order in which they were given. Those that find no room are counted, and a line in their
//!    place says how many there were.

use report::Refusal;
use std::{
    cell::Cell,
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};
use world::real::{RealOptions, spawn_thread};

/// Most bytes of lines that wait to be written; a longer line waits alone.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Time for the last lines to be written.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// An output of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

/// Has lines written. Dropping it waits for the last ones, [`LAST_LINES_WITHIN`] at most.
#[derive(Debug)]
pub struct LineThread {
    give: mpsc::Sender<Entry>,
    state: Arc<WritingState>,
    /// Lines that found no room since the last one that did.
    left_out: Cell<u64>,
}

#[derive(Debug, Default)]
struct WritingState {
    /// Of lines that were given and are not written.
    waiting_bytes: AtomicUsize,
    failure: OnceLock<io::ErrorKind>,
}

#[derive(Debug)]
enum Entry {
    Text(Output, String),
    /// Answered when all before it is written.
    Mark(mpsc::Sender<()>),
}

impl Output {
    /// Writes a text whole; blocks until the reader has room for it.
    ///
    /// # Errors
    ///
    /// The reader has gone, or the disk is full.
    pub fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Self::Stderr => io::stderr().write_all(text.as_bytes()),
        }
    }
}

impl LineThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start() -> Result<Self, Refusal> {
        Self::start_with(Output::write)
    }

    fn start_with(
        mut write: impl FnMut(Output, &str) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, Refusal> {
        let (give, entries) = mpsc::channel();
        let state = Arc::<WritingState>::default();
        let of_thread = Arc::clone(&state);
        let thread = spawn_thread("lines", 0, RealOptions::default(), move |_| {
            Box::pin(async move {
                // It does nothing else, so it may block.
                for entry in entries {
                    match entry {
                        Entry::Text(output, text) => {
                            of_thread.note(write(output, &text));
                            of_thread.waiting_bytes.fetch_sub(text.len(), Ordering::AcqRel);
                        }
                        // Nobody may wait any more.
                        Entry::Mark(written) => drop(written.send(())),
                    }
                }
            })
        });
        match thread {
            // It ends with its last sender.
            Ok(_) => Ok(Self { give, state, left_out: Cell::new(0) }),
            Err(error) => Err(Refusal::new(format!("no thread for output: {error}"), "")),
        }
    }

    /// Has a text of whole lines written.
    pub fn write(&self, output: Output, text: String) {
        if !self.say_left_out() || !self.put(output, text) {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    /// Says how many lines were left out, if any; false if there is no room for that either.
    fn say_left_out(&self) -> bool {
        let said = match self.left_out.get() {
            0 => true,
            1 => self.put(Output::Stderr, "warning: 1 line is left out: nobody read it in time\n".to_owned()),
            count => {
                let text = format!("warning: {count} lines are left out: nobody read them in time\n");
                self.put(Output::Stderr, text)
            }
        };
        if said {
            self.left_out.set(0);
        }
        said
    }

    /// False if there is no room.
    fn put(&self, output: Output, text: String) -> bool {
        let waiting = self.state.waiting_bytes.load(Ordering::Acquire);
        if waiting > 0 && waiting + text.len() > WAITING_BYTES_MAX {
            return false;
        }
        self.state.waiting_bytes.fetch_add(text.len(), Ordering::AcqRel);
        // The thread ends after this, unless a write panicked.
        let _ = self.give.send(Entry::Text(output, text));
        true
    }

    /// Waits until everything is written that was given; false if that takes more than [`LAST_LINES_WITHIN`].
    pub fn wait_until_written(&self) -> bool {
        let is_written = self.reaches_mark();
        // There is room for their number only now.
        if self.left_out.get() > 0 { self.say_left_out() && self.reaches_mark() } else { is_written }
    }

    fn reaches_mark(&self) -> bool {
        let (tell, written) = mpsc::channel();
        self.give.send(Entry::Mark(tell)).is_ok() && written.recv_timeout(LAST_LINES_WITHIN).is_ok()
    }

    /// The reason for which lines were lost, if they were. A reader that went away is none.
    pub fn failure(&self) -> Option<io::ErrorKind> {
        self.state.failure.get().copied()
    }
}

impl Drop for LineThread {
    fn drop(&mut self) {
        self.wait_until_written();
    }
}

impl WritingState {
    fn note(&self, written: io::Result<()>) {
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = self.failure.set(error.kind());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines whose reader takes one with each permit, and what it took.
    fn lines() -> (LineThread, mpsc::Sender<()>, mpsc::Receiver<(Output, String)>) {
        let ((permit, permits), (take, taken)) = (mpsc::channel(), mpsc::channel());
        let lines = LineThread::start_with(move |output, text| {
            // Once nothing more is permitted, everything is.
            let _ = permits.recv();
            let _ = take.send((output, text.to_owned()));
            Ok(())
        });
        (lines.unwrap(), permit, taken)
    }

    #[test]
    fn lines_of_a_slow_reader_are_written_in_order_and_those_without_room_counted() {
        let (lines, permit, taken) = lines();
        let line = |number: usize| format!("{number:>1023}\n");
        let count = WAITING_BYTES_MAX / 1024;
        (0..count + 3).for_each(|number| lines.write(Output::Stdout, line(number)));
        // Room for two: one for the count, one for the line.
        (0..2).for_each(|_| permit.send(()).unwrap());
        let mut read = vec![taken.recv().unwrap(), taken.recv().unwrap()];
        while lines.state.waiting_bytes.load(Ordering::Acquire) > (count - 2) * 1024 {
            std::hint::spin_loop();
        }
        lines.write(Output::Stdout, line(count + 3));
        drop(permit);
        assert!(lines.wait_until_written());
        read.extend(taken.try_iter());
        let mut wanted: Vec<_> = (0..count).map(|number| (Output::Stdout, line(number))).collect();
        wanted.push((Output::Stderr, "warning: 3 lines are left out: nobody read them in time\n".to_owned()));
        wanted.push((Output::Stdout, line(count + 3)));
        assert!(read == wanted, "{} of {}", read.len(), wanted.len());
    }

    #[test]
    fn a_line_longer_than_all_room_waits_alone() {
        let (lines, permit, taken) = lines();
        let long = "x".repeat(2 * WAITING_BYTES_MAX);
        lines.write(Output::Stdout, long.clone());
        lines.write(Output::Stdout, "y\n".to_owned());
        drop(permit);
        assert!(lines.wait_until_written());
        let (read, wanted) = (taken.try_iter().collect::<Vec<_>>(), "warning: 1 line is left out");
        assert!(read[0] == (Output::Stdout, long) && read[1].1.starts_with(wanted), "{}", read.len());
    }
}

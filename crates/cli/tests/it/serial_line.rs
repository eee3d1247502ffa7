//! The serial line of an emulated machine.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

pub struct SerialLine {
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    unread: Vec<u8>,
}

impl SerialLine {
    /// The line of a QEMU with `-serial stdio` and both of its pipes.
    pub fn of(qemu: &mut Child) -> Self {
        let (input, mut serial) = (qemu.stdin.take().unwrap(), qemu.stdout.take().unwrap());
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = serial.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { input, output, unread: Vec::new() }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).unwrap();
        self.input.flush().unwrap();
    }

    /// Output before `mark`, neither with carriage returns. Both are read then.
    ///
    /// # Panics
    ///
    /// If the mark does not come within `patience`.
    #[track_caller]
    pub fn read_until(&mut self, mark: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        loop {
            let found = self.unread.windows(mark.len()).position(|window| window == mark.as_bytes());
            if let Some(at) = found {
                let said = String::from_utf8_lossy(&self.unread[..at]).into_owned();
                self.unread.drain(..at + mark.len());
                return said;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(rest) {
                Ok(bytes) => self.unread.extend(bytes.into_iter().filter(|byte| *byte != b'\r')),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("the machine did not say {mark:?}, but: {}", String::from_utf8_lossy(&self.unread))
                }
            }
        }
    }

    /// Forgets output that was received and not read.
    pub fn skip_received(&mut self) {
        self.unread.clear();
    }
}

//! A file in large reads, in order and ahead of the judge.

use std::{collections::VecDeque, rc::Rc};
use world::{Buffer, ByteOffset, File, IoResult, LocalFuture};

/// Size of one read.
pub const CHUNK_BYTES: u64 = 1024 * 1024;
/// Reads in progress while an earlier chunk is judged.
const READS_AHEAD: usize = 2;

type ChunkRead = LocalFuture<IoResult<Vec<Buffer>>>;

/// The chunks of a file. Their buffers are reused: fresh memory would have to be cleared by the kernel first, which
/// takes longer than the judgement.
pub struct Chunks {
    file: Rc<dyn File>,
    /// Offset of the next read, and end of the last.
    at: u64,
    end: u64,
    reads: VecDeque<(u64, ChunkRead)>,
    spare: Vec<Buffer>,
}

impl Chunks {
    /// The bytes from `at` to `end`, both multiples of the page size.
    pub fn new(file: Rc<dyn File>, at: u64, end: u64) -> Self {
        let mut chunks = Self { file, at, end, reads: VecDeque::new(), spare: Vec::new() };
        for _ in 0..READS_AHEAD {
            chunks.read_next();
        }
        chunks
    }

    fn read_next(&mut self) {
        let length = CHUNK_BYTES.min(self.end.saturating_sub(self.at)) as usize;
        if length == 0 {
            return;
        }
        let buffer = self.spare.pop().filter(|spare| spare.len() == length);
        let buffer = buffer.unwrap_or_else(|| Buffer::zeroed(length));
        self.reads.push_back((self.at, self.file.read(ByteOffset(self.at), vec![buffer])));
        self.at += length as u64;
    }

    /// The next chunk and its offset; `None` at the end.
    pub async fn next(&mut self) -> IoResult<Option<(u64, Buffer)>> {
        let Some((at, read)) = self.reads.pop_front() else { return Ok(None) };
        let mut buffers = read.await?;
        self.read_next();
        Ok(Some((at, buffers.pop().expect("a read returns its buffer"))))
    }

    /// Returns a chunk for reuse.
    pub fn reuse(&mut self, chunk: Buffer) {
        self.spare.push(chunk);
    }
}

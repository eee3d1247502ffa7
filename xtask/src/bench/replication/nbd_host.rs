//! A host that writes one numbered block after the other over NBD, each stable before the next, and reads them back.
//!
//! The bench's own, and small: what it times is the first answer of a server that is lost and returns elsewhere, and clients of
//! others take longer to start than that takes.

use anyhow::{Context, Result, ensure};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

pub(super) const BLOCK_BYTES: usize = 4096;
/// A server that hangs is one that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const EXPORT_NAME: u32 = 1;
/// Fixed newstyle, and no zeroes after the flags.
const CLIENT_FLAGS: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
/// The write is stable before it is answered.
const FORCE_UNIT_ACCESS: u16 = 1;

/// A connection to an export.
pub(super) struct NbdHost {
    stream: UnixStream,
}

impl NbdHost {
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        ensure!(greeting[..8] == *b"NBDMAGIC" && greeting[8..16] == *OPTION_MAGIC, "no NBD server");
        let mut request = CLIENT_FLAGS.to_be_bytes().to_vec();
        request.extend(OPTION_MAGIC);
        request.extend(EXPORT_NAME.to_be_bytes());
        request.extend((export.len() as u32).to_be_bytes());
        request.extend(export.as_bytes());
        stream.write_all(&request)?;
        // Size and flags of the export; a server that does not serve it hangs up.
        stream.read_exact(&mut [0; 10]).context("the export is not served")?;
        Ok(Self { stream })
    }

    pub fn write(&mut self, offset: u64, block: &[u8; BLOCK_BYTES]) -> Result<()> {
        let mut request = header(FORCE_UNIT_ACCESS, WRITE, offset);
        request.extend(block);
        self.stream.write_all(&request)?;
        self.answer()
    }

    pub fn read(&mut self, offset: u64) -> Result<[u8; BLOCK_BYTES]> {
        self.stream.write_all(&header(0, READ, offset))?;
        self.answer()?;
        let mut block = [0; BLOCK_BYTES];
        self.stream.read_exact(&mut block)?;
        Ok(block)
    }

    fn answer(&mut self) -> Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        ensure!(reply[..4] == REPLY_MAGIC.to_be_bytes(), "no reply of NBD");
        ensure!(reply[4..8] == [0; 4], "error {} of NBD", u32::from_be_bytes(reply[4..8].try_into()?));
        Ok(())
    }
}

fn header(flags: u16, kind: u16, offset: u64) -> Vec<u8> {
    let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
    request.extend(flags.to_be_bytes());
    request.extend(kind.to_be_bytes());
    request.extend([0; 8]);
    request.extend(offset.to_be_bytes());
    request.extend((BLOCK_BYTES as u32).to_be_bytes());
    request
}

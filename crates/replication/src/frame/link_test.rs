//! Frames of a test of the line, on connections of its own.

use super::{
    BodyCodec, CONNECTIONS_MAX, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks,
};
use array::format::SiteId;
use std::{fmt, sync::Arc, time::Duration};
use world::Buffer;

/// The version of the protocol from which on there are these frames.
pub const LINK_TEST_VERSION: u16 = 2;
/// Bytes of one frame with data, at most.
pub const TEST_DATA_BYTES_MAX: usize = 64 << 10;
/// Time of one measured step, at most.
pub const TEST_STEP_MAX: Duration = Duration::from_secs(30);

/// The first frame of each side on a connection of a test. Connections with the same number are of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTestFrame {
    /// From [`LINK_TEST_VERSION`] on.
    pub version: u16,
    pub site: SiteId,
    /// Number of the test, drawn by the side that connects.
    pub test: u64,
    /// Connections of the test at one time, without the one that measures round trips; from 1 to 16.
    pub connections: u16,
}

impl BodyCodec for LinkTestFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u16(self.version).bytes(&self.site.0).u64(self.test).u16(self.connections);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let version = reader.u16()?;
        if version < LINK_TEST_VERSION {
            return Err(reader.fault(FrameFault::Value("the version")));
        }
        let site = SiteId(reader.array()?);
        if site == SiteId::NONE {
            return Err(reader.fault(FrameFault::Value("the site's UUID")));
        }
        let test = reader.u64()?;
        let connections = reader.u16()?;
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return Err(reader.fault(FrameFault::Value("the number of connections")));
        }
        Ok(Self { version, site, test, connections })
    }
}

/// One measured step of a connection: data goes in one direction, and its receiver counts it. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestOrderFrame {
    /// Data goes to the side that connected; otherwise from it.
    pub is_download: bool,
    /// Time from the beginning that is not counted: the connection finds its rate. Shorter than the whole.
    pub skipped_ms: u32,
    /// Time from the beginning to the end of the count, at most [`TEST_STEP_MAX`].
    pub ends_ms: u32,
}

impl TestOrderFrame {
    /// Beginning and end of the count, from the beginning of the step.
    pub fn counted(&self) -> (Duration, Duration) {
        let after = |ms: u32| Duration::from_millis(ms.into());
        (after(self.skipped_ms), after(self.ends_ms))
    }
}

impl BodyCodec for TestOrderFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u8(self.is_download.into()).u32(self.skipped_ms).u32(self.ends_ms);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let order = Self { is_download: reader.flag()?, skipped_ms: reader.u32()?, ends_ms: reader.u32()? };
        let (skipped, ends) = order.counted();
        if skipped >= ends || ends > TEST_STEP_MAX {
            return Err(reader.fault(FrameFault::Value("the time of a step")));
        }
        Ok(order)
    }
}

/// Bytes without a meaning, which are counted.
#[derive(Clone, PartialEq, Eq)]
pub struct TestDataFrame {
    /// From 1 to [`TEST_DATA_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

impl fmt::Debug for TestDataFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDataFrame").field("bytes", &self.bytes.len()).finish()
    }
}

impl BodyCodec for TestDataFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        assert!((1..=TEST_DATA_BYTES_MAX).contains(&self.bytes.len()), "a frame has data within the bound");
        writer.count(self.bytes.len()).bytes(&self.bytes);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let count = reader.count(1)?;
        if !(1..=TEST_DATA_BYTES_MAX).contains(&count) {
            return Err(reader.fault(FrameFault::Value("the length of the data")));
        }
        Ok(Self { bytes: reader.bytes(count)?.to_owned() })
    }
}

/// The receiver's count of one step, for the side that sent the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestCountFrame {
    /// Bytes that arrived in the counted time.
    pub bytes: u64,
    /// The counted time, as it was.
    pub nanoseconds: u64,
}

impl BodyCodec for TestCountFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.bytes).u64(self.nanoseconds);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { bytes: reader.u64()?, nanoseconds: reader.u64()? })
    }
}

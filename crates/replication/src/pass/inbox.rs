//! The pass that comes over a channel, frame by frame.

use super::{PassFault, PassReceiver};
use crate::{connect::Introduction, frame::FrameBody, lineage::Lineage, member::GroupMember};
use array::format::Stamp;
use std::rc::Rc;

#[derive(Default)]
pub(crate) struct PassInbox(Option<PassReceiver>);

impl PassInbox {
    /// Takes a frame of a pass at a side that has everything up to `has`. Returns the stamp up to which it has everything
    /// once a pass has ended.
    pub async fn take(
        &mut self,
        (member, has): (&Rc<GroupMember>, Stamp),
        frame: FrameBody,
        theirs: &Introduction,
    ) -> Result<Option<Stamp>, PassFault> {
        match (frame, self.0.as_mut()) {
            (FrameBody::PassBegin(begin), _) => {
                self.0 = Some(PassReceiver::begin(member, &begin, (has, theirs.lineage.as_ref())).await?);
            }
            (FrameBody::PassSnapshots(snapshots), Some(pass)) => pass.take_snapshots(snapshots).await?,
            (FrameBody::PassPoint(point), Some(pass)) => pass.take_point(point).await?,
            (FrameBody::PassSnapshot(snapshot), Some(pass)) => pass.take_snapshot(snapshot).await?,
            (FrameBody::PassRanges(ranges), Some(pass)) => pass.take_ranges(ranges).await?,
            (FrameBody::PassBlocks(blocks), Some(pass)) => pass.take_blocks(blocks).await?,
            (FrameBody::PassEnd(end), Some(pass)) => {
                let history = theirs.lineage.as_ref().and_then(|lineage| history_of(lineage, pass.until()));
                let no_epoch = || PassFault::Frame("a pass to a stamp of no epoch".to_owned());
                let lineage = history.ok_or_else(no_epoch)?;
                let pass = self.0.take().expect("it was looked at");
                return Ok(Some(pass.end(&end, lineage).await?));
            }
            (
                FrameBody::PassSnapshots(_)
                | FrameBody::PassPoint(_)
                | FrameBody::PassSnapshot(_)
                | FrameBody::PassRanges(_)
                | FrameBody::PassBlocks(_)
                | FrameBody::PassEnd(_),
                None,
            ) => {
                return Err(PassFault::Frame("a frame of a pass that has not begun".to_owned()));
            }
            (frame, _) => {
                return Err(PassFault::Frame(format!("a frame {:?} does not belong here", frame.kind())));
            }
        }
        Ok(None)
    }
}

/// A lineage as of a stamp.
fn history_of(lineage: &Lineage, stamp: Stamp) -> Option<Lineage> {
    let epoch = lineage.epoch_of(0, stamp)?.epoch;
    let until = lineage.epochs().iter().position(|known| known.epoch == epoch)?;
    Some(Lineage::from_epochs(lineage.epochs()[..=until].to_vec()).expect("a part of a lineage is one"))
}
